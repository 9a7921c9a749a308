"""CloudEvents against the official SDK, both directions, in all three modes."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from cloudevents.core.bindings.http import (
    HTTPMessage,
    from_binary_event,
    from_structured_event,
    to_binary_event,
    to_structured_event,
)
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.errors import InvalidArgument
from penstock.wire.cloudevents import (
    attributes_of,
    from_batch,
    from_binary,
    from_structured,
    is_binary,
    to_binary,
    to_structured,
    with_headers,
)
from penstock.wire.rest_fields import Fields

TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30
)
NAMES = st.from_regex(r"x[a-z0-9]{1,18}", fullmatch=True)
DATA = st.none() | st.dictionaries(TEXT, st.integers() | TEXT, min_size=1, max_size=3)
HEADER_NAMES = st.text("abcXYZ019-_.", min_size=1, max_size=25)


@st.composite
def sdk_events(draw: Any) -> CloudEvent:
    attributes: dict[str, Any] = {
        "id": draw(TEXT), "source": draw(TEXT), "type": draw(TEXT), "specversion": "1.0",
    }  # fmt: skip
    if draw(st.booleans()):
        attributes["subject"] = draw(TEXT)
    if draw(st.booleans()):
        attributes["time"] = draw(st.datetimes(datetime(1990, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
    attributes["datacontenttype"] = "application/json"
    attributes.update(draw(st.dictionaries(NAMES, TEXT, max_size=3)))
    return CloudEvent(attributes, draw(DATA))


def same(one: Any, other: Any) -> None:
    ours = {k: v for k, v in other.get_attributes().items() if not k.startswith("penstock")}
    assert ours == one.get_attributes()
    assert other.get_data() == one.get_data()


def structured(fields: Fields) -> bytes:
    return msgspec.json.encode(to_structured(attributes_of(fields, "t", "0:1", 1), fields.body))


@given(sdk_events())
def test_structured_events_of_the_sdk_come_back_to_it(event: CloudEvent) -> None:
    fields = from_structured(to_structured_event(event).body)
    answer = HTTPMessage({"content-type": "application/cloudevents+json"}, structured(fields))
    same(event, from_structured_event(answer))


@given(sdk_events())
def test_binary_events_of_the_sdk_come_back_to_it(event: CloudEvent) -> None:
    message = to_binary_event(event)
    headers = {name.lower(): value for name, value in message.headers.items()}
    assert is_binary(headers)
    fields = from_binary(headers, message.body, 0)
    back = to_binary(attributes_of(fields, "t", "0:1", 1))
    same(event, from_binary_event(HTTPMessage(back, fields.body or b"")))


@given(st.lists(sdk_events(), max_size=4))
def test_batches_of_the_sdk_come_back_to_it(events: list[CloudEvent]) -> None:
    joined = b"[" + b",".join(to_structured_event(event).body for event in events) + b"]"
    found = from_batch(joined)
    assert len(found) == len(events)
    for event, fields in zip(events, found, strict=True):
        same(event, from_structured_event(HTTPMessage({}, structured(fields))))


@given(
    st.none() | st.binary(max_size=40) | TEXT.map(str.encode),
    st.none() | st.binary(max_size=20) | TEXT,
    TEXT,
    st.dictionaries(HEADER_NAMES | st.sampled_from(["id", "data", "time"]), TEXT, max_size=4),
    st.sampled_from([None, "application/json", "text/plain", "image/png"]),
    st.integers(-32768, 32767),
)
def test_our_messages_come_back_from_events(
    body: bytes | None, key: bytes | str | None, id: str, headers: dict[str, str],
    content_type: str | None, priority: int,
) -> None:  # fmt: skip
    if content_type is not None:
        headers["content-type"] = content_type
    fields = Fields(body, key, id, headers or None, priority)
    assert from_structured(structured(fields)) == fields
    attributes = attributes_of(fields, "t", "0:1", 1)
    binary = from_binary(to_binary(attributes), body or b"", 0)
    assert binary == fields._replace(body=body or None)


def test_attributes_have_their_place_in_a_message() -> None:
    event = {
        "specversion": "1.0", "id": "i", "source": "/s", "type": "t", "subject": "u",
        "datacontenttype": "application/json", "traceparent": "00-a", "flag": True, "n": 5,
        "partitionkey": "k", "data": {"a": 1},
    }  # fmt: skip
    fields = from_structured(json.dumps(event).encode())
    assert fields == Fields(
        b'{"a": 1}', "k", "i",
        {"source": "/s", "type": "t", "subject": "u", "traceparent": "00-a", "flag": "true",
         "n": "5", "content-type": "application/json"},
    )  # fmt: skip


def test_the_text_of_data_is_kept_to_the_digit() -> None:
    text = b'{"specversion":"1.0","id":"i","source":"s","type":"t","data":{"x": 1.10, "y":1e400}}'
    assert from_structured(text).body == b'{"x": 1.10, "y":1e400}'


def test_text_data_is_the_text_itself() -> None:
    event = b'{"specversion":"1.0","id":"i","source":"s","type":"t","data":"hi",'
    event += b'"datacontenttype":"text/plain"}'
    fields = from_structured(event)
    assert fields.body == b"hi"
    assert json.loads(structured(fields))["data"] == "hi"


def test_a_message_without_source_and_type_has_some_as_an_event() -> None:
    event = json.loads(structured(Fields(b"\xff", None, "i")))
    assert event["source"] == "penstock:/topics/t"
    assert event["type"] == "penstock.message"
    assert event["data_base64"] == "/w=="


def test_headers_of_ours_say_more_than_an_event() -> None:
    event = from_structured(b'{"specversion":"1.0","id":"i","source":"s","type":"t"}')
    more = {"penstock-key": "k", "penstock-delay-s": "1", "penstock-priority": "3"}
    fields = with_headers(event, more, 1000)
    assert (fields.key, fields.deliver_at_ms, fields.priority, fields.id) == ("k", 2000, 3, "i")
    assert with_headers(event, {}, 0) is event


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"id": ""}, "lacks the attribute 'id'"),
        ({"source": None}, "lacks the attribute 'source'"),
        ({"specversion": "0.3"}, "specversion '0.3'"),
        ({"UPPER": "x"}, "lower-case"),
        ({"my-ext": "x"}, "lower-case"),
        ({"time": "yesterday"}, "RFC 3339"),
        ({"time": "2020-01-01T00:00:00"}, "RFC 3339"),
        ({"deep": {}}, "must be text"),
        ({"n": 1.5}, "must be text"),
        ({"data": 1, "data_base64": "aa=="}, "both data and data_base64"),
        ({"data_base64": "?"}, "not base64"),
        ({"data_base64": 5}, "must be text"),
        ({"penstockpriority": "high"}, "penstockpriority"),
        ({"penstockheaders": "[]"}, "penstockheaders"),
    ],
)
def test_events_that_are_none_are_refused(event: dict[str, Any], why: str) -> None:
    whole = {"specversion": "1.0", "id": "i", "source": "s", "type": "t", **event}
    with pytest.raises(InvalidArgument, match=why):
        from_structured(json.dumps(whole).encode())


def test_a_bad_event_in_a_batch_is_named() -> None:
    good = '{"specversion":"1.0","id":"i","source":"s","type":"t"}'
    with pytest.raises(InvalidArgument, match="event 1 lacks"):
        from_batch(f"[{good},{{}}]".encode())
    with pytest.raises(InvalidArgument, match="JSON array"):
        from_batch(good.encode())
    with pytest.raises(InvalidArgument, match="event 0 is not"):
        from_batch(b"[1]")


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_a_clear_error(data: bytes) -> None:
    for read in (from_structured, from_batch):
        try:
            read(data)
        except InvalidArgument:
            continue
