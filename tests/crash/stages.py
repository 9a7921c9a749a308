"""The stages that must catch a planted sabotage. Each passes on the code as it is."""

import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from penstock.batch import encode_many, encode_one
from penstock.broker.broker import Broker
from penstock.broker.mailbox import DIRECT, Pending
from penstock.journal import group
from penstock.journal.disk import Disk, FolderDisk
from penstock.journal.memory import ALL_POLICIES, Image, MemoryDisk
from penstock.journal.segment import FIRST_GROUP
from penstock.vocabulary.errors import StorageError, StoreInUse
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.stored import Stored
from tests.crash.enumeration import Enumeration, Workload
from tests.crash.faults import Figures, faults_of, inject
from tests.crash.given import BOB, SETTINGS, Hand, chance
from tests.crash.oracle import Violation, items
from tests.crash.run import Run

Stage = Callable[[], None]


@cache
def crash(*workloads: Workload) -> Stage:
    """The enumeration of these workloads, with a few second crashes."""

    def enumeration() -> None:
        for workload in workloads:
            Enumeration(workload, depth2_stride=8, kill_stride=2, damage_stride=2)()

    return enumeration


@cache
def refuse(*workloads: Workload) -> Stage:
    """The disk fails at every operation of these workloads."""

    def faults() -> None:
        for workload in workloads:
            for fault in faults_of(workload):
                inject(workload, fault, Figures())

    return faults


# -- damage ---------------------------------------------------------------------------------------


def damage() -> None:
    """A spoilt group in the middle of the log costs itself and nothing else (S10)."""
    run, groups = _log_of(5)
    image = run.disk.image()
    segment = run.broker.journal.active
    assert segment is not None
    for number in range(1, 4):
        at = groups[number]
        spoilt = _changed(image, segment.file.name, at + 70, bytes(16))
        held = _held(spoilt)
        if held != {0, 1, 2, 3, 4} - {number}:
            raise Violation(f"S10 group {number} was spoilt and {sorted(held)} are left")


def miscounted() -> None:
    """A group header that says less than the group holds is noticed, its records are not lost."""
    run = Run()
    with chance("miscounted"):
        run.open()
        run.publish("orders", b"0", is_committed=False)
        run.publish("orders", b"1", is_committed=False)
        run.publish("orders", b"2")
        run.publish("orders", b"3")
        run.mark()
    segment = run.broker.journal.active
    assert segment is not None
    at = FIRST_GROUP + 512
    spoilt = _changed(run.disk.image(), segment.file.name, at + 4, (2).to_bytes(4, "little"))
    if _held(spoilt) != {0, 1, 2, 3}:
        raise Violation(f"S10 a wrong count cost records: {_held(spoilt)} are left")


def spliced() -> None:
    """A copy of one group over another is not taken for it (S3, S8)."""
    run, groups = _log_of(5)
    image = run.disk.image()
    segment = run.broker.journal.active
    assert segment is not None
    data = image[segment.file.name]
    copied = data[groups[1] : groups[1] + 512]
    broker = _open(_changed(image, segment.file.name, groups[3], copied))
    [damage] = broker.journal.report.damages
    if damage.rescued_records or _offsets(broker) != {0, 1, 2, 4}:
        raise Violation(f"S3 a group in the wrong place was used: {damage}")


def torn_then_damaged() -> None:
    """What a torn group left behind never comes back, not even by later damage."""
    run = Run()
    images: list[Image] = []
    with chance("torn"):
        run.open()
        run.publish("orders", b"0")
        run.disk.on_operation = lambda _: images.extend(
            image for _, image in run.disk.crash_images(ALL_POLICIES)
        )
        run.publish("orders", b"1" * 920, is_committed=False)
        run.publish("orders", b"2" * 200)
    for image in images:
        disk = MemoryDisk.from_image(image)
        with chance("after"):
            broker = Broker.open(disk, SETTINGS, Hand(), threads=False)
        before = {offset for _, f in broker.held("orders") for offset, _ in items(f)}
        _publish(broker, b"next", 0)
        broker.journal.mark()
        segment = broker.journal.active
        assert segment is not None
        spoilt = _changed(disk.image(), segment.file.name, segment.end - 512 + 70, bytes(16))
        if not _held(spoilt) <= before:
            raise Violation(f"S2 {_held(spoilt) - before} came back from a torn group")


def _log_of(count: int) -> tuple[Run, list[int]]:
    """A store with one message per group, and the byte where each group starts."""
    run = Run(settings=msgspec.structs.replace(SETTINGS, segment_bytes_min=65_536))
    groups: list[int] = []
    with chance("log"):
        run.open()
        for number in range(count):
            segment = run.broker.journal.active
            assert segment is not None
            groups.append(segment.end)
            run.publish("orders", b"%d" % number, publisher=BOB)
        run.mark()
    return run, groups


def _changed(image: Image, name: str, at: int, data: bytes) -> Image:
    old = image[name]
    return {**image, name: old[:at] + data + old[at + len(data) :]}


