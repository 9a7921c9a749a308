"""Readers at a broker: what is planned is held and read again, whatever happens in between."""

import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.batch import Batch, encode_many
from penstock.batch.frame import Frame
from penstock.broker import reading
from penstock.broker.broker import Broker
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.salvage import salvage
from penstock.delivery.counts import unexplained
from penstock.journal.memory import MemoryDisk
from penstock.journal.sequential import fetch_run
from penstock.vocabulary.errors import (
    Closed,
    InvalidArgument,
    NotPlanned,
    PositionNotHeld,
    ReaderFenced,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicInUse,
    UnknownSubscription,
    UnknownTopic,
)
from penstock.vocabulary.limits import OFFSET_SKIP
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.reading import PlannedRange
from penstock.vocabulary.records import Cause
from tests.broker.rig import NAMED, SETTINGS, Rig

ALL = 1 << 30


@pytest.fixture
def rig() -> Rig:
    return Rig()


class Desk:
    """A reader at a broker, and the shortest way to use it."""

    def __init__(
        self, rig: Rig, owner: str = "run-1", topic: str = "orders", **options: Any
    ) -> None:
        self.rig = rig
        self.owner = owner
        self.topic = topic
        self.state = rig.broker.open_reader(topic, "tables", owner, options.get("start"))

    def plan(
        self, messages: int | None = None, size: int | None = None, **after: int
    ) -> list[PlannedRange]:
        given = {int(name[1:]): offset for name, offset in after.items()} or None
        return self.rig.broker.plan_ranges(self.topic, "tables", self.owner, messages, size, given)

    def read(self, partition: int, start: int, end: int, piece: int = ALL) -> list[bytes | None]:
        return bodies(self.frames(partition, start, end, piece))

    def frames(self, partition: int, start: int, end: int, piece: int = ALL) -> list[Frame]:
        found: list[Frame] = []
        at = start
        while True:
            frames, at = self.rig.broker.read_range(
                self.topic, "tables", self.owner, partition, at, end, piece
            )
            found += frames
            if at >= end:
                return found

    def commit(self, **ends: int) -> None:
        given = {int(name[1:]): end for name, end in ends.items()}
        self.rig.broker.commit_reader(self.topic, "tables", self.owner, given)

    def planned(self) -> list[PlannedRange]:
        return self.rig.broker.describe_reader(self.topic, "tables").ranges()

    def counts(self) -> tuple[int, int, int, int]:
        found = self.rig.counts(self.topic, "tables")
        assert unexplained(found) == 0
        return found.attached, found.acked, found.waiting, found.dropped


def bodies(frames: list[Frame]) -> list[bytes | None]:
    return [Batch(frame.batch).bodies[index] for frame in frames for index in frame.indexes]


def rows(frames: list[Frame]) -> list[tuple[Any, ...]]:
    """Everything a message is, whatever record it lies in."""
    found = []
    for frame in frames:
        view = Batch(frame.batch)
        for offset, index in zip(frame.offsets, frame.indexes, strict=True):
            id_, at = frame.id_of(view, index), frame.published_at_of(view, index)
            found.append((offset, view.bodies[index], id_, at))
    return found


def fill(rig: Rig, count: int, topic: str = "orders", **options: Any) -> list[bytes]:
    made = [b"%06d" % number + bytes(100) for number in range(count)]
    for body in made:
        rig.publish(topic, body, **options)
    return made


# -- plan, read, commit --------------------------------------------------------------------------


def test_a_reader_plans_reads_and_commits(rig: Rig) -> None:
    desk = Desk(rig)
    made = fill(rig, 10)
    assert desk.plan(4) == [(0, 0, 4)]
    assert desk.plan(4) == [(0, 4, 8)]
    assert desk.planned() == [(0, 0, 8)]
    assert desk.read(0, 0, 4) == made[:4]
    assert desk.read(0, 2, 8) == desk.read(0, 2, 8) == made[2:8]
    desk.commit(p0=4)
    assert desk.planned() == [(0, 4, 8)]
    assert rig.held() == made[4:]
    assert desk.counts() == (10, 4, 6, 0)
    assert desk.plan() == [(0, 8, 10)]
    assert desk.plan() == []


def test_nothing_is_planned_of_nothing(rig: Rig) -> None:
    desk = Desk(rig)
    assert desk.plan() == []
    assert desk.read(0, 0, 0) == []


