"""One consumer over many topics: messages of all of them, each settled where it came from."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.batch.frame import Frame, Slice
from penstock.client.client import Client
from penstock.client.following import Legs, PatternDeliveries, Settlings
from penstock.client.received import ReceivedMessage
from penstock.drivers.embedded import MEMORY
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import (
    AckRefused,
    Closed,
    InvalidName,
    StoreFailed,
    SubscriptionConflict,
    SubscriptionInUse,
    Unsupported,
    UsageError,
)
from penstock.vocabulary.policy import Retry
from penstock.vocabulary.wishes import Wish
from tests.client.recorder import Recorder
from tests.contracts.driver_world import first, receive_all

PATTERN = "sensors/+/temp"
Scenario = Callable[[MemoryBroker, Client], Awaitable[None]]


def run(scenario: Scenario) -> None:
    async def whole() -> None:
        with MemoryBroker() as broker:
            async with broker.client() as client:
                await scenario(broker, client)

    asyncio.run(whole())


async def found(deliveries: PatternDeliveries | Any) -> list[tuple[str, bytes | None]]:
    """Topic and body of everything that comes, acked."""
    messages = await receive_all(deliveries)
    for message in messages:
        message.ack()
    return [(message.topic, message.body) for message in messages]


async def row(client: Client, topic: str = PATTERN) -> dict[str, Any]:
    return next(r for r in await client.subscriptions() if r["topic"] == topic)


def test_messages_of_old_and_new_topics_say_where_they_are_from() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        await client.publish("sensors/a/temp", b"1")
        async with client.subscribe(PATTERN, "s") as deliveries:
            assert deliveries.topic == PATTERN
            await client.publish("sensors/b/temp", b"2")
            await client.publish("sensors/b/hum", b"3")
            await client.publish("sensors/a/temp", b"4")
            assert await found(deliveries) == [
                ("sensors/a/temp", b"1"),
                ("sensors/b/temp", b"2"),
                ("sensors/a/temp", b"4"),
            ]
            await deliveries.flush()
        assert [(await row(client))[n] for n in ("acked", "waiting", "consumers")] == [3, 0, []]

    run(scenario)


def test_a_topic_made_in_another_thread_is_delivered_without_reconnecting() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        async with client.subscribe(PATTERN) as deliveries:

            def publish() -> None:
                with broker.client_blocking() as other:
                    for number in range(20):
                        other.publish(f"sensors/{number}/temp", b"%d" % number)

            thread = threading.Thread(target=publish)
            thread.start()
            got = [await first(deliveries) for _ in range(20)]
            thread.join()
            assert {m.topic: m.body for m in got} == {
                f"sensors/{number}/temp": b"%d" % number for number in range(20)
            }

    run(scenario)


def test_a_pattern_that_matches_nothing_waits() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        async with client.subscribe(PATTERN, "s") as deliveries:
            assert await deliveries.receive(timeout_s=0.01) is None
            await deliveries.flush()
        assert (await row(client))["topics"] == []

    run(scenario)


def test_nacks_rejects_batches_and_cumulative_acks_go_to_their_topics() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        for topic in ("sensors/a/temp", "sensors/b/temp"):
            await client.publish_many(topic, [b"0", b"1", b"2"])
        async with client.subscribe(PATTERN, "s", retry=Retry(first_s=1, max_s=1)) as deliveries:
            messages = await receive_all(deliveries)
            by_topic: dict[str, list[ReceivedMessage]] = {}
            for message in messages:
                by_topic.setdefault(message.topic, []).append(message)
            a, b = by_topic["sensors/a/temp"], by_topic["sensors/b/temp"]
            a[1].ack(cumulative=True)
            a[2].extend(60)
            a[2].reject("bad")
            b[0].nack(delay_s=5)
            b[1].ack()
            b[2].ack()
            await deliveries.flush()
            broker.settle()
            assert [m.body for m in await client.dead_letters("sensors/a/temp", "s")] == [b"2"]
            counted = await row(client)
            assert [counted[n] for n in ("acked", "dead", "delayed")] == [4, 1, 1]
            broker.advance(6)
            async for batch in deliveries.batches():
                assert [(m.topic, m.body) for m in batch] == [("sensors/b/temp", b"0")]
                batch.nack()
                break
            broker.advance(2)
            async for batch in deliveries.batches():
                batch.ack()
                break
            assert await client.redrive("sensors/a/temp", "s") == 1
            assert await found(deliveries) == [("sensors/a/temp", b"2")]
        assert (await row(client))["acked"] == 6

    run(scenario)


def test_what_is_in_the_client_is_renewed_on_every_topic() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        async with client.subscribe(PATTERN, "s", lease_s=1) as deliveries:
            for topic in ("sensors/a/temp", "sensors/b/temp"):
                await client.publish(topic, b"1")
            await asyncio.sleep(0.3)
            broker.advance(3)
            assert [m.attempt for m in await receive_all(deliveries)] == [1, 1]

    run(scenario)


def test_what_was_not_handed_out_comes_again_without_an_attempt() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        for topic in ("sensors/a/temp", "sensors/b/temp"):
            await client.publish_many(topic, [b"0", b"1"])
        async with client.subscribe(PATTERN, "s") as deliveries:
            begun = await first(deliveries)
        async with client.subscribe(PATTERN, "s") as deliveries:
            again = {(m.topic, m.body): m.attempt for m in await receive_all(deliveries)}
        assert len(again) == 4
        assert again.pop((begun.topic, begun.body)) == 2
        assert set(again.values()) == {1}

    run(scenario)


def test_refused_acks_are_told_with_their_topics() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        for topic in ("sensors/a/temp", "sensors/b/temp"):
            await client.publish(topic, b"1")
        async with client.subscribe(PATTERN, "s", retry=Retry(first_s=0, max_s=0)) as deliveries:
            late = await receive_all(deliveries)
            broker.advance(40)
            fresh = await receive_all(deliveries)
            assert len(fresh) == 2
            for message in late:
                message.ack()
            with pytest.raises(AckRefused) as refused:
                await deliveries.flush()
            assert [place[0] for place in refused.value.refused] == [
                "sensors/a/temp",
                "sensors/b/temp",
            ]
            for message in fresh:
                message.ack()

    run(scenario)


def test_a_handler_may_serve_a_pattern() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        got: list[tuple[str, bytes]] = []

        @client.on_message(PATTERN, "s", concurrency=2)
        async def handle(body: bytes, message: ReceivedMessage) -> None:
            got.append((message.topic, body))
            if len(got) == 3:
                client.stop()

        running = asyncio.create_task(client.run())
        for number in range(3):
            await client.publish(f"sensors/{number}/temp", b"%d" % number)
        await asyncio.wait_for(running, 5)
        assert sorted(got) == [(f"sensors/{n}/temp", b"%d" % n) for n in range(3)]
        assert (await row(client))["acked"] == 3

    run(scenario)


def test_the_blocking_twin_takes_patterns() -> None:
    with (
        MemoryBroker() as broker,
        broker.client_blocking() as client,
        client.subscribe(PATTERN, "s") as deliveries,
    ):
        client.publish("sensors/a/temp", b"1")
        message = deliveries.receive(timeout_s=5)
        assert message is not None
        assert (message.topic, message.body) == ("sensors/a/temp", b"1")
        message.ack()


def test_settings_given_again_change_a_pattern_that_exists() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        async with client.subscribe(PATTERN, "s"):
            pass
        async with client.subscribe(PATTERN, "s", lease_s=7):
            await client.publish("sensors/a/temp", b"1")
        rows = await client.subscriptions()
        assert [r["policy"]["lease_s"] for r in rows] == [7, 7]

    run(scenario)


def test_administration_by_pattern() -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        await client.create_subscription(PATTERN, "s")
        await client.alter_subscription(PATTERN, "s", lease_s=9)
        with pytest.raises(SubscriptionConflict, match="belongs to the pattern"):
            async with client.subscribe("sensors/a/temp", "s"):
                pass
        async with client.subscribe(PATTERN, "s"):
            with pytest.raises(SubscriptionInUse):
                await client.delete_subscription(PATTERN, "s")
        await client.delete_subscription(PATTERN, "s")
        assert await client.subscriptions() == []
        with pytest.raises(InvalidName, match="must be the last level"):
            client.subscribe("a/#/b", "s")

    run(scenario)


def test_a_broker_that_closes_ends_it_and_so_does_closing() -> None:
    async def scenario() -> None:
        broker = MemoryBroker()
        client = broker.client()
        await client.publish("sensors/a/temp", b"1")
        open_one = await client.subscribe(PATTERN, "s")
        closed = await client.subscribe(PATTERN)
        await closed.close()
        await closed.close()
        with pytest.raises(Closed):
            await closed.receive()
        with pytest.raises(Closed, match="not open yet"):
            await client.subscribe(PATTERN, "s").receive()
        await receive_all(open_one)
        broker.close()
        with pytest.raises(Closed, match="broker was closed"):
            await open_one.receive(5)

    asyncio.run(scenario())


def test_a_client_that_vanishes_follows_no_more() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.subscribe(PATTERN, "s")
            await client.publish("sensors/a/temp", b"1")
            await client._opened().close()
            assert broker.broker.followers == {}
            assert broker.broker.engine.consumers == {}

    asyncio.run(scenario())


def test_a_url_without_patterns_refuses_them() -> None:
    async def scenario(broker: MemoryBroker, _client: Client) -> None:
        broker.capabilities = type(MEMORY)(scheme="queue", durability=MEMORY.durability)
        with pytest.raises(Unsupported, match="a pattern of topics is not available on queue"):
            broker.client().subscribe(PATTERN, "s")

    run(scenario)


# -- the parts -----------------------------------------------------------------------------------


class Quiet:
    """A driver that lets the test say when a topic joins."""

    async def follow(self, _wish: Wish, _follower: Any) -> "Quiet":
        return self

    def leave(self) -> None:
        self.is_left = True

    def deliver(self) -> None:
        pass


class Counting(Recorder):
    """Counts what it is asked for, and answers with an error when it has one."""

    answer: Any = None
    flushes = detaches = 0

    def flush(self, answer: Callable[[Any], None]) -> None:
        self.flushes += 1
        answer(self.answer)

    def detach(self, begun: dict[int, Any], answer: Callable[[Any], None]) -> None:
        self.detaches += 1
        answer(self.answer)


def quiet(loop: asyncio.AbstractEventLoop) -> PatternDeliveries:
    wish = Wish(PATTERN, "s", None, None, 10, 1 << 20, "me")
    return PatternDeliveries(Quiet(), loop, wish)  # type: ignore[arg-type]  # enough of a driver


def test_flush_waits_for_every_topic_and_raises_the_first_error() -> None:
    async def scenario() -> None:
        deliveries = quiet(asyncio.get_running_loop())
        await deliveries.open()
        one, two = Counting(), Counting()
        deliveries.on_joined("sensors/a/temp", one)
        deliveries.on_joined("sensors/b/temp", two)
        await deliveries.flush()
        assert (one.flushes, two.flushes) == (1, 1)
        one.answer = StoreFailed("gone")
        with pytest.raises(StoreFailed):
            await deliveries.flush()
        await deliveries.close()
        assert (one.detaches, two.detaches) == (1, 1)

    asyncio.run(scenario())


def test_a_topic_that_joins_after_the_end_is_left_at_once() -> None:
    async def scenario() -> None:
        deliveries = quiet(asyncio.get_running_loop())
        await deliveries.open()
        await deliveries.close()
        late = Counting()
        leg = deliveries.on_joined("sensors/a/temp", late)
        assert late.detaches == 1
        leg.on_slice(None)  # type: ignore[arg-type]  # what is on its way is not looked at

    asyncio.run(scenario())


def test_nothing_settles_at_the_whole() -> None:
    async def scenario() -> None:
        deliveries = quiet(asyncio.get_running_loop())
        await deliveries.open()
        legs = deliveries._attachment
        assert isinstance(legs, Legs)
        assert isinstance(deliveries.settling, Settlings)
        assert legs.lease_s == 30
        nothing: Any = None
        for call in (
            lambda: legs.ack([]),
            lambda: legs.give_back(nothing, nothing, None, ""),
            lambda: legs.extend([], 1),
            lambda: deliveries.settling.hold(nothing),
        ):
            with pytest.raises(AssertionError):
                call()

    asyncio.run(scenario())


def test_leases_are_renewed_by_the_clock_on_every_topic() -> None:
    async def scenario() -> None:
        deliveries = quiet(asyncio.get_running_loop())
        await deliveries.open()
        attachments = [Counting(), Counting()]
        for number, attachment in enumerate(attachments):
            attachment.lease_s = 0.05
            leg = deliveries.on_joined(f"sensors/{number}/temp", attachment)
            frame = Frame(encode_many([b"x"]), [0], [0], 0, bytes(16), 0, 0)
            leg.on_slice(Slice(number + 1, 0, 0, 1, 1, [frame]))
        for _ in range(500):
            if all(len(attachment.renewals) > 1 for attachment in attachments):
                break
            await asyncio.sleep(0.005)
        for number, attachment in enumerate(attachments):
            assert {r.lease_id for r, *_ in attachment.renewals[1][:1]} == {number + 1}
        await deliveries.close()

    asyncio.run(scenario())


def test_messages_of_some_topics_are_taken_and_the_others_wait() -> None:
    async def scenario(broker: MemoryBroker, client: Client) -> None:
        for name in "abab":
            await client.publish(f"sensors/{name}/temp", name.encode())
        async with client.subscribe(PATTERN, "s", lease_s=1) as deliveries:
            assert isinstance(deliveries, PatternDeliveries)

            async def of(name: str, timeout_s: float | None = 5) -> bytes | None:
                topic = f"sensors/{name}/temp"
                message = await deliveries.receive_of(topic.__eq__, timeout_s)
                if message is None:
                    return None
                assert (message.topic, message.attempt) == (topic, 1)
                message.ack()
                return message.body

            assert [await of(name) for name in "bba"] == [b"b", b"b", b"a"]
            assert await of("b", 0) is None
            await asyncio.sleep(0.3)
            broker.advance(3)  # what waits here is renewed
            waiting = [asyncio.create_task(of(name, None)) for name in "cd"]
            await asyncio.sleep(0)
            await client.publish("sensors/d/temp", b"d")
            await client.publish("sensors/c/temp", b"c")
            assert await asyncio.gather(*waiting) == [b"c", b"d"]
            assert await found(deliveries) == [("sensors/a/temp", b"a")]
            late = asyncio.create_task(of("a", None))
            await asyncio.sleep(0)
            await deliveries.close()
            with pytest.raises(Closed):
                await late

    run(scenario)


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_qos_0_takes_no_credit_once_it_is_handed_out(kind: str) -> None:
    async def scenario(_broker: MemoryBroker, client: Client) -> None:
        options: dict[str, Any] = {"kind": kind, "qos": 0, "credit": 2}
        async with client.subscribe(PATTERN, "s", **options) as deliveries:
            for number in range(10):
                await client.publish("sensors/a/temp", b"%d" % number, key="k")
            assert len([await first(deliveries) for _ in range(10)]) == 10
            assert isinstance(deliveries, PatternDeliveries)
            if kind == "key_shared":
                with pytest.raises(UsageError, match="receive them all"):
                    await deliveries.receive_of(bool)
                return
            for number in range(10):
                await client.publish("sensors/b/temp", b"%d" % number)
            for _ in range(10):
                assert await deliveries.receive_of(bool, 5) is not None

    run(scenario)
