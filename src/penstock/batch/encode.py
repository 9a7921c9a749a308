"""Messages into the bytes of a batch, column by column.

Publishers call `encode_one` and `encode_many`, which check every limit. Whoever re-homes
messages that were checked when they were published calls `encode_columns`, which does not.
Nothing here knows topics, offsets or time.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from struct import Struct, pack
from typing import Any, Final

import msgspec
from msgspec import msgpack
from xxhash import xxh3_64_intdigest

from penstock.batch import check
from penstock.batch import format as layout
from penstock.batch.format import BODIES, VERSION
from penstock.vocabulary.errors import InvalidArgument, TooLarge
from penstock.vocabulary.limits import (
    BATCH_BYTES_MAX,
    BATCH_COUNT_MAX,
    BODY_BYTES_MAX,
    ID_BYTES_MAX,
    KEY_BYTES_MAX,
    KIB,
)
from penstock.vocabulary.message import Message


class Columns(msgspec.Struct, kw_only=True):
    """The messages of a batch as lists of equal length; None where every value is the default.

    Times are Unix milliseconds, 0 = none. A column of defaults is the same as None.
    """

    bodies: list[bytes | None]
    keys: list[bytes | str | None] | None = None
    ids: list[str | None] | None = None
    headers: list[dict[str, str] | None] | None = None
    priorities: list[int] | None = None
    deliver_at: list[int] | None = None
    expires_at: list[int] | None = None
    published_at: list[int] | None = None
    attempts: list[int] | None = None


_encode = msgpack.Encoder().encode
_encode_into = msgpack.Encoder().encode_into
_only_bodies_head: Final = Struct("<BBHIIII")
_pack_only_bodies = _only_bodies_head.pack
_BODIES_AT: Final = _only_bodies_head.size
_pack_checksum = layout.CHECKSUM.pack
SMALL_BYTES_MAX: Final = 64 * KIB
_MESSAGES: Final = frozenset({Message}).issuperset
_BYTES: Final = frozenset({bytes}).issuperset
_TEXTS: Final = frozenset({str}).issuperset
_NO_PRIORITY: Final = 0
_LONG_TEXTS: Final = (b"\xda", b"\xdb")
"""First bytes of MessagePack texts of 256 bytes and more."""
_NO_IDS: Final = (*_LONG_TEXTS, b"\xa0")
"""The same, and a text of no bytes, which no id may be."""
assert min(KEY_BYTES_MAX, ID_BYTES_MAX) > 255  # noqa: PLR2004 - what a short text may have
_ONLY_BODIES_BYTES: Final = layout.HEADER.size + layout.ENTRY_BYTES + layout.CHECKSUM.size


# -- one message --------------------------------------------------------------------------------


def encode_one(
    body: bytes | None,
    key: bytes | str | None = None,
    id: str | None = None,
    headers: dict[str, str] | None = None,
    priority: int = 0,
    deliver_at_ms: int = 0,
    expires_at_ms: int = 0,
) -> bytes:
    """A batch of one message. Raises TooLarge, InvalidArgument."""
    has_texts = key is not None or id is not None or headers is not None
    if not (has_texts or priority or deliver_at_ms or expires_at_ms):
        if body.__class__ is not bytes or len(body) > BODY_BYTES_MAX:
            body = check.body(body)
        return layout.assemble(1, ()) if body is None else _only_bodies(1, _encode((body,)))
    columns: list[tuple[int, bytes]] = []
    if body is not None:
        columns.append((BODIES, _encode((check.body(body),))))
    if key is not None:
        columns.append((layout.KEYS, _encode((check.key(key),))))
    if id is not None:
        columns.append((layout.IDS, _encode((check.id(id),))))
    if headers:
        columns.append((layout.HEADERS, _encode((check.headers(headers),))))
    if key is not None:
        columns.append((layout.KEY_HASHES, _pack(layout.KEY_HASHES, key_hashes((key,)))))
    if priority:
        columns.append((layout.PRIORITIES, _pack(layout.PRIORITIES, (check.priority(priority),))))
    if deliver_at_ms:
        due = check.milliseconds("deliver_at", deliver_at_ms)
        columns.append((layout.DELIVER_AT, _pack(layout.DELIVER_AT, (due,))))
    if expires_at_ms:
        due = check.milliseconds("expires_at", expires_at_ms)
        columns.append((layout.EXPIRES_AT, _pack(layout.EXPIRES_AT, (due,))))
    return layout.assemble(1, columns)


def _only_bodies(count: int, column: bytes) -> bytes:
    # The commonest batch by far, hence its own way past `assemble` while copies are cheap.
    size = len(column)
    if size > SMALL_BYTES_MAX:
        return layout.assemble(count, ((BODIES, column),))
    length = _ONLY_BODIES_BYTES + size
    data = _pack_only_bodies(VERSION, 0, 1, count, length, BODIES, size) + column
    return data + _pack_checksum(xxh3_64_intdigest(data))


# -- many messages ------------------------------------------------------------------------------


def encode_many(messages: Sequence[Message | bytes | str]) -> bytes:
    """A batch of all these messages. Raises TooLarge, InvalidArgument.

    The text of the error names the first message that is wrong, counted from 0.
    """
    if not isinstance(messages, (list, tuple)):
        messages = list(messages)
    if not messages:
        raise InvalidArgument("a batch needs at least one message")
    if len(messages) > BATCH_COUNT_MAX:
        raise TooLarge(
            f"batch of {len(messages)} messages is over the limit of {BATCH_COUNT_MAX}; "
            "publish it in smaller parts"
        )
    data = encode_plain(messages, BODY_BYTES_MAX)
    if data is None:
        data = encode_columns(_columns(list(messages)))
    if len(data) > BATCH_BYTES_MAX:
        raise TooLarge(
            f"batch of {len(data)} bytes is over the limit of {BATCH_BYTES_MAX}; "
            "publish it in smaller parts"
        )
    return data


def encode_plain(messages: Sequence[Any], bytes_max: int) -> bytes | None:
    """The batch when the messages are bytes, together not above `bytes_max`, else None.

    Joining them proves both, faster than looking at each.
    """
    try:
        size = len(b"".join(messages))
        if size > bytes_max:
            return None
        if size <= SMALL_BYTES_MAX:
            return _only_bodies(len(messages), _encode(messages))
        return _large_bodies(messages, size)
    except TypeError:
        return None


def _large_bodies(messages: Sequence[Any], size: int) -> bytes:
    """The same bytes as `_only_bodies` makes, with one copy of the column less."""
    buffer = bytearray(_ONLY_BODIES_BYTES + size + 5 * (len(messages) + 1))
    _encode_into(messages, buffer, _BODIES_AT)
    length = len(buffer) + layout.CHECKSUM.size
    _only_bodies_head.pack_into(
        buffer, 0, VERSION, 0, 1, len(messages), length, BODIES, len(buffer) - _BODIES_AT
    )
    buffer += _pack_checksum(xxh3_64_intdigest(buffer))
    return bytes(buffer)


def encode_short(messages: Sequence[Any], bytes_max: int) -> bytes | None:
    """The batch of messages that have a body of bytes and no more than a short key and a short id.

    None for any other, and when the bodies are together above `bytes_max`. The same bytes as the
    long way makes, in fewer looks at each message: the limits are held by looking at the columns.
    """
    if not _MESSAGES((type(messages[-1]),)) or _has_more(messages[-1:]):
        return None  # most lists are of one kind, so the last message decides mostly
    if not _MESSAGES(map(type, messages)) or _has_more(messages):
        return None
    bodies = [each.body for each in messages]
    if not _BYTES(map(type, bodies)) or len(b"".join(bodies)) > bytes_max:
        return None
    columns = [(BODIES, _encode(bodies))]
    keys, ids = [each.key for each in messages], [each.id for each in messages]
    for kind, texts, marks in ((layout.KEYS, keys, _LONG_TEXTS), (layout.IDS, ids, _NO_IDS)):
        if not _are_none(texts):
            column = _short_texts(texts, marks)
            if column is None:
                return None
            columns.append((kind, column))
    if columns[1:] and columns[1][0] == layout.KEYS:
        columns.append((layout.KEY_HASHES, _pack(layout.KEY_HASHES, key_hashes(keys))))
    return layout.assemble(len(bodies), columns)


def _has_more(messages: Sequence[Message]) -> bool:
    """True when one of them has more than a body, a key and an id."""
    return any(
        True
        for each in messages
        if each.headers is not None
        or each.priority is not _NO_PRIORITY
        or each.deliver_at is not None
        or each.expires_at is not None
    )


def _short_texts(values: list[Any], marks: tuple[bytes, ...]) -> bytes | None:
    """The column of these values when each is text and begins with none of these, else None."""
    if not _TEXTS(map(type, values)):
        return None
    try:
        column = _encode(values)
    except UnicodeEncodeError:
        return None
    # A text that must be looked at has one of these in front of it. Each may be part of a text
    # that is not ASCII, too: then the long way is taken for nothing.
    first = 1 + layout.LONG_ARRAYS.get(column[0], 0)
    return None if any(column.find(mark, first) >= 0 for mark in marks) else column


def _columns(messages: list[Message | bytes | str]) -> Columns:
    kinds = set(map(type, messages))
    if not any(issubclass(kind, Message) for kind in kinds):
        return Columns(bodies=check.bodies(messages))
    full: list[Message] = messages  # type: ignore[assignment]  # unless some are bodies
    if kinds != {Message}:
        full = [each if isinstance(each, Message) else Message(body=each) for each in messages]
    return Columns(
        bodies=check.bodies([each.body for each in full]),
        keys=_unless_none(check.keys, [each.key for each in full]),
        ids=_unless_none(check.ids, [each.id for each in full]),
        headers=_unless_none(_all_headers, [each.headers for each in full]),
        priorities=_unless_zero([each.priority for each in full]),
        deliver_at=_unless_none(_all_deliver_at, [each.deliver_at for each in full]),
        expires_at=_unless_none(_all_expires_at, [each.expires_at for each in full]),
    )


def _unless_none(convert: Callable[[list[Any]], Any], values: list[Any]) -> Any:
    return None if _are_none(values) else convert(values)


def _unless_zero(values: list[Any]) -> list[int] | None:
    # Not by comparing alone: what is equal to 0 and no whole number is refused.
    is_default = values[0] == 0 and values.count(0) == len(values)
    if is_default and {int}.issuperset(map(type, values)):
        return None
    return check.priorities(values)


def _are_none(values: Sequence[Any]) -> bool:
    # Counting is fast over None and slow over anything else, so the first value decides mostly.
    return values[0] is None and values.count(None) == len(values)


_all_headers = partial(check.each, check.headers)
_all_deliver_at = partial(check.each, partial(check.seconds, "deliver_at"))
_all_expires_at = partial(check.each, partial(check.seconds, "expires_at"))


# -- columns ------------------------------------------------------------------------------------


def encode_columns(columns: Columns) -> bytes:
    """A batch of these columns, for messages whose limits were checked before.

    The key hashes are computed here. Raises InvalidArgument for text that is not Unicode.
    """
    count = len(columns.bodies)
    assert 1 <= count <= BATCH_COUNT_MAX, f"batch of {count} messages"
    present: list[tuple[int, bytes]] = []
    for kind, values, convert in (
        (BODIES, columns.bodies, check.body),
        (layout.KEYS, columns.keys, check.key),
        (layout.IDS, columns.ids, check.id),
        (layout.HEADERS, columns.headers, check.headers),
    ):
        if values is not None and not _are_none(values):
            assert len(values) == count, f"column {kind} has {len(values)} of {count} values"
            present.append((kind, _encode_values(values, convert)))
    if columns.keys is not None and not _are_none(columns.keys):
        present.append((layout.KEY_HASHES, _pack(layout.KEY_HASHES, key_hashes(columns.keys))))
    for kind, numbers in (
        (layout.PRIORITIES, columns.priorities),
        (layout.DELIVER_AT, columns.deliver_at),
        (layout.EXPIRES_AT, columns.expires_at),
        (layout.PUBLISHED_AT, columns.published_at),
        (layout.ATTEMPTS, columns.attempts),
    ):
        if numbers is not None and any(numbers):
            assert len(numbers) == count, f"column {kind} has {len(numbers)} of {count} values"
            present.append((kind, _pack(kind, numbers)))
    return layout.assemble(count, present)


def key_hashes(keys: Sequence[bytes | str | None]) -> list[int]:
    """The hash of each key's bytes, 0 where there is no key."""
    texts: Sequence[Any] = keys
    with suppress(TypeError):  # unless all are text
        return list(map(xxh3_64_intdigest, map(str.encode, texts)))
    return [
        0 if key is None else xxh3_64_intdigest(key.encode() if isinstance(key, str) else key)
        for key in keys
    ]


def _encode_values(values: Sequence[Any], convert: Callable[[Any], Any]) -> bytes:
    try:
        return _encode(values)
    except UnicodeEncodeError:
        check.each(convert, values)  # names the message whose text is wrong
        raise


def _pack(kind: int, numbers: Sequence[int]) -> bytes:
    return pack(f"<{len(numbers)}{layout.PACKED[kind][0]}", *numbers)
