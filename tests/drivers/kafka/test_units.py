"""Transactions: all or nothing, also seen by other programs."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

import penstock
from penstock.client.received import ReceivedMessage
from penstock.drivers.kafka.link import Sending
from penstock.drivers.kafka.records import Record
from penstock.drivers.kafka.units import group_of
from penstock.vocabulary.errors import PenstockError, Unsupported
from penstock.vocabulary.policy import TopicPolicy
from tests.contracts.suites.world import first, nothing, several, unique
from tests.drivers.kafka.rig import TEST_S, carrier_of, client_of, run
from tests.servers.kafka import Cluster

HIDDEN_S = 0.5
"""Looking takes less, unless it waits."""


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


def test_a_client_sees_what_its_units_stored(kafka_server: Cluster) -> None:
    """Kafka confirms a unit before it shows it: here as late as another's transaction ends."""
    target = unique("out")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            await client.create_topic(target)
            with _open_transaction(kafka_server, target) as other:
                async with client.transaction() as unit:
                    unit.publish(target, b"ours")
                looking = asyncio.create_task(client.peek(target))
                await asyncio.sleep(HIDDEN_S)
                other.commit_transaction(TEST_S)
            assert [m.body for m in await looking] == [b"theirs", b"ours"]

    run(scenario())


def test_a_client_sees_what_it_stored_behind_a_unit_that_came_to_nothing(
    kafka_server: Cluster,
) -> None:
    target = unique("out")

    async def scenario() -> None:
        carrier = await carrier_of(kafka_server)
        try:
            await carrier.put_topic(target, 1, TopicPolicy())
            with _open_transaction(kafka_server, target) as other:
                group = await group_of(carrier.link, "g")
                places = [TopicPartition(target, 0, 1, metadata="x" * 5_000)]
                records = [(target, [Record(None, b"undone", [])])]
                with pytest.raises(PenstockError, match="OFFSET_METADATA_TOO_LARGE"):
                    await carrier._transact(
                        records, [(group, places)], Sending(1, carrier.link.loop), []
                    )
                looking = asyncio.create_task(carrier.look(target, 10, None))
                await asyncio.sleep(HIDDEN_S)
                other.commit_transaction(TEST_S)
            assert [letter.body for letter in await looking] == [b"theirs"]
        finally:
            await carrier.close()

    run(scenario())


@contextmanager
def _open_transaction(cluster: Cluster, topic: str) -> Iterator[Any]:
    """Another program that has stored a message and not said yet whether it counts."""
    config = {"bootstrap.servers": cluster.bootstrap, "transactional.id": unique("other")}
    producer = Producer(config)
    producer.init_transactions(TEST_S)
    producer.begin_transaction()
    producer.produce(topic, b"theirs")
    assert producer.flush(TEST_S) == 0
    yield producer


async def _deleting(client: penstock.Client, topic: str, message: ReceivedMessage) -> None:
    async with client.transaction() as unit:
        unit.publish(topic, key="k")
        unit.ack(message)
