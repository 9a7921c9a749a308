"""A segment: one file of the log in its present life, and the header that says which life.

0   8s  magic "PENSTOCK"      8  u16 format major   10 u16 format minor
12  u32 required features (an unknown bit refuses)   16 u32 optional features (ignored)
20  u32 reserved              24 16s store id
40  u64 sequence number       48 u64 salt            56 u64 size in bytes
64  u64 checksum (xxh3-64) over the bytes before it; zeros up to 512, where groups begin
"""

from struct import Struct
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from penstock.journal.disk import File
from penstock.journal.group import EDGE
from penstock.vocabulary.errors import StoreTooNew

SEGMENT_PREFIX: Final = "segment-"
"""Names of segment files begin with it; a number follows."""
MAGIC: Final = b"PENSTOCK"
FORMAT_MAJOR: Final = 1
FORMAT_MINOR: Final = 0
FEATURES_KNOWN: Final = 0
FIRST_GROUP: Final = EDGE

_HEADER: Final = Struct("<8sHHIII16sQQQ")
_SUM: Final = Struct("<Q")


class Header(NamedTuple):
    """Which store, place in the log and life a segment file belongs to."""

    store_id: bytes
    sequence: int
    salt: int
    size: int


class Segment:
    """One file of the log. `end` is the byte where the next group goes."""

    __slots__ = (
        "empty_at", "end", "file", "footer", "is_damaged", "live", "salt", "sequence", "size",
        "stored",
    )  # fmt: skip

    def __init__(self, file: File, sequence: int, salt: int, size: int) -> None:
        self.file = file
        self.sequence = sequence
        self.salt = salt
        self.size = size
        self.end = FIRST_GROUP
        self.footer = 0
        """Byte where the footer starts; 0 = still open, -1 = damage took the footer."""
        self.stored = 0
        """Messages ever stored here, to judge how full it still is."""
        self.live = 0
        """Messages stored here that something still holds."""
        self.empty_at: int | None = None
        """Log position at which the last live message had gone (sealed segments)."""
        self.is_damaged = False

    @property
    def is_sealed(self) -> bool:
        """True when nothing more is written to this segment."""
        return self.footer != 0

    def is_free(self, start: int) -> bool:
        """True when the snapshot starting at `start` already knows that nothing here is needed."""
        return (
            self.is_sealed
            and not self.is_damaged
            and self.live == 0
            and self.empty_at is not None
            and self.empty_at <= start
            and self.base + self.end <= start
        )

    @property
    def base(self) -> int:
        """The log position of byte 0."""
        return self.sequence << 32


def encode_header(header: Header) -> bytes:
    """512 bytes that open a segment's life."""
    head = _HEADER.pack(
        MAGIC, FORMAT_MAJOR, FORMAT_MINOR, 0, 0, 0, header.store_id, header.sequence, header.salt,
        header.size,
    )  # fmt: skip
    return (head + _SUM.pack(xxh3_64_intdigest(head))).ljust(EDGE, b"\0")


def decode_header(data: bytes) -> Header | None:
    """The header, or None when these bytes are not one. Raises StoreTooNew."""
    if len(data) < _HEADER.size + _SUM.size:
        return None
    fields = _HEADER.unpack_from(data)
    magic, major, _minor, required = fields[:4]
    if magic != MAGIC:
        return None
    if _SUM.unpack_from(data, _HEADER.size)[0] != xxh3_64_intdigest(data[: _HEADER.size]):
        return None
    check_version(major, required)
    return Header(*fields[6:])


def check_version(major: int, required: int) -> None:
    """Raises StoreTooNew when this code cannot read the format."""
    if major > FORMAT_MAJOR or required & ~FEATURES_KNOWN:
        raise StoreTooNew(
            f"the store has format {major} with features {required:#x}; this version of Penstock "
            f"reads format {FORMAT_MAJOR} with features {FEATURES_KNOWN:#x}: install a newer "
            "Penstock to open it"
        )
