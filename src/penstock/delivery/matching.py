"""Pattern subscriptions in the state: which of them a topic belongs to, and what takes a name."""

from typing import Any

import msgspec

from penstock.delivery import members
from penstock.delivery.effects import Effects
from penstock.delivery.state import State, Subscription, Topic
from penstock.vocabulary.errors import SubscriptionConflict
from penstock.vocabulary.filters import matches
from penstock.vocabulary.message import Kind
from penstock.vocabulary.names import MEMBER_MARK
from penstock.vocabulary.records import PatternCreated, PatternDeleted


def apply_created(state: State, record: PatternCreated, _effects: Effects) -> None:
    """The pattern counts from here on, or has a new policy."""
    state.durable_patterns[record.pattern, record.name] = record


def apply_deleted(state: State, record: PatternDeleted, _effects: Effects) -> None:
    """The pattern counts no more."""
    state.durable_patterns.pop((record.pattern, record.name), None)


def patterns_of(state: State, topic: str) -> list[PatternCreated]:
    """Patterns a topic of this name matches."""
    return [each for each in state.patterns.values() if matches(each.pattern, topic)]


def pattern_of(state: State, topic: str, name: str) -> PatternCreated | None:
    """The pattern a topic's subscription of this name belongs to."""
    for each in state.patterns.values():
        if each.name == name and matches(each.pattern, topic):
            return each
    return None


def topics_of(state: State, pattern: str) -> list[Topic]:
    """The topics that match, by name, without those that are being deleted."""
    found = [t for t in state.names.values() if not t.is_removing and matches(pattern, t.name)]
    return sorted(found, key=lambda topic: topic.name)


def subscriptions_of(state: State, pattern: PatternCreated) -> list[Subscription]:
    """The subscriptions behind a pattern, by topic; of a multicast the multicasts themselves."""
    found = [members.find(topic, pattern.name) for topic in topics_of(state, pattern.pattern)]
    return [each for each in found if each is not None]


def members_of(state: State, pattern: PatternCreated) -> list[PatternCreated]:
    """The named consumers of a multicast over a pattern: each is a pattern of its own."""
    if pattern.policy.kind is not Kind.MULTICAST or MEMBER_MARK in pattern.name:
        return []
    start = pattern.name + MEMBER_MARK
    return [
        each
        for each in state.patterns.values()
        if each.pattern == pattern.pattern and each.name.startswith(start)
    ]


def refuse_taken(state: State, topic: str, name: str) -> None:
    """Raises SubscriptionConflict when a pattern has this name on this topic."""
    taken = pattern_of(state, topic, name) if state.patterns else None
    if taken is not None:
        raise SubscriptionConflict(
            f"subscription {name!r} on topic {topic!r} belongs to the pattern {taken.pattern!r}: "
            f"subscribe to {taken.pattern!r}, or use another name"
        )


# -- snapshots -----------------------------------------------------------------------------------


def dump_patterns(state: State) -> list[Any]:
    """Every pattern, for a piece of a snapshot."""
    return list(state.durable_patterns.values())


def load_patterns(state: State, rows: list[Any]) -> None:
    """From a snapshot."""
    for row in rows:
        pattern = msgspec.convert(row, PatternCreated)
        state.durable_patterns[pattern.pattern, pattern.name] = pattern
