"""What only some brokers can: each cell is the behaviour, or a refusal that names it."""

import asyncio
import time

import pytest

from penstock.client.client import Client
from penstock.client.received import ReceivedMessage
from penstock.drivers.capabilities import ROWS, has
from penstock.vocabulary.errors import (
    AckRefused,
    NotPlanned,
    PositionNotHeld,
    ReaderFenced,
    SubscriptionInUse,
    Unsupported,
)
from penstock.vocabulary.message import Message
from tests.contracts.suites.world import (
    Elsewhere,
    World,
    first,
    nothing,
    refused,
    scenario,
    several,
    until,
)


class SpecialSuite:
    @scenario
    async def test_every_cell_may_be_needed_and_is_given_or_refused_by_name(
        self, world: World, topic: str
    ) -> None:
        del topic
        kept = [row for row in ROWS if world.can(row)]
        async with world.client(needs=kept) as client:
            assert [row for row in ROWS if has(client.capabilities, row)] == kept
        for row in ROWS:
            if row not in kept:
                await refused(world, row)

    @scenario
    async def test_priority(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish(topic, b"low", priority=0)
            if not world.can("priority"):
                with pytest.raises(Unsupported, match=f"priority.*{world.scheme}"):
                    await client.publish(topic, b"high", priority=9)
                with pytest.raises(Unsupported, match=f"priority.*{world.scheme}"):
                    await client.publish_many(topic, [Message(body=b"high", priority=9)])
                return
            await client.publish(topic, b"high", priority=9)
            async with client.subscribe(topic, "desk") as deliveries:
                assert [m.body for m in await several(deliveries, 2)] == [b"high", b"low"]

    @scenario
    async def test_deliver_at(self, world: World, topic: str) -> None:
        async with world.client() as client:
            if not world.can("deliver_at"):
                for options in ({"delay_s": 5}, {"deliver_at": time.time() + 5}):
                    with pytest.raises(Unsupported, match=f"deliver_at.*{world.scheme}"):
                        await client.publish(topic, b"later", **options)
                return
            async with client.subscribe(topic, "desk") as deliveries:
                sent = time.monotonic()
                await client.publish(topic, b"later", delay_s=4)
                await client.publish(topic, b"now")
                now = await first(deliveries)
                assert now.body == b"now"
                now.ack()
                later = await first(deliveries)
                assert time.monotonic() - sent > 3.9
                assert (later.body, later.attempt) == (b"later", 1)
                later.ack()

    @scenario
    async def test_expires_at(self, world: World, topic: str) -> None:
        async with world.client() as client:
            if not world.can("expires_at"):
                with pytest.raises(Unsupported, match=f"expires_at.*{world.scheme}"):
                    await client.publish(topic, b"gone", ttl_s=1)
                return
            await client.create_subscription(topic, "desk")
            await client.publish(topic, b"gone", ttl_s=0.2)
            await client.publish(topic, b"kept", ttl_s=3600)
            await asyncio.sleep(0.4)
            async with client.subscribe(topic, "desk") as deliveries:
                message = await first(deliveries)
                assert message.body == b"kept"
                message.ack()
                await nothing(deliveries)
            [row] = await client.subscriptions(topic)
            gone = row["expired"] if row["expired"] is not None else row["expired_here"]
            # A server that removes what is expired may have been quicker, and tells nobody.
            assert gone == 1 or (gone == 0 and world.is_native("expires_at"))

    @scenario
    async def test_transactions(self, world: World, topic: str) -> None:
        async with world.client() as client:
            if not world.can("transactions"):
                with pytest.raises(Unsupported, match=f"{world.scheme}.*transactions"):
                    client.transaction()
                return
            await client.publish_many(topic, [b"1", b"2"])
            async with client.subscribe(topic, "convert", qos=2, lease_s=30) as deliveries:
                one, two = await several(deliveries, 2)
                async with client.transaction() as unit:
                    unit.publish(f"{topic}-out", b"one", key="k")
                    unit.publish(f"{topic}-out", b"uno")
                    unit.ack(one)
                assert len(unit.receipts) == 2
                with pytest.raises(ZeroDivisionError):
                    await _broken_off(client, f"{topic}-out", two)
                two.ack()
            got = [m.body for m in await client.peek(f"{topic}-out")]
            assert got == [b"one", b"uno"]
            async with client.subscribe(topic, "convert", qos=2) as deliveries:
                await nothing(deliveries)

    @scenario
    async def test_a_unit_with_a_late_ack_comes_to_nothing(self, world: World, topic: str) -> None:
        if not world.can("transactions"):
            return
        async with world.client() as client, Elsewhere(world) as other:
            await client.publish(topic, b"1")
            one = await other.subscribe(topic, "convert", qos=2, lease_s=4, credit=1)
            late = await other.last(first(one))
            async with client.subscribe(topic, "convert", qos=2, credit=1) as two:
                again = await first(two)
                again.extend(60)
                other.go_on()
                with pytest.raises(AckRefused):
                    await other.do(_committed(other.client, f"{topic}-out", late))
                again.ack()
            await client.publish(f"{topic}-out", b"end")

            async def looked() -> list[bytes | None]:
                return [m.body for m in await client.peek(f"{topic}-out")]

            # It is shown once the broker has let go of the other client's unit.
            assert await until(looked, "the message behind the unit") == [b"end"]

    @scenario
    async def test_a_reader_is_created_once_and_then_left_alone(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            if not client.capabilities.has_readers:
                with pytest.raises(Unsupported, match="reader"):
                    await client.create_subscription(topic, "tables", kind="reader")
                return
            await client.create_subscription(topic, "tables", kind="reader")
            await client.publish_many(topic, [b"1", b"2"])
            reader = await client.reader(topic, "tables", owner="run-1")
            planned = await reader.plan()
            bodies = [m.body for each in planned async for m in reader.read(*each)]
            assert set(bodies) == {b"1", b"2"}
            await client.create_subscription(topic, "tables", kind="reader")
            await reader.commit({partition: end for partition, _, end in planned})
            again = await client.reader(topic, "tables", owner="run-2")
            assert await again.planned() == []

    @scenario
    async def test_a_reader(self, world: World, topic: str) -> None:
        async with world.client() as client:
            if not client.capabilities.has_readers:
                with pytest.raises(Unsupported, match=f"readers.*{world.scheme}"):
                    await client.reader(topic, "tables", owner="run-1")
                return
            await client.publish_many(topic, [str(number) for number in range(20)])
            reader = await client.reader(topic, "tables", owner="run-1")
            ranges = await reader.plan(12)
            for _ in range(2):
                bodies = [m.body for r in ranges async for m in reader.read(*r)]
                assert bodies == [str(number).encode() for number in range(12)]
            await reader.commit({partition: end for partition, _, end in ranges})
            assert await reader.planned() == []
            rest = await reader.plan()
            again = await client.reader(topic, "tables", owner="run-1")
            assert await again.planned() == rest
            bodies = [m.body for r in rest async for m in reader.read(*r)]
            assert bodies == [str(number).encode() for number in range(12, 20)]
            newer = await client.reader(topic, "tables", owner="run-2")
            for call in (
                reader.plan(),
                reader.commit({}),
                client.reader(topic, "tables", owner="run-1"),
            ):
                with pytest.raises(ReaderFenced, match="another owner"):
                    await call
            with pytest.raises(SubscriptionInUse, match="planned"):
                await newer.release()
            for partition, _, end in rest:
                await newer.commit({partition: end})
                with pytest.raises(NotPlanned):
                    await newer.commit({partition: end + 1})
                with pytest.raises(PositionNotHeld):
                    [m async for m in newer.read(partition, end, end + 1)]
            assert await newer.plan() == []
            await newer.release()

    @scenario
    async def test_partitions(self, world: World, topic: str) -> None:
        async with world.client() as client:
            if not world.can("partitions"):
                with pytest.raises(Unsupported, match=f"{world.scheme}.*partition"):
                    await client.create_topic(topic, partitions=4)
                return
            await client.create_topic(topic, partitions=4)
            assert (await client.describe_topic(topic))["partitions"] == 4


async def _committed(client: Client, topic: str, message: ReceivedMessage) -> None:
    async with client.transaction() as unit:
        unit.publish(topic, b"too late")
        unit.ack(message)


async def _broken_off(client: Client, topic: str, message: ReceivedMessage) -> None:
    async with client.transaction() as unit:
        unit.publish(topic, b"never")
        unit.ack(message)
        raise ZeroDivisionError
