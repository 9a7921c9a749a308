"""What a publisher may put into a message: each value made plain and held to its limit.

A function named after one value takes whatever the caller gave and returns what the format
stores. Its plural does so for a column, names the message that is wrong, and returns a column
that is right already as it is. `encode` calls them on what goes out, `view` on what came in.
All raise TooLarge or InvalidArgument.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from operator import index
from typing import Any, Final, TypeVar

from penstock.vocabulary.errors import InvalidArgument, TooLarge
from penstock.vocabulary.limits import (
    BODY_BYTES_MAX,
    HEADER_BYTES_MAX,
    HEADER_COUNT_MAX,
    ID_BYTES_MAX,
    KEY_BYTES_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
)

T = TypeVar("T")

MS_MAX: Final = 2**63 - 1
UTF8_BYTES_MAX: Final = 4
"""Most bytes of one character."""

_ADVICE: Final = {
    "body": "send it in parts, or store it elsewhere and publish a message without a body whose "
    "key or headers say where it is",
    "key": "put it into the body, and use a short key such as its hash",
    "id": "use a shorter one, such as its hash",
    "headers": "put what is long or many into the body",
}
"""What to do about a value that is too long; a header has the advice of all."""

_BODY_TYPES: Final = frozenset((bytes, type(None)))
_KEY_TYPES: Final = frozenset((bytes, str, type(None)))
_ID_TYPES: Final = frozenset((str, type(None)))


# -- one value ----------------------------------------------------------------------------------


def body(value: Any) -> bytes | None:
    """A body as bytes; text becomes UTF-8."""
    if value is None:
        return None
    data = _utf8("body", value) if isinstance(value, str) else _bytes("body", value)
    _refuse_over("body", len(data), BODY_BYTES_MAX)
    return data


def key(value: Any) -> bytes | str | None:
    """A key as plain text or plain bytes."""
    if value is None:
        return None
    if isinstance(value, str):
        return _text("key", value, KEY_BYTES_MAX)
    data = _bytes("key", value)
    _refuse_over("key", len(data), KEY_BYTES_MAX)
    return data


def id(value: Any) -> str | None:
    """An id as plain text; an empty one names nothing."""
    if value is None:
        return None
    plain = _text("id", value, ID_BYTES_MAX)
    if not plain:
        raise InvalidArgument("id must not be empty: leave it out, and the message gets one")
    return plain


def headers(value: Any) -> dict[str, str] | None:
    """Headers as a plain dict; no headers at all are None."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"headers must be a dict of text to text, not {_kind(value)}")
    if len(value) > HEADER_COUNT_MAX:
        raise TooLarge(
            f"{len(value)} headers are over the limit of {HEADER_COUNT_MAX}; {_ADVICE['headers']}"
        )
    plain: dict[str, str] = {}
    size = 0
    for name, text in value.items():
        plain_name = _text("header name", name, HEADER_BYTES_MAX)
        plain[plain_name] = _text(f"header {plain_name!r:.80}", text, HEADER_BYTES_MAX)
        size += len(plain_name.encode()) + len(plain[plain_name].encode())
    _refuse_over("headers", size, HEADER_BYTES_MAX)
    return plain or None


def priority(value: Any) -> int:
    """A priority as a plain int."""
    number = _whole("priority", value)
    if not PRIORITY_MIN <= number <= PRIORITY_MAX:
        raise InvalidArgument(
            f"priority {number} is outside the limits {PRIORITY_MIN} to {PRIORITY_MAX}"
        )
    return number


def milliseconds(field: str, value: Any) -> int:
    """A Unix time in milliseconds as a plain int; 0 = none."""
    number = _whole(field, value)
    if not 0 <= number <= MS_MAX:
        raise InvalidArgument(f"{field} of {number} ms is outside the limits 0 to {MS_MAX}")
    return number


