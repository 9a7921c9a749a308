"""Messages that wait for a time, or whose own time is over."""

import pytest

from penstock.delivery.explain_case import Case
from penstock.delivery.explain_time import ending, not_due, over
from penstock.delivery.state import Subscription, Topic
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from tests.delivery.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic(policy=TopicPolicy(max_age_s=100))


@pytest.fixture
def subscription(world: World, topic: Topic) -> Subscription:
    return world.subscribe(topic)


def case(world: World, subscription: Subscription, offset: int = 0, jumped_ms: int = 0) -> Case:
    cursor = subscription.cursors[0]
    return Case(cursor, offset, world.now, world.wall, jumped_ms=jumped_ms)


def timed(world: World, topic: Topic, **times: float) -> None:
    given = {name: world.wall / 1000 + seconds for name, seconds in times.items()}
    world.publish_messages(topic, [Message(body=b"x", **given)])  # type: ignore[arg-type]


def test_until_its_time_comes(world: World, topic: Topic, subscription: Subscription) -> None:
    timed(world, topic, deliver_at=30)
    found = not_due(case(world, subscription))
    assert found is not None
    assert (found["reason"], found["until"]) == ("delayed", world.wall / 1000 + 30)
    assert "in 30.0 s" in found["text"]
    world.wait(30)
    assert not_due(case(world, subscription)) is None


def test_what_ends_it_and_when(world: World, topic: Topic, subscription: Subscription) -> None:
    timed(world, topic, expires_at=30)
    found = ending(case(world, subscription))
    now = world.wall / 1000
    assert found["expires_at"] == now + 30
    assert now + 100 <= found["max_age_at"] <= now + 101
    assert over(case(world, subscription)) is None


def test_its_time_is_over(world: World, topic: Topic, subscription: Subscription) -> None:
    timed(world, topic, expires_at=30)
    world.wait(31)
    found = over(case(world, subscription))
    assert found is not None
    assert (found["reason"], found["rule"]) == ("expiring", "expires_at")
    found = over(case(world, subscription, jumped_ms=7_200_000))
    assert found is not None
    assert (found["reason"], found["jumped_s"]) == ("time-paused", 7200)
    assert "2.0 hours" in found["text"]
    assert "confirm" in found["text"]


def test_age_alone(world: World, topic: Topic, subscription: Subscription) -> None:
    world.publish(topic)
    world.wait(200)
    assert over(case(world, subscription)) is None
    found = over(case(world, subscription, jumped_ms=7_200_000))
    assert found is not None
    assert (found["reason"], found["rule"]) == ("time-paused", "max_age_s")


def test_a_reader_knows_no_time(world: World, topic: Topic) -> None:
    reader = world.subscribe(topic, "tables", SubscriptionPolicy(kind=Kind.READER))
    timed(world, topic, expires_at=30)
    world.wait(300)
    assert ending(case(world, reader)) == {}
    assert over(case(world, reader, jumped_ms=7_200_000)) is None
