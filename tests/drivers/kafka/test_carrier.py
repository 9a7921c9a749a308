"""What is special about Kafka, on the real server; the contract suite does the rest."""

import asyncio
import logging

import pytest

import penstock
from penstock.vocabulary.errors import InvalidName, SubscriptionInUse, Unsupported
from penstock.vocabulary.message import Durability
from tests.contracts.suites.world import first, nothing, several, unique, until
from tests.drivers.kafka.rig import client_of, consume, produce, run
from tests.servers.kafka import Cluster


def test_keys_choose_partitions_as_in_every_other_program(kafka_server: Cluster) -> None:
    topic = unique("keys")

    async def scenario() -> list[int]:
        async with client_of(kafka_server, "topics=5:1") as client:
            one = [await client.publish(topic, b"x", key=f"k{n}") for n in range(10)]
            many = await client.publish_many(
                topic, [penstock.Message(body=b"x", key=f"k{n}") for n in range(10)]
            )
            assert [r.partition for r in one] == [r.partition for r in many]
            assert all(r.position == f"{r.partition}:{r.offset}" for r in one)
            assert (await client.describe_topic(topic))["partitions"] == 5
            return [receipt.partition for receipt in one]

    ours = run(scenario())
    assert ours == produce(kafka_server, topic, *({"key": f"k{n}"} for n in range(10)))
    assert len(set(ours)) > 1


def test_other_programs_see_plain_messages_and_we_see_theirs(kafka_server: Cluster) -> None:
    topic = unique("theirs")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            await client.publish(topic, b"ours", key="k", headers={"a": "b"})
            [seen] = consume(kafka_server, topic, 1)
            assert (seen.value(), seen.key()) == (b"ours", b"k")
            assert ("a", b"b") in seen.headers()
            produce(kafka_server, topic, {"value": b"theirs", "headers": [("h", b"\xff")]})
            async with client.subscribe(topic, "billing") as deliveries:
                got = await several(deliveries, 2)
                assert [(m.body, m.id) for m in got][1] == (b"theirs", "0:1")
                assert got[1].headers == {"h": "base64:/w=="}

    run(scenario())


def test_a_position_moves_its_own_partition_only(kafka_server: Cluster) -> None:
    topic = unique("moved")

    async def scenario() -> None:
        async with client_of(kafka_server, "topics=2:1") as client:
            sent = [await client.publish(topic, str(n), key=f"k{n}") for n in range(12)]
            assert {receipt.partition for receipt in sent} == {0, 1}
            async with client.subscribe(topic, "billing") as deliveries:
                for message in await several(deliveries, 12):
                    message.ack()
            await client.seek(topic, "billing", "1:1")
            again = [n for n, r in enumerate(sent) if r.partition == 1 and (r.offset or 0) >= 1]
            async with client.subscribe(topic, "billing") as deliveries:
                got = await several(deliveries, len(again))
                assert [int(m.body or b"") for m in got] == again
                await nothing(deliveries)

    run(scenario())


def test_too_few_brokers_for_the_copies_are_named(kafka_server: Cluster) -> None:
    async def scenario() -> None:
        async with client_of(kafka_server, "acks=all") as client:
            with pytest.raises(Unsupported, match=r"2 copies.*1 broker.*\?topics=3:1"):
                await client.publish(unique("safe"), b"x")

    run(scenario())


def test_startup_topics_are_made_once(kafka_server: Cluster) -> None:
    name = unique("monitoring")

    async def scenario() -> None:
        for _ in range(2):
            async with client_of(kafka_server, f"startup={name}.pms:3:1,{name}:a:2:1") as client:
                assert (await client.describe_topic(f"{name}.pms"))["partitions"] == 3
                assert (await client.describe_topic(f"{name}:a"))["partitions"] == 2

    run(scenario())


