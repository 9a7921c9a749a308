"""Snapshots: the state of the broker at a place in the log, so that recovery need not start at 1.

A file `snapshot-<generation>`, written under a temporary name, synced, renamed, read back:

    0  8s magic "PENSNAPS"  8 u16 major  10 u16 minor  12 u32 required features
    16 16s store id  32 u64 generation  40 u64 start position
    48 …  pieces: u32 length, bytes; a length of 0xFFFFFFFF ends them
    …  u64 checksum over everything before

The first piece is the journal's own (its segments); the others belong to whoever made them.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

import msgspec
from xxhash import xxh3_64, xxh3_64_intdigest

from penstock.journal.disk import Disk
from penstock.journal.segment import FORMAT_MAJOR, FORMAT_MINOR, check_version
from penstock.vocabulary.errors import StorageError

PREFIX: Final = "snapshot-"
_MAGIC: Final = b"PENSNAPS"
_HEAD: Final = Struct("<8sHHI16sQQ")
_LENGTH: Final = Struct("<I")
_SUM: Final = Struct("<Q")
_END: Final = 0xFFFFFFFF
_CHUNK_BYTES: Final = 256 * 1024


class SegmentRow(msgspec.Struct, frozen=True, array_like=True):
    """A segment the snapshot relies on."""

    sequence: int
    name: str
    salt: int
    size: int
    end: int
    footer: int
    is_damaged: bool


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """The journal's own piece."""

    records: int
    """Records written before the start position."""
    segments: list[SegmentRow]


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot read back and found whole."""

    generation: int
    start: int
    meta: Meta
    pieces: list[bytes]


def name_of(generation: int) -> str:
    """The file name of a snapshot."""
    return f"{PREFIX}{generation:012d}"


def generations(disk: Disk) -> list[int]:
    """Generations of the snapshot files in the folder, newest first."""
    found = [
        int(name.removeprefix(PREFIX))
        for name in disk.names()
        if name.startswith(PREFIX) and name.removeprefix(PREFIX).isdigit()
    ]
    return sorted(found, reverse=True)


def write(
    disk: Disk, store_id: bytes, generation: int, start: int, meta: Meta, pieces: Iterator[bytes]
) -> int:
    """Writes a snapshot and returns its size; it counts only after `read` found it whole."""
    temporary = name_of(generation) + ".tmp"
    if temporary in disk.names():
        disk.unlink(temporary)
    file = disk.create(temporary, 0)
    try:
        head = _HEAD.pack(_MAGIC, FORMAT_MAJOR, FORMAT_MINOR, 0, store_id, generation, start)
        checksum = xxh3_64()
        at = 0
        buffer = bytearray(head)
        for piece in _framed(meta, pieces):
            buffer += piece
            if len(buffer) >= _CHUNK_BYTES:
                checksum.update(buffer)
                file.pwrite(at, bytes(buffer))
                at += len(buffer)
                buffer.clear()
        checksum.update(buffer)
        buffer += _SUM.pack(checksum.intdigest())
        file.pwrite(at, bytes(buffer))
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, name_of(generation))
    disk.sync_names()
    return at + len(buffer)


def _framed(meta: Meta, pieces: Iterator[bytes]) -> Iterator[bytes]:
    first = msgspec.msgpack.encode(meta)
    yield _LENGTH.pack(len(first)) + first
    for piece in pieces:
        yield _LENGTH.pack(len(piece)) + piece
    yield _LENGTH.pack(_END)


def read(disk: Disk, generation: int, store_id: bytes) -> Snapshot:
    """The snapshot of this generation. Raises StorageError saying what is wrong with it."""
    file = disk.open(name_of(generation))
    try:
        data = file.pread(0, file.size)
    finally:
        file.close()
    return parse(data, generation, store_id)


def parse(data: bytes, generation: int, store_id: bytes | None) -> Snapshot:
    """A snapshot from its bytes. Raises StorageError saying what is wrong with it."""
    name = name_of(generation)
    if len(data) < _HEAD.size + _LENGTH.size + _SUM.size:
        raise StorageError(f"{name} is cut short at {len(data)} bytes")
    magic, major, _, required, owner, written, start = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise StorageError(f"{name} does not start like a snapshot")
    body = memoryview(data)[: len(data) - _SUM.size]
    if xxh3_64_intdigest(body) != _SUM.unpack_from(data, len(body))[0]:
        raise StorageError(f"{name} fails its checksum")
    check_version(major, required)
    if (store_id is not None and owner != store_id) or written != generation:
        raise StorageError(f"{name} belongs to another store or generation")
    pieces = list(_pieces(data))
    meta = msgspec.msgpack.decode(pieces[0], type=Meta)
    return Snapshot(generation, start, meta, pieces[1:])


def owner(data: bytes) -> bytes | None:
    """The id of the store a whole snapshot belongs to; None when it is not whole."""
    if len(data) < _HEAD.size + _SUM.size or data[: len(_MAGIC)] != _MAGIC:
        return None
    body = memoryview(data)[: len(data) - _SUM.size]
    is_whole = xxh3_64_intdigest(body) == _SUM.unpack_from(data, len(body))[0]
    return bytes(_HEAD.unpack_from(data)[4]) if is_whole else None


def _pieces(data: bytes) -> Iterator[bytes]:
    at = _HEAD.size
    while True:
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length == _END:
            return
        yield data[at : at + length]
        at += length
