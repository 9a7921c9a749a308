"""Readers: what they hold, who owns them, and how far they may go."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery import admin, reader
from penstock.delivery.counts import count, unexplained
from penstock.delivery.snapshot import restore_topic, topic_state
from penstock.delivery.state import State, Subscription, Topic
from penstock.vocabulary.errors import (
    InvalidArgument,
    NotPlanned,
    PositionNotHeld,
    ReaderFenced,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicInUse,
)
from penstock.vocabulary.limits import READER_OWNERS_MAX
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Lost, ReaderMoved, Removed, Skipped
from tests.delivery.world import World, the

READER = SubscriptionPolicy(kind=Kind.READER)


class Scene:
    """A topic with ten messages in each partition and a reader on it."""

    def __init__(self, partitions: int = 2) -> None:
        self.world = World()
        self.topic: Topic = self.world.topic(partitions=partitions)
        self.subscription: Subscription = self.world.subscribe(self.topic, "tables", READER)
        for index in range(partitions):
            self.world.publish(self.topic, 10, index)
        self.open("run-1")

    def open(self, owner: str) -> None:
        self.world.apply(the(reader.decide_open(self.subscription, owner)))

    def plan(self, *ends: int, owner: str = "run-1") -> None:
        record = reader.decide_plan(self.subscription, owner, dict(enumerate(ends)))
        self.world.apply(the(record))

    def commit(self, *ends: int, owner: str = "run-1") -> None:
        record = reader.decide_commit(self.subscription, owner, dict(enumerate(ends)))
        self.world.apply(the(record))

    def planned(self, partition: int = 0) -> list[tuple[int, int]]:
        return reader.planned_ranges(self.topic.partitions[partition])


@pytest.fixture
def scene() -> Scene:
    return Scene()


# -- holding -------------------------------------------------------------------------------------


def test_a_reader_holds_everything_from_its_progress_on(scene: Scene) -> None:
    scene.plan(6, 3)
    scene.commit(4)
    assert [p.held for p in scene.topic.partitions] == [6, 10]
    assert scene.world.released == [(scene.topic.partitions[0].key, 0, 4)]
    found = count(scene.subscription)
    assert (found.attached, found.acked, found.waiting) == (20, 4, 16)
    assert unexplained(found) == 0


def test_a_message_goes_when_the_reader_and_the_others_are_done(scene: Scene) -> None:
    other = scene.world.subscribe(scene.topic, "billing")
    consumer = scene.world.join(other)
    leases = scene.world.deliver(consumer)
    scene.plan(10, 10)
    scene.commit(5, 0)
    assert scene.world.released == []
    for lease in leases:
        scene.world.ack(lease)
    assert sorted(scene.world.released) == [(scene.topic.partitions[0].key, 0, 5)]


def test_the_planned_range_goes_from_progress_to_the_newest_end(scene: Scene) -> None:
    assert scene.planned() == []
    scene.plan(3)
    scene.plan(6)
    scene.commit(2)
    assert scene.planned() == [(2, 6)]
    assert scene.planned(1) == []


def test_a_plan_counts_from_its_decision_on(scene: Scene) -> None:
    reader.decide_plan(scene.subscription, "run-1", {0: 4})
    assert scene.planned() == [(0, 4)]
    assert reader.describe_reader(scene.subscription).planned == (0, 0)


def test_the_planned_ranges_of_several_readers_are_one_answer(scene: Scene) -> None:
    scene.plan(3)
    late = scene.world.subscribe(scene.topic, "late", READER, (2, 0))
    far = scene.world.subscribe(scene.topic, "far", READER, (8, 0))
    for each, end in ((late, 5), (far, 9)):
        scene.world.apply(the(reader.decide_open(each, "run-1")))
        scene.world.apply(the(reader.decide_plan(each, "run-1", {0: end})))
    assert scene.planned() == [(0, 5), (8, 9)]
    partition = scene.topic.partitions[0]
    assert reader.protect_planned(partition, 3, 9) == [(3, 5), (8, 9)]
    assert reader.protect_planned(partition, 5, 8) == []
    assert reader.is_held_by_reader(partition, 4, 6)
    assert not reader.is_held_by_reader(partition, 5, 8)
    assert reader.outside_planned(partition, [(0, 2), (4, 10)]) == ((5, 8), (9, 10))


def test_frames_lose_what_is_planned(scene: Scene) -> None:
    partition = scene.topic.partitions[0]
    frames = scene.world.frames(partition, (0, 10))
    assert reader.unplanned_frames(partition, frames) is frames
    scene.plan(4)
    (left,) = reader.unplanned_frames(partition, frames)
    assert list(left.offsets) == [4, 5, 6, 7, 8, 9]
    assert list(left.indexes) == list(left.offsets)
    scene.plan(10)
    assert reader.unplanned_frames(partition, frames) == []


def test_a_topic_or_reader_with_a_planned_range_is_not_deleted(scene: Scene) -> None:
    scene.plan(1)
    with pytest.raises(TopicInUse, match="reader 'tables' has planned"):
        admin.decide_delete_topic(scene.world.state, scene.topic)
    with pytest.raises(SubscriptionInUse, match="planned range"):
        admin.decide_delete_subscription(scene.subscription)
    assert not scene.topic.is_removing
    assert not scene.subscription.is_removing
    scene.commit(1)
    admin.decide_delete_topic(scene.world.state, scene.topic)


def test_consumers_cannot_join_a_reader(scene: Scene) -> None:
    for name, policy in (("tables", None), ("tables", SubscriptionPolicy()), ("new", READER)):
        with pytest.raises(SubscriptionConflict, match=r"client\.reader"):
            reader.refuse_reader(scene.topic, name, policy)
    with pytest.raises(SubscriptionConflict, match=r"client\.reader"):
        reader.refuse_reader(scene.topic, None, READER)
    reader.refuse_reader(scene.topic, "billing", None)
    reader.refuse_reader(scene.topic, None, None)


def test_a_shared_subscription_is_no_reader(scene: Scene) -> None:
    shared = scene.world.subscribe(scene.topic, "billing")
    with pytest.raises(SubscriptionConflict, match="kind 'shared', not a reader"):
        reader.decide_open(shared, "run-1")
    assert shared.reader is None
    assert reader.describe_row(shared) == {}


# -- owners --------------------------------------------------------------------------------------


def test_a_new_owner_fences_the_old_one_for_good(scene: Scene) -> None:
    scene.plan(5)
    scene.open("run-2")
    for act in (
        lambda: reader.decide_plan(scene.subscription, "run-1", {0: 6}),
        lambda: reader.decide_commit(scene.subscription, "run-1", {0: 1}),
        lambda: reader.check_read(scene.subscription, "run-1", 0, 0, 1),
        lambda: reader.decide_release(scene.subscription, "run-1", is_forced=True),
        lambda: reader.decide_open(scene.subscription, "run-1"),
    ):
        with pytest.raises(ReaderFenced, match="opened by another owner"):
            act()
    assert scene.planned() == [(0, 5)]
    scene.commit(5, owner="run-2")


def test_the_same_owner_may_open_again(scene: Scene) -> None:
    assert reader.decide_open(scene.subscription, "run-1") is None


def test_fencing_begins_with_the_decision(scene: Scene) -> None:
    first = the(reader.decide_open(scene.subscription, "run-2"))
    second = the(reader.decide_open(scene.subscription, "run-3"))
    for old in ("run-1", "run-2"):
        with pytest.raises(ReaderFenced):
            reader.check_reader(scene.subscription, old)
        with pytest.raises(ReaderFenced):
            reader.decide_open(scene.subscription, old)
    assert reader.decide_open(scene.subscription, "run-3") is None
    scene.world.apply(first)
    reader.check_reader(scene.subscription, "run-3")
    scene.world.apply(second)
    assert reader.describe_reader(scene.subscription).owner == "run-3"


def test_only_so_many_former_owners_are_remembered(scene: Scene) -> None:
    for number in range(2, READER_OWNERS_MAX + 3):
        scene.open(f"run-{number}")
    place = reader.reader_of(scene.subscription)
    assert len(place.retired) == READER_OWNERS_MAX
    assert place.retired[0] == "run-2"


@pytest.mark.parametrize("owner", ["", "a\nb", None, 7, b"x", "x" * 129, "é" * 65])
def test_an_owner_must_be_short_printable_text(owner: Any) -> None:
    with pytest.raises(InvalidArgument, match="owner"):
        reader.check_owner(owner)


# -- moving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [{0: 6}, {0: 1}, {0: 3, 1: 1}])
def test_progress_moves_forward_inside_the_plan_only(scene: Scene, ends: dict[int, int]) -> None:
    scene.plan(5)
    scene.commit(2)
    with pytest.raises(NotPlanned, match="its progress is"):
        reader.decide_commit(scene.subscription, "run-1", ends)
    assert reader.describe_reader(scene.subscription).progress == (2, 0)
    assert reader.reader_of(scene.subscription).next_progress == [2, 0]


def test_committing_the_same_again_changes_nothing(scene: Scene) -> None:
    scene.plan(5)
    scene.commit(5)
    assert reader.decide_commit(scene.subscription, "run-1", {0: 5}) is None


@pytest.mark.parametrize("ends", [{2: 1}, {-1: 1}, {True: 1}, {0: "1"}, {0: 1.0}, {0: True}])
def test_a_commit_names_partitions_and_offsets(scene: Scene, ends: dict[Any, Any]) -> None:
    scene.plan(5, 5)
    with pytest.raises(InvalidArgument):
        reader.decide_commit(scene.subscription, "run-1", ends)


def test_nothing_is_planned_that_is_not_there(scene: Scene) -> None:
    scene.plan(99)
    assert scene.planned() == [(0, 10)]
    assert reader.decide_plan(scene.subscription, "run-1", {0: 4}) is None


@pytest.mark.parametrize(("start", "end"), [(1, 3), (3, 11), (12, 12)])
def test_only_what_is_held_can_be_read(scene: Scene, start: int, end: int) -> None:
    scene.plan(5)
    scene.commit(2)
    with pytest.raises(PositionNotHeld, match="it holds 0:2 to 0:10") as caught:
        reader.check_read(scene.subscription, "run-1", 0, start, end)
    assert caught.value.details["lowest"] == "0:2"
    assert reader.check_read(scene.subscription, "run-1", 0, 2, 10).partition.index == 0


def test_a_range_that_ends_before_it_starts_is_refused(scene: Scene) -> None:
    with pytest.raises(InvalidArgument, match="start <= end"):
        reader.check_read(scene.subscription, "run-1", 0, 5, 4)


def test_counting_leaves_out_what_is_gone(scene: Scene) -> None:
    topic_id = scene.topic.id
    scene.world.apply(Removed(topic_id, 0, ((2, 4),)))
    scene.world.apply(Skipped(topic_id, 0, 1000))
    scene.world.publish(scene.topic, 5)
    cursor = scene.subscription.cursors[0]
    assert reader.count_upto(cursor, 0, 3) == 5
    assert reader.count_upto(cursor, 0, 8) == 10
    assert reader.count_upto(cursor, 0, 9) == 1001
    assert reader.count_upto(cursor, 0, 99) == 1005


def test_what_is_lost_counts_as_dropped_and_not_as_read(scene: Scene) -> None:
    scene.plan(10, 0)
    scene.world.apply(Lost(scene.topic.id, 0, ((0, 3),)))
    scene.commit(10, 0)
    found = count(scene.subscription)
    assert (found.acked, found.dropped, found.waiting, unexplained(found)) == (7, 3, 10, 0)


def test_release_needs_force_while_something_is_planned(scene: Scene) -> None:
    scene.plan(5)
    with pytest.raises(SubscriptionInUse, match=r"await reader\.release\(force=True\)"):
        reader.decide_release(scene.subscription, "run-1", is_forced=False)
    scene.world.apply(reader.decide_release(scene.subscription, "run-1", is_forced=True))
    assert scene.planned() == []
    assert [p.held for p in scene.topic.partitions] == [0, 0]


# -- records and snapshots -----------------------------------------------------------------------


def test_a_record_speaking_of_messages_nobody_published_proves_a_loss(scene: Scene) -> None:
    number = scene.subscription.id
    scene.world.apply(ReaderMoved(scene.topic.id, number, (0, 0), (12, 0)))
    partition = scene.topic.partitions[0]
    assert partition.next_offset == 12
    assert the(partition.lost).ranges() == [(10, 12)]
    assert unexplained(count(scene.subscription)) == 0


def test_an_older_record_again_changes_nothing(scene: Scene) -> None:
    scene.plan(5, 5)
    old = ReaderMoved(scene.topic.id, scene.subscription.id, (0, 0), (5, 5))
    scene.commit(4, 4)
    before = topic_state(scene.topic)
    scene.world.apply(old)
    assert topic_state(scene.topic) == before


def _through_bytes(state: list[Any]) -> list[Any]:
    decoded: list[Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(state), strict=False)
    return decoded


def test_a_reader_survives_a_snapshot(scene: Scene) -> None:
    scene.plan(5, 6)
    scene.commit(1, 2)
    scene.open("run-2")
    pieces = _through_bytes(topic_state(scene.topic))
    copy = restore_topic(State(), pieces, 0, 0)
    assert _through_bytes(topic_state(copy)) == _through_bytes(topic_state(scene.topic))
    (again,) = copy.durable_subscriptions()
    assert reader.planned_ranges(copy.partitions[1]) == [(2, 6)]
    with pytest.raises(ReaderFenced):
        reader.decide_open(again, "run-1")
    assert reader.decide_commit(again, "run-2", {0: 5}) is not None


def test_a_snapshot_knows_nothing_of_what_is_only_decided(scene: Scene) -> None:
    scene.plan(5)
    before = reader.dump_reader(scene.subscription)
    pieces = _through_bytes(topic_state(scene.topic))
    reader.decide_plan(scene.subscription, "run-1", {0: 8})
    reader.decide_commit(scene.subscription, "run-1", {0: 2})
    reader.decide_open(scene.subscription, "run-2")
    assert reader.dump_reader(scene.subscription) == before
    assert _through_bytes(topic_state(scene.topic)) == pieces


def test_a_reader_never_opened_needs_no_room_in_a_snapshot() -> None:
    world = World()
    fresh = world.subscribe(world.topic(), "tables", READER)
    assert reader.dump_reader(fresh) is None
    assert reader.retold(fresh) == []
    assert reader.describe_row(fresh)["reader"]["owner"] == ""


def test_a_reader_told_again_is_the_same(scene: Scene) -> None:
    scene.plan(5, 6)
    scene.commit(1, 2)
    scene.open("run-2")
    told = reader.retold(scene.subscription)
    other = Scene()
    other.subscription.reader = None
    for record in told:
        other.world.apply(record)
    assert reader.dump_reader(other.subscription) == reader.dump_reader(scene.subscription)


def test_a_partition_that_came_later_starts_where_its_cursor_does() -> None:
    scene, wide = Scene(1), Scene(2)
    wide.subscription.reader = scene.subscription.reader
    assert reader.describe_reader(wide.subscription).progress == (0, 0)
    wide.plan(3, 4)
    assert wide.planned(1) == [(0, 4)]


steps = st.lists(
    st.tuples(st.sampled_from(["plan", "commit", "publish", "remove"]), st.integers(0, 14)),
    max_size=25,
)


@given(steps)
def test_what_is_planned_stays_until_it_is_committed(todo: list[tuple[str, int]]) -> None:
    scene = Scene(1)
    partition = scene.topic.partitions[0]
    kept: set[int] = set()
    for what, number in todo:
        if what == "publish":
            scene.world.publish(scene.topic, number % 3 + 1)
        elif what == "remove":
            ranges = reader.outside_planned(partition, [(number, number + 2)])
            if ranges and ranges[-1][1] <= partition.next_offset:
                scene.world.apply(Removed(scene.topic.id, 0, ranges))
        elif what == "plan":
            record = reader.decide_plan(scene.subscription, "run-1", {0: number})
            if record is not None:
                scene.world.apply(record)
        else:
            state = reader.describe_reader(scene.subscription)
            if state.progress[0] < number <= state.planned[0]:
                scene.commit(number)
        state = reader.describe_reader(scene.subscription)
        found = count(scene.subscription)
        assert unexplained(found) == 0
        assert partition.held == found.waiting
        held = {o for o in range(partition.next_offset) if o not in partition.released}
        kept = {offset for offset in kept if offset >= state.progress[0]}
        assert kept <= held
        kept |= held.intersection(range(state.progress[0], state.planned[0]))
