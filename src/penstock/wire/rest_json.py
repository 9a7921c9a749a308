"""JSON from strangers: no repeated keys, no NaN, no depth without end; then made into a type."""

import json
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from penstock.vocabulary.errors import InvalidArgument
from penstock.wire.rest_words import in_words

DEPTH_MAX: Final = 64

T = TypeVar("T")


def parse(data: bytes | str, what: str = "the body") -> Any:
    """The value these bytes say. Raises InvalidArgument, which tells what is wrong with them."""
    try:
        value = json.loads(data, object_pairs_hook=_object, parse_constant=_constant)
        text = data.decode() if isinstance(data, bytes) else data
    except InvalidArgument as error:
        raise InvalidArgument(f"{what} {error.text}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{what} is not UTF-8 text: {error.reason}") from error
    except RecursionError as error:
        raise InvalidArgument(f"{what} is nested deeper than {DEPTH_MAX} levels") from error
    except ValueError as error:
        raise InvalidArgument(f"{what} is not JSON: {error}") from error
    check_depth(value, what)
    if "\\u" in text:
        _check_text(value, what)
    return value


def read(data: bytes, kind: type[T], what: str = "the body") -> T:
    """The value these bytes say, as this type; nothing at all means no field given.

    Raises InvalidArgument, which names the field that is wrong.
    """
    return convert(parse(data, what) if data.strip() else {}, kind, what)


def convert(value: Any, kind: type[T], what: str = "the body") -> T:
    """A plain value as this type. Raises InvalidArgument, which names the field that is wrong."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{what} does not fit: {in_words(error, kind)}") from error


def check_depth(value: Any, what: str = "the body") -> None:
    """Raises InvalidArgument for a value nested too deep."""
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        level = [i for each in level for i in _inside(each) if isinstance(i, dict | list)]
        if not level:
            return
    raise InvalidArgument(f"{what} is nested deeper than {DEPTH_MAX} levels")


def key_count(value: Any) -> int:
    """How many keys all objects in a value have together."""
    count = 0
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            count += len(each)
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
    return count


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(f"names {twice!r:.80} twice in one object")
    return found


def _constant(name: str) -> Any:
    raise InvalidArgument(f"contains {name}, which is not JSON")


def _check_text(value: Any, what: str) -> None:
    """Half a surrogate pair can be written in JSON and is no Unicode text."""
    try:
        msgspec.json.encode(value)
    except (UnicodeEncodeError, ValueError) as error:
        raise InvalidArgument(f"{what} contains text that is not Unicode") from error
