"""Transactions: what leaves the block leaves it whole, or not at all."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import connect, connect_blocking
from penstock.client.blocking import BlockingClient
from penstock.client.client import Client
from penstock.client.deliveries import Deliveries
from penstock.client.received import ReceivedMessage
from penstock.client.transaction import Transaction
from penstock.testing import MemoryBroker
from penstock.vocabulary import limits
from penstock.vocabulary.errors import (
    AckRefused,
    AlreadySettled,
    Closed,
    InvalidArgument,
    InvalidName,
    NotLeased,
    StoreFailed,
    TooLarge,
    UnitTooLarge,
    Unsupported,
    UsageError,
)

Scenario = Callable[[MemoryBroker, Client], Awaitable[None]]


def play(scenario: Scenario, **options: Any) -> None:
    async def run() -> None:
        with MemoryBroker() as broker:
            async with broker.client(**options) as client:
                await scenario(broker, client)

    asyncio.run(run())


async def first(deliveries: Deliveries) -> ReceivedMessage:
    message = await deliveries.receive(timeout_s=5)
    assert message is not None, "no message came"
    return message


async def held(client: Client, topic: str) -> list[bytes | None]:
    return [message.body for message in await client.peek(topic, limit=1000)]


async def count(client: Client, what: str, topic: str = "orders") -> int:
    (row,) = await client.subscriptions(topic)
    return int(row[what])


class Boom(Exception):
    """The application failed."""


def fail() -> None:
    raise Boom


async def move(
    unit: Transaction, topic: str, body: bytes | None, *messages: ReceivedMessage,
    then: Callable[[], object] = bool,
) -> None:  # fmt: skip
    """One publish and some acks, and whatever comes before the block is left."""
    async with unit:
        unit.publish(topic, body)
        for message in messages:
            unit.ack(message)
        done = then()
        if isinstance(done, Awaitable):
            await done


# -- commit and abort ----------------------------------------------------------------------------


def test_outputs_and_acks_are_durable_when_the_block_is_left() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        await client.publish("orders", b"7")
        async with client.subscribe("orders", "billing") as deliveries:
            message = await first(deliveries)
            async with client.transaction() as unit:
                unit.publish("totals", json={"n": 7}, key="k", id="mine", headers={"a": "b"})
                unit.publish("log", "seen")
                unit.publish("totals", b"plain")
                unit.ack(message)
                assert message.is_settled
                assert await count(client, "acked") == 0
            assert await count(client, "acked") == 1
            assert await held(client, "totals") == [b'{"n":7}', b"plain"]
            assert await held(client, "log") == [b"seen"]
            first_receipt, second, third = unit.receipts
            assert [r.topic for r in unit.receipts] == ["totals", "log", "totals"]
            assert (first_receipt.offset, first_receipt.id) == (0, "mine")
            assert (second.position, third.position) == ("0:0", "0:1")
            assert third.durability is client.capabilities.durability
            (_, plain) = await client.peek("totals")
            assert plain.id == third.id
            assert await deliveries.receive(timeout_s=0.01) is None

    play(scenario)


def test_an_exception_drops_everything_and_gives_the_messages_back() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        await client.publish_many("orders", [b"1", b"2"])
        async with client.subscribe("orders", "billing") as deliveries:
            one, two = await first(deliveries), await first(deliveries)
            unit = client.transaction()
            with pytest.raises(Boom):
                await move(unit, "orders", b"never", one, two, then=fail)
            assert await held(client, "orders") == [b"1", b"2"]
            assert not one.is_settled
            one.ack()
            two.nack(delay_s=0)
            await deliveries.flush()
            assert (await first(deliveries)).body == b"2"
            with pytest.raises(UsageError, match="aborted"):
                unit.publish("orders", b"late")
            with pytest.raises(UsageError, match="no receipts"):
                _ = unit.receipts

    play(scenario)


def test_a_message_is_acked_once_while_the_unit_is_open() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        await client.publish("orders", b"1")
        async with client.subscribe("orders", "billing") as deliveries:
            message = await first(deliveries)
            async with client.transaction() as unit:
                unit.ack(message)
                with pytest.raises(AlreadySettled):
                    message.ack()
                with pytest.raises(AlreadySettled):
                    message.nack()
                with pytest.raises(AlreadySettled):
                    unit.ack(message)
            with pytest.raises(AlreadySettled):
                message.ack()
        (looked_at,) = await client.peek("orders") or [message]
        with pytest.raises((NotLeased, AlreadySettled)):
            async with client.transaction() as unit:
                unit.ack(looked_at)

    play(scenario)


def test_an_empty_unit_and_one_that_only_acks() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        async with client.transaction() as unit:
            pass
        assert unit.receipts == []
        assert broker.broker.state.units == {}
        await client.publish("orders", b"1")
        async with client.subscribe("orders", "billing") as deliveries:
            async with client.transaction() as unit:
                unit.ack(await first(deliveries))
            assert unit.receipts == []
            assert await count(client, "acked") == 1
        assert len(broker.broker.state.units) == 1

    play(scenario)


def test_a_stale_ack_refuses_the_whole_unit_and_says_which() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        await client.publish_many("orders", [b"1", b"2"])
        await client.publish("out", b"before")
        async with client.subscribe("orders", "billing", credit=1) as deliveries:
            old = await first(deliveries)
            broker.advance(31)
            broker.settle()
            new = await first(deliveries)
            assert (old.body, new.body, new.attempt) == (b"1", b"1", 2)
            unit = client.transaction()
            with pytest.raises(AckRefused, match="nothing of the unit was stored") as caught:
                await move(unit, "out", b"x", old)
            assert caught.value.refused == [("orders", 0, 0, "it was handed out again")]
            assert await held(client, "out") == [b"before"]
            async with client.transaction() as unit:
                unit.publish("out", b"y")
                unit.ack(new)
            assert await held(client, "out") == [b"before", b"y"]
            assert unit.receipts[0].offset == 1
            assert (await first(deliveries)).body == b"2"

    play(scenario)


def test_messages_of_two_subscriptions_are_acked_together() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        await client.publish_many("left", [b"1", b"2"])
        await client.create_topic("right", partitions=3)
        for key in "abc":
            await client.publish("right", b"r", key=key)
        async with client.subscribe("left", "s") as left, client.subscribe("right", "s") as right:
            got = [await first(left), await first(left)]
            got += [await first(right) for _ in range(3)]
            async with client.transaction() as unit:
                for message in reversed(got):
                    unit.ack(message)
            assert await count(client, "acked", "left") == 2
            assert await count(client, "acked", "right") == 3
            assert (left.settling.holds, right.settling.holds) == ({}, {})

    play(scenario)


# -- what is refused -----------------------------------------------------------------------------


WRONG: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    (("a b",), {}, InvalidName, "topic"),
    ((7,), {}, InvalidName, "topic"),
    (("t.dead.s",), {}, InvalidName, "dead"),
    (("t", {"a": 1}), {}, InvalidArgument, "body"),
    (("t", b"x"), {"json": 1}, InvalidArgument, "either body or json"),
    (("t",), {"json": {1, 2}.__iter__}, InvalidArgument, "JSON cannot hold"),
    (("t", b"x"), {"key": 7}, InvalidArgument, "key"),
    (("t", b"x"), {"headers": {"a": 1}}, InvalidArgument, "header"),
    (("t", bytes(limits.BODY_BYTES_MAX + 1)), {}, TooLarge, "body"),
    (("t", b"x"), {"deliver_at": 1.0, "delay_s": 1.0}, InvalidArgument, "not both"),
]


@pytest.mark.parametrize(("arguments", "options", "error", "text"), WRONG)
def test_a_wrong_publish_is_refused_at_once_and_the_rest_goes_on(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], text: str
) -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        async with client.transaction() as unit:
            unit.publish("out", b"good")
            with pytest.raises(error, match=text):
                unit.publish(*arguments, **options)
        assert len(unit.receipts) == 1
        assert await held(client, "out") == [b"good"]

    play(scenario)


def test_a_unit_takes_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        monkeypatch.setattr(limits, "UNIT_BYTES_MAX", 10_000)
        await client.publish("orders", b"1")
        async with client.subscribe("orders", "billing") as deliveries:
            message = await first(deliveries)
            async with client.transaction() as unit:
                unit.publish("out", bytes(5_000))
                with pytest.raises(UnitTooLarge, match="commit more often"):
                    unit.publish("out", bytes(6_000))
                unit.publish("out", bytes(4_000))
                monkeypatch.setattr(limits, "UNIT_COUNT_MAX", 2)
                with pytest.raises(UnitTooLarge):
                    unit.ack(message)
                assert not message.is_settled
            assert len(await held(client, "out")) == 2

    play(scenario)


def test_a_unit_of_the_largest_size_is_stored() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        async with client.transaction() as unit:
            for number in range(7):
                unit.publish("out", bytes([number]) * limits.BODY_BYTES_MAX)
        assert [r.offset for r in unit.receipts] == list(range(7))
        assert [body[0] for body in await held(client, "out") if body] == list(range(7))

    play(scenario)


def test_a_unit_is_entered_once_and_only_inside_anything_can_be_added() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        unit = client.transaction()
        with pytest.raises(UsageError, match="async with"):
            unit.publish("out", b"x")
        async with unit:
            with pytest.raises(InvalidArgument, match="received message"):
                unit.ack("message")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="not committed yet"):
                _ = unit.receipts
        with pytest.raises(UsageError, match="committed"):
            unit.publish("out", b"x")
        with pytest.raises(UsageError, match="once"):
            async with unit:
                pass

    play(scenario)


def test_a_message_of_another_client_or_of_a_closed_or_nameless_subscription_is_refused() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        other = broker.client()
        await client.publish("orders", b"1")
        async with other.subscribe("orders", "billing") as deliveries:
            message = await first(deliveries)
            with pytest.raises(InvalidArgument, match="another client"):
                async with client.transaction() as unit:
                    unit.ack(message)
            assert not message.is_settled
        with pytest.raises(Closed, match="closed"):
            async with other.transaction() as unit:
                unit.ack(message)
        async with client.subscribe("orders", start="earliest") as deliveries:
            message = await first(deliveries)
            with pytest.raises(Unsupported, match="named subscription"):
                async with client.transaction() as unit:
                    unit.ack(message)

    play(scenario)


def test_a_closed_client_commits_nothing() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        other = broker.client()
        with pytest.raises(Closed):
            await move(other.transaction(), "out", b"x", then=other.close)
        with pytest.raises(Closed):
            other.transaction()
        assert "out" not in {row["topic"] for row in await client.topics()}

    play(scenario)


def test_a_url_without_transactions_refuses() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        driver = client._opened()
        assert driver.capabilities.has_transactions
        driver.capabilities = type(driver.capabilities)(  # type: ignore[misc]
            scheme="x", durability=driver.capabilities.durability
        )
        with pytest.raises(Unsupported, match="no transactions"):
            client.transaction()
        assert broker is not None

    play(scenario)


def test_a_store_that_fails_is_told_and_the_messages_are_unsettled() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        await client.publish("orders", b"1")
        async with client.subscribe("orders", "billing") as deliveries:
            message = await first(deliveries)
            broker.settle()
            broker.broker.journal.failed = StoreFailed("the disk is gone")
            with pytest.raises(StoreFailed):
                await move(client.transaction(), "out", b"x", message)
            assert not message.is_settled
            broker.broker.journal.failed = None

    play(scenario)


# -- retries and identities ----------------------------------------------------------------------


def test_a_unit_between_plain_publishes_keeps_their_order_and_numbers() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        await client.publish("out", b"0")
        flying = [asyncio.create_task(client.publish("out", b"%d" % n)) for n in (1, 2, 3)]
        await asyncio.sleep(0)
        async with client.transaction() as unit:
            unit.publish("out", b"4")
        await asyncio.gather(*flying)
        await client.publish("out", b"5")
        assert await held(client, "out") == [b"%d" % n for n in range(6)]
        messages = await client.peek("out")
        assert len({message.id for message in messages}) == 6

    play(scenario)


@pytest.mark.parametrize("name", [None, "worker-7"])
def test_a_topic_created_again_takes_units_again(name: str | None) -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        for body in (b"1", b"2"):
            for _ in range(2):
                async with client.transaction() as unit:
                    unit.publish("out", body)
            assert await held(client, "out") == [body, body]
            await client.delete_topic("out")

    play(scenario, publisher=name)


def test_a_publisher_the_broker_forgot_begins_anew() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        for number in range(2):
            async with client.transaction() as unit:
                unit.publish("out", b"%d" % number)
        broker.broker.state.units.clear()
        async with client.transaction() as unit:
            unit.publish("out", b"2")
        assert await held(client, "out") == [b"0", b"1", b"2"]
        assert not unit.receipts[0].duplicate

    play(scenario)


def test_a_hundred_tasks_move_everything_exactly_once() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        for number in range(3):
            await client.create_topic(f"out-{number}", partitions=number + 1)
        await client.publish_many("orders", [b"%d" % number for number in range(300)])
        moved = 0

        async def work(deliveries: Deliveries, number: int) -> None:
            nonlocal moved
            while moved < 300:
                message = await deliveries.receive(timeout_s=0.2)
                if message is None:
                    continue
                is_unlucky = message.attempt == 1 and int(message.body or b"0") % 7 == 0
                then = fail if is_unlucky else partial(asyncio.sleep, 0)
                try:
                    await move(
                        client.transaction(), f"out-{number % 3}", message.body, message, then=then
                    )
                except Boom:
                    message.nack(delay_s=0)
                else:
                    moved += 1

        async with client.subscribe("orders", "billing", credit=150) as deliveries:
            await asyncio.wait_for(
                asyncio.gather(*(work(deliveries, number) for number in range(100))), 30
            )
        out = [body for n in range(3) for body in await held(client, f"out-{n}")]
        assert sorted(int(body or b"") for body in out) == list(range(300))
        assert await count(client, "acked") == 300

    play(scenario)


def test_whoever_stops_waiting_does_not_undo_the_commit() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        await client.publish("orders", b"1")
        async with client.subscribe("orders", "billing") as deliveries:
            message = await first(deliveries)

            with broker.broker.engine.lock:
                task = asyncio.create_task(move(client.transaction(), "out", b"x", message))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            broker.settle()
            await asyncio.sleep(0)
            assert await held(client, "out") == [b"x"]
            assert message.is_settled

    play(scenario)


# -- push, blocking, restarts --------------------------------------------------------------------


def test_a_handler_may_settle_its_message_in_a_unit() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        await client.publish_many("orders", [b"good", b"bad"])
        seen: list[tuple[bytes | None, int]] = []

        @client.on_message("orders", "billing", retry=None, concurrency=2)
        async def copy(message: ReceivedMessage) -> None:
            seen.append((message.body, message.attempt))
            async with client.transaction() as unit:
                unit.publish("out", message.body)
                unit.ack(message)
                if message.body == b"bad":
                    client.stop()
                    raise Boom

        await client.run(drain_s=5)
        assert await held(client, "out") == [b"good"]
        (row,) = await client.subscriptions("orders")
        assert (row["acked"], row["delayed"]) == (1, 1)

    play(scenario)


def never_moved(client: BlockingClient, message: ReceivedMessage) -> None:
    with client.transaction() as unit:
        unit.publish("out", b"never")
        unit.ack(message)
        raise Boom


def test_the_blocking_twin(tmp_path: Path) -> None:
    with connect_blocking(f"file:{tmp_path / 'store'}") as client:
        client.publish("orders", b"1")
        with client.subscribe("orders", "billing") as deliveries:
            message = deliveries.receive(timeout_s=5)
            assert message is not None
            with pytest.raises(Boom):
                never_moved(client, message)
            with client.transaction() as unit:
                unit.publish("out", json=[1])
                unit.ack(message)
            assert [receipt.position for receipt in unit.receipts] == ["0:0"]
        assert [m.body for m in client.peek("out")] == [b"[1]"]
    with connect_blocking(f"file:{tmp_path / 'store'}") as client:
        assert [m.body for m in client.peek("out")] == [b"[1]"]
        assert client.subscriptions("orders")[0]["acked"] == 1


def test_a_unit_is_there_after_the_store_is_opened_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        url = f"file:{tmp_path / 'store'}"
        for life in range(3):
            async with connect(url, publisher="mover") as client:
                await client.publish("orders", b"%d" % life)
                async with client.subscribe("orders", "billing") as deliveries:
                    message = await first(deliveries)
                    async with client.transaction() as unit:
                        unit.publish("out", message.body)
                        unit.ack(message)
                    assert unit.receipts[0].offset == life
        async with connect(url) as client:
            assert await held(client, "out") == [b"0", b"1", b"2"]

    asyncio.run(scenario())


def test_the_class_is_what_the_client_makes() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        assert isinstance(client.transaction(), Transaction)

    play(scenario)
