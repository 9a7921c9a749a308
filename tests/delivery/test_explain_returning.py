"""Explaining messages that wait for a consumer to return: the parts that decide."""

import pytest

from penstock.delivery.explain_case import Case
from penstock.delivery.explain_returning import (
    all_away,
    awaited,
    describe_returning,
    held_by_one_away,
)
from penstock.delivery.returning import begin_awaiting
from penstock.delivery.state import Consumer, Cursor, Subscription, Topic
from penstock.vocabulary.records import Attached, Delivered, Started
from tests.delivery.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


@pytest.fixture
def subscription(world: World, topic: Topic) -> Subscription:
    return world.subscribe(topic)


def case(world: World, cursor: Cursor, offset: int = 0) -> Case:
    return Case(cursor, offset, world.now, world.wall)


def go_away(world: World, consumer: Consumer, seconds: int = 3) -> None:
    consumer.away_until = world.now + seconds * 1000
    consumer.is_attached = False


def test_nobody_is_away(world: World, topic: Topic, subscription: Subscription) -> None:
    consumer = world.join(subscription)
    world.publish(topic)
    world.deliver_one(consumer)
    found = case(world, subscription.cursors[0])
    assert (awaited(found), held_by_one_away(found), all_away(found)) == (None, None, None)
    assert describe_returning(subscription, world.now, world.wall) == {}


def test_its_holder_is_away(world: World, topic: Topic, subscription: Subscription) -> None:
    consumer = world.join(subscription)
    world.publish(topic)
    world.deliver_one(consumer)
    go_away(world, consumer)
    found = held_by_one_away(case(world, subscription.cursors[0]))
    assert found is not None
    assert (found["reason"], found["attempt"]) == ("consumer-away", 1)
    assert found["until"] == (world.wall + 3000) / 1000
    assert "3.0 s" in found["text"]


def test_all_are_away_or_one_is_not(world: World, subscription: Subscription) -> None:
    one, two = world.join(subscription), world.join(subscription)
    go_away(world, one)
    assert all_away(case(world, subscription.cursors[0])) is None
    go_away(world, two, 4)
    found = all_away(case(world, subscription.cursors[0]))
    assert found is not None
    assert found["consumers"] == sorted([one.name, two.name])
    assert found["until"] == (world.wall + 4000) / 1000
    row = describe_returning(subscription, world.now, world.wall)
    assert row == {"returning": found["consumers"], "returning_until": found["until"]}


def test_the_broker_was_started_again(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 2)
    world.apply(Attached(topic.id, subscription.id, 4, "four"))
    world.apply(Delivered(topic.id, 0, subscription.id, 0, 1, False, 4))
    world.apply(Started(1, False, world.wall, is_waiting=True))
    assert begin_awaiting(world.state, world.now + 2000, None) == [subscription]
    cursor = subscription.cursors[0]
    out = held_by_one_away(case(world, cursor, 0))
    waiting = awaited(case(world, cursor, 1))
    assert out is not None
    assert waiting is not None
    assert out["reason"] == waiting["reason"] == "awaiting-return"
    assert out["consumers"] == waiting["consumers"] == ["four"]
    assert "it was out" in out["text"]
    assert "it may have been out" in waiting["text"]
    row = describe_returning(subscription, world.now, world.wall)
    assert row == {"returning": ["four"], "returning_until": (world.wall + 2000) / 1000}
