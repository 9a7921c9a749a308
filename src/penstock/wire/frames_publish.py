"""Publishes and units on the wire: a short head, then the batches as their publisher made them.

    PUBLISH   publisher 16 bytes, u64 epoch, u64 sequence, u32 refusals, u32 count, u32 partition,
              u32 partitions, u16 length of the topic, topic, batch
    STORED    i64 base (-1 = not known), u8 durability, u8 is duplicate, then MessagePack
              [kept, places] when there is any
    UNIT      u32 length of the head, head (MessagePack), the batches one behind the other
    COMMITTED MessagePack, one row for each batch

`refusals` tells how many refused publishes and units of this connection the client knew of when it
sent this one. What was sent behind a refusal that its sender did not know is answered BEHIND and
sent again: so that numbers of a publisher are always stored in their order.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, Final, NamedTuple

import msgspec

from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import ProtocolError
from penstock.vocabulary.limits import TOPIC_BYTES_MAX, UNIT_COUNT_MAX
from penstock.vocabulary.message import Durability
from penstock.vocabulary.stored import Stored
from penstock.vocabulary.units import Part, UnitWish
from penstock.wire.frames_claims import PackedClaim, pack_claim, unpack_claim

_PUBLISH: Final = Struct("<16sQQIIIIH")
_pack_publish = _PUBLISH.pack
_STORED: Final = Struct("<qBB")
_LENGTH: Final = Struct("<I")
NUMBER_MAX: Final = 1 << 62
"""Epochs and sequences stay below this."""

LEVELS: Final = (Durability.MEMORY, Durability.WRITTEN, Durability.SYNCED, Durability.REPLICATED)
_LEVEL_NUMBERS: Final = {level: number for number, level in enumerate(LEVELS)}

_encode = msgspec.msgpack.Encoder().encode


class Publish(NamedTuple):
    """One batch and where it goes."""

    topic: str
    partition: int
    batch: bytes
    messages: int
    publisher: bytes
    epoch: int
    sequence: int
    partitions: int
    refusals: int


def publish_head(
    topic: bytes, partition: int, count: int, publisher: bytes, epoch: int, sequence: int,
    partitions: int, refusals: int,
) -> bytes:  # fmt: skip
    """What stands before the batch."""
    return (
        _pack_publish(
            publisher, epoch, sequence, refusals, count, partition, partitions, len(topic)
        )
        + topic
    )


def read_publish(payload: memoryview) -> Publish:
    """A publish; its batch is a copy. Raises ProtocolError."""
    try:
        publisher, epoch, sequence, refusals, count, partition, partitions, length = (
            _PUBLISH.unpack_from(payload)
        )
        start = _PUBLISH.size + length
        if length > TOPIC_BYTES_MAX or start > len(payload):
            raise ProtocolError(f"a publish names a topic of {length} bytes")
        topic = str(payload[_PUBLISH.size : start], "utf-8")
    except (StructError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a publish cannot be decoded: {error}") from error
    if epoch >= NUMBER_MAX or sequence >= NUMBER_MAX:
        raise ProtocolError("a publish has an epoch or a sequence above 2^62")
    return Publish(
        topic, partition, bytes(payload[start:]), count, publisher, epoch, sequence, partitions,
        refusals,
    )  # fmt: skip


# -- the answer ----------------------------------------------------------------------------------


class _Rest(NamedTuple):
    kept: tuple[int, ...] | None
    places: dict[int, int] | None


_rest: Final = msgspec.msgpack.Decoder(_Rest)


def encode_stored(stored: Any) -> bytes:
    """The payload of STORED."""
    base = -1 if stored.base is None else stored.base
    head = _STORED.pack(base, _LEVEL_NUMBERS[stored.durability], stored.is_duplicate)
    if stored.kept is None and stored.places is None:
        return head
    return head + _encode(_Rest(stored.kept, stored.places))


def decode_stored(payload: Any) -> Stored:
    """Where a batch is. Raises ProtocolError."""
    try:
        base, level, is_duplicate = _STORED.unpack_from(payload)
        kept = places = None
        if len(payload) > _STORED.size:
            kept, places = _rest.decode(memoryview(payload)[_STORED.size :])
        return Stored(None if base < 0 else base, LEVELS[level], bool(is_duplicate), kept, places)
    except (StructError, ValueError, IndexError) as error:
        raise ProtocolError(f"an answer to a publish cannot be decoded: {error}") from error


# -- units ---------------------------------------------------------------------------------------


class _PartHead(NamedTuple):
    topic: str
    partition: int
    length: int
    messages: int
    epoch: int
    sequence: int
    partitions: int = 0


class _UnitHead(NamedTuple):
    publisher: bytes
    epoch: int
    sequence: int
    refusals: int
    parts: list[_PartHead]
    claims: list[tuple[int, list[PackedClaim]]]


_unit: Final = msgspec.msgpack.Decoder(_UnitHead)


class UnitFrame(NamedTuple):
    """A unit, and what it acks of each channel."""

    wish: UnitWish
    claims: list[tuple[int, list[Claim]]]
    refusals: int


def encode_unit(
    wish: UnitWish, claims: list[tuple[int, list[Claim]]], refusals: int, *, has_maps: bool = True
) -> list[bytes]:
    """The payload of UNIT in pieces; servers without the feature `unit-maps` get no maps."""
    rows: list[tuple[Any, ...]] = [
        (p.topic, p.partition, len(p.batch), p.count, p.epoch, p.sequence) for p in wish.parts
    ]
    if has_maps:
        rows = [(*row, p.partitions) for row, p in zip(rows, wish.parts, strict=True)]
    head = _encode(
        (
            wish.publisher,
            wish.epoch,
            wish.sequence,
            refusals,
            rows,
            [(channel, [pack_claim(claim) for claim in listed]) for channel, listed in claims],
        )
    )
    return [_LENGTH.pack(len(head)) + head, *(part.batch for part in wish.parts)]


def decode_unit(payload: memoryview) -> UnitFrame:
    """A unit; its batches are copies. Raises ProtocolError."""
    try:
        (length,) = _LENGTH.unpack_from(payload)
        start = _LENGTH.size + length
        head = _unit.decode(payload[_LENGTH.size : start])
    except (StructError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a unit cannot be decoded: {error}") from error
    if len(head.publisher) != len(bytes(16)) or len(head.parts) > UNIT_COUNT_MAX:
        raise ProtocolError("a unit has a wrong publisher or too many batches")
    numbers = [head.epoch, head.sequence]
    parts: list[Part] = []
    for part in head.parts:
        numbers += [part.epoch, part.sequence, part.partition, part.messages, part.length]
        numbers.append(part.partitions)
        end = start + part.length
        if part.length < 0 or end > len(payload):
            raise ProtocolError("a batch of a unit is not there")
        parts.append(
            Part(
                part.topic, part.partition, bytes(payload[start:end]), part.messages, part.epoch,
                part.sequence, part.partitions,
            )
        )  # fmt: skip
        start = end
    if start != len(payload) or min(numbers) < 0 or max(numbers) >= NUMBER_MAX:
        raise ProtocolError("a unit has a number outside its limits or bytes after its batches")
    claims = [(channel, [unpack_claim(c) for c in listed]) for channel, listed in head.claims]
    wish = UnitWish(head.publisher, head.epoch, head.sequence, parts)
    return UnitFrame(wish, claims, head.refusals)


class _StoredRow(NamedTuple):
    base: int | None
    durability: Durability
    is_duplicate: bool
    kept: tuple[int, ...] | None
    places: dict[int, int] | None


_rows: Final = msgspec.msgpack.Decoder(list[_StoredRow])


def encode_committed(rows: list[Any]) -> bytes:
    """The payload of COMMITTED."""
    return _encode(
        [_StoredRow(r.base, r.durability, r.is_duplicate, r.kept, r.places) for r in rows]
    )


def decode_committed(payload: Any) -> list[Stored]:
    """Where each batch of a unit is. Raises ProtocolError."""
    try:
        return [Stored(*row) for row in _rows.decode(payload)]
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"an answer to a unit cannot be decoded: {error}") from error


# -- maps ----------------------------------------------------------------------------------------


class TopicMap(NamedTuple):
    """How many partitions a topic has; 0 asks for it, and creates the topic when missing."""

    topic: str
    partitions: int


_map: Final = msgspec.msgpack.Decoder(TopicMap)


def encode_map(found: TopicMap) -> bytes:
    """The payload of MAP."""
    return _encode(found)


def decode_map(payload: Any) -> TopicMap:
    """A question about a topic, or its answer. Raises ProtocolError."""
    try:
        return _map.decode(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a map cannot be decoded: {error}") from error
