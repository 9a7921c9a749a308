"""Transactions: all or nothing, also seen by other programs."""

import asyncio

import pytest

import penstock
from penstock.client.received import ReceivedMessage
from penstock.vocabulary.errors import Unsupported
from tests.contracts.suites.world import first, nothing, several, unique
from tests.drivers.kafka.rig import client_of, run
from tests.servers.kafka import Cluster


def test_a_copy_is_exact_and_in_order(kafka_server: Cluster) -> None:
    source, target, total = unique("in"), unique("out"), 60

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            await client.publish_many(source, [b"%d" % n for n in range(total)])
            async with client.subscribe(source, "copy", qos=2) as deliveries:
                for _ in range(total // 10):
                    got = await several(deliveries, 10)
                    async with client.transaction() as unit:
                        for message in got:
                            unit.publish(target, message.body, key="k")
                            unit.ack(message)
                    assert unit.receipts[0].position.startswith("0:")
            bodies = [m.body for m in await client.peek(target, 1_000)]
            assert bodies == [b"%d" % n for n in range(total)]
            [row] = await client.subscriptions(source)
            assert (row["waiting"], row["leased"]) == (0, 0)

    run(scenario())


def test_nobody_sees_a_unit_that_was_broken_off(kafka_server: Cluster) -> None:
    source, target = unique("in"), unique("out")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            await client.publish(source, b"x")
            await client.create_topic(target, keep_last=1)
            async with (
                client.subscribe(source, "copy", qos=2) as deliveries,
                client.subscribe(target) as seen,
            ):
                message = await first(deliveries)
                with pytest.raises(Unsupported, match="compacted"):
                    await _deleting(client, target, message)
                async with client.transaction() as unit:
                    unit.publish(target, b"y", key="k")
                    unit.ack(message)
                assert (await first(seen)).body == b"y"
                await nothing(seen)
                await nothing(deliveries)

    run(scenario())


def test_units_of_one_client_wait_for_each_other(kafka_server: Cluster) -> None:
    target = unique("out")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:

            async def one(number: int) -> None:
                async with client.transaction() as unit:
                    unit.publish(target, b"%d" % number)
                    unit.publish(target, b"%d" % number)

            await asyncio.gather(*(one(number) for number in range(8)))
            bodies = [m.body for m in await client.peek(target, 100)]
            assert bodies[::2] == bodies[1::2]
            assert len(bodies) == 16

    run(scenario())


async def _deleting(client: penstock.Client, topic: str, message: ReceivedMessage) -> None:
    async with client.transaction() as unit:
        unit.publish(topic, key="k")
        unit.ack(message)