def test_a_plan_is_durable_before_it_is_answered(rig: Rig) -> None:
    desk = Desk(rig)
    fill(rig, 3)
    before = rig.syncs()
    desk.plan(2)
    assert rig.syncs() > before
    assert Desk(rig.crash()).planned() == [(0, 0, 2)]


def test_a_plan_may_go_on_after_other_offsets(rig: Rig) -> None:
    desk = Desk(rig)
    fill(rig, 10)
    desk.plan(6)
    assert desk.plan(4, p0=2) == [(0, 2, 6)]
    assert desk.plan(6, p0=2) == [(0, 2, 8)]
    assert desk.planned() == [(0, 0, 8)]
    desk.commit(p0=3)
    with pytest.raises(PositionNotHeld):
        desk.plan(1, p0=2)
    with pytest.raises(InvalidArgument, match="no 1"):
        desk.plan(1, p1=2)


def test_two_partitions_share_a_plan(rig: Rig) -> None:
    rig.broker.create_topic("orders", 2, TopicPolicy())
    desk = Desk(rig)
    first, second = fill(rig, 3), fill(rig, 20, partition=1)
    assert desk.plan(10) == [(0, 0, 3), (1, 0, 7)]
    assert desk.plan(10) == [(1, 7, 17)]
    assert desk.read(0, 0, 3) == first
    assert desk.read(1, 2, 17) == second[2:17]
    desk.commit(p0=2, p1=5)
    assert desk.planned() == [(0, 2, 3), (1, 5, 17)]
    assert desk.counts() == (23, 7, 16, 0)


def test_bytes_limit_a_plan_but_one_message_always_goes(rig: Rig) -> None:
    rig.broker.create_topic("orders", 2, TopicPolicy())
    desk = Desk(rig)
    fill(rig, 20)
    fill(rig, 20, partition=1)
    ranges = desk.plan(None, 2000)
    sizes = {partition: end - start for partition, start, end in ranges}
    assert set(sizes) == {0, 1}
    assert 4 <= sizes[0] <= 8
    assert 4 <= sizes[1] <= 8
    (only,) = desk.plan(None, 1)
    assert only.end - only.start == 1


def test_bytes_limit_a_plan_inside_a_record(rig: Rig) -> None:
    desk = Desk(rig)
    rig.publish("orders", *[bytes(100)] * 20)
    (found,) = desk.plan(None, 1000)
    assert 7 <= found.end <= 9


@pytest.mark.parametrize("limits", [(0, None), (None, 0), (True, None), (1.5, None), (None, "9")])
def test_limits_of_a_plan_are_whole_numbers(rig: Rig, limits: tuple[Any, Any]) -> None:
    desk = Desk(rig)
    with pytest.raises(InvalidArgument, match="whole number from 1 on"):
        desk.plan(*limits)


def test_plans_at_the_same_time_never_overlap() -> None:
    broker = Broker.open(MemoryDisk(), SETTINGS)
    try:
        broker.open_reader("orders", "tables", "run-1", None)
        pending = Pending()
        batch = encode_many([b"x"] * 400)
        broker.publish("orders", 0, batch, 400, NAMED, 0, 0, DIRECT, pending)
        pending.wait()
        found: list[PlannedRange] = []

        def work() -> None:
            while ranges := broker.plan_ranges("orders", "tables", "run-1", 7, None, None):
                found.extend(ranges)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        broker.close()
    offsets = sorted(offset for _, start, end in found for offset in range(start, end))
    assert offsets == list(range(400))


def test_a_plan_that_another_overtook_is_made_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(rig)
    fill(rig, 10)
    share = rig.broker._ends
    others: list[Any] = []

    def plan_first(*arguments: Any) -> Any:
        if not others:
            others.append(None)
            others.extend(desk.plan(3))
        return share(*arguments)

    monkeypatch.setattr(rig.broker, "_ends", plan_first)
    assert desk.plan(4) == [(0, 3, 7)]
    assert others == [None, (0, 0, 3)]


def test_a_long_range_comes_in_pieces(rig: Rig) -> None:
    desk = Desk(rig)
    made = fill(rig, 40)
    desk.plan()
    frames, upto = rig.broker.read_range("orders", "tables", "run-1", 0, 0, 40, 500)
    assert 0 < upto < 10
    assert bodies(frames) == made[:upto]
    assert desk.read(0, 0, 40, 500) == desk.read(0, 0, 40, 1) == made


