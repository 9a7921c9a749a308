"""What Penstock gives to the tests of its users: a broker in memory and a clock."""

import asyncio
import subprocess
import sys

import pytest

from penstock.testing import ManualClock, MemoryBroker, penstock_broker
from penstock.vocabulary.errors import Closed, InvalidArgument
from penstock.vocabulary.message import Durability

__all__ = ["penstock_broker"]


def test_the_clock_moves_only_when_told() -> None:
    clock = ManualClock()
    now, wall = clock.now(), clock.wall()
    assert (clock.now(), clock.wall()) == (now, wall)
    clock.advance(1.5)
    assert (clock.now(), clock.wall()) == (now + 1500, wall + 1500)
    with pytest.raises(InvalidArgument, match="forward"):
        clock.advance(-1)


def test_the_wall_clock_may_jump_alone() -> None:
    clock = ManualClock()
    now, wall = clock.now(), clock.wall()
    clock.jump(-2.5)
    assert (clock.now(), clock.wall()) == (now, wall - 2500)


def test_the_fixture_gives_a_broker(penstock_broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with penstock_broker.client() as client:
            receipt = await client.publish("orders", b"1")
            assert receipt.durability is Durability.MEMORY

    asyncio.run(scenario())


def test_a_lease_expires_when_the_test_says_so() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish("orders", b"x")
            async with client.subscribe("orders", "billing") as deliveries:
                assert await deliveries.receive(timeout_s=5) is not None
                broker.advance(29)
                assert await deliveries.receive(timeout_s=0.01) is None
                broker.advance(4)
                again = await deliveries.receive(timeout_s=5)
                assert again is not None
                assert again.attempt == 2

    asyncio.run(scenario())


def test_acks_are_sent_before_time_moves() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish("orders", b"x")
            async with client.subscribe("orders", "billing") as deliveries:
                message = await deliveries.receive(timeout_s=5)
                assert message is not None
                message.ack()
                broker.advance(3600)
                assert (await client.subscriptions())[0]["acked"] == 1

    asyncio.run(scenario())


def test_retention_runs_on_the_same_clock() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_topic("orders", retain_s=60)
            await client.publish("orders", b"x")
            broker.advance(50)
            assert len(await client.peek("orders")) == 1
            broker.advance(20)
            assert await client.peek("orders") == []

    asyncio.run(scenario())


def test_dead_letters_are_there_when_the_broker_has_settled() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            for number in range(20):
                await client.publish("orders", str(number))
                async with client.subscribe("orders", "billing") as deliveries:
                    message = await deliveries.receive(timeout_s=5)
                    assert message is not None
                    message.reject("bad")
                    broker.settle()
                    assert len(await client.dead_letters("orders", "billing")) == number + 1

    asyncio.run(scenario())


def test_a_client_made_outside_of_a_loop_is_opened_like_any_other() -> None:
    with MemoryBroker() as broker:
        client = broker.client()

        async def scenario() -> None:
            async with client:
                await client.publish("orders", b"x")

        asyncio.run(scenario())
        broker.advance(5)
        broker.close()

        async def too_late() -> None:
            with pytest.raises(Closed):
                await broker.client().open()

        asyncio.run(too_late())


def test_pytest_is_imported_only_for_the_fixture() -> None:
    program = (
        "import sys, penstock.testing as t; assert 'pytest' not in sys.modules; "
        "t.penstock_broker; assert 'pytest' in sys.modules; "
        "assert not hasattr(t, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
