"""One message, from publish to ack, through each driver: durable, delivered, finished, gone."""

import asyncio
from pathlib import Path

import pytest

import penstock
from tests.drivers.remote.rig import Served


@pytest.mark.parametrize("scheme", ["file", "memory", "penstock"])
def test_one_message_is_published_delivered_and_acked(scheme: str, tmp_path: Path) -> None:
    if scheme == "penstock":
        with Served() as served:
            follow_one_message(served.url)
    else:
        follow_one_message(f"file:{tmp_path / 'store'}" if scheme == "file" else "memory:flow")


def follow_one_message(url: str) -> None:
    """Publish, durable, delivered, acked, gone."""

    async def scenario() -> None:
        async with penstock.connect(url) as client:
            receipt = await client.publish("orders", json={"id": 1}, key="customer-7")
            assert receipt.durability is client.capabilities.durability
            async with client.subscribe("orders", "billing") as deliveries:
                message = await deliveries.receive(timeout_s=5)
                assert message is not None
                assert (message.json(), message.key) == ({"id": 1}, "customer-7")
                assert (message.id, message.position) == (receipt.id, receipt.position)
                message.ack()
            [row] = await client.subscriptions("orders")
            assert (row["attached"], row["acked"], row["unexplained"]) == (1, 1, 0)
            assert await client.peek("orders") == []

    asyncio.run(scenario())


def test_a_confirmed_message_and_a_confirmed_ack_survive_the_end_of_the_process(
    tmp_path: Path,
) -> None:
    url = f"file:{tmp_path / 'store'}"

    async def before() -> None:
        async with penstock.connect(url) as client:
            await client.publish_many("orders", [b"acked", b"left"])
            async with client.subscribe("orders", "billing") as deliveries:
                message = await deliveries.receive(timeout_s=5)
                assert message is not None
                message.ack()

    async def after() -> None:
        async with (
            penstock.connect(url) as client,
            client.subscribe("orders", "billing") as deliveries,
        ):
            message = await deliveries.receive(timeout_s=5)
            assert message is not None
            assert (message.body, message.attempt) == (b"left", 1)
            message.ack()
            await deliveries.flush()
            assert await deliveries.receive(timeout_s=0.01) is None

    asyncio.run(before())
    asyncio.run(after())
    asyncio.run(_is_empty(url))


async def _is_empty(url: str) -> None:
    async with penstock.connect(url) as client:
        [row] = await client.subscriptions("orders")
        assert (row["acked"], row["waiting"]) == (2, 0)


def test_a_message_travels_from_a_blocking_script_to_an_async_handler(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'store'}"
    with penstock.connect_blocking(url) as script:
        script.publish("orders", "hello")
    client = penstock.connect(url)
    got: list[str] = []

    @client.on_message("orders", "greeting")
    async def handle(text: str) -> penstock.Ack:
        got.append(text)
        client.stop()
        return penstock.Ack()

    asyncio.run(client.run())
    assert got == ["hello"]
