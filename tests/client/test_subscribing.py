"""What `subscribe` asks for: checked first, and a refusal changes nothing that is there."""

import asyncio
from typing import Any

import pytest

from penstock.client.client import Client
from penstock.client.deliveries import Deliveries
from penstock.client.following import PatternDeliveries
from penstock.client.handlers import Subscribing
from penstock.client.keyed import KeyedDeliveries
from penstock.client.keyed_following import KeyedPatternDeliveries
from penstock.client.subscribing import class_for, wish_of
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import InvalidArgument, PositionNotHeld, SubscriptionConflict
from penstock.vocabulary.policy import Retry

OPTIONS = {
    "kind": "shared", "start": None, "qos": 1, "credit": 10, "credit_bytes": 100, "consumer": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "kind", "expected"),
    [
        ("t", "shared", Deliveries),
        ("t", "key_shared", KeyedDeliveries),
        ("t/+", "multicast", PatternDeliveries),
        ("t/+", "key_shared", KeyedPatternDeliveries),
    ],
)
def test_each_kind_has_its_deliveries(topic: str, kind: str, expected: type) -> None:
    wish, settings = wish_of(Subscribing(topic, "s", {**OPTIONS, "kind": kind}), None)
    assert class_for(wish) is expected
    assert settings == {}


def test_what_was_given_is_told_apart_from_what_was_not() -> None:
    wish, settings = wish_of(Subscribing("t", "s", {**OPTIONS, "lease_s": 5}), None)
    assert settings == {"lease_s": 5}
    assert wish.policy is not None
    assert wish.policy.lease_s == 5
    assert not wish.is_named


async def policy(client: Client, topic: str) -> dict[str, Any]:
    [row] = [each for each in await client.subscriptions(topic) if each["topic"] == topic]
    found: dict[str, Any] = row["policy"]
    return found


@pytest.mark.parametrize("topic", ["t/a", "t/+"])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"kind": "key_shared"}, SubscriptionConflict),
        ({"qos": 2}, SubscriptionConflict),
        ({"start": "soon"}, InvalidArgument),
    ],
)
def test_a_refused_subscribe_leaves_a_subscription_as_it_is(
    topic: str, wrong: dict[str, Any], error: type[Exception]
) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_topic("t/a")
            await client.create_subscription(topic, "s")
            before = await policy(client, topic)
            with pytest.raises(error):
                await client.subscribe(topic, "s", lease_s=99, retry=Retry(max_attempts=1), **wrong)
            assert await policy(client, topic) == before
            async with client.subscribe(topic, "s", lease_s=99):
                assert (await policy(client, topic))["lease_s"] == 99

    asyncio.run(scenario())


def test_a_subscription_that_has_its_place_goes_on_there_wherever_it_would_start() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            for number in range(3):
                await client.publish("t", str(number))
            async with client.subscribe("t", "s", start="0:1") as deliveries:
                for _ in range(2):
                    message = await deliveries.receive(1)
                    assert message is not None
                    message.ack()
            await client.publish("t", "3")
            async with client.subscribe("t", "s", start="0:1", lease_s=7) as deliveries:
                message = await deliveries.receive(1)
                assert message is not None
                assert message.body == b"3"
            with pytest.raises(PositionNotHeld):
                await client.subscribe("t", "other", start="0:99")

    asyncio.run(scenario())
