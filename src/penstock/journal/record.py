"""One record ↔ its bytes. Pure.

Every record starts with the same twelve bytes; the hot kinds are packed by hand, the rare ones
are MessagePack. The checksum is not here: it binds a record to its place, so `group` adds it.

    0  u32 length of the record, this field included
    4  u8  kind            5  u8 flags (meaning depends on kind)
    6  u16 partition       8  u32 topic id
    12 …   the kind's own fields, drawn beside each Struct below
"""

from array import array
from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, Final

import msgspec

from penstock.vocabulary import records as r
from penstock.vocabulary.errors import ProtocolError

PREFIX: Final = Struct("<IBBHI")

# ledger, base, count, kept count, publisher, epoch (ms), target, sequence, published_at,
# then the kept indexes (u32) and the batch
_PUBLISHED: Final = Struct("<IBBHIIQII16sQIQq")
# ledger, count; offsets u64s; batch
_COPIED: Final = Struct("<IBBHIII")
# The subscription, then the ranges as u64 pairs; the flags are the outcome. Flag 128: there is one
# range, and behind it a mask tells which of its messages are meant.
_SETTLED: Final = Struct("<IBBHII")
# The subscription, consumer, start and end, then the mask; flag 1 says whether it was alone.
_DELIVERED: Final = Struct("<IBBHIIIQQ")
# The subscription, range count, delay_ms, decided_at, then the ranges and msgpack
# [reason, consumer]; the flags are the cause.
_RETURNED: Final = Struct("<IBBHIIIQq")

_MASKED: Final = 128
SPLIT_BYTES: Final = 8 * 1024
"""Batches above are not copied to stand behind their head."""

PUBLISHED, COPIED, SETTLED, DELIVERED, RETURNED, OTHER, UNIT = range(1, 8)

# The position in this tuple is the flags byte on disk: append only, never reorder.
_OTHERS: Final[tuple[Any, ...]] = (
    r.Removed,
    r.Lost,
    r.Skipped,
    r.TopicCreated,
    r.TopicAltered,
    r.TopicDeleted,
    r.SubscriptionCreated,
    r.SubscriptionAltered,
    r.SubscriptionDeleted,
    r.Attached,
    r.Detached,
    r.Started,
    r.ReaderOpened,
    r.ReaderMoved,
    r.Outlived,
    r.Sought,
    r.MemberExpired,
    r.PatternCreated,
    r.PatternDeleted,
    r.PartitionsAdded,
    r.UnitCommitted,
    r.Missed,
)
_OTHER_FLAG: Final = {kind: flag for flag, kind in enumerate(_OTHERS)}
_OTHER_DECODERS: Final = tuple(msgspec.msgpack.Decoder(kind) for kind in _OTHERS)
_TEXTS: Final = msgspec.msgpack.Decoder(tuple[str, str])
_encode_other: Final = msgspec.msgpack.Encoder().encode


def encode(record: r.Record) -> bytes:
    """The bytes of a record, without checksum."""
    encoder = _ENCODERS.get(type(record), _other)
    data = encoder(record)
    return data if isinstance(data, bytes) else b"".join(data)


def decode(data: bytes) -> r.Record:
    """The record in these bytes. Raises ProtocolError when they are not a record."""
    try:
        return _decode(data)
    except ProtocolError:
        raise
    except (ValueError, IndexError, OverflowError, StructError, msgspec.MsgspecError) as error:
        raise ProtocolError(f"unreadable record: {error}") from error


def _decode(data: bytes) -> r.Record:
    length, kind, flags, partition, topic_id = PREFIX.unpack_from(data)
    if length != len(data):
        raise ProtocolError(f"record of {len(data)} bytes says it has {length}")
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ProtocolError(f"unknown record kind {kind}")
    return decoder(data, flags, partition, topic_id)


def part_of(record: r.Record, key: int, offset: int) -> r.Published | r.Copied | None:
    """The part of a record that holds this message of this partition, or None."""
    for part in record.records if isinstance(record, r.Unit) else (record,):
        if isinstance(part, r.Published | r.Copied):
            offsets = part.offsets if isinstance(part, r.Copied) else range(part.base, part.end)
            if r.partition_key(part.topic_id, part.partition) == key and offset in offsets:
                return part
    return None


def encode_published(record: r.Published) -> bytes | tuple[bytes, bytes]:
    """The bytes of the commonest record; a large one in two parts, so that nothing is copied."""
    kept, batch = record.kept, record.batch
    extra = b"" if kept is None else array("I", kept).tobytes()
    head = _PUBLISHED.pack(
        _PUBLISHED.size + len(extra) + len(batch),
        PUBLISHED,
        0 if kept is None else 1,
        record.partition,
        record.topic_id,
        record.ledger,
        record.base,
        record.count,
        0 if kept is None else len(kept),
        record.publisher,
        record.epoch,
        record.target,
        record.sequence,
        record.published_at,
    )
    if len(batch) > SPLIT_BYTES:
        return head + extra, batch
    return head + extra + batch if extra else head + batch


def _read_published(data: bytes, flags: int, partition: int, topic_id: int) -> r.Published:
    fields = _PUBLISHED.unpack_from(data)
    ledger, base, count, kept_count, publisher, epoch, target, sequence, published_at = fields[5:]
    at = _PUBLISHED.size
    kept: tuple[int, ...] | None = None
    if flags & 1:
        kept = tuple(array("I", data[at : at + 4 * kept_count]))
        at += 4 * kept_count
        if len(kept) != count:
            raise ProtocolError(f"record keeps {len(kept)} messages and counts {count}")
    return r.Published(
        topic_id, partition, base, count, publisher, epoch, sequence, published_at, data[at:],
        kept, target, ledger,
    )  # fmt: skip


