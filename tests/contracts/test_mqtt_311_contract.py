"""The contract over MQTT 3.1.1, whose messages are a body and nothing else.

Ids, positions, headers, keys, times and targets have no place in a packet, and a body with an
envelope in it would be noise for every other program: what needs them is refused by name.
"""

from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench.servers import Server
from penstock.vocabulary.errors import PublishFailed, Unsupported
from penstock.vocabulary.message import Durability, Message
from tests.contracts import test_mqtt_contract as five
from tests.contracts.suites.world import World, first, nothing, scenario, several, unique, until

BODY_ONLY = "not available on mqtt: URLs with version=3.1.1"


@pytest.fixture
def topic() -> str:
    return unique("orders")


class OldWorld(five.MqttWorld):
    def can(self, row: str) -> bool:
        return row not in {"expires_at", "headers"} and super().can(row)


@pytest.fixture
def world(request: pytest.FixtureRequest, mosquitto: Server, tmp_path: Path) -> World:
    url = f"mqtt://{mosquitto.address}?version=3.1.1&dead=file:{tmp_path / 'dead'}"
    return OldWorld(url, five.BEFORE.get(request.node.originalname, ("billing",)))


class TestMqtt311(five.TestMqtt):
    """The contract over MQTT 5, and in its place what a body alone cannot carry.

    What only the desk decides, by its clock, is the same for both and tested there.
    """

    test_a_nack_may_wait_longer_than_the_lease: Any = None
    test_back_off_grows_from_attempt_to_attempt: Any = None
    test_credit_bounds_what_a_consumer_holds: Any = None
    test_credit_in_bytes_bounds_too: Any = None
    test_extending_keeps_a_message_beyond_its_lease: Any = None
    test_what_waits_in_the_client_keeps_its_lease: Any = None

    @scenario
    async def test_messages_are_kept_while_there_is_no_subscription(
        self, world: World, topic: str
    ) -> None:
        """A broker of 3.1.1 does not say that nobody listens: nothing is kept, nothing is told."""
        async with world.client() as client:
            assert (await client.publish(topic, b"early")).durability is Durability.MEMORY
            async with client.subscribe(topic, "billing") as deliveries:
                await nothing(deliveries)

    @scenario
    async def test_a_receipt_says_where_the_message_is_and_how_safe(
        self, world: World, topic: str
    ) -> None:
        """The position of a receipt is the publisher's; consumers make their own."""
        async with world.client() as client:
            one, two = await client.publish(topic, b"0"), await client.publish(topic, b"1")
            assert (two.topic, two.partition, two.offset, two.duplicate) == (topic, 0, None, False)
            assert two.durability is client.capabilities.durability is Durability.MEMORY
            async with client.subscribe(topic, "billing") as deliveries:
                got = await several(deliveries, 2)
                assert len({one.position, two.position, *(m.position for m in got)}) == 4

    @scenario
    async def test_a_message_arrives_as_it_was_published(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish(topic, b"bo\x00dy")
            async with client.subscribe(topic, "billing") as deliveries:
                got = await first(deliveries)
                assert (got.body, got.key, got.headers) == (b"bo\x00dy", None, {})
                assert (got.topic, got.partition, got.attempt) == (topic, 0, 1)

    @scenario
    async def test_text_json_empty_and_absent_bodies_stay_apart(
        self, world: World, topic: str
    ) -> None:
        assert not world.can("headers")
        async with world.client() as client:
            for what, options in (
                ("headers", {"body": b"x", "headers": {"a": "b"}}),
                ("a key", {"body": b"x", "key": "k"}),
                ("an absent body", {}),
            ):
                given: dict[str, Any] = {**options}
                with pytest.raises(Unsupported, match=f"{what}: {BODY_ONLY}"):
                    await client.publish(topic, **given)
                with pytest.raises((Unsupported, PublishFailed), match=f"{what}: {BODY_ONLY}"):
                    await client.publish_many(topic, [Message(**given)])
            await client.publish(topic, json={"n": [1, None]})
            await client.publish(topic, b"")
            async with client.subscribe(topic, "billing") as deliveries:
                assert [m.body for m in await several(deliveries, 2)] == [b'{"n":[1,null]}', b""]

    @scenario
    async def test_messages_come_in_the_order_of_their_publishing(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            bodies = [str(number).encode() for number in range(500)]
            await client.publish_many(topic, bodies)
            async with client.subscribe(topic, "billing") as deliveries:
                for body in bodies:
                    message = await first(deliveries)
                    assert message.body == body
                    message.ack()

    @scenario
    async def test_a_new_subscription_starts_where_it_is_asked_to(
        self, world: World, topic: str
    ) -> None:
        """The retained message comes with each subscribing: 3.1.1 cannot ask for it once."""
        async with world.client() as client:
            await client.create_topic(topic, keep_last=1)
            await client.publish_many(topic, [b"0", b"1"])
            async with client.subscribe(topic, start="earliest") as deliveries:
                message = await first(deliveries)
                assert (message.body, message.headers) == (b"1", {"mqtt-retained": "true"})
            async with client.subscribe(topic, start="latest") as deliveries:
                await client.publish(topic, b"2")

                async def newest() -> bool:
                    return (await first(deliveries)).body == b"2"

                await until(newest, "the newest message")
            for start in (1_700_000_000.0, "0:17"):
                with pytest.raises(Unsupported, match="mqtt: URLs, which keep no history"):
                    await client.subscribe(topic, unique("s"), start=start)

    @scenario
    async def test_a_pattern_covers_topics_that_come_later(self, world: World, topic: str) -> None:
        async with (
            world.client() as client,
            client.subscribe(f"{topic}/+/temp", "climate") as deliveries,
        ):
            await client.publish(f"{topic}/hall/temp", b"1")
            assert (await first(deliveries)).topic == f"{topic}/hall/temp"
            await client.publish(f"{topic}/yard/wind", b"no")
            await client.publish(f"{topic}/yard/temp", b"2")
            late = await first(deliveries)
            assert (late.topic, late.body) == (f"{topic}/yard/temp", b"2")
            await nothing(deliveries)

    @scenario
    async def test_a_rejected_message_is_a_dead_letter_with_its_story(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.publish(topic, b"x")
            async with client.subscribe(topic, "billing", consumer="worker-1") as deliveries:
                (await first(deliveries)).reject("no such customer: größe")
                await deliveries.flush()
            [dead] = await until(lambda: client.dead_letters(topic, "billing"), "the dead letter")
            assert dead.body == b"x"
            assert dead.headers["penstock-dead-reason"] == "no such customer: größe"
            assert dead.headers["penstock-dead-consumer"] == "worker-1"

    @scenario
    async def test_dead_letters_go_back_to_their_subscription_only(
        self, world: World, topic: str
    ) -> None:
        """Which has no place in the packet: refused, and nothing is lost."""
        async with world.client() as client:
            await client.publish(topic, b"x")
            async with client.subscribe(topic, "billing") as deliveries:
                (await first(deliveries)).reject("bad")
                await deliveries.flush()
            await until(lambda: client.dead_letters(topic, "billing"), "the dead letter")
            with pytest.raises(Unsupported, match=f"redrive to one subscription: {BODY_ONLY}"):
                await client.redrive(topic, "billing")
            assert len(await client.dead_letters(topic, "billing")) == 1
