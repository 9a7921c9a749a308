"""Consumers that return: the parts that decide."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.returning import (
    PIECE,
    awaited_number,
    begin_awaiting,
    decide_awaited,
    outside,
    resume_from_pool,
    still_kept,
)
from penstock.delivery.state import Subscription, Topic
from penstock.vocabulary.claims import Held, Returning
from penstock.vocabulary.records import Attached, Cause, Delivered, Returned, Started
from tests.delivery.world import World

EDGES = st.lists(st.integers(0, 60), unique=True, max_size=20).map(sorted)


def runs(edges: list[int]) -> list[tuple[int, int]]:
    """Rising ranges that do not touch."""
    return list(zip(edges[::2], edges[1::2], strict=False))


def offsets(ranges: list[tuple[int, int]]) -> list[int]:
    return [offset for low, high in ranges for offset in range(low, high)]


@given(EDGES.map(runs), EDGES.map(runs))
def test_what_is_outside_some_ranges(
    rows: list[tuple[int, int]], holes: list[tuple[int, int]]
) -> None:
    expected = [offset for offset in offsets(rows) if offset not in offsets(holes)]
    assert offsets(outside(rows, holes)) == expected


def test_touching_ranges_may_be_cut_by_one_hole() -> None:
    assert outside([(0, 3), (3, 6)], [(1, 5)]) == [(0, 1), (5, 6)]


# -- after a stop --------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


@pytest.fixture
def subscription(world: World, topic: Topic) -> Subscription:
    return world.subscribe(topic)


def stop(world: World, topic: Topic, subscription: Subscription, *runs: tuple[int, int]) -> None:
    """A consumer had these when the broker stopped; it is started again and waits."""
    world.apply(Attached(topic.id, subscription.id, 4, "four"))
    for start, end in runs:
        record = Delivered(topic.id, 0, subscription.id, start, end, end - start == 1, 4)
        world.apply(record)
    world.apply(Started(1, False, world.wall, is_waiting=True))
    begin_awaiting(world.state, world.now + 5000, None)


def test_a_start_that_waits_keeps_who_was_attached_and_what_was_out(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 3)
    stop(world, topic, subscription, (0, 2), (2, 3))
    assert world.state.attached == {4: (subscription.id, "four", 0, 0)}
    cursor = subscription.cursors[0]
    assert [cursor.trial(offset).out for offset in range(3)] == [1, 1, 2]
    assert [cursor.trial(offset).losses for offset in range(3)] == [0, 0, 0]
    assert cursor.leased == 3


def test_a_start_that_waits_gives_up_where_nobody_was_attached(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    other = world.subscribe(topic, "other")
    world.publish(topic)
    world.apply(Delivered(topic.id, 0, other.id, 0, 1, False, 9))
    stop(world, topic, subscription, (0, 1))
    assert other.cursors[0].trial(0) == (1, 0, 1, 1, 0)
    assert other.awaiting is None


def test_much_that_was_out_lies_in_few_leases(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 3 * PIECE)
    evens = tuple((offset, offset + 1) for offset in range(0, 3 * PIECE, 2))
    for start, end in evens:
        subscription.cursors[0].done.add(start, end)
    stop(world, topic, subscription, (0, 3 * PIECE))
    awaiting = subscription.awaiting
    assert awaiting is not None
    assert len(awaiting.pool.leases) == 3
    assert awaiting.pool.outstanding == subscription.cursors[0].leased == 3 * PIECE // 2


def test_only_the_name_and_the_start_that_fit_are_awaited(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    assert awaited_number(subscription, "four", Returning(0, 4, [])) is None
    stop(world, topic, subscription)
    world.state.attached[4] = (subscription.id, "four", 7, 2)
    subscription.awaiting = None
    begin_awaiting(world.state, world.now + 5000, None)
    for name, generation, number, expected in [
        ("four", 7, 4, 4),
        ("four", 6, 4, None),
        ("five", 7, 4, None),
        ("four", 7, 5, None),
        ("four", 6, 2, 4),  # it did not hear its new number
        ("four", 8, 2, None),
        ("five", 6, 2, None),
    ]:
        assert awaited_number(subscription, name, Returning(generation, number, [])) == expected


def test_who_returns_takes_from_the_pool_and_the_rest_gets_its_attempt_back(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 4)
    stop(world, topic, subscription, (0, 4))
    consumer = world.join(subscription)
    held = Held(11, 0, 1, ((1, 3),))
    resumed = resume_from_pool(world.state, consumer, 4, [held], world.now)
    consumer.kept = resumed.kept
    assert [(each.old_lease_id, each.ranges) for each in resumed.kept] == [(11, ((1, 3),))]
    assert resumed.records == []
    (back,) = decide_awaited(subscription, world.wall)
    assert isinstance(back, Returned)
    assert (back.cause, back.ranges) == (Cause.UNSTARTED, ((0, 1), (3, 4)))
    assert subscription.consumers == [consumer]
    assert still_kept(consumer) == resumed.kept
    world.ack(consumer.leases[resumed.kept[0].lease_id])
    assert still_kept(consumer) == []


def test_who_stays_away_loses_what_was_out(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 3)
    stop(world, topic, subscription, (0, 2), (2, 3))
    records = decide_awaited(subscription, world.wall)
    assert [each.cause for each in records if isinstance(each, Returned)] == [
        Cause.LOST,
        Cause.LOST_ALONE,
    ]
    assert all(isinstance(each, Returned) and each.consumer == "four" for each in records)
    assert subscription.consumers is None
