"""A batch as its messages: which columns it has, and each column decoded when first asked for.

The broker checks a received batch and reads its packed columns; only consumers and re-homing
decode bodies. Whatever the bytes are, nothing but MalformedBatch comes out of here.
"""

import sys
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import msgpack

from penstock.batch import check as rules
from penstock.batch import format as layout
from penstock.batch.encode import Columns, encode_columns, key_hashes
from penstock.vocabulary.errors import InvalidArgument, MalformedBatch, TooLarge
from penstock.vocabulary.limits import BATCH_BYTES_MAX, BODY_BYTES_MAX

T = TypeVar("T")

_BODIES: Final = msgpack.Decoder(list[bytes | None])
_BODY_VIEWS: Final = msgpack.Decoder(list[memoryview | None])
_TEXTS: Final = msgpack.Decoder(list[str | None])
_HEADERS: Final = msgpack.Decoder(list[dict[str, str] | None])
_RAW: Final = msgpack.Decoder(list[msgspec.Raw])
_TEXT: Final[msgpack.Decoder[str | None]] = msgpack.Decoder(str | None)
_BINARY: Final = msgpack.Decoder(bytes)

_COLUMNS: Final = slice(2, 4)
_ONE_COLUMN: Final = b"\1\0"
_KIND: Final = slice(layout.HEADER.size, layout.HEADER.size + 4)
_BODIES_KIND: Final = layout.BODIES.to_bytes(4, "little")
_BODIES_AT: Final = layout.HEADER.size + layout.ENTRY_BYTES
"""Where things lie in a batch that has bodies only."""

_RULES: Final[dict[int, tuple[str, Callable[[Any], object]]]] = {
    layout.KEYS: ("keys", rules.keys),
    layout.IDS: ("ids", rules.ids),
    layout.HEADERS: ("headers", partial(rules.each, rules.headers)),
    layout.DELIVER_AT: ("deliver_at", partial(rules.times, "deliver_at")),
    layout.EXPIRES_AT: ("expires_at", partial(rules.times, "expires_at")),
    layout.PUBLISHED_AT: ("published_at", partial(rules.times, "published_at")),
}
"""Which attribute to hold to which rule when its column is present."""


class _Decoded(Generic[T]):
    """An attribute computed at its first use. Unlike `cached_property`, it takes no lock."""

    def __init__(self, decode: Callable[["Batch"], T]) -> None:
        self._decode = decode
        self.__doc__ = decode.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, batch: "Batch", owner: type) -> T:
        value = self._decode(batch)
        batch.__dict__[self._name] = value
        return value


