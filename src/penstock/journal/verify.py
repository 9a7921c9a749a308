"""Is this store whole? Reads all that matters, says what is wrong and exactly where. Never writes.

The verdict is about what an opening broker needs: the superblock, the two newest snapshots, and
every segment those rely on or that comes after them. What is free to be used again may hold
anything. `torn` is what a power cut leaves of writes nobody was told about; `damaged` is what was
durable once. Beside a running broker the answer is about a moving target, and says so.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from penstock.journal import group, snapshot, superblock
from penstock.journal.disk import Disk
from penstock.journal.footer import COPY_BIT, decode_footer
from penstock.journal.record import decode
from penstock.journal.report import Damage
from penstock.journal.salvage import BYTE, SegmentFile, Survey, scan, survey
from penstock.journal.segment import FIRST_GROUP
from penstock.vocabulary.errors import NotAStore, ProtocolError

_HEADER_BYTES: Final = 72
_SLOT_USED_BYTES: Final = 80
_LOOKS_AGAIN: Final = 2


class Verdict(StrEnum):
    """What is to be said of a file, or of the whole store (only the first three)."""

    OK = "ok"
    TORN = "torn"
    DAMAGED = "damaged"
    MISSING = "missing"
    FREE = "free"
    """Nothing in it is needed: it may hold anything."""


class LostMessages(msgspec.Struct, frozen=True):
    """Messages that a damaged record held, where the segment's footer still tells."""

    topic_id: int
    partition: int
    first: int
    last: int


class FileReport(msgspec.Struct, kw_only=True):
    """One file: what is valid in it and which bytes are not."""

    name: str
    kind: str
    size: int
    verdict: Verdict = Verdict.OK
    place: int | None = None
    """Which segment of the log it is."""
    groups: int = 0
    records: int = 0
    damages: list[Damage] = []
    unreadable: list[tuple[int, int]] = []
    """The exact bytes nothing proves any more, without the records kept from between them."""
    lost_messages: list[LostMessages] = []
    note: str = ""


class VerifyReport(msgspec.Struct, kw_only=True):
    """The whole store."""

    verdict: Verdict
    in_use: str | None = None
    """Who has the store open, when somebody has."""
    records: int = 0
    rescued_records: int = 0
    """Of these, records kept from within damage."""
    lost_records: int | None = 0
    """None when the log does not tell how many there were."""
    files: list[FileReport]
    notes: list[str] = []

    def rows(self) -> list[tuple[str, str, str, str]]:
        """File, verdict, records and remark of each file, for a table."""
        return [
            (each.name, each.verdict.value, str(each.records or ""), _remark(each))
            for each in self.files
        ]

    def __str__(self) -> str:
        lines = [
            f"{name:24} {verdict:8} {count:>8} {text}" for name, verdict, count, text in self.rows()
        ]
        lost = "an unknown number of" if self.lost_records is None else str(self.lost_records)
        lines.append(f"{self.verdict.value}: {self.records} record(s) read, {lost} lost")
        if self.in_use:
            lines.append(f"the store is in use by {self.in_use}: run this again when it is not")
        return "\n".join(line.rstrip() for line in [*lines, *self.notes])


def verify(disk: Disk) -> VerifyReport:
    """Reads the store in `disk` and reports on it. Raises NotAStore, StoreTooNew."""
    owner = disk.owner()
    report = _look(disk, owner)
    for _ in range(_LOOKS_AGAIN):
        if owner is None or report.verdict is Verdict.OK:
            break
        # Files change while they are read: only what stays wrong is worth a word.
        report = _look(disk, owner)
    return report


def _look(disk: Disk, owner: str | None) -> VerifyReport:
    found = survey(disk)
    try:
        if not (found.slots or found.snapshots or found.segments):
            raise NotAStore("the folder holds no Penstock store: there is nothing to verify")
        return _Check(found).run(owner)
    finally:
        found.close()


class _Hole(NamedTuple):
    start: int
    end: int
    kept: list[tuple[int, int]]
    """(byte, end byte) of the rescued records."""


class _Log(msgspec.Struct):
    """What one segment holds, without the records themselves."""

    groups: list[group.Group] = []
    holes: list[_Hole] = []
    records: int = 0
    end: int = FIRST_GROUP
    footer: group.Group | None = None
    undecodable: int = 0


