"""The driver over lost connections, stopped servers and dead ones."""

import asyncio
from typing import Any

import pytest

from penstock.client.blocking import connect_blocking
from penstock.client.client import Client, connect
from penstock.client.deliveries import Deliveries
from penstock.vocabulary.errors import AckRefused, Closed, Unavailable
from penstock.vocabulary.message import Message
from tests.contracts.suites.world import nobody
from tests.drivers.remote.rig import Served, until


def driver_of(client: Client) -> Any:
    return client._driver


async def cut_off(served: Served, client: Client) -> None:
    """Its connection breaks; returns when the client knows, before or after it has another."""
    broken = driver_of(client).link
    served.cut()
    await until(lambda: driver_of(client).link is not broken)


async def numbers(deliveries: Deliveries, count: int) -> list[int]:
    got: list[int] = []
    while len(got) < count:
        message = await deliveries.receive(timeout_s=20)
        assert message is not None, f"only {len(got)} of {count} came"
        got.append(int(message.body or b""))
        message.ack()
    return got


def test_publishes_go_on_after_a_lost_connection() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client:
            for n in range(30):
                if n % 5 == 4:
                    served.cut()
                receipt = await client.publish("orders", b"%d" % n)
                assert receipt.offset == n

    with Served() as served:
        asyncio.run(scenario(served))


def test_publishes_under_way_are_stored_once_and_in_order() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client:
            await client.publish("orders", b"0")
            tasks = []
            for n in range(1, 200):
                tasks.append(asyncio.create_task(client.publish("orders", b"%d" % n)))
                if n % 40 == 0:
                    await asyncio.sleep(0)
                    served.cut()
            offsets = [receipt.offset for receipt in await asyncio.gather(*tasks)]
            assert offsets == list(range(1, 200))
            async with client.subscribe("orders", "all") as deliveries:
                assert await numbers(deliveries, 200) == list(range(200))
                assert await deliveries.receive(timeout_s=0.1) is None

    with Served() as served:
        asyncio.run(scenario(served))


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_server_that_is_started_again_is_only_slow(is_killed: bool) -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        async with served.client() as client, client.subscribe("orders", "all") as deliveries:
            await client.publish("orders", b"0")
            await loop.run_in_executor(None, served.kill if is_killed else served.stop)
            waiting = [asyncio.create_task(client.publish("orders", b"%d" % n)) for n in (1, 2, 3)]
            await asyncio.sleep(0.1)
            assert not any(task.done() for task in waiting)
            await loop.run_in_executor(None, served.start)
            offsets = [receipt.offset for receipt in await asyncio.gather(*waiting)]
            assert offsets == [1, 2, 3]
            got = set(await numbers(deliveries, 4))
            assert got == {0, 1, 2, 3}
            await deliveries.flush()
            assert (await client.subscriptions("orders"))[0]["acked"] == 4

    with Served() as served:
        asyncio.run(scenario(served))


def test_a_consumer_keeps_what_it_holds_over_a_lost_connection() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client, client.subscribe("orders", "all") as deliveries:
            await client.publish_many("orders", [b"%d" % n for n in range(10)])
            first = await deliveries.receive(timeout_s=10)
            assert first is not None
            await cut_off(served, client)
            rest = await numbers(deliveries, 9)
            assert rest == list(range(1, 10))
            first.ack()
            await deliveries.flush()
            assert await deliveries.receive(timeout_s=0.1) is None
            (row,) = await client.subscriptions("orders")
            assert (row["acked"], row["leased"], row["waiting"]) == (10, 0, 0)

    with Served() as served:
        asyncio.run(scenario(served))


def test_acks_under_way_are_sent_again() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client, client.subscribe("orders", "all") as deliveries:
            for round_ in range(10):
                await client.publish_many("orders", [b"%d" % n for n in range(20)])
                got = [await deliveries.receive(timeout_s=10) for _ in range(20)]
                for message in got:
                    assert message is not None
                    message.ack()
                deliveries.settling.send()
                served.cut()
                await deliveries.flush()
                (row,) = await client.subscriptions("orders")
                assert (row["acked"], row["leased"]) == (20 * (round_ + 1), 0)

    with Served() as served:
        asyncio.run(scenario(served))


def test_nacks_and_rejects_under_way_are_sent_again() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client, client.subscribe("orders", "all") as deliveries:
            await client.publish_many("orders", [b"0", b"1"])
            zero, one = [await deliveries.receive(timeout_s=10) for _ in range(2)]
            assert zero is not None
            assert one is not None
            await cut_off(served, client)
            zero.nack(delay_s=0)
            one.reject("broken")
            again = await deliveries.receive(timeout_s=10)
            assert again is not None
            assert (again.body, again.attempt) == (b"0", 2)
            again.ack()
            await deliveries.flush()
            async with asyncio.timeout(20):
                while not (dead := await client.dead_letters("orders", "all")):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert [each.body for each in dead] == [b"1"]

    with Served() as served:
        asyncio.run(scenario(served))


