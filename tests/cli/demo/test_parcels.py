import asyncio
import time

import pytest

import penstock as library
from penstock.cli.demo import parcels
from penstock.cli.demo.parcels import Shipped

ORDERS = "orders"
QUIET_S = 0.05
PATIENCE_S = 30.0


async def look(client: library.Client, confirmed: set[str], shipped: set[str]) -> Shipped:
    return await parcels.ship_the_rest(client, ORDERS, confirmed, shipped, QUIET_S)


def test_each_order_becomes_one_parcel_whoever_ships_it() -> None:
    async def play() -> tuple[list[str], Shipped]:
        told: list[str] = []
        async with library.connect("memory:") as client:
            await client.create_subscription(ORDERS, parcels.SHIPPING)
            for name in ("a", "b"):
                await client.publish(ORDERS, b"x", id=name)
            ends = time.monotonic() + PATIENCE_S
            while len(told) < 2 and time.monotonic() < ends:
                await parcels.ship(client, ORDERS, told.append, QUIET_S)
            await client.publish(ORDERS, b"x", id="c")
            return told, await look(client, {"a", "b", "c"}, {"a", "b"})

    told, found = asyncio.run(play())
    assert told == ["a", "b"]
    assert (found.before, found.after) == (2, 3)
    assert found.is_whole


def test_an_order_that_comes_late_is_shipped_all_the_same() -> None:
    async def play() -> Shipped:
        async with library.connect("memory:") as client:
            await client.create_topic(parcels.PARCELS)
            await client.create_subscription(ORDERS, parcels.SHIPPING)
            looking = asyncio.create_task(look(client, {"a"}, set()))
            await asyncio.sleep(4 * QUIET_S)
            await client.publish(ORDERS, b"x", id="a")
            return await looking

    found = asyncio.run(play())
    assert (found.before, found.after) == (0, 1)
    assert found.is_whole


def test_a_broken_promise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "PATIENCE_S", 0.0)

    async def play() -> Shipped:
        async with library.connect("memory:") as client:
            for name in ("a", "b", "b"):
                await client.publish(parcels.PARCELS, json={"order": name})
            return await look(client, {"a", "b", "c"}, {"a", "d"})

    found = asyncio.run(play())
    assert (found.lost, found.twice, found.missing) == ({"d"}, {"b"}, {"c"})
    assert not found.is_whole
