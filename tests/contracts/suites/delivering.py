"""Who gets which message, whatever the URL."""

import asyncio
from typing import Any

import pytest

from penstock.vocabulary.errors import PositionNotHeld, Unsupported
from penstock.vocabulary.policy import Retry
from tests.contracts.suites.world import (
    World,
    first,
    nothing,
    refused,
    scenario,
    several,
    unique,
)


class DeliveringSuite:
    @scenario
    async def test_every_subscription_gets_every_message(self, world: World, topic: str) -> None:
        async with world.client() as client:
            for name in ("billing", "stock"):
                await client.create_subscription(topic, name)
            await client.publish(topic, b"x")
            for name in ("billing", "stock"):
                async with client.subscribe(topic, name) as deliveries:
                    message = await first(deliveries)
                    assert message.body == b"x"
                    message.ack()

    @scenario
    async def test_consumers_of_one_subscription_share_the_messages(
        self, world: World, topic: str
    ) -> None:
        async with (
            world.client() as client,
            world.client() as other,
            client.subscribe(topic, "billing", credit=5) as one,
            other.subscribe(topic, "billing", credit=5) as two,
        ):
            await client.publish_many(topic, [str(number) for number in range(10)])
            parts = await asyncio.gather(several(one, 5), several(two, 5))
            got = sorted(int(m.body or b"-1") for part in parts for m in part)
            assert got == list(range(10))

    @scenario
    async def test_a_program_that_names_settings_may_run_twice(
        self, world: World, topic: str
    ) -> None:
        settings: dict[str, Any] = {"lease_s": 45.0, "retry": Retry(first_s=0.5, max_attempts=7)}
        async with world.client() as client, world.client() as other:
            await client.create_subscription(topic, "billing", **settings)
            await client.publish(topic, b"x")
            async with client.subscribe(topic, "billing", **settings) as one:
                assert (await first(one)).body == b"x"
                async with other.subscribe(topic, "billing", **settings):
                    [row] = await client.subscriptions(topic)
                    assert row["policy"]["lease_s"] == 45.0

    @scenario
    async def test_credit_bounds_what_a_consumer_holds(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish_many(topic, [b"x"] * 20)
            async with client.subscribe(topic, "billing", credit=5) as deliveries:
                got = await several(deliveries, 5)
                await nothing(deliveries)
                got[0].ack()
                got[1].ack()
                await deliveries.flush()
                await several(deliveries, 2)
                await nothing(deliveries)

    @scenario
    async def test_credit_in_bytes_bounds_too(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish_many(topic, [bytes(1_000)] * 50)
            async with client.subscribe(topic, "billing", credit_bytes=5_000) as deliveries:
                await first(deliveries)
                held = 1
                while await deliveries.receive(timeout_s=1.0) is not None:
                    held += 1
                assert 1 <= held < 50

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
            assert await client.subscriptions(topic) == []

    @scenario
    async def test_a_new_subscription_starts_where_it_is_asked_to(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.publish(topic, b"0")
            await asyncio.sleep(0.05)
            moment = client._opened().wall / 1000
            await asyncio.sleep(0.05)
            await client.publish(topic, b"1")
            two = await client.publish(topic, b"2")
            for start, expected in (
                (None, [b"0", b"1", b"2"]),
                ("earliest", [b"0", b"1", b"2"]),
                (two.position, [b"2"]),
                (moment, [b"1", b"2"]),
            ):
                async with client.subscribe(topic, unique("s"), start=start) as deliveries:
                    got = [m.body for m in await several(deliveries, len(expected))]
                    assert got == expected, start
            async with client.subscribe(topic, unique("s"), start="latest") as deliveries:
                await nothing(deliveries)
                await client.publish(topic, b"3")
                assert (await first(deliveries)).body == b"3"
            beyond = "0:999999" if two.offset is not None else "99999999999999-0"
            with pytest.raises(PositionNotHeld, match=r"h[eo]ld"):
                await client.subscribe(topic, unique("s"), start=beyond)

    @scenario
    async def test_a_subscription_goes_on_where_it_was(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish_many(topic, [b"0", b"1"])
            async with client.subscribe(topic, "billing") as deliveries:
                (await first(deliveries)).ack()
        async with (
            world.client() as client,
            client.subscribe(topic, "billing", start="latest") as deliveries,
        ):
            message = await first(deliveries)
            assert message.body == b"1"
            message.ack()
            await nothing(deliveries)

    @scenario
    async def test_a_message_is_held_until_every_subscription_acked_it(
        self, world: World, topic: str
    ) -> None:
        """Where it is not, the broker's own limits decide, and a program that needs it is told."""
        if not world.can("held"):
            await refused(world, "held")
        async with world.client() as client:
            for name in ("billing", "stock"):
                await client.create_subscription(topic, name)
            await client.publish(topic, b"x")
            async with client.subscribe(topic, "billing") as deliveries:
                (await first(deliveries)).ack()
            async with client.subscribe(topic, "stock") as deliveries:
                message = await first(deliveries)
                assert message.body == b"x"
                message.ack()

    @scenario
    async def test_receive_returns_none_when_nothing_comes(self, world: World, topic: str) -> None:
        async with world.client() as client, client.subscribe(topic, "b") as deliveries:
            assert await deliveries.receive(timeout_s=0.01) is None
            assert await deliveries.receive(timeout_s=0) is None

    @scenario
    async def test_multicast_gives_every_consumer_everything(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client, world.client() as other:
            options: dict[str, Any] = {"kind": "multicast"}
            async with (
                client.subscribe(topic, "screens", consumer="hall", **options) as hall,
                other.subscribe(topic, "screens", **options) as anybody,
            ):
                await client.publish(topic, b"1")
                for deliveries in (hall, anybody):
                    message = await first(deliveries)
                    assert message.body == b"1"
                    message.ack()
            await client.publish(topic, b"while away")
            async with client.subscribe(topic, "screens", consumer="hall", **options) as deliveries:
                message = await first(deliveries)
                assert message.body == b"while away"
                message.ack()
            async with client.subscribe(topic, "screens", **options) as deliveries:
                await nothing(deliveries)

    @scenario
    async def test_a_pattern_covers_topics_that_come_later(self, world: World, topic: str) -> None:
        async with world.client() as client:
            if not client.capabilities.has_patterns:
                with pytest.raises(Unsupported, match=f"pattern.*{world.scheme}"):
                    client.subscribe(f"{topic}/+/temp", "climate")
                return
            for room in ("cellar", "hall"):
                await client.publish_many(f"{topic}/{room}/temp", [room, room])
            async with client.subscribe(f"{topic}/+/temp", "climate") as deliveries:
                got = sorted((m.topic, m.body) for m in await several(deliveries, 4))
                rooms = ("cellar", "cellar", "hall", "hall")
                assert got == [(f"{topic}/{room}/temp", room.encode()) for room in rooms]
                await client.publish(f"{topic}.yard:temp", b"2")
                await client.publish(f"{topic}/yard/wind", b"no")
                late = await first(deliveries)
                assert (late.topic, late.body) == (f"{topic}.yard:temp", b"2")
                await nothing(deliveries)

    @scenario
    async def test_key_shared_is_given_or_refused_by_name(self, world: World, topic: str) -> None:
        async with world.client() as client:
            if not world.can("key_shared"):
                with pytest.raises(Unsupported, match=f"key_shared.*{world.scheme}"):
                    client.subscribe(topic, "drivers", kind="key_shared")
                with pytest.raises(Unsupported, match=f"key_shared.*{world.scheme}"):
                    await client.create_subscription(topic, "drivers", kind="key_shared")
                return
            for number in range(6):
                await client.publish(topic, str(number), key=f"k{number % 2}")
            async with client.subscribe(topic, "drivers", kind="key_shared") as deliveries:
                got = await several(deliveries, 6)
                for key in ("k0", "k1"):
                    bodies = [m.body for m in got if m.key == key]
                    assert bodies == sorted(bodies, key=lambda body: body or b"")
