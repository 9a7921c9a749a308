"""Bytes of messages: from memory when all are there, else from the disk; only what is meant."""

from penstock.broker.fetching import cached_frames, read_frames
from penstock.delivery.state import Lease
from tests.broker.rig import Rig


def lease_of(rig: Rig) -> Lease:
    (consumer,) = rig.broker.engine.consumers.values()
    (lease,) = consumer.leases.values()
    return lease


def test_frames_come_from_memory_until_they_are_forgotten() -> None:
    rig = Rig()
    rig.attach()
    rig.publish("orders", b"0", b"1", b"2")
    lease = lease_of(rig)
    frames = cached_frames(rig.journal, lease)
    assert frames is not None
    assert [list(frame.offsets) for frame in frames] == [[0, 1, 2]]
    rig.journal._cache.clear()
    assert cached_frames(rig.journal, lease) is None
    frames, lost = read_frames(rig.journal, lease.cursor.partition, 0, 3)
    assert [list(frame.offsets) for frame in frames] == [[0, 1, 2]]
    assert lost == []


def test_a_scattered_lease_gets_only_its_messages() -> None:
    rig = Rig()
    rig.attach()
    rig.publish("orders", b"0", b"1", b"2")
    lease = lease_of(rig)
    lease.open = 0b101
    frames = cached_frames(rig.journal, lease)
    assert frames is not None
    assert [list(frame.offsets) for frame in frames] == [[0, 2]]
    assert [list(frame.indexes) for frame in frames] == [[0, 2]]
