"""Events as messages, and back."""

import asyncio
import json
from typing import Any

import pytest

import penstock
from penstock.client.application import Application
from penstock.client.capability_file import parse_capabilities
from penstock.client.events import JSON, STRUCTURED, Event, event_of, fields_of
from penstock.vocabulary.errors import InvalidArgument
from tests.servers.fixtures import unique


def through(fields: dict[str, Any]) -> Event:
    """What comes out when this is published."""

    async def scenario() -> Event:
        async with penstock.connect("memory:") as client:
            await client.publish("t", fields.pop("body"), **fields)
            [message] = await client.peek("t")
            return event_of(message)

    return asyncio.run(scenario())


CLOUD = b'{"specversion":"1.0","id":"x","source":"y","type":"z","data":1}'
DATA: list[Any] = [
    "grüße", b"\xff\x00", b"bytes", {"n": [1, None]}, [1], 17, True, None, "", b"", CLOUD,
    CLOUD.decode(), json.loads(CLOUD),
]  # fmt: skip


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("has_ids", [True, False])
def test_an_event_comes_back_as_it_was(data: Any, has_ids: bool) -> None:
    for event in (Event("i", "s", "t", data), Event("i", "", "", data)):
        found = through(fields_of(event, has_ids=has_ids, has_headers=True))
        assert found == event
        assert type(found.data) is type(data)


@pytest.fixture(params=["memory", "redis", "nats", "mqtt", "mqtt 3.1.1"])
def url(request: pytest.FixtureRequest) -> str:
    scheme, _, version = request.param.partition(" ")
    if scheme == "memory":
        return f"memory:{unique('events')}"
    names = {"redis": "redis_server", "nats": "nats_server", "mqtt": "mosquitto"}
    server = request.getfixturevalue(names[scheme])
    server = server() if scheme == "redis" else server
    return f"{scheme}://{server.address}" + f"?version={version}" * bool(version)


def test_an_event_is_the_same_on_every_url(url: str) -> None:
    queue = unique("q")
    text = (
        'specversion = "0.2"\n[[capability]]\nname = "pubsub.penstock"\n[[capability.config]]\n'
        f'url = "memory:"\nqueue = "{queue}"\ndelivery = "pull"\n'
    )
    application = Application(parse_capabilities(text, "c.toml", url), queue)
    try:
        application.prepare()
        for at, data in enumerate(DATA):
            for event in (Event(f"i{at}", "s", "t", data), Event(f"j{at}", "", "", data)):
                application.publish(queue, event)
                assert application.receive(queue, 20) == event
        application.publish(queue, Event("", "s", "t", "x"))
        found = application.receive(queue, 20)
        assert found is not None
        assert found.id
    finally:
        application.close()


@pytest.mark.parametrize("mark", ["ce_", "ce-", "CE-"])
def test_a_cloud_event_in_headers_is_read(mark: str) -> None:
    told = {"specversion": "1.0", "id": "A", "source": "%2Fs", "type": "T"}
    headers = {f"{mark}{name}": value for name, value in told.items()}
    found = through({"body": b'{"n":1}', "headers": {**headers, "content-type": JSON}})
    assert found == Event("A", "%2Fs" if mark == "ce_" else "/s", "T", {"n": 1})


def test_a_cloud_event_in_a_body_is_read_by_its_content_type() -> None:
    for content_type in (STRUCTURED, f"{STRUCTURED.upper()}; charset=utf-8"):
        found = through({"body": CLOUD, "headers": {"content-type": content_type, "a": "b"}})
        assert found == Event("x", "y", "z", 1)
    found = through({"body": b"[]", "headers": {"content-type": STRUCTURED}})
    assert found.data == []


@pytest.mark.parametrize(
    ("content_type", "data"),
    [
        ("text/csv", "a,b"),
        ("application/xml", "a,b"),
        ("image/svg+xml", "a,b"),
        ("application/x-protobuf", b"a,b"),
        ("application/octet-stream", b"a,b"),
    ],
)
def test_the_content_type_of_another_program_decides(content_type: str, data: Any) -> None:
    assert through({"body": b"a,b", "headers": {"content-type": content_type}}).data == data


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
