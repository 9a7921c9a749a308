"""Priorities, delays, ends and keys, from publish to ack, and over a restart."""

import asyncio
import time
from pathlib import Path
from typing import Any

import penstock
from penstock import Message
from penstock.testing import MemoryBroker

PATIENCE_S = 30.0


async def bodies(deliveries: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(count):
        message = await deliveries.receive(PATIENCE_S)
        assert message is not None, f"only {found} came"
        found.append(message.body)
        message.ack()
    return found


def test_the_highest_priority_comes_first() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish("alerts", b"low", priority=-5)
            await client.publish("alerts", b"plain")
            await client.publish("alerts", b"high", priority=9)
            await client.publish_many("alerts", [Message(body=b"top", priority=30), b"last"])
            async with client.subscribe("alerts", "s", credit=1) as deliveries:
                assert await bodies(deliveries, 5) == [b"top", b"high", b"plain", b"last", b"low"]

    asyncio.run(scenario())


def test_a_delayed_message_comes_when_its_time_has_come() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish("later", b"in ten", delay_s=10)
            await client.publish("later", b"now")
            async with client.subscribe("later", "s") as deliveries:
                assert await bodies(deliveries, 1) == [b"now"]
                assert await deliveries.receive(0.05) is None
                (row,) = await client.subscriptions("later")
                assert (row["delayed"], row["unexplained"]) == (1, 0)
                broker.advance(9)
                assert await deliveries.receive(0.05) is None
                broker.advance(2)
                assert await bodies(deliveries, 1) == [b"in ten"]

    asyncio.run(scenario())


def test_a_message_past_its_end_is_not_delivered() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_subscription("news", "s")
            await client.publish("news", b"old", ttl_s=5)
            await client.publish("news", b"stays", ttl_s=50)
            broker.advance(6)
            async with client.subscribe("news", "s") as deliveries:
                assert await bodies(deliveries, 1) == [b"stays"]
                assert await deliveries.receive(0.05) is None
                await deliveries.flush()
            (row,) = await client.subscriptions("news")
            assert (row["acked"], row["expired"], row["waiting"]) == (1, 1, 0)
            assert row["unexplained"] == 0

    asyncio.run(scenario())


def test_a_key_goes_to_one_consumer_in_order_over_a_nack() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            options: dict[str, Any] = {"kind": "key_shared", "credit": 100}
            await client.create_subscription("orders", "s", kind="key_shared")
            async with (
                client.subscribe("orders", "s", **options) as first,
                client.subscribe("orders", "s", **options) as second,
            ):
                for n in range(60):
                    await client.publish("orders", b"%d" % n, key=f"customer-{n % 6}")
                got: dict[str, list[Any]] = {"first": [], "second": []}
                ends = time.monotonic() + PATIENCE_S
                while sum(map(len, got.values())) < 60 and time.monotonic() < ends:
                    for name, deliveries in (("first", first), ("second", second)):
                        while (message := await deliveries.receive(0.1)) is not None:
                            got[name].append((message.key, int(message.body or b"")))
                            message.ack()
                keys = [{key for key, _ in rows} for rows in got.values()]
                assert keys[0].isdisjoint(keys[1])
                assert len(keys[0] | keys[1]) == 6
                for rows in got.values():
                    for key in {key for key, _ in rows}:
                        numbers = [n for other, n in rows if other == key]
                        assert numbers == sorted(numbers)
                        assert len(numbers) == 10

    asyncio.run(scenario())


def test_everything_special_survives_a_restart(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'store'}"

    async def before() -> None:
        async with penstock.connect(url) as client:
            for kind in ("shared", "key_shared"):
                await client.create_subscription("t", kind, kind=kind)
            messages = [Message(body=b"%d" % n, key=f"k{n % 3}", priority=n % 4) for n in range(40)]
            await client.publish_many("t", messages)
            await client.publish("t", b"later", delay_s=3600, key="k0")
            await client.publish("t", b"gone", ttl_s=0.001)

    async def after() -> None:
        async with penstock.connect(url) as client:
            async with client.subscribe("t", "shared", credit=1) as deliveries:
                found = [int(body) for body in await bodies(deliveries, 40)]
                assert found == sorted(found, key=lambda n: (-(n % 4), n))
                assert await deliveries.receive(0.05) is None
            async with client.subscribe("t", "key_shared", kind="key_shared") as deliveries:
                found = [int(body) for body in await bodies(deliveries, 40)]
                for key in range(3):
                    assert [n for n in found if n % 3 == key] == list(range(key, 40, 3))
            for row in await client.subscriptions("t"):
                assert (row["acked"], row["delayed"], row["expired"]) == (40, 1, 1)
                assert row["unexplained"] == 0

    asyncio.run(before())
    asyncio.run(after())
