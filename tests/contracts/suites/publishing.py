"""What a publisher may rely on, whatever the URL."""

import pytest

from penstock.vocabulary.errors import (
    InvalidName,
    PublishFailed,
    TooLarge,
    UnknownTopic,
    Unsupported,
)
from penstock.vocabulary.message import Durability, Message
from penstock.vocabulary.policy import OnDuplicate
from tests.contracts.suites.world import World, first, given, nothing, scenario, several, unique

AWKWARD = {
    "plain": "value",
    "größe": "übergroß",
    "empty": "",
    "line": "two\nlines",
    "sp ace": " x ",
}


class PublishingSuite:
    @scenario
    async def test_a_receipt_says_where_the_message_is_and_how_safe(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            one = await client.publish(topic, b"0")
            two = await client.publish(topic, b"1", **given(client, "mine"))
            assert (two.topic, two.partition, two.duplicate) == (topic, 0, False)
            assert two.id == "mine" or not client.capabilities.has_dedup
            assert one.position != two.position
            assert two.durability is client.capabilities.durability
            got = await client.peek(topic)
            assert [(m.position, m.offset) for m in got] == [
                (one.position, one.offset), (two.position, two.offset),
            ]  # fmt: skip

    @scenario
    async def test_a_message_arrives_as_it_was_published(self, world: World, topic: str) -> None:
        async with world.client() as client:
            id = given(client, "i")
            sent = await client.publish(topic, b"bo\x00dy", key="k", headers=AWKWARD, **id)
            async with client.subscribe(topic, "billing") as deliveries:
                got = await first(deliveries)
                assert (got.body, got.key, got.headers) == (b"bo\x00dy", "k", AWKWARD)
                assert got.id == id.get("id", sent.id)
                assert (got.topic, got.partition, got.attempt) == (topic, 0, 1)
                assert (got.position, got.offset) == (sent.position, sent.offset)
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
            last = await client.publish(topic, key="schlüssel", **given(client, "größe 17"))
            async with client.subscribe(topic, "billing") as deliveries:
                got = await several(deliveries, 5)
                bodies = ["grüße".encode(), b'{"n":[1,null]}', b"", None, None]
                assert [m.body for m in got] == bodies
                assert (got[3].key, got[4].key, got[4].id) == (b"\xff\x00", "schlüssel", last.id)

    @scenario
    async def test_messages_come_in_the_order_of_their_publishing(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            single = [await client.publish(topic, str(number)) for number in range(5)]
            many = await client.publish_many(topic, [str(number) for number in range(5, 2_500)])
            ids = [receipt.id for receipt in single] + [receipt.id for receipt in many]
            assert len(set(ids)) == 2_500
            async with client.subscribe(topic, "billing") as deliveries:
                got = []
                for number in range(2_500):
                    message = await first(deliveries)
                    assert message.body == str(number).encode()
                    got.append(message.id)
                    message.ack()
                assert got == ids

    @scenario
    async def test_a_given_id_is_stored_once(self, world: World, topic: str) -> None:
        async with world.client() as client, world.client() as other:
            if not client.capabilities.has_dedup:
                with pytest.raises(Unsupported, match=f"id.*{world.scheme}"):
                    await client.publish(topic, b"x", id="one")
                with pytest.raises(Unsupported, match=f"on_duplicate.*{world.scheme}"):
                    await client.create_topic(unique("t"), on_duplicate=OnDuplicate.REPLACE)
                return
            one = await client.publish(topic, b"x", id="one")
            two = await other.publish(topic, b"x", id="one")
            many = await client.publish_many(
                topic, [Message(body=b"y", id="two"), Message(body=b"x", id="one")]
            )
            assert (one.duplicate, two.duplicate, many.duplicates) == (False, True, [1])
            assert [m.body for m in await client.peek(topic)] == [b"x", b"y"]

    @scenario
    async def test_two_topics_never_meet(self, world: World, topic: str) -> None:
        made = [f"{topic}{mark}b{rest}" for mark in (".", ":", "/") for rest in ("", "%c", "..d")]
        async with world.client() as client:
            for name in made:
                await client.publish(name, name)
            for name in made:
                assert [m.body for m in await client.peek(name)] == [name.encode()], name
                async with client.subscribe(name, "s") as deliveries:
                    message = await first(deliveries)
                    assert (message.body, message.topic) == (name.encode(), name)
                    message.ack()
            known = {row["topic"] for row in await client.topics()}
            assert known.issuperset(made)

    @scenario
    async def test_a_message_that_is_too_large_is_refused_and_nothing_is_stored(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.publish(topic, b"small")
            limit = client.capabilities.message_bytes_max
            with pytest.raises((TooLarge, PublishFailed), match="limit"):
                await client.publish(topic, bytes(limit + 1))
            with pytest.raises((TooLarge, PublishFailed), match="limit"):
                await client.publish_many(topic, [b"1", bytes(limit + 1)])
            await client.publish(topic, bytes(limit // 2))
            sizes = [len(m.body or b"") for m in await client.peek(topic)]
            assert limit // 2 in sizes
            assert limit + 1 not in sizes

    @scenario
    async def test_a_level_is_a_minimum(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish(topic, b"x")
            given = client.capabilities.durability
            receipt = await client.publish(topic, b"x", durability=given)
            assert receipt.durability is given
            await client.publish(topic, b"x", durability="memory")
            more = Durability.SYNCED if given is not Durability.SYNCED else Durability.REPLICATED
            with pytest.raises(Unsupported, match=f"{more.value}.*{world.scheme}"):
                await client.publish(topic, b"x", durability=more)

    @scenario
    async def test_what_is_not_there_is_an_error(self, world: World, topic: str) -> None:
        async with world.client() as client:
            for call in (client.describe_topic, client.peek, client.delete_topic):
                with pytest.raises(UnknownTopic, match=topic):
                    await call(topic)
            with pytest.raises(InvalidName):
                await client.publish("a b", b"x")
            with pytest.raises(InvalidName):
                await client.publish(f"{topic}.dead.x", b"x")

    @scenario
    async def test_messages_are_kept_while_there_is_no_subscription(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            if not world.can("kept"):
                return  # its own suite tells what the broker answers
            await client.publish(topic, b"early")
            async with client.subscribe(topic, unique("late")) as deliveries:
                message = await first(deliveries)
                assert message.body == b"early"
                message.ack()
                await nothing(deliveries)
