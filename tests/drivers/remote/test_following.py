"""A consumer of a pattern at a server, over lost connections."""

import asyncio
from typing import Any

import pytest

from penstock.vocabulary.errors import Closed, InvalidName
from tests.drivers.remote.rig import Served, until


def test_topics_join_as_they_come() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client, client.subscribe("a.*", "all") as deliveries:
            for n in range(5):
                await client.publish(f"a.{n}", b"%d" % n)
                message = await deliveries.receive(timeout_s=20)
                assert message is not None
                assert (message.topic, message.body) == (f"a.{n}", b"%d" % n)
                message.ack()
            await deliveries.flush()

    with Served() as served:
        asyncio.run(scenario(served))


def test_a_pattern_that_is_none_is_refused() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client:
            driver: Any = client._driver
            wish = client.subscribe("a.*", "all")._wish._replace(topic="a b.*")
            with pytest.raises(InvalidName):
                await driver.follow(wish, None)
            assert not driver.followings

    with Served() as served:
        asyncio.run(scenario(served))


def test_a_topic_that_was_deleted_meanwhile_ends_the_pattern() -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        async with served.client() as client, client.subscribe("a.*", "all") as deliveries:
            await client.publish("a.1", b"x")
            message = await deliveries.receive(timeout_s=20)
            assert message is not None
            message.ack()
            await deliveries.flush()
            await loop.run_in_executor(None, served.stop)
            served.broker = served._open()
            served.broker.delete_topic("a.1")
            served.broker.close()
            await loop.run_in_executor(None, served.start)
            with pytest.raises(Closed):
                await deliveries.receive(timeout_s=20)

    with Served() as served:
        asyncio.run(scenario(served))


def test_closing_while_it_is_opened_leaves_nobody_behind() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client:
            await client.publish("a.1", b"x")
            deliveries = client.subscribe("a.*", "all")
            opening = asyncio.create_task(deliveries.open())
            await asyncio.sleep(0)
            await deliveries.close()
            with pytest.raises(Closed):
                await opening
            cancelled = asyncio.create_task(client.subscribe("a.*", "all").open())
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await client.topics()  # asked behind them: the server has heard of both
            await until(lambda: not (served.broker.engine.consumers or served.broker.followers))

    with Served() as served:
        asyncio.run(scenario(served))