class _Check:
    """One run over one store."""

    def __init__(self, found: Survey) -> None:
        self.found = found
        self.notes = found.notes
        self.snapshots = found.valid_snapshots[:2]
        self.places = found.places()
        self.rows = {
            row.sequence: row for each in self.snapshots[::-1] for row in each.meta.segments
        }
        self.first = self._first_needed()
        # Newest first: whatever a later segment proves of an earlier one is there when it is read.
        needed = [n for n in self.places if n >= self.first or n in self.rows]
        logs = {n: _read_log(self.places[n]) for n in sorted(needed, reverse=True)}
        self.logs = dict(sorted(logs.items()))
        block = found.block
        self.durable = max(
            [
                0 if block is None else block.durable_upto,
                *(each.durable_upto for log in self.logs.values() for each in log.groups),
            ]
        )
        self.expected: int | None = None

    def _first_needed(self) -> int:
        """Where recovery begins to read when the newest snapshot is of no use to it."""
        start = self.snapshots[-1].start if self.snapshots else 0
        first = max(1, start >> 32)
        is_whole = len(self.found.snapshots) == 1 and self.places.keys() >= set(range(1, first))
        return 1 if is_whole else first

    def run(self, owner: str | None) -> VerifyReport:
        """The report."""
        files = [
            *self._superblock(),
            *self._snapshots(),
            *self._segments(),
            *self._others(),
        ]
        damages = [damage for each in files for damage in each.damages]
        lost = [damage.lost_records for damage in damages]
        is_missing = any(
            each.verdict is Verdict.MISSING and each.kind == "segment" for each in files
        )
        bad = {each.verdict for each in files}
        verdict = Verdict.TORN if Verdict.TORN in bad else Verdict.OK
        if bad & {Verdict.DAMAGED, Verdict.MISSING}:
            verdict = Verdict.DAMAGED
        return VerifyReport(
            verdict=verdict,
            in_use=owner,
            records=sum(each.records for each in files),
            rescued_records=sum(damage.rescued_records for damage in damages),
            lost_records=(
                None if is_missing or None in lost else sum(count or 0 for count in lost)
            ),
            files=files,
            notes=self.notes,
        )

    # -- the small files -------------------------------------------------------------------------

    def _superblock(self) -> Iterator[FileReport]:
        data = self.found.block_data
        report = FileReport(name=superblock.NAME, kind="superblock", size=len(data))
        if not self.found.slots:
            report.verdict, report.note = Verdict.MISSING, "the store cannot be opened without it"
            yield report
            return
        for number, slot in enumerate(self.found.slots):
            at = number * superblock.SLOT_BYTES
            if slot is None and any(data[at : at + superblock.SLOT_BYTES]):
                report.unreadable.append((at, at + _SLOT_USED_BYTES))
        if len(data) < 2 * superblock.SLOT_BYTES:
            report.unreadable.append((len(data), 2 * superblock.SLOT_BYTES))
            report.verdict, report.note = Verdict.DAMAGED, "cut short"
        elif report.unreadable:
            report.verdict, report.note = Verdict.TORN, "one copy is unreadable, the other is used"
        if self.found.block is None:
            report.verdict, report.note = Verdict.DAMAGED, "both copies are unreadable"
        yield report

    def _snapshots(self) -> Iterator[FileReport]:
        counted = 0
        for each in self.found.snapshots:
            report = FileReport(name=each.name, kind="snapshot", size=each.size)
            if each.found is None:
                is_old = counted == 2  # noqa: PLR2004 - the last two are kept
                report.verdict = Verdict.FREE if is_old else Verdict.DAMAGED
                report.note = each.problem
                report.unreadable = [(0, each.size)]
            counted += each.found is not None
            yield report
        block = self.found.block
        newest = max((each.generation for each in self.found.snapshots), default=0)
        if block is not None and block.snapshot_generation > newest:
            name = snapshot.name_of(block.snapshot_generation)
            yield FileReport(
                name=name, kind="snapshot", size=0, verdict=Verdict.MISSING,
                note="the superblock names it",
            )  # fmt: skip

    def _others(self) -> Iterator[FileReport]:
        known = {each.name for each in self.found.snapshots}
        known |= {each.file.name for each in self.found.segments} | {superblock.NAME}
        for name in self.found.names:
            if name not in known:
                note = "a torn tail put aside by recovery" if name.startswith("torn-") else ""
                yield FileReport(name=name, kind="other", size=0, verdict=Verdict.FREE, note=note)

    # -- the log ---------------------------------------------------------------------------------

    def _segments(self) -> Iterator[FileReport]:
        used = [n for n, log in self.logs.items() if log.groups or log.holes]
        last = max([*used, self._durable_place()], default=0)
        needed = sorted({*range(self.first, last + 1), *self.rows, *self.logs})
        before = 0
        for sequence in needed:
            if sequence != before + 1:
                self.expected = 0 if sequence == 1 else None
            before = sequence
            if sequence in self.places:
                yield self._segment(sequence)
            elif not self._was_given_back(sequence):
                yield self._missing(sequence)
        chosen = {id(segment) for segment in self.places.values()}
        for segment in self.found.segments:
            if segment.sequence not in self.logs or id(segment) not in chosen:
                yield self._unneeded(segment)

    def _durable_place(self) -> int:
        return self.durable >> 32 if self.durable & BYTE > FIRST_GROUP else 0

    def _was_given_back(self, sequence: int) -> bool:
        """True for a segment that ended where the snapshot starts and was free right after."""
        if sequence != self.first or sequence in self.rows or not self.snapshots:
            return False
        oldest = self.snapshots[-1]
        follower = self._first_group(sequence + 1)
        self.expected = oldest.meta.records
        return follower is None or follower.first_record == oldest.meta.records

    def _missing(self, sequence: int) -> FileReport:
        row = self.rows.get(sequence)
        self.expected = None
        return FileReport(
            name=row.name if row else f"place {sequence} of the log", kind="segment", size=0,
            verdict=Verdict.MISSING, place=sequence, note=f"place {sequence} of the log",
        )  # fmt: skip

    def _unneeded(self, segment: SegmentFile) -> FileReport:
        report = FileReport(
            name=segment.file.name, kind="segment", size=segment.file.size, verdict=Verdict.FREE
        )
        if segment.is_foreign:
            report.note = "belongs to another store"
        elif segment.sequence in self.logs:
            report.verdict = Verdict.DAMAGED
            report.note = f"claims place {segment.sequence} of the log, which another file holds"
        elif not segment.sequence and not segment.is_blank:
            report.verdict, report.note = Verdict.TORN, "no readable header"
            report.unreadable = [(0, _HEADER_BYTES)]
        return report

    def _segment(self, sequence: int) -> FileReport:
        segment, log = self.places[sequence], self.logs[sequence]
        report = FileReport(
            name=segment.file.name, kind="segment", size=segment.file.size, place=sequence,
            groups=len(log.groups), records=log.records,
        )  # fmt: skip
        if segment.named_by != "header":
            report.verdict, report.note = Verdict.DAMAGED, "the header is damaged"
            report.unreadable.append((0, _HEADER_BYTES))
        stretches: list[group.Group | _Hole] = [*log.groups, *log.holes]
        for stretch in sorted(stretches, key=_start):
            if isinstance(stretch, _Hole):
                self._hole(report, segment, log, stretch)
            else:
                self._group(report, stretch)
        if log.footer is None and not (log.holes and log.holes[-1].end >= log.end):
            self._vanished(report, segment, log)
        if log.undecodable:
            report.verdict = Verdict.DAMAGED
            report.note = f"{log.undecodable} record(s) are whole and say nothing known"
        if report.damages and log.footer is not None:
            report.lost_messages = _lost_messages(segment, log.footer, report.unreadable)
        return report

    def _group(self, report: FileReport, found: group.Group) -> None:
        if self.expected is not None and found.first_record != self.expected:
            report.verdict = Verdict.DAMAGED
            report.note = f"record {found.first_record} stands where {self.expected} should"
        self.expected = found.first_record + found.count

    def _hole(self, report: FileReport, segment: SegmentFile, log: _Log, hole: _Hole) -> None:
        later = next((g for g in log.groups if g.position & BYTE >= hole.end), None)
        row = self.rows.get(segment.sequence)
        if self.durable <= segment.base | hole.start and (row is None or row.end <= hole.start):
            report.verdict = max(report.verdict, Verdict.TORN, key=_BADNESS.index)
            report.note = f"a torn tail from byte {hole.start} on"
            self.expected = None
            return
        end = hole.end if later is not None else self._end_of(segment, hole.start, hole.end)
        self._damage(report, segment, hole._replace(end=end), later)

    def _vanished(self, report: FileReport, segment: SegmentFile, log: _Log) -> None:
        """The log stops here although more of this segment was durable once."""
        row = self.rows.get(segment.sequence)
        if self.durable > segment.base | log.end or (row is not None and row.end > log.end):
            size = segment.header.size if segment.header is not None else segment.file.size
            end = self._end_of(segment, log.end, max(size, log.end))
            self._damage(report, segment, _Hole(log.end, end, []), None)

    def _end_of(self, segment: SegmentFile, start: int, end: int) -> int:
        """Where something unreadable ended, as far as snapshot or superblock tell."""
        row = self.rows.get(segment.sequence)
        told = row.end if row is not None and row.footer else 0
        if self.durable >> 32 == segment.sequence:
            told = max(told, self.durable & BYTE)
        return told if told > start else end

    def _damage(
        self, report: FileReport, segment: SegmentFile, hole: _Hole, later: group.Group | None
    ) -> None:
        follower = later or self._first_group(segment.sequence + 1)
        lost = None
        if follower is not None and self.expected is not None:
            lost = follower.first_record - self.expected - len(hole.kept)
        if follower is not None:
            self.expected = follower.first_record
        else:
            self.expected = None
        name = segment.file.name
        report.verdict = Verdict.DAMAGED
        report.damages.append(
            Damage(segment.sequence, name, hole.start, hole.end, lost, len(hole.kept))
        )
        report.unreadable.extend(_between(hole))

    def _first_group(self, sequence: int) -> group.Group | None:
        log = self.logs.get(sequence)
        return log.groups[0] if log is not None and log.groups else None


