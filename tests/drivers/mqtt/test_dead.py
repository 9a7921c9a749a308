"""Dead letters in a store of ours."""

import asyncio
from pathlib import Path

import pytest

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.mqtt.dead import Taker, check_url, open_store
from penstock.vocabulary.errors import DeadLetterFull, InvalidArgument

DEAD = "a/b.dead.billing"


def letter(number: int, **fields: object) -> Letter:
    given = {"body": b"x", "id": f"id-{number}", "dedup": f"dead billing {number} 1", **fields}
    return Letter(**given)  # type: ignore[arg-type]


def test_they_are_stored_once_looked_at_and_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await open_store(f"file:{tmp_path}")
        assert await store.count(DEAD) is None
        letters = [letter(number, key="k", attempts=3, body=None) for number in range(3)]
        await store.put(DEAD, letters, 10_000)
        await store.put(DEAD, letters, 10_000)  # tried again
        assert await store.count(DEAD) == 3
        found = await store.look(DEAD, 2)
        assert [each.id for each in found] == ["id-0", "id-1"]
        assert (found[0].key, found[0].attempts, found[0].body) == ("k", 3, None)
        await store.remove(DEAD, found[1:])
        await store.remove(DEAD, [])
        assert await store.topics() == [DEAD]
        await store.close()
        store = await open_store(f"file:{tmp_path}")
        assert [each.id for each in await store.look(DEAD, 10)] == ["id-0", "id-2"]
        again = letter(1, dedup="dead billing 1 2")
        await store.put(DEAD, [again], 10_000)
        assert len(await store.look(DEAD, 10)) == 3
        await store.close()

    asyncio.run(scenario())


def test_a_full_store_refuses(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await open_store(f"file:{tmp_path}")
        with pytest.raises(DeadLetterFull, match="may hold 10"):
            await store.put(DEAD, [letter(1, body=bytes(11))], 10)
        await store.close()

    asyncio.run(scenario())


def test_the_option_names_a_folder() -> None:
    assert check_url("file:./dead") == "file:./dead"
    for url in ("./dead", "file:", "memory:"):
        with pytest.raises(InvalidArgument, match="'dead' names a store"):
            check_url(url)


def test_a_taker_gives_up_with_its_consumer() -> None:
    taker = Taker({1})
    taker.on_closed(ValueError())
    assert taker.ended.is_set()
    assert taker.claims == []
