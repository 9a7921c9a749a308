"""Opening a store: newest valid snapshot, then every group after it, then make sure of the end.

The one hard question is what an unreadable stretch of log at P means. If any valid group or the
superblock says the log was durable beyond P, it is *damage*: every byte is kept, every record
that still proves itself is used, the rest is reported. Otherwise it is the *torn tail* of writes
nobody was told about: it is copied aside and zeroed. Nothing is ever deleted here, and every
step may be interrupted and started again.
"""

import os
from collections.abc import Callable
from typing import Final, Protocol

from penstock.journal import group, snapshot, superblock
from penstock.journal.disk import Disk, File
from penstock.journal.journal import SNAPSHOTS_KEPT, Journal
from penstock.journal.record import decode
from penstock.journal.report import Damage
from penstock.journal.segment import FIRST_GROUP, SEGMENT_PREFIX, Segment, decode_header
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.errors import NotAStore, StorageError, StoreDamaged, StoreFailed
from penstock.vocabulary.records import Record

_SALVAGE: Final = "`penstock salvage DIR OUT` copies every intact record to a new store"
_BYTE: Final = 0xFFFFFFFF


class Replay(Protocol):
    """Who rebuilds state from what recovery finds."""

    def restore(self, journal: Journal, pieces: list[bytes]) -> None:
        """Takes the pieces of the snapshot, before any record."""
        ...

    def apply(self, record: Record, position: int) -> None:
        """Takes one record after the snapshot, in log order."""
        ...


def open_journal(
    disk: Disk, settings: JournalSettings, make: Callable[[Journal], Replay]
) -> Journal:
    """Opens or begins the store in `disk` and brings the replay up to date.

    Raises NotAStore, StoreInUse, StoreTooNew, StoreDamaged; the folder is then unchanged.
    Raises StoreFailed when the disk does.
    """
    _check_folder(disk.names())
    disk.lock()
    try:
        if superblock.NAME in disk.names():
            block = superblock.Superblock.open(disk)
        else:
            block = superblock.Superblock.create(disk, os.urandom(16))
        journal = Journal(disk, settings, block)
        _Recovery(journal, make(journal)).run()
    except OSError as error:
        disk.close()
        raise StoreFailed(
            f"the store cannot be opened ({error.strerror or error}: {error.filename}); nothing in "
            "it was given up. Check the disk, then open it again"
        ) from error
    except BaseException:
        disk.close()
        raise
    return journal


def _check_folder(names: list[str]) -> None:
    if superblock.NAME in names:
        return
    ours = [name for name in names if name.startswith((SEGMENT_PREFIX, snapshot.PREFIX))]
    if ours:
        raise StoreDamaged(
            f"the file 'superblock' is missing beside {ours[0]!r} and {len(ours) - 1} more: put it "
            f"back from a copy, or {_SALVAGE}"
        )
    foreign = [name for name in names if name != superblock.NAME + ".tmp"]
    if foreign:
        raise NotAStore(
            f"the folder holds {foreign[0]!r} and no Penstock store; choose an empty folder"
        )


