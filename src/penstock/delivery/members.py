"""Multicast subscriptions in the state: a parent without cursors, and a member for each consumer.

A member is a subscription like any other, named `<subscription>@<consumer>`. The parent holds
nothing; it keeps the policy of new members and the count of what was dropped with old ones.
"""

from typing import Any

import msgspec

from penstock.delivery.state import State, Subscription, Topic
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.limits import MEMBER_IDLE_S_MAX
from penstock.vocabulary.names import MEMBER_MARK
from penstock.vocabulary.policy import SubscriptionPolicy


def add_parent(state: State, parent: Subscription) -> None:
    """Puts a multicast subscription into the tables of multicasts."""
    topic = parent.topic
    if topic.multicasts is None:
        topic.multicasts = {}
    topic.multicasts[parent.name] = parent
    state.multicasts[parent.id] = parent


def remove_parent(parent: Subscription) -> None:
    """Takes a multicast subscription out of its topic."""
    topic = parent.topic
    if topic.multicasts is not None:
        topic.multicasts.pop(parent.name, None)
        topic.multicasts = topic.multicasts or None


def forget_parents(state: State, topic: Topic) -> None:
    """The topic is gone, and its multicasts with it."""
    for parent in (topic.multicasts or {}).values():
        state.subscriptions.pop(parent.id, None)
        state.multicasts.pop(parent.id, None)


def members_of(parent: Subscription) -> list[Subscription]:
    """Durable members and the ephemeral ones of unnamed consumers."""
    start = parent.name + MEMBER_MARK
    found = (parent.topic.subscriptions or {}).values()
    return [each for each in found if each.name.startswith(start)]


def parent_of(member: Subscription) -> Subscription | None:
    """The multicast a member belongs to; None when damage took its creation."""
    name = member.name.partition(MEMBER_MARK)[0]
    return (member.topic.multicasts or {}).get(name)


def find(topic: Topic, name: str) -> Subscription | None:
    """The subscription or multicast of this name."""
    return (topic.subscriptions or {}).get(name) or (topic.multicasts or {}).get(name)


def has_place(topic: Topic, name: str | None, consumer: str | None) -> bool:
    """True when a consumer goes on with a cursor that is there, wherever it would start.

    `consumer` is its name if it chose one: only such a one has a cursor in a multicast.
    """
    known = None if name is None else find(topic, name)
    if known is None or not known.is_parent:
        return known is not None
    return consumer is not None and find(topic, f"{name}{MEMBER_MARK}{consumer}") is not None


def refuse_parent(subscription: Subscription) -> None:
    """Raises InvalidArgument for a multicast where only one of its members can be meant."""
    if subscription.is_parent:
        known = sorted(each.name for each in members_of(subscription) if each.is_durable)
        raise InvalidArgument(
            f"multicast {subscription.name!r} has no dead letters of its own: name one of its "
            f"members: {', '.join(known) or 'it has none'}"
        )


def listed(topic: Topic) -> list[Subscription]:
    """Durable subscriptions by name, each multicast before its members."""
    parents = [each for each in (topic.multicasts or {}).values() if not each.is_pending]
    return sorted(parents + topic.durable_subscriptions(), key=lambda each: each.name)


def see(state: State, subscription_id: int, at: int) -> None:
    """A consumer of this subscription was there until now."""
    subscription = state.subscriptions.get(subscription_id)
    if subscription is not None and subscription.is_member:
        subscription.seen_at = max(subscription.seen_at, at)


def is_forgotten(member: Subscription, wall: int) -> bool:
    """True for a durable member nobody was attached to for too long."""
    return (
        member.is_durable
        and not (member.is_pending or member.is_removing or member.consumers)
        and wall - member.seen_at >= MEMBER_IDLE_S_MAX * 1000
    )


def count_forgotten(member: Subscription) -> None:
    """Counts the backlog of a member that goes as dropped, at its parent."""
    parent = parent_of(member)
    if parent is not None:
        parent.forgotten += sum(
            cursor.done.missing(cursor.done.floor, cursor.partition.next_offset)
            for cursor in member.cursors
        )


# -- snapshots -----------------------------------------------------------------------------------


def dump_parents(topic: Topic) -> list[Any] | None:
    """The multicasts of a topic, for its piece of a snapshot."""
    rows = [
        (each.id, each.name, each.policy, each.created_at, each.forgotten)
        for each in (topic.multicasts or {}).values()
        if not each.is_pending
    ]
    return rows or None


def load_parents(topic: Topic, rows: list[Any]) -> None:
    """From a snapshot; `enter_parents` makes the state know them."""
    topic.multicasts = {}
    for number, name, fields, created_at, forgotten in rows:
        policy = msgspec.convert(fields, SubscriptionPolicy)
        parent = Subscription(topic, number, name, policy, created_at, is_durable=True)
        parent.is_pending = False
        parent.forgotten = forgotten
        topic.multicasts[name] = parent


def enter_parents(state: State, topic: Topic) -> None:
    """Makes the state know the multicasts of a topic that comes from a snapshot."""
    for parent in (topic.multicasts or {}).values():
        state.subscriptions[parent.id] = state.multicasts[parent.id] = parent
        state.next_subscription_id = max(state.next_subscription_id, parent.id + 1)


def dump_seen(subscription: Subscription) -> int | None:
    """When a member was last seen; None for what is no member."""
    return subscription.seen_at if subscription.is_member else None


def load_seen(subscription: Subscription, seen_at: int) -> None:
    """From a snapshot."""
    subscription.seen_at = seen_at
