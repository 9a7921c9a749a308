"""Housekeeping that never holds up a commit: snapshots, compaction, dead letters."""

from threading import Lock
from typing import Final, NamedTuple

import msgspec

from penstock.batch import encode_columns
from penstock.batch.frame import Frame, gather
from penstock.broker.backup import Backups
from penstock.broker.engine import Engine
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.rebuild import pieces
from penstock.delivery.dead import decide_dead
from penstock.delivery.state import Cursor, Partition
from penstock.journal.segment import Segment
from penstock.vocabulary.errors import PenstockError, StorageError
from penstock.vocabulary.records import Copied, Lost

SNAPSHOT_MS_MAX: Final = 60_000
SNAPSHOT_MS_MIN: Final = 1_000
SNAPSHOT_PAUSE: Final = 10
"""So many times as long as a snapshot took, none follows: large states are not written all day."""
COPY_COUNT_MAX: Final = 1_000
COPY_BYTES_MAX: Final = 1024 * 1024
DEAD_COUNT_MAX: Final = 100
DEAD_RETRY_MS: Final = 10_000
FULL_ENOUGH: Final = 0.8
SEGMENTS_SLACK: Final = 4


class Blocked(NamedTuple):
    """Why the dead letters of a cursor wait, and when they are tried again."""

    why: str
    until: int


class KeeperState(msgspec.Struct):
    """What the keeper remembers between rounds."""

    snapshot_at: int = 0
    snapshot_end: int = 0
    snapshot_ms: int = 0
    """How long the last one took."""
    blocked: dict[Cursor, Blocked] = msgspec.field(default_factory=dict)
    """Cursors whose dead letters wait."""