def _held(image: Image) -> set[int]:
    return _offsets(_open(image))


def _open(image: Image) -> Broker:
    with chance("opened"):
        try:
            return Broker.open(MemoryDisk.from_image(image), SETTINGS, Hand(), threads=False)
        except StorageError as error:
            raise Violation(f"S10 damage to one group made the store unusable: {error}") from error


def _offsets(broker: Broker) -> set[int]:
    return {offset for _, frame in broker.held("orders") for offset, _ in items(frame)}


# -- one claim each -------------------------------------------------------------------------------


def opened_twice() -> None:
    """A store has one writer (S14)."""
    disk = MemoryDisk()
    first = Broker.open(disk, SETTINGS, Hand(), threads=False)
    _expect_in_use(disk)
    first.abandon()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store"
        first = Broker.open(FolderDisk(place), SETTINGS, Hand(), threads=False)
        _expect_in_use(FolderDisk(place))
        first.abandon()


def _expect_in_use(disk: Disk) -> None:
    try:
        second = Broker.open(disk, SETTINGS, Hand(), threads=False)
    except StoreInUse:
        return
    second.abandon()
    raise Violation("S14 a second broker opened the store")


def tokens() -> None:
    """An ack counts only from whoever holds the message, under its present token."""
    run = Run()
    run.open()
    policy = SubscriptionPolicy(lease_s=1.0)
    first = run.attach("orders", "billing", policy, credit=1)
    run.publish("orders", b"a")
    [claim] = run.claims(first, [(0, 0)])
    second = run.attach("orders", "billing", policy, credit=1)
    if not run.broker.ack(second.consumer, [claim._replace(lease_id=77, attempt=5)]):
        raise Violation("an ack was accepted from a consumer that never had the message")
    run.broker.detach(first.consumer, {}, DIRECT, lambda _: None, is_clean=False)
    run.commit()
    run.clock.advance(60_000)
    run.broker.tick()
    run.commit()
    if (0, 0) not in second.held:
        raise Violation("the message of a lost consumer was not delivered again")
    if not run.broker.ack(second.consumer, [claim]):
        raise Violation("a stale ack token was accepted")


def wall_clock_jumps() -> None:
    """A jump of the wall clock ends no lease."""
    run = Run()
    run.open()
    holder = run.attach("orders", "billing", SubscriptionPolicy(lease_s=30.0))
    run.publish("orders", b"a")
    leases = list(holder.consumer.leases)
    run.clock.jump(24 * 3600 * 1000)
    run.broker.tick()
    run.commit()
    if list(holder.consumer.leases) != leases:
        raise Violation("a lease ended because the wall clock jumped")


def overlap() -> None:
    """A retry that repeats some messages and adds others stores only the new ones (S7)."""
    run = Run()
    run.open()
    broker = run.broker
    _publish(broker, b"0", 0)
    batch = encode_many([Message(body=b"%d" % number) for number in range(3)])
    pending = Pending()
    broker.publish("orders", 0, batch, 3, BOB, 0, 0, DIRECT, pending)
    broker.engine.commit_once()
    stored = pending.wait()
    bodies = [item.body for _, frame in broker.held("orders") for _, item in items(frame)]
    if not isinstance(stored, Stored) or bodies != [b"0", b"1", b"2"]:
        raise Violation(f"S7 an overlapping retry left {bodies} and was answered with {stored}")


def _publish(broker: Broker, body: bytes, sequence: int) -> Any:
    pending = Pending()
    broker.publish("orders", 0, encode_one(body), 1, BOB, 0, sequence, DIRECT, pending)
    broker.engine.commit_once()
    return pending.wait()


def short_writes() -> None:
    """The operating system writes a hundred bytes at a time; nothing is lost."""
    pwrite, pwritev = os.pwrite, os.pwritev

    def some(descriptor: int, data: bytes, offset: int) -> int:
        return pwrite(descriptor, memoryview(data)[:100], offset)

    def some_vector(descriptor: int, parts: Any, offset: int, flags: int = 0) -> int:
        return pwritev(descriptor, (memoryview(parts[0])[:100],), offset, flags)

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store"
        with mock.patch.object(os, "pwrite", some), mock.patch.object(os, "pwritev", some_vector):
            broker = Broker.open(FolderDisk(place), SETTINGS, Hand(), threads=False)
            for number in range(3):
                _publish(broker, b"%d" % number * 200, number)
            broker.abandon()
        broker = Broker.open(FolderDisk(place), SETTINGS, Hand(), threads=False)
        has_topic = any(shown["topic"] == "orders" for shown in broker.topics())
        frames = [frame for _, frame in broker.held("orders")] if has_topic else []
        found = [offset for frame in frames for offset, _ in items(frame)]
        broker.abandon()
    if found != [0, 1, 2]:
        raise Violation(f"S1 short writes left only {found}")


assert group.EDGE == 512, "the places above are counted in sectors"
