"""What a protocol of its own rules does with topics and queues: make, join, end.

The broker makes topics by its default policy when they are first used; here a protocol brings a
policy with it, or makes none at all.
"""

from typing import Any

from penstock.broker.broker import Broker, Sink
from penstock.delivery import admin, counts
from penstock.delivery.state import Consumer
from penstock.vocabulary import limits, names
from penstock.vocabulary.errors import Draining, UnknownSubscription, UnknownTopic
from penstock.vocabulary.policy import TopicPolicy


def topic_to_publish(broker: Broker, name: str, policy: TopicPolicy) -> int:
    """How many partitions a topic has; a missing one is made with this policy.

    It is durable before anything that is published to it. Raises InvalidName, UnknownTopic,
    Draining.
    """
    if name not in broker.state.names and not names.is_dead_topic(name):
        with broker.engine.lock:
            if broker.is_draining:
                raise Draining("the broker is stopping and takes no new messages")
            broker.engine.check_alive()
            broker.check_creating(name)
            wall = broker.engine.clock.wall()
            broker.add_topic(
                admin.decide_create_topic(broker.state, name, 1, policy, wall, is_explicit=False)
            )
    return broker.partitions(name)


def join_existing(
    broker: Broker, topic: str, subscription: str, start: Any, credit: int, consumer: str,
    sink: Sink,
) -> Consumer:  # fmt: skip
    """Joins a subscription, made when missing, of a topic that is there. Raises UnknownTopic."""
    with broker.engine.lock:
        admin.find_topic(broker.state, topic)
        return broker.attach(
            topic, subscription, None, start, credit, limits.OUT_BYTES_MAX, consumer, sink
        )


def end_queue(broker: Broker, topic: str, subscription: str) -> int:
    """Deletes a subscription; returns how many unfinished messages it had.

    Waits until that is durable. Raises SubscriptionInUse.
    """
    try:
        with broker.engine.lock:
            found = admin.find_subscription(admin.find_topic(broker.state, topic), subscription)
            count = counts.count(found, broker.engine.clock.wall())
            left = count.waiting + count.leased + count.delayed
        broker.delete_subscription(topic, subscription)
    except (UnknownTopic, UnknownSubscription):
        return 0  # The topic was deleted, and its queues with it.
    return left


def abandoned_queues(broker: Broker, beginning: str) -> list[tuple[str, str]]:
    """(topic, subscription) of every subscription named so that nobody is connected to."""
    with broker.engine.lock:
        return [
            (each.topic.name, each.name)
            for each in broker.state.subscriptions.values()
            if each.name.startswith(beginning) and not each.consumers and not each.is_removing
        ]
