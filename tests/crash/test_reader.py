"""A power cut at any moment: what a reader was told stays true, and its plan reads the same."""

from typing import Any

import pytest

from penstock.batch import Batch
from penstock.journal.memory import MemoryDisk, Op
from penstock.vocabulary.errors import PenstockError, ReaderFenced
from tests.broker.rig import Rig
from tests.crash.enumeration import QUICK_POLICIES

Moment = tuple[dict[str, Any], list[tuple[str, Any]]]


class Cuts:
    """A workload, and every image a power cut may leave before each operation on the disk."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.bodies: list[bytes] = []
        self.told: dict[str, Any] = {"owner": "", "progress": 0, "planned": 0, "bodies": 0}
        self.asked = dict(self.told)
        self.moments: list[Moment] = []
        self.rig.disk.on_operation = self._look

    def _look(self, _op: Op) -> None:
        facts = {"told": dict(self.told), "asked": dict(self.asked)}
        self.moments.append((facts, list(self.rig.disk.crash_images(QUICK_POLICIES))))

    def _note(self, **facts: Any) -> None:
        self.told.update(facts)

    def publish(self, count: int) -> None:
        fresh = [b"%03d" % (len(self.bodies) + number) + bytes(60) for number in range(count)]
        self.bodies += fresh
        self.asked["bodies"] = len(self.bodies)
        self.rig.publish("orders", *fresh)
        self._note(bodies=len(self.bodies))

    def open(self, owner: str) -> None:
        self.asked["owner"] = owner
        self.rig.broker.open_reader("orders", "tables", owner, None)
        self._note(owner=owner)

    def plan(self, count: int) -> None:
        self.asked["planned"] = min(len(self.bodies), self.told["planned"] + count)
        self.rig.broker.plan_ranges("orders", "tables", self.told["owner"], count, None, None)
        self._note(planned=self.asked["planned"])

    def commit(self, end: int) -> None:
        self.asked["progress"] = end
        self.rig.broker.commit_reader("orders", "tables", self.told["owner"], {0: end})
        self._note(progress=end)


def workload() -> Cuts:
    cuts = Cuts()
    cuts.open("run-1")
    cuts.publish(6)
    cuts.plan(4)
    cuts.publish(5)
    cuts.commit(3)
    cuts.plan(3)
    cuts.rig.keeper.snapshot()
    cuts.open("run-2")
    cuts.publish(40)
    segment = next(s for s in cuts.rig.journal.index.segments.values() if s.is_sealed and s.live)
    cuts.rig.keeper.compact(segment)
    cuts.plan(20)
    cuts.commit(12)
    cuts.rig.keeper.snapshot()
    cuts.rig.keeper.snapshot()
    cuts.rig.journal.free_segments()
    cuts.commit(20)
    return cuts


def check(cuts: Cuts, facts: dict[str, Any], image: Any) -> None:
    told, asked = facts["told"], facts["asked"]
    rig = Rig(MemoryDisk.from_image(image, record=True), cuts.rig.clock)
    topic = rig.broker.state.names.get("orders")
    if topic is None or "tables" not in (topic.subscriptions or {}):
        assert told["owner"] == ""
        return
    state = rig.broker.describe_reader("orders", "tables")
    assert state.owner in {told["owner"], asked["owner"]}
    assert state.progress[0] in {told["progress"], asked["progress"]}
    assert state.planned[0] in {told["planned"], asked["planned"]}
    if not state.owner:
        return
    if state.owner == "run-2":
        with pytest.raises(ReaderFenced):
            rig.broker.open_reader("orders", "tables", "run-1", None)
    for partition, start, end in state.ranges():
        frames, upto = rig.broker.read_range(
            "orders", "tables", state.owner, partition, start, end, 1 << 30
        )
        found = [Batch(f.batch).bodies[index] for f in frames for index in f.indexes]
        assert upto == end
        assert found == cuts.bodies[start:end]
    counts = rig.counts("orders", "tables")
    assert (counts.acked, counts.dropped) == (state.progress[0], 0)
    assert counts.attached >= told["bodies"]


def test_what_a_reader_was_told_survives_a_power_cut_at_any_moment() -> None:
    cuts = workload()
    images = [(facts, label, image) for facts, found in cuts.moments for label, image in found]
    assert len(images) > 100
    for facts, label, image in images:
        try:
            check(cuts, facts, image)
        except (AssertionError, PenstockError) as error:
            raise AssertionError(f"{label} with {facts}: {error}") from error
