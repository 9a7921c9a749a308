"""A broker on a recording disk, driven by hand, with its History written beside it.

Every method gives one command, commits, and confirms exactly when the answer arrives. Nothing
happens on its own: no threads, a clock that stands still, randomness from a seed.
"""

from functools import partial
from typing import Any, Final

from penstock.batch.frame import Slice
from penstock.broker.broker import Broker, Sink
from penstock.broker.mailbox import DIRECT
from penstock.delivery import admin
from penstock.delivery.apply import REJECTED
from penstock.delivery.growth import decide_partitions
from penstock.delivery.state import Subscription
from penstock.journal.memory import Image, MemoryDisk
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause, SubscriptionDeleted, TopicDeleted
from tests.crash.base import Holder
from tests.crash.given import SETTINGS
from tests.crash.model import Model, Spot, Sub
from tests.crash.moving import Moving
from tests.crash.oracle import Violation, items
from tests.crash.timing import Timing
from tests.crash.uniting import Uniting

__all__ = ["TWICE", "Holder", "Run"]

TWICE: Final = SubscriptionPolicy(retry=Retry(first_s=1.0, max_s=8.0, max_attempts=2))


class Run(Uniting, Timing, Moving):
    """One workload in progress."""

    def __init__(
        self, disk: MemoryDisk | None = None, settings: JournalSettings = SETTINGS
    ) -> None:
        self.disk = disk or MemoryDisk(record=True)
        self.settings = settings
        super().__init__()

    def open(self) -> None:
        self.broker = Broker.open(self.disk, self.settings, self.clock, threads=False)
        model = self.history.last.copy()
        for name, topic in model.topics.items():
            known = self.broker.state.names[name]
            if topic.policy.durability is Durability.WRITTEN:
                topic.ends = [partition.next_offset for partition in known.partitions]
            for sub_name, sub in topic.subs.items():
                self._count_losses(sub, (known.subscriptions or {})[sub_name])
        self._propose(lambda m: m.topics.update(model.topics))
        self.is_killed = False

    def _count_losses(self, sub: Sub, known: Subscription) -> None:
        """A message that was out alone when the broker died has failed once more."""
        for spot, count in sub.unfinished.items():
            counted = known.cursors[spot[0]].trial(spot[1]).counted
            if not min(count, REJECTED) <= counted <= count + self.is_killed:
                raise Violation(f"D2 {known.name} {spot} failed {count} times, known {counted}")
            sub.unfinished[spot] = counted

    # -- topics and subscriptions ----------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **policy: Any) -> None:
        chosen = TopicPolicy(**policy)
        step = self._propose(lambda m: m.create_topic(name, partitions, chosen))
        self.broker.create_topic(name, partitions, chosen)
        self.history.confirm(step)

    def alter_topic(self, name: str, **policy: Any) -> None:
        step = self._propose(lambda m: m.alter_topic(name, TopicPolicy(**policy)))
        self.broker.alter_topic(name, policy)
        self.history.confirm(step)

    def grow_topic(self, name: str, partitions: int) -> None:
        step = self._propose(lambda m: m.grow_topic(name, partitions))
        self.broker.alter_topic(name, {}, partitions)
        self.history.confirm(step)

    def begin_growing(self, name: str, partitions: int) -> None:
        """Decides to grow and leaves the record waiting, as the commit thread finds it."""
        engine = self.broker.engine
        with engine.lock:
            self._propose(lambda m: m.grow_topic(name, partitions))
            topic = admin.find_topic(self.broker.state, name)
            record = decide_partitions(topic, partitions, self.clock.wall())
            assert record is not None
            engine.submit(record, None)

    def delete_topic(self, name: str) -> None:
        step = self._propose(lambda m: m.delete_topic(name))
        self.broker.delete_topic(name)
        self.history.confirm(step)

    def begin_deleting(self, topic: str, name: str | None = None) -> None:
        """Decides a deletion and leaves it waiting, as the commit thread finds it."""
        engine, state = self.broker.engine, self.broker.state
        record: TopicDeleted | SubscriptionDeleted
        with engine.lock:
            found = admin.find_topic(state, topic)
            if name is None:
                self._propose(lambda m: m.delete_topic(topic))
                record = admin.decide_delete_topic(state, found)
            else:
                self._propose(lambda m: m.delete_sub(topic, name))
                record = admin.decide_delete_subscription(admin.find_subscription(found, name))
            engine.submit(record, None)

    def subscribe(
        self, topic: str, name: str, policy: SubscriptionPolicy = TWICE, *, start: str = "earliest"
    ) -> None:
        self._propose_sub(topic, name, policy, start)
        step = len(self.history.steps) - 1
        self.broker.create_subscription(topic, name, policy, start)
        self.history.confirm(step)

    def alter_subscription(self, topic: str, name: str, policy: SubscriptionPolicy) -> None:
        def change(model: Model) -> None:
            model.topics[topic].subs[name].policy = policy

        step = self._propose(change)
        changes = {field: getattr(policy, field) for field in policy.__struct_fields__}
        self.broker.alter_subscription(topic, name, changes)
        self.history.confirm(step)

    def unsubscribe(self, topic: str, name: str) -> None:
        step = self._propose(lambda m: m.delete_sub(topic, name))
        self.broker.delete_subscription(topic, name)
        self.history.confirm(step)

    # -- consuming -------------------------------------------------------------------------------

    def attach(
        self, topic: str, name: str | None, policy: SubscriptionPolicy | None = TWICE,
        *, credit: int = 1000, start: str | None = None, is_committed: bool = True,
    ) -> Holder:  # fmt: skip
        self._propose_topic(topic)
        if name is not None and name not in self.history.last.topics[topic].subs:
            self._propose_sub(topic, name, policy or SubscriptionPolicy(), start or "earliest")
        if credit == 1 and name is not None:
            self.history.lonely.add((self.history.last.topics[topic].born, name))
        holder = Holder(topic, name, credit)

        def take(piece: Slice) -> None:
            self._take(holder, piece)

        def close(reason: Any) -> None:
            holder.closed = reason

        holder.consumer = self.broker.attach(
            topic, name, policy, start, credit, 1 << 26, "c", Sink(DIRECT, take, close)
        )
        self.holders.append(holder)
        step = self.newest_step
        self.propose_expiry(topic)
        if is_committed:
            self.settle(step)
        return holder

    def _take(self, holder: Holder, piece: Slice) -> None:
        for frame in piece.frames:
            for offset, item in items(frame):
                spot = (piece.partition, offset)
                self._check_alone(holder, spot)
                if item.due > self.clock.wall():
                    raise Violation(f"{holder.topic} {spot} was delivered before its time")
                self.history.delivered(holder.topic, holder.subscription, spot, item)
                holder.held[spot] = (piece.lease_id, piece.attempt)
                key = (self.history.last.topics[holder.topic].born, holder.subscription or "", spot)
                if key in self.history.attempts:
                    self.history.attempts[key] = piece.attempt

    def _check_alone(self, holder: Holder, spot: Spot) -> None:
        """At any moment a message is with one consumer of a subscription at most."""
        for other in self.holders:
            same = (other.topic, other.subscription) == (holder.topic, holder.subscription)
            lease = other.held.get(spot)
            if same and lease is not None and lease[0] in other.consumer.leases:
                raise Violation(f"shared: {holder.topic} {spot} is out twice")
            if same and holder.subscription is not None:
                self._check_key(holder.topic, holder.subscription, spot, other)

    def _check_key(self, topic: str, name: str, spot: Spot, other: Holder) -> None:
        """Kind `key_shared`: nothing comes while a later message of its key is out."""
        home = self.history.last.topics[topic]
        item = home.held.get(spot)
        if home.subs[name].policy.kind is not Kind.KEY_SHARED or item is None or not item.key:
            return
        for later in other.held:
            is_later = later[0] == spot[0] and later[1] > spot[1] and self.has(other, later)
            if is_later and home.held[later].key == item.key and not item.due:
                raise Violation(f"key_shared: {topic} {spot} comes while {later} of its key is out")

    def ack(
        self, holder: Holder, *offsets: int, partition: int = 0, is_committed: bool = True
    ) -> None:
        """Acks, waits for the flush."""
        spots = [(partition, offset) for offset in offsets]
        assert holder.subscription is not None
        topic, name = holder.topic, holder.subscription
        self._propose(lambda m: m.finish(topic, name, spots))
        refused = self.broker.ack(holder.consumer, self.claims(holder, spots))
        assert not refused, refused
        self.forget(holder, spots)
        if is_committed:
            self.settle()

    def nack(
        self, holder: Holder, offset: int, *, partition: int = 0, delay_s: float | None = 0.0,
        cause: Cause = Cause.NACKED, is_committed: bool = True, is_kept: bool = False,
    ) -> None:  # fmt: skip
        """Brings one message back; `is_kept`: the consumer remembers its token."""
        spot = (partition, offset)
        assert holder.subscription is not None
        topic, name = holder.topic, holder.subscription
        count = REJECTED if cause is Cause.REJECTED else 1
        if cause is Cause.UNSTARTED:
            self.history.attempts.clear()
        else:
            self._propose(lambda m: m.fail(topic, name, [spot], count))
        [claim] = self.claims(holder, [spot])
        refused = self.broker.give_back(holder.consumer, claim, cause, delay_s, "it failed")
        assert not refused, refused
        step = self.newest_step
        if not is_kept:
            self.forget(holder, [spot])
            if delay_s == 0.0:
                self.propose_expiry()
            self._notice_revoked(holder)
        if is_committed:
            self.settle(step)

    def _notice_revoked(self, holder: Holder) -> None:
        """What came back with the nack of its key got its attempt back."""
        before = len(holder.held)
        self.notice_voids(holder)
        if len(holder.held) < before:
            self.history.attempts.clear()

    def reject(self, holder: Holder, offset: int, **options: Any) -> None:
        self.nack(holder, offset, cause=Cause.REJECTED, **options)

    def detach(self, holder: Holder, *, is_clean: bool = True) -> None:
        """Leaves; a lone message lost with its consumer has failed once more."""
        if not is_clean and len(holder.held) == 1 and holder.subscription is not None:
            topic, name, spots = holder.topic, holder.subscription, list(holder.held)
            self._propose(lambda m: m.fail(topic, name, spots))
        self.history.attempts.clear()
        self.broker.detach(holder.consumer, {}, DIRECT, lambda _: None, is_clean=is_clean)
        self.holders.remove(holder)
        self.forget(holder, list(holder.held))
        others = {(other.topic, other.subscription) for other in self.holders}
        step = self.newest_step
        if (holder.topic, holder.subscription) in others:
            self.propose_expiry(holder.topic)
        self.settle(step)

    # -- dead letters ----------------------------------------------------------------------------

    def bury_all(self) -> None:
        """Moves all that is doomed, in the order the broker does."""
        for cursor in self.broker.engine.doomed:
            topic, name = cursor.subscription.topic.name, cursor.subscription.name
            sub = self.history.last.topics[topic].subs[name]
            limit = sub.policy.retry.max_attempts
            spots = [
                spot
                for spot, count in sorted(sub.unfinished.items())
                if spot[0] == cursor.partition.index and limit is not None and count >= limit
            ]
            if spots:
                self._propose(partial(Model.bury, topic=topic, name=name, spots=spots))
        step = len(self.history.steps) - 1
        self._move_doomed()
        self.history.confirm(step)
        self.commit()

    def _move_doomed(self) -> None:
        """The keeper keeps a failure of the disk to itself; the next command meets it."""
        self.broker.keeper.move_doomed()
        self.broker.engine.check_alive()

    def bury(self, topic: str, name: str, *spots: Spot) -> None:
        """Moves what is doomed; the caller says what that must be."""
        step = self._propose(lambda m: m.bury(topic, name, list(spots)))
        self._move_doomed()
        self.history.confirm(step)
        self.commit()

    def redrive(self, topic: str, name: str, *spots: Spot) -> None:
        step = self._propose(lambda m: m.redrive(topic, name, list(spots), self.clock.wall()))
        wanted = {offset for _, offset in spots}
        count = self.broker.redrive(
            topic, name, lambda frame, _, index: _offset(frame, index) in wanted, None, is_dry=False
        )
        assert count == len(spots)
        self.history.confirm(step)
        self.commit()

    def purge(self, topic: str, name: str, *spots: Spot) -> None:
        grave = f"{topic}.dead.{name}"
        step = self._propose(lambda m: m.remove(grave, spots))
        wanted = {offset for _, offset in spots}
        count = self.broker.purge_dead(
            topic, name, lambda frame, _, index: _offset(frame, index) in wanted, None, is_dry=False
        )
        assert count == len(spots)
        self.history.confirm(step)

    # -- keeping ---------------------------------------------------------------------------------

    def snapshot(self) -> None:
        self.broker.keeper.snapshot()

    def roll(self) -> None:
        """The next record begins a new segment."""
        self.broker.journal.must_roll = True

    def compact(self, sequence: int) -> None:
        self.broker.keeper.compact(self.broker.journal.index.segments[sequence])

    def free(self) -> int:
        return self.broker.journal.free_segments()

    def prepare_spare(self) -> None:
        """A segment is made ready ahead of need."""
        self.broker.journal.prepare_spare()

    def mark(self) -> None:
        self.broker.journal.mark()

    def close(self) -> None:
        """A clean stop: what consumers held was not started, so no attempt is counted."""
        for holder in self.holders:
            self.forget(holder, list(holder.held))
        self.holders.clear()
        self.history.attempts.clear()
        self.broker.close()

    def kill(self) -> None:
        """The process dies, the machine goes on: nothing is lost, nothing is finished."""
        image: Image = self.disk.image()
        # Whoever was lost twice is delivered alone from then on.
        self.history.lonely.update(self.history.subscribed)
        self.history.attempts = {
            (topic.born, name, spot): 0
            for topic in self.history.last.topics.values()
            for name, sub in topic.subs.items()
            for spot in sub.unfinished
        }
        self.holders.clear()
        self.is_killed = True
        watcher = self.disk.on_operation
        self.disk = MemoryDisk.from_image(image, record=True)
        self.disk.on_operation = watcher


def _offset(frame: Any, index: int) -> int:
    return int(frame.offsets[list(frame.indexes).index(index)])
