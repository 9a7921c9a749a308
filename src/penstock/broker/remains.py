"""The state of a broker, rebuilt from whatever is left of its store: the reading half of salvage.

The newest whole snapshot comes first, then every intact record after it, whatever is missing
between them. What a record needs and the log no longer tells is made up: a topic without its
creation is called `salvaged.<topic id>`, a message without its publishing is known by its copy.
Nothing here writes.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from penstock.broker.clock import Clock
from penstock.broker.rebuild import restored
from penstock.delivery.apply import NOBODY, apply, topic_ids
from penstock.delivery.effects import Effects
from penstock.delivery.growth import assume_added, partitions_of
from penstock.delivery.ranges import RangeSet
from penstock.delivery.registry import add_topic
from penstock.delivery.state import Partition, State, Topic
from penstock.journal.record import decode
from penstock.journal.salvage import SegmentFile, Survey, scan
from penstock.vocabulary import limits
from penstock.vocabulary.errors import ProtocolError
from penstock.vocabulary.policy import TopicPolicy
from penstock.vocabulary.records import (
    WITHOUT_TOPIC,
    Copied,
    Delivered,
    Lost,
    MemberExpired,
    Published,
    ReaderMoved,
    Record,
    Skipped,
    SubscriptionCreated,
    SubscriptionDeleted,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    Unit,
    partition_key,
)

_KNOWN_BY = (SubscriptionCreated, SubscriptionDeleted, MemberExpired)
"""Records after which nothing else need be known of a subscription."""


class Source(msgspec.Struct, frozen=True):
    """An intact record that holds messages: a range of offsets, or rising ones for copies."""

    segment: SegmentFile
    position: int
    length: int
    offsets: Sequence[int]


class Run(msgspec.Struct, frozen=True):
    """Messages start…end of a partition, all in one source."""

    start: int
    end: int
    source: Source


Plan = list[Run]


class Remains:
    """The state as far as it can be told, and where each message lies."""

    def __init__(self, found: Survey, clock: Clock) -> None:
        self.found = found
        self.clock = clock
        self.state = State()
        self.records = 0
        """Intact records found."""
        self.notes: list[str] = []
        self.orphans: set[int] = set()
        """Topics whose creation is lost."""
        self.strangers: dict[int, int] = {}
        """Subscriptions the log speaks of whose creation is lost, and their topics.

        Nobody knows what they had still to finish, so their topics let nothing go.
        """
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
        self._find_messages(start)
        for _, position, rec in _intact(self.found):
            if position >= start:
                self._take(_decode(rec), position)
        self._fill_ends()
        self.state.attached.clear()
        for number in sorted(self.strangers):
            self.notes.append(
                f"the creation of subscription number {number} is lost: its topic keeps everything"
            )

    # -- where the messages are ------------------------------------------------------------------

    def _find_messages(self, start: int) -> None:
        known = set(self.state.subscriptions)
        for segment, position, rec in _intact(self.found):
            record = _decode(rec)
            if record is None:
                self.notes.append(f"the record at {position:#x} is whole and says nothing known")
                continue
            self.records += 1
            for part in _parts(record):
                subscription_id = getattr(part, "subscription_id", None)
                if subscription_id is not None and position >= start:
                    self.strangers.setdefault(subscription_id, part.topic_id)
                    if isinstance(part, _KNOWN_BY):
                        known.add(subscription_id)
                elif isinstance(part, Published):
                    source = Source(segment, position, len(rec), range(part.base, part.end))
                    self._dense.setdefault(_key(part), []).append(source)
                elif isinstance(part, Copied):
                    source = Source(segment, position, len(rec), part.offsets)
                    self._copies.setdefault(_key(part), []).append(source)
        for number in known.intersection(self.strangers):
            del self.strangers[number]

    def plan(self, partition: Partition) -> Plan:
        """Where each held message is read from; what is nowhere is declared lost."""
        covered = RangeSet()
        for low, high in partition.released.inside(0, partition.next_offset):
            covered.add(low, high)
        runs: Plan = []
        for source in self._dense.get(partition.key, ()):
            for start, end in list(covered.gaps(source.offsets[0], source.offsets[-1] + 1)):
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

    # -- what is true ----------------------------------------------------------------------------

    def _take(self, record: Record | None, position: int) -> None:
        """Applies what the topics of a record have not seen yet."""
        if record is None:
            return
        topics = [self.state.topics.get(number) for number in topic_ids(record)]
        seen = {topic.id for topic in topics if topic is not None and topic.applied >= position}
        for part in _parts(record):
            if isinstance(part, WITHOUT_TOPIC):
                self._apply(part)
            elif part.topic_id not in seen:
                self._take_part(part, position)

    def _take_part(self, part: Any, position: int) -> None:
        """Applies one record as far as what it speaks of is known."""
        topic = self.state.topics.get(part.topic_id)
        if topic is None and not isinstance(part, TopicCreated):
            if isinstance(part, TopicDeleted) or position < self.state.ignore_unknown_upto:
                return
            topic = self._orphan(part.topic_id)
        if topic is None or self._is_possible(topic, part):
            self._make_room(part)
            self._apply(part)
        topic = self.state.topics.get(part.topic_id)
        if topic is not None:
            topic.applied = position
            if topic.id in self.orphans or topic.id in self.strangers.values():
                self._hold_all(topic)

    def _hold_all(self, topic: Topic) -> None:
        for partition in topic.partitions:
            if partition.next_offset:
                partition.retained = [[0, partition.next_offset, self.clock.wall()]]

    def _apply(self, part: Record) -> None:
        apply(self.state, part, Effects(self.clock.now(), self.clock.wall()))

    def _orphan(self, number: int) -> Topic:
        self.orphans.add(number)
        policy = TopicPolicy(retain_s=None)
        topic = add_topic(
            self.state,
            TopicCreated(number, f"salvaged.{number}", 1, policy, self.clock.wall()),
        )
        topic.is_pending = False
        return topic

    def _is_possible(self, topic: Topic, part: Any) -> bool:
        """False when the record speaks of something whose creation is lost, or repeats itself."""
        subscription_id = getattr(part, "subscription_id", None)
        if subscription_id is not None and not isinstance(part, SubscriptionCreated):
            subscription = self.state.subscriptions.get(subscription_id)
            if subscription is None or subscription.topic is not topic:
                return False
        assume_added(topic, partitions_of(part), self.clock.wall())
        if isinstance(part, Published):
            return part.base >= topic.partitions[part.partition].next_offset
        return not isinstance(part, TopicCreated)

    def _make_room(self, part: Any) -> None:
        """Makes good what must have happened before this record and is lost."""
        if isinstance(part, TopicCreated):
            known = self.state.names.get(part.name)
            if known is not None:
                self._apply(TopicDeleted(known.id))
        elif isinstance(part, SubscriptionCreated):
            named = (self.state.topics[part.topic_id].subscriptions or {}).get(part.name)
            if named is not None:
                self._apply(SubscriptionDeleted(part.topic_id, named.id))
        elif isinstance(part, ReaderMoved):
            partitions = self.state.topics[part.topic_id].partitions
            for partition, planned in zip(partitions, part.planned, strict=False):
                self._fill(partition, planned)
        elif hasattr(part, "partition"):
            self._fill(self.state.topics[part.topic_id].partitions[part.partition], _reach(part))

    def _fill(self, partition: Partition, upto: int) -> None:
        """Brings back messages whose publishing is lost and whose copies are not."""
        if upto <= partition.next_offset:
            return
        copies = self._copies.get(partition.key, ())
        known = sorted({o for s in copies for o in s.offsets if partition.next_offset <= o < upto})
        topic_id, index, wall = partition.topic.id, partition.index, self.clock.wall()
        for start, end in [*consecutive(known), (upto, upto)]:
            if partition.next_offset == 0 and topic_id in self.orphans:
                # Whether the offsets before were finished or lost, nothing tells.
                self._apply(Skipped(topic_id, index, start))
            if start < end:
                count = end - start
                self._apply(Published(topic_id, index, start, count, NOBODY, 0, 0, wall, b""))

    def _fill_ends(self) -> None:
        for topic in self.state.topics.values():
            for partition in topic.partitions:
                for source in self._copies.get(partition.key, ()):
                    self._fill(partition, source.offsets[-1] + 1)

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
            if topic.policy.max_age_s is not None:
                policy = msgspec.structs.replace(topic.policy, max_age_s=None)
                self._apply(TopicAltered(topic.id, policy))
                self.notes.append(f"topic {topic.name!r} has no max_age_s until it is set again")


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


def _decode(rec: bytes) -> Record | None:
    try:
        return decode(rec)
    except ProtocolError:
        return None


def _parts(record: Record) -> tuple[Any, ...]:
    return record.records if isinstance(record, Unit) else (record,)


def _key(part: Published | Copied) -> int:
    return partition_key(part.topic_id, part.partition)


def _reach(part: Any) -> int:
    """Up to which offset the record says there were messages before it."""
    if isinstance(part, Published):
        return part.base
    if isinstance(part, Delivered):
        return part.end
    ranges = getattr(part, "ranges", ())
    return ranges[-1][1] if ranges else 0


def consecutive(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Rising offsets as ranges."""
    start = 0
    for at in range(1, len(offsets) + 1):
        if at == len(offsets) or offsets[at] != offsets[at - 1] + 1:
            yield offsets[start], offsets[at - 1] + 1
            start = at
