import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import connect
from penstock.client.identified import Numbered
from penstock.vocabulary.errors import InvalidArgument, PublisherFenced
from penstock.vocabulary.message import Message


def numbered(*numbers: int) -> list[tuple[int, Message]]:
    return [(number, Message(body=str(number).encode())) for number in numbers]


async def bodies(client: Any) -> list[bytes]:
    return [message.body for message in await client.peek("t", 10_000)]


def test_a_number_is_stored_once_however_often_it_comes(tmp_path: Path) -> None:
    async def first() -> None:
        async with connect(f"file:{tmp_path}") as client:
            publisher = Numbered(client, "t", 0, publisher="p/q/0", epoch=1)
            assert await publisher.publish(numbered(0, 5, 1024)) == 3
            assert await publisher.publish(numbered(5, 1024, 1025)) == 1
            assert await publisher.publish([]) == 0

    async def later() -> None:
        async with connect(f"file:{tmp_path}") as client:
            publisher = Numbered(client, "t", 0, publisher="p/q/0", epoch=1)
            assert await publisher.publish(numbered(0, 5, 1024, 1025, 4096)) == 1
            other = Numbered(client, "t", 0, publisher="p/q/1", epoch=1)
            assert await other.publish(numbered(5)) == 1
            assert await bodies(client) == [b"0", b"5", b"1024", b"1025", b"4096", b"5"]

    asyncio.run(first())
    asyncio.run(later())


def test_many_go_together_and_numbers_must_rise() -> None:
    async def steps() -> None:
        async with connect("memory:") as client:
            publisher = Numbered(client, "t", 0, publisher="p", epoch=1)
            assert await publisher.publish(numbered(*range(0, 5_000, 2))) == 2_500
            assert await publisher.publish(numbered(*range(0, 5_002, 2))) == 1
            with pytest.raises(InvalidArgument, match="numbers must rise"):
                await publisher.publish(numbered(9_001, 9_000))

    asyncio.run(steps())


def test_a_run_goes_in_batches_and_is_stored_once_however_often_it_comes(tmp_path: Path) -> None:
    given = [Message(body=b"%d" % at) for at in range(2_500)]
    large = [Message(body=b"x" * 700_000), Message(body=b"y" * 700_000), Message(body=None)]

    async def steps(expected: int) -> None:
        async with connect(f"file:{tmp_path}") as client:
            publisher = Numbered(client, "t", 0, publisher="p/q/0", epoch=1)
            assert await publisher.publish_run(1024, given) == expected * len(given)
            assert await publisher.publish_run(4096, large) == expected * len(large)
            assert await publisher.publish_run(8192, []) == 0

    asyncio.run(steps(1))
    asyncio.run(steps(0))

    async def look() -> list[Any]:
        async with connect(f"file:{tmp_path}") as client:
            return await client.peek("t", 10_000)

    found = asyncio.run(look())
    assert [each.body for each in found] == [each.body for each in [*given, *large]]
    assert len({each.id for each in found}) == len(found)


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_a_run_of_small_bodies_and_large_headers_fits_its_batches(letter: str) -> None:
    text = letter * (16_000 // len(letter.encode()))
    given = [Message(body=b"", key="k" * 1_024, headers={"a": text})] * 1_000

    async def steps() -> None:
        async with connect("memory:") as client:
            publisher = Numbered(client, "t", 0, publisher="p", epoch=1)
            assert await publisher.publish_run(0, given) == 1_000
            assert await publisher.publish_run(0, given) == 0

    asyncio.run(steps())


def test_a_run_that_was_sent_in_part_is_completed(tmp_path: Path) -> None:
    given = [Message(body=b"%d" % at) for at in range(2_500)]

    async def steps() -> None:
        async with connect(f"file:{tmp_path}") as client:
            publisher = Numbered(client, "t", 0, publisher="p/q/0", epoch=1)
            assert await publisher.publish_run(1024, given[:1_000]) == 1_000  # then it died
            assert await publisher.publish_run(1024, given) == 1_500
            assert await bodies(client) == [each.body for each in given]

    asyncio.run(steps())


def test_a_new_epoch_fences_the_old_one() -> None:
    async def steps() -> None:
        async with connect("memory:") as client:
            old = Numbered(client, "t", 0, publisher="p", epoch=1)
            new = Numbered(client, "t", 0, publisher="p", epoch=2)
            assert await old.publish(numbered(7)) == 1
            assert await new.publish(numbered(3)) == 1
            with pytest.raises(PublisherFenced):
                await old.publish(numbered(8))

    asyncio.run(steps())
