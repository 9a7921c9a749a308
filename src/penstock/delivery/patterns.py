"""Subscriptions over patterns: creating, changing and deleting them with all their topics.

Behind a pattern stands an ordinary subscription of its name on each topic that matches. A new topic
gets it in the unit that creates the topic, from its beginning.
"""

from collections.abc import Callable

import msgspec

from penstock.delivery import members
from penstock.delivery.admin import check_dead, check_subscription_policy
from penstock.delivery.matching import pattern_of, patterns_of, subscriptions_of, topics_of
from penstock.delivery.registry import add_subscription
from penstock.delivery.state import State, Subscription, Topic
from penstock.vocabulary import names
from penstock.vocabulary.errors import (
    SubscriptionConflict,
    SubscriptionInUse,
    UnknownSubscription,
    Unsupported,
)
from penstock.vocabulary.filters import check_pattern, overlap
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import (
    PatternCreated,
    PatternDeleted,
    SubscriptionAltered,
    SubscriptionCreated,
    SubscriptionDeleted,
    TopicCreated,
    Unit,
)

Starts = Callable[[Topic], tuple[int, ...]]
"""Where a subscription starts on a topic that exists."""


def with_patterns(state: State, record: TopicCreated) -> TopicCreated | Unit:
    """The record that creates a topic, with the subscriptions of every pattern it matches."""
    found = patterns_of(state, record.name) if state.patterns else []
    if not found:
        return record
    starts = (0,) * record.partitions
    parts = [_subscribe(state, record.topic_id, each, starts, record.created_at) for each in found]
    return Unit((record, *parts))


def _subscribe(
    state: State, topic_id: int, pattern: PatternCreated, starts: tuple[int, ...], now_wall: int
) -> SubscriptionCreated:
    record = SubscriptionCreated(
        topic_id, state.next_subscription_id, pattern.name, starts, pattern.policy, now_wall
    )
    add_subscription(state, record, is_durable=True)
    return record


def find_pattern(state: State, pattern: str, name: str) -> PatternCreated:
    """The pattern subscription. Raises UnknownSubscription."""
    found = state.patterns.get((pattern, name))
    if found is None:
        known = sorted(each.name for each in state.patterns.values() if each.pattern == pattern)
        raise UnknownSubscription(
            f"pattern {pattern!r} has no subscription {name!r}; it has: "
            + (", ".join(map(repr, known)) or "none")
        )
    return found


def decide_create_pattern(
    state: State, pattern: str, name: str, policy: SubscriptionPolicy | None, starts: Starts,
    now_wall: int, *, is_explicit: bool,
) -> Unit | None:  # fmt: skip
    """A unit that creates it with a subscription on each topic; None when it exists as asked.

    Raises InvalidName, Unsupported, SubscriptionConflict, SubscriptionInUse.
    """
    check_pattern(pattern)
    names.check_subscription(name)
    wanted = policy or SubscriptionPolicy()
    check_subscription_policy(wanted)
    if wanted.kind is Kind.MULTICAST:
        raise Unsupported(
            "a multicast over a pattern is not available: give each consumer a pattern "
            "subscription of its own name, or none to be served while it is connected"
        )
    if wanted.kind is Kind.READER:
        raise Unsupported("a reader over a pattern is not available: open one for each topic")
    known = state.patterns.get((pattern, name))
    if known is not None:
        _check_same(known, policy, is_explicit=is_explicit)
        return None
    topics = topics_of(state, pattern)
    _refuse_overlap(state, pattern, name, topics)
    for topic in topics:
        check_dead(topic.name, name, wanted)
    places = [starts(topic) for topic in topics]
    created = PatternCreated(pattern, name, wanted, now_wall)
    state.patterns[pattern, name] = created
    parts = [
        _subscribe(state, topic.id, created, place, now_wall)
        for topic, place in zip(topics, places, strict=True)
    ]
    return Unit((created, *parts))


def _check_same(
    known: PatternCreated, policy: SubscriptionPolicy | None, *, is_explicit: bool
) -> None:
    if policy is None:
        return
    if policy.kind is not known.policy.kind or policy.qos != known.policy.qos:
        raise SubscriptionConflict(
            f"subscription {known.name!r} on pattern {known.pattern!r} exists with kind "
            f"{known.policy.kind.value!r} and qos {known.policy.qos}, not "
            f"{policy.kind.value!r} and {policy.qos}; ask for what it has, or use another name"
        )
    if is_explicit and policy != known.policy:
        raise SubscriptionConflict(
            f"subscription {known.name!r} on pattern {known.pattern!r} exists with another "
            "policy; use alter_subscription to change it"
        )


def _refuse_overlap(state: State, pattern: str, name: str, topics: list[Topic]) -> None:
    for other in state.patterns.values():
        if other.name == name and overlap(other.pattern, pattern):
            raise SubscriptionConflict(
                f"subscription {name!r} exists on the pattern {other.pattern!r}, and topics may "
                f"match both it and {pattern!r}; use another name"
            )
    for topic in topics:
        known = members.find(topic, name)
        if known is not None and known.is_removing:
            raise SubscriptionInUse(
                f"subscription {name!r} on topic {topic.name!r} is being deleted; try again in a "
                "moment"
            )
        if known is not None:
            raise SubscriptionConflict(
                f"subscription {name!r} exists on topic {topic.name!r}, which matches {pattern!r}; "
                "use another name"
            )


def decide_alter_pattern(
    state: State, pattern: PatternCreated, policy: SubscriptionPolicy
) -> Unit | None:
    """A unit with the new policy for every topic, also those to come.

    Raises SubscriptionConflict when the kind would change.
    """
    check_subscription_policy(policy)
    if policy.kind is not pattern.policy.kind or policy.qos != pattern.policy.qos:
        raise SubscriptionConflict(
            "the kind and qos of a subscription cannot change; create another under a new name"
        )
    if policy == pattern.policy:
        return None
    changed = msgspec.structs.replace(pattern, policy=policy)
    state.patterns[pattern.pattern, pattern.name] = changed
    parts = [
        SubscriptionAltered(each.topic.id, each.id, policy)
        for each in subscriptions_of(state, pattern)
    ]
    return Unit((changed, *parts))


def decide_delete_pattern(state: State, pattern: PatternCreated) -> Unit:
    """A unit that deletes it on every topic. Raises SubscriptionInUse while consumers are there."""
    found = subscriptions_of(state, pattern)
    for each in found:
        if each.connected:
            raise SubscriptionInUse(
                f"subscription {pattern.name!r} on pattern {pattern.pattern!r} has "
                f"{len(each.connected)} consumer(s) on topic {each.topic.name!r}; close them first"
            )
    for each in found:
        each.is_removing = True
    del state.patterns[pattern.pattern, pattern.name]
    parts = [SubscriptionDeleted(each.topic.id, each.id) for each in found]
    return Unit((PatternDeleted(pattern.pattern, pattern.name), *parts))


def refuse_part(state: State, subscription: Subscription) -> None:
    """Raises SubscriptionConflict for a subscription that is part of a pattern's."""
    whole = pattern_of(state, subscription.topic.name, subscription.name)
    if whole is not None:
        raise SubscriptionConflict(
            f"subscription {subscription.name!r} on topic {subscription.topic.name!r} belongs to "
            f"the pattern {whole.pattern!r}: change or delete it there"
        )
