"""Looking takes nothing, over all partitions; dead letters are removed one by one."""

import asyncio

import pytest
from confluent_kafka import Producer

import penstock
from penstock.drivers.kafka.look import Span, place_of
from penstock.vocabulary.errors import InvalidArgument
from tests.contracts.suites.world import several, unique, until
from tests.drivers.kafka.rig import carrier_of, client_of, run
from tests.servers.kafka import Cluster


def test_a_position_is_partition_and_offset() -> None:
    assert place_of("2:17") == (2, 17)
    for wrong in ("17", "a:1", "1:", "1:-2"):
        with pytest.raises(InvalidArgument, match="position"):
            place_of(wrong)


def test_messages_of_all_partitions_come_by_their_time(kafka_server: Cluster) -> None:
    topic = unique("look")

    async def scenario() -> None:
        async with client_of(kafka_server, "topics=3:1") as client:
            for number in range(12):
                await client.publish(topic, b"%d" % number, key=str(number))
            found = await client.peek(topic)
            assert sorted(int(m.body or b"") for m in found) == list(range(12))
            assert len({m.partition for m in found}) > 1
            assert len(await client.peek(topic, 5)) == 5
            last = found[0]
            after = await client.peek(topic, after=last.position)
            assert all(m.partition == last.partition for m in after)
            assert last.position not in {m.position for m in after}

    run(scenario())


def test_one_partition_is_looked_at_page_by_page(kafka_server: Cluster) -> None:
    topic = unique("part")

    async def scenario() -> None:
        async with client_of(kafka_server, "topics=3:1") as client:
            for number in range(30):
                await client.publish(topic, b"%d" % number, key=str(number))
            found: list[int] = []
            for partition in range(3):
                after = 0
                while page := await client.peek(topic, 4, partition=partition, after=after):
                    assert {m.partition for m in page} == {partition}
                    found += [int(m.body or b"") for m in page]
                    assert page[-1].offset is not None
                    after = page[-1].offset + 1
            assert sorted(found) == list(range(30))
            first, *rest = await client.peek(topic, partition=2)
            after_it = await client.peek(topic, partition=2, after=first.position)
            assert [m.position for m in after_it] == [m.position for m in rest]

    run(scenario())


def test_a_span_is_read_to_its_end_and_no_further(kafka_server: Cluster) -> None:
    topic = unique("span")

    async def scenario() -> None:
        carrier = await carrier_of(kafka_server)
        try:
            async with client_of(kafka_server) as client:
                await client.publish_many(topic, [b"%d" % n for n in range(20)])
            read = carrier.looker.read
            found = await read(topic, {0: Span(3, 7)}, 100, 1 << 20)
            assert [m.value() for m in found[0]] == [b"3", b"4", b"5", b"6"]
            assert len((await read(topic, {0: Span(0, 20)}, 2, 1 << 20))[0]) == 2
            assert len((await read(topic, {0: Span(0, 20)}, 100, 1))[0]) == 1
            assert await read(topic, {0: Span(5, 5)}, 100, 1) == {}
        finally:
            await carrier.close()

    run(scenario())


def test_removed_dead_letters_leave_no_count(kafka_server: Cluster) -> None:
    topic = unique("dead")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            await client.publish_many(
                topic, [penstock.Message(body=b"%d" % n, key="k") for n in range(3)]
            )
            async with client.subscribe(topic, "s") as deliveries:
                for message in await several(deliveries, 3):
                    message.reject("bad")
                await deliveries.flush()

            async def dead() -> int:
                [row] = await client.subscriptions(topic)
                return int(row["dead"])

            async def are_three() -> bool:
                return await dead() == 3

            await until(are_three, "three dead letters")
            assert await client.purge_dead(topic, "s", limit=1) == 1
            assert await dead() == 2
            assert [m.key for m in await client.dead_letters(topic, "s")] == ["k", "k"]
            assert await client.purge_dead(topic, "s") == 2
            assert await dead() == 0
            assert (await client.describe_topic(f"{topic}.dead.s"))["messages"] == 0

    run(scenario())


def test_what_lies_behind_an_open_transaction_is_waited_for(kafka_server: Cluster) -> None:
    topic = unique("open")

    async def scenario() -> None:
        async with client_of(kafka_server, "topics=1:1") as client:
            await client.publish(topic, b"before")
            other = Producer(
                {"bootstrap.servers": kafka_server.bootstrap, "transactional.id": topic}
            )
            await asyncio.to_thread(other.init_transactions)
            other.begin_transaction()
            other.produce(topic, b"never")
            await asyncio.to_thread(other.flush)
            await client.publish(topic, b"after")
            assert [m.body for m in await client.peek(topic)] == [b"before"]
            looking = asyncio.create_task(client.peek(topic, partition=0))
            assert not (await asyncio.wait([looking], timeout=0.5))[0]
            await asyncio.to_thread(other.abort_transaction)
            assert [m.body for m in await looking] == [b"before", b"after"]

    run(scenario())
