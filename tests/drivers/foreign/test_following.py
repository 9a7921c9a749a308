"""Patterns on a broker that has none."""

import asyncio

import pytest

from penstock.drivers.foreign import following
from penstock.drivers.foreign.carrier import Feed, Seat
from penstock.drivers.foreign.driver import ForeignDriver
from penstock.vocabulary.errors import StorageError, SubscriptionConflict
from tests.drivers.foreign.memory_carrier import MemoryCarrier, Shop
from tests.drivers.foreign.test_attachment import client_of, first, until


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_S", 0.02)


def test_new_topics_are_found_although_listing_fails_now_and_then() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            async with client.subscribe("sensors/+", "climate") as deliveries:
                shop.faults["list_topics"] = 2
                await client.publish("sensors/hall", b"1")
                message = await first(deliveries)
                assert (message.topic, message.body) == ("sensors/hall", b"1")
                message.ack()
            looked = shop.calls.count("list_topics")
            await asyncio.sleep(0.1)
            assert shop.calls.count("list_topics") == looked, "it looks no more once it is left"

    asyncio.run(scenario())


def test_a_final_error_ends_the_deliveries() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            deliveries = await client.subscribe("sensors/+", "climate")
            shop.error = StorageError("no more")
            shop.faults["list_topics"] = 1
            with pytest.raises(StorageError, match="no more"):
                await deliveries.receive(timeout_s=20)
            await deliveries.close()

    asyncio.run(scenario())


def test_closing_the_client_ends_the_looking() -> None:
    async def scenario() -> None:
        shop = Shop()
        client = client_of(shop)
        await client.open()
        await client.subscribe("sensors/+", "climate")
        await until(lambda: shop.calls.count("list_topics") > 1)
        await client.close()
        looked = shop.calls.count("list_topics")
        await asyncio.sleep(0.1)
        assert shop.calls.count("list_topics") == looked

    asyncio.run(scenario())


def test_topics_with_a_backlog_bring_nothing_before_all_of_them_are_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = MemoryCarrier.open_feed

    async def slowly(carrier: MemoryCarrier, seat: Seat) -> Feed:
        await asyncio.sleep(0.1)
        return await opened(carrier, seat)

    monkeypatch.setattr(MemoryCarrier, "open_feed", slowly)

    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            for room in ("hall", "yard", "roof"):
                await client.publish(f"sensors/{room}", room)
            async with client.subscribe("sensors/+", "climate") as deliveries:
                got = {(await first(deliveries)).body for _ in range(3)}
                assert got == {b"hall", b"yard", b"roof"}

    asyncio.run(scenario())


def test_a_topic_that_cannot_be_joined_leaves_no_consumer_behind() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            for room in ("hall", "yard"):
                await client.publish(f"sensors/{room}", room)
            await client.subscribe("sensors/yard", "climate", kind="multicast", consumer="x")
            with pytest.raises(SubscriptionConflict, match="kind multicast"):
                await client.subscribe("sensors/+", "climate")
            driver = client._opened()
            assert isinstance(driver, ForeignDriver)
            assert [each.desk.topic for each in driver._attachments] == ["sensors/yard"]
            assert driver._followings == {}

    asyncio.run(scenario())
