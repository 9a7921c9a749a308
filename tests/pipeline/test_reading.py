import asyncio

import numpy as np
import pyarrow as pa
import pytest

from penstock.client.client import connect
from penstock.pipeline.reading import numbered, raw_of
from penstock.vocabulary.message import Message


def test_messages_become_columns_with_their_offsets_ids_and_headers() -> None:
    async def read() -> pa.Table:
        async with connect("memory:") as client:
            await client.publish("t", b"plain")
            await client.publish_many(
                "t",
                [
                    Message(body=b"a", id="one", headers={"source": "site"}),
                    Message(body=b"again", id="one"),
                    Message(body=None, id="two", headers={"content-type": "text/csv"}),
                ],
            )
            reader = await client.reader("t", "r", owner="me")
            await reader.plan()
            parts = [raw async for each in reader.batches(0, 0, 3) for raw in raw_of(each)]
            return pa.Table.from_batches(parts)

    found = asyncio.run(read())
    assert found.column("body").to_pylist() == [b"plain", b"a", None]
    assert found.column("offset").to_pylist() == [0, 1, 2]
    assert found.column("id").to_pylist()[1:] == ["one", "two"]
    assert found.column("id").to_pylist()[0]
    assert found.column("sender").to_pylist() == [None, "site", None]
    assert found.column("content_type").to_pylist() == [None, None, "text/csv"]
    assert all(each.year >= 2020 for each in found.column("received").to_pylist())


def test_ids_that_nobody_gave_are_different_in_every_partition() -> None:
    async def read() -> list[str]:
        async with connect("memory:") as client:
            await client.create_topic("t", 3)
            for number in range(30):
                await client.publish("t", b"x", key=f"k{number % 6}")
            await client.publish_many("t", [Message(body=b"x", key="k1"), Message(id="own")])
            reader = await client.reader("t", "r", owner="me")
            planned = await reader.plan()
            return [
                id
                for partition, start, end in planned
                async for each in reader.batches(partition, start, end)
                for raw in raw_of(each)
                for id in raw.column("id").to_pylist()
            ]

    found = asyncio.run(read())
    assert len(found) == len(set(found)) == 32
    assert "own" in found


@pytest.mark.parametrize("first", [0, 1, 14, 15, 254, 2**32 - 3, 2**63 - 5, 2**64 - 40])
@pytest.mark.parametrize("step", [1, 3])
def test_many_numbered_ids_are_those_made_one_by_one(first: int, step: int) -> None:
    numbers = [first + each for each in range(0, 40, step)]
    found = numbered("é-", np.array(numbers, np.uint64), ".1")
    assert found.to_pylist() == [f"é-{each:x}.1" for each in numbers]
    assert numbered("é-", np.array([], np.uint64), ".1").to_pylist() == []
