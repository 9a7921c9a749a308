"""Slices and other lists of stored batches on the wire.

    SLICE   u64 lease, u64 start, u64 end, u32 partition, u32 attempt, then frames
    frame   u32 length of the batch, u32 count, u8 lists (1 = offsets, 2 = indexes), 3 zeros,
            u32 first index, i64 published_at, publisher 16 bytes, u64 epoch, u64 sequence,
            u64 first offset, [u64 offsets], [u32 indexes], batch

Offsets and indexes that lie one behind the other are told by their first. A slice of many frames
goes in several parts, each but the last with the flag MORE; a part without frames ends one.
"""

from collections.abc import Iterable, Sequence
from struct import Struct, pack, unpack_from
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final

from penstock.batch.frame import Frame, Slice
from penstock.vocabulary.errors import ProtocolError
from penstock.vocabulary.limits import BATCH_COUNT_MAX
from penstock.wire.frames import MORE, PART_BYTES_CUT, frame_of

_SLICE: Final = Struct("<QQQII")
_FRAME: Final = Struct("<IIB3xIq16sQQQ")
_pack_frame = _FRAME.pack
_unpack_frame = _FRAME.unpack_from
_OFFSETS: Final = 1
_INDEXES: Final = 2


def slice_frames(kind: int, channel: int, part: Slice) -> list[bytes]:
    """A slice as the pieces of one frame or more."""
    head = _SLICE.pack(part.lease_id, part.start, part.end, part.partition, part.attempt)
    return _in_parts(kind, channel, head, part.frames)


def list_frames(kind: int, number: int, head: bytes, frames: Iterable[Frame]) -> list[bytes]:
    """Stored batches behind a head of their own, which every part repeats."""
    return _in_parts(kind, number, head, frames)


def _in_parts(kind: int, number: int, head: bytes, frames: Iterable[Frame]) -> list[bytes]:
    pieces: list[bytes] = []
    held = [head]
    size = 0
    for each in frames:
        if size and size + len(each.batch) > PART_BYTES_CUT:
            pieces += frame_of(kind, number, held, MORE)
            held, size = [head], 0
        held += (frame_head(each), each.batch)
        size += len(held[-2]) + len(held[-1])
    pieces += frame_of(kind, number, held)
    return pieces


def frame_head(frame: Frame) -> bytes:
    """What stands before a batch."""
    offsets, indexes = frame.offsets, frame.indexes
    count, lists, behind = len(offsets), 0, b""
    if not _is_run(offsets):
        lists = _OFFSETS
        behind = pack(f"<{count}Q", *offsets)
    if not _is_run(indexes):
        lists |= _INDEXES
        behind += pack(f"<{count}I", *indexes)
    head = _pack_frame(
        len(frame.batch), count, lists, indexes[0] if count else 0, frame.published_at,
        frame.publisher, frame.epoch, frame.sequence, offsets[0] if count else 0,
    )  # fmt: skip
    return head + behind if lists else head


def _is_run(numbers: Sequence[int]) -> bool:
    return isinstance(numbers, range) and numbers.step == 1


def read_slice(payload: memoryview) -> Slice:
    """A slice, or a part of one. Raises ProtocolError."""
    try:
        lease_id, start, end, partition, attempt = _SLICE.unpack_from(payload)
        return Slice(lease_id, partition, start, end, attempt, read_frames(payload, _SLICE.size))
    except StructError as error:
        raise ProtocolError(f"a slice cannot be decoded: {error}") from error


def read_frames(payload: memoryview, at: int) -> list[Frame]:
    """The stored batches from a place on, to the end; each batch is a copy.

    Raises ProtocolError.
    """
    found: list[Frame] = []
    size = len(payload)
    try:
        while at < size:
            length, count, lists, index, published_at, publisher, epoch, sequence, offset = (
                _unpack_frame(payload, at)
            )
            at += _FRAME.size
            if count > BATCH_COUNT_MAX:
                raise ProtocolError(f"a frame of a slice has {count} messages")
            offsets: Sequence[int] = range(offset, offset + count)
            indexes: Sequence[int] = range(index, index + count)
            if lists & _OFFSETS:
                offsets = list(unpack_from(f"<{count}Q", payload, at))
                at += 8 * count
            if lists & _INDEXES:
                indexes = list(unpack_from(f"<{count}I", payload, at))
                at += 4 * count
            end = at + length
            if end > size:
                raise ProtocolError("a batch of a slice is not there")
            batch = bytes(payload[at:end])
            found.append(Frame(batch, offsets, indexes, published_at, publisher, epoch, sequence))
            at = end
    except StructError as error:
        raise ProtocolError(f"a slice cannot be decoded: {error}") from error
    return found
