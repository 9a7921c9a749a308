"""Effects: what the broker has to do after records were applied."""

from penstock.delivery.effects import Effects
from penstock.vocabulary.records import (
    Attached,
    Cause,
    Outcome,
    Published,
    Settled,
    SubscriptionDeleted,
    TopicDeleted,
)
from tests.delivery.world import NAMED, World


def test_fresh_effects_ask_for_nothing() -> None:
    effects = Effects(1, 2)
    assert (effects.now, effects.wall) == (1, 2)
    assert not any(
        (
            effects.released,
            effects.dirty,
            effects.doomed,
            effects.delayed,
            effects.retained,
            effects.forgotten,
            effects.closed,
            effects.attached,
        )
    )


def test_a_publish_makes_every_subscription_of_the_topic_dirty() -> None:
    world = World()
    topic = world.topic()
    both = [world.subscribe(topic, "billing"), world.subscribe(topic, "audit")]
    effects = world.apply(Published(topic.id, 0, 0, 1, NAMED, 0, 0, world.wall, b""))
    assert list(effects.dirty) == both


def test_the_last_ack_releases_the_bytes() -> None:
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic)
    world.publish(topic, 3)
    effects = world.apply(Settled(topic.id, 0, subscription.id, Outcome.ACKED, ((0, 2),)))
    assert effects.released == [(topic.partitions[0].key, 0, 2)]


def test_a_deleted_topic_is_forgotten_with_every_partition() -> None:
    world = World()
    topic = world.topic(partitions=3)
    subscription = world.subscribe(topic)
    effects = world.apply(TopicDeleted(topic.id))
    assert effects.forgotten == [partition.key for partition in topic.partitions]
    assert effects.closed == [subscription]


def test_a_deleted_subscription_is_closed() -> None:
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic)
    assert world.apply(SubscriptionDeleted(topic.id, subscription.id)).closed == [subscription]


def test_a_new_consumer_may_be_served() -> None:
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic)
    effects = world.apply(Attached(topic.id, subscription.id, 7, "worker"))
    assert effects.attached == [7]


def test_a_back_off_and_a_doom_name_their_cursor() -> None:
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic)
    consumer = world.join(subscription)
    world.publish(topic, 2)
    lease = world.deliver_one(consumer)
    world.give_back(lease, (0, 1))
    world.give_back(lease, (1, 2), cause=Cause.REJECTED)
    assert list(world.delayed) == list(world.doomed) == subscription.cursors


def test_a_message_nobody_covers_is_noted_as_retained() -> None:
    world = World()
    topic = world.topic()
    effects = world.apply(Published(topic.id, 0, 0, 1, NAMED, 0, 0, world.wall, b""))
    assert list(effects.retained) == topic.partitions
