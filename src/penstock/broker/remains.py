"""The state of a broker, rebuilt from whatever is left of its store: the reading half of salvage.

The newest whole snapshot comes first, then every intact record after it, whatever is missing
between them. What a record needs and the log no longer tells is made up: a topic without its
creation is called `salvaged.<topic id>`. Nothing here writes.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec

from penstock.broker.clock import Clock
from penstock.broker.rebuild import restored
from penstock.delivery.apply import add_topic, apply
from penstock.delivery.effects import Effects
from penstock.delivery.ranges import RangeSet
from penstock.delivery.state import Cursor, Partition, State, Topic
from penstock.journal.record import decode
from penstock.journal.salvage import SegmentFile, Survey, scan
from penstock.vocabulary import limits
from penstock.vocabulary.errors import ProtocolError
from penstock.vocabulary.policy import TopicPolicy
from penstock.vocabulary.records import (
    Copied,
    Lost,
    Published,
    Record,
    Skipped,
    Started,
    SubscriptionCreated,
    SubscriptionDeleted,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    Unit,
    partition_key,
)


class Source(msgspec.Struct, frozen=True):
    """An intact record that holds messages."""

    segment: SegmentFile
    position: int
    length: int
    offsets: Any
    """A range, or an array of rising offsets for copies."""


class Run(msgspec.Struct, frozen=True):
    """Messages start…end of a partition, all in one source."""

    start: int
    end: int
    source: Source


Plan = list[Run]


class Remains:
    """Rebuilds the state from whatever is left, and remembers where each message lies."""

    def __init__(self, found: Survey, clock: Clock) -> None:
        self.found = found
        self.clock = clock
        self.state = State()
        self.records = 0
        """Intact records found."""
        self.notes: list[str] = []
        self.orphans: set[int] = set()
        self.strangers: set[int] = set()
        """Subscriptions the log speaks of whose creation is lost."""
        self._dense: dict[int, list[Source]] = {}
        self._copies: dict[int, list[Source]] = {}

    def run(self) -> None:
        """Snapshot first, then every intact record in log order."""
        start = 0
        for newest in self.found.valid_snapshots[:1]:
            start = newest.start
            for _ in restored(self.state, newest.pieces, self.clock):
                pass
        if not start:
            self.notes.append("no snapshot is readable: the state is that of the log alone")
        for segment, position, rec in _intact(self.found):
            try:
                record = decode(rec)
            except ProtocolError as error:
                self.notes.append(f"the record at {position:#x} says nothing: {error}")
                continue
            self.records += 1
            for part in record.records if isinstance(record, Unit) else (record,):
                self._note(part, segment, position, len(rec))
                if position >= start:
                    self._take(part, position)
        self.state.attached.clear()
        for number in sorted(self.strangers):
            self.notes.append(f"the creation of subscription number {number} is lost")

    def _note(self, part: Record, segment: SegmentFile, position: int, length: int) -> None:
        if isinstance(part, Published):
            key = partition_key(part.topic_id, part.partition)
            source = Source(segment, position, length, range(part.base, part.end))
            self._dense.setdefault(key, []).append(source)
        elif isinstance(part, Copied):
            key = partition_key(part.topic_id, part.partition)
            source = Source(segment, position, length, part.offsets)
            self._copies.setdefault(key, []).append(source)

    def _take(self, part: Record, position: int) -> None:
        """Applies one record as far as what it speaks of is known."""
        if isinstance(part, Unit):
            return
        if isinstance(part, Started):
            self._apply(part)
            return
        topic = self.state.topics.get(part.topic_id)
        if topic is None and not isinstance(part, TopicCreated):
            if isinstance(part, TopicDeleted) or position < self.state.ignore_unknown_upto:
                return
            topic = self._orphan(part)
        if topic is not None and topic.applied >= position:
            return
        if topic is None or self._is_possible(topic, part):
            self._make_room(part)
            self._apply(part)
        topic = self.state.topics.get(part.topic_id)
        if topic is not None:
            topic.applied = position

    def _apply(self, part: Record) -> None:
        apply(self.state, part, Effects(self.clock.now(), self.clock.wall()))

    def _orphan(self, part: Any) -> Topic:
        number = part.topic_id
        self.orphans.add(number)
        record = TopicCreated(
            number, f"salvaged.{number}", 1, TopicPolicy(retain_s=None), self.clock.wall()
        )
        topic = add_topic(self.state, record)
        topic.is_pending = False
        return topic

    def _is_possible(self, topic: Topic, part: Any) -> bool:
        """False when the record speaks of something whose creation is lost."""
        subscription_id = getattr(part, "subscription_id", None)
        if subscription_id is not None and not isinstance(part, SubscriptionCreated):
            subscription = self.state.subscriptions.get(subscription_id)
            if subscription is None or subscription.topic is not topic:
                self.strangers.add(subscription_id)
                return False
        starts = part.starts if isinstance(part, SubscriptionCreated) else ()
        wanted = max(getattr(part, "partition", 0) + 1, len(starts))
        if topic.id in self.orphans:
            _widen(topic, wanted)
        if wanted > len(topic.partitions):
            return False
        if isinstance(part, Published):
            return part.base >= topic.partitions[part.partition].next_offset
        return not isinstance(part, TopicCreated)

    def _make_room(self, part: Record) -> None:
        """Makes good what must have happened before this record and is lost."""
        if isinstance(part, TopicCreated):
            known = self.state.names.get(part.name)
            if known is not None:
                self._apply(TopicDeleted(known.id))
        elif isinstance(part, SubscriptionCreated):
            named = (self.state.topics[part.topic_id].subscriptions or {}).get(part.name)
            if named is not None:
                self._apply(SubscriptionDeleted(part.topic_id, named.id))
        elif isinstance(part, Published) and part.topic_id in self.orphans:
            partition = self.state.topics[part.topic_id].partitions[part.partition]
            if partition.next_offset == 0:
                # Whether the offsets before were finished or lost, nothing tells.
                self._apply(Skipped(part.topic_id, part.partition, part.base))

    def be_careful(self) -> None:
        """After a loss: no offset is used twice, and nothing is removed only because of its age."""
        for topic in self.state.topics.values():
            for partition in topic.partitions:
                upto = partition.next_offset + limits.OFFSET_SKIP
                self._apply(Skipped(topic.id, partition.index, upto))
            if topic.policy.retain_s is not None and any(p.retained for p in topic.partitions):
                policy = msgspec.structs.replace(topic.policy, retain_s=None)
                self._apply(TopicAltered(topic.id, policy))
                self.notes.append(
                    f"topic {topic.name!r} holds messages of no subscription: they are kept until "
                    "its retain_s is set again"
                )

    # -- where the messages are ------------------------------------------------------------------

    def plan(self, partition: Partition) -> Plan:
        """Where each held message is read from; what is nowhere is declared lost."""
        covered = RangeSet()
        for low, high in partition.released.inside(0, partition.next_offset):
            covered.add(low, high)
        runs: Plan = []
        for source in self._dense.get(partition.key, ()):
            for start, end in list(covered.gaps(source.offsets.start, source.offsets.stop)):
                runs.append(Run(start, end, source))
                covered.add(start, end)
        for source in self._copies.get(partition.key, ()):
            for start, end in consecutive([o for o in source.offsets if o not in covered]):
                runs.append(Run(start, end, source))
                covered.add(start, end)
        lost = tuple(covered.gaps(0, partition.next_offset))
        if lost:
            self._apply(Lost(partition.topic.id, partition.index, lost))
        return sorted(runs, key=lambda run: run.start)


def _intact(found: Survey) -> Iterator[tuple[SegmentFile, int, bytes]]:
    """Every intact record in log order; of a place held by two files, each record once."""
    ours = [each for each in found.segments if each.sequence and not each.is_foreign]
    ours.sort(key=lambda each: each.sequence)
    for _, files in groupby(ours, key=lambda each: each.sequence):
        rows: dict[int, tuple[SegmentFile, bytes]] = {}
        for segment in files:
            for stretch in scan(segment):
                for position, rec in stretch.rows:
                    rows.setdefault(position, (segment, rec))
        for position in sorted(rows):
            yield rows[position][0], position, rows[position][1]


def _widen(topic: Topic, count: int) -> None:
    for index in range(len(topic.partitions), count):
        partition = Partition(topic, index)
        topic.partitions.append(partition)
        for subscription in topic.every_subscription():
            subscription.cursors.append(Cursor(subscription, partition, 0))


def consecutive(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Rising offsets as ranges."""
    start = 0
    for at in range(1, len(offsets) + 1):
        if at == len(offsets) or offsets[at] != offsets[at - 1] + 1:
            yield offsets[start], offsets[at - 1] + 1
            start = at
