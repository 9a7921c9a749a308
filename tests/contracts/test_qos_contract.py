"""QoS 0, 1 and 2 and units, told through the client, on every embedded driver."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import connect
from penstock.client import publisher
from penstock.client.client import Client
from penstock.client.received import ReceivedMessage
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import (
    AckRefused,
    AlreadySettled,
    PublisherFenced,
    SubscriptionConflict,
)
from tests.contracts.driver_world import bodies, first, make, receive_all


@pytest.fixture(params=["file", "memory", "remote"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryBroker]:
    with make(request.param, tmp_path / "store") as made:
        yield made


async def counts(client: Client) -> dict[str, Any]:
    (row,) = await client.subscriptions("orders")
    return row


# -- 0 -------------------------------------------------------------------------------------------


def test_qos_0_is_finished_when_it_is_handed_out(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"1", b"2", b"3"])
            async with client.subscribe("orders", "billing", qos=0) as deliveries:
                got = await receive_all(deliveries)
                assert [m.body for m in got] == [b"1", b"2", b"3"]
                assert (await counts(client))["acked"] == 3
                got[0].ack()
                got[1].nack(delay_s=0)
                got[2].reject("no")
                with pytest.raises(AlreadySettled):
                    got[0].nack()
                await deliveries.flush()
                broker.advance(3600)
                assert await receive_all(deliveries) == []
            row = await counts(client)
            assert (row["acked"], row["dead"], row["dropped"]) == (3, 0, 0)
            async with client.subscribe("orders", "billing", qos=0) as deliveries:
                assert await receive_all(deliveries) == []

    asyncio.run(scenario())


@pytest.mark.parametrize("credit", [1, 2, 7])
def test_qos_0_goes_on_without_acks_and_within_its_credit(
    broker: MemoryBroker, credit: int
) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"%d" % n for n in range(20)])
            async with client.subscribe("orders", "billing", qos=0, credit=credit) as deliveries:
                message = await first(deliveries)
                broker.settle()
                assert message.body == b"0"
                row = await counts(client)
                assert (row["acked"], row["waiting"]) == (credit, 20 - credit)
                rest = [(await first(deliveries)).body for _ in range(19)]
                assert rest == [b"%d" % n for n in range(1, 20)]

    asyncio.run(scenario())


def test_qos_0_counts_as_dropped_what_the_application_never_got(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"1", b"2", b"3"])
            async with client.subscribe("orders", "billing", qos=0) as deliveries:
                await first(deliveries)
            row = await counts(client)
            assert (row["attached"], row["acked"], row["dropped"]) == (3, 1, 2)
            assert (row["leased"], row["waiting"]) == (0, 0)

    asyncio.run(scenario())


def test_qos_0_in_batches_and_in_handlers(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"%d" % n for n in range(10)])
            seen: list[bytes | None] = []
            async with client.subscribe("orders", "billing", qos=0, credit=4) as deliveries:
                async for batch in deliveries.batches(3):
                    seen += batch.bodies
                    if len(seen) == 10:
                        break
            assert seen == [b"%d" % n for n in range(10)]
            await client.publish_many("orders", [b"%d" % n for n in range(10)])
            handled: list[bytes | None] = []

            @client.on_message("orders", "billing", qos=0, concurrency=2)
            async def handle(message: ReceivedMessage) -> None:
                handled.append(message.body)
                if len(handled) == 10:
                    client.stop()
                raise ValueError("at most once")

            await asyncio.wait_for(client.run(), 20)
            assert sorted(map(str, handled)) == sorted(map(str, seen))
            assert (await counts(client))["acked"] == 20

    asyncio.run(scenario())


def test_qos_0_without_a_name(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client, client.subscribe("orders", qos=0) as deliveries:
            await client.publish("orders", b"1")
            (await first(deliveries)).nack(delay_s=0)
            broker.advance(3600)
            assert await receive_all(deliveries) == []

    asyncio.run(scenario())


def test_qos_0_is_not_handed_over_again_by_the_next_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        url = f"file:{tmp_path / 'store'}"
        async with connect(url) as client:
            await client.publish("orders", b"1")
            async with client.subscribe("orders", "billing", qos=0) as deliveries:
                assert (await first(deliveries)).body == b"1"
        async with (
            connect(url) as client,
            client.subscribe("orders", "billing", qos=0) as deliveries,
        ):
            assert await receive_all(deliveries) == []

    asyncio.run(scenario())


# -- 1 and 2 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_a_stale_ack_is_refused_by_flush(broker: MemoryBroker, qos: int) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"1")
            async with client.subscribe("orders", "billing", qos=qos) as deliveries:
                old = await first(deliveries)
                broker.advance(31)
                new = await first(deliveries)
                assert new.attempt == 2
                old.ack()
                with pytest.raises(AckRefused, match="handed out again"):
                    await deliveries.flush()
                new.ack()
                await deliveries.flush()
                assert (await counts(client))["acked"] == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
def test_a_stale_ack_of_a_finished_message_is_refused_at_qos_2_only(
    broker: MemoryBroker, qos: int
) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"1")
            async with client.subscribe("orders", "billing", qos=qos) as deliveries:
                old = await first(deliveries)
                broker.advance(31)
                (await first(deliveries)).ack()
                await deliveries.flush()
                old.ack()
                if qos == 1:
                    await deliveries.flush()
                else:
                    with pytest.raises(AckRefused, match="handed out again"):
                        await deliveries.flush()

    asyncio.run(scenario())


def test_the_qos_of_a_subscription_is_fixed(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_subscription("orders", "billing", qos=2)
            with pytest.raises(SubscriptionConflict, match="qos 2, not"):
                async with client.subscribe("orders", "billing"):
                    pass
            async with client.subscribe("orders", "billing", qos=2) as deliveries:
                await client.publish("orders", b"1")
                assert await bodies_when_there(deliveries) == [b"1"]

    asyncio.run(scenario())


async def bodies_when_there(deliveries: Any) -> list[bytes | None]:
    message = await first(deliveries)
    message.ack()
    return [message.body, *await bodies(deliveries)]


# -- units ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_a_unit_moves_a_message_once(broker: MemoryBroker, qos: int) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"1", b"2"])
            async with client.subscribe("orders", "billing", qos=qos) as deliveries:
                one, two = await first(deliveries), await first(deliveries)
                for message in (one, two):
                    async with client.transaction() as unit:
                        unit.publish("out", message.body)
                        unit.ack(message)
                await deliveries.flush()
            assert [m.body for m in await client.peek("out")] == [b"1", b"2"]
            assert unit.receipts[0].durability is client.capabilities.durability
            assert (await counts(client))["acked"] == 2

    asyncio.run(scenario())


def test_a_unit_settles_what_a_key_holds(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            for number in range(4):
                await client.publish("orders", b"%d" % number, key="k")
            options: dict[str, Any] = {"kind": "key_shared", "credit": 1}
            async with client.subscribe("orders", "billing", **options) as deliveries:
                for number in range(2):
                    message = await first(deliveries)
                    assert message.body == b"%d" % number
                    async with client.transaction() as unit:
                        unit.publish("out", message.body)
                        unit.ack(message)
                topic = broker.broker.state.names["orders"]
                keys = (topic.subscriptions or {})["billing"].keys
                assert keys is not None
                assert keys.decided == {}
                held = await first(deliveries)
                async with client.subscribe("orders", "billing", **options) as other:
                    async with client.transaction() as unit:
                        unit.ack(held)
                    broker.settle()
                    last = [each for each in (deliveries, other) if await each.receive(0.2)]
                    assert len(last) == 1
            row = await counts(client)
            assert (row["acked"], row["waiting"]) == (3, 1)

    asyncio.run(scenario())


def test_a_unit_takes_a_late_ack_of_a_message_that_stands_in_line(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"low", priority=1)
            async with client.subscribe("orders", "billing", credit=1) as deliveries:
                low = await first(deliveries)
                await client.publish("orders", b"high", priority=5)
                broker.advance(31)
                assert (await first(deliveries)).body == b"high"
                async with client.transaction() as unit:
                    unit.publish("out", b"x", priority=3, delay_s=60)
                    unit.ack(low)
                assert (await counts(client))["acked"] == 1
            broker.advance(61)
            async with client.subscribe("out", "later") as later:
                message = await first(later)
                assert (message.body, message.priority) == (b"x", 3)

    asyncio.run(scenario())


def test_qos_0_hands_out_by_priority(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            for kind in ("shared", "key_shared"):
                await client.create_subscription("orders", f"by-{kind}", kind=kind, qos=0)
            for number in range(9):
                await client.publish("orders", b"%d" % number, priority=number % 3)
            for kind in ("shared", "key_shared"):
                name = f"by-{kind}"
                async with client.subscribe("orders", name, qos=0, kind=kind) as deliveries:
                    got = [(await first(deliveries)).body for _ in range(9)]
                    assert await deliveries.receive(0.05) is None
                assert got == [b"2", b"5", b"8", b"1", b"4", b"7", b"0", b"3", b"6"]
                row = next(
                    each
                    for each in await client.subscriptions("orders")
                    if each["subscription"] == name
                )
                assert (row["acked"], row["leased"], row["waiting"]) == (9, 0, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_unit", [False, True])
def test_a_named_publisher_goes_on_although_the_clock_was_set_back(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, *, is_unit: bool
) -> None:
    async def publish(client: Client, body: bytes) -> None:
        if not is_unit:
            await client.publish("orders", body)
            return
        async with client.transaction() as unit:
            unit.publish("orders", body)

    async def scenario() -> None:
        async with broker.client(publisher="meter") as old:
            await publish(old, b"0")
            past = time.time_ns() - 3_600_000_000_000
            monkeypatch.setattr(publisher, "time", SimpleNamespace(time_ns=lambda: past))
            for number in range(1, 4):
                publisher._epochs.clear()  # each is a process of its own
                async with broker.client(publisher="meter") as new:
                    await publish(new, b"%d" % number)
                    await publish(new, b"and")
            with pytest.raises(PublisherFenced, match="open a new client to take over"):
                await publish(old, b"late")
            rows = await old.topics()
        assert [row["published"] for row in rows] == [7]

    asyncio.run(scenario())
