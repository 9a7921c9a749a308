"""Looking at a stream takes nothing and sees everything, page by page."""

import asyncio
from typing import Any

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.drivers.nats import look
from penstock.drivers.nats.connection import Connection
from penstock.drivers.nats.look import _milliseconds, headers_in
from penstock.vocabulary.errors import InvalidArgument
from tests.contracts.suites.world import unique


def test_a_topic_is_seen_page_by_page(nats_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "PAGE", 7)
    topic = unique("pages")

    async def scenario() -> None:
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            await client.publish_many(topic, [str(number) for number in range(20)])
            got = await client.peek(topic, 16)
            assert [m.body for m in got] == [str(number).encode() for number in range(16)]
            assert len(await client.peek(topic, 100)) == 20
            assert [m.body for m in await client.peek(topic, 2, after=15)] == [b"14", b"15"]
            assert [m.body for m in await client.peek(topic, 2, after="0:15")] == [b"15", b"16"]
            with pytest.raises(InvalidArgument, match="no position"):
                await client.peek(topic, after="x")
            assert got[0].published_at == pytest.approx(client._opened().wall / 1000, abs=60)

    asyncio.run(scenario())


@pytest.mark.parametrize("reason", ["stream", "server"])
def test_a_stream_is_read_where_no_answer_holds_many_messages(
    nats_server: Server, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """Without `allow_direct`, and on servers before 2.11: the same messages, one by one."""
    monkeypatch.setattr(look, "PAGE", 40)
    root = unique("single")
    topic = f"{root}.a"

    async def scenario() -> None:
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            await client.open()
            carrier = client._opened().carrier  # type: ignore[attr-defined]
            api = carrier.connection.api
            config = {"name": root, "subjects": [f"{root}.>"], "allow_direct": True}
            await api(f"STREAM.CREATE.{root}", **config)
            for number in range(5):  # first with gaps, then without
                await client.publish(topic, bytes([0, 255, number]), headers={"größe": "é x"})
                await client.publish(f"{root}.b", b"not this one")
            await client.publish_many(topic, [str(number) for number in range(90)])
            await client.publish(topic, None)
            await client.publish(topic, bytes(1_000_000))
            many = await client.peek(topic, 1_000)
            assert len(many) == 97
            if reason == "stream":
                await api(f"STREAM.UPDATE.{root}", **config | {"allow_direct": False})
            else:
                monkeypatch.setattr(Connection, "version", (2, 10))
            for _ in range(2):  # what is known of the stream is of before; then it is looked up
                single = await client.peek(topic, 1_000)
                assert [_told(m) for m in single] == [_told(m) for m in many]
                await client.describe_topic(topic)
            assert [m.offset for m in await client.peek(topic, 3, after="0:5")] == [7, 9, 11]
            assert await client.peek(topic, 3, after=f"0:{many[-1].offset}") == []
            reader = await client.reader(topic, "r", owner="x")
            [(partition, start, end)] = await reader.plan()
            read = [m async for m in reader.read(partition, start, end)]
            assert [m.body for m in read] == [m.body for m in many]

    asyncio.run(scenario())


def _told(message: Any) -> tuple[Any, ...]:
    return message.offset, message.id, message.body, message.headers, message.published_at


def test_headers_as_they_are_stored() -> None:
    assert headers_in(b"NATS/1.0\r\na: b c\r\nd:e\r\na: later\r\n\r\n") == {"a": "b c", "d": "e"}
    assert headers_in(b"NATS/1.0\r\n\r\n") is None
    assert headers_in(b"") is None


def test_times_of_the_server() -> None:
    assert _milliseconds("2023-11-14T22:13:20.123456789Z") == 1_700_000_000_123
    assert _milliseconds("2023-11-14T22:13:20Z") == 1_700_000_000_000
    assert _milliseconds("") == 0