class Keeper:
    """One round of each duty is one call; threads or tests decide when."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.state = KeeperState(snapshot_at=engine.clock.now(), snapshot_end=engine.applied_end)
        self.backups = Backups(engine, self.snapshot)
        self._snapshotting = Lock()

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Takes a snapshot now."""
        engine = self.engine
        with self._snapshotting:
            began = engine.clock.now()
            with engine.lock:
                draft = engine.journal.begin_snapshot(engine.applied_end, engine.applied_records)
            engine.journal.finish_snapshot(draft, pieces(engine))
            self.state.snapshot_at = engine.clock.now()
            self.state.snapshot_ms = self.state.snapshot_at - began
            self.state.snapshot_end = draft.start

    def is_snapshot_due(self) -> bool:
        """After enough log, enough time, or when segments wait only for it."""
        engine, journal = self.engine, self.engine.journal
        age = engine.clock.now() - self.state.snapshot_at
        pause = max(SNAPSHOT_MS_MIN, SNAPSHOT_PAUSE * self.state.snapshot_ms)
        if age < pause or journal.failed is not None:
            return False
        if journal.waiting_segments() and not journal.is_pinned():
            return True
        if engine.applied_end == self.state.snapshot_end:
            return False
        return journal.bytes_since_snapshot >= journal.settings.snapshot_bytes or (
            age >= SNAPSHOT_MS_MAX
        )

    # -- compaction ------------------------------------------------------------------------------

    def sparse_segment(self) -> Segment | None:
        """The emptiest segment worth copying out of, while the disk holds more than it must."""
        journal = self.engine.journal
        segments = list(journal.index.segments.values())
        total = sum(segment.size for segment in segments)
        largest = max((segment.size for segment in segments), default=0)
        usable = [s for s in segments if s.is_sealed and s.live and not s.is_damaged]
        if not usable:
            return None
        live = sum(self.live_bytes(segment) for segment in segments)
        emptiest = min(usable, key=lambda s: self.live_bytes(s) / s.size)
        share = self.live_bytes(emptiest) / emptiest.size
        waiting = sum(s.size for s in segments if s.empty_at is not None)
        if share > FULL_ENOUGH or total - waiting <= live + (SEGMENTS_SLACK - 2) * largest:
            return None
        return emptiest

    def live_bytes(self, segment: Segment) -> int:
        """About how many bytes of a segment something still holds."""
        total = segment.stored
        return 0 if not total else min(segment.end, segment.end * segment.live // total)

    def compact(self, segment: Segment) -> None:
        """Copies the held messages of a segment forward, so that it can be used again."""
        engine = self.engine
        for key, ranges in engine.journal.index.spans_in(segment.sequence):
            topic = engine.state.topics.get(key >> 16)
            if topic is None:
                continue
            partition = topic.partitions[key & 0xFFFF]
            with engine.lock:
                held = [gap for low, high in ranges for gap in partition.released.gaps(low, high)]
            if not self._copy(partition, held):
                segment.is_damaged = True
                return
        with engine.lock:
            engine.journal.index.drain(segment.sequence)

    def _copy(self, partition: Partition, ranges: list[tuple[int, int]]) -> bool:
        frames: list[Frame] = []
        count = size = 0
        for start, end in ranges:
            at = start
            while at < end:
                upto = min(end, at + COPY_COUNT_MAX)
                found, lost = self.engine.read(partition, at, upto)
                if lost:
                    self._report_lost(partition, lost)
                    return False
                for frame in found:
                    frames.append(frame)
                    count += len(frame.indexes)
                    size += len(frame.batch) * len(frame.indexes) // max(1, _count(frame))
                    if count >= COPY_COUNT_MAX or size >= COPY_BYTES_MAX:
                        self._write_copy(partition, frames)
                        frames, count, size = [], 0, 0
                at = upto
        self._write_copy(partition, frames)
        return True

    def _write_copy(self, partition: Partition, frames: list[Frame]) -> None:
        if frames:
            offsets, columns = gather(frames)
            batch = encode_columns(columns)
            if partition.topic.id in self.engine.state.topics:
                self.engine.call(Copied(partition.topic.id, partition.index, tuple(offsets), batch))

    def _report_lost(self, partition: Partition, lost: list[tuple[int, int]]) -> None:
        self.engine.call(Lost(partition.topic.id, partition.index, tuple(lost)))

    # -- dead letters ----------------------------------------------------------------------------

    def move_doomed(self) -> bool:
        """Moves hopeless messages to their dead-letter topics; False when there was nothing."""
        engine, blocked, now = self.engine, self.state.blocked, self.engine.clock.now()
        with engine.lock:
            cursors = [c for c in engine.doomed if c not in blocked or now >= blocked[c].until]
        moved = False
        for cursor in cursors:
            with engine.lock:
                engine.doomed.pop(cursor, None)
            try:
                while self._move(cursor):
                    moved = True
            except Exception as error:
                # It waits, and nobody waits with it: the others are still in line.
                with engine.lock:
                    engine.doomed[cursor] = None
                    if not isinstance(error, StorageError):
                        blocked[cursor] = Blocked(str(error), now + DEAD_RETRY_MS)
                if isinstance(error, StorageError):
                    break
                if not isinstance(error, PenstockError):
                    raise
            else:
                blocked.pop(cursor, None)
        return moved

    def blocked(self) -> list[str]:
        """Why dead letters wait, each reason once."""
        with self.engine.lock:
            return list(dict.fromkeys(each.why for each in self.state.blocked.values()))

    def blocked_of(self, cursor: Cursor) -> str:
        """Why the dead letters of a cursor wait, or empty."""
        found = self.state.blocked.get(cursor)
        return "" if found is None else found.why

    def _move(self, cursor: Cursor) -> bool:
        engine = self.engine
        with engine.lock:
            ranges = _doomed(cursor)
        if not ranges or cursor.subscription.id not in engine.state.subscriptions:
            return False
        frames: list[Frame] = []
        lost: list[tuple[int, int]] = []
        for start, end in ranges:
            found, missing = engine.read(cursor.partition, start, end)
            frames += found
            lost += missing
        if lost:
            self._report_lost(cursor.partition, lost)
            return True
        pending = Pending()
        with engine.lock:
            engine.check_alive()
            if cursor.subscription.is_removing or cursor.partition.topic.is_removing:
                return False
            if cursor.subscription.seeks:
                engine.doomed[cursor] = None
                return False  # What the seek takes is not dead.
            if _doomed(cursor) != ranges:
                return True
            unit = decide_dead(engine.state, cursor, frames, engine.clock.wall())
            engine.submit(unit, (DIRECT, pending, None))
        engine.settle_down(pending)
        return True


def _doomed(cursor: Cursor) -> list[tuple[int, int]]:
    if cursor.doomed is None:
        return []
    found: list[tuple[int, int]] = []
    left = DEAD_COUNT_MAX
    floor = cursor.doomed.floor
    rows = ([(0, floor)] if floor else []) + cursor.doomed.ranges()
    for low, high in rows:
        for start, end in cursor.done.gaps(low, high):
            upto = min(end, start + left)
            found.append((start, upto))
            left -= upto - start
            if left <= 0:
                return found
    return found


def _count(frame: Frame) -> int:
    return int.from_bytes(frame.batch[4:8], "little")
