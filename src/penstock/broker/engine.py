"""The engine: everything that arrives while one group is being synced forms the next.

Callers decide under one lock and `submit` the record. `commit_once` — the commit thread's loop
body — writes and syncs the records as groups, applies them, acts on the effects and answers the
waiters. Without threads, tests call the same methods by hand.
"""

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from threading import Lock, RLock
from typing import Any

from penstock.batch.frame import Frame, Slice
from penstock.broker.clock import Clock
from penstock.broker.early import early_publishes
from penstock.broker.expiring import expire
from penstock.broker.fetching import cached_frames, read_frames, skip_missing
from penstock.broker.mailbox import DIRECT, Letter, Mailbox, Pending, Target
from penstock.broker.once import hand_over_once
from penstock.broker.retaining import Retaining
from penstock.delivery import keyed, revoked
from penstock.delivery.apply import apply, apply_published, topic_ids
from penstock.delivery.effects import Effects
from penstock.delivery.masking import masked
from penstock.delivery.offers import Offer
from penstock.delivery.shared import dispatch
from penstock.delivery.state import Consumer, Cursor, Lease, Partition, State, Subscription
from penstock.journal.group import Encoded
from penstock.journal.journal import Journal
from penstock.journal.record import encode, encode_published
from penstock.vocabulary import limits
from penstock.vocabulary.errors import Closed, StorageError
from penstock.vocabulary.message import Kind
from penstock.vocabulary.records import (
    Copied,
    Lost,
    Published,
    Record,
    Returned,
    Settled,
    Unit,
)

Waiter = tuple[Mailbox, Target, Any]
"""Who is answered, how, and with what, once a record is durable and applied."""


