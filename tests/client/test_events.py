"""Events as messages, and back."""

import asyncio
from typing import Any

import pytest

import penstock
from penstock.client.events import Event, event_of, fields_of
from penstock.vocabulary.errors import InvalidArgument


def through(fields: dict[str, Any]) -> Event:
    """What comes out when this is published."""

    async def scenario() -> Event:
        async with penstock.connect("memory:") as client:
            await client.publish("t", fields.pop("body"), **fields)
            [message] = await client.peek("t")
            return event_of(message)

    return asyncio.run(scenario())


DATA: list[Any] = ["grüße", b"\xff\x00", {"n": [1, None]}, [1], 17, True, None, "", b""]


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("has_ids", [True, False])
def test_an_event_comes_back_as_it_was(data: Any, has_ids: bool) -> None:
    event = Event("i", "s", "t", data)
    found = through(fields_of(event, has_ids=has_ids, has_headers=True))
    assert found == (Event("i", "s", "t", "") if data == b"" else event)


@pytest.mark.parametrize("data", DATA)
def test_without_headers_it_travels_as_json(data: Any) -> None:
    event = Event("i", "s", "t", data)
    fields = fields_of(event, has_ids=False, has_headers=False)
    assert fields.keys() == {"body"}
    assert through(fields) == event


def test_the_id_is_the_messages_where_it_is_kept() -> None:
    event = Event("mine", "s", "t", "x")
    with_ids = fields_of(event, has_ids=True, has_headers=True)
    assert (with_ids["id"], "id" in with_ids["headers"]) == ("mine", False)
    without = fields_of(event, has_ids=False, has_headers=True)
    assert ("id" in without, without["headers"]["id"]) == (False, "mine")
    assert "id" not in fields_of(Event(data="x"), has_ids=True, has_headers=True)


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b"hello", "hello"),
        (b"\xff", b"\xff"),
        (b'{"specversion":"1.0"}', '{"specversion":"1.0"}'),
        (b'{"specversion":"1.0","id":"i","source":"s","type":"t","data_base64":"?"}', None),
        (b"{", "{"),
    ],
)
def test_messages_of_other_programs_are_events_too(body: bytes, data: Any) -> None:
    found = through({"body": body})
    assert found.data == (body.decode() if data is None else data)
    assert (found.source, found.type) == ("", "")
    assert found.id


def test_json_that_is_none_stays_what_it_is() -> None:
    headers = {"content-type": "application/json"}
    assert through({"body": b"{no", "headers": headers}).data == b"{no"


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"id": "x"}, "takes an Event"),
        (Event(5, "s", "t", ""), "Event.id is text"),  # type: ignore[arg-type]
        (Event("i", "s", "t", object()), "cannot be written as JSON"),
    ],
)
def test_what_is_no_event_is_refused(event: Any, said: str) -> None:
    for has_headers in (True, False):
        with pytest.raises(InvalidArgument, match=said):
            fields_of(event, has_ids=True, has_headers=has_headers)
