"""What to copy of a running journal so that the copy is a whole store.

The newest snapshot, every segment it or the log after it needs, each only as far as it was durable
at one position, and a superblock that says so. Segments only grow until they are used again, which
`Journal.is_pinned` prevents: so the bytes chosen here stay as they are while they are read.
"""

from typing import NamedTuple

import msgspec

from penstock.journal import snapshot, superblock
from penstock.journal.journal import Journal
from penstock.journal.segment import Segment

_BYTE = 0xFFFFFFFF


class Source(NamedTuple):
    """Where the bytes of one file of the copy come from."""

    name: str
    size: int
    used: int
    segment: Segment | None = None
    content: bytes | None = None
    """Given when the file is made for the copy."""


class Copy(NamedTuple):
    """A whole store at one position."""

    store_id: bytes
    position: int
    sources: list[Source]


def plan(journal: Journal) -> Copy:
    """The files of a copy of everything durable now. The journal is pinned since before."""
    position = journal.durable_upto
    generation, start = journal.snapshots[0] if journal.snapshots else (0, 0)
    state = msgspec.structs.replace(
        journal.block.state,
        slot_generation=1,
        durable_upto=position,
        snapshot_generation=generation,
        is_clean=False,
    )
    block = bytes(superblock.SLOT_BYTES) + superblock.encode_slot(state)
    found = [Source(superblock.NAME, 2 * superblock.SLOT_BYTES, len(block), content=block)]
    if generation:
        name = snapshot.name_of(generation)
        length = _length(journal, name)
        found.append(Source(name, length, length))
    last, segments = position >> 32, journal.index.segments
    for segment in sorted(segments.values(), key=lambda s: s.sequence):
        if segment.sequence > last or (generation and segment.is_free(start)):
            continue
        used = position & _BYTE if segment.sequence == last else segment.end
        found.append(Source(segment.file.name, segment.size, used, segment))
    return Copy(journal.store_id, position, found)


def read(journal: Journal, source: Source, start: int, length: int) -> bytes:
    """Bytes of one file of the copy. Raises OSError."""
    length = max(0, min(length, source.used - start))
    if source.content is not None:
        return source.content[start : start + length]
    if source.segment is not None:
        return source.segment.file.pread(start, length)
    file = journal.disk.open(source.name)
    try:
        return file.pread(start, length)
    finally:
        file.close()


def _length(journal: Journal, name: str) -> int:
    file = journal.disk.open(name)
    try:
        return file.size
    finally:
        file.close()
