"""One message of a request: what its headers say about it, checked, and the batch it becomes."""

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from math import isfinite
from typing import Any, Final, NamedTuple

from penstock.batch import check
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.limits import DELAY_S_MAX, PRIORITY_MAX, PRIORITY_MIN
from penstock.wire.rest_path import quote, unquote

PREFIX: Final = "penstock-"
HEADER_PREFIX: Final = "penstock-header-"
CONTENT_TYPE: Final = "content-type"
UNSAID: Final = "application/x-www-form-urlencoded"
"""What `curl -d` sends when nobody chose a content type: it says nothing about the body."""
KNOWN: Final = frozenset(
    (
        *("penstock-key", "penstock-id", "penstock-priority", "penstock-no-body"),
        *("penstock-deliver-at", "penstock-delay-s", "penstock-expires-at", "penstock-ttl-s"),
        *("penstock-key-base64",),
    )
)
SAFE: Final = frozenset(range(0x20, 0x7F)) - {0x25}
"""Bytes that stand for themselves in the value of an HTTP header of ours."""


class Fields(NamedTuple):
    """A message before it is encoded; times in Unix milliseconds, 0 = none."""

    body: bytes | None
    key: bytes | str | None = None
    id: str | None = None
    headers: dict[str, str] | None = None
    priority: int = 0
    deliver_at_ms: int = 0
    expires_at_ms: int = 0


def from_headers(headers: Mapping[str, str], body: bytes, now_ms: int) -> Fields:
    """The message a plain request publishes. Raises InvalidArgument, TooLarge.

    `headers` has names in lower case.
    """
    content_type = headers.get(CONTENT_TYPE)
    if content_type == UNSAID:
        content_type = None
    given = [name for name in headers if name.startswith(PREFIX)]
    if not given and content_type is None:
        return Fields(body)
    said: dict[str, str] = {}
    if content_type is not None:
        said[CONTENT_TYPE] = header_text(CONTENT_TYPE, content_type)
    for name in given:
        if name.startswith(HEADER_PREFIX):
            said[name[len(HEADER_PREFIX) :]] = header_text(name, headers[name])
        elif name not in KNOWN:
            raise InvalidArgument(
                f"there is no header {name!r}; known: {', '.join(sorted(KNOWN))} and "
                f"{HEADER_PREFIX}<name>"
            )
    return Fields(
        None if _is_bodiless(headers, body) else body,
        _key(headers),
        check.id(_id(headers)),
        check.headers(said),
        priority_of(headers.get("penstock-priority")),
        moment_of(headers, "penstock-deliver-at", "penstock-delay-s", now_ms),
        moment_of(headers, "penstock-expires-at", "penstock-ttl-s", now_ms),
    )


def to_headers(fields: Fields) -> dict[str, str]:
    """The headers that say this message again: the opposite of `from_headers`."""
    found: dict[str, str] = {}
    if isinstance(fields.key, str):
        found["penstock-key"] = quote(fields.key.encode(), SAFE)
    if fields.id is not None:
        found["penstock-id"] = quote(fields.id.encode(), SAFE)
    if fields.priority:
        found["penstock-priority"] = str(fields.priority)
    for name, value in (fields.headers or {}).items():
        shown = name if name == CONTENT_TYPE else HEADER_PREFIX + name
        found[shown] = quote(value.encode(), SAFE)
    return found


def priority_of(text: str | None) -> int:
    """A priority in a header. Raises InvalidArgument."""
    if text is None:
        return 0
    if not text.removeprefix("-").isdecimal() or not text.isascii():
        raise InvalidArgument(f"penstock-priority must be a whole number, not {text!r:.80}")
    number = int(text[:12])
    if not PRIORITY_MIN <= number <= PRIORITY_MAX:
        raise InvalidArgument(
            f"penstock-priority {text[:12]} is outside {PRIORITY_MIN} to {PRIORITY_MAX}"
        )
    return number


def moment_of(headers: Mapping[str, str], at: str, after: str, now_ms: int) -> int:
    """Unix milliseconds of a time that is given in one of two headers; 0 = none."""
    fixed, later = headers.get(at), headers.get(after)
    if fixed is None and later is None:
        return 0
    if fixed is not None and later is not None:
        raise InvalidArgument(f"give either {at} or {after}, not both")
    if later is not None:
        return later_ms(after, _number(after, later), now_ms)
    assert fixed is not None
    return check.seconds(at, _time(at, fixed))


def later_ms(name: str, seconds: Any, now_ms: int) -> int:
    """Unix milliseconds so many seconds from now. Raises InvalidArgument."""
    if not isfinite(seconds) or not 0 <= seconds <= DELAY_S_MAX:
        raise InvalidArgument(
            f"{name} must be seconds from 0 to {DELAY_S_MAX:.0f}, not {seconds!r:.80}"
        )
    return now_ms + round(float(seconds) * 1000)


def header_text(name: str, value: str) -> str:
    """The text a header of ours carries: UTF-8, in which marks may be percent-encoded."""
    raw = value.encode("latin-1")
    try:
        return (unquote(raw) if b"%" in raw else raw).decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"header {name} is not UTF-8 text") from error


def _id(headers: Mapping[str, str]) -> str | None:
    found = _text(headers, "penstock-id")
    if found == "":
        raise InvalidArgument("penstock-id is empty: leave it out, and the message gets an id")
    return found


def _is_bodiless(headers: Mapping[str, str], body: bytes) -> bool:
    said = headers.get("penstock-no-body")
    if said is None:
        return False
    if said != "true" or body:
        raise InvalidArgument("penstock-no-body must be 'true', and the request without a body")
    return True


def _key(headers: Mapping[str, str]) -> bytes | str | None:
    plain, coded = _text(headers, "penstock-key"), headers.get("penstock-key-base64")
    if coded is None:
        return check.key(plain)
    if plain is not None:
        raise InvalidArgument("give either penstock-key or penstock-key-base64, not both")
    return check.key(from_base64("penstock-key-base64", coded))


def from_base64(name: str, text: str) -> bytes:
    """The bytes a base64 text means. Raises InvalidArgument."""
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidArgument(f"{name} is not base64: {error}") from error


def _text(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    return None if value is None else header_text(name, value)


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise InvalidArgument(f"{name} must be a number, not {text!r:.80}")
    return number


def _time(name: str, text: str) -> float:
    """Unix seconds, or a date and time with its zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _number(name, text)
    if moment.tzinfo is None:
        raise InvalidArgument(f"{name} {text!r:.80} has no zone: end it in Z or +00:00")
    return moment.timestamp()