def _copied(record: r.Copied) -> bytes:
    tail = array("Q", record.offsets).tobytes() + record.batch
    count = len(record.offsets)
    return (
        _COPIED.pack(
            _COPIED.size + len(tail),
            COPIED,
            0,
            record.partition,
            record.topic_id,
            record.ledger,
            count,
        )
        + tail
    )


def _read_copied(data: bytes, _flags: int, partition: int, topic_id: int) -> r.Copied:
    ledger, count = _COPIED.unpack_from(data)[5:]
    at = _COPIED.size
    offsets = tuple(array("Q", data[at : at + 8 * count]))
    if not 0 < count == len(offsets):
        raise ProtocolError(f"copy holds {len(offsets)} messages and counts {count}")
    return r.Copied(topic_id, partition, offsets, data[at + 8 * count :], ledger)


def _settled(record: r.Settled) -> bytes:
    tail = _pack_ranges(record.ranges) + record.mask
    return (
        _SETTLED.pack(
            _SETTLED.size + len(tail),
            SETTLED,
            record.outcome | (_MASKED if record.mask else 0),
            record.partition,
            record.topic_id,
            record.subscription_id,
        )
        + tail
    )


def _read_settled(data: bytes, flags: int, partition: int, topic_id: int) -> r.Settled:
    subscription_id = _SETTLED.unpack_from(data)[5]
    end = _SETTLED.size + 16 if flags & _MASKED else len(data)
    ranges = _unpack_ranges(data[_SETTLED.size : end])
    outcome = r.Outcome(flags & ~_MASKED)
    return r.Settled(topic_id, partition, subscription_id, outcome, ranges, data[end:])


def _delivered(record: r.Delivered) -> bytes:
    return (
        _DELIVERED.pack(
            _DELIVERED.size + len(record.mask),
            DELIVERED,
            record.is_alone,
            record.partition,
            record.topic_id,
            record.subscription_id,
            record.consumer_id,
            record.start,
            record.end,
        )
        + record.mask
    )


def _read_delivered(data: bytes, flags: int, partition: int, topic_id: int) -> r.Delivered:
    subscription_id, consumer_id, start, end = _DELIVERED.unpack_from(data)[5:]
    mask = data[_DELIVERED.size :]
    return r.Delivered(
        topic_id, partition, subscription_id, start, end, bool(flags), consumer_id, mask
    )


def _returned(record: r.Returned) -> bytes:
    tail = _pack_ranges(record.ranges) + _encode_other((record.reason, record.consumer))
    return (
        _RETURNED.pack(
            _RETURNED.size + len(tail),
            RETURNED,
            record.cause,
            record.partition,
            record.topic_id,
            record.subscription_id,
            len(record.ranges),
            record.delay_ms,
            record.decided_at,
        )
        + tail
    )


def _read_returned(data: bytes, flags: int, partition: int, topic_id: int) -> r.Returned:
    subscription_id, count, delay_ms, decided_at = _RETURNED.unpack_from(data)[5:]
    at = _RETURNED.size
    ranges = _unpack_ranges(data[at : at + 16 * count])
    reason, consumer = _TEXTS.decode(data[at + 16 * count :])
    return r.Returned(
        topic_id, partition, subscription_id, r.Cause(flags), ranges, delay_ms, decided_at, reason,
        consumer,
    )  # fmt: skip


def _other(record: Any) -> bytes:
    body = _encode_other(record)
    partition = getattr(record, "partition", 0)
    topic_id = getattr(record, "topic_id", 0)
    flag = _OTHER_FLAG[type(record)]
    return PREFIX.pack(PREFIX.size + len(body), OTHER, flag, partition, topic_id) + body


def _read_other(data: bytes, flags: int, _partition: int, _topic_id: int) -> r.Record:
    if flags >= len(_OTHERS):
        raise ProtocolError(f"unknown record type {flags}")
    record: r.Record = _OTHER_DECODERS[flags].decode(data[PREFIX.size :])
    return record


def _unit(record: r.Unit) -> bytes:
    tail = b"".join(encode(part) for part in record.records)
    return PREFIX.pack(PREFIX.size + len(tail), UNIT, 0, 0, 0) + tail


def _read_unit(data: bytes, _flags: int, _partition: int, _topic_id: int) -> r.Unit:
    parts: list[r.Record] = []
    at = PREFIX.size
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        if length < PREFIX.size or at + length > len(data):
            raise ProtocolError(f"unit holds a part of {length} bytes that does not fit")
        if data[at + 4] == UNIT:
            raise ProtocolError("unit holds another unit")
        parts.append(decode(data[at : at + length]))
        at += length
    return r.Unit(tuple(parts))


def _pack_ranges(ranges: r.Ranges) -> bytes:
    flat = array("Q")
    for pair in ranges:
        flat.extend(pair)
    return flat.tobytes()


def _unpack_ranges(data: bytes) -> r.Ranges:
    flat = array("Q", data)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


_ENCODERS: Final[dict[Any, Callable[[Any], bytes | tuple[bytes, bytes]]]] = {
    r.Published: encode_published,
    r.Copied: _copied,
    r.Settled: _settled,
    r.Delivered: _delivered,
    r.Returned: _returned,
    r.Unit: _unit,
}
_DECODERS: Final[dict[int, Callable[[bytes, int, int, int], r.Record]]] = {
    PUBLISHED: _read_published,
    COPIED: _read_copied,
    SETTLED: _read_settled,
    DELIVERED: _read_delivered,
    RETURNED: _read_returned,
    OTHER: _read_other,
    UNIT: _read_unit,
}
