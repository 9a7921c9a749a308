"""Readers over many partitions, and of two owners only one."""

import asyncio

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.drivers.kafka.names import READER, kafka_name
from penstock.drivers.kafka.readers import Note, _shortened
from penstock.vocabulary.errors import ReaderFenced, UnknownSubscription
from tests.contracts.suites.world import unique
from tests.drivers.kafka.rig import client_of, run
from tests.servers.kafka import Cluster

OPEN_S = 2.0


def test_every_partition_is_planned_read_and_committed(kafka_server: Cluster) -> None:
    topic = unique("read")

    async def scenario() -> None:
        async with client_of(kafka_server, "topics=3:1") as client:
            for number in range(30):
                await client.publish(topic, b"%d" % number, key=str(number))
            reader = await client.reader(topic, "tables", owner="run-1")
            found: list[int] = []
            while ranges := await reader.plan(7):
                assert sum(end - start for _, start, end in ranges) <= 7
                for part in ranges:
                    found += [int(m.body or b"") async for m in reader.read(*part)]
                await reader.commit({partition: end for partition, _, end in ranges})
            assert sorted(found) == list(range(30))
            await client.alter_topic(topic, partitions=4)
            assert len(await reader.progress()) == 4
            for number in range(40):
                await client.publish(topic, bytes(200), key=f"more{number}")
            more = await reader.plan(max_bytes=2_000)
            assert more
            assert sum(end - start for _, start, end in more) < 40
            await reader.release(force=True)
            with pytest.raises(UnknownSubscription):
                await reader.plan()

    run(scenario())


def test_of_two_owners_that_write_at_once_one_is_fenced(kafka_server: Cluster) -> None:
    topic = unique("fence")

    async def scenario() -> None:
        async with client_of(kafka_server) as one, client_of(kafka_server) as two:
            await one.publish_many(topic, [b"x"] * 10)
            old = await one.reader(topic, "tables", owner="old")
            assert await old.plan(2)
            new, _ = await asyncio.gather(
                two.reader(topic, "tables", owner="new"), _ignoring_fences(old.plan(2))
            )
            planned = await new.planned()
            for call in (old.plan(2), old.commit({0: 1})):
                with pytest.raises(ReaderFenced):
                    await call
            assert await new.planned() == planned
            await new.commit({0: planned[0].end})
            assert await new.progress() == {0: planned[0].end}

    run(scenario())


def test_a_transaction_left_open_on_the_progress_is_waited_for(kafka_server: Cluster) -> None:
    topic = unique("left")

    async def scenario() -> None:
        async with client_of(kafka_server, "topics=1:1") as client:
            await client.publish(topic, b"x")
            reader = await client.reader(topic, "tables", owner="run-1")
            (part,) = await reader.plan()
            killed = Producer(
                {"bootstrap.servers": kafka_server.bootstrap, "transactional.id": topic}
            )
            group = Consumer(
                {"bootstrap.servers": kafka_server.bootstrap, "group.id": f"{READER}tables"}
            )
            killed.init_transactions(30.0)
            killed.begin_transaction()
            place = TopicPartition(kafka_name(topic), 0, part.end)
            killed.send_offsets_to_transaction([place], group.consumer_group_metadata(), 30.0)
            asked = asyncio.ensure_future(reader.progress())
            await asyncio.sleep(OPEN_S)
            assert not asked.done(), "how far the reader is depends on the transaction"
            killed.abort_transaction(30.0)
            group.close()
            assert await asked == {0: 0}

    run(scenario())


async def _ignoring_fences(work: object) -> None:
    try:
        await work  # type: ignore[misc]
    except ReaderFenced:
        return


def test_the_oldest_owners_are_forgotten_before_a_note_gets_too_long() -> None:
    note = Note(owner="first", planned=[0] * 50)
    for number in range(1_000):
        note = _shortened(note, f"owner-{number}")
    assert 100 < len(note.retired) < 1_000