def test_a_start_may_be_chosen(rig: Rig) -> None:
    fill(rig, 5)
    assert Desk(rig, start="0:3").plan() == [(0, 3, 5)]
    rig.broker.open_reader("orders", "late", "x", "latest")
    assert rig.broker.describe_reader("orders", "late").progress == (5,)
    with pytest.raises(InvalidArgument):
        rig.broker.open_reader("orders", "third", "x", "nowhere")
    assert "third" not in (rig.broker.state.names["orders"].subscriptions or {})


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("end", [1, 6, 99])
def test_a_commit_backwards_or_beyond_the_plan_is_refused(rig: Rig, end: int) -> None:
    desk = Desk(rig)
    fill(rig, 10)
    desk.plan(5)
    desk.commit(p0=2)
    with pytest.raises(NotPlanned):
        desk.commit(p0=end)
    assert desk.planned() == [(0, 2, 5)]
    assert desk.counts() == (10, 2, 8, 0)


@pytest.mark.parametrize(("start", "end"), [(0, 3), (5, 11)])
def test_reading_what_is_not_held_is_refused(rig: Rig, start: int, end: int) -> None:
    desk = Desk(rig)
    fill(rig, 10)
    desk.plan(5)
    desk.commit(p0=2)
    with pytest.raises(PositionNotHeld):
        desk.read(0, start, end)
    with pytest.raises(InvalidArgument, match="no 7"):
        desk.read(7, 0, 1)


def test_a_range_committed_while_it_is_read_is_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(rig)
    fill(rig, 10)
    desk.plan()
    fetch = fetch_run

    def commit_first(*arguments: Any) -> Any:
        desk.commit(p0=10)
        return fetch(*arguments)

    monkeypatch.setattr(reading, "fetch_run", commit_first)
    with pytest.raises(PositionNotHeld, match="moved on to 0:10"):
        desk.read(0, 0, 10)


def test_a_new_owner_fences_the_old_one_also_after_a_restart(rig: Rig) -> None:
    old = Desk(rig)
    made = fill(rig, 10)
    old.plan(4)
    new = Desk(rig, "run-2")
    for _ in range(2):
        for act in (lambda: old.plan(1), lambda: old.commit(p0=1), lambda: old.read(0, 0, 1)):
            with pytest.raises(ReaderFenced):
                act()
        with pytest.raises(ReaderFenced):
            Desk(old.rig, "run-1")
        assert new.planned() == [(0, 0, 4)]
        assert new.read(0, 0, 4) == made[:4]
        old.rig = new.rig = old.rig.crash()
    new.commit(p0=4)


def test_one_owner_opens_as_often_as_it_likes(rig: Rig) -> None:
    first = Desk(rig)
    fill(rig, 4)
    first.plan(2)
    second = Desk(rig)
    assert second.state.planned == (2,)
    assert second.plan() == [(0, 2, 4)]
    first.commit(p0=4)


def test_consumers_cannot_join_a_reader(rig: Rig) -> None:
    Desk(rig)
    before = rig.broker.state.next_consumer_id
    for policy in (None, SubscriptionPolicy(), reading.POLICY):
        with pytest.raises(SubscriptionConflict, match=r"client\.reader"):
            rig.attach(subscription="tables", policy=policy)
    with pytest.raises(SubscriptionConflict, match=r"client\.reader"):
        rig.attach(subscription=None, policy=reading.POLICY)
    assert rig.broker.state.next_consumer_id == before


def test_a_reader_cannot_take_the_name_of_another_kind(rig: Rig) -> None:
    rig.attach(subscription="tables")
    with pytest.raises(SubscriptionConflict, match="not a reader"):
        Desk(rig)


def test_a_reader_may_be_made_beforehand(rig: Rig) -> None:
    rig.broker.create_subscription("orders", "tables", reading.POLICY, None)
    fill(rig, 2)
    with pytest.raises(ReaderFenced):
        rig.broker.plan_ranges("orders", "tables", "run-1", 1, None, None)
    assert Desk(rig).plan() == [(0, 0, 2)]


