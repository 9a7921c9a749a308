"""A source goes on where it was; what is not safe in the target comes again."""

import asyncio

from penstock.client.bridging.done import Done
from penstock.client.bridging.sources import Ending, ReaderSource, SubscriptionSource
from penstock.client.client import Client
from tests.client.bridging.world import IDLE_S, filled, some


async def numbers(source: ReaderSource | SubscriptionSource, done: Done, safe: int) -> list[int]:
    """What comes, of which the first so many become safe before it is closed."""
    found: list[int] = []
    async for portion in source.portions(done, Ending(follows=False)):
        assert portion.numbers is not None
        found += portion.numbers
        if len(found) <= safe:
            await source.safe(portion)
    return found


async def stopped_after(source: ReaderSource, portions: int) -> list[int]:
    found: list[int] = []
    ending = Ending(follows=False)
    async for portion in source.portions(Done(), ending):
        assert portion.numbers is not None
        found += portion.numbers
        await source.safe(portion)
        portions -= 1
        if not portions:
            ending.stop()
    await source.close()
    return found


def test_a_reader_goes_on_behind_what_was_safe() -> None:
    async def scenario() -> None:
        async with filled("memory:source-reader", "t", some(10)) as client:
            first = ReaderSource(client, "t", "r", 4)
            identity = await first.open()
            assert await stopped_after(first, 1) == [0, 1, 2, 3]
            second = ReaderSource(client, "t", "r", 4)
            assert await second.open() == identity
            assert await numbers(second, Done(), 100) == [4, 5, 6, 7, 8, 9]
            third = ReaderSource(client, "t", "r", 4)
            await third.open()
            assert await numbers(third, Done(), 100) == []

    asyncio.run(scenario())


def test_what_the_target_has_is_not_read_again() -> None:
    async def scenario() -> None:
        async with filled("memory:source-done", "t", some(10)) as client:
            source = ReaderSource(client, "t", "r", 100)
            await source.open()
            done = Done()
            done.add(0, 0, 7)
            assert await numbers(source, done, 100) == [7, 8, 9]

    asyncio.run(scenario())


def test_portions_cover_the_numbers_between_them() -> None:
    async def scenario() -> None:
        async with filled("memory:source-cover", "t", some(10)) as client:
            source = ReaderSource(client, "t", "r", 3)
            await source.open()
            found = [each async for each in source.portions(Done(), Ending(follows=False))]
            assert [(each.start, each.end) for each in found] == [(0, 3), (3, 6), (6, 9), (9, 10)]

    asyncio.run(scenario())


def test_a_new_reader_has_a_new_identity() -> None:
    async def scenario() -> None:
        async with filled("memory:source-identity", "t", some(1)) as client:
            found = set()
            for name in ("r", "s"):
                found.add(await ReaderSource(client, "t", name, 1).open())
            await client.delete_topic("t")
            await client.create_topic("t")
            found.add(await ReaderSource(client, "t", "r", 1).open())
            assert len(found) == 3

    asyncio.run(scenario())


def test_a_subscription_hands_out_again_what_was_not_acked() -> None:
    async def taken(client: Client, limit: int, count: int) -> list[int]:
        source = SubscriptionSource(client, "t", "s", 4, IDLE_S)
        await source.open()
        found: list[int] = []
        ending = Ending(follows=False)
        portions = source.portions(Done(), ending)
        async for portion in portions:
            assert portion.numbers is not None
            if len(found) + portion.count > limit:
                break  # as one that dies before the target answers
            found += portion.numbers
            if len(found) == count:
                ending.stop()
        await portions.aclose()  # type: ignore[attr-defined]  # it is a generator
        await source.close()
        return found

    async def scenario() -> None:
        async with filled("memory:source-shared", "t", some(10)) as client:
            first = await taken(client, 5, 10)
            second = await taken(client, 100, 6)
            assert first == [0, 1, 2, 3]
            assert sorted(second) == [4, 5, 6, 7, 8, 9]

    asyncio.run(scenario())


def test_a_pause_ends_when_told() -> None:
    async def scenario() -> None:
        ending = Ending(follows=True)
        asyncio.get_running_loop().call_later(0.01, ending.stop)
        async with asyncio.timeout(20):
            await ending.pause(60)
        assert ending.was_told()

    asyncio.run(scenario())
