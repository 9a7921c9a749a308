"""Consumers whose connection ended without a word: waiting for them, and taking them in again.

A broker that is served gives them `reattach_s` to come back; an embedded one, whose consumers live
and die with it, gives them none. What to do is decided in `delivery.returning`.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple

from penstock.broker.engine import Engine
from penstock.broker.mailbox import DIRECT, Mailbox, Target
from penstock.broker.revoking import tell_expired
from penstock.delivery import returning as back
from penstock.delivery.leases import LEASE_BITS
from penstock.delivery.state import Consumer, State, Subscription, Topic
from penstock.delivery.traits import NEVER
from penstock.vocabulary.claims import Returning
from penstock.vocabulary.errors import Closed, InvalidArgument
from penstock.vocabulary.message import Kind
from penstock.vocabulary.names import MEMBER_MARK
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Attached, Detached, Record, Unit


class Nowhere(NamedTuple):
    """Where the slices of a consumer go that has no connection."""

    mailbox: Mailbox
    on_slice: Target
    on_closed: Target
    on_revoked: Target


def _ignore(_answer: Any) -> None:
    """Nobody is there."""


NOWHERE = Nowhere(DIRECT, _ignore, _ignore, _ignore)


class Returns:
    """The part of a Broker that waits for consumers."""

    engine: Engine
    state: State
    reattach_ms: int = 0
    detach: Any
    _submit_or_apply: Callable[[Consumer, Record], None]
    """Methods of Broker."""

    @property
    def generation(self) -> int:
        """How often this store was opened: which start of the broker this is."""
        return self.state.generation

    def begin_returns(self) -> None:
        """After recovery: whoever is attached in the log may return until the time is over."""
        engine = self.engine
        self.state.next_lease_id = self.state.generation << LEASE_BITS | 1
        if self.reattach_ms and self.state.attached:
            until = engine.clock.now() + self.reattach_ms
            engine.awaiting.update(dict.fromkeys(back.begin_awaiting(self.state, until, NOWHERE)))

    # -- going -----------------------------------------------------------------------------------

    def lose(self, consumer: Consumer) -> None:
        """Its connection ended without a word: what it holds waits for it to return.

        When it does not return in time, its messages come back as from a consumer that died.
        """
        engine = self.engine
        with engine.lock:
            if engine.consumers.get(consumer.id) is not consumer or consumer.away_until:
                return
            if not self.reattach_ms or consumer.is_gone or engine.is_closed:
                self.detach(consumer, {}, DIRECT, _ignore, is_clean=False)
                return
            consumer.is_attached = False
            consumer.away_until = engine.clock.now() + self.reattach_ms
            consumer.deadline = (
                NEVER  # Its leases stand still: they end with its time at the latest.
            )
            consumer.sink = NOWHERE
            engine.away[consumer] = None
            engine.dispatch(consumer.subscription)
        engine.wake_timer()

    def end_returns(self, now: int, wall: int) -> None:
        """Gives up consumers whose time is over. Under the lock."""
        engine = self.engine
        for consumer in [each for each in engine.away if each.away_until <= now]:
            self.detach(consumer, {}, DIRECT, _ignore, is_clean=False)
        for subscription in list(engine.awaiting):
            awaiting = subscription.awaiting
            if awaiting is None or awaiting.until <= now or subscription.is_removing:
                self._end_awaiting(subscription, wall)

    def _end_awaiting(
        self, subscription: Subscription, wall: int, entering: Consumer | None = None
    ) -> None:
        engine = self.engine
        engine.awaiting.pop(subscription, None)
        awaiting = subscription.awaiting
        if awaiting is None:
            return
        missing = list(awaiting.missing)
        records = back.decide_awaited(subscription, wall)
        if subscription.keys is not None:  # Whoever enters hears it from what is kept.
            known = [row for row in subscription.keys.revoked if row[0] is not entering]
            subscription.keys.revoked = known
        tell_expired(subscription)
        if self.state.subscriptions.get(subscription.id) is not subscription:
            return
        if subscription.is_removing or subscription.topic.is_removing:
            return
        records += [Detached(subscription.topic.id, subscription.id, n, wall) for n in missing]
        for record in records:
            engine.submit(record, None)
        if subscription.consumers:
            engine.dispatch(subscription)

    # -- coming back -----------------------------------------------------------------------------

    def former(self, returning: Returning | None, name: str) -> Consumer | None:
        """The consumer somebody says to have been, if it has not been given up. Under the lock."""
        if returning is None or returning.generation != self.state.generation:
            return None
        found = self.engine.consumers.get(returning.consumer_id)
        return found if found is not None and found.name == name and not found.is_gone else None

    def former_subscription(
        self, topic: Topic, name: str | None, policy: SubscriptionPolicy | None,
        consumer: str, returning: Returning | None, *, is_named: bool,
    ) -> Subscription | None:  # fmt: skip
        """The subscription without a cursor of its own that a consumer goes on with."""
        former = self.former(returning, consumer)
        if former is None or former.subscription.is_durable:
            return None
        found = former.subscription
        is_multicast = policy is not None and policy.kind is Kind.MULTICAST and not is_named
        start = "\0" if name is None else f"{name}{MEMBER_MARK}\0"
        is_meant = (name is None or is_multicast) and found.name.startswith(start)
        return found if is_meant and found.topic is topic else None

    def enter(self, consumer: Consumer, returning: Returning | None) -> None:
        """Makes a new consumer durable, with what it holds when it returns. Under the lock."""
        engine, subscription = self.engine, consumer.subscription
        consumer.generation = self.state.generation
        was = None if returning is None else self._resume(consumer, returning)
        if not subscription.is_durable:
            consumer.is_attached = True
            engine.dispatch(subscription)
            return
        topic_id = subscription.topic.id
        attached: Record = Attached(topic_id, subscription.id, consumer.id, consumer.name)
        if was is not None:
            gone = Detached(topic_id, subscription.id, was, engine.clock.wall())
            attached = Unit((attached, gone))
        engine.submit(attached, None)
        awaiting = subscription.awaiting
        if awaiting is not None and not awaiting.missing:
            self._end_awaiting(subscription, engine.clock.wall(), consumer)
            consumer.kept = back.still_kept(consumer)

    def _resume(self, consumer: Consumer, returning: Returning) -> int | None:
        """Takes over what a consumer had; returns the number it had, when that is known."""
        engine, now = self.engine, self.engine.clock.now()
        if back.is_awaited(consumer.subscription, consumer.name, returning):
            resumed = back.resume_from_pool(self.state, consumer, returning, now)
        else:
            former = self.former(returning, consumer.name)
            if former is None or former.subscription is not consumer.subscription:
                return None
            resumed = back.resume_from(
                self.state, former, consumer, returning.held, now, engine.clock.wall()
            )
            self._dismiss(former)
        consumer.kept = resumed.kept
        for record in resumed.records:
            self._submit_or_apply(consumer, record)
        return returning.consumer_id

    def _dismiss(self, former: Consumer) -> None:
        """Another took its place: whoever still has the old connection is told."""
        engine, subscription = self.engine, former.subscription
        del engine.consumers[former.id]
        engine.away.pop(former, None)
        assert subscription.consumers is not None
        subscription.consumers.remove(former)
        former.is_gone = True
        gone = Closed(
            f"consumer {former.name!r} of subscription {subscription.name!r} came back over "
            "another connection, which has its messages now"
        )
        former.sink.mailbox.post([(former.sink.on_closed, gone)])

    def count_returns(self) -> dict[str, Any]:
        """Who is waited for, in numbers. Under the lock."""
        engine = self.engine
        waits = [each.awaiting for each in engine.awaiting if each.awaiting is not None]
        return {
            "consumers_away": len(engine.away) + sum(len(each.missing) for each in waits),
            "subscriptions_waiting": len(waits),
        }


def reattach_ms(seconds: float) -> int:
    """How long consumers are waited for. Raises InvalidArgument."""
    if not isfinite(seconds) or seconds < 0:
        raise InvalidArgument(f"reattach_s must be 0 or more seconds, not {seconds}")
    return int(seconds * 1000)
