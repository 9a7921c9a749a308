"""Which group sizes the journal really wrote: read back from the segments of a closed store."""

from pathlib import Path
from typing import Final

from penstock.journal import group
from penstock.journal.segment import FIRST_GROUP, decode_header

SIZES_MAX: Final = 20_000


def group_sizes(folder: Path) -> list[int]:
    """Bytes of each group, in the order of the log, the newest when there are very many."""
    found: list[tuple[int, list[int]]] = []
    for path in sorted(folder.glob("segment-*")):
        data = path.read_bytes()
        header = decode_header(data[:FIRST_GROUP])
        if header is not None:
            found.append((header.sequence, _in_segment(data, header.sequence, header.salt)))
    sizes = [size for _, rows in sorted(found) for size in rows]
    return sizes[-SIZES_MAX:]


def _in_segment(data: bytes, sequence: int, salt: int) -> list[int]:
    sizes: list[int] = []
    at = FIRST_GROUP
    while at < len(data):
        found = group.parse(data, at, sequence, salt)
        if found is None or found.flags & group.FOOTER:
            break
        sizes.append(found.end - at)
        at = found.end
    return sizes
