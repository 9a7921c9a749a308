"""The ids a publisher gave, read out of a batch without opening anything else of it."""

from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final

import msgspec

from penstock.batch import format as layout
from penstock.vocabulary.errors import MalformedBatch

_IDS: Final = msgspec.msgpack.Decoder(list[str | None])


def given_ids(batch: bytes) -> list[str | None] | None:
    """The id of each message, None where it has none; None when no message has one.

    Raises MalformedBatch.
    """
    column = ids_column(batch)
    try:
        return None if column is None else _IDS.decode(column)
    except msgspec.MsgspecError as error:
        raise MalformedBatch(f"the ids of the batch cannot be decoded: {error}") from error


def ids_column(batch: bytes) -> memoryview | None:
    """The ids as they lie in the batch; None when no message has one. Raises MalformedBatch."""
    try:
        span = _find(batch)
    except StructError as error:
        raise MalformedBatch(f"the ids of the batch cannot be decoded: {error}") from error
    return None if span is None else memoryview(batch)[span[0] : span[1]]


def is_copied(batch: bytes) -> bool:
    """True when a batch says when its messages were first published: they were, elsewhere.

    Copies keep their ids and pass the window of ids, which is for what a publisher gives twice.
    """
    first = layout.HEADER.size
    if len(batch) < first:
        return False
    end = min(first + layout.ENTRY_BYTES * layout.HEADER.unpack_from(batch)[2], len(batch))
    entries = range(first, end - layout.ENTRY_BYTES + 1, layout.ENTRY_BYTES)
    return any(layout.ENTRY.unpack_from(batch, at)[0] == layout.PUBLISHED_AT for at in entries)


def messages_in(batch: bytes) -> int:
    """How many messages a batch says it has, stored or not."""
    return int(layout.HEADER.unpack_from(batch)[3])


def _find(batch: bytes) -> tuple[int, int] | None:
    """Where the column of ids lies; kinds rise, so that few entries are looked at."""
    if len(batch) < layout.HEADER.size:
        return None
    columns = layout.HEADER.unpack_from(batch)[2]
    at = layout.HEADER.size
    start = at + layout.ENTRY_BYTES * columns
    for _ in range(columns):
        kind, length = layout.ENTRY.unpack_from(batch, at)
        if kind >= layout.IDS:
            return (start, start + length) if kind == layout.IDS else None
        start += length
        at += layout.ENTRY_BYTES
    return None
