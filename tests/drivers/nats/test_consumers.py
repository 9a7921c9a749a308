"""Consumers as subscriptions: each topic has its own, also where a stream holds several topics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.client.client import Client
from penstock.drivers.nats.consumers import (
    changed,
    durable,
    full_name,
    is_of,
    plain_name,
    subscription_row,
)
from penstock.drivers.nats.streams import NANO, Stream
from penstock.vocabulary.errors import UnknownSubscription, Unsupported
from penstock.vocabulary.policy import SubscriptionPolicy
from tests.contracts.suites.world import first, nothing, unique

OWN = Stream("orders", ("orders",), has_direct=True, has_ttl=True)
SHARED = Stream("wild", ("wild.>",), has_direct=True, has_ttl=True)


def test_no_two_subscriptions_of_a_stream_have_one_consumer() -> None:
    made = {full_name(topic, name) for topic in ("a", "a.b", "b") for name in ("s", "s.a", "s@b")}
    plain = {plain_name(name) for name in ("s", "s.a", "s@b", "a")}
    assert len(made) == 9
    assert not made & plain
    assert plain_name("billing") == "billing", "as it always was"


@pytest.mark.parametrize(
    ("config", "stream", "topic", "expected"),
    [
        ({"filter_subject": "orders"}, OWN, "orders", True),
        ({}, OWN, "orders", True),
        ({"filter_subject": "*"}, OWN, "orders", True),
        ({"filter_subject": "old"}, OWN, "orders", False),
        ({"filter_subject": "wild.a"}, SHARED, "wild.a", True),
        ({"filter_subjects": ["wild.a"]}, SHARED, "wild.a", True),
        ({"filter_subjects": ["wild.a", "wild.b"]}, SHARED, "wild.a", False),
        ({"filter_subject": "wild.b"}, SHARED, "wild.a", False),
        ({}, SHARED, "wild.a", False),
    ],
)
def test_a_consumer_is_a_topics_when_it_gets_its_messages_alone(
    config: dict[str, Any], stream: Stream, topic: str, expected: bool
) -> None:
    assert is_of(config, stream, topic) is expected


def test_another_policy_leaves_what_others_set() -> None:
    theirs = {"durable_name": "s", "max_ack_pending": 7, "metadata": {"owner": "ops"}}
    made = changed(theirs, "s", SubscriptionPolicy(lease_s=5))
    assert (made["ack_wait"], made["max_ack_pending"]) == (5 * NANO, 7)
    assert made["metadata"]["owner"] == "ops"
    assert subscription_row("t", {"config": made}).policy == SubscriptionPolicy(lease_s=5)


def test_a_member_of_a_multicast_is_forgotten_after_a_while() -> None:
    policy = SubscriptionPolicy()
    assert "inactive_threshold" in durable("c", "t", "screens@hall", policy)
    assert "inactive_threshold" not in durable("c", "t", "screens", policy)


@asynccontextmanager
async def shared(server: Server, root: str, **settings: Any) -> AsyncIterator[Client]:
    """A client, and a stream of another program that holds all subjects below a root."""
    async with penstock.connect(f"nats://{server.address}") as client:
        await client.open()
        api = client._opened().carrier.connection.api  # type: ignore[attr-defined]
        await api(f"STREAM.CREATE.{root}", name=root, subjects=[f"{root}.>"], **settings)
        yield client


async def bodies(client: Client, topic: str, count: int, **options: Any) -> list[bytes | None]:
    """What a subscription `s` of a topic gets, and acks."""
    async with client.subscribe(topic, "s", **options) as deliveries:
        found = [await first(deliveries) for _ in range(count)]
        for message in found:
            message.ack()
        await nothing(deliveries)
    return [message.body for message in found]


def test_topics_of_one_stream_have_subscriptions_of_their_own(nats_server: Server) -> None:
    root = unique("wild")
    a, b = f"{root}.a", f"{root}.b"

    async def scenario() -> None:
        async with shared(nats_server, root) as client:
            for number in range(2):  # two publishers of one client: neither hides the other
                for topic in (a, b):
                    await client.publish(topic, f"{topic[-1]}{number}")
            await client.publish(a, b"given", id="1")
            await client.publish(b, b"given", id="1")
            assert (await client.publish(b, b"again", id="1")).duplicate
            found = await asyncio.gather(bodies(client, a, 3), bodies(client, b, 3))
            assert found[0] == [b"a0", b"a1", b"given"]
            assert found[1] == [b"b0", b"b1", b"given"]
            await client.alter_subscription(b, "s", lease_s=5)
            rows = {row["topic"]: row for t in (a, b) for row in await client.subscriptions(t)}
            assert [rows[t]["subscription"] for t in (a, b)] == ["s", "s"]
            assert [rows[t]["policy"].get("lease_s") for t in (a, b)] == [None, 5]
            assert (await client.describe_topic(a))["messages"] == 3
            await client.seek(a, "s", "earliest")
            assert await bodies(client, a, 3) == [b"a0", b"a1", b"given"]
            assert await bodies(client, b, 0) == []
            await client.delete_subscription(a, "s")
            assert await client.subscriptions(a) == []
            assert len(await client.subscriptions(b)) == 1
            with pytest.raises(UnknownSubscription):
                await client.seek(a, "s", "earliest")

    asyncio.run(scenario())


def test_dead_letters_of_topics_in_one_stream_stay_apart(nats_server: Server) -> None:
    root = unique("wild")
    a, b = f"{root}.a", f"{root}.b"

    async def scenario() -> None:
        async with shared(nats_server, root) as client:
            for topic in (a, b):
                await client.publish(topic, topic)
                async with client.subscribe(topic, "s") as deliveries:
                    (await first(deliveries)).reject("no")
                    await deliveries.flush()
            for topic in (a, b):
                assert [m.body for m in await client.dead_letters(topic, "s")] == [topic.encode()]
                [row] = await client.subscriptions(topic)
                assert row["dead"] == 1
            assert await client.purge_dead(b, "s") == 1
            assert await client.redrive(a, "s") == 1
            assert await bodies(client, a, 1) == [a.encode()]
            assert await bodies(client, b, 0) == []
            for topic in (a, b):
                assert await client.dead_letters(topic, "s") == []

    asyncio.run(scenario())


def test_a_topic_among_others_is_not_deleted_with_them(nats_server: Server) -> None:
    root = unique("wild")

    async def scenario() -> None:
        async with shared(nats_server, root) as client:
            await client.publish(f"{root}.a", b"a")
            await client.publish(f"{root}.b", b"b")
            with pytest.raises(Unsupported, match=f"one of several in stream '{root}'"):
                await client.delete_topic(f"{root}.a")
            assert [m.body for m in await client.peek(f"{root}.b")] == [b"b"]

    asyncio.run(scenario())


def test_a_consumer_that_is_there_is_used_and_one_of_another_topic_is_not(
    nats_server: Server,
) -> None:
    """Stores of before, and streams that got another subject: the consumer `s` is the first's."""
    root = unique("grown")

    async def scenario() -> None:
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            await client.publish(f"{root}.a", b"a0")
            assert await bodies(client, f"{root}.a", 1) == [b"a0"]
            carrier = client._opened().carrier  # type: ignore[attr-defined]
            api, name = carrier.connection.api, await carrier.stream_of(f"{root}.a")
            config = (await api(f"STREAM.INFO.{name}"))["config"]
            config["subjects"].append(f"{root}.b")
            await api(f"STREAM.UPDATE.{name}", **config)
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            await client.publish(f"{root}.a", b"a1")
            await client.publish(f"{root}.b", b"b0")
            assert await bodies(client, f"{root}.a", 1) == [b"a1"], "it goes on where it was"
            assert await bodies(client, f"{root}.b", 1) == [b"b0"]
            listed = [row["topic"] for row in await client.topics() if root in row["topic"]]
            assert listed == [f"{root}.a", f"{root}.b"]

    asyncio.run(scenario())


def test_readers_of_topics_in_one_stream_stay_apart(nats_server: Server) -> None:
    root = unique("wild")
    a, b = f"{root}.a", f"{root}.b"

    async def scenario() -> None:
        async with shared(nats_server, root) as client:
            for number in range(3):
                await client.publish(a, f"a{number}")
            await client.publish(b, b"b0")
            for topic, expected in ((a, [b"a0", b"a1", b"a2"]), (b, [b"b0"])):
                reader = await client.reader(topic, "r", owner="x")
                got: list[bytes | None] = []
                while planned := await reader.plan(max_messages=1):
                    [(partition, start, end)] = planned
                    found = [m.body async for m in reader.read(partition, start, end)]
                    assert found, "a planned range holds a message"
                    got += found
                    await reader.commit({partition: end})
                assert got == expected

    asyncio.run(scenario())
