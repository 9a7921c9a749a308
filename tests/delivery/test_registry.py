"""Topics and subscriptions come, change and go by their records."""

import pytest

from penstock.delivery.state import Consumer, Cursor, Subscription, Topic
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import (
    SubscriptionAltered,
    SubscriptionDeleted,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
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


@pytest.fixture
def cursor(subscription: Subscription) -> Cursor:
    return subscription.cursors[0]


@pytest.fixture
def consumer(world: World, subscription: Subscription) -> Consumer:
    return world.join(subscription)


def test_a_created_topic_is_found_by_name_and_number(world: World) -> None:
    world.apply(TopicCreated(7, "fresh", 2, TopicPolicy(), 5))
    topic = world.state.names["fresh"]
    assert world.state.topics[7] is topic
    assert (len(topic.partitions), topic.created_at, topic.is_pending) == (2, 5, False)
    assert world.state.next_topic_id == 8


def test_topics_of_durability_written_are_counted(world: World) -> None:
    topic = world.topic("w", policy=TopicPolicy(durability=Durability.WRITTEN))
    assert world.state.written_topics == 1
    world.apply(TopicAltered(topic.id, TopicPolicy()))
    assert world.state.written_topics == 0
    world.apply(TopicAltered(topic.id, TopicPolicy(durability=Durability.WRITTEN)))
    world.apply(TopicDeleted(topic.id))
    assert world.state.written_topics == 0


def test_a_new_retention_time_is_looked_at_at_once(world: World, topic: Topic) -> None:
    world.publish(topic)
    effects = world.apply(TopicAltered(topic.id, TopicPolicy(retain_s=1)))
    assert list(effects.retained) == topic.partitions


def test_a_deleted_topic_takes_its_subscriptions_along(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.apply(TopicDeleted(topic.id))
    assert world.state.topics == {}
    assert world.state.names == {}
    assert world.state.subscriptions == {}


def test_a_subscription_covers_what_is_held_from_its_start_on(world: World, topic: Topic) -> None:
    first = world.subscribe(topic, "billing")
    consumer = world.join(first)
    world.publish(topic, 6)
    world.ack(world.deliver_one(consumer), (1, 3))
    late = world.subscribe(topic, "audit", starts=(1,)).cursors[0]
    assert late.attached == 3
    assert [o for o in range(6) if o not in late.done] == [3, 4, 5]


def test_a_new_policy_takes_effect(world: World, topic: Topic, subscription: Subscription) -> None:
    policy = SubscriptionPolicy(lease_s=5)
    effects = world.apply(SubscriptionAltered(topic.id, subscription.id, policy))
    assert subscription.policy == policy
    assert list(effects.dirty) == [subscription]


def test_a_deleted_subscription_is_gone_from_its_topic(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.apply(SubscriptionDeleted(topic.id, subscription.id))
    assert topic.subscriptions is None
    assert world.state.subscriptions == {}


# -- consumers and starts ----------------------------------------------------------------------
