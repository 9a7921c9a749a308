"""CloudEvents 1.0 and our message, both ways, without loss: binary, structured and batch.

    id                          the message's id
    partitionkey                its key, when that is text; else it is `penstockkeybase64`
    penstockpriority            its priority
    datacontenttype             header `content-type`
    penstockheaders             a JSON object of the headers whose names no attribute may have
    every other attribute       the header of the same name: source, type, subject, time, …

A message without `source` or `type`, which an event must have, is given one that is left out again
on the way back. What the broker sets (`penstocktoken`, `penstockposition`, `penstockattempt`) is
told with an event and not read from one.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from penstock.batch import check
from penstock.vocabulary.errors import InvalidArgument
from penstock.wire.rest_fields import (
    CONTENT_TYPE,
    PREFIX,
    Fields,
    from_base64,
    from_headers,
    header_text,
)
from penstock.wire.rest_json import parse
from penstock.wire.rest_path import quote

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
CE_PREFIX: Final = "ce-"
SAFE: Final = frozenset(range(0x21, 0x7F)) - {0x22, 0x25}
"""Bytes that stand for themselves in the value of a `ce-` header."""
SAFE_IN_TYPE: Final = SAFE | {0x20, 0x22}
"""The same for `content-type`, whose parameters may have spaces and quotes."""

NAME: Final = re.compile(r"[a-z0-9]{1,20}")
JSON_TYPE: Final = re.compile(r"(application|text)/([a-z0-9.\-]+\+)?json\s*(;.*)?", re.IGNORECASE)
TEXT_TYPE: Final = re.compile(r"text/.*", re.IGNORECASE)
REQUIRED: Final = ("id", "source", "type", "specversion")
OWN: Final = frozenset(
    (
        *("id", "specversion", "data", "data_base64", "datacontenttype", "partitionkey"),
        *("penstockpriority", "penstockheaders", "penstocktoken", "penstockposition"),
        *("penstockattempt", "penstockkeybase64", "time"),
    )
)
"""Attributes that are not simply the header of their name."""
SET_BY_BROKER: Final = frozenset({"penstocktoken", "penstockposition", "penstockattempt"})
NO_TYPE: Final = "penstock.message"
NO_SOURCE: Final = "penstock:/topics/"
"""What stands for the type and the source of a message that has none."""
_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAWS: Final = msgspec.json.Decoder(list[msgspec.Raw])


# -- in -------------------------------------------------------------------------------------------


def is_binary(headers: Mapping[str, str]) -> bool:
    """True when the headers of a request carry an event."""
    return "ce-specversion" in headers or "ce-id" in headers or "ce-type" in headers


def from_binary(headers: Mapping[str, str], body: bytes, now_ms: int) -> Fields:
    """The message of an event in binary mode. Raises InvalidArgument, TooLarge.

    Headers of ours may say more about the message than an event can: when to deliver it.
    """
    attributes = {
        name[len(CE_PREFIX) :]: header_text(name, value)
        for name, value in headers.items()
        if name.startswith(CE_PREFIX)
    }
    if "content-type" in headers:
        attributes["datacontenttype"] = header_text(CONTENT_TYPE, headers["content-type"])
    event = _message(attributes, body or None, "the event")
    return with_headers(event, headers, now_ms)


def with_headers(event: Fields, headers: Mapping[str, str], now_ms: int) -> Fields:
    """The message with what headers of ours say about it besides. Raises InvalidArgument."""
    own = {name: value for name, value in headers.items() if name.startswith(PREFIX)}
    if not own:
        return event
    said = from_headers(own, b"", now_ms)
    return Fields(
        event.body,
        event.key if said.key is None else said.key,
        event.id if said.id is None else said.id,
        check.headers({**(event.headers or {}), **(said.headers or {})}),
        said.priority or event.priority,
        said.deliver_at_ms,
        said.expires_at_ms,
    )


def from_structured(data: bytes) -> Fields:
    """The message of an event in structured mode. Raises InvalidArgument, TooLarge."""
    event = parse(data, "the event")
    return _from_json(event, data, _RAW, "the event")


def from_batch(data: bytes) -> list[Fields]:
    """The messages of a batch of events. Raises InvalidArgument; the text names the event."""
    events = parse(data, "the batch")
    if not isinstance(events, list):
        raise InvalidArgument("a batch of CloudEvents is a JSON array of events")
    raws = _RAWS.decode(data)
    return [
        _from_json(event, raw, _RAW, f"event {index}")
        for index, (event, raw) in enumerate(zip(events, raws, strict=True))
    ]


def _from_json(event: Any, data: Any, decoder: Any, what: str) -> Fields:
    if not isinstance(event, dict):
        raise InvalidArgument(f"{what} is not a JSON object")
    attributes: dict[str, str] = {}
    for name, value in event.items():
        if name not in {"data", "data_base64"} and value is not None:
            attributes[name] = _canonical(name, value, what)
    return _message(attributes, _data(event, lambda: decoder.decode(data)["data"], what), what)


def _canonical(name: str, value: Any, what: str) -> str:
    """An attribute as text: numbers and truth values in the form the specification gives them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    raise InvalidArgument(f"{what}: attribute {name!r:.80} must be text, a whole number or a bool")


