"""Wrong settings are refused before anything is asked; the rest is in the driver contract."""

import asyncio
from typing import Any

import pytest

from penstock.client.administration import check_limit, made
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import (
    AckRefused,
    InvalidArgument,
    InvalidName,
    PositionNotHeld,
    UnknownSubscription,
)
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
        (TopicPolicy, {"durability": "sync"}, "sync.*durability is one of 'memory', 'written'"),
        (SubscriptionPolicy, {"kind": "share"}, "kind is one of 'shared', 'multicast'"),
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
    (
        "create_subscription",
        ("orders", "s"),
        {"kind": Kind.MULTICAST, "start": "latest"},
        InvalidArgument,
        "no start of its own",
    ),
    ("create_subscription", ("a/#/b", "s"), {}, InvalidName, "must be the last level"),
    ("create_subscription", ("a/#", "s"), {"start": "0:1"}, InvalidArgument, "many topics"),
    ("create_subscription", ("orders", "s"), {"qos": 3}, InvalidArgument, "qos must be"),
    ("create_subscription", ("orders", "s"), {"lease_s": 0}, InvalidArgument, "lease_s"),
    ("create_subscription", ("orders", "s"), {"start": "soon"}, InvalidArgument, "soon"),
    ("peek", ("orders",), {"limit": 0}, InvalidArgument, "limit"),
    ("peek", ("orders",), {"partition": 7}, InvalidArgument, "partition"),
    ("create_topic", ("t",), {"keep_last": -1}, InvalidArgument, "keep_last"),
    ("alter_topic", ("orders",), {"max_bytes": 0}, InvalidArgument, "max_bytes"),
    ("seek", ("orders", "billing", "soon"), {}, InvalidArgument, "soon"),
    ("seek", ("orders", "billing", "0:9"), {}, PositionNotHeld, "the end is 0:0"),
    ("seek", ("orders", "biling", "latest"), {}, UnknownSubscription, "biling"),
    ("redrive", ("orders", "billing"), {"rate": 0}, InvalidArgument, "rate"),
    ("alter_topic", ("orders",), {"partitions": "2"}, InvalidArgument, "whole number"),
    ("alter_topic", ("orders",), {"partitions": True}, InvalidArgument, "whole number"),
    ("alter_topic", ("orders",), {"partitions": 0}, InvalidArgument, "partitions"),
    ("explain", ("orders",), {"position": 17}, InvalidArgument, "position must be text"),
    ("explain", ("orders",), {"position": "17"}, InvalidArgument, "position"),
    ("explain", ("orders",), {"id": "a", "key": "b"}, InvalidArgument, "not by several"),
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


def test_a_seek_reaches_a_consumer_that_is_in_the_middle() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_topic("orders", replay_s=3600)
            await client.publish_many("orders", [str(number) for number in range(10)])
            deliveries = await client.subscribe("orders", "billing")
            first = [await deliveries.receive(5) for _ in range(3)]
            assert [message and message.body for message in first] == [b"0", b"1", b"2"]
            assert first[0] is not None
            first[0].ack()
            await deliveries.flush()
            await client.seek("orders", "billing", "0:8")
            later = [await deliveries.receive(5) for _ in range(2)]
            assert [message and message.body for message in later] == [b"8", b"9"]
            assert await deliveries.receive(0.01) is None, "what waited here is void"
            assert first[1] is not None
            first[1].ack()
            with pytest.raises(AckRefused, match="moved by a seek"):
                await deliveries.flush()
            await client.seek("orders", "billing", "earliest")
            again = [await deliveries.receive(5) for _ in range(10)]
            assert {message.attempt for message in again if message} == {1}
            for message in again:
                assert message is not None
                message.ack()
            await deliveries.close()
            (row,) = await client.subscriptions("orders")
            assert (row["attached"], row["acked"], row["unexplained"]) == (10, 10, 0)

    asyncio.run(scenario())


def test_a_clock_that_jumped_is_believed_when_it_is_confirmed() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_topic("orders", retain_s=60)
            await client.publish("orders", b"x")
            broker.clock.jump(2 * 3600)
            broker.advance(1)
            assert (await client.stats())["time"]["is_paused"]
            assert len(await client.peek("orders")) == 1
            await client.confirm_time()
            broker.advance(1)
            assert not (await client.stats())["time"]["is_paused"]
            assert await client.peek("orders") == []

    asyncio.run(scenario())


def test_a_stuck_message_is_explained() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish("orders", b"0", id="a", key=b"\xff")
            async with client.subscribe("orders", "billing", credit=1, consumer="w1") as deliveries:
                message = await deliveries.receive(timeout_s=5)
                assert message is not None
                found = await client.explain("orders", id="a")
                assert (found["reason"], found["consumer"]) == ("leased", "w1")
                message.nack(delay_s=60, reason="not now")
                await deliveries.flush()
                found = await client.explain("orders", subscription="billing", key=b"\xff")
                assert (found["reason"], found["last_reason"]) == ("backing-off", "not now")
                broker.advance(61)
            found = await client.explain("orders")
            assert (found["reason"], found["ahead"]) == ("no-consumer", 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("after", [None, -1, True, 1.5, 1 << 70, float("nan")])
def test_peeking_begins_at_an_offset(after: Any) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish("orders", b"x")
            with pytest.raises(InvalidArgument, match="after must be an offset"):
                await client.peek("orders", after=after)
            assert len(await client.peek("orders", after=0)) == 1
            wrong: Any = None
            for look in (client.peek, client.topic_log):
                with pytest.raises(InvalidArgument, match="limit must be"):
                    await look("orders", wrong)

    asyncio.run(scenario())


@pytest.mark.parametrize("place", [True, float("nan"), float("inf"), -1, {}])
def test_what_is_no_place_in_a_topic_is_refused_by_name(place: Any) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_subscription("orders", "s")
            with pytest.raises(InvalidArgument, match=r"to .* is not 'earliest'"):
                await client.seek("orders", "s", place)
            with pytest.raises(InvalidArgument, match=r"start .* is not 'earliest'"):
                await client.create_subscription("orders", "other", start=place)
            with pytest.raises(InvalidArgument, match=r"start .* is not 'earliest'"):
                await client.reader("orders", "reader", owner="me", start=place)

    asyncio.run(scenario())