def seconds(field: str, value: Any) -> int:
    """A Unix time in seconds, or None, as milliseconds."""
    if value is None:
        return 0
    is_time = isinstance(value, int) or (isinstance(value, float) and isfinite(value * 1000))
    if not is_time:
        raise InvalidArgument(f"{field} must be Unix seconds or None, not {value!r:.80}")
    # A time before the first millisecond must not turn into 0, which means none.
    return milliseconds(field, round(value * 1000) or 1)


# -- a column -----------------------------------------------------------------------------------


def bodies(values: list[Any]) -> list[bytes | None]:
    """A column of bodies."""
    kinds = set(map(type, values))
    if kinds == {bytes} and len(b"".join(values)) <= BODY_BYTES_MAX:
        return values  # together not too long: then none is
    if kinds <= _BODY_TYPES and longest(values) <= BODY_BYTES_MAX:
        return values
    if kinds == {str} and longest(values) * UTF8_BYTES_MAX <= BODY_BYTES_MAX:
        with suppress(UnicodeEncodeError):
            return list(map(str.encode, values))
    return each(body, values)


def keys(values: list[Any]) -> list[bytes | str | None]:
    """A column of keys."""
    kinds = set(map(type, values))
    if kinds <= _KEY_TYPES and _longest(values, kinds) * UTF8_BYTES_MAX <= KEY_BYTES_MAX:
        return values
    return each(key, values)


def ids(values: list[Any]) -> list[str | None]:
    """A column of ids."""
    kinds = set(map(type, values))
    is_short = kinds <= _ID_TYPES and _longest(values, kinds) * UTF8_BYTES_MAX <= ID_BYTES_MAX
    if is_short and "" not in values:
        return values
    return each(id, values)


def priorities(values: list[Any]) -> list[int]:
    """A column of priorities."""
    are_plain = {int}.issuperset(map(type, values))
    if are_plain and min(values) >= PRIORITY_MIN and max(values) <= PRIORITY_MAX:
        return values
    return each(priority, values)


def times(field: str, values: Sequence[int]) -> Sequence[int]:
    """A column of Unix times in milliseconds."""
    if {int}.issuperset(map(type, values)) and min(values) >= 0 and max(values) <= MS_MAX:
        return values
    return each(partial(milliseconds, field), values)


def each(convert: Callable[[Any], T], values: Iterable[Any]) -> list[T]:
    """Every value converted. Raises what `convert` raises, with the number of the message."""
    converted: list[T] = []
    for position, value in enumerate(values):
        try:
            converted.append(convert(value))
        except (InvalidArgument, TooLarge) as error:
            raise type(error)(f"message {position}: {error.text}") from error
    return converted


def _longest(values: list[Any], kinds: set[type]) -> int:
    """The same, faster where every value has a length."""
    return max(map(len, values)) if kinds == {str} else longest(values)


def longest(values: Iterable[Any]) -> int:
    """The length of the longest value; None has none."""
    return max(map(len, filter(None, values)), default=0)


# -- plain values -------------------------------------------------------------------------------
# A subclass, such as an enum used as a key, becomes its plain value.


def _bytes(field: str, value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidArgument(f"{field} must be bytes, text or None, not {_kind(value)}")
    return bytes(value)


def _text(field: str, value: Any, limit: int) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{field} must be text, not {_kind(value)}")
    _refuse_over(field, len(_utf8(field, value)), limit)
    return str.__str__(value)


def _utf8(field: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{field} is not valid Unicode text: {error.reason}") from error


def _whole(field: str, value: Any) -> int:
    try:
        return index(value)
    except TypeError as error:
        raise InvalidArgument(f"{field} must be a whole number, not {_kind(value)}") from error


def _refuse_over(field: str, size: int, limit: int) -> None:
    if size > limit:
        advice = _ADVICE.get(field, _ADVICE["headers"])
        raise TooLarge(f"{field} of {size} bytes is over the limit of {limit}; {advice}")


def _kind(value: Any) -> str:
    return type(value).__name__