def _data(event: dict[str, Any], raw: Callable[[], Any], what: str) -> bytes | None:
    data, coded = event.get("data"), event.get("data_base64")
    if coded is not None:
        if data is not None:
            raise InvalidArgument(f"{what} has both data and data_base64")
        if not isinstance(coded, str):
            raise InvalidArgument(f"{what}: data_base64 must be text")
        return from_base64(f"{what}: data_base64", coded)
    if data is None:
        return None
    kind = event.get("datacontenttype")
    if isinstance(data, str) and isinstance(kind, str) and not JSON_TYPE.fullmatch(kind):
        return data.encode()
    return bytes(raw())  # the very text: a number may be one that Python cannot hold


def _message(attributes: dict[str, str], body: bytes | None, what: str) -> Fields:
    for name in REQUIRED:
        if not attributes.get(name):
            raise InvalidArgument(f"{what} lacks the attribute {name!r}, which every event has")
    if attributes["specversion"] != "1.0":
        raise InvalidArgument(
            f"{what} has specversion {attributes['specversion']!r:.20}; this server reads '1.0'"
        )
    headers: dict[str, str] = {}
    for name, value in attributes.items():
        if not NAME.fullmatch(name) and not (name.isascii() and name.isalnum() and name.islower()):
            raise InvalidArgument(
                f"{what}: attribute {name!r:.80} must have lower-case letters and digits only"
            )
        if name not in OWN and not _is_stand_in(name, value):
            headers[name] = value
    if "datacontenttype" in attributes:
        headers[CONTENT_TYPE] = attributes["datacontenttype"]
    if "time" in attributes:
        headers["time"] = _time(attributes["time"], what)
    headers.update(_more_headers(attributes.get("penstockheaders"), what))
    return Fields(
        check.body(body),
        check.key(_key(attributes, what)),
        check.id(attributes["id"]),
        check.headers(headers),
        _priority(attributes.get("penstockpriority"), what),
    )


def _is_stand_in(name: str, value: str) -> bool:
    return (name == "type" and value == NO_TYPE) or (
        name == "source" and value.startswith(NO_SOURCE)
    )


def _time(text: str, what: str) -> str:
    if not _is_time(text):
        raise InvalidArgument(f"{what}: time {text!r:.80} is not a date and time as in RFC 3339")
    return text


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None and text[10] in "Tt "
    except (ValueError, IndexError):
        return False


def _more_headers(text: str | None, what: str) -> dict[str, str]:
    if text is None:
        return {}
    found = parse(text, f"{what}: penstockheaders")
    if not isinstance(found, dict):
        raise InvalidArgument(f"{what}: penstockheaders must be a JSON object of text to text")
    return check.headers(found) or {}


def _key(attributes: dict[str, str], what: str) -> bytes | str | None:
    coded = attributes.get("penstockkeybase64")
    if coded is None:
        return attributes.get("partitionkey")
    return from_base64(f"{what}: penstockkeybase64", coded)


def _priority(text: str | None, what: str) -> int:
    try:
        return check.priority(int(text or 0))
    except ValueError as error:
        raise InvalidArgument(f"{what}: penstockpriority is not a whole number") from error


# -- out ------------------------------------------------------------------------------------------


def attributes_of(fields: Fields, topic: str, position: str, attempt: int) -> dict[str, Any]:
    """The attributes of the event a message is."""
    headers = dict(fields.headers or {})
    found: dict[str, Any] = {
        "specversion": "1.0",
        "id": fields.id or position,
        "source": headers.pop("source", "") or NO_SOURCE + topic,
        "type": headers.pop("type", "") or NO_TYPE,
    }
    if headers.get(CONTENT_TYPE):
        found["datacontenttype"] = headers.pop(CONTENT_TYPE)
    if _is_time(headers.get("time", "")):
        found["time"] = headers.pop("time")
    more: dict[str, str] = {}
    for name, value in headers.items():
        fits = NAME.fullmatch(name) and name not in OWN and value
        (found if fits else more)[name] = value
    if isinstance(fields.key, str) and fields.key:
        found["partitionkey"] = fields.key
    elif isinstance(fields.key, bytes):
        found["penstockkeybase64"] = b64encode(fields.key).decode()
    if fields.priority:
        found["penstockpriority"] = fields.priority
    if more:
        found["penstockheaders"] = msgspec.json.encode(more).decode()
    found["penstockposition"] = position
    if attempt:
        found["penstockattempt"] = attempt
    return found


def to_structured(attributes: dict[str, Any], body: bytes | None) -> dict[str, Any]:
    """The event as a JSON object; a body that is JSON stays the very text it is."""
    if body is None:
        return attributes
    kind = attributes.get("datacontenttype")
    if kind is None or JSON_TYPE.fullmatch(kind):
        if _is_json(body):
            return {**attributes, "data": msgspec.Raw(body)}
    elif TEXT_TYPE.fullmatch(kind):
        try:
            return {**attributes, "data": body.decode()}
        except UnicodeDecodeError:
            pass
    return {**attributes, "data_base64": b64encode(body).decode()}


def to_binary(attributes: dict[str, Any]) -> dict[str, str]:
    """The headers of the event in binary mode."""
    found = {
        f"{CE_PREFIX}{name}": quote(str(value).encode(), SAFE)
        for name, value in attributes.items()
        if name != "datacontenttype"
    }
    if "datacontenttype" in attributes:
        found[CONTENT_TYPE] = quote(attributes["datacontenttype"].encode(), SAFE_IN_TYPE)
    return found


def _is_json(body: bytes) -> bool:
    """True for a body that may stand in an event as it is; null would read back as no body."""
    try:
        return msgspec.json.decode(body) is not None
    except (ValueError, RecursionError):
        return False
