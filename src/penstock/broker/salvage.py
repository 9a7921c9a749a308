"""A new store of everything a broken one still proves.

Reading is as tolerant as can be: the newest whole snapshot, then every intact record after it,
whatever is missing between them. A message without its topic's creation goes to the topic
`salvaged.<topic id>`; an ack counts when its record or a snapshot proves it. Writing is as strict
as ever: the new store is an ordinary one, stopped in good order. The source is never changed.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.batch import Batch
from penstock.broker.clock import Clock, SystemClock
from penstock.broker.engine import Engine
from penstock.broker.keeper import Keeper
from penstock.broker.remains import Plan, Remains, Run, consecutive
from penstock.delivery import members, reader
from penstock.delivery.apply import NOBODY
from penstock.delivery.ranges import RangeSet
from penstock.delivery.state import Partition, State, Subscription, Topic
from penstock.journal import superblock
from penstock.journal.disk import Disk
from penstock.journal.journal import Journal
from penstock.journal.record import decode, encode, part_of
from penstock.journal.recovery import open_journal
from penstock.journal.salvage import read_row, survey
from penstock.journal.settings import JournalSettings
from penstock.journal.verify import Verdict, verify
from penstock.vocabulary.errors import InvalidArgument, StoreInUse
from penstock.vocabulary.policy import TopicPolicy
from penstock.vocabulary.records import (
    Copied,
    Lost,
    Outcome,
    PartitionsAdded,
    Published,
    Ranges,
    Record,
    Settled,
    Skipped,
    Started,
    SubscriptionCreated,
    TopicAltered,
    TopicCreated,
    partition_key,
)

WRITE_BYTES_MAX: Final = 1024 * 1024
"""Bytes of records collected before they are written."""
_UNFINISHED: Final = superblock.NAME + ".unfinished"


class SalvagedTopic(msgspec.Struct, frozen=True):
    """What became of one topic."""

    topic: str
    topic_id: int
    messages: int
    lost: list[tuple[int, int, int]]
    """(partition, first offset, last offset) of messages known of and not readable any more."""
    is_orphan: bool
    """Its creation is lost: name and settings are made up."""


class SalvageReport(msgspec.Struct, kw_only=True):
    """What was copied and what was lost."""

    source: Verdict
    records: int = 0
    """Intact records found."""
    lost_records: int | None = 0
    messages: int = 0
    lost_messages: int = 0
    topics: list[SalvagedTopic] = []
    subscriptions: list[tuple[str, str, int]] = []
    """(topic, subscription, messages it has still to finish)."""
    notes: list[str] = []

    def rows(self) -> list[tuple[str, str, str]]:
        """Topic, messages copied and offsets lost, for a table."""
        return [
            (each.topic, str(each.messages), ", ".join(_place(*lost) for lost in each.lost))
            for each in self.topics
        ]

    def __str__(self) -> str:
        lines = [f"{topic:32} {count:>10} {lost}".rstrip() for topic, count, lost in self.rows()]
        lines.append(f"{self.messages} message(s) copied, {self.lost_messages} lost")
        return "\n".join([*lines, *self.notes])


def _place(partition: int, first: int, last: int) -> str:
    return f"lost {partition}:{first}" if first == last else f"lost {partition}:{first}–{last}"


def salvage(
    source: Disk, target: Disk, settings: JournalSettings | None = None, clock: Clock | None = None
) -> SalvageReport:
    """Copies every intact record of `source` into a new store in `target`.

    Raises StoreInUse, StoreTooNew, NotAStore for the source; InvalidArgument when the target is
    not empty.
    """
    clock = clock or SystemClock()
    owner = source.owner()
    if owner is not None:
        raise StoreInUse(f"the store is in use by {owner}; stop it before salvaging its files")
    if target.names():
        raise InvalidArgument(
            f"the target holds {target.names()[0]!r} already; choose an empty or new folder"
        )
    health = verify(source)
    report = SalvageReport(
        source=health.verdict, lost_records=health.lost_records, notes=health.notes
    )
    found = survey(source)
    try:
        remains = Remains(found, clock)
        remains.run()
        if health.verdict is Verdict.DAMAGED:
            remains.be_careful()
        plan = {
            partition.key: remains.plan(partition)
            for topic in remains.state.topics.values()
            for partition in topic.partitions
        }
        _write(target, settings or JournalSettings(), remains.state, plan, clock)
        _summarise(report, remains, plan)
    finally:
        found.close()
    return report


# -- writing -------------------------------------------------------------------------------------


class _Nothing:
    """A new store has nothing to rebuild."""

    def restore(self, journal: Journal, pieces: list[bytes]) -> None:
        assert not pieces, journal

    def apply(self, record: Record, position: int) -> None:
        raise AssertionError(record, position)


def _write(
    target: Disk, settings: JournalSettings, state: State, plan: dict[int, Plan], clock: Clock
) -> None:
    """The new store: a log that tells the story again, and snapshots that know all of it.

    Until it is finished it lacks its superblock, so that nobody takes a part for the whole.
    """
    journal = open_journal(target, settings, lambda _: _Nothing())
    try:
        target.rename(superblock.NAME, _UNFINISHED)
        target.sync_names()
        state.generation += 1
        waiting: list[Record] = []
        size = 0
        for record in _story(state, plan, clock):
            waiting.append(record)
            size += len(record.batch) if isinstance(record, Published) else 100
            if size >= WRITE_BYTES_MAX:
                _append(journal, waiting)
                waiting, size = [], 0
        _append(journal, waiting)
        journal.seal()
        for topic in state.topics.values():
            topic.applied = journal.log_end
        state.ignore_unknown_upto = 0
        keeper = Keeper(Engine(journal, state, clock))
        keeper.snapshot()
        keeper.snapshot()
        journal.mark(is_clean=True, broker_generation=state.generation)
        target.rename(_UNFINISHED, superblock.NAME)
        target.sync_names()
    finally:
        journal.close()


def _append(journal: Journal, waiting: list[Record]) -> None:
    encoded = [encode(record) for record in waiting]
    at = 0
    while at < len(waiting):
        places, upto = journal.append(waiting, encoded, at)
        journal.sync()
        for record, place in zip(waiting[at:upto], places, strict=True):
            if isinstance(record, Published):
                key = partition_key(record.topic_id, record.partition)
                journal.index.hold(key, record.base, record.end - 1, place >> 32)
        at = upto


def _story(state: State, plan: dict[int, Plan], clock: Clock) -> Iterator[Record]:
    """Records that lead to the same held messages and cursors when nothing but the log is left."""
    yield Started(state.generation, is_clean=True, started_at=clock.wall())
    yield from state.durable_patterns.values()
    for topic in state.topics.values():
        kept = msgspec.structs.replace(topic.policy, retain_s=None)
        yield from retold(topic, kept)
        for partition in topic.partitions:
            yield from _messages(partition, plan[partition.key])
        for subscription in members.listed(topic):
            yield _created(subscription)
        for subscription in topic.durable_subscriptions():
            yield from _finished(subscription)
            yield from reader.retold(subscription)
        if topic.policy != kept:
            yield TopicAltered(topic.id, topic.policy)


def retold(topic: Topic, policy: TopicPolicy) -> Iterator[Record]:
    """How the topic came to have its partitions."""
    growth = topic.growth or []
    counts = [*(each.partitions for each in growth), len(topic.partitions)]
    yield TopicCreated(topic.id, topic.name, counts[0], policy, topic.created_at)
    for each, count in zip(growth, counts[1:], strict=True):
        yield PartitionsAdded(topic.id, count, each.ends, each.at)


def _messages(partition: Partition, runs: Plan) -> Iterator[Record]:
    topic_id, index = partition.topic.id, partition.index
    at = 0
    for run in runs:
        if run.start > at:
            yield Skipped(topic_id, index, run.start)
        yield from _again(partition, run)
        at = run.end
    if partition.next_offset > at:
        yield Skipped(topic_id, index, partition.next_offset)
    if partition.lost is not None:
        yield Lost(topic_id, index, _all(partition.lost))


def _again(partition: Partition, run: Run) -> Iterator[Published]:
    """The messages of a run as they were published, cut out of their batch where need be."""
    source = run.source
    rec = read_row(source.segment, source.position, source.length)
    assert rec is not None, f"the record at {source.position:#x} was readable a moment ago"
    part = part_of(decode(rec), partition.key, run.start)
    assert part is not None, f"the record at {source.position:#x} held {run.start} a moment ago"
    if isinstance(part, Copied):
        indexes = [part.offsets.index(offset) for offset in range(run.start, run.end)]
        batch = Batch(part.batch).select(indexes)
        times = Batch(batch, verify=False).published_at
        first_published = max(times) if times is not None else 0
        yield Published(
            part.topic_id, part.partition, run.start, run.end - run.start, NOBODY, 0, 0,
            first_published, batch, None, 0, part.ledger,
        )  # fmt: skip
        return
    if part.kept is None and (part.base, part.end) == (run.start, run.end):
        yield msgspec.structs.replace(part, target=0)
        return
    places = part.kept if part.kept is not None else range(part.count)
    indexes = list(places[run.start - part.base : run.end - part.base])
    at = run.start
    for low, high in consecutive(indexes):
        # The sequence moves with the first message, so that every rendered id stays the same.
        yield Published(
            part.topic_id, part.partition, at, high - low, part.publisher, part.epoch,
            part.sequence + low, part.published_at, Batch(part.batch).select(range(low, high)),
            None, 0, part.ledger,
        )  # fmt: skip
        at += high - low


def _created(subscription: Subscription) -> SubscriptionCreated:
    starts = tuple(
        min(cursor.done.floor, cursor.partition.next_offset) for cursor in subscription.cursors
    )
    return SubscriptionCreated(
        subscription.topic.id, subscription.id, subscription.name, starts, subscription.policy,
        subscription.created_at,
    )  # fmt: skip


def _finished(subscription: Subscription) -> Iterator[Settled]:
    for cursor in subscription.cursors:
        ranges = tuple(cursor.done.ranges())
        if ranges:
            yield Settled(
                subscription.topic.id,
                cursor.partition.index,
                subscription.id,
                Outcome.ACKED,
                ranges,
            )


def _all(offsets: RangeSet) -> Ranges:
    return (*([(0, offsets.floor)] if offsets.floor else []), *offsets.ranges())


def _summarise(report: SalvageReport, remains: Remains, plan: dict[int, Plan]) -> None:
    report.records = remains.records
    report.notes += remains.notes
    for topic in remains.state.topics.values():
        lost = [
            (partition.index, low, high - 1)
            for partition in topic.partitions
            if partition.lost is not None
            for low, high in _all(partition.lost)
        ]
        count = sum(run.end - run.start for p in topic.partitions for run in plan[p.key])
        report.topics.append(
            SalvagedTopic(topic.name, topic.id, count, lost, topic.id in remains.orphans)
        )
        report.messages += count
        report.lost_messages += sum(last - first + 1 for _, first, last in lost)
        for subscription in topic.durable_subscriptions():
            left = sum(
                cursor.done.missing(cursor.done.floor, cursor.partition.next_offset)
                for cursor in subscription.cursors
            )
            report.subscriptions.append((topic.name, subscription.name, left))
