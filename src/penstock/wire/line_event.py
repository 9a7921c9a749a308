"""An event of the line protocol: the JSON behind `pub`, held to its rules.

    {"id": "1", "priority": 3, "msg": "any JSON"}

`id` is text or a whole number, `priority` a whole number (0 when left out), `msg` any JSON (none
when left out). Every key stands once, nothing is deeper than JSON_DEPTH_MAX, and NaN is no number.
The bytes of `msg` become the body as they are: what comes out is what went in.
"""

import json
import re
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from penstock.vocabulary.errors import InvalidArgument, TooLarge
from penstock.vocabulary.limits import (
    BODY_BYTES_MAX,
    ID_BYTES_MAX,
    JSON_DEPTH_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
)

EXAMPLE: Final = '{"id":"1","priority":3,"msg":"hello"}'
KEYS: Final = frozenset({"id", "priority", "msg"})


class Event(NamedTuple):
    """What one `pub` stores."""

    id: str
    priority: int
    body: bytes | None


class _Common(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The commonest form: all three keys, a text as id."""

    id: str
    priority: Annotated[int, msgspec.Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)]
    msg: msgspec.Raw


_common = msgspec.json.Decoder(_Common).decode
_QUOTE: Final = 0x22
_COMMON_QUOTES: Final = 10
"""Three keys, the id and the msg: five strings."""


def parse_event(data: bytes) -> Event:
    """The event in these bytes. Raises InvalidArgument, TooLarge with the rule that is broken."""
    # Without escapes every two quotes are a string, so that counting them proves that each key
    # stands once. Whatever is not of this form goes the long way, which decides the same for it.
    if data.count(b'"') == _COMMON_QUOTES and b"\\" not in data and data.isascii():
        try:
            found = _common(data)
        except msgspec.MsgspecError:
            return parse_any(data)  # which says it in our own words
        body = bytes(found.msg)
        if body[0] == _QUOTE and 0 < len(found.id) <= ID_BYTES_MAX and len(body) <= BODY_BYTES_MAX:
            return Event(found.id, found.priority, body)
    return parse_any(data)


def parse_any(data: bytes) -> Event:
    """The same for every form. Raises InvalidArgument, TooLarge."""
    fields = _fields(data)
    if not isinstance(fields, dict):
        raise InvalidArgument(f"an event is a JSON object, such as {EXAMPLE}")
    for key in fields:
        if key not in KEYS:
            raise InvalidArgument(
                f"an event has id, priority and msg, and no {_quoted(key)}: put it inside msg"
            )
    if "id" not in fields:
        raise InvalidArgument(f"the event has no id: write one, as in {EXAMPLE}")
    body = _raw_msg(data) if "msg" in fields else None
    if body is not None and len(body) > BODY_BYTES_MAX:
        raise TooLarge(
            f"msg of {len(body)} bytes is over the limit of {BODY_BYTES_MAX}; send it in parts, or "
            "store it elsewhere and publish where it is"
        )
    return Event(_id(fields["id"]), _priority(fields.get("priority", 0)), body)


def _id(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise InvalidArgument("id must be text or a whole number")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument("id is not valid Unicode text") from error
    if not size:
        raise InvalidArgument("id must not be empty")
    if size > ID_BYTES_MAX:
        raise TooLarge(
            f"id of {size} bytes is over the limit of {ID_BYTES_MAX}; use a shorter one, such as "
            "its hash"
        )
    return value


def _priority(value: Any) -> int:
    if isinstance(value, float):
        raise InvalidArgument("priority must be a whole number, such as 3 or -1")
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument("priority is not a number: it must be whole, such as 3 or -1")
    if not PRIORITY_MIN <= value <= PRIORITY_MAX:
        raise InvalidArgument(f"priority is outside the limits {PRIORITY_MIN} to {PRIORITY_MAX}")
    return value


# -- JSON ---------------------------------------------------------------------------------------


class _OnlyMsg(msgspec.Struct):
    """Where in the event `msg` lies."""

    msg: msgspec.Raw


_only_msg = msgspec.json.Decoder(_OnlyMsg)
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_AS_SQUARE: Final = bytes.maketrans(b"{}", b"[]")


def _fields(data: bytes) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument("the event is not UTF-8 text") from error
    if data.count(b"[") + data.count(b"{") > JSON_DEPTH_MAX and _is_deep(data):
        raise InvalidArgument(f"the event has more than {JSON_DEPTH_MAX} levels")
    try:
        return _strict.decode(text)
    except json.JSONDecodeError as error:
        what = (error.msg[:1].lower() + error.msg[1:]).removesuffix(" at")
        raise InvalidArgument(
            f"the event is not JSON: {what} at character {error.pos + 1}; write it like {EXAMPLE}"
        ) from error
    except ValueError as error:  # a whole number of thousands of digits
        raise InvalidArgument("the event has a number of too many digits") from error


def _raw_msg(data: bytes) -> bytes:
    try:
        return bytes(_only_msg.decode(data).msg)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidArgument(f"msg is not JSON: {error}") from error


def _is_deep(data: bytes) -> bool:
    """True when brackets stand deeper than allowed. Each round takes the innermost pairs out."""
    left = _STRINGS.sub(b"", data).translate(_AS_SQUARE, _NOT_BRACKETS)
    for _ in range(JSON_DEPTH_MAX):
        left = left.replace(b"[]", b"")
        if not left:
            return False
    return True


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(f"the event has the key {_quoted(twice)} twice")
    return fields


def _no_constant(name: str) -> None:
    raise InvalidArgument(f"the event is not JSON: {name} is no number there")


def _finite(text: str) -> float:
    number = float(text)
    if number in _INFINITE:
        raise InvalidArgument("the event has a number that is too large")
    return number


_INFINITE: Final = (float("inf"), float("-inf"))
_strict = json.JSONDecoder(
    object_pairs_hook=_each_once, parse_constant=_no_constant, parse_float=_finite
)


def _quoted(key: str) -> str:
    return json.dumps(key[:80])
