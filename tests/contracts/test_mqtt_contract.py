"""The contract over MQTT, on a real mosquitto."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.client.client import Client
from penstock.drivers import open_driver
from penstock.vocabulary.errors import (
    PublishFailed,
    SubscriptionConflict,
    TooLarge,
    TopicExists,
    UnknownSubscription,
    UnknownTopic,
    Unsupported,
)
from penstock.vocabulary.message import Durability
from tests.contracts.suites.publishing import AWKWARD
from tests.contracts.suites.whole import DriverSuite
from tests.contracts.suites.world import World, first, nothing, scenario, several, unique, until


@pytest.fixture
def topic() -> str:
    return unique("orders")


class Prepared(Client):
    """A client whose topics have their subscriptions before the first publish: MQTT keeps nothing
    without one."""

    before: tuple[str, ...] = ()

    async def _prepare(self, topic: str) -> None:
        if ".dead." in topic or " " in topic:
            return
        known = {row["topic"] for row in await self.topics()}
        if topic not in known or not await self.subscriptions(topic):
            for name in self.before:
                with suppress(SubscriptionConflict):
                    await self.create_subscription(topic, name)

    async def publish(self, topic: str, *values: Any, **options: Any) -> Any:
        await self._prepare(topic)
        return await super().publish(topic, *values, **options)

    async def publish_many(self, topic: str, *values: Any, **options: Any) -> Any:
        await self._prepare(topic)
        return await super().publish_many(topic, *values, **options)


class MqttWorld(World):
    def __init__(self, url: str, before: tuple[str, ...]) -> None:
        super().__init__(url)
        self._before = before

    def client(self, **options: Any) -> Client:
        made = Prepared(self.url, lambda: open_driver(self.url), **options)
        made.before = self._before
        return made


@pytest.fixture
def world(request: pytest.FixtureRequest, mosquitto: Server, tmp_path: Path) -> World:
    url = f"mqtt://{mosquitto.address}?dead=file:{tmp_path / 'dead'}"
    return MqttWorld(url, BEFORE.get(request.node.originalname, ("billing",)))


BEFORE: dict[str, tuple[str, ...]] = {
    "test_every_subscription_gets_every_message": (),
    "test_a_message_is_held_until_every_subscription_acked_it": (),
    "test_multicast_gives_every_consumer_everything": (),
    "test_a_pattern_covers_topics_that_come_later": (),
    "test_qos_is_given_or_refused_by_name": (),
    "test_deliver_at": (),
    "test_messages_are_kept_while_there_is_no_subscription": (),
}
"""Subscriptions that a test needs before its first publish; `billing` when it is not here."""


class TestMqtt(DriverSuite):
    """The common contract, and in its place what the matrix says of MQTT: what it refuses is
    refused by name, and nothing is looked at that no session holds."""

    # -- publishing ------------------------------------------------------------------------------

    @scenario
    async def test_messages_are_kept_while_there_is_no_subscription(
        self, world: World, topic: str
    ) -> None:
        assert not world.can("kept")
        async with world.client() as client:
            with pytest.raises(Unsupported, match=r"no subscription at mqtt://.* 1 of 1 messages"):
                await client.publish(topic, b"early")
            with pytest.raises(PublishFailed, match="2 of 2 messages reached nobody"):
                await client.publish_many(topic, [b"1", b"2"])
            async with client.subscribe(topic) as deliveries:
                await client.publish(topic, b"heard")
                assert (await first(deliveries)).body == b"heard"
        async with penstock.connect(f"{world.url}&unheard=true") as client:
            assert (await client.publish(topic, b"nobody")).durability is Durability.MEMORY

    @scenario
    async def test_a_receipt_says_where_the_message_is_and_how_safe(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            one = await client.publish(topic, b"0")
            two = await client.publish(topic, b"1")
            assert (two.topic, two.partition, two.offset, two.duplicate) == (topic, 0, None, False)
            assert one.position != two.position
            assert two.durability is client.capabilities.durability is Durability.MEMORY
            async with client.subscribe(topic, "billing") as deliveries:
                got = await several(deliveries, 2)
                assert [m.position for m in got] == [one.position, two.position]

    @scenario
    async def test_a_message_arrives_as_it_was_published(self, world: World, topic: str) -> None:
        async with world.client() as client:
            sent = await client.publish(topic, b"bo\x00dy", key="k", headers=AWKWARD)
            async with client.subscribe(topic, "billing") as deliveries:
                got = await first(deliveries)
                assert (got.body, got.key, got.id) == (b"bo\x00dy", "k", sent.id)
                assert got.headers == AWKWARD
                assert (got.topic, got.partition, got.attempt) == (topic, 0, 1)
                assert (got.position, got.offset) == (sent.position, None)
                assert got.published_at == pytest.approx(client._opened().wall / 1000, abs=60)
                got.ack()

    @scenario
    async def test_text_json_empty_and_absent_bodies_stay_apart(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.publish(topic, "grüße")
            await client.publish(topic, json={"n": [1, None]})
            await client.publish(topic, b"")
            await client.publish(topic, key=b"\xff\x00")
            await client.publish(topic, key="schlüssel")
            async with client.subscribe(topic, "billing") as deliveries:
                got = await several(deliveries, 5)
                bodies = ["grüße".encode(), b'{"n":[1,null]}', b"", None, None]
                assert [m.body for m in got] == bodies
                assert (got[3].key, got[4].key) == (b"\xff\x00", "schlüssel")

    @scenario
    async def test_two_topics_never_meet(self, world: World, topic: str) -> None:
        made = [f"{topic}{mark}b{rest}" for mark in (".", ":", "/") for rest in ("", "%c", "..d")]
        async with world.client() as client:
            for name in made:
                await client.publish(name, name)
            for name in made:
                async with client.subscribe(name, "billing") as deliveries:
                    message = await first(deliveries)
                    assert (message.body, message.topic) == (name.encode(), name)
                    message.ack()
                    assert await deliveries.receive(timeout_s=0.05) is None
            known = {row["topic"] for row in await client.topics()}
            assert known.issuperset(made)

    @scenario
    async def test_a_message_that_is_too_large_is_refused_and_nothing_is_stored(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            limit = client.capabilities.message_bytes_max
            await client.create_subscription(topic, "billing")
            with pytest.raises((TooLarge, PublishFailed), match="limit"):
                await client.publish(topic, bytes(limit + 1))
            with pytest.raises((TooLarge, PublishFailed), match="limit"):
                await client.publish_many(topic, [b"1", bytes(limit + 1)])
            await client.publish(topic, bytes(limit // 2))
            async with client.subscribe(topic, "billing") as deliveries:
                got = await first(deliveries)
                if got.body == b"1":
                    got = await first(deliveries)
                assert len(got.body or b"") == limit // 2

    # -- delivering ------------------------------------------------------------------------------

    @scenario
    async def test_an_ephemeral_subscription_sees_only_what_comes_later(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.publish(topic, b"before")
            async with client.subscribe(topic) as deliveries:
                await client.publish(topic, b"after")
                message = await first(deliveries)
                assert message.body == b"after"
                message.nack(delay_s=0)
                again = await first(deliveries)
                assert (again.body, again.attempt) == (b"after", 2)
                again.ack()
                await nothing(deliveries)
            assert [row["subscription"] for row in await client.subscriptions(topic)] == ["billing"]

    @scenario
    async def test_a_new_subscription_starts_where_it_is_asked_to(
        self, world: World, topic: str
    ) -> None:
        """It begins at its first moment; `earliest` brings the retained message of a topic too."""
        async with world.client() as client:
            await client.create_topic(topic, keep_last=1)
            await client.publish_many(topic, [b"0", b"1"])
            options: dict[str, Any] = {"kind": "multicast", "consumer": unique("screen")}
            async with client.subscribe(topic, "s", start="earliest", **options) as deliveries:
                message = await first(deliveries)
                assert (message.body, message.headers) == (b"1", {"mqtt-retained": "true"})
                message.ack()
                await client.publish(topic, b"2")
                message = await first(deliveries)
                assert (message.body, message.headers) == (b"2", {})
            async with client.subscribe(topic, start="earliest") as deliveries:
                assert (await first(deliveries)).body == b"2"
            async with client.subscribe(topic, start="latest") as deliveries:
                await nothing(deliveries)
            for start in (1_700_000_000.0, "0:17"):
                with pytest.raises(Unsupported, match="mqtt: URLs, which keep no history"):
                    await client.subscribe(topic, unique("s"), start=start)

    @scenario
    async def test_a_pattern_covers_topics_that_come_later(self, world: World, topic: str) -> None:
        async with world.client() as client:
            async with client.subscribe(f"{topic}/+/temp", "climate") as deliveries:
                await client.publish(f"{topic}/hall/temp", b"1")
                assert (await first(deliveries)).topic == f"{topic}/hall/temp"
                await client.publish(f"{topic}/10.0.0.1:80/temp", b"2")
                with pytest.raises(Unsupported, match="no subscription"):
                    await client.publish(f"{topic}/yard/wind", b"no")
                late = await first(deliveries)
                assert (late.topic, late.body) == (f"{topic}/10.0.0.1:80/temp", b"2")
                late.ack()
                await nothing(deliveries)
            async with client.subscribe(f"{topic}/*/temp", "climate2") as deliveries:
                await client.publish(f"{topic}/hall/temp", b"3")
                assert (await first(deliveries)).body == b"3"
            async with client.subscribe(f"{topic}/+/temp", "climate") as deliveries:
                kept = await several(deliveries, 2)  # the first, and what came meanwhile
                assert {m.body for m in kept} == {b"1", b"3"}
            with pytest.raises(Unsupported, match="only '/' separates levels"):
                await client.subscribe(f"{topic}.+", "climate")

    # -- settling --------------------------------------------------------------------------------

    @scenario
    async def test_what_was_not_begun_goes_back_at_once_and_uncounted(
        self, world: World, topic: str
    ) -> None:
        """It stays in the session, for the next consumer on this host; nobody counts attempts."""
        async with world.client() as client, world.client() as other:
            await client.publish_many(topic, [str(number) for number in range(10)])
            async with client.subscribe(topic, "billing", lease_s=60) as deliveries:
                assert (await first(deliveries)).body == b"0"
            async with other.subscribe(topic, "billing") as deliveries:
                got = await several(deliveries, 10)
                assert {int(m.body or b"") for m in got} == set(range(10))
                assert {m.attempt for m in got} == {1}

    @scenario
    async def test_qos_is_given_or_refused_by_name(self, world: World, topic: str) -> None:
        async with world.client() as client:
            for qos in (1, 2):
                await client.create_subscription(topic, f"q{qos}", qos=qos)
            async with client.subscribe(topic, "q0", qos=0) as deliveries:
                await client.publish(topic, b"x")
                assert (await first(deliveries)).body == b"x"
            for qos in (1, 2):
                for does_ack in (False, True):
                    async with client.subscribe(topic, f"q{qos}", qos=qos) as deliveries:
                        message = await first(deliveries)
                        assert message.body == b"x"
                        if does_ack:
                            message.ack()
                async with client.subscribe(topic, f"q{qos}", qos=qos) as deliveries:
                    await nothing(deliveries)

    # -- dead letters ----------------------------------------------------------------------------

    @scenario
    async def test_dead_letters_can_be_received_and_removed(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish_many(topic, [b"0", b"1", b"2"])
            async with client.subscribe(topic, "billing") as deliveries:
                for message in await several(deliveries, 3):
                    message.reject("bad")
                await deliveries.flush()
            with pytest.raises(Unsupported, match="dead letters of mqtt: URLs are in file:"):
                await client.subscribe(f"{topic}.dead.billing", "care")
            assert await client.purge_dead(topic, "billing", limit=2, dry_run=True) == 2
            assert await client.purge_dead(topic, "billing", limit=2) == 2
            [row] = await client.subscriptions(topic)
            assert row["dead"] == 1
            assert await client.purge_dead(topic, "billing") == 1
            assert await client.dead_letters(topic, "billing") == []

    @scenario
    async def test_dead_letters_of_what_does_not_exist_are_an_error(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            with pytest.raises(UnknownTopic, match=topic):
                await client.dead_letters(topic, "stock")
            await client.publish(topic, b"x")
            for call in (client.dead_letters, client.redrive, client.purge_dead):
                with pytest.raises(UnknownSubscription, match="stock"):
                    await call(topic, "stock")

    # -- administration --------------------------------------------------------------------------

    @scenario
    async def test_topics_are_created_described_changed_and_deleted(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client, world.client() as other:
            with pytest.raises(Unsupported, match="max_age_s is not available on mqtt"):
                await client.create_topic(topic, max_age_s=3600)
            with pytest.raises(Unsupported, match="keep_last=2 is not available on mqtt"):
                await client.create_topic(topic, keep_last=2)
            await client.create_topic(topic)
            with pytest.raises(TopicExists):
                await client.create_topic(topic, keep_last=1)
            await client.alter_topic(topic, keep_last=1)
            await client.publish(topic, b"retained")

            async def is_known() -> bool:
                return topic in [row["topic"] for row in await other.topics()]

            await until(is_known, "the note of the topic")
            described = await other.describe_topic(topic)
            assert (described["partitions"], described["policy"]) == (1, {"keep_last": 1})
            await client.delete_topic(topic)
            assert topic not in [row["topic"] for row in await client.topics()]
            with pytest.raises(UnknownTopic):
                await client.describe_topic(topic)
            async with client.subscribe(topic, start="earliest") as deliveries:
                await nothing(deliveries)  # what was retained is gone too

    @scenario
    async def test_a_subscription_can_be_moved(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.create_subscription(topic, "billing")
            with pytest.raises(Unsupported, match="mqtt: URLs keep no history"):
                await client.seek(topic, "billing", "earliest")

    @scenario
    async def test_looking_at_a_topic_takes_nothing(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish(topic, b"0")
            with pytest.raises(Unsupported, match="mqtt: URLs hold messages in the sessions"):
                await client.peek(topic)

    @scenario
    async def test_the_blocking_twin_works(self, world: World, topic: str) -> None:
        def work() -> bytes | None:
            with penstock.connect_blocking(world.url) as client:
                client.create_subscription(topic, "billing")
                client.publish(topic, b"hello")
                with client.subscribe(topic, "billing") as deliveries:
                    message = deliveries.receive(timeout_s=30)
                    assert message is not None
                    message.ack()
                    return message.body

        assert await asyncio.to_thread(work) == b"hello"
