"""Why a consumer gets nothing."""

import pytest

from penstock.delivery.explain_consumer import consumer_rows, explain_consumer, nothing_waits
from penstock.delivery.state import Subscription, Topic
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


def test_a_consumer_nobody_knows(world: World, subscription: Subscription) -> None:
    world.join(subscription, name="w1")
    found = explain_consumer(subscription, "w2")
    assert (found["reason"], found["consumer"]) == ("no-consumer", "w2")
    assert "attached: 'w1'" in found["text"]


def test_a_consumer_without_credit(world: World, topic: Topic, subscription: Subscription) -> None:
    world.publish(topic, 5)
    world.deliver(world.join(subscription, credit=2, name="{w}"))
    found = explain_consumer(subscription, "{w}")
    assert (found["reason"], found["outstanding"], found["credit"]) == ("no-credit", 2, 2)
    assert found["waiting"] == 3
    assert "'{w}' has 2 of 2" in found["text"]


def test_a_consumer_without_credit_in_bytes(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 5)
    world.deliver(world.join(subscription, credit_bytes=1, name="w"))
    found = explain_consumer(subscription, "w")
    assert (found["reason"], found["state"]) == ("no-credit", "full-bytes")
    assert "of 1 bytes" in found["text"]


def test_a_consumer_for_whom_nothing_waits(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 5)
    world.deliver(world.join(subscription, name="hoarder"))
    world.join(subscription, name="idle")
    found = explain_consumer(subscription, "idle")
    assert (found["reason"], found["leased"], found["state"]) == ("nothing-waits", 5, "free")


def test_a_consumer_that_is_served(world: World, topic: Topic, subscription: Subscription) -> None:
    world.join(subscription, name="w")
    world.publish(topic)
    found = explain_consumer(subscription, "w")
    assert (found["reason"], found["waiting"]) == ("ready", 1)


def test_what_keeps_a_consumer_apart(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic)
    consumer = world.join(subscription, name="w")
    for field, value, reason in (
        ("is_saving", True, "isolated"),
        ("is_isolated", True, "isolated"),
        ("is_attached", False, "attaching"),
        ("is_gone", True, "no-consumer"),
    ):
        setattr(consumer, field, value)
        assert explain_consumer(subscription, "w")["reason"] == reason


def test_rows_and_counts_of_a_subscription(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 3)
    world.ack(world.deliver_one(world.join(subscription, credit=9, name="w")))
    assert [(row["consumer"], row["credit"]) for row in consumer_rows(subscription)] == [("w", 9)]
    found = nothing_waits(subscription, "all done")
    assert (found["text"], found["acked"], found["waiting"]) == ("all done", 3, 0)
