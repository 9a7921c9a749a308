"""What the files of a store still prove, whatever is broken in them. Never writes.

`survey` reads the small things: both copies of the superblock, every snapshot, and which place
of the log each segment file holds. `scan` reads one segment and tells groups from holes, with
every record a hole still proves. `verify` and `dump` show this to people; `broker.salvage` makes
a new store of it. Nothing here trusts one file alone: a lost superblock, snapshot or header is
made good by the others where they can.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from penstock.journal import group, snapshot, superblock
from penstock.journal.disk import Disk, File
from penstock.journal.segment import FIRST_GROUP, SEGMENT_PREFIX, Header, decode_header
from penstock.vocabulary.errors import StorageError, StoreTooNew

BYTE: Final = 0xFFFFFFFF
_PEEK_BYTES: Final = 64 * 1024


class SnapshotFile(msgspec.Struct, frozen=True):
    """A snapshot file: `found` when it is whole, else what is wrong with it."""

    name: str
    generation: int
    size: int
    found: snapshot.Snapshot | None
    problem: str = ""


class SegmentFile(msgspec.Struct):
    """A segment file and the place in the log it holds; sequence 0 = nobody can tell."""

    file: File
    header: Header | None
    sequence: int = 0
    salt: int = 0
    named_by: str = ""
    """What told the place: `header`, `groups`, `snapshot` or, when unknown, nothing."""
    is_foreign: bool = False
    is_blank: bool = False
    """The header was never written: a segment made ready and not used yet."""

    @property
    def base(self) -> int:
        """The log position of byte 0."""
        return self.sequence << 32


class Stretch(NamedTuple):
    """Bytes start…end of a segment: a whole group, or a hole with what can be rescued from it."""

    start: int
    end: int
    group: group.Group | None
    rows: list[tuple[int, bytes]]
    """(position, record) of everything readable here."""


class Survey(msgspec.Struct):
    """The small things of a store, and its segment files, open for reading."""

    names: list[str]
    slots: list[superblock.State | None]
    """The two copies in the superblock, None where unreadable; empty when the file is gone."""
    block_data: bytes
    """The superblock file as it is."""
    store_id: bytes | None
    snapshots: list[SnapshotFile]
    """Newest first."""
    segments: list[SegmentFile]
    notes: list[str]

    @property
    def block(self) -> superblock.State | None:
        """The newest readable copy in the superblock."""
        valid = [slot for slot in self.slots if slot is not None]
        return max(valid, key=lambda slot: slot.slot_generation, default=None)

    @property
    def valid_snapshots(self) -> list[snapshot.Snapshot]:
        """The snapshots that are whole, newest first."""
        return [each.found for each in self.snapshots if each.found is not None]

    def places(self) -> dict[int, SegmentFile]:
        """Segment files by place in the log; of two that claim one, the one whose header does.

        A spare file may hold groups of another place, left there by whatever damaged the store.
        """
        found: dict[int, SegmentFile] = {}
        for segment in sorted(self.segments, key=lambda each: each.named_by != "header"):
            if segment.sequence and not segment.is_foreign:
                found.setdefault(segment.sequence, segment)
        return dict(sorted(found.items()))

    def close(self) -> None:
        """Closes the segment files."""
        for segment in self.segments:
            segment.file.close()


# -- the small things ----------------------------------------------------------------------------


def survey(disk: Disk) -> Survey:
    """Looks at every file of a store. Raises StoreTooNew; the caller closes the survey."""
    names = disk.names()
    notes: list[str] = []
    block_data = _read(disk, superblock.NAME)
    slots = superblock.decode_slots(block_data) if superblock.NAME in names else []
    opened = [_open_segment(disk, name, notes) for name in names if _is_segment(name)]
    segments = [each for each in opened if each is not None]
    found = Survey(names, slots, block_data, None, [], segments, notes)
    found.store_id = _store_id(disk, found)
    snapshots = [_snapshot(disk, g, found.store_id) for g in snapshot.generations(disk)]
    found.snapshots = [each for each in snapshots if each is not None]
    rows = {row.name: row for each in found.valid_snapshots[:2][::-1] for row in each.meta.segments}
    settled = {
        each.header.sequence
        for each in found.segments
        if each.header is not None
        and each.header.store_id == found.store_id
        and (_begins(each, each.header) or _continues(each, each.header))
    }
    for segment in found.segments:
        _identify(segment, found.store_id, rows.get(segment.file.name), notes, settled)
    return found


def _is_segment(name: str) -> bool:
    return name.startswith(SEGMENT_PREFIX) and name.removeprefix(SEGMENT_PREFIX).isdigit()


def _open_segment(disk: Disk, name: str, notes: list[str]) -> SegmentFile | None:
    try:
        file = disk.open(name)
    except FileNotFoundError:
        notes.append(f"{name} vanished while the store was read")
        return None
    head = file.pread(0, FIRST_GROUP)
    return SegmentFile(file, decode_header(head), is_blank=not any(head))


def _store_id(disk: Disk, found: Survey) -> bytes | None:
    """Whose store this is: the superblock says; without one, most of the files do."""
    if found.block is not None:
        return found.block.store_id
    votes = Counter(each.header.store_id for each in found.segments if each.header is not None)
    for generation in snapshot.generations(disk):
        owner = snapshot.owner(_read(disk, snapshot.name_of(generation)))
        if owner is not None:
            votes[owner] += 1
    return votes.most_common(1)[0][0] if votes else None


def _snapshot(disk: Disk, generation: int, store_id: bytes | None) -> SnapshotFile | None:
    name = snapshot.name_of(generation)
    data = _read(disk, name)
    if not data and name not in disk.names():
        return None  # A running broker has removed it meanwhile.
    try:
        return SnapshotFile(name, generation, len(data), snapshot.parse(data, generation, store_id))
    except StoreTooNew:
        raise
    except StorageError as error:
        return SnapshotFile(name, generation, len(data), None, str(error))


def _read(disk: Disk, name: str) -> bytes:
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return b""
    try:
        return file.pread(0, file.size)
    finally:
        file.close()


# -- which segment is which ----------------------------------------------------------------------


def _identify(
    segment: SegmentFile, store_id: bytes | None, row: snapshot.SegmentRow | None,
    notes: list[str], settled: set[int],
) -> None:  # fmt: skip
    """Which place a file holds; groups of a place in `settled` are stray: another file holds it."""
    header = segment.header
    sequence = 0
    if header is not None:
        sequence = header.sequence
        segment.is_foreign = header.store_id != store_id
        segment.sequence, segment.salt, segment.named_by = sequence, header.salt, "header"
        if segment.is_foreign or _begins(segment, header):
            return
    data = segment.file.pread(0, segment.file.size)
    claims = _claims(data)
    proven = [
        claim
        for claim in claims
        if claim[0] > sequence and claim[0] not in settled and _holds_group(data, *claim)
    ]
    if header is not None and not proven:
        return
    if proven:
        segment.sequence, segment.salt = max(proven)
        segment.named_by = "groups"
    elif row is not None:
        segment.sequence, segment.salt, segment.named_by = row.sequence, row.salt, "snapshot"
    else:
        told = [claim for claim in claims if group.rescue(data, FIRST_GROUP, len(data), *claim)]
        if told:
            segment.sequence, segment.salt = max(told)
            segment.named_by = "groups"
    if segment.sequence:
        notes.append(
            f"the header of {segment.file.name} is damaged; its {segment.named_by} "
            f"name{'s' if segment.named_by == 'snapshot' else ''} it as place {segment.sequence}"
        )


def _begins(segment: SegmentFile, header: Header) -> bool:
    """True when the first group belongs to the life the header tells of, or there is none."""
    for length in (_PEEK_BYTES, segment.file.size):
        data = segment.file.pread(0, length)
        if data[FIRST_GROUP : FIRST_GROUP + len(group.MAGIC)] != group.MAGIC:
            return not any(data[FIRST_GROUP:_PEEK_BYTES])
        if group.parse(data, FIRST_GROUP, header.sequence, header.salt) is not None:
            return True
    return False


def _continues(segment: SegmentFile, header: Header) -> bool:
    """True when some group belongs to the life the header tells of, whatever lies before it."""
    data = segment.file.pread(0, segment.file.size)
    return _holds_group(data, header.sequence, header.salt)


def _claims(data: bytes) -> set[tuple[int, int]]:
    """(sequence, salt) that group headers in here claim, proven or not."""
    found: set[tuple[int, int]] = set()
    at = data.find(group.MAGIC, FIRST_GROUP)
    while at >= 0:
        claim = group.claimed_identity(data, at) if at % group.EDGE == 0 else None
        if claim is not None:
            found.add(claim)
        at = data.find(group.MAGIC, at + 1)
    return found


def _holds_group(data: bytes, sequence: int, salt: int) -> bool:
    return group.find_next(data, FIRST_GROUP, sequence, salt) is not None


# -- one segment ---------------------------------------------------------------------------------


def scan(segment: SegmentFile) -> Iterator[Stretch]:
    """Groups and holes of a segment, in order; what was never used in this life is left out.

    A last group of which not one byte is left looks like bytes never used.
    """
    data = segment.file.pread(0, segment.file.size)
    sequence, salt = segment.sequence, segment.salt
    at = FIRST_GROUP
    while at < len(data):
        found = group.parse(data, at, sequence, salt)
        if found is not None:
            is_footer = bool(found.flags & group.FOOTER)
            yield Stretch(at, found.end, found, [] if is_footer else group.records(data, found))
            if is_footer:
                return
            at = found.end
            continue
        later = group.find_next(data, at, sequence, salt)
        upto = len(data) if later is None else later.position & BYTE
        rows = group.rescue(data, at, upto, sequence, salt)
        if later is None and not rows and not group.holds_salt(data, at, salt):
            return
        yield Stretch(at, upto, None, rows)
        at = upto


def read_row(segment: SegmentFile, position: int, length: int) -> bytes | None:
    """One record again, by the position and length `scan` told; None when it is gone."""
    byte = position & BYTE
    data = segment.file.pread(byte, group.RECORD_OVERHEAD + length)
    return group.read_record(data, 0, position, segment.salt)
