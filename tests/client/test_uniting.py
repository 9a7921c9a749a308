"""Units of one moment travel as one; each is still committed or refused for its own sake."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.client import uniting
from penstock.client.client import Client
from penstock.client.received import ReceivedMessage
from penstock.testing import MemoryBroker
from penstock.vocabulary import limits
from penstock.vocabulary.errors import AckRefused, StoreFailed

Scenario = Callable[[MemoryBroker, Client], Awaitable[None]]


def play(scenario: Scenario) -> None:
    async def run() -> None:
        with MemoryBroker() as broker:
            async with broker.client() as client:
                await scenario(broker, client)

    asyncio.run(run())


async def held(client: Client, topic: str) -> list[bytes | None]:
    return [message.body for message in await client.peek(topic, limit=1000)]


async def move(client: Client, body: bytes, *messages: ReceivedMessage, **options: Any) -> Any:
    """One publish and some acks; the receipt."""
    async with client.transaction() as unit:
        unit.publish("out", body, **options)
        for message in messages:
            unit.ack(message)
    return unit.receipts[0]


async def take(deliveries: Any, count: int) -> list[ReceivedMessage]:
    found = [await deliveries.receive(timeout_s=5) for _ in range(count)]
    assert None not in found
    return found


def units_of(broker: MemoryBroker) -> int:
    """How many units the broker has committed."""
    return sum(book.newest + 1 for book in broker.broker.state.units.values())


async def together(*units: Awaitable[Any]) -> list[Any]:
    return list(await asyncio.gather(*units, return_exceptions=True))


def test_units_of_many_tasks_are_one_record_and_each_gets_its_own_receipts() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        await client.publish_many("in", [b"%d" % n for n in range(20)])
        await client.create_topic("wide", partitions=3)
        async with client.subscribe("in", "s") as deliveries:
            messages = await take(deliveries, 20)

            async def both(number: int) -> Any:
                async with client.transaction() as unit:
                    unit.publish("wide", b"w%d" % number, key=f"k{number}")
                    unit.publish("out", b"%d" % number, headers={"n": str(number)})
                    unit.ack(messages[number])
                return unit.receipts

            found = await together(*(both(n) for n in range(20)))
            assert units_of(broker) == 2  # the first goes at once, the others behind it
            assert await held(client, "out") == [b"%d" % n for n in range(20)]
            assert [rows[1].offset for rows in found] == list(range(20))
            stored = {m.position: m for m in await client.peek("wide", limit=100)}
            for number, (wide, out) in enumerate(found):
                assert stored[wide.position].body == b"w%d" % number
                assert stored[wide.position].id == wide.id
                assert (wide.topic, out.topic) == ("wide", "out")
            assert deliveries.settling.holds == {}
        (row,) = await client.subscriptions("in")
        assert (row["acked"], row["waiting"]) == (20, 0)

    play(scenario)


def test_one_that_is_refused_does_not_harm_the_others() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        await client.publish_many("in", [b"%d" % n for n in range(8)])
        async with client.subscribe("in", "s", credit=8) as deliveries:
            stale = (await take(deliveries, 8))[3]
            broker.advance(31)
            broker.settle()
            messages = await take(deliveries, 8)
            messages[3] = stale
            found = await together(*(move(client, b"%d" % n, messages[n]) for n in range(8)))
            assert isinstance(found[3], AckRefused)
            assert found[3].refused == [("in", 0, 3, "it was handed out again")]
            assert not stale.is_settled
            good = [n for n in range(8) if n != 3]
            assert await held(client, "out") == [b"%d" % n for n in good]
            assert [found[n].offset for n in good] == list(range(7))
            (row,) = await client.subscriptions("in")
            assert (row["acked"], row["leased"]) == (7, 1)

    play(scenario)


def test_a_publish_made_after_a_unit_comes_after_it() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        await client.publish("out", b"0")
        tasks = [asyncio.create_task(move(client, b"%d" % n)) for n in (1, 2, 3)]
        await asyncio.sleep(0)
        tasks += [
            asyncio.create_task(client.publish("out", b"4", key="k")),
            asyncio.create_task(move(client, b"5")),
        ]
        await asyncio.gather(*tasks)
        assert await held(client, "out") == [b"%d" % n for n in range(6)]

    play(scenario)


def test_a_load_takes_so_much_and_given_ids_go_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        monkeypatch.setattr(uniting, "COUNT_CUT", 4)
        await together(*(move(client, b"%d" % n) for n in range(9)))
        assert units_of(broker) == 3
        monkeypatch.setattr(uniting, "BYTES_CUT", 10)
        await together(*(move(client, b"%d" % n) for n in range(9, 12)))
        assert units_of(broker) == 6
        found = await together(*(move(client, b"same", id="x") for _ in range(3)))
        assert units_of(broker) == 9
        assert [row.duplicate for row in found] == [False, True, True]
        assert await held(client, "out") == [*(b"%d" % n for n in range(12)), b"same"]

    play(scenario)


def test_a_store_that_fails_is_told_to_everybody_and_nothing_is_tried_again() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        await client.publish_many("in", [b"1", b"2", b"3"])
        async with client.subscribe("in", "s") as deliveries:
            messages = await take(deliveries, 3)
            broker.settle()
            await move(client, b"0")
            tried = units_of(broker)
            broker.broker.journal.failed = StoreFailed("the disk is gone")
            found = await together(*(move(client, b"x", message) for message in messages))
            assert [type(each) for each in found] == [StoreFailed] * 3
            assert len({id(each) for each in found}) == 3
            assert not any(message.is_settled for message in messages)
            broker.broker.journal.failed = None
            assert units_of(broker) == tried

    play(scenario)


def test_a_task_that_is_cancelled_does_not_take_its_unit_back() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        tasks = [asyncio.create_task(move(client, b"%d" % n)) for n in range(4)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        found = await together(*tasks)
        assert isinstance(found[2], asyncio.CancelledError)
        assert await held(client, "out") == [b"0", b"1", b"2", b"3"]
        assert [row.offset for n, row in enumerate(found) if n != 2] == [0, 1, 3]

    play(scenario)


def test_units_of_the_largest_size_are_not_put_together() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        body = bytes(limits.BODY_BYTES_MAX)
        found = await together(*(move(client, body) for _ in range(3)))
        assert [row.offset for row in found] == [0, 1, 2]
        assert units_of(broker) == 3

    play(scenario)


def test_whatever_goes_wrong_is_told_to_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        await move(client, b"0")

        def broken(*_arguments: Any) -> None:
            raise RuntimeError("not foreseen")

        with monkeypatch.context() as patch:
            patch.setattr(client._opened(), "commit_unit", broken)
            found = await together(*(move(client, b"x") for _ in range(3)))
        assert [str(each) for each in found] == ["not foreseen"] * 3
        await move(client, b"1")
        assert await held(client, "out") == [b"0", b"1"]

    play(scenario)