def test_a_consumer_that_is_away_too_long_drops_what_it_had() -> None:
    async def scenario(served: Served) -> None:
        async with (
            served.client() as client,
            served.client() as other,
            client.subscribe("orders", "all", credit=10) as deliveries,
        ):
            await client.publish_many("orders", [b"%d" % n for n in range(10)])
            held = await deliveries.receive(timeout_s=10)
            assert held is not None
            link = driver_of(client).link
            link._owner.is_closed = True  # it does not come back by itself
            link.abort()
            await until(lambda: driver_of(client).link is None)
            async with other.subscribe("orders", "all") as others:
                got = await numbers(others, 10)
                assert sorted(got) == list(range(10))
                await others.flush()
                link._owner.is_closed = False
                link._owner._when_lost(link._owner)
                # Until it is told, it hands out what it has: the answer to its ATTACH tells it.
                await until(lambda: deliveries.is_waiting)
                assert await deliveries.receive(timeout_s=0.1) is None
                held.ack()  # finished already, by another: acking again is success
                await deliveries.flush()

    with Served(reattach_s=0.1) as served:
        asyncio.run(scenario(served))


@pytest.mark.parametrize("kind", ["shared", "key_shared", "multicast"])
def test_every_kind_returns(kind: str) -> None:
    async def scenario(served: Served) -> None:
        async with (
            served.client() as client,
            client.subscribe("orders", "all", kind=kind, consumer="me") as deliveries,
        ):
            for n in range(60):
                await client.publish("orders", b"%d" % n, key=f"k{n % 3}")
                if n % 10 == 5:
                    served.cut()
            seen = await numbers(deliveries, 60)
            assert sorted(seen) == list(range(60))
            for key in range(3):
                mine = [n for n in seen if n % 3 == key]
                assert mine == sorted(mine)
            await deliveries.flush()

    with Served() as served:
        asyncio.run(scenario(served))


def test_a_nack_of_a_key_is_answered_after_a_return() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client:
            options: dict[str, Any] = {"kind": "key_shared"}
            async with client.subscribe("orders", "all", **options) as deliveries:
                await client.publish_many(
                    "orders", [Message(body=b"%d" % n, key="k") for n in range(5)]
                )
                first = await deliveries.receive(timeout_s=10)
                assert first is not None
                await cut_off(served, client)
                first.nack(delay_s=0)
                assert await numbers(deliveries, 5) == [0, 1, 2, 3, 4]

    with Served() as served:
        asyncio.run(scenario(served))


def test_patterns_return_and_learn_new_topics() -> None:
    async def scenario(served: Served) -> None:
        async with (
            served.client() as client,
            served.client() as other,
            client.subscribe("orders.*", "all") as deliveries,
        ):
            await other.publish("orders.a", b"0")
            held = await deliveries.receive(timeout_s=10)
            assert held is not None
            served.cut()
            await other.publish("orders.a", b"1")
            await other.publish("orders.b", b"2")
            assert sorted(await numbers(deliveries, 2)) == [1, 2]
            held.ack()
            await deliveries.flush()
            rows = await client.subscriptions()
            assert sum(row["acked"] for row in rows if "topics" not in row) == 3

    with Served() as served:
        asyncio.run(scenario(served))


def test_units_under_way_are_committed_once() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client:
            async with client.subscribe("orders", "all", qos=2) as deliveries:
                await client.publish_many("orders", [b"%d" % n for n in range(40)])
                for n in range(40):
                    message = await deliveries.receive(timeout_s=10)
                    assert message is not None
                    if n % 4 == 1:
                        served.cut()
                    async with client.transaction() as unit:
                        unit.publish("totals", message.body)
                        unit.ack(message)
                    assert [receipt.offset for receipt in unit.receipts] == [n]
            async with client.subscribe("totals", "t") as totals:
                assert await numbers(totals, 40) == list(range(40))
                assert await totals.receive(timeout_s=0.1) is None

    with Served() as served:
        asyncio.run(scenario(served))


# -- what cannot wait ----------------------------------------------------------------------------


def test_questions_are_repeated_or_end_with_an_unknown_outcome() -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        async with served.client() as client:
            await client.publish("orders", b"0")
            await client.create_subscription("orders", "s")
            await loop.run_in_executor(None, served.stop)
            asked: list[asyncio.Task[Any]] = [
                asyncio.create_task(client.topics()),
                asyncio.create_task(client.create_topic("new", partitions=2)),
            ]
            await asyncio.sleep(0.05)
            await loop.run_in_executor(None, served.start)
            topics, _ = await asyncio.gather(*asked)
            assert "orders" in {row["topic"] for row in topics}
            assert (await client.describe_topic("new"))["partitions"] == 2

    with Served() as served:
        asyncio.run(scenario(served))