def test_unknown_readers_and_dead_topics_are_refused(rig: Rig) -> None:
    with pytest.raises(UnknownTopic):
        rig.broker.describe_reader("orders", "tables")
    with pytest.raises(UnknownTopic):
        rig.broker.open_reader("orders.dead.billing", "tables", "run-1", None)
    rig.publish()
    with pytest.raises(UnknownSubscription):
        rig.broker.plan_ranges("orders", "tables", "run-1", 1, None, None)
    with pytest.raises(InvalidArgument, match="owner"):
        Desk(rig, "")
    assert rig.broker.state.names["orders"].subscriptions is None
    rig.broker.close()
    with pytest.raises(Closed):
        Desk(rig)


# -- holding -------------------------------------------------------------------------------------


def test_a_topic_with_a_planned_range_is_not_deleted(rig: Rig) -> None:
    desk = Desk(rig)
    fill(rig, 3)
    desk.plan(2)
    with pytest.raises(TopicInUse, match="reader 'tables'"):
        rig.broker.delete_topic("orders")
    with pytest.raises(SubscriptionInUse, match="planned"):
        rig.broker.delete_subscription("orders", "tables")
    assert desk.planned() == [(0, 0, 2)]
    desk.commit(p0=2)
    rig.broker.delete_topic("orders")
    with pytest.raises(UnknownTopic):
        desk.plan()


def test_a_released_reader_holds_nothing(rig: Rig) -> None:
    desk = Desk(rig)
    fill(rig, 3)
    desk.plan(2)
    with pytest.raises(SubscriptionInUse, match="force"):
        rig.broker.release_reader("orders", "tables", "run-1", is_forced=False)
    with pytest.raises(ReaderFenced):
        rig.broker.release_reader("orders", "tables", "run-0", is_forced=True)
    rig.broker.release_reader("orders", "tables", "run-1", is_forced=True)
    assert rig.held() == []
    with pytest.raises(UnknownSubscription):
        desk.plan()
    rig = rig.crash()
    assert rig.broker.subscriptions() == []
    again = Desk(rig, "run-0")
    assert again.planned() == []


def test_retention_leaves_a_reader_alone(rig: Rig) -> None:
    rig.broker.create_topic("orders", 1, TopicPolicy(retain_s=60))
    made = fill(rig, 4)
    desk = Desk(rig, start="0:2")
    desk.plan(1)
    fill(rig, 1)
    rig.wait(3600)
    assert desk.read(0, 2, 3) == made[2:3]
    assert rig.held() == [*made[2:], b"%06d" % 0 + bytes(100)]


def dead_letters(rig: Rig, count: int) -> None:
    policy = SubscriptionPolicy(retry=Retry(max_attempts=1))
    worker = rig.attach(policy=policy)
    for _ in range(count):
        rig.publish()
    for part in worker.take():
        rig.give_back(worker, part, cause=Cause.REJECTED)
    rig.detach(worker)
    while rig.keeper.move_doomed():
        rig.settle()


def test_purge_and_redrive_leave_what_is_planned(rig: Rig) -> None:
    dead_letters(rig, 5)
    desk = Desk(rig, topic="orders.dead.billing")
    assert desk.plan(3) == [(0, 0, 3)]
    before = rows(desk.frames(0, 0, 3))
    purge, redrive = rig.broker.purge_dead, rig.broker.redrive
    assert redrive("orders", "billing", lambda *_: True, 1, is_dry=False) == 1
    assert purge("orders", "billing", lambda *_: True, None, is_dry=True) == 1
    assert purge("orders", "billing", lambda *_: True, None, is_dry=False) == 1
    assert redrive("orders", "billing", lambda *_: True, None, is_dry=False) == 0
    assert rows(desk.frames(0, 0, 3)) == before
    desk.commit(p0=3)
    assert desk.counts() == (5, 3, 0, 2)


@pytest.mark.parametrize("what", ["purge_dead", "redrive"])
def test_a_plan_made_while_dead_letters_are_chosen_is_respected(rig: Rig, what: str) -> None:
    dead_letters(rig, 3)
    desk = Desk(rig, topic="orders.dead.billing")

    def plan_first(*_: Any) -> bool:
        desk.plan()
        return True

    getattr(rig.broker, what)("orders", "billing", plan_first, None, is_dry=False)
    assert len(desk.read(0, 0, 3)) == 3
    assert desk.counts() == (3, 0, 3, 0)
    assert rig.counts().waiting == 0


# -- restarts, compaction, damage ----------------------------------------------------------------


