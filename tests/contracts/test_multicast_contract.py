"""What `file:` and `memory:` promise about multicasts and patterns, told through the client."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import Client, connect
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import InvalidName, SubscriptionInUse
from tests.contracts.driver_world import bodies, first, make, receive_all

DAY_S = 24 * 3600


@pytest.fixture(params=["file", "memory", "remote"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryBroker]:
    with make(request.param, tmp_path / "store") as made:
        yield made


async def row(client: Client, name: str = "app") -> dict[str, Any]:
    return next(r for r in await client.subscriptions("news") if r["subscription"] == name)


def test_every_consumer_gets_every_message_and_a_stalled_one_slows_nobody(
    broker: MemoryBroker,
) -> None:
    async def scenario() -> None:
        async with (
            broker.client() as client,
            client.subscribe("news", "app", kind="multicast", consumer="left") as left,
            client.subscribe("news", "app", kind="multicast", consumer="slow", credit=1) as slow,
            client.subscribe("news", "app", kind="multicast") as unnamed,
        ):
            await client.publish_many("news", [b"%d" % number for number in range(100)])
            wanted = [b"%d" % number for number in range(100)]
            assert await bodies(left) == wanted
            assert await bodies(unnamed) == wanted
            assert (await first(slow)).body == b"0"
            await left.flush()
            assert (await row(client, "app@left"))["acked"] == 100
            assert (await row(client, "app@slow"))["waiting"] == 99

    asyncio.run(scenario())


def test_a_name_the_caller_gave_is_remembered_and_a_made_up_one_is_not(
    broker: MemoryBroker,
) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            for consumer in ("left", None):
                async with client.subscribe("news", "app", kind="multicast", consumer=consumer):
                    pass
            await client.publish("news", b"away")
            assert (await row(client))["members"] == ["app@left"]
            async with client.subscribe("news", "app", kind="multicast") as unnamed:
                assert await bodies(unnamed) == []
            async with client.subscribe("news", "app", kind="multicast", consumer="left") as left:
                assert await bodies(left) == [b"away"]
            broker.advance(8 * DAY_S)
            assert (await row(client))["members"] == []
            await client.delete_subscription("news", "app")

    asyncio.run(scenario())


def test_dead_letters_of_a_member_go_back_to_it_only(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with (
            broker.client() as client,
            client.subscribe("news", "app", kind="multicast", consumer="left") as left,
            client.subscribe("news", "app", kind="multicast", consumer="right") as right,
        ):
            await client.publish("news", b"1")
            (await first(left)).reject("bad")
            assert await bodies(right) == [b"1"]
            await left.flush()
            broker.settle()
            (dead,) = await client.dead_letters("news", "app@left")
            assert dead.topic == "news.dead.app@left"
            assert await client.dead_letters("news", "app@right") == []
            assert await client.redrive("news", "app@left") == 1
            assert await bodies(left) == [b"1"]
            assert await receive_all(right) == []
            with pytest.raises(SubscriptionInUse, match=r"multicast 'app' has 2 consumer"):
                await client.delete_subscription("news", "app")

    asyncio.run(scenario())


def test_settings_given_again_change_a_multicast_that_exists(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            for lease_s in (5, 6):
                async with client.subscribe(
                    "news", "app", kind="multicast", consumer="left", lease_s=lease_s
                ):
                    pass
            rows = await client.subscriptions("news")
            assert [r["policy"]["lease_s"] for r in rows] == [6, 6]
            with pytest.raises(InvalidName, match="contains '@'"):
                client.subscribe("news", "app@left")

    asyncio.run(scenario())


def test_members_and_patterns_survive_their_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        url = f"file:{tmp_path / 'store'}"
        async with (
            connect(url) as client,
            client.subscribe("news", "app", kind="multicast", consumer="left"),
            client.subscribe("sensors.>", "s"),
        ):
            pass
        async with connect(url) as client:
            await client.publish("news", b"1")
            await client.publish("sensors.a", b"2")
        async with (
            connect(url) as client,
            client.subscribe("news", "app", kind="multicast", consumer="left") as left,
            client.subscribe("sensors.>", "s") as many,
        ):
            assert (await first(left)).body == b"1"
            assert await bodies(left) == []
            message = await first(many)
            assert (message.topic, message.body) == ("sensors.a", b"2")

    asyncio.run(scenario())


def test_a_multicast_over_a_pattern_gives_everybody_everything(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            options: dict[str, Any] = {"kind": "multicast"}
            async with (
                client.subscribe("n/+", "app", consumer="left", **options) as left,
                client.subscribe("n/+", "app", **options) as unnamed,
            ):
                await client.publish("n/a", b"1")
                await client.publish("n/b", b"2")
                for deliveries in (left, unnamed):
                    found = {m.topic: m.body for m in await receive_all(deliveries)}
                    assert found == {"n/a": b"1", "n/b": b"2"}
            await client.publish("n/c", b"3")
            async with client.subscribe("n/+", "app", consumer="left", **options) as left:
                got = await receive_all(left)
                assert sorted((m.topic, m.body) for m in got) == [
                    ("n/a", b"1"), ("n/b", b"2"), ("n/c", b"3"),
                ]  # fmt: skip
                got[0].reject("no")
                for message in got[1:]:
                    message.ack()
                await left.flush()
                broker.settle()
                assert len(await client.dead_letters("n/+", "app@left")) == 1
                assert await client.redrive("n/+", "app@left") == 1
            rows = {row["subscription"]: row for row in await client.subscriptions("n/+")}
            assert rows["app"]["members"] == ["app@left"]
            await client.delete_subscription("n/+", "app")
            assert await client.subscriptions("n/+") == []

    asyncio.run(scenario())