_BADNESS: Final = [Verdict.FREE, Verdict.OK, Verdict.TORN, Verdict.DAMAGED, Verdict.MISSING]


def _read_log(segment: SegmentFile) -> _Log:
    log = _Log()
    for stretch in scan(segment):
        log.end = stretch.end
        log.records += len(stretch.rows)
        log.undecodable += sum(not _is_known(rec) for _, rec in stretch.rows)
        if stretch.group is None:
            kept = [
                (position & BYTE, (position & BYTE) + group.record_bytes(len(rec)))
                for position, rec in stretch.rows
            ]
            log.holes.append(_Hole(stretch.start, stretch.end, kept))
        else:
            log.groups.append(stretch.group)
            if stretch.group.flags & group.FOOTER:
                log.footer = stretch.group
    return log


def _is_known(rec: bytes) -> bool:
    try:
        decode(rec)
    except ProtocolError:
        return False
    return True


def _start(stretch: "group.Group | _Hole") -> int:
    return stretch.start if isinstance(stretch, _Hole) else stretch.position & BYTE


def _between(hole: _Hole) -> list[tuple[int, int]]:
    parts: list[tuple[int, int]] = []
    at = hole.start
    for start, end in hole.kept:
        if at < start:
            parts.append((at, start))
        at = end
    if at < hole.end:
        parts.append((at, hole.end))
    return parts


def _lost_messages(
    segment: SegmentFile, footer: group.Group, unreadable: list[tuple[int, int]]
) -> list[LostMessages]:
    at = footer.position & BYTE
    data = segment.file.pread(at, group.align(footer.length))
    payload = group.footer_payload(data, footer.position, segment.salt)
    found: list[LostMessages] = []
    for key, rows in decode_footer(payload or bytes(8)).items():
        number = (key & ~COPY_BIT) >> 16
        for row in range(0, len(rows), 3):
            first, last, packed = rows[row : row + 3]
            if any(start <= packed >> 32 < end for start, end in unreadable):
                found.append(LostMessages(number, key & 0xFFFF, first, last))
    return found


def _remark(report: FileReport) -> str:
    texts = [str(damage).removeprefix(f"{report.name} ") for damage in report.damages]
    return "; ".join([*([report.note] if report.note else []), *texts])