class Engine:
    """State, journal and what lies between them."""

    def __init__(self, journal: Journal, state: State, clock: Clock) -> None:
        self.journal = journal
        self.state = state
        self.clock = clock
        self.lock = RLock()
        self.consumers: dict[int, Consumer] = {}
        self.jobs: deque[Callable[[], None]] = deque()
        """Work that reads the disk, for the worker thread."""
        self.doomed: dict[Cursor, None] = {}
        self.delaying: dict[Cursor, None] = {}
        self.expiring: dict[Partition, None] = {}
        """Partitions with messages that end at a time of their own."""
        self.retaining = Retaining(state, clock)
        self.serving: dict[Subscription, None] = {}
        """Subscriptions with consumers."""
        self.away: dict[Consumer, None] = {}
        """Consumers that lost their connection and may return."""
        self.formers: dict[tuple[int, int], Consumer] = {}
        """(generation, id) a consumer returned with; it may not have heard the new one."""
        self.awaiting: dict[Subscription, None] = {}
        """Subscriptions that wait for consumers attached before the broker stopped."""
        self.unsynced = Lock()
        """Held while a `written` publish counts and is not yet synced: snapshots wait for it."""
        self.committing = Lock()
        """Held by whoever commits."""
        self.applied_end = journal.log_end
        self.applied_records = journal.records
        self.pending_bytes = 0
        self.is_closed = False
        self.is_blocked = False
        """Publishes have to look why they are refused."""
        self.is_draining = False
        """Nothing more is handed out."""
        self.is_threaded = False
        self.wake_commit: Callable[[], None] = _nobody
        self.wake_worker: Callable[[], None] = _nobody
        self.wake_timer: Callable[[], None] = _nobody
        self._records: list[Record] = []
        self._encoded: list[Encoded] = []
        self._waiters: list[Waiter | None] = []
        self._after: list[Waiter] = []
        self._room: list[Waiter] = []
        self.is_urgent = False
        self._ripe: dict[Subscription, None] = {}
        """Subscriptions to hand out of before the next group is taken."""

    # -- in --------------------------------------------------------------------------------------

    def submit(self, record: Record, waiter: Waiter | None, *, urgent: bool = True) -> None:
        """Queues a decided record. The caller holds the lock since it decided."""
        data = encode_published(record) if type(record) is Published else encode(record)
        self._records.append(record)
        self._encoded.append(data)
        self._waiters.append(waiter)
        self.pending_bytes += len(data) if isinstance(data, bytes) else len(data[1])
        if urgent and not self.is_urgent:
            self.is_urgent = True
            self.wake_commit()
        elif not urgent and len(self._records) == 1:
            self.wake_commit()

    def after_pending(self, waiter: Waiter, *, urgent: bool = True) -> None:
        """Answers the waiter once everything decided so far is durable, which it may hasten."""
        with self.lock:
            self._after.append(waiter)
            self.is_urgent = self.is_urgent or urgent
        self.wake_commit()

    def dispatch_with_group(self, subscription: Subscription) -> None:
        """Hands out once for all that is decided until the next group: an urgent record waits."""
        self._ripe[subscription] = None

    def when_room(self, waiter: Waiter) -> bool:
        """True when publishes may go on; otherwise the waiter is told when they may."""
        with self.lock:
            if self.pending_bytes <= limits.PENDING_BYTES_MAX:
                return True
            self._room.append(waiter)
            return False

    def call(self, record: Record | None) -> None:
        """Submits a record and waits until it is applied; a topic being deleted needs none."""
        pending = Pending()
        if record is not None:
            with self.lock:
                self.check_alive()
                if any(self.state.is_leaving(number) for number in topic_ids(record)):
                    return
                self.submit(record, (DIRECT, pending, None))
            self.settle_down(pending)

    def settle_down(self, pending: Pending) -> Any:
        """Waits for an answer; without threads, does the work that leads to it."""
        while not self.is_threaded and not pending.is_done:
            if not self.commit_once() and not self.run_jobs():
                break
        return pending.wait()

    def check_alive(self) -> None:
        """Raises StoreFailed or Closed when nothing can be written any more."""
        if self.journal.failed is not None:
            raise self.journal.failed
        if self.is_closed:
            raise Closed("the broker is closed; open the store again to go on")

    @property
    def has_pending(self) -> bool:
        """True when there is something to commit."""
        return bool(self._records or self._after)

    @property
    def waiting(self) -> list[Record]:
        """What was submitted and no commit has taken."""
        return self._records

    # -- commit ----------------------------------------------------------------------------------

    def commit_once(self) -> bool:
        """Makes everything submitted so far durable and true; False when there was nothing."""
        with self.lock:
            if not self._records and not self._after:
                return False
            if self._ripe:
                ripe, self._ripe = self._ripe, {}
                for subscription in ripe:
                    if subscription.consumers:
                        self.dispatch(subscription)
            records, encoded, waiters = self._records, self._encoded, self._waiters
            self._records, self._encoded, self._waiters = [], [], []
            after, self._after = self._after, []
            self.is_urgent = False
            self.pending_bytes = 0
        letters: dict[Mailbox, list[Letter]] = {}
        at = 0
        try:
            while at < len(records):
                places, upto = self.journal.append(records, encoded, at)
                with self.unsynced if self.state.written_topics else nullcontext():
                    early = self._apply_early(records, waiters, places, at, upto)
                    self.journal.sync()
                    self._apply_group(records, waiters, places, at, upto, early, letters)
                at = upto
        except StorageError as error:
            self._fail(waiters[at:], error, letters)
            for mailbox, target, _ in after:
                letters.setdefault(mailbox, []).append((target, error))
        else:
            for mailbox, target, answer in after:
                letters.setdefault(mailbox, []).append((target, self.journal.failed or answer))
        self._post(letters)
        self._tell_room()
        return True

    def _apply_early(
        self, records: list[Record], waiters: list[Waiter | None], places: list[int], at: int,
        upto: int,
    ) -> set[int] | None:  # fmt: skip
        """Publishes to topics of durability `written` count from the write on, before the sync."""
        early = early_publishes(self.state, records, at, upto)
        if not early:
            return None
        self.journal.write()
        letters: dict[Mailbox, list[Letter]] = {}
        with self.lock:
            effects = Effects(self.clock.now(), self.clock.wall())
            for i in sorted(early):
                self._apply(records[i], places[i - at], effects)
                self._answer(waiters[i], letters)
                waiters[i] = None
            self._act(effects, letters)
        self._post(letters)
        return early

    def _apply_group(
        self, records: list[Record], waiters: list[Waiter | None], places: list[int], at: int,
        upto: int, early: set[int] | None, letters: dict[Mailbox, list[Letter]],
    ) -> None:  # fmt: skip
        with self.lock:
            effects = Effects(self.clock.now(), self.clock.wall())
            topics = self.state.topics
            runs: list[list[int]] = [[-1, -1, -1, -1]]
            for i in range(at, upto):
                record = records[i]
                place = places[i - at]
                if early and i in early:
                    self._seen(record, place)
                    continue
                if type(record) is Published:
                    run = runs[-1]
                    base, key = record.base, record.topic_id << 16 | record.partition
                    if run[0] == key and run[2] + 1 == base:
                        run[2] = base + record.count - 1
                    else:
                        runs.append([key, base, base + record.count - 1, place >> 32])
                    apply_published(self.state, record, effects)
                    topics[record.topic_id].applied = place
                else:
                    if type(record) is Unit:  # What it stores lies behind what came before it.
                        self.journal.index.hold_runs(runs[1:])
                        del runs[1:]
                    self._apply(record, place, effects)
                    if type(record) is Settled or type(record) is Returned:
                        self._unsettle(record, effects)
                waiter = waiters[i]
                if waiter is not None:
                    mailbox, target, answer = waiter
                    box = letters.get(mailbox)
                    if box is None:
                        letters[mailbox] = [(target, answer)]
                    else:
                        box.append((target, answer))
            self.journal.index.hold_runs(runs[1:])
            self.applied_end = self.journal.log_end
            self.applied_records = self.journal.records
            self._act(effects, letters)

    @staticmethod
    def _answer(waiter: Waiter | None, letters: dict[Mailbox, list[Letter]]) -> None:
        if waiter is not None:
            mailbox, target, answer = waiter
            letters.setdefault(mailbox, []).append((target, answer))

    def _unsettle(self, record: Settled | Returned, effects: Effects) -> None:
        subscription = self.state.subscriptions.get(record.subscription_id)
        if subscription is not None:
            cursor = subscription.cursors[record.partition]
            cursor.settling -= record.count
            if subscription.keys is not None:
                subscription.keys.decided.pop(id(record), None)
                revoked.carried_out(cursor, record)
                if subscription.keys.is_moving or subscription.keys.is_fenced:
                    effects.dirty[subscription] = None

    def _fail(
        self,
        waiters: list[Waiter | None],
        error: StorageError,
        letters: dict[Mailbox, list[Letter]],
    ) -> None:
        with self.lock:
            self.is_blocked = True
            waiters = waiters + self._waiters
            self._records, self._encoded, self._waiters = [], [], []
            self.pending_bytes = 0
            room, self._room = self._room, []
            sinks = [consumer.sink for consumer in self.consumers.values()]
        for waiter in [*waiters, *room]:
            if waiter is not None:
                letters.setdefault(waiter[0], []).append((waiter[1], error))
        for sink in sinks:
            letters.setdefault(sink.mailbox, []).append((sink.on_closed, error))

    def _tell_room(self) -> None:
        if self._room and self.pending_bytes <= limits.PENDING_BYTES_MAX // 2:
            with self.lock:
                room, self._room = self._room, []
            letters: dict[Mailbox, list[Letter]] = {}
            for waiter in room:
                self._answer(waiter, letters)
            self._post(letters)

    @staticmethod
    def _post(letters: dict[Mailbox, list[Letter]]) -> None:
        for mailbox, batch in letters.items():
            mailbox.post(batch)

    # -- apply and effects -----------------------------------------------------------------------

    def _apply(self, record: Record, position: int, effects: Effects) -> None:
        self.store(record, position >> 32)
        apply(self.state, record, effects)
        self._seen(record, position)

    def _seen(self, record: Record, position: int) -> None:
        for number in topic_ids(record):
            topic = self.state.topics.get(number)
            if topic is not None:
                topic.applied = position

    def store(self, record: Record, sequence: int) -> None:
        """Tells the index that a segment holds these messages."""
        if type(record) is Published:
            self._hold(record, sequence)
        elif type(record) is Copied:
            topic = self.state.topics.get(record.topic_id)
            if topic is not None:
                partition = topic.partitions[record.partition]
                held = [o for o in record.offsets if o not in partition.released]
                self.journal.index.hold_copies(partition.key, held, sequence)
        elif type(record) is Unit:
            for part in record.records:
                self.store(part, sequence)

    def _hold(self, record: Published, sequence: int) -> None:
        key = record.topic_id << 16 | record.partition
        self.journal.index.hold(key, record.base, record.base + record.count - 1, sequence)

    def apply_now(self, record: Record) -> None:
        """Applies a decision about an ephemeral subscription, which is never written."""
        letters: dict[Mailbox, list[Letter]] = {}
        effects = Effects(self.clock.now(), self.clock.wall())
        apply(self.state, record, effects)
        if isinstance(record, Settled | Returned):
            self._unsettle(record, effects)
        self._act(effects, letters)
        self._post(letters)

    def release(self, effects: Effects) -> None:
        """Passes on to the index what nothing holds any more."""
        index = self.journal.index
        for key, start, end in effects.released:
            index.release(key, start, end)
        for key, base, mask in effects.scattered:
            index.release_mask(key, base, mask)
        for key in effects.forgotten:
            index.forget(key)

    def _act(self, effects: Effects, letters: dict[Mailbox, list[Letter]]) -> None:
        if effects.released or effects.scattered or effects.forgotten:
            self.release(effects)
        for number in effects.attached:
            consumer = self.consumers.get(number)
            if consumer is not None and not consumer.away_until:
                consumer.is_attached = True
                effects.dirty[consumer.subscription] = None
        for subscription in effects.closed:
            for consumer in subscription.consumers or ():
                consumer.is_gone = True
                gone = Closed(f"subscription {subscription.name!r} was deleted")
                letters.setdefault(consumer.sink.mailbox, []).append(
                    (consumer.sink.on_closed, gone)
                )
        if effects.delayed:
            self.delaying.update(effects.delayed)
            self.wake_timer()
        if effects.expiring:
            self.expiring.update(effects.expiring)
            self.wake_timer()
        if effects.retained and self.retaining.note(effects.retained):
            self.wake_timer()
        if effects.doomed:
            self.doomed.update(effects.doomed)
            self.wake_worker()
        for subscription in effects.dirty:
            if subscription.consumers:
                self.dispatch(subscription)

    # -- handing over ----------------------------------------------------------------------------

    def dispatch(self, subscription: Subscription) -> None:
        """Hands waiting messages of a subscription to consumers with credit."""
        if subscription.seeks or subscription.awaiting is not None or self.is_draining:
            return
        now, wall = self.clock.now(), self.clock.wall()
        if self.expiring:
            expire(self, subscription.topic.partitions, wall)
        is_keyed = subscription.policy.kind is Kind.KEY_SHARED
        hand_out = keyed.dispatch if is_keyed else dispatch
        for offer in hand_out(self.state, subscription, now, wall):
            if subscription.policy.qos == 0:
                hand_over_once(self, offer.lease, _give)
            elif not subscription.is_durable:
                apply(self.state, offer.record, Effects(0, 0))
                self._hand_over(offer.lease)
            elif offer.is_strict or offer.lease.consumer.pending_strict:
                # Whatever comes behind a slice that waits for its record waits too: order holds.
                offer.lease.is_out = False
                offer.lease.consumer.pending_strict += 1
                self.submit(offer.record, (DIRECT, self._when_written(offer), None))
            else:
                self.submit(offer.record, None, urgent=False)
                self._hand_over(offer.lease)

        for cursor in subscription.cursors:
            if cursor.line is not None and cursor.line.later:
                self.delaying[cursor] = None
                self.wake_timer()

    def _when_written(self, offer: Offer) -> Target:
        def written(answer: Any) -> None:
            if isinstance(answer, BaseException):
                return
            with self.lock:
                lease = offer.lease
                lease.consumer.pending_strict -= 1
                lease.is_out = True
                if lease.id in lease.consumer.leases and not lease.consumer.is_gone:
                    self._hand_over(lease)

        return written

    def _hand_over(self, lease: Lease) -> None:
        consumer = lease.consumer
        frames = cached_frames(self.journal, lease) if not consumer.pending_reads else None
        if frames is None:
            # The bytes are on disk: the worker reads them, and keeps the order of slices.
            consumer.pending_reads += 1
            lease.is_out = False
            self.jobs.append(lambda: self._read_and_hand_over(lease))
            self.wake_worker()
            return
        _give(lease, frames, lease.open)

    def _read_and_hand_over(self, lease: Lease) -> None:
        partition = lease.cursor.partition
        frames, lost = self.read(partition, lease.start, lease.end)
        consumer = lease.consumer
        with self.lock:
            consumer.pending_reads -= 1
            lease.is_out = True
            if lease.id not in consumer.leases or consumer.is_gone:
                return
            if lease.open is not None:  # asked now: some of it may have been taken back meanwhile
                frames = masked(frames, lease.start, lease.open)
            if frames:
                _give(lease, frames)
            if not lease.cursor.subscription.is_durable:
                missing = skip_missing(lease, frames)
                if missing is not None:
                    self.apply_now(missing)
            elif lost and self.journal.failed is None:
                self.submit(Lost(partition.topic.id, partition.index, tuple(lost)), None)

    def read(
        self, partition: Partition, start: int, end: int
    ) -> tuple[list[Frame], list[tuple[int, int]]]:
        """Frames of start…end from memory or disk, and the ranges that cannot be read."""
        return read_frames(self.journal, partition, start, end)

    def run_jobs(self) -> bool:
        """Does the disk work that waits; False when there was none."""
        done = False
        while self.jobs:
            self.jobs.popleft()()
            done = True
        return done


def _give(lease: Lease, frames: list[Frame], mask: int | None = None) -> None:
    # While the caller holds the lock, so that no slice decided later overtakes this one.
    sink = lease.consumer.sink
    index = lease.cursor.partition.index
    part = Slice(lease.id, index, lease.start, lease.end, lease.attempt, frames, mask)
    sink.mailbox.post([(sink.on_slice, part)])


def _nobody() -> None:
    """Without threads there is nobody to wake."""
