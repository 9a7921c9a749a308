"""A message as one line: for people, as JSON for machines, and from JSON back again.

The JSON that `sub`, `tail` and `peek` print is what `pub --ndjson` reads, so messages can be
piped from one topic to another.
"""

import base64
import json
from typing import Any, Final

from penstock.cli.output import moment, printable
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.message import Message

LINE_BODY_MAX: Final = 200

_FROM_BROKER: Final = frozenset(
    {"topic", "partition", "offset", "position", "published_at", "attempt"}
)
_FROM_PUBLISHER: Final = frozenset(
    {"body", "body_base64", "json", "key", "key_base64", "id", "headers", "priority"}
    | {"deliver_at", "expires_at"}
)


def to_json(message: Any) -> dict[str, Any]:
    """A received message for machines; bytes that are not text come as base64."""
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "position": message.position,
        "id": message.id,
        **_text_or_base64("key", message.key),
        "headers": dict(message.headers or {}),
        "priority": message.priority,
        "published_at": message.published_at,
        "attempt": message.attempt,
        **_text_or_base64("body", message.body),
    }


def to_line(message: Any) -> str:
    """A received message for people: where, when, key, body."""
    parts = [f"{message.position:>8}", moment(message.published_at)]
    if message.key is not None:
        parts.append(f"key={printable(_bytes(message.key))}")
    return "  ".join([*parts, shortened(message.body)])


def shortened(body: bytes | None) -> str:
    """The beginning of a body, fit for one line."""
    if body is None:
        return "(no body)"
    text = printable(bytes(body[: LINE_BODY_MAX + 1]))
    return text if len(body) <= LINE_BODY_MAX else f"{text[:LINE_BODY_MAX]}… ({len(body):,} bytes)"


def from_json(line: bytes | str, where: str) -> Message:
    """A message to publish from one line of JSON. Raises InvalidArgument, naming the line."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise InvalidArgument(f"{where} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidArgument(f"{where} is not a JSON object with a body, a key and so on")
    unknown = sorted(fields.keys() - _FROM_PUBLISHER - _FROM_BROKER)
    if unknown:
        raise InvalidArgument(
            f"{where} has the unknown field {unknown[0]!r}; known: "
            f"{', '.join(sorted(_FROM_PUBLISHER))}. To publish lines as they are, use --lines"
        )
    given = fields.keys() & _FROM_PUBLISHER
    plain = {name: fields[name] for name in given & _PLAIN}
    return Message(
        body=_body(fields, where), key=_unpacked(fields, "key", where), **_checked(plain, where)
    )


_PLAIN: Final = frozenset({"id", "headers", "priority", "deliver_at", "expires_at"})
_TYPES: Final[dict[str, Any]] = {
    "id": str,
    "headers": dict,
    "priority": int,
    "deliver_at": int | float,
    "expires_at": int | float,
}


def _checked(fields: dict[str, Any], where: str) -> dict[str, Any]:
    for name, value in fields.items():
        if value is not None and not isinstance(value, _TYPES[name]):
            raise InvalidArgument(f"{where}: {name!r} has the wrong type: {value!r}")
    return {name: value for name, value in fields.items() if value is not None}


def _body(fields: dict[str, Any], where: str) -> bytes | str | None:
    if "json" in fields:
        return json.dumps(fields["json"], ensure_ascii=False, separators=(",", ":"))
    return _unpacked(fields, "body", where)


def _unpacked(fields: dict[str, Any], name: str, where: str) -> bytes | str | None:
    packed = fields.get(f"{name}_base64")
    if packed is not None:
        try:
            return base64.b64decode(packed, validate=True)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{where}: {name}_base64 is not base64") from error
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(
            f"{where}: {name!r} must be text"
            + ("; put a JSON value under 'json'" if name == "body" else "")
        )
    return value


def _text_or_base64(name: str, value: bytes | str | None) -> dict[str, Any]:
    if value is None or isinstance(value, str):
        return {name: value}
    try:
        return {name: bytes(value).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
