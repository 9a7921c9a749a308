"""A message is taken out of what may be offered wherever it waits, and only where it waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from penstock.batch import encode_many
from penstock.delivery.counts import count, unexplained
from penstock.delivery.growth import decide_partitions
from penstock.delivery.publish import Decided, decide_publish
from penstock.delivery.replace import key_of, reserve, stored_ids
from penstock.delivery.shared import waiting_count
from penstock.delivery.state import Cursor, Topic
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import OnDuplicate, TopicPolicy
from penstock.vocabulary.records import Outcome, Published, Record, Settled, Unit
from tests.delivery.world import NAMED, World, the

REPLACING = TopicPolicy(on_duplicate=OnDuplicate.REPLACE)


@pytest.fixture
def world() -> World:
    return World()


def cursor_of(world: World, count: int) -> Cursor:
    topic = world.topic()
    subscription = world.subscribe(topic)
    world.publish(topic, count)
    return subscription.cursors[0]


def waiting(cursor: Cursor) -> list[int]:
    """Offsets that would be offered, in order."""
    runs = list(cursor.ready or ())
    runs += cursor.done.gaps(cursor.next, cursor.partition.next_offset)
    return [offset for low, high in runs for offset in range(low, high)]


def decide(world: World, topic: Topic, sequence: int, *ids: str) -> Published | Unit:
    batch = encode_many([Message(body=b"x", id=id) for id in ids])
    partition = topic.partitions[0]
    found = decide_publish(partition, batch, len(ids), NAMED, 0, sequence, world.wall)
    if isinstance(found, Decided):
        return found.record
    assert isinstance(found, Published)
    return found


@given(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=12))
def test_reserving_takes_exactly_one_waiting_message(out: int, order: list[int]) -> None:
    world = World()
    cursor = cursor_of(world, 10)
    consumer = world.join(cursor.subscription, credit=max(1, out))
    if out:
        world.deliver(consumer)
    expected = waiting(cursor)
    for offset in order:
        assert reserve(cursor, offset) is (offset in expected)
        expected = [each for each in expected if each != offset]
        assert waiting(cursor) == expected
        assert waiting_count(cursor) == len(expected)


def test_a_message_that_backs_off_is_reserved(world: World) -> None:
    cursor = cursor_of(world, 2)
    lease = world.deliver_one(world.join(cursor.subscription))
    world.give_back(lease, (0, 1), delay_s=10)
    assert reserve(cursor, 0)
    assert cursor.delayed is None
    assert not reserve(cursor, 0)
    assert not reserve(cursor, 1)


def test_stored_ids_follow_what_was_kept() -> None:
    record = Published(1, 0, 10, 2, NAMED, 0, 0, 0, b"", (1, 3))
    assert stored_ids(record, ["a", "b", "c", None]) == [("b", 10)]
    whole = Published(1, 0, 10, 3, NAMED, 0, 0, 0, b"")
    assert stored_ids(whole, [None, "b", "c"]) == [("b", 11), ("c", 12)]


def test_ids_are_known_by_128_bits() -> None:
    assert len(key_of("a")) == 16
    assert key_of("a") != key_of("b")


def test_a_unit_stores_the_newer_and_drops_the_older_message(world: World) -> None:
    topic = world.topic(policy=REPLACING)
    first, second = world.subscribe(topic, "first"), world.subscribe(topic, "second")
    world.apply(decide(world, topic, 0, "a", "b"))
    unit = decide(world, topic, 2, "b", "a")
    assert isinstance(unit, Unit)
    stored, *ends = unit.records
    assert isinstance(stored, Published)
    assert ends == [
        Settled(topic.id, 0, each.id, Outcome.REPLACED, ((0, 2),)) for each in (first, second)
    ]
    world.apply(unit)
    assert world.released == [(topic.partitions[0].key, 0, 2)]
    assert (count(first).dropped, count(first).waiting, unexplained(count(first))) == (2, 2, 0)


def test_nothing_to_replace_needs_no_unit(world: World) -> None:
    topic = world.topic(policy=REPLACING)
    world.subscribe(topic)
    assert isinstance(decide(world, topic, 0, "a", "b"), Published)


def test_a_replaced_message_is_not_offered_while_its_end_is_not_durable(world: World) -> None:
    topic = world.topic(policy=REPLACING)
    subscription = world.subscribe(topic)
    world.apply(decide(world, topic, 0, "a", "b"))
    unit = decide(world, topic, 2, "a")
    consumer = world.join(subscription)
    assert [(lease.start, lease.end) for lease in world.deliver(consumer)] == [(1, 2)]
    assert unexplained(count(subscription)) == 0
    world.apply(unit)
    assert [(lease.start, lease.end) for lease in world.deliver(consumer)] == [(2, 3)]


def test_a_message_replaced_before_it_is_durable_is_never_offered(world: World) -> None:
    topic = world.topic(policy=REPLACING)
    subscription = world.subscribe(topic)
    older = decide(world, topic, 0, "a", "b")
    newer = decide(world, topic, 2, "a")
    world.apply(older)
    consumer = world.join(subscription)
    assert [(lease.start, lease.end) for lease in world.deliver(consumer)] == [(1, 2)]
    world.apply(newer)
    assert [(lease.start, lease.end) for lease in world.deliver(consumer)] == [(2, 3)]
    assert (count(subscription).dropped, unexplained(count(subscription))) == (1, 0)


# -- after growth ----------------------------------------------------------------------------------


def placed(world: World, topic: Topic, *ids: str, key: str | None = None) -> list[Published | Unit]:
    """Publishes each id to the partition of the map there is now, and decides only."""
    found: list[Published | Unit] = []
    for id in ids:
        home = topic.map[xxh3_64_intdigest((key or id).encode()) % len(topic.map)]
        batch = encode_many([Message(body=b"x", id=id, key=key)])
        result = decide_publish(home, batch, 1, NAMED, 0, home.reserved, world.wall)
        assert isinstance(result, Published | Decided)
        found.append(result if isinstance(result, Published) else result.record)
    return found


def grown(world: World, topic: Topic, partitions: int) -> None:
    world.apply(the(decide_partitions(topic, partitions, world.wall)))


IDS = [f"id-{number}" for number in range(10)]
MOVED = next(id for id in IDS if xxh3_64_intdigest(id.encode()) % 2)
"""Goes to partition 1 of 2."""


def test_older_messages_in_the_partitions_of_older_maps_are_replaced(world: World) -> None:
    topic = world.topic(policy=REPLACING)
    subscription = world.subscribe(topic)
    for partitions in (2, 4, 7):
        for record in placed(world, topic, *IDS):
            world.apply(record)
        grown(world, topic, partitions)
    for record in placed(world, topic, *IDS):
        world.apply(record)
    found = count(subscription)
    assert (found.attached, found.waiting, found.dropped) == (40, 10, 30)
    assert unexplained(found) == 0
    assert sum(partition.held for partition in topic.partitions) == 10
    for cursor in subscription.cursors:
        assert waiting_count(cursor) == len(waiting(cursor)) == cursor.partition.held


def test_one_unit_stores_the_newer_and_ends_the_older_in_its_old_partition(world: World) -> None:
    topic = world.topic(policy=REPLACING)
    subscription = world.subscribe(topic)
    (first,) = placed(world, topic, MOVED)
    world.apply(first)
    grown(world, topic, 2)
    (second,) = placed(world, topic, MOVED)
    assert isinstance(second, Unit)
    stored, ended = second.records
    assert isinstance(stored, Published)
    assert (stored.partition, stored.base) == (1, 0)
    assert ended == Settled(topic.id, 0, subscription.id, Outcome.REPLACED, ((0, 1),))


def test_what_is_leased_in_its_old_partition_stays(world: World) -> None:
    topic = world.topic(policy=REPLACING)
    subscription = world.subscribe(topic)
    world.apply(*placed(world, topic, MOVED))
    lease = world.deliver_one(world.join(subscription))
    grown(world, topic, 2)
    world.apply(*placed(world, topic, MOVED))
    assert world.ack(lease) == []
    assert count(subscription).dropped == 0


def test_another_message_with_the_id_that_came_since_stays(world: World) -> None:
    topic = world.topic(policy=REPLACING)
    world.subscribe(topic)
    key = next(f"k{n}" for n in range(99) if not xxh3_64_intdigest(f"k{n}".encode()) % 2)
    grown(world, topic, 2)
    world.apply(*placed(world, topic, MOVED, key=key))
    world.apply(*placed(world, topic, MOVED))
    assert [partition.held for partition in topic.partitions] == [1, 1]


def test_messages_are_replaced_while_they_and_the_growth_are_on_their_way(world: World) -> None:
    topic = world.topic(policy=REPLACING)
    subscription = world.subscribe(topic)
    records: list[Record] = [*placed(world, topic, *IDS)]
    records.append(the(decide_partitions(topic, 2, world.wall)))
    records += placed(world, topic, *IDS)
    records.append(the(decide_partitions(topic, 4, world.wall)))
    records += placed(world, topic, *IDS, *IDS)
    for record in records:
        world.apply(record)
    assert topic.growing == ()
    found = count(subscription)
    assert (found.attached, found.waiting, found.dropped) == (40, 10, 30)
    assert unexplained(found) == 0
    offered = [o for c in subscription.cursors for o in waiting(c) if o not in c.done]
    assert len(offered) == 10
