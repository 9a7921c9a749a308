"""The journal: appends groups, keeps segments and snapshots, finds records again.

One writer thread calls `append` and `sync`; any thread may `locate` and `fetch`. After the first
failed write or sync the journal is dead for writing until it is opened again: a second sync that
succeeds proves nothing about the bytes the first one lost.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Final

import msgspec

from penstock.journal import group, snapshot, superblock
from penstock.journal.cache import Cache
from penstock.journal.disk import Disk
from penstock.journal.footer import ENTRY_BYTES, PARTITION_BYTES, Footer
from penstock.journal.group import EDGE, HEADER_BYTES, Encoded, align, record_bytes
from penstock.journal.index import Index, Place
from penstock.journal.record import decode, part_of
from penstock.journal.report import Report
from penstock.journal.segment import FIRST_GROUP, Header, Segment, encode_header
from penstock.journal.settings import GROUP_BYTES_MAX, JournalSettings
from penstock.journal.spares import Spares
from penstock.vocabulary.errors import ProtocolError, RecordDamaged, StoreFailed
from penstock.vocabulary.limits import KIB
from penstock.vocabulary.records import Copied, Published, Record, Unit

SNAPSHOTS_KEPT: Final = 2
_BUFFER_BYTES_MIN: Final = 64 * KIB
_BUFFER_BYTES_MAX: Final = GROUP_BYTES_MAX + 64 * KIB


class Draft(msgspec.Struct, frozen=True):
    """A snapshot about to be written."""

    generation: int
    start: int
    meta: snapshot.Meta


class Journal:
    """An open journal. `recovery.open_journal` makes one."""

    def __init__(self, disk: Disk, settings: JournalSettings, block: superblock.Superblock) -> None:
        self.disk = disk
        self.settings = settings
        self.block = block
        self.store_id = block.state.store_id
        self.report = Report()
        self.failed: StoreFailed | None = None
        self.index = Index(self._load_footer, self._copy_holds)
        self.active: Segment | None = None
        self.spares = Spares(disk, settings)
        self.snapshots: list[tuple[int, int]] = []
        """(generation, start) of the snapshots that count, newest first."""
        self.last_sequence = 0
        self.records = 0
        """Records written since the store began."""
        self.durable_upto = 0
        self.bytes_since_snapshot = 0
        self.next_snapshot = 1
        self.is_pinned: Callable[[], bool] = bool  # a backup reads: no file goes or is used again
        self.evidence_below = 0
        """Snapshots below are kept until the next opening: this one found damage."""
        self.must_roll = False
        self._buffer = disk.buffer(_BUFFER_BYTES_MIN)
        """Where the next group is made."""
        self._staged: tuple[int, memoryview] | None = None
        """(byte in the active segment, group) made and not yet written."""
        self._block_lock = Lock()
        self._cache = Cache(settings.cache_bytes)
        self.point = getattr(disk, "point", _no_point)

    # -- writing ---------------------------------------------------------------------------------

    @property
    def log_end(self) -> int:
        """The position where the next group goes."""
        segment = self.active
        return 0 if segment is None else segment.base | segment.end

    def append(
        self, records: list[Record], encoded: Sequence[Encoded], at: int
    ) -> tuple[list[int], int]:
        """Makes one group of records from index `at` on, as many as fit.

        Returns their positions and the index of the first record that is not in it. The group is
        written by `write` or, with one call to the system, by `sync`; it is durable only after
        `sync`, and no second `append` may come before that. Raises StoreFailed.
        """
        if self.failed is not None:
            raise self.failed
        try:
            segment = self._segment_for(records[at], _length(encoded[at]))
            lengths = self._fit(segment, records, encoded, at)
        except OSError as error:
            raise self._fail("write", error) from error
        upto = at + len(lengths)
        start = segment.base | segment.end
        data, places = group.build(
            self._room_for(lengths), encoded[at:upto], start, self.durable_upto, segment.salt,
            self.records,
        )  # fmt: skip
        self._staged = (segment.end, data)
        group_records = records[at:upto]
        self.index.note_group(group_records, segment.sequence, places, lengths)
        self._cache.add(places, group_records, len(data))
        segment.end += len(data)
        self.records += upto - at
        self.bytes_since_snapshot += len(data)
        return places, upto

    def write(self) -> None:
        """Writes the group made by `append` without waiting for the disk. Raises StoreFailed."""
        if self.failed is not None:
            raise self.failed
        staged, self._staged = self._staged, None
        if staged is None or self.active is None:
            return
        try:
            self.active.file.pwrite(*staged)
        except OSError as error:
            raise self._fail("write", error) from error
        self.point("group-written")

    def sync(self) -> None:
        """Makes everything appended so far durable. Raises StoreFailed."""
        if self.failed is not None:
            raise self.failed
        segment = self.active
        if segment is None:
            return
        staged, self._staged = self._staged, None
        try:
            if staged is None:
                segment.file.sync()
            else:
                segment.file.pwrite_synced(*staged)
        except OSError as error:
            raise self._fail("sync", error) from error
        self.durable_upto = self.index.log_end = segment.base | segment.end
        self.point("group-synced")

    def _fail(self, what: str, error: OSError) -> StoreFailed:
        self.failed = StoreFailed(
            f"the {what} of the journal failed ({error.strerror or error}); nothing more is "
            "confirmed until the store is opened again. Check the disk, then restart: everything "
            "confirmed before is safe"
        )
        return self.failed

    def _fit(
        self, segment: Segment, records: list[Record], encoded: Sequence[Encoded], at: int
    ) -> list[int]:
        """The lengths of the records from `at` on that go into one group."""
        room = min(segment.size - segment.end - self._footer_room(segment), GROUP_BYTES_MAX)
        used = HEADER_BYTES + 512
        lengths: list[int] = []
        for index in range(at, len(encoded)):
            length = _length(encoded[index])
            used += _cost(records[index], length)
            if used > room and lengths:
                break
            lengths.append(length)
        return lengths

    def _room_for(self, lengths: list[int]) -> memoryview:
        """A buffer for a group of such records; it grows, but not for one very large record."""
        need = HEADER_BYTES + EDGE + sum(map(record_bytes, lengths))
        if need > _BUFFER_BYTES_MAX:
            return self.disk.buffer(align(need))
        if need > len(self._buffer):
            self._buffer = self.disk.buffer(min(2 * align(need), _BUFFER_BYTES_MAX))
        return self._buffer

    def _footer_room(self, segment: Segment) -> int:
        return align(HEADER_BYTES + self.index.footer_bytes(segment.sequence))

    # -- segments --------------------------------------------------------------------------------

    def _segment_for(self, record: Record, length: int) -> Segment:
        need = HEADER_BYTES + 512 + _cost(record, length)
        segment = self.active
        if segment is not None and not segment.is_sealed:
            fits = segment.end + need + self._footer_room(segment) <= segment.size
            if fits and not self.must_roll:
                return segment
            self.seal()
        self.must_roll = False
        return self._begin_segment(need + FIRST_GROUP + align(HEADER_BYTES + 8))

    def seal(self) -> None:
        """Ends the active segment with its footer and syncs it. Raises StoreFailed."""
        segment = self.active
        if segment is None or segment.is_sealed:
            return
        payload = self.index.encode_footer(segment.sequence)
        start = segment.end
        data = group.build_footer(
            self._room_for([len(payload)]), payload, segment.base | start, self.durable_upto,
            segment.salt, self.records,
        )  # fmt: skip
        self._staged = (start, data)
        segment.footer = start
        segment.end = start + len(data)
        self.sync()
        segment.file.finish()
        self.index.sealed(segment)
        self.point("segment-sealed")

    def _begin_segment(self, need: int) -> Segment:
        file = self.spares.take(max(self.spares.size, align(need)))
        self.spares.grow()
        sequence = self.last_sequence + 1
        salt = int.from_bytes(os.urandom(8), "little") | 1
        header = self._buffer[:FIRST_GROUP]
        header[:] = encode_header(Header(self.store_id, sequence, salt, file.size))
        file.pwrite_synced(0, header)
        self.point("segment-opened")
        segment = Segment(file, sequence, salt, file.size)
        self.index.segments[sequence] = segment
        self.last_sequence = sequence
        self.active = segment
        self.index.log_end = self.durable_upto = segment.base | segment.end
        if sequence > 1:
            self.mark()
        return segment

    def prepare_spare(self, count: int = 1) -> None:
        """Makes a zeroed segment ready, in the background, unless there are. Raises StoreFailed."""
        try:
            self.spares.prepare(count)
        except OSError as error:
            raise self._fail("preparation of a segment", error) from error

    def note(self, text: str) -> None:
        """Says once what a person should know."""
        if text not in self.report.notes:
            self.report.notes.append(text)

    def free_segments(self) -> int:
        """Recycles or removes segments that neither snapshot needs; returns how many."""
        if len(self.snapshots) < SNAPSHOTS_KEPT or self.failed is not None or self.is_pinned():
            return 0
        start = self.snapshots[1][1]
        freed = 0
        for segment in list(self.index.segments.values()):
            if not segment.is_free(start) or segment is self.active:
                continue
            del self.index.segments[segment.sequence]
            is_kept = self.spares.give(segment.file)
            self.point("segment-recycled" if is_kept else "segment-unlinked")
            freed += 1
        return freed

    def waiting_segments(self) -> int:
        """Sealed, empty segments that only wait for snapshots."""
        return sum(
            1
            for segment in list(self.index.segments.values())
            if segment.empty_at is not None and not segment.is_damaged
        )

    @property
    def disk_bytes(self) -> int:
        """Bytes of all segment files, spares included."""
        held = sum(segment.size for segment in list(self.index.segments.values()))
        return held + self.spares.bytes

    # -- snapshots and superblock ------------------------------------------------------------------

    def begin_snapshot(self, start: int, records: int) -> Draft:
        """Fixes where a snapshot starts: every record before `start` is applied."""
        rows = [
            snapshot.SegmentRow(
                s.sequence, s.file.name, s.salt, s.size, s.end, s.footer, s.is_damaged
            )
            for s in list(self.index.segments.values())
            if s.is_damaged or s.live or not s.is_sealed
        ]
        generation = self.next_snapshot
        self.next_snapshot += 1
        self.bytes_since_snapshot = 0
        return Draft(generation, start, snapshot.Meta(records, rows))

    def finish_snapshot(self, draft: Draft, pieces: Iterator[bytes]) -> None:
        """Writes the snapshot, reads it back, and only then lets it count."""
        if self.failed is not None:
            raise self.failed
        try:
            snapshot.write(
                self.disk, self.store_id, draft.generation, draft.start, draft.meta, pieces
            )
            self.point("snapshot-written")
            snapshot.read(self.disk, draft.generation, self.store_id)
            self.snapshots.insert(0, (draft.generation, draft.start))
            self.mark()
            del self.snapshots[SNAPSHOTS_KEPT:]
            self._remove_old_snapshots()
        except OSError as error:
            raise self._fail("snapshot", error) from error
        self.point("snapshot-counts")

    def _remove_old_snapshots(self) -> None:
        if len(self.snapshots) < SNAPSHOTS_KEPT or self.is_pinned():
            return
        oldest = self.snapshots[-1][0]
        for generation in snapshot.generations(self.disk):
            if self.evidence_below <= generation < oldest:
                self.disk.unlink(snapshot.name_of(generation))

    def mark(self, *, is_clean: bool = False, broker_generation: int | None = None) -> None:
        """Writes the superblock. Raises StoreFailed."""
        with self._block_lock:
            state = self.block.state
            newest = self.snapshots[0][0] if self.snapshots else 0
            fresh = msgspec.structs.replace(
                state,
                durable_upto=self.durable_upto,
                snapshot_generation=newest,
                is_clean=is_clean,
                broker_generation=(
                    state.broker_generation if broker_generation is None else broker_generation
                ),
            )
            try:
                self.block.write(fresh)
            except OSError as error:
                raise self._fail("superblock write", error) from error
        self.point("superblock-written")

    @property
    def is_marked(self) -> bool:
        """True when the superblock knows everything that is durable."""
        return self.block.state.durable_upto >= self.durable_upto

    def close(self) -> None:
        """Closes every file. A clean stop seals, snapshots and marks first."""
        for segment in self.index.segments.values():
            segment.file.close()
        self.spares.close()
        self.block.close()
        self.disk.close()

    # -- reading ---------------------------------------------------------------------------------

    def cached(self, place: Place) -> Record | None:
        """The record at a place when it is in memory."""
        return self._cache.get(place.position)

    def fetch(self, place: Place, key: int) -> Published | Copied | None:
        """The record of partition `key` at a place; None when it was released meanwhile.

        Raises RecordDamaged when the bytes on disk are not what was written.
        """
        record = self._cache.get(place.position)
        if record is None:
            record = self._read(place)
            if record is None:
                return None
        return part_of(record, key, place.first)

    def _read(self, place: Place) -> Record | None:
        segment = place.segment
        try:
            data = segment.file.pread(place.byte, group.RECORD_OVERHEAD + place.length)
        except (OSError, ValueError) as error:
            if self.index.segments.get(place.sequence) is not segment:
                return None
            raise RecordDamaged(f"{segment.file.name} cannot be read: {error}") from error
        rec = group.read_record(data, 0, place.position, segment.salt)
        if rec is None:
            if self.index.segments.get(place.sequence) is not segment:
                return None
            raise RecordDamaged(
                f"messages {place.first}–{place.last} are unreadable: the record at byte "
                f"{place.byte} of {segment.file.name} fails its checksum",
                first=place.first,
                last=place.last,
            )
        try:
            return decode(rec)
        except ProtocolError as error:
            raise RecordDamaged(str(error), first=place.first, last=place.last) from error

    def _copy_holds(self, place: Place, offset: int) -> bool:
        record = self._cache.get(place.position)
        if record is None:
            try:
                record = self._read(place)
            except RecordDamaged:
                place.segment.is_damaged = True
                return False
        parts = record.records if isinstance(record, Unit) else (record,)
        return any(isinstance(part, Copied) and offset in part.offsets for part in parts)

    def _load_footer(self, segment: Segment) -> Footer:
        if segment.footer < 0:
            return rescan(segment)
        data = segment.file.pread(segment.footer, segment.end - segment.footer)
        payload = group.footer_payload(data, segment.base | segment.footer, segment.salt)
        return rescan(segment) if payload is None else Footer(payload)


def rescan(segment: Segment) -> Footer:
    """The entries of a segment, found by reading all of it: for a damaged footer."""
    data = segment.file.pread(0, segment.size)
    scratch = Index(lambda _: Footer(bytes(8)), lambda _, __: True)
    scratch.segments[segment.sequence] = segment
    at = FIRST_GROUP
    while at < len(data):
        found = group.parse(data, at, segment.sequence, segment.salt)
        if found is None:
            later = group.find_next(data, at + 512, segment.sequence, segment.salt)
            upto = len(data) if later is None else later.position & 0xFFFFFFFF
            rows = group.rescue(data, at, upto, segment.sequence, segment.salt)
            at = upto
        else:
            rows = [] if found.flags & group.FOOTER else group.records(data, found)
            at = found.end
        for position, rec in rows:
            scratch.note(decode(rec), segment.sequence, position & 0xFFFFFFFF, len(rec))
    return Footer(scratch.encode_footer(segment.sequence))


def _length(encoded: Encoded) -> int:
    return len(encoded) if isinstance(encoded, bytes) else len(encoded[0]) + len(encoded[1])


def _cost(record: Record, length: int) -> int:
    parts = len(record.records) if isinstance(record, Unit) else 1
    return record_bytes(length) + parts * (ENTRY_BYTES + PARTITION_BYTES)


def _no_point(_name: str) -> None:
    """Crash points are for tests; real disks have none."""