@pytest.mark.parametrize("stop", ["restart", "crash", "snapshot"])
def test_a_restart_between_plan_and_commit_changes_nothing(rig: Rig, stop: str) -> None:
    rig.broker.create_topic("orders", 2, TopicPolicy())
    desk = Desk(rig)
    fill(rig, 30)
    fill(rig, 20, partition=1)
    desk.plan(10)
    desk.commit(p0=2)
    desk.plan(20)
    planned = desk.planned()
    before = [rows(desk.frames(*each)) for each in planned]
    if stop == "snapshot":
        rig.keeper.snapshot()
    rig = rig.restart() if stop == "restart" else rig.crash()
    desk = Desk(rig)
    assert desk.planned() == planned
    assert [rows(desk.frames(*each)) for each in planned] == before
    ends = {f"p{partition}": end for partition, _, end in planned}
    desk.commit(**ends)
    assert desk.planned() == []
    left = rig.held()
    assert len(left) == 50 - 30
    assert rig.crash().held() == left


def compact_all(rig: Rig) -> int:
    """Copies everything out of every sealed segment; returns how many there were."""
    segments = [s for s in rig.journal.index.segments.values() if s.is_sealed and s.live]
    for segment in segments:
        rig.keeper.compact(segment)
    return len(segments)


def take_over(rig: Rig) -> None:
    """Two snapshots, so that emptied segments are used again at once."""
    for _ in range(2):
        rig.keeper.snapshot()
    rig.journal.free_segments()


def test_compaction_under_a_planned_range_changes_nothing(rig: Rig) -> None:
    desk = Desk(rig)
    fill(rig, 60)
    desk.plan(50)
    desk.commit(p0=5)
    before = rows(desk.frames(0, 5, 50))
    for _ in range(2):
        assert compact_all(rig) >= 3
        take_over(rig)
        rig.journal._cache.clear()
        assert rows(desk.frames(0, 5, 50)) == before
        assert rows(desk.frames(0, 5, 50, 1000)) == before
    desk = Desk(rig.crash())
    assert desk.planned() == [(0, 5, 50)]
    assert rows(desk.frames(0, 5, 50)) == before
    assert desk.rig.broker.health()["status"] == "ok"


def test_copies_are_measured_by_their_own_size(rig: Rig) -> None:
    desk = Desk(rig)
    fill(rig, 60)
    compact_all(rig)
    (found,) = desk.plan(None, 2000)
    assert 8 <= found.end <= 25


def test_a_record_that_moves_while_it_is_read_is_looked_up_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(rig)
    fill(rig, 40)
    desk.plan()
    before = rows(desk.frames(0, 0, 40))
    rig.journal._cache.clear()
    fetch = fetch_run
    moved: list[int] = []

    def move_first(*arguments: Any) -> Any:
        if not moved:
            moved.append(compact_all(rig))
            take_over(rig)
            fill(rig, 20, "others")
        return fetch(*arguments)

    monkeypatch.setattr(reading, "fetch_run", move_first)
    assert rows(desk.frames(0, 0, 40)) == before
    assert moved[0] > 2
    assert desk.counts()[3] == 0


def test_what_cannot_be_read_is_lost_loudly_and_only_that(rig: Rig) -> None:
    desk = Desk(rig)
    made = fill(rig, 10)
    desk.plan()
    key = rig.broker.state.names["orders"].partitions[0].key
    place = rig.journal.index.locate(key, 3, 4)[0]
    place.segment.file.pwrite(place.byte + 50, b"\xff\xff\xff")
    rig.journal._cache.clear()
    assert desk.read(0, 0, 10) == made[:3] + made[4:]
    assert rig.broker.health()["status"] == "degraded"
    assert desk.read(0, 0, 10) == made[:3] + made[4:]
    desk.commit(p0=10)
    assert desk.counts() == (10, 9, 0, 1)


def test_a_message_without_a_place_is_lost_after_a_few_tries(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(rig)
    fill(rig, 2)
    desk.plan()
    monkeypatch.setattr(reading, "fetch_run", lambda _, places, __: [None] * len(places))
    assert desk.read(0, 0, 2) == []
    assert desk.counts() == (2, 0, 0, 2)


def test_offsets_skipped_after_an_unclean_stop_cost_nothing() -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy(durability=Durability.WRITTEN))
    desk = Desk(rig)
    made = fill(rig, 3)
    desk.plan(2)
    desk = Desk(rig.crash())
    more = fill(desk.rig, 3)
    (found,) = desk.plan(3)
    assert found == (0, 2, OFFSET_SKIP + 5)
    assert desk.read(*found) == [*made[2:], *more[:2]]
    assert desk.plan(None, 10_000) == [(0, OFFSET_SKIP + 5, OFFSET_SKIP + 6)]


