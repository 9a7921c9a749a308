"""The broker a driver talks to: publish, attach, settle, administer, look, stop.

Every method may be called from any thread. Those that take a mailbox answer through it; the
others wait until what they did is durable.
"""

from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

from penstock.broker.administration import check_wanted
from penstock.broker.clock import Clock, SystemClock
from penstock.broker.engine import Engine, Waiter
from penstock.broker.expiring import expire_all
from penstock.broker.keeper import Keeper
from penstock.broker.mailbox import DIRECT, Mailbox, Target
from penstock.broker.multicasting import default_start
from penstock.broker.reading import Reading
from penstock.broker.rebuild import Rebuild, started
from penstock.broker.returning import reattach_ms
from penstock.broker.revoking import answer_nack, tell_expired
from penstock.broker.threads import Threads
from penstock.broker.timing import until_next
from penstock.broker.units import Units
from penstock.delivery import admin, settle
from penstock.delivery.growth import check_map
from penstock.delivery.members import has_place, see
from penstock.delivery.publish import Decided, Duplicate, decide_publish
from penstock.delivery.reader import refuse_reader
from penstock.delivery.registry import remove_subscription
from penstock.delivery.shared import due
from penstock.delivery.state import Consumer, Subscription, Topic
from penstock.delivery.traits import NEVER
from penstock.journal.disk import Disk
from penstock.journal.recovery import open_journal
from penstock.journal.settings import JournalSettings
from penstock.vocabulary import limits, names
from penstock.vocabulary.claims import Claim, Refusal, Returning
from penstock.vocabulary.errors import (
    Closed,
    DiskFull,
    Draining,
    InvalidArgument,
    InvalidName,
)
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Cause, Detached, Published, Ranges, Skipped
from penstock.vocabulary.stored import Stored

SPACE_CHECK_MS = 1_000


class Sink(NamedTuple):
    """Where a consumer's slices go."""

    mailbox: Mailbox
    on_slice: Target
    on_closed: Target
    on_revoked: Target | None = None
    """Kind `key_shared`: told what was taken back, in order with the slices."""


