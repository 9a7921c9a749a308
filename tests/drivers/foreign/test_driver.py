"""The driver over any carrier: opening, limits, closing. The contract suites do the rest."""

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.client.client import Client
from penstock.drivers.foreign.address import Address, parse
from penstock.drivers.foreign.carrier import Carrier
from penstock.drivers.foreign.driver import ForeignDriver, check_size, open_foreign
from penstock.vocabulary.errors import AccessRefused, TooLarge, Unavailable, Unsupported
from tests.contracts.suites.world import seconds_told
from tests.drivers.foreign.memory_carrier import MemoryCarrier, Shop
from tests.drivers.foreign.test_attachment import client_of, first
from tests.standstill import noticed


def test_opening_is_tried_for_as_long_as_the_url_says() -> None:
    tries: list[Address] = []

    async def connect(address: Address) -> Carrier:
        tries.append(address)
        if len(tries) < 3:
            raise Unavailable("not yet")
        return MemoryCarrier()

    async def scenario() -> None:
        driver = await open_foreign(connect, parse("shop://h?connect_s=20", 1, {}))
        assert len(tries) == 3
        await driver.close()
        await driver.close()

    asyncio.run(scenario())


def test_opening_gives_up_with_the_time_it_took_and_no_credentials() -> None:
    async def connect(address: Address) -> Carrier:
        raise Unavailable("connection refused")

    address = parse("shop://me:secret@h?connect_s=0.1", 1, {})
    with (
        noticed() as standstill,
        pytest.raises(Unavailable, match="shop://h:1 could") as raised,
    ):
        asyncio.run(open_foreign(connect, address))
    assert 0.1 <= seconds_told(str(raised.value)) < 1 + standstill.seconds
    assert "secret" not in str(raised.value)
    assert "connection refused" in str(raised.value)


def test_wrong_credentials_are_not_tried_again() -> None:
    tries: list[int] = []

    async def connect(address: Address) -> Carrier:
        tries.append(1)
        raise AccessRefused("no")

    with pytest.raises(AccessRefused):
        asyncio.run(open_foreign(connect, parse("shop://h", 1, {})))
    assert tries == [1]


def test_headers_count_toward_the_largest_message() -> None:
    async def scenario() -> None:
        shop = Shop()
        carrier = MemoryCarrier(shop)
        carrier.capabilities = msgspec.structs.replace(
            carrier.capabilities, message_bytes_max=1_000
        )
        driver = ForeignDriver(carrier, asyncio.get_running_loop(), 5.0)
        client = Client("shop:", _of(driver))
        await client.open()
        await client.publish("orders", bytes(600))
        with pytest.raises(TooLarge, match="headers included"):
            await client.publish("orders", bytes(600), headers={"a": "x" * 500})
        assert len(shop.topics["orders"].records) == 1
        await client.close()
        assert carrier.is_closed

    asyncio.run(scenario())
    check_size("orders", 10, 10)


def _of(driver: ForeignDriver) -> Any:
    async def opened() -> ForeignDriver:
        return driver

    return opened


def test_a_carrier_without_transactions_refuses_them() -> None:
    async def scenario() -> None:
        async with client_of(Shop()) as client:
            with pytest.raises(Unsupported, match=r"shop.*transactions"):
                client.transaction()
            driver = client._opened()
            assert isinstance(driver, ForeignDriver)
            with pytest.raises(Unsupported, match="transactions"):
                driver.commit_unit(Any, [], lambda _: None)  # type: ignore[arg-type]
            driver.deliver()
            assert driver.carrier.capabilities is driver.capabilities

    asyncio.run(scenario())


def test_closing_on_another_loop_is_harmless() -> None:
    client = client_of(Shop())

    async def begin() -> None:
        await client.open()

    asyncio.run(begin())
    asyncio.run(client.close())


def test_what_was_skipped_because_it_was_too_old_is_counted_here() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client, client_of(shop) as other:
            for _ in range(2):
                await client.publish("orders", b"gone", ttl_s=0.05)
                await asyncio.sleep(0.1)
                await client.publish("orders", b"kept")
                async with client.subscribe("orders", "billing") as deliveries:
                    message = await first(deliveries)
                    assert message.body == b"kept"
                    message.ack()
                    [row] = await client.subscriptions("orders")
                    assert row["expired"] is None, "what others skipped nobody knows"
                    assert row["expired_here"] > 0
            [row] = await client.subscriptions("orders")
            assert row["expired_here"] == 2, "also of consumers that are closed"
            assert (await client.stats())["expired_here"] == 2
            [row] = await other.subscriptions("orders")
            assert row["expired_here"] == 0

    asyncio.run(scenario())
