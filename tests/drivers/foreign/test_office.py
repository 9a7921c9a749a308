"""Questions a foreign broker is asked; the contract suites ask most of them."""

import asyncio

import pytest

from penstock.drivers.foreign.carrier import TopicRow
from penstock.drivers.foreign.office import Office
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import (
    InvalidArgument,
    PartitionsOnlyGrow,
    SubscriptionConflict,
    TopicInUse,
    Unsupported,
)
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from tests.drivers.foreign.memory_carrier import MemoryCarrier, Shop
from tests.drivers.foreign.test_attachment import client_of


class Wide(MemoryCarrier):
    """Its topics have three partitions."""

    async def find_topic(self, topic: str) -> TopicRow | None:
        found = await super().find_topic(topic)
        return None if found is None else found._replace(partitions=3)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (q.Explain(topic="orders"), "explain"),
        (q.ConfirmTime(), "confirm_time"),
        (q.OpenReader("orders", "r", "o", None), "readers"),
    ],
)
def test_what_no_foreign_broker_can_tell_is_refused_by_name(request_: q.Request, said: str) -> None:
    with pytest.raises(Unsupported, match=f"shop: URLs cannot do this: {said}"):
        asyncio.run(Office(MemoryCarrier()).answer(request_))


def test_a_dead_letter_topic_is_made_as_one() -> None:
    async def scenario() -> None:
        carrier = MemoryCarrier()
        office = Office(carrier)
        await office.ensure_topic("orders.dead.billing")
        policy = carrier.shop.topics["orders.dead.billing"].policy
        assert policy == TopicPolicy(retain_s=None, dead_of="orders\nbilling")
        assert office.partitions("orders.dead.billing") == 1

    asyncio.run(scenario())


def test_changes_that_make_no_sense_are_refused() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            await client.create_subscription("orders", "billing")
            with pytest.raises(PartitionsOnlyGrow):
                await Office(Wide(shop)).answer(q.AlterTopic("orders", {}, 2))
            office = client._opened()
            with pytest.raises(InvalidArgument, match="wrong setting"):
                await office.ask(q.AlterSubscription("orders", "billing", {"lease_s": "long"}))
            with pytest.raises(SubscriptionConflict, match="qos"):
                await office.ask(q.AlterSubscription("orders", "billing", {"qos": 0}))
            with pytest.raises(Unsupported, match="pattern"):
                await client.create_subscription("orders/+", "billing")
            with pytest.raises(Unsupported, match="qos 2"):
                await client.create_subscription("orders", "exact", qos=2)
            async with client.subscribe("orders", "billing"):
                with pytest.raises(TopicInUse, match="billing"):
                    await client.delete_topic("orders")

    asyncio.run(scenario())


def test_a_multicast_and_another_kind_never_share_a_name() -> None:
    async def scenario() -> None:
        carrier = MemoryCarrier()
        office = Office(carrier)
        multicast = SubscriptionPolicy(kind=Kind.MULTICAST)
        await office.answer(q.CreateSubscription("news", "screens", multicast, None))
        assert await carrier.list_subscriptions("news") == [], "it is its members only"
        await carrier.put_subscription("news", "screens@hall", multicast, "latest")
        with pytest.raises(SubscriptionConflict, match="multicast"):
            await office.answer(q.CreateSubscription("news", "screens", SubscriptionPolicy(), None))
        await office.answer(q.CreateSubscription("news", "other", SubscriptionPolicy(), None))
        with pytest.raises(SubscriptionConflict, match="shared"):
            await office.answer(q.CreateSubscription("news", "other", multicast, None))

    asyncio.run(scenario())


def test_the_subscriptions_of_a_pattern_are_those_of_the_topics_it_matches() -> None:
    async def scenario() -> None:
        shop = Shop()
        async with client_of(shop) as client:
            for topic in ("a/x", "a/y", "b/x"):
                await client.create_subscription(topic, "billing", lease_s=5)
            rows = await client.subscriptions("a/+")
            assert [(row["topic"], row["subscription"]) for row in rows] == [
                ("a/x", "billing"),
                ("a/y", "billing"),
            ]
            await client.subscribe("a/+", "billing", lease_s=7)
            found = {r["topic"]: r["policy"]["lease_s"] for r in await client.subscriptions()}
            assert found == {"a/x": 7.0, "a/y": 7.0, "b/x": 5.0}

    asyncio.run(scenario())