def test_a_reader_survives_salvage(rig: Rig) -> None:
    desk = Desk(rig)
    made = fill(rig, 10)
    desk.plan(6)
    desk.commit(p0=2)
    Desk(rig, "run-2")
    rig.broker.abandon()
    target = MemoryDisk(record=True)
    salvage(MemoryDisk.from_image(rig.disk.image()), target, SETTINGS, rig.clock)
    for image in (target.image(), _without_snapshots(target)):
        fresh = Rig(MemoryDisk.from_image(image, record=True), rig.clock)
        with pytest.raises(ReaderFenced):
            Desk(fresh, "run-1")
        found = Desk(fresh, "run-2")
        assert found.planned() == [(0, 2, 6)]
        assert found.read(0, 2, 6) == made[2:6]


def _without_snapshots(disk: MemoryDisk) -> dict[str, bytes]:
    return {name: data for name, data in disk.image().items() if not name.startswith("snapshot")}


# -- beside other subscriptions ------------------------------------------------------------------


def test_a_reader_and_a_shared_subscription_do_not_disturb_each_other(rig: Rig) -> None:
    worker = rig.attach()
    desk = Desk(rig)
    made = fill(rig, 6)
    desk.plan()
    desk.commit(p0=4)
    assert rig.held() == made
    for part in worker.take():
        if part.start < 5:
            rig.ack(worker, part)
    assert rig.held() == made[4:]
    assert desk.read(0, 4, 6) == made[4:]
    assert desk.counts() == (6, 4, 2, 0)
    assert rig.counts().acked == 5
    found = {row["subscription"]: row for row in rig.broker.subscriptions("orders")}
    assert found["tables"]["reader"] == {"owner": "run-1", "progress": [4], "planned": [6]}
    assert "reader" not in found["billing"]


class Story:
    """A broker, a reader and a worker, and what must be true of them."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.worker = self.rig.attach()
        self.runs = 1
        self.desk = Desk(self.rig)
        self.made: list[bytes] = []
        self.progress = self.end = 0

    def step(self, what: str, number: int) -> None:
        getattr(self, f"do_{what}")(number)
        planned = [(0, self.progress, self.end)] if self.progress < self.end else []
        assert self.desk.planned() == planned
        wanted = self.made[self.progress : self.end]
        assert self.desk.read(0, self.progress, self.end) == wanted
        assert self.desk.read(0, self.progress, self.end, 300) == wanted
        assert self.desk.counts()[1:] == (self.progress, len(self.made) - self.progress, 0)

    def do_publish(self, number: int) -> None:
        fresh = [b"%d" % (len(self.made) + i) + bytes(80) for i in range(number % 3 + 1)]
        self.rig.publish("orders", *fresh)
        self.made += fresh

    def do_plan(self, number: int) -> None:
        self.desk.plan(number + 1)
        self.end = min(len(self.made), self.end + number + 1)

    def do_commit(self, number: int) -> None:
        end = min(self.end, self.progress + number)
        self.desk.commit(p0=end)
        self.progress = end

    def do_ack(self, number: int) -> None:
        for part in self.worker.take()[: number + 1]:
            self.rig.ack(self.worker, part)

    def do_open(self, _number: int) -> None:
        self.runs += 1
        self.desk = Desk(self.rig, f"run-{self.runs}")

    def do_compact(self, _number: int) -> None:
        compact_all(self.rig)
        self.rig.journal._cache.clear()

    def do_snapshot(self, _number: int) -> None:
        take_over(self.rig)

    def do_stop(self, number: int) -> None:
        self.rig = self.rig.restart() if number % 2 else self.rig.crash()
        self.worker = self.rig.attach()
        self.desk = Desk(self.rig, f"run-{self.runs}")


STEPS = ["publish", "publish", "plan", "commit", "ack", "open", "compact", "snapshot", "stop"]


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 6)), max_size=30))
def test_whatever_happens_a_planned_range_reads_the_same(todo: list[tuple[str, int]]) -> None:
    story = Story()
    for what, number in todo:
        story.step(what, number)
