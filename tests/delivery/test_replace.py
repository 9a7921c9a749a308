"""A message is taken out of what may be offered wherever it waits, and only where it waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import encode_many
from penstock.delivery.counts import count, unexplained
from penstock.delivery.publish import Decided, decide_publish
from penstock.delivery.replace import key_of, reserve, stored_ids
from penstock.delivery.shared import waiting_count
from penstock.delivery.state import Cursor, Topic
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import OnDuplicate, TopicPolicy
from penstock.vocabulary.records import Outcome, Published, Settled, Unit
from tests.delivery.world import NAMED, World

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
