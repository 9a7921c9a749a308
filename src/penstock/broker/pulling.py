"""Consumers that take messages only when they ask: credit is given for each pull, then taken away.

A listener whose clients come and go (HTTP) attaches a consumer for them and keeps it between their
requests. Such a consumer has no room in bytes except while somebody pulls.
"""

from collections.abc import Sequence
from typing import Any, Final

from penstock.broker.broker import Broker, Sink
from penstock.delivery import admin
from penstock.delivery.members import members_of
from penstock.delivery.state import Consumer, Subscription, Topic
from penstock.vocabulary.claims import Renewal
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.limits import MIB
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy

PULL_BYTES_MAX: Final = 4 * MIB
"""About so many bytes are handed over in one pull."""
QOS_2: Final = 2
NEEDS_NAME: Final = frozenset({Kind.KEY_SHARED, Kind.MULTICAST})


def find(broker: Broker, topic: str, subscription: str) -> Subscription:
    """The subscription. Raises UnknownTopic, UnknownSubscription."""
    with broker.engine.lock:
        return admin.find_subscription(admin.find_topic(broker.state, topic), subscription)


def find_topic(broker: Broker, topic: str) -> Topic:
    """The topic. Raises UnknownTopic."""
    with broker.engine.lock:
        return admin.find_topic(broker.state, topic)


def attach_idle(
    broker: Broker, subscription: Subscription, consumer: str | None, sink: Sink
) -> Consumer:
    """A consumer of an existing subscription that is given nothing until it pulls.

    Raises InvalidArgument when the subscription needs a named consumer and there is none.
    """
    kind = subscription.policy.kind
    if consumer is None and kind in NEEDS_NAME:
        raise InvalidArgument(
            f"subscription {subscription.name!r} is of kind {kind.value}: name the consumer that "
            "pulls, and use the same name each time"
        )
    return broker.attach(
        subscription.topic.name, subscription.name, subscription.policy, None, 1, 0,
        consumer or "http", sink, is_named=consumer is not None,
    )  # fmt: skip


def attach_looking(
    broker: Broker, topic: str, start: Any, credit: int, credit_bytes: int, sink: Sink
) -> Consumer:
    """A consumer that sees a topic and holds nothing of it. Raises UnknownTopic.

    `start` may have an offset for each partition; one no longer held becomes the lowest that is.
    """
    if isinstance(start, dict):
        start = starts_of(find_topic(broker, topic), start)
    find_topic(broker, topic)
    return broker.attach(
        topic, None, SubscriptionPolicy(), start, credit, credit_bytes, "http-stream", sink
    )


def starts_of(topic: Topic, places: dict[int, int]) -> tuple[int, ...]:
    """Where each partition starts; one that is not named, at its latest."""
    found = list(admin.latest(topic))
    for partition, lowest in enumerate(admin.earliest(topic)):
        if partition in places:
            found[partition] = min(max(places[partition], lowest), found[partition])
    return tuple(found)


def ask_for(broker: Broker, consumer: Consumer, count: int) -> None:
    """Gives the consumer room for so many messages more than it holds."""
    engine = broker.engine
    with engine.lock:
        consumer.credit = consumer.outstanding + count
        consumer.credit_bytes = consumer.outstanding_bytes + PULL_BYTES_MAX if count else 0
        if count and consumer.is_attached and not consumer.is_gone:
            engine.dispatch(consumer.subscription)


def is_in_transit(broker: Broker, consumer: Consumer) -> bool:
    """True while messages are on their way to the consumer: being read, or being written down."""
    with broker.engine.lock:
        return not consumer.is_gone and bool(
            consumer.pending_reads or consumer.pending_strict or not consumer.is_attached
        )


def extend_held(
    broker: Broker, consumer: Consumer, renewals: Sequence[Renewal], seconds: float
) -> list[Renewal]:
    """Renews what is still leased; returns what is not, of which nothing was renewed."""
    with broker.engine.lock:
        held = [each for each in renewals if _is_held(consumer, each)]
        if held:
            broker.extend(consumer, held, seconds)
    return [each for each in renewals if each not in held]


def ids_of(broker: Broker, subscription: Subscription) -> set[int]:
    """The subscription and, when it is a multicast, its members."""
    with broker.engine.lock:
        own = members_of(subscription) if subscription.is_parent else []
        return {subscription.id, *(each.id for each in own)}


def is_last_known(
    broker: Broker, subscription_id: int, partition: int, offset: int, attempt: int
) -> bool:
    """True when the newest delivery in the log is this one, made before the broker's start.

    At QoS 2 what was out when the broker stopped is never known for sure.
    """
    with broker.engine.lock:
        subscription = broker.state.subscriptions.get(subscription_id)
        if subscription is None or subscription.policy.qos == QOS_2:
            return False
        if partition >= len(subscription.cursors):
            return False
        cursor = subscription.cursors[partition]
        return offset in cursor.done or cursor.trial(offset).attempt == attempt


def _is_held(consumer: Consumer, renewal: Renewal) -> bool:
    lease = consumer.leases.get(renewal.lease_id)
    if lease is None or renewal.end is None:
        return lease is not None
    if renewal.start < lease.start or renewal.end > lease.end:
        return False
    bits = ((1 << (renewal.end - renewal.start)) - 1) << (renewal.start - lease.start)
    return lease.mask() & bits == bits
