"""What is chosen for a copy is a whole store, as far as it was durable."""

from penstock.journal import copying, superblock
from penstock.journal.memory import MemoryDisk
from penstock.journal.verify import Verdict, verify
from tests.broker.rig import Rig


def image_of(rig: Rig, plan: copying.Copy) -> dict[str, bytes]:
    return {
        each.name: copying.read(rig.journal, each, 0, each.used).ljust(each.size, b"\0")
        for each in plan.sources
    }


def test_a_new_store_copies_without_a_snapshot() -> None:
    rig = Rig()
    rig.publish("orders", b"a")
    plan = copying.plan(rig.journal)
    assert [each.name for each in plan.sources] == ["superblock", "segment-00000001"]
    copy = Rig(MemoryDisk.from_image(image_of(rig, plan), record=True), rig.clock)
    assert copy.held() == [b"a"]


def test_what_is_not_durable_yet_is_not_copied() -> None:
    rig = Rig()
    rig.publish("orders", b"a")
    plan = copying.plan(rig.journal)
    rig.publish("orders", b"b")
    copy = Rig(MemoryDisk.from_image(image_of(rig, plan), record=True), rig.clock)
    assert copy.held() == [b"a"]


def test_the_superblock_says_how_far_the_copy_goes() -> None:
    rig = Rig()
    rig.publish("orders", b"a")
    rig.keeper.snapshot()
    plan = copying.plan(rig.journal)
    image = image_of(rig, plan)
    (state,) = [s for s in superblock.decode_slots(image["superblock"]) if s is not None]
    assert state.durable_upto == plan.position == rig.journal.durable_upto
    assert state.snapshot_generation == rig.journal.snapshots[0][0]
    assert not state.is_clean
    assert verify(MemoryDisk.from_image(image)).verdict is Verdict.OK


def test_segments_that_nothing_needs_stay_behind() -> None:
    rig = Rig()
    worker = rig.attach()
    for _ in range(40):
        rig.publish("orders", b"x" * 500)
    for part in worker.take():
        rig.ack(worker, part)
    before = len(copying.plan(rig.journal).sources)
    rig.keeper.snapshot()
    rig.keeper.snapshot()
    after = copying.plan(rig.journal)
    assert len(after.sources) < before
    copy = Rig(MemoryDisk.from_image(image_of(rig, after), record=True), rig.clock)
    assert copy.held() == []
    assert copy.counts().acked == 40