class _Recovery:
    """One run over one store."""

    def __init__(self, journal: Journal, replay: Replay) -> None:
        self.journal = journal
        self.replay = replay
        self.report = journal.report
        self.state = journal.block.state
        self.segments: dict[int, Segment] = {}
        self.unknown: dict[str, File] = {}
        self.oldest: snapshot.Snapshot | None = None
        """The older of the two snapshots that count."""
        self.expected: int | None = None
        """Number of the next record, once known."""
        self.start = 0
        self.scanned: list[Segment] = []

    def run(self) -> None:
        """All steps, in order."""
        self._find_segments()
        found = self._find_snapshot()
        first = self._restore(found)
        self._scan_from(first)
        self._finish()

    # -- what is there -----------------------------------------------------------------------------

    def _find_segments(self) -> None:
        journal = self.journal
        for name in journal.disk.names():
            if not name.startswith(SEGMENT_PREFIX):
                continue
            number = name.removeprefix(SEGMENT_PREFIX)
            if not number.isdigit():
                self.report.notes.append(f"{name} is not a name Penstock gives and is left alone")
                continue
            journal.spares.next_number = max(journal.spares.next_number, int(number) + 1)
            file = journal.disk.open(name)
            header = decode_header(file.pread(0, FIRST_GROUP))
            if header is None:
                self.unknown[name] = file
            elif header.store_id != journal.store_id:
                self.report.notes.append(f"{name} belongs to another store and is left alone")
                file.close()
            elif header.sequence in self.segments:
                raise StoreDamaged(
                    f"{name} and {self.segments[header.sequence].file.name} both claim place "
                    f"{header.sequence} in the log: remove the copy, or {_SALVAGE}"
                )
            else:
                segment = Segment(file, header.sequence, header.salt, header.size)
                self.segments[header.sequence] = segment

    def _find_snapshot(self) -> snapshot.Snapshot | None:
        journal = self.journal
        newest: snapshot.Snapshot | None = None
        for generation in snapshot.generations(journal.disk):
            journal.next_snapshot = max(journal.next_snapshot, generation + 1)
            try:
                found = snapshot.read(journal.disk, generation, journal.store_id)
            except StorageError as error:
                if error.code == "store-too-new":
                    raise
                self.report.notes.append(f"{error}; the one before it is used")
                continue
            if len(journal.snapshots) < SNAPSHOTS_KEPT:
                journal.snapshots.append((generation, found.start))
                self.oldest = found
            newest = newest or found
        return newest

    def _restore(self, found: snapshot.Snapshot | None) -> int:
        """Prepares the state before the scan; returns the first segment to scan."""
        journal = self.journal
        if found is None:
            if (self.state.durable_upto or self.segments) and 1 not in self._known():
                raise StoreDamaged(
                    f"no snapshot is readable and the log no longer begins: {_SALVAGE}"
                )
            self.start = 1 << 32 | FIRST_GROUP
            self.replay.restore(journal, [])
            return 1
        self.report.snapshot = found.generation
        self.start = found.start
        for row in found.meta.segments:
            self._adopt(row)
        first = found.start >> 32
        # A snapshot is made while the log grows: it may know segments that began after its start.
        later = {n: segment for n, segment in self._known().items() if n > first}
        journal.index.segments.update(later)
        try:
            self.replay.restore(journal, found.pieces)
        except KeyError as error:
            raise StoreDamaged(f"place {error} of the log is missing: {_SALVAGE}") from error
        home = journal.index.segments.get(first)
        journal.records = found.meta.records
        journal.last_sequence = first
        if home is not None and home.is_sealed and home.end <= found.start & _BYTE:
            first += 1
            self.expected = found.meta.records
        elif found.start == 0:
            self.start = 1 << 32 | FIRST_GROUP
            first = 1
        elif home is None and first not in self._known():
            # The segment the snapshot starts in was already empty, sealed and given back.
            first += 1
            self.expected = found.meta.records
        return first

    def _known(self) -> dict[int, Segment]:
        """Segments by place, including those whose header is gone but whose groups are not."""
        for name, file in list(self.unknown.items()):
            if file.pread(FIRST_GROUP, len(group.MAGIC)) != group.MAGIC:
                continue
            data = file.pread(0, file.size)
            identity = group.peek_identity(data, FIRST_GROUP)
            if identity is not None and identity[0] not in self.segments:
                del self.unknown[name]
                if not self._is_free(identity[0]):
                    self.report.notes.append(f"the header of {name} is damaged; its groups name it")
                self.segments[identity[0]] = Segment(file, *identity, file.size)
        return self.segments

    def _adopt(self, row: snapshot.SegmentRow) -> None:
        segment = self.segments.get(row.sequence)
        if segment is None and row.name in self.unknown:
            self.report.notes.append(f"the header of {row.name} is damaged; the snapshot names it")
            segment = Segment(self.unknown.pop(row.name), row.sequence, row.salt, row.size)
            self.segments[row.sequence] = segment
        if segment is None:
            raise StoreDamaged(
                f"{row.name}, which holds place {row.sequence} of the log, is missing: put it back "
                f"from a copy, or {_SALVAGE}"
            )
        segment.salt, segment.end, segment.footer = row.salt, row.end, row.footer
        segment.is_damaged = row.is_damaged
        self.journal.index.segments[row.sequence] = segment

    # -- the scan --------------------------------------------------------------------------------

    def _scan_from(self, sequence: int) -> None:
        while True:
            segment = self.segments.get(sequence) or self._known().get(sequence)
            if segment is None:
                self._check_nothing_follows(sequence)
                return
            segment.footer = 0
            segment.is_damaged = False
            self.journal.index.segments[sequence] = segment
            self.journal.last_sequence = sequence
            self.journal.active = segment
            self.scanned.append(segment)
            following = self.segments.get(sequence + 1)
            if following is not None:
                following.file.expect()
            if not self._scan(segment):
                return
            sequence += 1

    def _check_nothing_follows(self, sequence: int) -> None:
        later = [number for number in self.segments if number > sequence]
        durable = self.state.durable_upto
        if any(self._first_group(number) for number in later) or (
            durable >> 32 >= sequence and durable & _BYTE > FIRST_GROUP
        ):
            raise StoreDamaged(
                f"place {sequence} of the log is missing while later places exist: put the file "
                f"back from a copy, or {_SALVAGE}"
            )

    def _scan(self, segment: Segment) -> bool:
        """Reads one segment; True when the log goes on in the next one."""
        data = segment.file.pread(0, segment.size)
        self.report.log_bytes += len(data)
        at = FIRST_GROUP
        while True:
            found = group.parse(data, at, segment.sequence, segment.salt)
            if found is None:
                later = group.find_next(data, at, segment.sequence, segment.salt)
                if self._durable_after(segment, later) <= segment.base | at:
                    self._cut_tail(segment, data, at)
                    return False
                at = self._damage(segment, data, at, later)
                if later is None:
                    return True
                continue
            self._expect(found)
            if found.flags & group.FOOTER:
                segment.footer, segment.end = at, found.end
                self.journal.index.log_end = segment.base | segment.end
                self.journal.index.sealed(segment)
                return True
            self._take(segment, group.records(data, found))
            self.expected = found.first_record + found.count
            self.report.groups += 1
            at = segment.end = found.end
            self.journal.index.log_end = segment.base | segment.end

    def _expect(self, found: group.Group) -> None:
        if self.expected is not None and found.first_record != self.expected:
            raise StoreDamaged(
                f"record {self.expected} should come next at position {found.position:#x} and "
                f"record {found.first_record} does: {_SALVAGE}"
            )
        self.expected = found.first_record

    def _take(self, segment: Segment, rows: list[tuple[int, bytes]]) -> None:
        for position, rec in rows:
            record = decode(rec)
            self.journal.index.note(record, segment.sequence, position & _BYTE, len(rec))
            if position >= self.start:
                self.report.records += 1
                self.replay.apply(record, position)

    # -- holes -----------------------------------------------------------------------------------

    def _first_group(self, sequence: int) -> group.Group | None:
        segment = self.segments.get(sequence)
        if segment is None:
            return None
        data = segment.file.pread(0, segment.size)
        return group.find_next(data, FIRST_GROUP, sequence, segment.salt)

    def _durable_after(self, segment: Segment, later: group.Group | None) -> int:
        """How far the log is known to have been durable, by anything after a hole."""
        durable = self.state.durable_upto
        if later is not None:
            durable = max(durable, later.durable_upto)
        for number in sorted(self.segments):
            if number > segment.sequence:
                found = self._first_group(number)
                if found is not None:
                    durable = max(durable, found.durable_upto)
        return durable

    def _damage(self, segment: Segment, data: bytes, at: int, later: group.Group | None) -> int:
        upto = max(at, len(data)) if later is None else later.position & _BYTE
        rows = group.rescue(data, at, upto, segment.sequence, segment.salt)
        self._take(segment, rows)
        follower = later or self._first_group(segment.sequence + 1)
        lost = None
        if follower is not None and self.expected is not None:
            lost = follower.first_record - self.expected - len(rows)
        self.report.damages.append(
            Damage(segment.sequence, segment.file.name, at, upto, lost, len(rows))
        )
        segment.is_damaged = True
        self.journal.must_roll = True
        if follower is not None:
            self.expected = follower.first_record
        if later is None:
            segment.footer = -1
            segment.end = segment.size
            self.journal.index.log_end = segment.base | segment.end
        return upto

    def _cut_tail(self, segment: Segment, data: bytes, at: int) -> None:
        segment.end = at
        self.journal.index.log_end = segment.base | at
        tail = data[at:].rstrip(b"\0")
        if group.holds_salt(tail, 0, segment.salt) or group.is_claimed(data, at, segment.sequence):
            self._set_aside(segment, at, tail)
        else:
            # Bytes of an earlier life. A torn write whose first sector is missing may hide among
            # them; its records must not come back, so as much as one group could be is zeroed.
            tail = tail[: group.TORN_BYTES_MAX]
        if tail:
            segment.file.pwrite(at, bytes(len(tail)))
            segment.file.sync()
        self.journal.point("tail-zeroed")

    def _set_aside(self, segment: Segment, at: int, tail: bytes) -> None:
        disk = self.journal.disk
        number = sum(1 for name in disk.names() if name.startswith("torn-")) + 1
        name = f"torn-{segment.sequence:08d}-{at:08d}-{number:04d}"
        aside = disk.create(name, 0)
        aside.pwrite(0, tail)
        aside.sync()
        aside.close()
        disk.sync_names()
        self.journal.point("tail-saved")
        self.report.torn_bytes = len(tail)
        self.report.torn_file = name

    # -- the end -----------------------------------------------------------------------------------

    def _finish(self) -> None:
        journal = self.journal
        for number in [n for n in journal.index.segments if n > journal.last_sequence]:
            if journal.index.segments.pop(number).live:
                raise StoreDamaged(f"the log ends before place {number}, which holds: {_SALVAGE}")
        for segment in self.scanned:
            segment.file.sync()
        journal.disk.sync_names()
        self._sort_out_unused()
        if self.expected is not None:
            journal.records = self.expected
        if journal.active is None and journal.index.segments:
            journal.active = journal.index.segments.get(journal.last_sequence)
        end = journal.log_end
        journal.durable_upto = journal.index.log_end = max(end, journal.index.log_end)
        for segment in journal.index.segments.values():
            if segment.is_sealed and segment.live == 0:
                segment.empty_at = journal.durable_upto
        if journal.active is not None:
            journal.spares.resume(journal.active.size)
        self.report.is_clean = self.state.is_clean and self.report.records == 0
        if self.report.damages or self.report.notes:
            journal.evidence_below = journal.next_snapshot

    def _sort_out_unused(self) -> None:
        """Files the newest snapshot and the log after it do without."""
        journal = self.journal
        self._known()
        for sequence, segment in self.segments.items():
            if sequence not in journal.index.segments:
                self._keep_unused(segment)
        for name, file in self.unknown.items():
            if file.pread(0, FIRST_GROUP) == bytes(FIRST_GROUP):
                journal.spares.files.append(file)
            elif file.size:  # An empty file was being created when the power went.
                self.report.notes.append(f"{name} has no readable header and is left alone")

    def _keep_unused(self, segment: Segment) -> None:
        """Makes a spare of a segment only when the snapshot before does without it too."""
        journal = self.journal
        if segment.sequence > journal.last_sequence or self._is_free(segment.sequence):
            journal.spares.files.append(segment.file)
        else:
            segment.footer, segment.end = -1, segment.size
            journal.index.segments[segment.sequence] = segment

    def _is_free(self, sequence: int) -> bool:
        """True for a place of the log that neither snapshot needs."""
        oldest = self.oldest
        return (
            oldest is not None
            and len(self.journal.snapshots) == SNAPSHOTS_KEPT
            and sequence <= oldest.start >> 32
            and all(row.sequence != sequence for row in oldest.meta.segments)
        )
