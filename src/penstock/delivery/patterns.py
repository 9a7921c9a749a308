"""Subscriptions over patterns: creating, changing and deleting them with all their topics.

Behind a pattern stands an ordinary subscription of its name on each topic that matches. A new topic
gets it in the unit that creates the topic, from its beginning. Over a multicast each consumer with
a name is a pattern of its own, `<subscription>@<consumer>`, whose subscriptions are the members.
"""

from collections.abc import Callable

import msgspec

from penstock.delivery import members, multicast
from penstock.delivery.admin import check_dead, check_subscription_policy
from penstock.delivery.matching import (
    members_of,
    pattern_of,
    patterns_of,
    subscriptions_of,
    topics_of,
)
from penstock.delivery.multicast import only_whole
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
    MemberExpired,
    PatternCreated,
    PatternDeleted,
    Record,
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
    return _create(state, PatternCreated(pattern, name, wanted, now_wall), topics, starts)


def decide_join_pattern(
    state: State, whole: PatternCreated, consumer: str, starts: Starts, now_wall: int
) -> Unit | None:
    """A unit that makes a named consumer a member on each topic; None when it is one.

    Raises InvalidName, SubscriptionInUse.
    """
    topics = topics_of(state, whole.pattern)
    member = names.check_member("t", whole.name, consumer)
    for topic in topics:
        names.check_member(topic.name, whole.name, consumer)
    if (whole.pattern, member) in state.patterns:
        return None
    _refuse_overlap(state, whole.pattern, member, topics)
    record = PatternCreated(whole.pattern, member, whole.policy, now_wall)
    return _create(state, record, topics, starts)


def _create(state: State, record: PatternCreated, topics: list[Topic], starts: Starts) -> Unit:
    places = [starts(topic) for topic in topics]
    state.patterns[record.pattern, record.name] = record
    parts = [
        _subscribe(state, topic.id, record, place, record.created_at)
        for topic, place in zip(topics, places, strict=True)
    ]
    return Unit((record, *parts))


def _check_same(
    known: PatternCreated, policy: SubscriptionPolicy | None, *, is_explicit: bool
) -> None:
    if policy is None:
        return
    if policy.kind is not known.policy.kind or policy.qos != known.policy.qos:
        raise _other_kind(known, policy)
    if is_explicit and policy != known.policy:
        raise SubscriptionConflict(
            f"subscription {known.name!r} on pattern {known.pattern!r} exists with another "
            "policy; use alter_subscription to change it"
        )


def _other_kind(known: PatternCreated, policy: SubscriptionPolicy) -> SubscriptionConflict:
    return SubscriptionConflict(
        f"subscription {known.name!r} on pattern {known.pattern!r} exists with kind "
        f"{known.policy.kind.value!r} and qos {known.policy.qos}, not {policy.kind.value!r} and "
        f"{policy.qos}, and these cannot change; ask for what it has, or use another name"
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
    """A unit with the new policy for every topic, also those to come; a multicast's members too.

    Raises InvalidArgument for a single member, SubscriptionConflict when the kind would change.
    """
    if names.MEMBER_MARK in pattern.name:
        raise only_whole(pattern.name)
    check_subscription_policy(policy)
    if policy.kind is not pattern.policy.kind or policy.qos != pattern.policy.qos:
        raise _other_kind(pattern, policy)
    if policy == pattern.policy:
        return None
    parts: list[Record] = []
    for whole in (pattern, *members_of(state, pattern)):
        changed = msgspec.structs.replace(whole, policy=policy)
        state.patterns[whole.pattern, whole.name] = changed
        legs = subscriptions_of(state, whole)
        parts += (changed, *(SubscriptionAltered(each.topic.id, each.id, policy) for each in legs))
    return Unit(tuple(parts))


def decide_delete_pattern(state: State, pattern: PatternCreated) -> Unit:
    """A unit that deletes it on every topic; a multicast goes with its members.

    Raises SubscriptionInUse while consumers are there.
    """
    wholes = (*members_of(state, pattern), pattern)
    found = [each for whole in wholes for each in subscriptions_of(state, whole)]
    for each in found:
        if each.connected:
            raise SubscriptionInUse(
                f"subscription {pattern.name!r} on pattern {pattern.pattern!r} has "
                f"{len(each.connected)} consumer(s) on topic {each.topic.name!r}; close them first"
            )
    for each in found:
        each.is_removing = True
    for whole in wholes:
        del state.patterns[whole.pattern, whole.name]
    gone = [PatternDeleted(whole.pattern, whole.name) for whole in wholes]
    return Unit((*gone, *(SubscriptionDeleted(each.topic.id, each.id) for each in found)))


def decide_forgotten(state: State, now_wall: int) -> list[Record]:
    """Ends the members of multicasts that stayed away too long; over a pattern, on every topic.

    A topic that was made since a consumer left is no sign of life: it counts from when it left.
    """
    found: list[Record] = []
    legs: dict[tuple[str, str], list[Subscription]] = {}
    for parent in state.multicasts.values():
        whole = pattern_of(state, parent.topic.name, parent.name) if state.patterns else None
        if whole is None:
            found += multicast.decide_forgotten(parent, now_wall)
        elif not parent.topic.is_removing:
            for member in members.members_of(parent):
                if member.is_durable and not member.is_removing:
                    legs.setdefault((whole.pattern, member.name), []).append(member)
    for key, parts in legs.items():
        is_there = any(each.is_pending or each.consumers for each in parts)
        if is_there or not any(members.is_forgotten(each, now_wall) for each in parts):
            continue
        for each in parts:
            each.is_removing = True
        gone = [PatternDeleted(*key)] if state.patterns.pop(key, None) else []
        expired = [MemberExpired(each.topic.id, each.id) for each in parts]
        found.append(Unit((*gone, *expired)))
    return found


def refuse_part(state: State, subscription: Subscription) -> None:
    """Raises SubscriptionConflict for a subscription that is part of a pattern's."""
    whole = pattern_of(state, subscription.topic.name, subscription.name)
    if whole is not None:
        raise SubscriptionConflict(
            f"subscription {subscription.name!r} on topic {subscription.topic.name!r} belongs to "
            f"the pattern {whole.pattern!r}: change or delete it there"
        )