class Batch:
    """The messages in these bytes. A column that is absent is None: every value is the default.

    Raises MalformedBatch, here and wherever a column is decoded. `verify=False` skips the
    checksum, for bytes whose own checksum was just found right.
    """

    def __init__(self, data: bytes, *, verify: bool = True) -> None:
        self.data = data
        self.count, self._spans = layout.read_directory(data, verify=verify)

    @_Decoded
    def bodies(self) -> list[bytes | None]:
        """Every body; None where a message has none."""
        if layout.BODIES not in self._spans:
            return [None] * self.count
        return self._decode(_BODIES, layout.BODIES)

    @_Decoded
    def keys(self) -> list[bytes | str | None] | None:
        """Every key, as text where it was published as text."""
        return self._decode_keys() if layout.KEYS in self._spans else None

    @_Decoded
    def ids(self) -> list[str | None] | None:
        """Every given id."""
        return self._decode(_TEXTS, layout.IDS) if layout.IDS in self._spans else None

    @_Decoded
    def headers(self) -> list[dict[str, str] | None] | None:
        """The headers of every message."""
        return self._decode(_HEADERS, layout.HEADERS) if layout.HEADERS in self._spans else None

    @_Decoded
    def key_hashes(self) -> memoryview | None:
        """The u64 hash of every key, 0 where there is none."""
        return self._packed(layout.KEY_HASHES)

    @_Decoded
    def priorities(self) -> memoryview | None:
        """The i16 priority of every message."""
        return self._packed(layout.PRIORITIES)

    @_Decoded
    def deliver_at(self) -> memoryview | None:
        """Unix milliseconds before which a message is not delivered, 0 = none."""
        return self._packed(layout.DELIVER_AT)

    @_Decoded
    def expires_at(self) -> memoryview | None:
        """Unix milliseconds after which a message is not delivered, 0 = none."""
        return self._packed(layout.EXPIRES_AT)

    @_Decoded
    def published_at(self) -> memoryview | None:
        """Unix milliseconds of the first publish; re-homed messages only."""
        return self._packed(layout.PUBLISHED_AT)

    @_Decoded
    def attempts(self) -> memoryview | None:
        """Attempts made before the message came here; re-homed messages only."""
        return self._packed(layout.ATTEMPTS)

    def check(self) -> None:
        """Raises MalformedBatch unless every limit is kept and every small column is sound.

        Bodies are not decoded: `bodies` itself refuses a column that is not what it must be.
        """
        try:
            self._check_limits()
        except (TooLarge, InvalidArgument) as error:
            raise MalformedBatch(error.text) from error
        if layout.KEYS in self._spans and _listed(self.key_hashes) != key_hashes(self.keys or ()):
            raise MalformedBatch("the key hashes are not those of the keys")

    def span(self, kind: int) -> tuple[int, int] | None:
        """Where a column starts and ends; None when it is absent."""
        return self._spans.get(kind)

    def check_bodies(self) -> None:
        """Raises MalformedBatch unless the column of bodies is sound and each is within limits."""
        try:
            self._check_bodies()
        except TooLarge as error:
            raise MalformedBatch(error.text) from error

    def columns(self) -> Columns:
        """All columns, decoded, as plain lists."""
        return Columns(
            bodies=self.bodies,
            keys=self.keys,
            ids=self.ids,
            headers=self.headers,
            priorities=_listed(self.priorities),
            deliver_at=_listed(self.deliver_at),
            expires_at=_listed(self.expires_at),
            published_at=_listed(self.published_at),
            attempts=_listed(self.attempts),
        )

    def select(self, indexes: Sequence[int]) -> bytes:
        """A batch of the messages at these indexes, in this order, with all known columns.

        Raises InvalidArgument when there are none or one is outside the batch.
        """
        if not indexes or min(indexes) < 0 or max(indexes) >= self.count:
            raise InvalidArgument(
                f"indexes {indexes!r:.80} do not name messages of a batch of {self.count}"
            )
        bodies = self.bodies
        return encode_columns(
            Columns(
                bodies=[bodies[index] for index in indexes],
                keys=_picked(self.keys, indexes),
                ids=_picked(self.ids, indexes),
                headers=_picked(self.headers, indexes),
                priorities=_picked(self.priorities, indexes),
                deliver_at=_picked(self.deliver_at, indexes),
                expires_at=_picked(self.expires_at, indexes),
                published_at=_picked(self.published_at, indexes),
                attempts=_picked(self.attempts, indexes),
            )
        )

    def _check_limits(self) -> None:
        if len(self.data) > BATCH_BYTES_MAX:
            raise TooLarge(
                f"batch of {len(self.data)} bytes is over the limit of {BATCH_BYTES_MAX}"
            )
        for kind in self._spans:
            if kind in _RULES:
                name, check_column = _RULES[kind]
                check_column(getattr(self, name))
        start, end = self._spans.get(layout.BODIES, (0, 0))
        # A column within the limit of one body holds no body over it.
        if end - start > BODY_BYTES_MAX:
            self._check_bodies()

    def _check_bodies(self) -> None:
        views = self._decode(_BODY_VIEWS, layout.BODIES)
        if rules.longest(views) > BODY_BYTES_MAX:
            rules.each(rules.body, views)

    def _decode(self, decoder: "msgpack.Decoder[T]", kind: int) -> T:
        try:
            return decoder.decode(self._column(kind))
        except (ValueError, RecursionError) as error:
            raise MalformedBatch(f"column {kind} cannot be decoded: {error}") from error

    def _decode_keys(self) -> list[Any]:
        """Keys are nearly always all text or all bytes; msgspec knows no list of both."""
        column = self._column(layout.KEYS)
        for decoder in (_TEXTS, _BODIES):
            try:
                return decoder.decode(column)
            except msgspec.ValidationError:
                continue
            except ValueError as error:
                raise MalformedBatch(f"the keys cannot be decoded: {error}") from error
        raws = self._decode(_RAW, layout.KEYS)
        try:
            return [_mixed_key(raw) for raw in raws]
        except ValueError as error:
            raise MalformedBatch(f"the keys cannot be decoded: {error}") from error

    def _packed(self, kind: int) -> memoryview | None:
        if kind not in self._spans:
            return None
        letter, _ = layout.PACKED[kind]
        if sys.byteorder == "little":
            return self._column(kind).cast(letter)  # type: ignore[call-overload, no-any-return]
        swapped = array(letter, self._column(kind).tobytes())
        swapped.byteswap()
        return memoryview(swapped)

    def _column(self, kind: int) -> memoryview:
        start, end = self._spans[kind]
        return memoryview(self.data)[start:end]


def plain_bodies(data: bytes) -> list[bytes | None] | None:
    """The bodies of a batch that has nothing else, and was made here; None for any other."""
    if data[_COLUMNS] != _ONE_COLUMN or data[_KIND] != _BODIES_KIND:
        return None
    return _BODIES.decode(memoryview(data)[_BODIES_AT : -layout.CHECKSUM.size])


def _mixed_key(raw: msgspec.Raw) -> bytes | str | None:
    try:
        return _TEXT.decode(raw)
    except msgspec.ValidationError:
        return _BINARY.decode(raw)


def _listed(values: memoryview | None) -> list[int] | None:
    return None if values is None else values.tolist()


def _picked(values: Sequence[T] | None, indexes: Sequence[int]) -> list[T] | None:
    return None if values is None else [values[index] for index in indexes]
