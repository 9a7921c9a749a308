"""Records in groups: what one write and one sync make durable together. Pure.

A group starts on a 512-byte edge of its segment:

    0   4s  magic "PGRP"
    4   u32 record count
    8   u32 length in bytes, header included, padding to the next edge not
    12  u32 flags (1 = footer: the payload is the index of a sealed segment, not records)
    16  u64 position of this group in the log
    24  u64 durable_upto: the log was synced up to here when this group was written
    32  u64 salt of the segment's present life
    40  u64 number of the group's first record since the store began
    48  u64 checksum over header and payload
    56  …   per record: u64 checksum, the record, zeros up to a multiple of 8

A record's checksum is seeded with salt and position, so bytes from another place or an earlier
life of the segment never pass. A position is `segment sequence << 32 | byte in the segment`.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

import msgspec
from xxhash import xxh3_64, xxh3_64_intdigest

from penstock.vocabulary.limits import MIB

EDGE: Final = 512
MAGIC: Final = b"PGRP"
FOOTER: Final = 1

_HEAD: Final = Struct("<4sIIIQQQQ")
_SUM: Final = Struct("<Q")
HEADER_BYTES: Final = _HEAD.size + _SUM.size
RECORD_OVERHEAD: Final = _SUM.size
_RECORD_MIN: Final = 12
KIND_MAX: Final = 7
_PADS: Final = tuple(bytes(n) for n in range(EDGE))
_SEARCH_BYTES: Final = 64 * 1024
_SALT_AT: Final = 32
TORN_BYTES_MAX: Final = 16 * MIB
"""No group is larger."""


Encoded = bytes | tuple[bytes, bytes]
"""The bytes of a record: in one piece, or a large one as its head and its tail."""


class Group(msgspec.Struct, frozen=True, gc=False):
    """A group found valid in a segment."""

    position: int
    count: int
    length: int
    flags: int
    durable_upto: int
    first_record: int

    @property
    def end(self) -> int:
        """Byte in the segment where the next group may start."""
        return align(self.position & 0xFFFFFFFF) + align(self.length)


def align(length: int) -> int:
    """The next 512-byte edge at or above `length`."""
    return (length + EDGE - 1) & ~(EDGE - 1)


def record_bytes(length: int) -> int:
    """Bytes a record of this length takes inside a group."""
    return RECORD_OVERHEAD + ((length + 7) & ~7)


def build(
    buffer: memoryview, records: Sequence[Encoded], position: int, durable_upto: int, salt: int,
    first_record: int,
) -> tuple[memoryview, list[int]]:  # fmt: skip
    """A group ready to write, made in `buffer` and padded to an edge, and each record's position.

    Large records come as (head, tail), so that they are copied once only.
    """
    parts: list[bytes] = []
    """Small pieces not yet in the buffer, where they start at `start`."""
    places: list[int] = []
    start = end = HEADER_BYTES
    pack = _SUM.pack
    for record in records:
        place = position + end
        places.append(place)
        if isinstance(record, bytes):
            length = len(record)
            parts.append(pack(xxh3_64_intdigest(record, salt ^ place)))
            parts.append(record)
            end += 8 + length
        else:
            head, tail = record
            length = len(head) + len(tail)
            digest = xxh3_64(head, salt ^ place)
            digest.update(tail)
            parts += (pack(digest.intdigest()), head)
            end += 8 + length
            buffer[start : end - len(tail)] = b"".join(parts)
            buffer[end - len(tail) : end] = tail
            parts.clear()
            start = end
        pad = -length & 7
        if pad:
            parts.append(_PADS[pad])
            end += pad
    buffer[start:end] = b"".join(parts)
    return _close(buffer, end, len(records), 0, position, durable_upto, salt, first_record), places


def build_footer(
    buffer: memoryview, payload: bytes, position: int, durable_upto: int, salt: int,
    first_record: int,
) -> memoryview:  # fmt: skip
    """The last group of a sealed segment, made in `buffer`."""
    end = HEADER_BYTES + len(payload)
    buffer[HEADER_BYTES:end] = payload
    return _close(buffer, end, 0, FOOTER, position, durable_upto, salt, first_record)


def _close(
    buffer: memoryview, length: int, count: int, flags: int, position: int, durable_upto: int,
    salt: int, first_record: int,
) -> memoryview:  # fmt: skip
    head = _HEAD.pack(MAGIC, count, length, flags, position, durable_upto, salt, first_record)
    payload = buffer[HEADER_BYTES:length]
    checksum = xxh3_64_intdigest(payload, xxh3_64_intdigest(head, salt))
    buffer[:HEADER_BYTES] = head + _SUM.pack(checksum)
    end = align(length)
    buffer[length:end] = _PADS[end - length]
    return buffer[:end]


def parse(data: bytes | memoryview, at: int, sequence: int, salt: int) -> Group | None:
    """The group at byte `at` of a segment, or None when there is no valid one."""
    return _parse(data, at, sequence << 32 | at, salt)


def footer_payload(data: bytes, position: int, salt: int) -> bytes | None:
    """The index in the footer group that `data` starts with, or None when it is not whole."""
    found = _parse(data, 0, position, salt)
    if found is None or not found.flags & FOOTER:
        return None
    return data[HEADER_BYTES : found.length]


def _parse(data: bytes | memoryview, at: int, place: int, salt: int) -> Group | None:
    if at + HEADER_BYTES > len(data):
        return None
    magic, count, length, flags, position, durable_upto, found_salt, first = _HEAD.unpack_from(
        data, at
    )
    if magic != MAGIC or found_salt != salt or position != place:
        return None
    if length < HEADER_BYTES or at + length > len(data):
        return None
    view = memoryview(data)
    seed = xxh3_64_intdigest(view[at : at + _HEAD.size], salt)
    if (
        xxh3_64_intdigest(view[at + HEADER_BYTES : at + length], seed)
        != _SUM.unpack_from(data, at + _HEAD.size)[0]
    ):
        return None
    return Group(position, count, length, flags, durable_upto, first)


def peek_identity(data: bytes | memoryview, at: int) -> tuple[int, int] | None:
    """(sequence, salt) claimed by a group at `at`, checked only by its own checksum."""
    claim = claimed_identity(data, at)
    return claim if claim is not None and parse(data, at, *claim) is not None else None


def claimed_identity(data: bytes | memoryview, at: int) -> tuple[int, int] | None:
    """(sequence, salt) in what looks like a group header at `at`; nothing proves it."""
    if at + HEADER_BYTES > len(data):
        return None
    magic, _, _, _, position, _, salt, _ = _HEAD.unpack_from(data, at)
    return (position >> 32, salt) if magic == MAGIC else None


def find_next(data: bytes, at: int, sequence: int, salt: int) -> Group | None:
    """The first valid group on an edge at or after `at`."""
    mark = _SUM.pack(salt)
    place = data.find(mark, at)
    while place >= 0:
        start = place - _SALT_AT
        if start >= at and start % EDGE == 0:
            group = parse(data, start, sequence, salt)
            if group is not None:
                return group
        place = data.find(mark, place + 1)
    return None


def holds_salt(data: bytes, at: int, salt: int) -> bool:
    """True when something of this segment's present life was written at or after `at`."""
    return data.find(_SUM.pack(salt), at) >= 0


