"""Messages and receipts as JSON, and messages as CloudEvents: what requests are answered with."""

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from penstock.batch import Batch
from penstock.batch.frame import Frame
from penstock.vocabulary.message import render_id
from penstock.vocabulary.stored import Stored
from penstock.wire.cloudevents import attributes_of, to_structured
from penstock.wire.rest_fields import Fields
from penstock.wire.rest_lines import Parcel

_encode: Final = msgspec.json.Encoder().encode


class Shown(msgspec.Struct, omit_defaults=True, gc=False):
    """A message as JSON; `body` when it is text, else `body_base64`; neither = no body."""

    topic: str
    partition: int
    offset: int
    position: str
    id: str
    published_at: float
    attempt: int = 0
    token: str | None = None
    body: str | None = None
    body_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] | None = None
    priority: int = 0


class Receipt(msgspec.Struct, gc=False):
    """What the broker confirmed about one message."""

    topic: str
    partition: int
    offset: int | None
    position: str
    id: str
    durability: str
    duplicate: bool


class Range(msgspec.Struct, gc=False):
    """Stored messages one behind the other; `last` is one of them."""

    partition: int
    first: int
    last: int


class BulkReceipt(msgspec.Struct):
    """What the broker confirmed about many messages; `duplicates` counts from 0."""

    topic: str
    count: int
    durability: str
    ranges: list[Range]
    duplicates: list[int]


class Piece(msgspec.Struct, gc=False):
    """Messages low…high of a frame, and the lease they are out under, if any."""

    partition: int
    frame: Frame
    low: int
    high: int
    attempt: int = 0
    lease_id: int = 0

    @property
    def offsets(self) -> Sequence[int]:
        """Where its messages lie."""
        return self.frame.offsets[self.low : self.high]

    @property
    def count(self) -> int:
        """How many messages it has."""
        return self.high - self.low


Write = Callable[[Piece, int], str | None]
"""The token for a message of a piece, by its offset; None when it is only looked at."""


def fields_of(piece: Piece) -> Iterator[tuple[int, Fields, float, int]]:
    """(offset, message, published_at in seconds, attempt) of each message."""
    frame = piece.frame
    view = Batch(frame.batch, verify=False)
    bodies, keys, headers = view.bodies, view.keys, view.headers
    priorities, attempts = view.priorities, view.attempts
    indexes = frame.indexes[piece.low : piece.high]
    for offset, index in zip(piece.offsets, indexes, strict=True):
        fields = Fields(
            bodies[index],
            None if keys is None else keys[index],
            frame.id_of(view, index),
            None if headers is None else headers[index],
            0 if priorities is None else priorities[index],
        )
        attempt = piece.attempt + (0 if attempts is None else attempts[index])
        yield offset, fields, frame.published_at_of(view, index) / 1000, attempt


def shown(topic: str, pieces: Sequence[Piece], write: Write) -> list[Shown]:
    """Messages as JSON will show them."""
    found: list[Shown] = []
    for piece in pieces:
        partition = piece.partition
        for offset, fields, published_at, attempt in fields_of(piece):
            one = Shown(
                topic, partition, offset, f"{partition}:{offset}", fields.id or "", published_at,
                attempt, write(piece, offset), headers=fields.headers, priority=fields.priority,
            )  # fmt: skip
            _fill(one, fields)
            found.append(one)
    return found


def _fill(one: Shown, fields: Fields) -> None:
    if fields.body is not None:
        try:
            one.body = fields.body.decode()
        except UnicodeDecodeError:
            one.body_base64 = b64encode(fields.body).decode()
    if isinstance(fields.key, str):
        one.key = fields.key
    elif fields.key is not None:
        one.key_base64 = b64encode(fields.key).decode()


def events(topic: str, pieces: Sequence[Piece], write: Write) -> list[dict[str, Any]]:
    """Messages as CloudEvents in structured mode."""
    found: list[dict[str, Any]] = []
    for piece in pieces:
        for offset, fields, _, attempt in fields_of(piece):
            attributes = attributes_of(fields, topic, f"{piece.partition}:{offset}", attempt)
            token = write(piece, offset)
            if token is not None:
                attributes["penstocktoken"] = token
            found.append(to_structured(attributes, fields.body))
    return found


def looked_at(_piece: Piece, _offset: int) -> None:
    """Who only looks gets no token."""


def receipt(
    topic: str, partition: int, stored: Stored, id: str | None, source: tuple[bytes, int, int]
) -> bytes:
    """The receipt for one message as JSON."""
    offset, is_duplicate = place_of(stored, 0)
    position = "" if offset is None else f"{partition}:{offset}"
    name = id if id is not None else render_id(*source)
    return _encode(
        Receipt(topic, partition, offset, position, name, stored.durability.value, is_duplicate)
    )


def receipts(
    topic: str, partition: int, stored: Stored, ids: Sequence[str | None],
    source: tuple[bytes, int, int],
) -> Iterator[bytes]:  # fmt: skip
    """The receipt of each message of a batch as JSON; `ids` has None where none was given."""
    publisher, epoch, sequence = source
    count = len(ids)
    is_mixed = stored.base is None or stored.is_duplicate or stored.kept is not None
    if is_mixed or stored.places or ids.count(None) < count:
        for at, id in enumerate(ids):
            place, is_duplicate = place_of(stored, at)
            one = Stored(place, stored.durability, is_duplicate)
            yield receipt(topic, partition, one, id, (publisher, epoch, sequence + at))
        return
    assert stored.base is not None
    start = b'{"topic":%b,"partition":%d,"offset":' % (_encode(topic), partition)
    id_start = render_id(publisher, epoch, 0)[:-1].encode()
    end = b'","durability":"%b","duplicate":false}' % stored.durability.value.encode()
    for at in range(count):
        offset = stored.base + at
        yield b'%b%d,"position":"%d:%d","id":"%b%x%b' % (
            start, offset, partition, offset, id_start, sequence + at, end,
        )  # fmt: skip


def bulk_receipt(topic: str, sent: Sequence[tuple[Parcel, Stored]]) -> bytes:
    """The receipt for many messages as JSON: ranges of offsets, not one object a message."""
    ranges: list[Range] = []
    duplicates: list[int] = []
    for parcel, stored in sent:
        count = len(parcel.indexes)
        if stored.is_duplicate:
            duplicates.extend(parcel.indexes)
        elif stored.kept is not None:
            kept = set(stored.kept)
            duplicates.extend(each for at, each in enumerate(parcel.indexes) if at not in kept)
            count = len(kept)
        if stored.base is not None and count and not stored.is_duplicate:
            ranges.append(Range(parcel.partition, stored.base, stored.base + count - 1))
    durability = min((stored.durability for _, stored in sent), key=_LEVELS.index)
    total = sum(len(parcel.indexes) for parcel, _ in sent)
    return _encode(BulkReceipt(topic, total, durability, ranges, sorted(duplicates)))


def place_of(stored: Stored, at: int) -> tuple[int | None, bool]:
    """The offset of a batch's message, if it is known, and whether it was stored before."""
    base, kept, places = stored.base, stored.kept, stored.places
    if places is not None and at in places:
        return places[at], True
    if kept is None or base is None:
        return (None if base is None else base + at), stored.is_duplicate
    return (base + kept.index(at), False) if at in kept else (None, True)


_LEVELS: Final = ["memory", "written", "synced", "replicated"]