class Broker(Units, Reading):
    """An open broker on one journal."""

    def __init__(self, engine: Engine, keeper: Keeper) -> None:
        self.engine = engine
        self.keeper = keeper
        self.journal = engine.journal
        self.state = engine.state
        self.is_draining = False
        self.durability = Durability.SYNCED
        self._threads: Threads | None = None
        self._space_at = 0
        self._expire_at = NEVER
        self._is_full = False
        self._dead_lock = Lock()
        self._levels: dict[Durability, Durability] = {}
        self.followers = {}
        self.epochs: dict[bytes, int] = {}
        """publisher → the newest epoch a client of its name took."""

    @classmethod
    def open(
        cls, disk: Disk, settings: JournalSettings | None = None, clock: Clock | None = None, *,
        threads: bool = True, timers: bool = True, durability: Durability = Durability.SYNCED,
        reattach_s: float = 0.0,
    ) -> "Broker":  # fmt: skip
        """Opens the store: recovers, writes that it started, then serves.

        Consumers whose connection ended without a word have `reattach_s` to return; 0 is for a
        broker that they die with. Raises InvalidArgument, NotAStore, StoreInUse,
        StoreTooNew, StoreDamaged.
        """
        clock = clock or SystemClock()
        may_return_ms = reattach_ms(reattach_s)
        rebuilds: list[Rebuild] = []

        def make(journal: Any) -> Rebuild:
            rebuilds.append(Rebuild(journal, clock))
            return rebuilds[0]

        journal = open_journal(disk, settings or JournalSettings(), make)
        rebuild = rebuilds[0]
        engine = Engine(journal, rebuild.state, clock)
        broker = cls(engine, Keeper(engine))
        broker.durability, broker.reattach_ms = durability, may_return_ms
        broker._levels = {level: min(level, durability, key=_LEVELS.index) for level in Durability}
        try:
            broker.check_space()
            broker._begin(rebuild)
        except BaseException:
            journal.close()
            raise
        if threads:
            broker._threads = Threads(engine, broker.keeper, broker.tick if timers else None)
            broker._threads.start()
        return broker

    def _begin(self, rebuild: Rebuild) -> None:
        engine, journal, report = self.engine, self.journal, self.journal.report
        wall = engine.clock.wall()
        is_served = self.reattach_ms > 0
        first = started(self.state, wall, is_clean=report.is_clean, is_served=is_served)
        engine.call(first)
        for record in self._skips(report.is_clean):
            engine.call(record)
        rebuild.finish()
        self.begin_returns()
        engine.doomed.update(rebuild.doomed)
        engine.delaying.update(rebuild.delaying)
        engine.retaining.note(rebuild.retaining)
        engine.expiring.update(rebuild.expiring)
        journal.mark(broker_generation=self.state.generation)
        if report.is_damaged or report.notes:
            self.keeper.snapshot()

    def _skips(self, is_clean: bool) -> list[Skipped]:  # noqa: FBT001 - private, one caller
        """Offsets that must never be used again after an unclean stop or damage."""
        if is_clean:
            return []
        lost = any(damage.lost_records != 0 for damage in self.journal.report.damages)
        return [
            Skipped(topic.id, partition.index, partition.next_offset + limits.OFFSET_SKIP)
            for topic in self.state.topics.values()
            for partition in topic.partitions
            if lost or topic.policy.durability is Durability.WRITTEN
        ]

    # -- publish ---------------------------------------------------------------------------------

    def publish(  # noqa: PLR0913, PLR0917 - the hot path: no object per call
        self, topic_name: str, partition: int, batch: bytes, count: int, publisher: bytes,
        epoch: int, sequence: int, mailbox: Mailbox, target: Target, partitions: int = 0,
    ) -> None:  # fmt: skip
        """Stores a batch; the target gets Stored, or an error. Raises what is known at once.

        `partitions`: how many the batch was split for; 0 = whatever there are. Raises StaleMap.
        """
        engine = self.engine
        with engine.lock:
            if engine.is_blocked:
                self._check_publish()
            topic = self.state.names.get(topic_name)
            if topic is None or topic.is_removing or topic.policy.dead_of:
                topic = self._topic_to_publish(topic_name)
            if partitions and partitions != len(topic.map):
                check_map(topic, partition, publisher, epoch, sequence)
            decision = decide_publish(
                topic.map[partition], batch, count, publisher, epoch, sequence,
                engine.clock.wall(),
            )  # fmt: skip
            level = self._levels[topic.policy.durability]
            if type(decision) is Published:
                stored = Stored(decision.base, level, is_duplicate=False, kept=decision.kept)
                engine.submit(decision, (mailbox, target, stored))
            elif type(decision) is Duplicate:
                places = decision.places
                answer = Stored(decision.base, level, is_duplicate=True, places=places)
                engine.after_pending((mailbox, target, answer))
            elif type(decision) is Decided:
                part = decision.published
                stored = Stored(part.base, level, False, part.kept, decision.places)  # noqa: FBT003
                engine.submit(decision.record, (mailbox, target, stored))
            else:
                engine.after_pending((DIRECT, self._again(
                    topic_name, partition, batch, count, publisher, epoch, sequence, mailbox,
                    target, partitions,
                ), None))  # fmt: skip

    def _again(self, *arguments: Any) -> Target:
        def retry(answer: Any) -> None:
            *_, mailbox, target, _partitions = arguments
            try:
                if not isinstance(answer, BaseException):
                    self.publish(*arguments)
                    return
            except Exception as error:  # noqa: BLE001 - the waiter gets whatever went wrong
                answer = error
            mailbox.post([(target, answer)])

        return retry

    def _check_publish(self) -> None:
        self.engine.check_alive()
        if self.is_draining:
            raise Draining("the broker is stopping and takes no new messages")
        if self._is_full:
            raise DiskFull(
                "the disk has less free space than the reserve of "
                f"{self.journal.settings.reserve_bytes} bytes: publishes are refused until space "
                "is freed; acks and reads go on"
            )

    def check_space(self) -> None:
        """Looks at the free space; below the reserve publishes are refused."""
        free = self.journal.disk.free_bytes()
        self._is_full = free < self.journal.settings.reserve_bytes
        self._update_blocked()

    def _update_blocked(self) -> None:
        engine = self.engine
        engine.is_blocked = (
            self._is_full or self.is_draining or engine.is_closed or self.journal.failed is not None
        )

    def _topic_to_publish(self, name: str) -> Topic:
        if names.is_dead_topic(name):
            raise InvalidName(f"{name!r} is a dead-letter topic: only the broker publishes there")
        return self._ensure_topic(name)

    def partitions(self, topic_name: str) -> int:
        """How many partitions a topic has; it is created when missing."""
        topic = self.state.names.get(topic_name)
        if topic is None:
            with self.engine.lock:
                self._check_publish()
                topic = self._topic_to_publish(topic_name)
        return len(topic.map)

    def when_room(self, waiter: Waiter) -> bool:
        """True when publishes may go on; otherwise the waiter is told when they may."""
        return self.engine.when_room(waiter)

    # -- consume ---------------------------------------------------------------------------------

    def attach(  # noqa: PLR0913 - a subscription, and who joins it how
        self, topic_name: str, subscription_name: str | None, policy: SubscriptionPolicy | None,
        start: Any, credit: int, credit_bytes: int, consumer_name: str, sink: Sink, *,
        is_named: bool = False, is_leg: bool = False, returning: Returning | None = None,
    ) -> Consumer:  # fmt: skip
        """Joins a subscription, creating topic and subscription when missing.

        Slices arrive at the sink once the attachment is durable. `is_named`: the application chose
        the consumer's name; `is_leg`: it is one topic of a pattern; `returning`: who it was and
        what it holds, when its connection ended without a word; `kept` says what it still has.
        """
        engine = self.engine
        if not is_leg:
            self.refuse_taken(topic_name, subscription_name)
        if not 1 <= credit <= limits.CREDIT_MAX:
            raise InvalidArgument(f"credit must be 1…{limits.CREDIT_MAX}, not {credit}")
        names.check_consumer(consumer_name)
        check_wanted(policy, start)
        member = consumer_name if is_named else None
        with engine.lock:
            engine.check_alive()
            if self.is_draining:
                raise Draining("the broker is stopping and takes no new consumers")
            if names.is_dead_topic(topic_name):
                topic = admin.find_topic(self.state, topic_name)
            else:
                topic = self._topic_to_follow(topic_name, subscription_name, policy, member)
            if self.former(returning, consumer_name) or has_place(topic, subscription_name, member):
                start = None  # It has its place; the one it began at may be gone.
        starts = self._starts(topic, start, default_start(subscription_name, policy))
        with engine.lock:
            subscription = self.former_subscription(
                topic, subscription_name, policy, consumer_name, returning, is_named=is_named
            ) or self._ensure_subscription(topic, subscription_name, policy, starts, member)
            number = self.state.next_consumer_id
            self.state.next_consumer_id = number + 1
            consumer = Consumer(number, consumer_name, subscription, credit, credit_bytes, sink)
            engine.consumers[number] = consumer
            if subscription.consumers is None:
                subscription.consumers = []
            subscription.consumers.append(consumer)
            engine.serving[subscription] = None
            self.enter(consumer, returning)
        return consumer

    def _ensure_subscription(
        self, topic: Topic, name: str | None, policy: SubscriptionPolicy | None,
        starts: tuple[int, ...], member: str | None,
    ) -> Subscription:  # fmt: skip
        refuse_reader(topic, name, policy)
        wall = self.engine.clock.wall()
        if policy is None and topic.multicasts and name in topic.multicasts:
            policy = topic.multicasts[name].policy
        if name is not None and policy is not None and policy.kind is Kind.MULTICAST:
            return self.join_multicast(topic, name, policy, starts, member)
        if name is None:
            policy = policy or SubscriptionPolicy()
            return admin.make_ephemeral(self.state, topic, policy, starts, wall)
        record = admin.decide_create_subscription(
            self.state, topic, name, policy, starts, wall, is_explicit=False
        )
        if record is not None:
            self.engine.submit(record, None)
        return admin.find_subscription(topic, name)

    def ack(self, consumer: Consumer, claims: list[Claim]) -> list[Refusal]:
        """Finishes messages; durable with the next group. Returns what was refused."""
        engine = self.engine
        with engine.lock:
            engine.check_alive()
            records, refused = settle.decide_ack(consumer, claims)
            for record in records:
                self._submit_or_apply(consumer, record)
            if consumer.free > 0:
                self.engine.dispatch(consumer.subscription)
        return refused

    def _submit_or_apply(self, consumer: Consumer, record: Any) -> None:
        if consumer.subscription.is_durable:
            self.engine.submit(record, None, urgent=False)
        else:
            self.engine.apply_now(record)

    def give_back(
        self, consumer: Consumer, claim: Claim, cause: Cause, delay_s: float | None,
        reason: str,
    ) -> list[Refusal]:  # fmt: skip
        """Brings messages back: nack, reject or hand-back of what was not started."""
        engine = self.engine
        if delay_s is not None and not delay_s <= limits.DELAY_S_MAX:
            raise InvalidArgument(
                f"a message may come back within {limits.DELAY_S_MAX} seconds, not in {delay_s}"
            )
        reason = reason.encode()[: limits.REASON_BYTES_MAX].decode(errors="ignore")
        with engine.lock:
            engine.check_alive()
            records, refused = settle.decide_return(
                consumer, claim, cause, delay_s, reason, engine.clock.wall()
            )
            if cause is Cause.NACKED and consumer.subscription.policy.kind is Kind.KEY_SHARED:
                answer_nack(consumer, claim)
            for record in records:
                self._submit_or_apply(consumer, record)
            if not records and consumer.free > 0:  # QoS 0: only its credit came back
                self.engine.dispatch(consumer.subscription)
        return refused

    def extend(
        self, consumer: Consumer, renewals: Sequence[tuple[int, int, int | None]],
        seconds: float | None,
    ) -> None:  # fmt: skip
        """Renews leases: (lease id, first offset, end offset or None = all that follow)."""
        engine = self.engine
        if seconds is None:
            seconds = consumer.subscription.policy.lease_s
        with engine.lock:
            deadline = engine.clock.now() + int(seconds * 1000)
            for lease_id, start, end in renewals:
                settle.extend(consumer, lease_id, start, end, deadline)
            if consumer.leases:
                consumer.deadline = settle.next_deadline(consumer)

    def flush(self, mailbox: Mailbox, target: Target) -> None:
        """Answers None once everything decided so far is durable."""
        self.engine.after_pending((mailbox, target, None))

    def detach(
        self, consumer: Consumer, begun: dict[int, Ranges], mailbox: Mailbox, target: Target, *,
        is_clean: bool = True,
    ) -> None:  # fmt: skip
        """Leaves a subscription; what was not begun gets its attempt back."""
        engine = self.engine
        with engine.lock:
            if consumer.id not in engine.consumers:
                mailbox.post([(target, None)])
                return
            subscription = consumer.subscription
            del engine.consumers[consumer.id]
            self.forget_return(consumer)
            if subscription.consumers and consumer in subscription.consumers:
                subscription.consumers.remove(consumer)
            if not subscription.consumers:
                subscription.consumers = None
                engine.serving.pop(subscription, None)
            was_gone, consumer.is_gone = consumer.is_gone, True
            if not subscription.is_durable:
                self._end_ephemeral(subscription)
            elif not was_gone and self.journal.failed is None:
                wall = engine.clock.wall()
                see(self.state, subscription.id, wall)  # now: it must not be forgotten meanwhile
                for record in settle.decide_detach(consumer, begun, wall, is_clean=is_clean):
                    engine.submit(record, None)
                engine.submit(
                    Detached(subscription.topic.id, subscription.id, consumer.id, wall), None
                )
        engine.after_pending((mailbox, target, None))

    def _end_ephemeral(self, subscription: Subscription) -> None:
        self.state.subscriptions.pop(subscription.id, None)
        if subscription.topic.id in self.state.topics:
            remove_subscription(subscription)

    # -- time ------------------------------------------------------------------------------------

    def tick(self) -> int:
        """Does what time demands; returns the milliseconds until it should be asked again."""
        engine = self.engine
        with engine.lock:
            now, wall = engine.clock.now(), engine.clock.wall()
            if now >= self._space_at:
                self._space_at = now + SPACE_CHECK_MS
                self.check_space()
            if self.journal.failed is not None:
                return 1000
            self.end_returns(now, wall)
            for subscription in list(engine.serving):
                expired = settle.decide_expired(subscription, now, wall)
                tell_expired(subscription)
                for record in expired:
                    if subscription.is_durable:
                        engine.submit(record, None)
                    else:
                        engine.apply_now(record)
            # All that is due stands in line before any of it goes: the highest priority is first.
            ripe = {c.subscription: None for c in list(engine.delaying) if due(c, now, wall)}
            for cursor in list(engine.delaying):
                if not cursor.delayed and not (cursor.line and cursor.line.later):
                    engine.delaying.pop(cursor, None)
            for subscription in ripe:
                if subscription.consumers:
                    engine.dispatch(subscription)
            for subscription in list(engine.serving):
                if subscription.keys is not None and subscription.keys.is_moving:
                    engine.dispatch(subscription)
            self._expire_at = expire_all(engine, wall)
            engine.retaining.decide(lambda record: engine.submit(record, None))
            self.forget_members(wall)
            return until_next(engine, now, wall, self._expire_at)

    # -- the end ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """Takes no new work and hands nothing out; what is decided is still made durable."""
        self.is_draining = self.engine.is_draining = True
        self._update_blocked()

    def close(self) -> None:
        """Stops in good order: everything durable, sealed, in a snapshot. Raises StoreFailed."""
        if self.engine.is_closed:
            return
        failed = self.journal.failed
        self.drain()
        for consumer in [c for c in self.engine.consumers.values() if not c.away_until]:
            self.detach(consumer, {}, DIRECT, lambda _: None)
            consumer.sink.mailbox.post([(consumer.sink.on_closed, Closed("the broker was closed"))])
        if self._threads is not None:
            self._threads.stop()
        self.engine.is_threaded = False
        while self.engine.commit_once():
            pass
        self.engine.is_closed = True
        try:
            if self.journal.failed is None:
                self.journal.seal()
                self.engine.applied_end = self.journal.log_end
                self.keeper.snapshot()
                self.journal.mark(is_clean=True)
        finally:
            self.journal.close()
        if self.journal.failed is not failed and self.journal.failed is not None:
            raise self.journal.failed  # The last acks were decided, and are not durable.

    def abandon(self) -> None:
        """Drops everything without a clean stop, as if the process had died. For tests."""
        if self._threads is not None:
            self._threads.stop()
        self.engine.is_closed = True
        self.journal.close()


_LEVELS = [Durability.MEMORY, Durability.WRITTEN, Durability.SYNCED, Durability.REPLICATED]
