"""Wrong settings are refused before anything is asked; the rest is in the driver contract."""

import asyncio
from typing import Any

import pytest

from penstock.client.administration import check_limit, made
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import InvalidArgument, InvalidName, Unsupported
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy


def test_a_policy_is_made_from_plain_values() -> None:
    assert made(TopicPolicy, {"retain_s": 5}) == TopicPolicy(retain_s=5)
    retry = Retry(max_attempts=None)
    assert made(SubscriptionPolicy, {"kind": "shared", "retry": retry}).retry == retry


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        (TopicPolicy, {"retan_s": 5}, "no setting 'retan_s'; known: durability, retain_s"),
        (TopicPolicy, {"retain_s": "long"}, r"\$\.retain_s"),
        (TopicPolicy, {"durability": "sync"}, "sync"),
        (SubscriptionPolicy, {"retry": object()}, "wrong setting"),
    ],
)
def test_a_wrong_setting_is_named(kind: Any, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        made(kind, fields)


@pytest.mark.parametrize("limit", [0, -1, 1.5, "5", True])
def test_a_limit_is_a_number_of_messages(limit: Any) -> None:
    with pytest.raises(InvalidArgument, match="limit"):
        check_limit(limit)


WRONG_CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ("create_topic", ("a b",), {}, InvalidName, "space"),
    ("create_topic", ("",), {}, InvalidName, "non-empty"),
    ("create_topic", ("t", "2"), {}, InvalidArgument, "partitions"),
    ("create_topic", ("t", 0), {}, InvalidArgument, "partitions"),
    ("create_topic", ("t",), {"retain_s": -1}, InvalidArgument, "retain_s"),
    ("create_topic", ("t",), {"durability": "memory"}, InvalidArgument, "durability"),
    ("alter_topic", ("orders",), {"colour": 1}, InvalidArgument, "colour"),
    ("create_subscription", ("orders", ""), {}, InvalidName, "subscription"),
    ("create_subscription", ("orders", "s"), {"kind": "queue"}, InvalidArgument, "queue"),
    ("create_subscription", ("orders", "s"), {"kind": Kind.MULTICAST}, Unsupported, "multicast"),
    ("create_subscription", ("orders", "s"), {"qos": 3}, InvalidArgument, "qos must be"),
    ("create_subscription", ("orders", "s"), {"lease_s": 0}, InvalidArgument, "lease_s"),
    ("create_subscription", ("orders", "s"), {"start": "soon"}, InvalidArgument, "soon"),
    ("peek", ("orders",), {"limit": 0}, InvalidArgument, "limit"),
    ("peek", ("orders",), {"partition": 7}, InvalidArgument, "partition"),
    ("redrive", ("orders", "billing"), {"rate": 0}, InvalidArgument, "rate"),
]


@pytest.mark.parametrize(("name", "arguments", "options", "error", "text"), WRONG_CALLS)
def test_a_wrong_call_is_refused(
    name: str, arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception],
    text: str,
) -> None:  # fmt: skip
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_subscription("orders", "billing")
            with pytest.raises(error, match=text):
                await getattr(client, name)(*arguments, **options)

    asyncio.run(scenario())


def test_one_partition_can_be_looked_at() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_topic("orders", partitions=2)
            for number in range(4):
                await client.publish("orders", str(number))
            for partition in range(2):
                found = await client.peek("orders", partition=partition)
                assert {message.partition for message in found} == {partition}
                assert len(found) == 2

    asyncio.run(scenario())
