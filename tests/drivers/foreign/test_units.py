"""Units on a carrier that has them: repeated until answered, refused whole."""

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.client.client import Client
from penstock.drivers.foreign.carrier import Feed, Placed
from penstock.drivers.foreign.driver import ForeignDriver
from penstock.drivers.foreign.envelope import Letter
from penstock.vocabulary.errors import AckRefused, InvalidArgument, Unconfirmed
from penstock.vocabulary.units import UnitWish
from tests.drivers.foreign.memory_carrier import CAPABILITIES, MemoryCarrier, Shop
from tests.drivers.foreign.test_attachment import first


class UnitShop(MemoryCarrier):
    """Remembers the answers of units, as a broker with transactions does."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop)
        self.capabilities = msgspec.structs.replace(CAPABILITIES, has_transactions=True)
        self.done: dict[Any, list[list[Placed]]] = {}

    async def commit(
        self, wish: UnitWish, parts: list[list[Letter]], acks: list[tuple[Feed, list[Letter]]]
    ) -> list[list[Placed]]:
        self.shop.begin("commit")
        name = (wish.publisher, wish.epoch, wish.sequence)
        if name not in self.done:
            for number, (feed, letters) in enumerate(acks):
                for at, letter in enumerate(letters):
                    if feed._why(letter):  # type: ignore[attr-defined]
                        raise AckRefused("late", refused=[(number, at, "it was handed out again")])
            self.done[name] = [
                [self.put(self.shop.topics[part.topic], letter) for letter in letters]
                for part, letters in zip(wish.parts, parts, strict=True)
            ]
            for feed, letters in acks:
                await feed.settle(letters)
        self.shop.end("commit")
        return self.done[name]


def client_of(shop: Shop, patience_s: float = 5.0) -> Client:
    async def opened() -> ForeignDriver:
        return ForeignDriver(UnitShop(shop), asyncio.get_running_loop(), patience_s)

    return Client("shop:", opened)


@pytest.mark.parametrize("table", ["faults", "late"])
def test_a_unit_is_repeated_until_it_is_answered_and_happens_once(table: str) -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            await client.publish("in", b"1")
            async with client.subscribe("in", "work") as deliveries:
                message = await first(deliveries)
                getattr(shop, table)["commit"] = 2
                async with client.transaction() as unit:
                    unit.publish("out", b"2")
                    unit.ack(message)
                assert [receipt.position for receipt in unit.receipts] == ["0:0"]
            assert len(shop.topics["out"].records) == 1
            assert shop.topics["in"].subscriptions["work"].pending == {}

    asyncio.run(scenario())


def test_a_unit_nobody_answers_has_an_open_fate() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop, 0.2) as client:
            shop.faults["commit"] = 1_000
            unit = client.transaction()
            await unit.__aenter__()
            unit.publish("out", b"2")
            with pytest.raises(Unconfirmed, match="may have been committed or not"):
                await unit.__aexit__(None, None, None)

    asyncio.run(scenario())


def test_a_late_ack_refuses_the_whole_unit_and_credit_stays_true() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            await client.publish("in", b"1")
            async with client.subscribe("in", "work", credit=1) as deliveries:
                message = await first(deliveries)
                shop.topics["in"].subscriptions["work"].pending[0][0] = "somebody else"
                unit = client.transaction()
                await unit.__aenter__()
                unit.publish("out", b"2")
                unit.ack(message)
                with pytest.raises(AckRefused, match="0:0: it was handed out again"):
                    await unit.__aexit__(None, None, None)
            assert shop.topics["out"].records == {}

    asyncio.run(scenario())


def test_messages_of_another_client_are_refused_before_anything_is_sent() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client, client_of(shop) as other:
            await client.publish("in", b"1")
            async with other.subscribe("in", "work") as deliveries:
                message = await first(deliveries)
                unit = client.transaction()
                await unit.__aenter__()
                unit.ack(message)
                with pytest.raises(InvalidArgument, match="another client"):
                    await unit.__aexit__(None, None, None)
                message.ack()

    asyncio.run(scenario())


def test_closing_gives_up_what_is_under_way() -> None:
    async def scenario() -> None:
        shop = Shop()
        client = client_of(shop)
        await client.open()
        shop.faults["commit"] = 1_000

        async def commit() -> None:
            async with client.transaction() as unit:
                unit.publish("out", b"2")

        task = asyncio.create_task(commit())
        await asyncio.sleep(0.1)
        await client.close()
        with pytest.raises(Unconfirmed, match="closed"):
            await task

    asyncio.run(scenario())
