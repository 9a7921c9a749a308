"""Looking at a stream takes nothing and sees everything, page by page."""

import asyncio

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.drivers.nats import look
from penstock.drivers.nats.look import _milliseconds
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


def test_times_of_the_server() -> None:
    assert _milliseconds("2023-11-14T22:13:20.123456789Z") == 1_700_000_000_123
    assert _milliseconds("2023-11-14T22:13:20Z") == 1_700_000_000_000
    assert _milliseconds("") == 0