@pytest.mark.parametrize(
    ("acks", "level"), [("leader", Durability.WRITTEN), ("none", Durability.MEMORY)]
)
def test_what_a_confirmation_means(kafka_server: Cluster, acks: str, level: Durability) -> None:
    async def scenario() -> None:
        topic = unique("acks")
        async with client_of(kafka_server, f"topics=1:1&acks={acks}") as client:
            receipt = await client.publish(topic, b"x")
            assert receipt.durability is level is client.capabilities.durability

            async def is_stored() -> bool:
                return [m.body for m in await client.peek(topic)] == [b"x"]

            await until(is_stored, "the message")

    run(scenario())


def test_names_that_kafka_takes_for_the_same_are_refused(kafka_server: Cluster) -> None:
    async def scenario() -> None:
        name = unique("a")
        async with client_of(kafka_server) as client:
            await client.create_topic(f"{name}.b")
            with pytest.raises(InvalidName, match="same letter"):
                await client.create_topic(f"{name}_b")
            with pytest.raises(InvalidName, match="Kafka"):
                await client.create_topic("x" * 250)

    run(scenario())


def test_one_group_serves_many_topics(kafka_server: Cluster) -> None:
    one, two, group = unique("one"), unique("two"), unique("billing")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            await client.publish(one, b"1")
            async with client.subscribe(one, group) as deliveries:
                assert (await first(deliveries)).body == b"1"
                await client.publish(two, b"2")
                # The group has a member, which knows nothing of the other topic.
                await client.create_subscription(two, group)
                async with client.subscribe(two, group) as others:
                    assert (await first(others)).body == b"2"
                with pytest.raises(SubscriptionInUse, match="close them"):
                    await client.seek(one, group, "earliest")
                with pytest.raises(SubscriptionInUse, match="close them"):
                    await client.alter_subscription(one, group, lease_s=1)
            await client.delete_subscription(two, group)
            assert await client.subscriptions(two) == []
            [row] = await client.subscriptions(one)
            assert (row["subscription"], row["leased"]) == (group, 1)
            every = await client.subscriptions()
            assert {(r["topic"], r["subscription"]) for r in every} >= {(one, group)}

    run(scenario())


def test_more_consumers_than_partitions_are_warned(
    kafka_server: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = unique("few")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            await client.publish_many(topic, [b"1", b"2"])
            async with client.subscribe(topic, "billing") as one:
                (await first(one)).ack()
                with caplog.at_level(logging.WARNING, "penstock.drivers"):
                    two = await client.subscribe(topic, "billing")

                    async def is_warned() -> bool:
                        return "more consumers than the topic has partitions" in caplog.text

                    await until(is_warned, "the warning")
                message = await first(one)
                message.ack()
            await client.publish(topic, b"3")
            assert (await first(two)).body == b"3", "it takes over when the other one leaves"
            await two.close()

    run(scenario())


def test_what_kafka_cannot_keep_is_refused(kafka_server: Cluster) -> None:
    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            with pytest.raises(Unsupported, match="dead_bytes_max"):
                await client.create_subscription(unique("t"), "s", dead_bytes_max=5)
            with pytest.raises(InvalidName, match=r"penstock\."):
                await client.create_subscription(unique("t"), "penstock.x")

    run(scenario())


def test_partitions_are_added_while_consumers_live(kafka_server: Cluster) -> None:
    topic = unique("grow")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            await client.publish(topic, b"0")
            await client.create_subscription(topic, "billing")
            await client.alter_topic(topic, partitions=3)
            assert (await client.describe_topic(topic))["partitions"] == 3

            async def spread() -> bool:
                receipts = [await client.publish(topic, b"x", key=str(n)) for n in range(9)]
                return len({receipt.partition for receipt in receipts}) == 3

            await until(spread, "messages in every partition")
            async with client.subscribe(topic, "billing") as deliveries:
                assert len(await asyncio.wait_for(several(deliveries, 10), 30)) == 10

    run(scenario())
