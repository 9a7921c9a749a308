import asyncio

import msgspec

import penstock
from penstock.cli.bench.pipeline import readings
from penstock.pipeline.datasets import pms
from penstock.pipeline.datasets.raw import raw_batch


def test_every_reading_is_right_and_says_something_of_its_own() -> None:
    bodies = [readings.body(number) for number in range(5_000)]
    found = pms.DATASET.validate(raw_batch(bodies))
    assert not found.refused
    keys = {
        (one["pms_id"], one["pack"]["id"], one["time_local"])
        for one in map(msgspec.json.decode, bodies)
    }
    assert len(keys) == len(bodies)
    assert 270 <= sum(map(len, bodies)) / len(bodies) <= 310


def test_a_topic_is_filled() -> None:
    async def steps() -> int:
        await readings.fill_penstock("memory:filled", "t", 12_000, partitions=2)
        async with penstock.connect("memory:filled") as client:
            return sum((await client.describe_topic("t"))["ends"])

    async def kept() -> int:
        async with penstock.connect("memory:filled"):
            return await steps()

    assert asyncio.run(kept()) == 12_000
