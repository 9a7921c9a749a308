"""Subscriptions over patterns at the broker: attaching to every topic that matches, now or later.

A follower is one consumer of a pattern. It is attached to each topic on its own, with the full
credit on each; when a topic that matches is created, it is attached before anybody can publish.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from penstock.broker.engine import Engine
from penstock.broker.mailbox import DIRECT, Mailbox, Target
from penstock.broker.multicasting import check_multicast_start, count_whole
from penstock.delivery import admin, counts, patterns
from penstock.delivery.matching import (
    members_of,
    pattern_of,
    refuse_taken,
    subscriptions_of,
    topics_of,
)
from penstock.delivery.state import Consumer, State, Topic
from penstock.vocabulary import names
from penstock.vocabulary.claims import Returning
from penstock.vocabulary.errors import InvalidArgument, PenstockError, SubscriptionInUse
from penstock.vocabulary.filters import check_pattern, matches
from penstock.vocabulary.message import Kind
from penstock.vocabulary.places import position_of
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import PatternCreated, Record, TopicCreated


class Seat(NamedTuple):
    """Where the slices of one topic go, and who is told which consumer it has there."""

    sink: Any
    on_joined: Callable[[Consumer], None]


class Wanted(NamedTuple):
    """What a consumer of a pattern asks for."""

    pattern: str
    subscription: str | None
    policy: SubscriptionPolicy | None
    start: Any
    credit: int
    credit_bytes: int
    consumer: str
    returning: dict[str, Returning] | None = None
    """topic → what it holds there, when its connection ended without a word."""
    is_named: bool = False
    """The application chose the consumer's name: kind `multicast` remembers it."""


class Follower:
    """One consumer of a pattern; `leave` ends its attaching, not its attachments."""

    def __init__(
        self, broker: "Following", wanted: Wanted, seat: Callable[[str], Seat], mailbox: Mailbox,
        on_closed: Target,
    ) -> None:  # fmt: skip
        self.wanted = wanted
        self.seat = seat
        self.mailbox = mailbox
        self.on_closed = on_closed
        self._broker = broker

    def leave(self) -> None:
        """New topics are not attached any more. Doing so twice is harmless."""
        with self._broker.engine.lock:
            self._broker.followers.pop(self, None)


