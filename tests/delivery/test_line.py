"""The waiting line: highest priority first, then arrival; what is not due waits aside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.counts import count, unexplained
from penstock.delivery.keyed import open_offsets
from penstock.delivery.line import SEGMENT_COUNT_MAX, absorb, is_lined, same_history
from penstock.delivery.shared import due
from penstock.delivery.state import Consumer, Lease, Subscription
from penstock.vocabulary.message import Message
from tests.delivery.world import World


@pytest.fixture
def world() -> World:
    return World()


def levels(*numbers: int) -> list[Message]:
    return [Message(body=b"x", priority=number) for number in numbers]


def one_by_one(world: World, consumer: Consumer) -> list[int]:
    order: list[int] = []
    while offers := world.dispatch(consumer.subscription):
        for offer in offers:
            order += open_offsets(offer.lease).tolist()
            world.ack(offer.lease)
    return order


def start(world: World, partitions: int = 1) -> Subscription:
    return world.subscribe(world.topic(partitions=partitions))


@given(st.lists(st.lists(st.integers(-2, 3), min_size=1, max_size=30), max_size=8))
def test_priority_then_arrival(batches: list[list[int]]) -> None:
    world = World()
    subscription = start(world)
    consumer = world.join(subscription, credit=1)
    expected: list[tuple[int, int]] = []
    for numbers in batches:
        expected += [(-n, len(expected) + at) for at, n in enumerate(numbers)]
        world.publish_messages(subscription.topic, levels(*numbers))
    assert one_by_one(world, consumer) == [offset for _, offset in sorted(expected)]
    assert unexplained(count(subscription)) == 0
    assert subscription.topic.partitions[0].traits is None, "everything is gone, traits too"


def test_priority_counts_over_all_partitions(world: World) -> None:
    subscription = start(world, partitions=3)
    consumer = world.join(subscription, credit=1)
    for partition, numbers in enumerate([(1, 5), (0, 0), (9, 2)]):
        world.publish_messages(subscription.topic, levels(*numbers), partition)
    order = []
    while offers := world.dispatch(subscription):
        for offer in offers:
            order.append((offer.lease.cursor.partition.index, offer.lease.start))
            world.ack(offer.lease)
    assert order[:4] == [(2, 0), (0, 1), (2, 1), (0, 0)]
    assert consumer.outstanding == 0


def test_plain_messages_have_priority_zero(world: World) -> None:
    subscription = start(world)
    consumer = world.join(subscription, credit=1)
    world.publish(subscription.topic, 2)
    world.publish_messages(subscription.topic, levels(-1, 1))
    world.publish(subscription.topic, 1)
    assert one_by_one(world, consumer) == [3, 0, 1, 4, 2]


def test_a_message_that_comes_back_stands_where_it_stood(world: World) -> None:
    subscription = start(world)
    consumer = world.join(subscription, credit=2)
    world.publish_messages(subscription.topic, levels(1, 1, 1, 1, 5))
    offers = world.dispatch(subscription)
    taken = [open_offsets(o.lease).tolist() for o in offers]
    assert taken == [[4], [0]]
    world.give_back(offers[1].lease, delay_s=0.0)
    world.ack(offers[0].lease)
    assert [open_offsets(o.lease).tolist() for o in world.dispatch(subscription)] == [[0], [1]]
    assert consumer.outstanding == 2


def test_a_slice_holds_only_its_messages_and_each_is_settled_alone(world: World) -> None:
    subscription = start(world)
    first, second = world.join(subscription, credit=3), world.join(subscription, credit=3)
    world.publish_messages(subscription.topic, levels(9, 0, 9, 0, 9, 0))
    leases: list[Lease] = [offer.lease for offer in world.dispatch(subscription)]
    out = sorted(o for lease in leases for o in open_offsets(lease).tolist())
    assert out == list(range(6))
    assert first.outstanding == second.outstanding == 3
    sparse = next(lease for lease in leases if lease.open is not None)
    inside = open_offsets(sparse).tolist()
    gap = next(o for o in range(sparse.start, sparse.end) if o not in inside)
    assert [refusal.offset for refusal in world.ack(sparse, (gap, gap + 1))] == [gap]
    for lease in leases:
        assert world.ack(lease) == []
    assert count(subscription).acked == 6


def test_what_is_not_due_waits_and_is_counted_as_delayed(world: World) -> None:
    subscription = start(world)
    (cursor,) = subscription.cursors
    later = world.wall / 1000 + 10
    world.publish_messages(
        subscription.topic,
        [Message(body=b"0", deliver_at=later), b"1", Message(body=b"2", deliver_at=later - 5)],
    )
    found = count(subscription, world.wall)
    assert (found.delayed, found.waiting) == (2, 1), "also while nobody has looked"
    consumer = world.join(subscription)
    assert [o.lease.start for o in world.dispatch(subscription)] == [1]
    found = count(subscription, world.wall)
    assert (found.delayed, found.waiting, found.leased) == (2, 0, 1)
    world.wait(5)
    assert due(cursor, world.now, world.wall)
    assert [o.lease.start for o in world.dispatch(subscription)] == [2]
    world.wait(5)
    assert [o.lease.start for o in world.dispatch(subscription)] == [0]
    assert unexplained(count(subscription, world.wall)) == 0
    assert consumer.outstanding == 3


def test_a_delayed_message_can_be_taken_out(world: World) -> None:
    subscription = start(world)
    (cursor,) = subscription.cursors
    late = world.wall / 1000 + 10
    messages = [Message(body=b"x", deliver_at=late) for _ in range(3)]
    world.publish_messages(subscription.topic, messages)
    line = absorb(cursor, world.wall)
    assert line.holds(1)
    assert line.withdraw(1, 2) == 1
    assert not line.holds(1)
    assert sorted(offset for _, offset in line.later) == [0, 2]


def test_a_long_backlog_is_cut_into_segments(world: World) -> None:
    subscription = start(world)
    (cursor,) = subscription.cursors
    world.publish(subscription.topic, 60_000)
    world.publish_messages(subscription.topic, levels(1))
    line = absorb(cursor, world.wall, limit=10_000)
    assert (line.count, cursor.next) == (10_000, 10_000)
    assert max(len(segment.offsets) for segment in line.segments) <= SEGMENT_COUNT_MAX
    assert absorb(cursor, world.wall).count == 60_001
    assert line.top == 1


def test_a_cursor_is_plain_again_when_nothing_special_is_left(world: World) -> None:
    subscription = start(world)
    (cursor,) = subscription.cursors
    consumer = world.join(subscription)
    world.publish_messages(subscription.topic, levels(1, 2))
    assert is_lined(cursor)
    assert one_by_one(world, consumer) == [1, 0]
    world.publish(subscription.topic, 2)
    assert not is_lined(cursor)
    assert one_by_one(world, consumer) == [2, 3]
    assert cursor.line is None


def test_a_slice_is_cut_where_the_history_changes(world: World) -> None:
    subscription = start(world)
    (cursor,) = subscription.cursors
    consumer = world.join(subscription)
    world.publish_messages(subscription.topic, levels(1, 1, 1))
    lease = world.deliver_one(consumer)
    world.give_back(lease, (1, 2), delay_s=0.0)
    world.give_back(lease, (0, 1), (2, 3), delay_s=0.0)
    again = world.deliver(consumer)
    assert [each.attempt for each in again] == [2]
    offsets = open_offsets(again[0])
    assert [part.tolist() for part, _ in same_history(cursor, offsets, is_tried=True)] == [
        [0, 1, 2]
    ]
