"""A batch that comes from outside: nothing in it may harm the broker or whoever receives it.

`Batch.check` holds every small column to its rules. Here the bodies are looked at too: a column
that is no list of bodies would be stored and then fail at every consumer. Bodies of one length,
the commonest column by far, are proved right by looking at their heads alone.
"""

from struct import Struct
from typing import Final

from xxhash import xxh3_64_intdigest

from penstock.batch import format as layout
from penstock.batch.view import Batch
from penstock.vocabulary.errors import MalformedBatch, TooLarge
from penstock.vocabulary.limits import BATCH_BYTES_MAX, BATCH_COUNT_MAX

_BIN8: Final = 0xC4
_BIN16: Final = 0xC5
_U8_MAX: Final = 0xFF
_U16_MAX: Final = 0xFFFF
_BIN8_BYTES: Final = 2
_BIN16_BYTES: Final = 3
"""Heads of bodies: a byte that says what follows, and the length."""
_unpack_head = Struct("<BBHIIII").unpack_from
_unpack_checksum = layout.CHECKSUM.unpack_from
_BODIES_AT: Final = layout.HEADER.size + layout.ENTRY_BYTES
_END: Final = layout.CHECKSUM.size
REHOMED: Final = (layout.ATTEMPTS,)
"""Columns that only a broker writes. Who copies messages says when they were first published."""


def check_untrusted(data: bytes, count: int) -> None:
    """Raises MalformedBatch, TooLarge unless this is a batch of so many messages, all sound."""
    if len(data) > BATCH_BYTES_MAX:
        raise TooLarge(f"batch of {len(data)} bytes is over the limit of {BATCH_BYTES_MAX}")
    if _is_proved(data, count):
        return
    view = Batch(data)
    if view.count != count:
        raise MalformedBatch(f"the batch has {view.count} messages, its publisher says {count}")
    for kind in REHOMED:
        if view.span(kind) is not None:
            raise MalformedBatch(f"column {kind} is written by the broker alone")
    view.check()
    bodies = view.span(layout.BODIES)
    if bodies is not None and not _is_even(data, *bodies, count):
        view.check_bodies()


def _is_proved(data: bytes, count: int) -> bool:
    """True for a sound batch of nothing but bodies of one length; False says nothing."""
    end = len(data) - _END
    if end < _BODIES_AT + 2 or not 0 < count <= BATCH_COUNT_MAX:
        return False
    head = (layout.VERSION, 0, 1, count, len(data), layout.BODIES, end - _BODIES_AT)
    if _unpack_head(data) != head:
        return False
    first = data[_BODIES_AT]
    width = layout.LONG_ARRAYS.get(first, 0)
    if width:
        found = int.from_bytes(data[_BODIES_AT + 1 : _BODIES_AT + 1 + width], "big")
    else:
        found = first - layout.SHORT_ARRAYS.start
    return (
        found == count
        and _is_even(data, _BODIES_AT, end, count)
        and _unpack_checksum(data, end)[0] == xxh3_64_intdigest(memoryview(data)[:end])
    )


def _is_even(data: bytes, start: int, end: int, count: int) -> bool:
    """True when the column is a list of bodies of one length: their heads lie a stride apart."""
    start += 1 + layout.LONG_ARRAYS.get(data[start], 0)
    stride, rest = divmod(end - start, count)
    if start >= end or rest or stride < _BIN8_BYTES:
        return False
    first = data[start]
    if first == _BIN8:
        size = bytes((stride - _BIN8_BYTES,)) if stride - _BIN8_BYTES <= _U8_MAX else b""
    elif first == _BIN16 and _BIN16_BYTES <= stride <= _U16_MAX:
        size = (stride - _BIN16_BYTES).to_bytes(2, "big")
    else:
        return False
    heads = bytes((first,)) + size
    if count == 1:
        return bool(size) and data.startswith(heads, start)
    return bool(size) and all(
        data[start + at : end : stride] == heads[at : at + 1] * count for at in range(len(heads))
    )
