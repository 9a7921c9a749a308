"""A consumer's tasks: what happens when the broker goes away, refuses, or fails for good."""

import asyncio
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from penstock.batch.frame import Slice
from penstock.client.client import Client
from penstock.client.received import ReceivedMessage
from penstock.drivers.foreign import attachment
from penstock.drivers.foreign.attachment import ForeignAttachment
from penstock.drivers.foreign.driver import ForeignDriver
from penstock.vocabulary.claims import Refusal
from penstock.vocabulary.errors import (
    AckRefused,
    DeadLetterFull,
    StorageError,
    UnknownSubscription,
)
from tests.drivers.foreign.memory_carrier import MemoryCarrier, Shop


class Sink:
    def __init__(self) -> None:
        self.slices: list[Slice] = []
        self.refused: list[Refusal] = []
        self.error: Exception | None = None

    def on_slice(self, part: Slice) -> None:
        self.slices.append(part)

    def on_refused(self, refusals: list[Refusal]) -> None:
        self.refused += refusals

    def on_closed(self, error: Exception) -> None:
        self.error = error

    def on_revoked(self, news: Any) -> None: ...


def client_of(shop: Shop) -> Client:
    async def opened() -> ForeignDriver:
        return ForeignDriver(MemoryCarrier(shop), asyncio.get_running_loop(), 5.0)

    return Client("shop:", opened)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def first(deliveries: Any) -> ReceivedMessage:
    message = await deliveries.receive(timeout_s=20)
    assert message is not None
    return message  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", ["fetch", "settle", "release", "bury"])
def test_what_fails_for_a_while_is_done_in_the_end(method: str) -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            await client.publish_many("orders", [b"0", b"1", b"2"])
            shop.faults[method] = 3
            async with client.subscribe("orders", "billing") as deliveries:
                one, two, three = [await first(deliveries) for _ in range(3)]
                one.ack()
                two.nack(delay_s=0)
                three.reject("bad")
                (await first(deliveries)).ack()
                await deliveries.flush()
            assert shop.topics["orders"].subscriptions["billing"].pending == {}
            assert len(await client.dead_letters("orders", "billing")) == 1

    asyncio.run(scenario())


def test_an_answer_that_is_lost_does_not_settle_twice() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            await client.publish("orders", b"0")
            shop.late["settle"] = 1
            async with client.subscribe("orders", "billing") as deliveries:
                (await first(deliveries)).ack()
                await deliveries.flush()

    asyncio.run(scenario())


def test_a_subscription_that_is_gone_ends_the_deliveries() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            deliveries = await client.subscribe("orders", "billing")
            shop.error = UnknownSubscription("deleted meanwhile")
            shop.faults["fetch"] = 1
            with pytest.raises(UnknownSubscription, match="deleted"):
                await deliveries.receive(timeout_s=20)
            shop.error = None
            await deliveries.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["fetch", "settle"])
def test_a_defect_reaches_the_application(method: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            await client.publish("orders", b"0")
            deliveries = await client.subscribe("orders", "billing")
            message = await first(deliveries)
            shop.error = ZeroDivisionError("odd")
            shop.faults[method] = 1
            message.ack()
            with pytest.raises(ZeroDivisionError):
                await deliveries.receive(timeout_s=20)
            if method == "settle":
                with pytest.raises(ZeroDivisionError):
                    await deliveries.flush()
            shop.error = None
            await deliveries.close()

    asyncio.run(scenario())
    assert "failed" in caplog.text


def test_full_dead_letters_make_the_message_wait_loudly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            await client.publish("orders", b"0")
            retry = {"first_s": 0.05, "max_s": 0.05, "max_attempts": 1}
            async with client.subscribe("orders", "billing", retry=retry) as deliveries:
                message = await first(deliveries)
                shop.error = DeadLetterFull("it holds too much")
                shop.faults["bury"] = 1
                message.nack()
                again = await first(deliveries)
                assert again.attempt == 1
                again.nack()
                await deliveries.flush()
            assert len(await client.dead_letters("orders", "billing")) == 1

    asyncio.run(scenario())
    assert "it holds too much" in caplog.text


def test_settling_from_another_thread() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            await client.publish_many("orders", [b"0", b"1"])
            async with client.subscribe("orders", "billing") as deliveries:
                one, two = [await first(deliveries) for _ in range(2)]

                def work() -> None:
                    one.nack(delay_s=0)
                    two.extend(5)
                    two.ack()

                thread = Thread(target=work)
                thread.start()
                await asyncio.to_thread(thread.join)
                assert (await first(deliveries)).body == b"0"

    asyncio.run(scenario())


def test_leaving_an_unreachable_broker_takes_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attachment, "CLOSE_S_MAX", 0.2)

    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            await client.publish("orders", b"0")
            deliveries = await client.subscribe("orders", "billing")
            await first(deliveries)
            shop.faults = dict.fromkeys(("fetch", "release", "settle"), 10_000)
            await asyncio.wait_for(deliveries.close(), 20)

    asyncio.run(scenario())
    assert "comes again when its lease ends" in caplog.text


def test_losing_a_consumer_leaves_its_messages_to_the_broker() -> None:
    async def scenario() -> None:
        shop = Shop()
        driver = ForeignDriver(MemoryCarrier(shop), asyncio.get_running_loop(), 5.0)
        client = Client("shop:", driver_of(driver))
        await client.open()
        await client.publish("orders", b"0")
        deliveries = await client.subscribe("orders", "billing")
        await first(deliveries)
        await driver.close()
        assert len(shop.topics["orders"].subscriptions["billing"].pending) == 1
        assert isinstance(deliveries._attachment, ForeignAttachment)
        await deliveries._attachment.lose()
        await client.close()

    asyncio.run(scenario())


def driver_of(driver: ForeignDriver) -> Any:
    async def opened() -> ForeignDriver:
        return driver

    return opened


def test_a_refusal_of_the_broker_surfaces_in_flush() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            await client.publish("orders", b"0")
            async with client.subscribe("orders", "billing") as deliveries:
                message = await first(deliveries)
                shop.topics["orders"].subscriptions["billing"].pending[0][0] = "somebody else"
                message.ack()
                with pytest.raises(AckRefused, match="handed out again") as raised:
                    await deliveries.flush()
                assert raised.value.refused == [("orders", 0, 0, "it was handed out again")]

    asyncio.run(scenario())


def test_errors_of_opening_are_the_callers() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            shop.error = StorageError("no")
            shop.faults["open_feed"] = 1
            with pytest.raises(StorageError):
                await client.subscribe("orders", "billing")

    asyncio.run(scenario())
