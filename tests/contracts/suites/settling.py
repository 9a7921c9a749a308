"""What acks, nacks, leases and drains mean, whatever the URL."""

import asyncio
import time
from itertools import pairwise

import pytest

from penstock.vocabulary.errors import AckRefused, AlreadySettled, Unsupported
from penstock.vocabulary.policy import Retry
from tests.contracts.suites.world import (
    PATIENCE_S,
    QUIET_S,
    Elsewhere,
    World,
    first,
    nothing,
    refused,
    scenario,
    several,
)


class SettlingSuite:
    @scenario
    async def test_what_was_acked_never_comes_again(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish_many(topic, [str(number) for number in range(20)])
            async with client.subscribe(topic, "billing", lease_s=5) as deliveries:
                got = await several(deliveries, 20)
                got[9].ack(cumulative=True)
                for message in got[10:15]:
                    message.ack()
                await deliveries.flush()
                with pytest.raises(AlreadySettled):
                    got[12].ack()
            async with client.subscribe(topic, "billing") as deliveries:
                again = sorted(int(m.body or b"") for m in await several(deliveries, 5))
                assert again == [15, 16, 17, 18, 19]
                await nothing(deliveries)

    @scenario
    async def test_a_nack_brings_the_message_back_after_its_delay(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.publish(topic, b"x")
            async with client.subscribe(topic, "billing", lease_s=5) as deliveries:
                message = await first(deliveries)
                sent = time.monotonic()
                message.nack(delay_s=0.4, reason="later")
                again = await first(deliveries)
                assert time.monotonic() - sent > 0.35
                assert again.attempt == 2
                again.nack(delay_s=0)
                third = await first(deliveries)
                assert third.attempt == 3
                third.ack()
                await nothing(deliveries)

    @scenario
    async def test_a_nack_may_wait_longer_than_the_lease(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish(topic, b"x")
            async with client.subscribe(topic, "billing", lease_s=5) as deliveries:
                message = await first(deliveries)
                sent = time.monotonic()
                message.nack(delay_s=6)
                again = await first(deliveries)
                assert time.monotonic() - sent > 5.8
                assert again.attempt == 2
                again.ack()

    @scenario
    async def test_back_off_grows_from_attempt_to_attempt(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish(topic, b"x")
            retry = Retry(first_s=0.2, max_s=10)
            async with client.subscribe(topic, "billing", retry=retry) as deliveries:
                times = []
                for _ in range(3):
                    message = await first(deliveries)
                    times.append(time.monotonic())
                    message.nack()
                await first(deliveries)
                times.append(time.monotonic())
                gaps = [late - early for early, late in pairwise(times)]
                assert gaps[0] > 0.14
                assert gaps[1] > 0.28
                assert gaps[2] > 0.56

    @scenario
    async def test_a_lease_that_ends_moves_the_message_to_another_consumer(
        self, world: World, topic: str
    ) -> None:
        if not world.can("lease_moves"):
            await refused(world, "lease_moves")
            return
        async with world.client() as client, Elsewhere(world) as other:
            await client.publish(topic, b"x")
            one = await other.subscribe(topic, "billing", lease_s=4, credit=1)
            assert (await other.last(first(one))).attempt == 1
            async with client.subscribe(topic, "billing", credit=1) as two:
                again = await first(two)
                assert again.attempt == 2
                again.ack()
                await two.flush()
                other.go_on()
                await other.do(nothing(one))

    @scenario
    async def test_extending_keeps_a_message_beyond_its_lease(
        self, world: World, topic: str
    ) -> None:
        if not world.can("extend"):
            await refused(world, "extend")
            return
        async with world.client() as client, world.client() as other:
            await client.publish(topic, b"x")
            async with client.subscribe(topic, "billing", lease_s=6, credit=1) as one:
                message = await first(one)
                message.extend(30)
                async with other.subscribe(topic, "billing", credit=1) as two:
                    assert await two.receive(timeout_s=8) is None
                    message.ack()
                    await one.flush()
                    await nothing(two)

    @scenario
    async def test_what_waits_in_the_client_keeps_its_lease(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish_many(topic, [b"0", b"1", b"2"])
            async with client.subscribe(topic, "billing", lease_s=6) as deliveries:
                (await first(deliveries)).ack()
                await asyncio.sleep(8)
                for message in await several(deliveries, 2):
                    assert message.attempt == 1
                    message.ack()
                await nothing(deliveries)

    @scenario
    async def test_what_was_not_begun_goes_back_at_once_and_uncounted(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client, world.client() as other:
            await client.publish_many(topic, [str(number) for number in range(10)])
            async with client.subscribe(topic, "billing", lease_s=60) as deliveries:
                begun = await first(deliveries)
                assert begun.body == b"0"
            async with other.subscribe(topic, "billing") as deliveries:
                got = await several(deliveries, 10)
                attempts = {int(m.body or b""): m.attempt for m in got}
                assert attempts == {0: 2, **dict.fromkeys(range(1, 10), 1)}

    @scenario
    async def test_of_a_pattern_only_what_was_begun_is_counted(
        self, world: World, topic: str
    ) -> None:
        if not (world.can("patterns") and world.can("attempts")):
            return
        async with world.client() as client:
            for room in ("hall", "yard"):
                await client.publish_many(f"{topic}/{room}", [f"{room} 0", f"{room} 1"])
            async with client.subscribe(f"{topic}/+", "climate", lease_s=60) as deliveries:
                begun = await first(deliveries)
                await asyncio.sleep(QUIET_S)  # what the other topic has is in the client by now
            expected: dict[bytes | None, int] = dict.fromkeys(
                (b"hall 0", b"hall 1", b"yard 0", b"yard 1"), 1
            )
            async with client.subscribe(f"{topic}/+", "climate") as deliveries:
                attempts = {m.body: m.attempt for m in await several(deliveries, 4)}
                assert attempts == {**expected, begun.body: 2}

    @scenario
    async def test_an_ack_that_comes_too_late_is_refused_or_harmless(
        self, world: World, topic: str
    ) -> None:
        if not world.can("stale_ack"):
            await refused(world, "stale_ack")
        if not world.can("lease_moves"):
            return
        async with world.client() as client, Elsewhere(world) as other:
            await client.publish(topic, b"x")
            one = await other.subscribe(topic, "billing", lease_s=4, credit=1)
            late = await other.last(first(one))
            async with client.subscribe(topic, "billing", credit=1) as two:
                again = await first(two)
                assert again.attempt == 2
                again.extend(60)
                other.go_on()
                late.ack()
                if world.can("stale_ack"):
                    with pytest.raises(AckRefused, match=r"handed out again|leased"):
                        await other.do(one.flush())
                else:
                    await other.do(one.flush())
                again.ack()
                await two.flush()
                await nothing(two)

    @scenario
    async def test_qos_is_given_or_refused_by_name(self, world: World, topic: str) -> None:
        async with world.client() as client:
            for qos in client.capabilities.qos:
                await client.create_subscription(topic, f"q{qos}", qos=qos)
            await client.publish(topic, b"x")
            for qos in (0, 1, 2):
                if qos not in client.capabilities.qos:
                    with pytest.raises(Unsupported, match=f"qos {qos}.*{world.scheme}"):
                        client.subscribe(topic, f"q{qos}", qos=qos)
                    continue
                async with client.subscribe(topic, f"q{qos}", qos=qos) as deliveries:
                    message = await first(deliveries)
                    assert message.body == b"x"
                    if qos:
                        message.ack()
                async with client.subscribe(topic, f"q{qos}", qos=qos) as deliveries:
                    await nothing(deliveries)

    @scenario
    async def test_handlers_are_called_and_drained(self, world: World, topic: str) -> None:
        done: list[str] = []
        client = world.client()

        @client.on_message(topic, "billing", concurrency=4, retry=Retry(first_s=0.05))
        async def handle(body: str) -> None:
            if body == "3" and "3 failed" not in done:
                done.append("3 failed")
                raise ValueError("not this time")
            done.append(body)
            if len(done) == 21:
                client.stop()

        async with world.client() as publisher:
            await publisher.publish_many(topic, [str(number) for number in range(20)])
            await asyncio.wait_for(client.run(), PATIENCE_S)
            assert sorted(done) == sorted([*map(str, range(20)), "3 failed"])
            async with publisher.subscribe(topic, "billing") as deliveries:
                await nothing(deliveries)