class Following:
    """The part of a Broker that knows patterns."""

    engine: Engine
    state: State
    followers: dict[Follower, None]
    attach: Any
    detach: Any
    former: Any
    """Methods of Broker."""

    def _starts(self, topic: Topic, start: Any, default: str) -> tuple[int, ...]:
        raise NotImplementedError

    def add_topic(self, record: TopicCreated | None) -> None:
        """Submits the creation of a topic with all that follows from it. Under the lock."""
        if record is None:
            return
        self.engine.submit(patterns.with_patterns(self.state, record), None)
        for follower in list(self.followers):
            if matches(follower.wanted.pattern, record.name):
                try:
                    self._join(follower, record.name, "earliest")
                except PenstockError as error:
                    # Whoever creates the topic must not suffer from who follows it.
                    follower.mailbox.post([(follower.on_closed, error)])

    def refuse_taken(self, topic_name: str, name: str | None) -> None:
        """Raises SubscriptionConflict when a pattern has this name on this topic."""
        if name is not None and self.state.patterns:
            with self.engine.lock:
                refuse_taken(self.state, topic_name, name)

    def describe_part(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row of a subscription that is part of a pattern's says so; others stay."""
        if self.state.patterns:
            whole = pattern_of(self.state, row["topic"], row["subscription"])
            if whole is not None:
                row["pattern"] = whole.pattern
        return row

    def describe_patterns(self, topic_name: str | None) -> list[dict[str, Any]]:
        """One row for each subscription over a pattern, of one pattern or of all."""
        rows: list[dict[str, Any]] = []
        for key in sorted(self.state.patterns):
            each = self.state.patterns[key]
            if topic_name not in {None, each.pattern}:
                continue
            found = [s for s in subscriptions_of(self.state, each) if not s.is_pending]
            wall = self.engine.clock.wall()
            total = sum((count_whole(s, wall) for s in found), counts.Counts())
            consumers = [f.wanted.consumer for f in self._followers_of(each.pattern, each.name)]
            rows.append(
                {
                    **self._members(each),
                    "topic": each.pattern,
                    "subscription": each.name,
                    "kind": each.policy.kind.value,
                    "pattern": each.pattern,
                    "topics": [s.topic.name for s in found],
                    "consumers": consumers,
                    **msgspec.to_builtins(total),
                    "unexplained": counts.unexplained(total),
                    "policy": msgspec.to_builtins(each.policy),
                }
            )
        return rows

    def _members(self, each: PatternCreated) -> dict[str, Any]:
        """Of a multicast, the names of its members."""
        if each.policy.kind is not Kind.MULTICAST or names.MEMBER_MARK in each.name:
            return {}
        return {"members": sorted(member.name for member in members_of(self.state, each))}

    def decide_delete_pattern(self, pattern: str, name: str) -> Record:
        """Deletes a pattern subscription with all its topics. Under the lock.

        Raises UnknownSubscription, SubscriptionInUse.
        """
        known = patterns.find_pattern(self.state, pattern, name)
        connected = len(self._followers_of(pattern, name))
        if connected:
            raise SubscriptionInUse(
                f"subscription {name!r} on pattern {pattern!r} has {connected} consumer(s); close "
                "them first"
            )
        return patterns.decide_delete_pattern(self.state, known)

    def _followers_of(self, pattern: str, name: str) -> list[Follower]:
        whole, mark, consumer = name.partition(names.MEMBER_MARK)
        return [
            f
            for f in self.followers
            if (f.wanted.pattern, f.wanted.subscription) == (pattern, whole)
            and (not mark or (f.wanted.is_named and f.wanted.consumer == consumer))
        ]

    def follow(
        self, wanted: Wanted, seat: Callable[[str], Seat], mailbox: Mailbox, on_closed: Target
    ) -> Follower:
        """Joins a pattern subscription, which is created when missing, on every topic.

        Raises InvalidName, InvalidArgument, SubscriptionConflict, Draining.
        """
        check_pattern(wanted.pattern)
        check_start(wanted.start)
        names.check_consumer(wanted.consumer)
        follower = Follower(self, wanted, seat, mailbox, on_closed)
        is_durable = wanted.subscription is not None and self._ensure_cursors(wanted)
        with self.engine.lock:
            self.engine.check_alive()
            # The subscriptions behind a named pattern have their starts already.
            start = None
            if not is_durable:
                start = "latest" if wanted.start is None else wanted.start
            legs = wanted.returning or {}
            is_back = any(self.former(leg, wanted.consumer) for leg in legs.values())
            is_back = is_back and not is_durable
            joined: list[Consumer] = []
            try:
                for topic in topics_of(self.state, wanted.pattern):
                    leg = legs.get(topic.name)
                    # A topic it does not know was created since its connection ended.
                    since = "earliest" if is_back and leg is None else start
                    joined.append(self._join(follower, topic.name, since, leg))
            except PenstockError:
                for consumer in joined:
                    self.detach(consumer, {}, DIRECT, _ignore)
                raise
            self.followers[follower] = None
        return follower

    def _join(
        self, follower: Follower, topic_name: str, start: Any, returning: Returning | None = None
    ) -> Consumer:
        wanted = follower.wanted
        seat = follower.seat(topic_name)
        consumer: Consumer = self.attach(
            topic_name, wanted.subscription, wanted.policy, start, wanted.credit,
            wanted.credit_bytes, wanted.consumer, seat.sink, is_leg=True,
            is_named=wanted.is_named, returning=returning,
        )  # fmt: skip
        seat.on_joined(consumer)
        return consumer

    def _ensure_cursors(self, wanted: Wanted) -> bool:
        """Makes what a consumer goes on with; False when that ends with the consumer."""
        name = wanted.subscription
        assert name is not None
        policy = wanted.policy
        known = self.state.patterns.get((wanted.pattern, name))
        if policy is None and known is not None:
            policy = known.policy
        is_multicast = policy is not None and policy.kind is Kind.MULTICAST
        if is_multicast and wanted.is_named:
            names.check_member("t", name, wanted.consumer)
        start = None if is_multicast else wanted.start
        self._ensure_pattern(wanted.pattern, name, policy, start, is_explicit=False)
        if not is_multicast:
            return True
        if not wanted.is_named:
            return False
        member = f"{name}{names.MEMBER_MARK}{wanted.consumer}"
        start = "latest" if wanted.start is None else wanted.start
        starts = self._starts_on(wanted.pattern, member, start)
        with self.engine.lock:
            whole = patterns.find_pattern(self.state, wanted.pattern, name)
            record = patterns.decide_join_pattern(
                self.state, whole, wanted.consumer, starts, self.engine.clock.wall()
            )
            if record is not None:
                self.engine.submit(record, None)
        return True

    def _starts_on(self, pattern: str, name: str, start: Any) -> patterns.Starts:
        """Where a new pattern subscription starts on each topic that matches."""
        known: dict[int, tuple[int, ...]] = {}
        if isinstance(start, int | float) and (pattern, name) not in self.state.patterns:
            # Looking for a time reads the disk: that is done without the lock.
            with self.engine.lock:
                topics = topics_of(self.state, pattern)
            known = {topic.id: self._starts(topic, start, "earliest") for topic in topics}

        def starts(topic: Topic) -> tuple[int, ...]:
            if start == "latest":
                return admin.latest(topic)
            return known.get(topic.id) or admin.earliest(topic)

        return starts

    def _ensure_pattern(
        self, pattern: str, name: str, policy: SubscriptionPolicy | None, start: Any, *,
        is_explicit: bool,
    ) -> None:  # fmt: skip
        """Creates the pattern subscription when it is missing; submits and does not wait."""
        check_start(start)
        if policy is not None:
            check_multicast_start(policy, start)
        starts = self._starts_on(pattern, name, start)
        with self.engine.lock:
            self.engine.check_alive()
            record = patterns.decide_create_pattern(
                self.state, pattern, name, policy, starts, self.engine.clock.wall(),
                is_explicit=is_explicit,
            )  # fmt: skip
            if record is not None:
                self.engine.submit(record, None)


def check_start(start: Any) -> None:
    """Raises InvalidArgument when the start is no place on many topics."""
    if start is not None and position_of("start", start) is not None:
        raise InvalidArgument(
            f"start {start!r} is no place on many topics: a pattern starts at 'earliest', "
            "'latest' or a time"
        )


def _ignore(_answer: Any) -> None:
    """Nobody waits for this."""
