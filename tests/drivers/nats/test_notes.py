"""Readers over NATS: where they start, and what the limits of a stream take from them."""

import asyncio
import time

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.vocabulary.errors import InvalidArgument, PositionNotHeld
from tests.contracts.suites.world import unique


def test_a_reader_starts_where_it_is_asked_to(nats_server: Server) -> None:
    topic = unique("starts")

    async def scenario() -> None:
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            await client.publish_many(topic, [str(number) for number in range(10)])
            await asyncio.sleep(0.05)
            moment = time.time()
            await asyncio.sleep(0.05)
            await client.publish_many(topic, [str(number) for number in range(10, 15)])
            for start, begin in ((None, 1), ("latest", 16), ("0:7", 7), (moment, 11)):
                reader = await client.reader(topic, unique("r"), owner="x", start=start)
                assert await reader.progress() == {0: begin}, start
            for start, error in (("0:99", PositionNotHeld), ("x", InvalidArgument)):
                with pytest.raises(error):
                    await client.reader(topic, unique("r"), owner="x", start=start)
            reader = await client.reader(topic, unique("r"), owner="x")
            [planned] = await reader.plan(max_bytes=1)
            assert tuple(planned) == (0, 1, 2)

    asyncio.run(scenario())


def test_what_limits_removed_from_a_plan_is_named(nats_server: Server) -> None:
    topic = unique("removed")

    async def scenario() -> None:
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            await client.publish_many(topic, [b"x"] * 5)
            reader = await client.reader(topic, "r", owner="x")
            [(_, start, end)] = await reader.plan()
            carrier = client._opened().carrier  # type: ignore[attr-defined]
            await carrier.connection.api(f"STREAM.PURGE.{await carrier.stream_of(topic)}", seq=4)
            with pytest.raises(PositionNotHeld, match="limits"):
                [m async for m in reader.read(0, start, end)]

    asyncio.run(scenario())
