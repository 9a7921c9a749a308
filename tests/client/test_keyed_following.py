"""Kind `key_shared` over a pattern: the keys of each topic are its own."""

import asyncio
from typing import Any

import pytest

from penstock.client.keyed_following import KeyedPatternDeliveries
from penstock.client.received import ReceivedMessage
from penstock.testing import MemoryBroker
from tests.client.keyed_rig import KEYED, messages, next_of, run, until


def test_a_nack_drops_what_waits_of_its_key_on_its_topic_only() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("shop/x", messages("a1 a2 b1"))
            await client.publish_many("shop/y", messages("a5 a6"))
            async with client.subscribe("shop/+", "s", start="earliest", **KEYED) as deliveries:
                assert isinstance(deliveries, KeyedPatternDeliveries)
                first = None
                got: list[str] = []
                while len(got) < 4:
                    body, message = await next_of(deliveries)
                    if body == "a1" and first is None:
                        first = message
                        message.nack(delay_s=5)
                    else:
                        got.append(body)
                        message.ack()
                    if sorted(got) == ["a5", "a6", "b1"]:
                        assert await deliveries.receive(timeout_s=0.05) is None
                        broker.advance(6)
                assert got[3] == "a1"
                assert (await next_of(deliveries))[0] == "a2"
                await deliveries.flush()

    run(scenario)


def test_push_runs_the_same_key_of_two_topics_at_once() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            begun: list[str] = []
            gate = asyncio.Event()
            for topic, text in (("shop/x", "a1 a2"), ("shop/y", "a5 a6")):
                await client.publish_many(topic, messages(text))

            @client.on_message("shop/+", "s", start="earliest", concurrency=4, credit=50, **KEYED)
            async def handle(body: str, message: ReceivedMessage) -> None:
                begun.append(body)
                await gate.wait()

            running = asyncio.create_task(client.run())
            await until(lambda: len(begun) == 2)
            await asyncio.sleep(0.02)
            assert sorted(begun) == ["a1", "a5"]
            gate.set()
            await until(lambda: len(begun) == 4)
            client.stop()
            await asyncio.wait_for(running, 30)
            for topic in ("shop/x", "shop/y"):
                (row,) = await client.subscriptions(topic)
                assert row["acked"] == 2

    run(scenario)


@pytest.mark.parametrize("options", [{}, KEYED])
def test_a_seek_takes_back_what_waits(options: dict[str, Any]) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("shop/x", messages("a1 b1 a2 b2"))
            async with client.subscribe("shop/+", "s", start="earliest", **options) as deliveries:
                assert (await next_of(deliveries))[0] == "a1"
                await client.seek("shop/x", "s", "0:3")
                broker.settle()
                await asyncio.sleep(0)
                assert (await next_of(deliveries))[0] == "b2"
                assert await deliveries.receive(timeout_s=0.05) is None

    run(scenario)
