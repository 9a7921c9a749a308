"""Rebuilding the state from a snapshot and the log after it, and encoding it into snapshots.

A snapshot is made while the broker works: each topic is encoded at its own moment and says up
to which position it has seen the log, so replay skips what a topic already knows.
"""

from collections.abc import Iterator
from time import perf_counter
from typing import Any, Final

import msgspec

from penstock.broker.clock import Clock
from penstock.broker.engine import Engine
from penstock.delivery.apply import apply, topic_ids
from penstock.delivery.effects import Effects
from penstock.delivery.growth import assume_added, partitions_of
from penstock.delivery.matching import dump_patterns, load_patterns
from penstock.delivery.retention import forget_publishers
from penstock.delivery.shared import after_recovery
from penstock.delivery.snapshot import (
    restore_state_extras,
    restore_topic,
    state_extras,
    topic_state,
)
from penstock.delivery.state import Cursor, Partition, State, Topic
from penstock.delivery.unique import forget_ids
from penstock.delivery.units import forget_units
from penstock.journal.journal import Journal
from penstock.vocabulary.errors import StoreDamaged
from penstock.vocabulary.records import (
    Copied,
    Published,
    Record,
    Started,
    TopicCreated,
    Unit,
    partition_key,
)

TOPICS, GLOBAL, PATTERNS = 0, 1, 2
PIECE_S_MAX: Final = 0.001
"""How long the lock is held for one piece of a snapshot."""


def pieces(engine: Engine) -> Iterator[bytes]:
    """The state in pieces; between two of them the broker goes on working."""
    with engine.lock:
        numbers = list(engine.state.topics)
    at = 0
    while at < len(numbers):
        rows: list[Any] = []
        with engine.unsynced, engine.lock:
            began = perf_counter()
            wall = engine.clock.wall()
            while at < len(numbers) and perf_counter() - began < PIECE_S_MAX:
                rows.extend(_row(engine, numbers[at], wall))
                at += 1
            piece = msgspec.msgpack.encode((TOPICS, rows))
        yield piece
    with engine.unsynced, engine.lock:
        state = engine.state
        forget_units(state, engine.clock.wall())
        extras = state_extras(state)
        tail = (state.generation, state.attached, state.next_ids(), engine.applied_end, extras)
        piece = msgspec.msgpack.encode((GLOBAL, tail))
        patterns = dump_patterns(state)
    yield piece
    if patterns:
        yield msgspec.msgpack.encode((PATTERNS, patterns))


def _row(engine: Engine, number: int, wall: int) -> list[Any]:
    topic = engine.state.topics.get(number)
    if topic is None or topic.is_pending:
        return []
    for partition in topic.partitions:
        if not engine.retaining.time.is_paused:
            forget_publishers(partition, wall)
            forget_ids(partition, wall)
    spans = [engine.journal.index.state(partition.key) for partition in topic.partitions]
    return [(topic_state(topic), spans)]


def restored(state: State, found: list[bytes], clock: Clock) -> Iterator[tuple[Topic, list[Any]]]:
    """Puts the pieces of a snapshot into the state; each topic with where its messages lie."""
    now, wall = clock.now(), clock.wall()
    for piece in found:
        kind, rows = msgspec.msgpack.decode(piece, strict=False)
        if kind == GLOBAL:
            generation, attached, next_ids, upto, extras = rows
            state.generation = generation
            # Older snapshots do not say which start of the broker attached a consumer.
            state.attached = {int(k): (v[0], v[1], *v[2:], 0)[:3] for k, v in attached.items()}
            state.set_next_ids(next_ids)
            state.ignore_unknown_upto = upto
            restore_state_extras(state, extras)
            continue
        if kind == PATTERNS:
            load_patterns(state, rows)
            continue
        for fields, spans in rows:
            yield restore_topic(state, fields, now, wall), spans


