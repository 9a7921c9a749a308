"""Topics and subscriptions as things to look at and to change, whatever the URL."""

import asyncio

import pytest

import penstock
from penstock.vocabulary.errors import (
    Closed,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicExists,
    UnknownSubscription,
    UnknownTopic,
)
from penstock.vocabulary.policy import Retry
from tests.contracts.suites.world import World, first, given, nothing, scenario, several, until


class AdministrationSuite:
    @scenario
    async def test_topics_are_created_described_changed_and_deleted(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.create_topic(topic, max_age_s=3600)
            await client.create_topic(topic, max_age_s=3600)
            with pytest.raises(TopicExists):
                await client.create_topic(topic, max_age_s=60)
            await client.alter_topic(topic, max_age_s=7200)
            described = await client.describe_topic(topic)
            assert (described["partitions"], described["policy"]["max_age_s"]) == (1, 7200)
            assert topic in [row["topic"] for row in await client.topics()]
            await client.publish(topic, b"x", **given(client, "one"))
            assert (await client.describe_topic(topic))["messages"] == 1
            await client.delete_topic(topic)
            assert topic not in [row["topic"] for row in await client.topics()]
            with pytest.raises(UnknownTopic):
                await client.describe_topic(topic)
            again = await client.publish(topic, b"y", **given(client, "one"))
            assert not again.duplicate
            assert [m.body for m in await client.peek(topic)] == [b"y"]

    @scenario
    async def test_subscriptions_are_created_changed_and_deleted(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.create_subscription(topic, "billing", lease_s=5)
            await client.create_subscription(topic, "billing", lease_s=5)
            with pytest.raises(SubscriptionConflict):
                await client.create_subscription(topic, "billing", lease_s=6)
            with pytest.raises(SubscriptionConflict, match="kind"):
                await client.subscribe(topic, "billing", kind="multicast", consumer="x")
            await client.alter_subscription(topic, "billing", retry=Retry(max_attempts=2))
            [row] = await client.subscriptions(topic)
            assert row["policy"] == {"lease_s": 5.0, "retry": {"max_attempts": 2}}
            async with client.subscribe(topic, "billing", lease_s=7):
                [row] = await client.subscriptions(topic)
                assert row["policy"]["lease_s"] == 7.0

                async def is_seen() -> bool:
                    [row] = await client.subscriptions(topic)
                    return len(row["consumers"]) == 1

                await until(is_seen, "the consumer")
                with pytest.raises(SubscriptionInUse):
                    await client.delete_subscription(topic, "billing")
            await client.delete_subscription(topic, "billing")
            assert await client.subscriptions(topic) == []
            with pytest.raises(UnknownSubscription):
                await client.alter_subscription(topic, "billing", lease_s=1)

    @scenario
    async def test_a_subscription_can_be_moved(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.create_topic(topic, replay_s=3600)
            sent = await client.publish_many(topic, [b"0", b"1", b"2"])
            async with client.subscribe(topic, "billing") as deliveries:
                for message in await several(deliveries, 3):
                    message.ack()
            await client.seek(topic, "billing", sent[1].position)
            async with client.subscribe(topic, "billing") as deliveries:
                got = await several(deliveries, 2)
                assert [(m.body, m.attempt) for m in got] == [(b"1", 1), (b"2", 1)]
            await client.seek(topic, "billing", "latest")
            async with client.subscribe(topic, "billing") as deliveries:
                await nothing(deliveries)
            await client.seek(topic, "billing", "earliest")
            async with client.subscribe(topic, "billing") as deliveries:
                assert (await first(deliveries)).body == b"0"

    @scenario
    async def test_looking_at_a_topic_takes_nothing(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish_many(topic, [b"0", b"1", b"2"])
            assert [m.body for m in await client.peek(topic, 2)] == [b"0", b"1"]
            assert len(await client.peek(topic)) == 3
            async with client.subscribe(topic, "billing") as deliveries:
                assert len(await several(deliveries, 3)) == 3

    @scenario
    async def test_the_broker_is_described_in_numbers(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.create_subscription(topic, "billing")
            numbers = await client.stats()
            assert numbers["topics"] >= 1
            assert numbers["subscriptions"] >= 1
            assert numbers["health"]["status"] == "ok"

    @scenario
    async def test_a_closed_client_refuses_everything(self, world: World, topic: str) -> None:
        client = world.client()
        await client.open()
        deliveries = await client.subscribe(topic, "billing")
        await client.close()
        await client.close()
        for call in (client.publish(topic, b"x"), client.topics(), client.open()):
            with pytest.raises(Closed, match="connect again"):
                await call
        with pytest.raises(Closed):
            await deliveries.receive()
        await deliveries.close()

    @scenario
    async def test_the_blocking_twin_works(self, world: World, topic: str) -> None:
        def work() -> bytes | None:
            with penstock.connect_blocking(world.url) as client:
                client.publish(topic, b"hello")
                with client.subscribe(topic, "billing") as deliveries:
                    message = deliveries.receive(timeout_s=30)
                    assert message is not None
                    message.ack()
                    return message.body

        assert await asyncio.to_thread(work) == b"hello"
