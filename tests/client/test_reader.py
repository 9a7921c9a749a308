"""Readers as a program uses them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock.client.client import Client
from penstock.client.reader import ReadBatch
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import (
    Closed,
    InvalidArgument,
    InvalidName,
    NotLeased,
    NotPlanned,
    PositionNotHeld,
    ReaderFenced,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicInUse,
    Unsupported,
)
from penstock.vocabulary.message import Kind, Message


def run(scenario: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened() as client:
            await scenario(client)

    asyncio.run(main())


@asynccontextmanager
async def opened() -> AsyncIterator[Client]:
    with MemoryBroker() as broker:
        async with broker.client() as client:
            yield client


def test_messages_are_planned_read_and_committed() -> None:
    async def scenario(client: Client) -> None:
        reader = await client.reader("orders", "tables", owner="run-1")
        await client.publish_many("orders", [b"%d" % n for n in range(10)])
        ((partition, start, end),) = await reader.plan(6)
        for _ in range(2):
            found = [message async for message in reader.read(partition, start, end)]
            assert [message.body for message in found] == [b"%d" % n for n in range(6)]
            assert [message.offset for message in found] == list(range(6))
        await reader.commit({partition: 4})
        assert await reader.progress() == {0: 4}
        assert await reader.planned() == [(0, 4, 6)]
        assert await reader.plan() == [(0, 6, 10)]
        assert repr(reader) == "<Reader tables of orders>"

    run(scenario)


def test_a_message_read_is_whole_and_cannot_be_settled() -> None:
    async def scenario(client: Client) -> None:
        reader = await client.reader("orders", "tables", owner="run-1")
        await client.publish("orders", b"x", key="k", id="7", headers={"a": "b"})
        await reader.plan()
        (message,) = [each async for each in reader.read(0, 0, 1)]
        assert (message.topic, message.position, message.id) == ("orders", "0:0", "7")
        assert (message.key, message.headers) == ("k", {"a": "b"})
        with pytest.raises(NotLeased):
            message.ack()

    run(scenario)


def test_batches_give_bodies_without_an_object_for_each() -> None:
    async def scenario(client: Client) -> None:
        reader = await client.reader("orders", "tables", owner="run-1")
        for low in range(0, 50, 10):
            await client.publish_many("orders", [b"%03d" % n for n in range(low, low + 10)])
        await client.publish("orders", None, key="by reference")
        await reader.plan()
        wanted = [*(b"%03d" % n for n in range(3, 50)), None]
        (whole,) = [batch async for batch in reader.batches(0, 3, 51)]
        assert whole.bodies == wanted
        assert whole.offsets == list(range(3, 51))
        assert (len(whole), len(whole.frames)) == (48, 6)
        assert [message.body for message in whole] == wanted
        assert repr(whole) == "<ReadBatch of 48 messages of orders>"
        small = [batch async for batch in reader.batches(0, 3, 51, max_bytes=1)]
        assert len(small) == 6
        assert [body for batch in small for body in batch.bodies] == wanted
        assert [batch async for batch in reader.batches(0, 5, 5)] == []

    run(scenario)


def test_what_is_read_ahead_is_dropped_with_its_range_and_its_refusal_is_heard_in_turn() -> None:
    async def scenario(client: Client) -> None:
        reader = await client.reader("orders", "tables", owner="run-1")
        for number in range(4):
            await client.publish("orders", b"%d" % number)
        await reader.plan()
        before = asyncio.all_tasks()
        left: Any = reader.batches(0, 0, 4, max_bytes=1)
        assert (await anext(left)).bodies == [b"0"]
        await left.aclose()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before
        batches = reader.batches(0, 0, 4, max_bytes=1)
        assert (await anext(batches)).bodies == [b"0"]
        ahead = asyncio.all_tasks() - before
        assert ahead
        await asyncio.wait(ahead, timeout=30)
        await client.reader("orders", "tables", owner="run-2")
        assert (await anext(batches)).bodies == [b"1"], "it was there before the new owner"
        with pytest.raises(ReaderFenced):
            await anext(batches)

    run(scenario)


def test_a_restart_between_plan_and_commit_reads_the_same_rows(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'store'}"

    async def rows(reader: Any) -> list[Any]:
        return [
            (each.position, each.id, each.body, each.key, each.headers, each.published_at)
            for partition, start, end in await reader.planned()
            async for each in reader.read(partition, start, end)
        ]

    async def scenario() -> None:
        async with penstock.connect(url) as client:
            await client.create_topic("orders", 2)
            reader = await client.reader("orders", "tables", owner="run-1")
            many = [Message(body=b"%d" % n, key=b"%d" % n) for n in range(40)]
            await client.publish_many("orders", many)
            await reader.plan(30)
            planned, before = await reader.planned(), await rows(reader)
            assert len(before) == 30
        async with penstock.connect(url) as client:
            reader = await client.reader("orders", "tables", owner="run-2")
            assert await reader.planned() == planned
            assert await rows(reader) == before
            with pytest.raises(TopicInUse):
                await client.delete_topic("orders")
            await reader.commit({partition: end for partition, _, end in planned})
            with pytest.raises(ReaderFenced):
                await client.reader("orders", "tables", owner="run-1")

    asyncio.run(scenario())


def test_a_new_owner_fences_the_old_one() -> None:
    async def scenario(client: Client) -> None:
        old = await client.reader("orders", "tables", owner="run-1")
        await client.publish("orders", b"x")
        await old.plan()
        await client.reader("orders", "tables", owner="run-1")
        new = await client.reader("orders", "tables", owner="run-2")
        for act in (old.plan, lambda: old.commit({0: 1}), lambda: anext(old.read(0, 0, 1))):
            with pytest.raises(ReaderFenced):
                await act()
        with pytest.raises(ReaderFenced):
            await old.release(force=True)
        assert [each.body async for each in new.read(0, 0, 1)] == [b"x"]

    run(scenario)


def test_release_ends_the_reader() -> None:
    async def scenario(client: Client) -> None:
        reader = await client.reader("orders", "tables", owner="run-1")
        await client.publish("orders", b"x")
        await reader.plan()
        with pytest.raises(SubscriptionInUse):
            await reader.release()
        await reader.release(force=True)
        assert await client.subscriptions() == []
        assert (await client.describe_topic("orders"))["messages"] == 0

    run(scenario)


def test_a_reader_stands_beside_a_shared_subscription() -> None:
    async def scenario(client: Client) -> None:
        reader = await client.reader("orders", "tables", owner="run-1")
        async with client.subscribe("orders", "billing") as deliveries:
            await client.publish_many("orders", [b"1", b"2"])
            for _ in range(2):
                message = await deliveries.receive(5)
                assert message is not None
                message.ack()
            await deliveries.flush()
        await reader.plan(1)
        assert [each.body async for each in reader.read(0, 0, 2)] == [b"1", b"2"]
        await reader.commit({0: 1})
        assert (await client.describe_topic("orders"))["messages"] == 1

    run(scenario)


def test_consumers_and_readers_are_kept_apart() -> None:
    async def scenario(client: Client) -> None:
        await client.reader("orders", "tables", owner="run-1")
        with pytest.raises(SubscriptionConflict, match=r"client\.reader"):
            client.subscribe("orders", "tables", kind=Kind.READER)
        with pytest.raises(SubscriptionConflict, match=r"client\.reader"):
            async with client.subscribe("orders", "tables"):
                pass
        await client.create_subscription("orders", "billing")
        with pytest.raises(SubscriptionConflict, match="not a reader"):
            await client.reader("orders", "billing", owner="run-1")
        await client.create_subscription("orders", "made", kind="reader")
        made = await client.reader("orders", "made", owner="run-1")
        assert await made.progress() == {0: 0}

    run(scenario)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("or ders", "tables"), {"owner": "a"}, InvalidName),
        (("orders", ""), {"owner": "a"}, InvalidName),
        (("orders", "tables"), {"owner": ""}, InvalidArgument),
        (("orders", "tables"), {"owner": None}, InvalidArgument),
        (("orders", "tables"), {"owner": "a", "start": "9:9"}, InvalidArgument),
        (("orders", "tables"), {"owner": "a", "start": "0:9"}, PositionNotHeld),
    ],
)
def test_a_wrong_reader_is_refused_by_name(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception]
) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(error):
            await client.reader(*arguments, **options)
        assert await client.subscriptions() == []

    run(scenario)


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("plan", (0,), InvalidArgument),
        ("plan", (1, "x"), InvalidArgument),
        ("commit", ([(0, 1)],), InvalidArgument),
        ("commit", ({"0": 1},), InvalidArgument),
        ("commit", ({0: -1},), InvalidArgument),
        ("commit", ({0: True},), InvalidArgument),
        ("commit", ({3: 1},), InvalidArgument),
        ("commit", ({0: 2},), NotPlanned),
    ],
)
def test_wrong_calls_are_refused_and_change_nothing(
    name: str, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    async def scenario(client: Client) -> None:
        reader = await client.reader("orders", "tables", owner="run-1")
        await client.publish_many("orders", [b"1", b"2"])
        await reader.plan(1)
        with pytest.raises(error):
            await getattr(reader, name)(*arguments)
        with pytest.raises(InvalidArgument):
            await reader.plan(after={0: -1})
        assert await reader.planned() == [(0, 0, 1)]

    run(scenario)


@pytest.mark.parametrize("place", [(0, "0", 1), (-1, 0, 1), (0, 0, 1.5), (True, 0, 1), (9, 0, 1)])
def test_a_wrong_range_is_refused(place: tuple[Any, Any, Any]) -> None:
    async def scenario(client: Client) -> None:
        reader = await client.reader("orders", "tables", owner="run-1")
        await client.publish("orders", b"1")
        with pytest.raises(InvalidArgument):
            await anext(reader.read(*place))
        with pytest.raises(InvalidArgument, match="max_bytes"):
            await anext(reader.batches(0, 0, 1, max_bytes=0))
        with pytest.raises(PositionNotHeld):
            await anext(reader.read(0, 0, 2))

    run(scenario)


def test_a_url_without_readers_refuses_them() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            broker.capabilities = msgspec.structs.replace(broker.capabilities, has_readers=False)
            async with broker.client() as client:
                with pytest.raises(Unsupported, match="readers are not available"):
                    await client.reader("orders", "tables", owner="run-1")

    asyncio.run(scenario())


def test_a_reader_ends_with_its_client() -> None:
    async def scenario(client: Client) -> None:
        reader = await client.reader("orders", "tables", owner="run-1")
        await client.close()
        with pytest.raises(Closed):
            await reader.plan()

    run(scenario)


def test_an_empty_batch_has_no_bodies() -> None:
    assert ReadBatch("orders", 0, []).bodies == []
