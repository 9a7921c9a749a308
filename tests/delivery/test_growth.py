"""A topic in use gets more partitions: cursors, refusals, and where the messages of a key lie."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery import admin
from penstock.delivery.growth import (
    assume_added,
    check_map,
    decide_partitions,
    earlier_homes,
    growth_state,
    partitions_of,
    restore_growth,
)
from penstock.delivery.publish import decide_publish
from penstock.delivery.snapshot import restore_topic, topic_state
from penstock.delivery.state import Growth, State, Topic
from penstock.vocabulary.errors import InvalidArgument, PartitionsOnlyGrow, StaleMap
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Published, Settled, SubscriptionCreated, TopicDeleted
from tests.delivery.world import GENERATED, NAMED, World, the


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


def grow(world: World, topic: Topic, partitions: int) -> None:
    world.apply(the(decide_partitions(topic, partitions, world.wall)))


# -- growing -----------------------------------------------------------------------------------


def test_every_subscription_covers_the_new_partitions_from_their_beginning(
    world: World, topic: Topic
) -> None:
    world.publish(topic, 3)
    durable = world.subscribe(topic)
    late = world.subscribe(topic, "late", starts=admin.latest(topic))
    passing = admin.make_ephemeral(
        world.state, topic, SubscriptionPolicy(), admin.latest(topic), world.wall
    )
    grow(world, topic, 3)
    world.publish(topic, 2, partition=2)
    for subscription, before in ((durable, 3), (late, 0), (passing, 0)):
        assert [cursor.attached for cursor in subscription.cursors] == [before, 0, 2]
    assert {lease.cursor.partition.index for lease in world.deliver(world.join(late))} == {2}


def test_what_was_leased_stays_leased(world: World, topic: Topic) -> None:
    subscription = world.subscribe(topic)
    world.publish(topic, 2)
    lease = world.deliver_one(world.join(subscription))
    grow(world, topic, 2)
    assert world.ack(lease) == []
    assert subscription.cursors[0].acked == 2


def test_the_record_tells_where_the_old_partitions_ended(world: World, topic: Topic) -> None:
    world.publish(topic, 3)
    decided = decide_publish(topic.map[0], b"", 2, GENERATED, 0, 0, world.wall)
    record = the(decide_partitions(topic, 2, world.wall))
    assert record.ends == (5,)  # what is decided comes before it in the log
    assert isinstance(decided, Published)
    world.apply(decided)
    world.apply(record)
    assert topic.growth == [Growth(1, (5,), world.wall)]


def test_from_the_decision_on_publishes_are_spread_the_new_way(world: World, topic: Topic) -> None:
    record = the(decide_partitions(topic, 2, world.wall))
    assert (len(topic.map), len(topic.partitions)) == (2, 1)
    early = decide_publish(topic.map[1], b"", 2, NAMED, 0, 0, world.wall)
    world.apply(record)
    assert topic.map is topic.partitions
    assert isinstance(early, Published)
    world.apply(early)
    assert topic.partitions[1].next_offset == topic.partitions[1].reserved == 2


def test_a_topic_may_grow_again_before_the_first_growth_is_durable(
    world: World, topic: Topic
) -> None:
    first = the(decide_partitions(topic, 2, world.wall))
    decide_publish(topic.map[1], b"", 4, NAMED, 0, 0, world.wall)
    second = the(decide_partitions(topic, 5, world.wall))
    assert second.ends == (0, 4)
    world.apply(first)
    assert (len(topic.partitions), len(topic.map)) == (2, 5)
    world.apply(second)
    assert len(topic.partitions) == 5
    assert topic.map is topic.partitions


def test_a_subscription_decided_before_the_growth_is_durable_covers_all(
    world: World, topic: Topic
) -> None:
    growth = the(decide_partitions(topic, 3, world.wall))
    created = the(
        admin.decide_create_subscription(
            world.state, topic, "s", None, admin.latest(topic), world.wall, is_explicit=True
        )
    )
    world.apply(growth)
    world.apply(created)
    assert len(admin.find_subscription(topic, "s").cursors) == 3


def test_a_record_seen_before_changes_nothing(world: World, topic: Topic) -> None:
    subscription = world.subscribe(topic)
    record = the(decide_partitions(topic, 3, world.wall))
    for _ in range(2):
        world.apply(record)
        assert (len(topic.partitions), len(subscription.cursors)) == (3, 3)
        assert len(topic.growth or ()) == 1


def test_a_topic_that_has_so_many_needs_no_record(world: World, topic: Topic) -> None:
    assert decide_partitions(topic, 1, world.wall) is None


def test_partitions_cannot_be_removed(world: World) -> None:
    topic = world.topic("wide", partitions=4)
    with pytest.raises(PartitionsOnlyGrow, match="create another topic with 2") as caught:
        decide_partitions(topic, 2, world.wall)
    assert caught.value.details["partitions"] == 4
    assert len(topic.map) == len(topic.partitions) == 4


@pytest.mark.parametrize("partitions", [0, -1, 1025])
def test_a_topic_grows_to_1024_partitions_at_most(topic: Topic, partitions: int) -> None:
    with pytest.raises(InvalidArgument, match="1…1024"):
        decide_partitions(topic, partitions, 0)
    assert len(topic.map) == 1


def test_dead_letters_stay_in_one_partition(world: World) -> None:
    topic = world.topic("dead", policy=TopicPolicy(dead_of="orders\nbilling"))
    with pytest.raises(InvalidArgument, match="dead-letter topic"):
        decide_partitions(topic, 2, world.wall)


# -- batches split the old way -----------------------------------------------------------------


def refuses(topic: Topic, partition: int, publisher: bytes, epoch: int, sequence: int) -> bool:
    try:
        check_map(topic, partition, publisher, epoch, sequence)
    except StaleMap as error:
        return error.partitions == len(topic.map)
    return False


def test_a_new_batch_split_the_old_way_is_refused_and_a_retry_is_not(
    world: World, topic: Topic
) -> None:
    world.publish(topic, 3)
    decide_publish(topic.partitions[0], b"", 2, NAMED, 0, 3, world.wall)  # on its way
    grow(world, topic, 2)
    assert not refuses(topic, 0, NAMED, 0, 0)  # stored: answered as a duplicate
    assert not refuses(topic, 0, NAMED, 0, 3)  # on its way: waits for the first
    assert refuses(topic, 0, NAMED, 0, 5)
    assert refuses(topic, 0, NAMED, 1, 0)  # a new epoch
    assert refuses(topic, 7, NAMED, 0, 0)  # there never was such a partition


def test_of_an_unknown_publisher_only_what_is_certainly_new_is_refused_so(
    world: World, topic: Topic
) -> None:
    grow(world, topic, 2)
    assert refuses(topic, 0, GENERATED, 0, 0)
    assert refuses(topic, 0, NAMED, 0, 4)  # state of named publishers is never forgotten
    assert not refuses(topic, 0, GENERATED, 0, 4)  # it may have been stored and forgotten


# -- where older messages lie ------------------------------------------------------------------


def test_a_topic_that_never_grew_has_no_earlier_homes(topic: Topic) -> None:
    assert earlier_homes(topic, 0, 12345) == []


def test_a_key_that_did_not_move_has_no_earlier_home(world: World, topic: Topic) -> None:
    world.publish(topic, 3)
    grow(world, topic, 2)
    assert earlier_homes(topic, 0, 4) == []
    assert earlier_homes(topic, 1, 5) == [(0, 3)]


def test_a_key_may_leave_and_come_back(world: World) -> None:
    topic = world.topic("wide", partitions=2)
    world.publish(topic, 3, partition=0)
    grow(world, topic, 3)  # hash 4: partition 0 → 1
    world.publish(topic, 2, partition=1)
    grow(world, topic, 4)  # and back to 0
    assert earlier_homes(topic, 0, 4) == [(1, 2)]
    assert earlier_homes(topic, 1, 4, 1) == [(0, 3)]
    assert earlier_homes(topic, 0, 4, 2) == []


@given(
    st.lists(
        st.tuples(st.just("publish"), st.integers(0, 11)) | st.tuples(st.just("grow"), st.just(0)),
        max_size=40,
    ),
    st.integers(1, 3),
)
def test_earlier_homes_hold_all_older_messages_of_a_key_and_no_younger(
    steps: list[tuple[str, int]], partitions: int
) -> None:
    world = World()
    topic = world.topic(partitions=partitions)
    placed: dict[int, list[tuple[int, int]]] = {}
    for step, key in steps:
        if step == "grow":
            grow(world, topic, len(topic.map) + 1)
            continue
        home = key % len(topic.map)
        offset = world.publish(topic, 1, home).base
        placed.setdefault(key, []).append((home, offset))
    for key, places in placed.items():
        for at, (home, offset) in enumerate(places):
            homes = dict(earlier_homes(topic, home, key, offset))
            older = {place for place in places[:at] if place[0] != home}
            inside = {(p, o) for p, o in places if p != home and o < homes.get(p, 0)}
            assert older == inside
        now = dict(earlier_homes(topic, key % len(topic.map), key))
        assert all(o < now[p] for p, o in places if p != key % len(topic.map))


# -- snapshots and loss ------------------------------------------------------------------------


def test_a_grown_topic_survives_a_snapshot(world: World, topic: Topic) -> None:
    world.subscribe(topic, starts=(0,))
    world.publish(topic, 3)
    world.subscribe(topic, "late", starts=(3,))
    grow(world, topic, 2)
    world.publish(topic, 2, partition=1)
    grow(world, topic, 4)
    piece = msgspec.msgpack.decode(msgspec.msgpack.encode(topic_state(topic)), strict=False)
    again = restore_topic(State(), piece, world.now, world.wall)
    assert (
        again.growth == topic.growth == [Growth(1, (3,), world.wall), Growth(2, (3, 2), world.wall)]
    )
    assert again.map is again.partitions
    assert [c.first for c in admin.find_subscription(again, "late").cursors] == [3, 0, 0, 0]
    assert [c.attached for c in admin.find_subscription(again, "billing").cursors] == [3, 2, 0, 0]


def test_a_snapshot_between_decision_and_record_knows_nothing_of_it(
    world: World, topic: Topic
) -> None:
    subscription = world.subscribe(topic)
    record = the(decide_partitions(topic, 2, world.wall))
    piece = msgspec.msgpack.decode(msgspec.msgpack.encode(topic_state(topic)), strict=False)
    world.state = State()
    again = restore_topic(world.state, piece, world.now, world.wall)
    assert len(again.partitions) == 1
    world.apply(record)
    assert len(admin.find_subscription(again, subscription.name).cursors) == 2


def test_growth_as_plain_values(topic: Topic) -> None:
    assert growth_state(topic) is None
    restore_growth(topic, [[1, [5], 7]])
    assert growth_state(topic) == [Growth(1, (5,), 7)]


def test_a_partition_that_a_record_speaks_of_must_have_been_there(
    world: World, topic: Topic
) -> None:
    world.publish(topic, 3)
    subscription = world.subscribe(topic)
    assume_added(topic, 3, 99)
    assume_added(topic, 2, 99)
    assert (len(topic.partitions), len(subscription.cursors)) == (3, 3)
    assert topic.growth == [Growth(1, (3,), 99)]


def test_how_many_partitions_a_record_proves() -> None:
    created = SubscriptionCreated(1, 1, "s", (0, 0, 0), SubscriptionPolicy(), 0)
    settled = Settled(1, 4, 1, 1, ((0, 1),))  # type: ignore[arg-type]
    assert [partitions_of(r) for r in (created, settled, TopicDeleted(1))] == [3, 5, 1]