def test_closing_without_a_connection_is_prompt() -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        client = await served.client()
        deliveries = await client.subscribe("orders", "all")
        idle = await client.subscribe("other", "all")
        await client.publish("orders", b"0")
        message = await deliveries.receive(timeout_s=10)
        assert message is not None
        await loop.run_in_executor(None, served.kill)
        await until(lambda: driver_of(client).link is None)
        publishing = asyncio.create_task(client.publish("orders", b"1"))
        message.ack()
        began = loop.time()
        await idle.close()
        with pytest.raises(AckRefused, match="before the server confirmed"):
            await deliveries.close()
        await client.close()
        assert loop.time() - began < 10
        with pytest.raises(Closed):
            await publishing
        await loop.run_in_executor(None, served.start)

    with Served() as served:
        asyncio.run(scenario(served))


def test_a_cancelled_attach_leaves_nobody_behind() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client:
            for _ in range(5):
                deliveries = client.subscribe("orders", "all")
                opening = asyncio.create_task(deliveries.open())
                await asyncio.sleep(0)
                opening.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await opening
            closing = client.subscribe("orders", "all")
            opening = asyncio.create_task(closing.open())
            await asyncio.sleep(0)
            await closing.close()
            with pytest.raises(Closed):
                await opening
            await until(lambda: not served.broker.engine.consumers)

    with Served() as served:
        asyncio.run(scenario(served))


def test_closing_while_it_returns_leaves_nobody_behind_and_publishes_go_on() -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        async with served.client() as client:
            one = await client.subscribe("orders", "all")
            many = await client.subscribe("orders.*", "all")
            await client.publish("orders.a", b"x")
            driver = driver_of(client)
            for _ in range(5):
                first = driver.link
                served.cut()
                await until(lambda link=first: driver.link not in (None, link))  # type: ignore[misc]
                # The answer to its ATTACH has not been read yet.
                await asyncio.gather(one.close(), many.close())
                async with asyncio.timeout(20):
                    await client.publish("orders", b"y")
                await loop.run_in_executor(None, lambda: served.call(lambda: None))
                await until(lambda: not (served.broker.engine.consumers or served.broker.followers))
                one = await client.subscribe("orders", "all")
                many = await client.subscribe("orders.*", "all")

    with Served(reattach_s=0.3) as served:
        asyncio.run(scenario(served))


def test_nobody_at_the_address_is_said_in_time() -> None:
    async def scenario(port: int) -> None:
        with pytest.raises(Unavailable, match=r"tried for .* s.*is it running"):
            await connect(f"penstock://127.0.0.1:{port}?connect_timeout_s=0.2")

    with nobody() as port:
        asyncio.run(scenario(port))


@pytest.mark.parametrize("topic", ["orders", "+"])
def test_a_subscription_without_a_name_misses_nothing_while_its_server_is_away(topic: str) -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        async with served.client() as client, served.client() as other:
            await other.publish("orders", b"0")
            await asyncio.sleep(0.01)
            async with client.subscribe(topic, start="latest") as deliveries:
                await other.publish("orders", b"1")
                assert await numbers(deliveries, 1) == [1]
                await loop.run_in_executor(None, served.stop)
                await loop.run_in_executor(None, served.start)
                await other.publish("orders", b"2")
                await other.publish("orders", b"3")
                got: list[int] = []
                while 3 not in got:
                    got += await numbers(deliveries, 1)
                assert [n for n in got if n > 1] == [2, 3]
                assert 0 not in got

    with Served() as served:
        asyncio.run(scenario(served))


def test_the_blocking_twin_goes_on_too() -> None:
    with Served() as served, connect_blocking(served.url) as client:
        client.publish("orders", b"0")
        with client.subscribe("orders", "all") as deliveries:
            served.cut()
            client.publish("orders", b"1")
            for expected in (b"0", b"1"):
                message = deliveries.receive(timeout_s=20)
                assert message is not None
                assert message.body == expected
                message.ack()
            deliveries.flush()


def test_many_idle_connections_are_no_burden() -> None:
    async def scenario(served: Served) -> None:
        idle = [await served.client() for _ in range(200)]
        async with served.client() as client:
            for n in range(20):
                assert (await client.publish("orders", b"%d" % n)).offset == n
        buffers = served.call(
            lambda: [connection.reader.capacity for connection in served.listener.connections]
        )
        assert sum(buffers) <= 300 * 8 * 1024
        for each in idle:
            await each.close()
        await until(lambda: not served.listener.connections)

    with Served() as served:
        asyncio.run(scenario(served))