class Rebuild:
    """Takes what recovery finds; `state` is ready after `finish`."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self.journal = journal
        self.clock = clock
        self.state = State()
        self.doomed: dict[Cursor, None] = {}
        self.delaying: dict[Cursor, None] = {}
        self.retaining: dict[Partition, None] = {}
        self.expiring: dict[Partition, None] = {}

    def restore(self, journal: Journal, found: list[bytes]) -> None:
        """Takes the pieces of the snapshot."""
        for topic, spans in restored(self.state, found, self.clock):
            for partition, span in zip(topic.partitions, spans, strict=True):
                journal.index.restore(partition.key, span)

    def apply(self, record: Record, position: int) -> None:
        """Takes one record of the log, unless its topic has seen it."""
        if isinstance(record, Unit):
            seen = {n for n in topic_ids(record) if self._has_seen(n, position)}
            for part in record.records:
                if not seen.intersection(topic_ids(part)):
                    self._apply(part, position)
            return
        numbers = topic_ids(record)
        if not numbers or not self._has_seen(numbers[0], position):
            self._apply(record, position)

    def _has_seen(self, number: int, position: int) -> bool:
        topic = self.state.topics.get(number)
        return topic is not None and topic.applied >= position

    def _apply(self, record: Record, position: int) -> None:
        numbers = topic_ids(record)
        if numbers and numbers[0] not in self.state.topics and not isinstance(record, TopicCreated):
            if position < self.state.ignore_unknown_upto:
                return
            raise StoreDamaged(
                f"the log speaks of topic number {numbers[0]}, whose creation is lost: "
                "`penstock salvage DIR OUT` copies every intact record to a new store"
            )
        effects = Effects(self.clock.now(), self.clock.wall())
        self._reach(record)
        self._store(record, position >> 32)
        try:
            apply(self.state, record, effects)
        except KeyError as error:
            raise StoreDamaged(
                f"the log speaks of subscription number {error}, whose creation is lost: "
                "`penstock salvage DIR OUT` copies every intact record to a new store"
            ) from error
        for number in numbers:
            topic = self.state.topics.get(number)
            if topic is not None:
                topic.applied = position
        for key, start, end in effects.released:
            self.journal.index.release(key, start, end)
        for key, base, mask in effects.scattered:
            self.journal.index.release_mask(key, base, mask)
        for key in effects.forgotten:
            self.journal.index.forget(key)

    def _reach(self, record: Record) -> None:
        """Damage may have taken the adding of a partition that a later record speaks of."""
        wanted = partitions_of(record)
        if wanted > 1:
            topic = self.state.topics[topic_ids(record)[0]]
            if wanted > len(topic.partitions):
                self.journal.note(f"{topic.name}: how it got {wanted} partitions is lost")
                assume_added(topic, wanted, self.clock.wall())

    def _store(self, record: Record, sequence: int) -> None:
        index = self.journal.index
        if isinstance(record, Published):
            key = partition_key(record.topic_id, record.partition)
            index.hold(key, record.base, record.end - 1, sequence)
        elif isinstance(record, Copied):
            partition = self.state.topics[record.topic_id].partitions[record.partition]
            held = [o for o in record.offsets if o not in partition.released]
            index.hold_copies(partition.key, held, sequence)

    def finish(self) -> None:
        """Rebuilds what is volatile once the log is read."""
        self.state.patterns = dict(self.state.durable_patterns)
        for topic in self.state.topics.values():
            topic.is_pending = False
            for partition in topic.partitions:
                if partition.retained or partition.keeping is not None:
                    self.retaining[partition] = None
                if partition.traits is not None and partition.traits.counts["expiry"]:
                    self.expiring[partition] = None
        for subscription in self.state.subscriptions.values():
            for cursor in subscription.cursors:
                after_recovery(cursor)
                if cursor.delayed:
                    self.delaying[cursor] = None
                if cursor.doomed is not None:
                    self.doomed[cursor] = None


def started(state: State, wall: int, *, is_clean: bool, is_served: bool = False) -> Started:
    """The record that opens a run of the broker; one that is served waits for consumers."""
    is_waiting = is_served and bool(state.attached)
    return Started(state.generation + 1, is_clean, wall, is_waiting)
