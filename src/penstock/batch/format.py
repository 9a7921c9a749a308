"""How a batch lies in memory: its constants, and its directory written and read.

`encode` fills the columns and `view` opens them. This module knows where they are and never
looks inside, except at the count in front of a MessagePack array.

All numbers are little endian:

    +----+----+---------+-----------+-----------+
    | u8 | u8 | u16     | u32       | u32       |
    | 1  | 0  | columns | count     | length    |   version, flags, ..., whole length in bytes
    +----+----+---------+-----------+-----------+
    | u32 kind | u32 length |  ...  one entry for each column, kinds rising
    +-----------------------+
    | column bytes | column bytes | ...  back to back, in the order of the directory
    +-----------------------------+
    | u64 xxh3-64 of all before |
    +---------------------------+

A column whose every value is the default is left out:

     1 BODIES        MessagePack array of bin | nil           nil = no body, not an empty one
     2 KEYS          MessagePack array of str | bin | nil
     3 IDS           MessagePack array of str | nil
     4 HEADERS       MessagePack array of map str -> str | nil
     5 KEY_HASHES    u64 each, xxh3-64 of the key's bytes, 0 = no key; present iff KEYS is
     6 PRIORITIES    i16 each
     7 DELIVER_AT    i64 each, Unix milliseconds, 0 = none
     8 EXPIRES_AT    i64 each, Unix milliseconds, 0 = none
     9 PUBLISHED_AT  i64 each, Unix milliseconds; re-homed messages only
    10 ATTEMPTS      u32 each; re-homed messages only

A reader skips an unknown kind whose highest bit is set and refuses any other unknown kind.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from xxhash import xxh3_64, xxh3_64_intdigest

from penstock.vocabulary.errors import MalformedBatch
from penstock.vocabulary.limits import BATCH_COUNT_MAX

VERSION: Final = 1
HEADER: Final = Struct("<BBHII")
CHECKSUM: Final = Struct("<Q")
ENTRY: Final = Struct("<II")
ENTRY_BYTES: Final = ENTRY.size
COLUMN_COUNT_MAX: Final = 64

BODIES: Final = 1
KEYS: Final = 2
IDS: Final = 3
HEADERS: Final = 4
KEY_HASHES: Final = 5
PRIORITIES: Final = 6
DELIVER_AT: Final = 7
EXPIRES_AT: Final = 8
PUBLISHED_AT: Final = 9
ATTEMPTS: Final = 10
OPTIONAL: Final = 0x8000_0000

PACKED: Final = {
    KEY_HASHES: ("Q", 8),
    PRIORITIES: ("h", 2),
    DELIVER_AT: ("q", 8),
    EXPIRES_AT: ("q", 8),
    PUBLISHED_AT: ("q", 8),
    ATTEMPTS: ("I", 4),
}
"""Letter of `struct` and width in bytes of each packed column."""

SHORT_ARRAYS: Final = range(0x90, 0xA0)
LONG_ARRAYS: Final = {0xDC: 2, 0xDD: 4}
"""First bytes of MessagePack arrays; the long ones with the width of their count."""

Spans = dict[int, tuple[int, int]]
"""Where each column starts and ends."""


def assemble(count: int, columns: Sequence[tuple[int, bytes]]) -> bytes:
    """The batch of these columns; `columns` has rising kinds."""
    directory = b""
    parts = [b""]
    length = HEADER.size + ENTRY_BYTES * len(columns) + CHECKSUM.size
    for kind, column in columns:
        directory += ENTRY.pack(kind, len(column))
        parts.append(column)
        length += len(column)
    parts[0] = HEADER.pack(VERSION, 0, len(columns), count, length) + directory
    # Large batches are copied once only, hence a checksum part by part.
    checksum = xxh3_64()
    for part in parts:
        checksum.update(part)
    parts.append(CHECKSUM.pack(checksum.intdigest()))
    return b"".join(parts)


def read_directory(data: bytes, *, verify: bool) -> tuple[int, Spans]:
    """The message count and the span of every known column. Raises MalformedBatch.

    Afterwards the directory fills the batch exactly, and every known column holds as many
    values as the batch has messages: packed ones by their length, the others by their word.
    """
    if len(data) < HEADER.size + CHECKSUM.size:
        raise MalformedBatch(f"batch of {len(data)} bytes is shorter than any batch")
    version, flags, column_count, count, length = HEADER.unpack_from(data)
    if version != VERSION:
        raise MalformedBatch(f"batch has version {version}; this program reads {VERSION}")
    if length != len(data):
        raise MalformedBatch(f"batch of {len(data)} bytes says it has {length}")
    if verify:
        _verify_checksum(data)
    if flags:
        raise MalformedBatch(f"batch has unknown flags {flags:#04x}")
    if not 1 <= count <= BATCH_COUNT_MAX:
        raise MalformedBatch(f"batch of {count} messages; allowed are 1 to {BATCH_COUNT_MAX}")
    spans = _read_spans(data, column_count, count)
    if (KEYS in spans) != (KEY_HASHES in spans):
        raise MalformedBatch("batch has one of the columns keys and key hashes without the other")
    return count, spans


def _verify_checksum(data: bytes) -> None:
    end = len(data) - CHECKSUM.size
    if CHECKSUM.unpack_from(data, end)[0] != xxh3_64_intdigest(memoryview(data)[:end]):
        raise MalformedBatch("batch does not match its checksum")


def _read_spans(data: bytes, column_count: int, count: int) -> Spans:
    start = HEADER.size + ENTRY_BYTES * column_count
    columns_end = len(data) - CHECKSUM.size
    if column_count > COLUMN_COUNT_MAX or start > columns_end:
        raise MalformedBatch(f"batch of {len(data)} bytes cannot hold {column_count} columns")
    spans: Spans = {}
    last_kind = 0
    for kind, length in ENTRY.iter_unpack(data[HEADER.size : start]):
        end = start + length
        if kind <= last_kind:
            raise MalformedBatch(f"batch names column {kind} after column {last_kind}")
        if end > columns_end:
            raise MalformedBatch(f"column {kind} ends {end - columns_end} bytes after the columns")
        if kind <= ATTEMPTS:
            _check_count(data, kind, start, end, count)
            spans[kind] = (start, end)
        elif kind < OPTIONAL:
            raise MalformedBatch(f"batch has a column of unknown kind {kind}")
        start, last_kind = end, kind
    if start != columns_end:
        raise MalformedBatch(f"batch has {columns_end - start} bytes after its last column")
    return spans


def _check_count(data: bytes, kind: int, start: int, end: int, count: int) -> None:
    if kind in PACKED:
        width = PACKED[kind][1]
        if end - start != count * width:
            raise MalformedBatch(
                f"column {kind} has {end - start} bytes; {count} values need {count * width}"
            )
        return
    found = _array_count(data, start, end)
    if found != count:
        raise MalformedBatch(f"column {kind} holds {found} values; the batch has {count} messages")


def _array_count(data: bytes, start: int, end: int) -> int:
    # The first byte of a short array is its count; a longer one has it behind, big endian.
    first = data[start] if start < end else 0
    if first in SHORT_ARRAYS:
        return first - SHORT_ARRAYS.start
    width = LONG_ARRAYS.get(first, 0)
    if not width or end - start < 1 + width:
        raise MalformedBatch(f"the column at byte {start} is not a MessagePack array")
    return int.from_bytes(data[start + 1 : start + 1 + width], "big")