def is_claimed(data: bytes, at: int, sequence: int) -> bool:
    """True when the header at `at` names this very place, whatever else is wrong with it."""
    if at + HEADER_BYTES > len(data):
        return False
    return bool(_HEAD.unpack_from(data, at)[4] == sequence << 32 | at)


def records(data: bytes | memoryview, group: Group) -> list[tuple[int, bytes]]:
    """(position, bytes) of each record of a group that `parse` found valid."""
    found: list[tuple[int, bytes]] = []
    base = group.position & ~0xFFFFFFFF
    at = (group.position & 0xFFFFFFFF) + HEADER_BYTES
    for _ in range(group.count):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        found.append((base | at, bytes(data[at + 8 : at + 8 + length])))
        at += record_bytes(length)
    return found


def read_record(data: bytes | memoryview, at: int, position: int, salt: int) -> bytes | None:
    """The record at byte `at`, or None when its own checksum does not hold there."""
    if at + RECORD_OVERHEAD + _RECORD_MIN > len(data):
        return None
    length = int.from_bytes(data[at + 8 : at + 12], "little")
    if length < _RECORD_MIN or at + 8 + length > len(data):
        return None
    record = memoryview(data)[at + 8 : at + 8 + length]
    if xxh3_64_intdigest(record, salt ^ position) != _SUM.unpack_from(data, at)[0]:
        return None
    return bytes(record)


def rescue(
    data: bytes | memoryview, start: int, end: int, sequence: int, salt: int
) -> list[tuple[int, bytes]]:
    """Every record in a damaged stretch that its own checksum still proves."""
    found: list[tuple[int, bytes]] = []
    view = memoryview(data)[:end]
    free = start
    for at in _candidates(view, start):
        if at < free:
            continue
        position = sequence << 32 | at
        record = read_record(view, at, position, salt)
        if record is not None:
            found.append((position, record))
            free = at + record_bytes(len(record))
    return found


def _candidates(view: memoryview, start: int) -> Iterator[int]:
    """Bytes from `start` on where the length and kind of a record may stand."""
    end = len(view)
    for block in range(start, end, _SEARCH_BYTES):
        stop = min(block + _SEARCH_BYTES + RECORD_OVERHEAD, end)
        lengths = view[block : stop - (stop - block) % 8].cast("I")[2::2].tolist()
        for row, length in enumerate(lengths):
            if length >= _RECORD_MIN:
                at = block + 8 * row
                if length <= end - at - RECORD_OVERHEAD and 1 <= view[at + 12] <= KIND_MAX:
                    yield at
