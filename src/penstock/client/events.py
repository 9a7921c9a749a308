"""An event: an id, where it comes from, what kind it is, and its data. It travels as a message.

`source` and `type` are headers, `data` is the body, and its content type tells how to read it:
text, a JSON value, or bytes. Where a URL keeps no given ids, the id is a header too. A URL whose
messages are bodies only (MQTT 3.1.1) carries the event as JSON, as CloudEvents 1.0 writes it.

CloudEvents 1.0 of other programs are read in both their forms, on every URL: attributes in headers
(`ce_id` as on Kafka, `ce-id` as over HTTP, `id` as over MQTT), or all of it in a JSON body, whose
content type says so, or which has no headers at all.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote
from uuid import uuid4

import msgspec

from penstock.client.received import ReceivedMessage
from penstock.vocabulary.errors import InvalidArgument

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
STRUCTURED: Final = "application/cloudevents+json"
SPECVERSION: Final = "1.0"


class Event(msgspec.Struct, frozen=True):
    """What is published and received with a capability file. An empty id is made by Penstock."""

    id: str = ""
    source: str = ""
    type: str = ""
    data: Any = None
    """Text, bytes, any JSON value, or None."""


def fields_of(event: Event, *, has_ids: bool, has_headers: bool) -> dict[str, Any]:
    """How an event is published: the arguments of `publish`. Raises InvalidArgument."""
    if not isinstance(event, Event):
        raise InvalidArgument(
            f"publish takes an Event(id, source, type, data), not {event!r:.100}"
        )  # fmt: skip
    for name in ("id", "source", "type"):
        if not isinstance(getattr(event, name), str):
            raise InvalidArgument(f"Event.{name} is text, not {getattr(event, name)!r:.100}")
    if not has_headers:
        return {"body": _structured(event)}
    headers = {name: getattr(event, name) for name in ("source", "type") if getattr(event, name)}
    body, content_type = _body(event.data)
    if content_type:
        headers["content-type"] = content_type
    fields: dict[str, Any] = {"body": body, "headers": headers}
    if event.id and has_ids:
        fields["id"] = event.id
    elif event.id:
        headers["id"] = event.id
    return fields


def event_of(message: ReceivedMessage) -> Event:
    """The event a message carries; of another program's message, what can be known."""
    headers, body = message.headers, message.body
    content_type = _media(headers.get("content-type", ""))
    if body and (content_type == STRUCTURED or not headers):
        found = _from_structured(body)
        if found is not None:
            return found
    told = _attributes(headers)
    return Event(
        told.get("id") or message.id, told.get("source", ""), told.get("type", ""),
        _data(body, content_type),
    )  # fmt: skip


def _attributes(headers: Mapping[str, str]) -> Mapping[str, str]:
    """What the headers say of an event: their own names, or those of a binding of CloudEvents."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        start, attribute = name[:3].lower(), name[3:].lower()
        if start == "ce_":
            found[attribute] = value
        elif start == "ce-":  # HTTP, whose headers are ASCII
            found[attribute] = unquote(value)
    return found if found.get("specversion") == SPECVERSION else headers


def _body(data: Any) -> tuple[bytes | None, str]:
    if data is None:
        return None, ""
    if isinstance(data, str):
        return data.encode(), TEXT
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data), BYTES
    try:
        return msgspec.json.encode(data), JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"Event.data cannot be written as JSON: {error}") from error


def _media(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _data(body: bytes | None, media: str) -> Any:
    if body is None:
        return None
    if media == JSON or media.endswith("+json"):
        try:
            return json.loads(body)
        except ValueError:
            return body
    if media and not media.startswith("text/") and not media.endswith("xml"):
        return body
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def _structured(event: Event) -> bytes:
    told: dict[str, Any] = {
        "specversion": SPECVERSION, "id": event.id or uuid4().hex,
        "source": event.source, "type": event.type,
    }  # fmt: skip
    if isinstance(event.data, bytes | bytearray | memoryview):
        told["data_base64"] = b64encode(event.data).decode()
    elif event.data is not None:
        told["data"] = event.data
    return _body(told)[0] or b""


def _from_structured(body: bytes) -> Event | None:
    if not body.startswith(b"{"):
        return None
    try:
        told = json.loads(body)
        if told.get("specversion") != SPECVERSION or not {"id", "source", "type"} <= told.keys():
            return None
        data = told.get("data")
        if "data_base64" in told:
            data = b64decode(told["data_base64"], validate=True)
        return Event(str(told["id"]), str(told["source"]), str(told["type"]), data)
    except (ValueError, TypeError, RecursionError):
        return None
