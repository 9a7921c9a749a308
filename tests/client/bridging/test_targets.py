"""What is copied and what is noted of it are one; without transactions numbers tell repeats."""

import asyncio

import pytest

import penstock
from penstock.batch.encode import Columns
from penstock.cli.bench.servers import Server
from penstock.client.bridging.portion import Portion
from penstock.client.bridging.targets import (
    POSITIONS,
    PUBLISHED_AT,
    NumberTarget,
    UnitTarget,
    publish_by_id,
)
from penstock.client.client import Client
from penstock.vocabulary.errors import InvalidName, PublisherFenced, TooLarge
from penstock.vocabulary.limits import BODY_BYTES_MAX
from tests.client.bridging.world import contents
from tests.servers.fixtures import unique

TIME = 1_700_000_000_000


def portion(start: int, count: int, *, partition: int = 0, step: int = 1) -> Portion:
    numbers = list(range(start, start + step * count, step))
    columns = Columns(
        bodies=[b"%d" % number for number in numbers],
        ids=[f"{partition}-{number}" for number in numbers],
        published_at=[TIME] * count,
    )
    return Portion(partition, columns, numbers, start, numbers[-1] + 1)


async def opened(client: Client, topic: str, identity: str = "me") -> UnitTarget:
    target = UnitTarget(client, topic)
    await target.open(identity)
    return target


def test_a_new_run_learns_from_the_target_how_far_the_last_one_got() -> None:
    async def scenario() -> None:
        url = "memory:target-units"
        async with penstock.connect(url, publisher="bridge/me") as client:
            target = await opened(client, "t")
            assert await target.store(portion(0, 3)) == 3
            assert await target.store(portion(3, 2)) == 2
            loose = portion(7, 2, partition=1, step=2)
            loose.start = loose.end = 0
            assert await target.store(loose) == 2
            async with penstock.connect(url, publisher="bridge/me") as other:
                again = await opened(other, "t")
                assert [again.done.end_of(partition) for partition in (0, 1, 2)] == [5, 10, 0]
                assert not again.done.has(1, 8)
                assert (await opened(other, "t", "somebody else")).done.end_of(0) == 0
            rows = await contents(client, "t")
            assert {row[5] for row in rows} == {TIME}
            assert len(rows) == 7
            assert len(await contents(client, POSITIONS)) < 10

    asyncio.run(scenario())


def test_whoever_was_before_can_store_nothing_any_more() -> None:
    async def scenario() -> None:
        url = "memory:target-fence"
        async with (
            penstock.connect(url, publisher="bridge/me") as old,
            penstock.connect(url, publisher="bridge/me") as new,
        ):
            before = await opened(old, "t")
            await before.store(portion(0, 3))
            after = await opened(new, "t")
            with pytest.raises(PublisherFenced):
                await before.store(portion(3, 3))
            assert after.done.end_of(0) == 3
            assert len(await contents(new, "t")) == 3

    asyncio.run(scenario())


def test_a_portion_too_large_for_a_unit_is_cut() -> None:
    async def scenario() -> None:
        url = "memory:target-large"
        async with penstock.connect(url, publisher="bridge/me") as client:
            target = await opened(client, "t")
            large = portion(0, 20)
            large.columns.bodies = [bytes(BODY_BYTES_MAX)] * 20
            assert await target.store(large) == 20
            assert target.done.end_of(0) == 20
            assert len(await contents(client, "t")) == 20
            huge = portion(20, 1)
            huge.columns.bodies = [bytes(20 * BODY_BYTES_MAX)]
            with pytest.raises(TooLarge):
                await target.store(huge)
            assert target.done.end_of(0) == 20

    asyncio.run(scenario())


def test_a_topic_that_grows_meanwhile_is_split_anew() -> None:
    async def scenario() -> None:
        url = "memory:target-growth"
        async with (
            penstock.connect(url, publisher="bridge/me") as client,
            penstock.connect(url) as other,
        ):
            target = await opened(client, "t")
            await target.store(portion(0, 3))
            await other.alter_topic("t", partitions=3)
            await target.store(portion(3, 3, partition=1))
            await target.store(portion(6, 3, partition=2))
            assert len(await contents(client, "t")) == 9

    asyncio.run(scenario())


def test_without_transactions_a_repeat_is_known_by_its_numbers(nats_server: Server) -> None:
    async def scenario() -> None:
        topic = unique("t")
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            target = NumberTarget(client, topic)
            await target.open("me")
            assert await target.store(portion(0, 4)) == 4
            assert await target.store(portion(2, 4)) == 2
            assert await target.store(portion(10, 3, step=5)) == 3
            rows = await contents(client, topic)
            assert [row[3] for row in rows] == [
                b"0",
                b"1",
                b"2",
                b"3",
                b"4",
                b"5",
                b"10",
                b"15",
                b"20",
            ]
            assert {row[5] for row in rows} == {TIME}
            large = portion(30, 1)
            large.columns.bodies = [bytes(9 * BODY_BYTES_MAX)]
            with pytest.raises(TooLarge, match="near message 0:30"):
                await target.store(large)

    asyncio.run(scenario())


def test_without_numbers_a_repeat_is_known_by_its_id() -> None:
    async def scenario() -> None:
        async with penstock.connect("memory:target-ids") as client:
            loose = portion(0, 3)
            loose.numbers = None
            assert await publish_by_id(client, "t", loose) == 3
            assert await publish_by_id(client, "t", loose) == 0
            target = await opened(client, "t")
            assert await target.store(loose) == 0
            (first, *rest) = await contents(client, "t")
            assert first[2] == {PUBLISHED_AT: str(TIME)}
            assert len(rest) == 2

    asyncio.run(scenario())


def test_a_target_is_one_topic() -> None:
    for kind in (UnitTarget, NumberTarget):
        with pytest.raises(InvalidName):
            kind(penstock.connect("memory:"), "a.#")
