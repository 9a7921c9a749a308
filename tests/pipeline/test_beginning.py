"""A pipeline that starts over loses nothing to what it published in an earlier life."""

import asyncio
import shutil
from pathlib import Path

from penstock.client.client import connect
from penstock.pipeline.beginning import publisher_of
from penstock.pipeline.flow import Consumer
from penstock.pipeline.operations import resume
from tests.pipeline.lane import Lane, readings


def told(lane: Lane) -> list[bytes | None]:
    async def steps() -> list[bytes | None]:
        async with connect(lane.url) as client:
            return [each.body for each in await client.peek(lane.pipeline.quarantine, 100)]

    return asyncio.run(steps())


def start_over(lane: Lane) -> None:
    async def steps() -> None:
        async with connect(lane.url) as client:
            await client.delete_topic(lane.topic)

    asyncio.run(steps())
    shutil.rmtree(lane.folder / "checkpoint")
    shutil.rmtree(lane.folder / "warehouse")


def epochs(lane: Lane) -> list[int]:
    lines = (lane.folder / "checkpoint" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    return [int(line.partition('"epoch":')[2].partition(",")[0]) for line in lines]


def test_what_is_refused_after_a_start_over_is_in_quarantine(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post([b"a", b"b", *readings(2)])
    lane.run()
    assert epochs(lane) == [1]
    start_over(lane)
    lane.post([b"c", *readings(2)])
    assert lane.run().quarantined == 1
    assert told(lane) == [b"a", b"b", b"c"]
    assert epochs(lane) == [2]
    resume(lane.pipeline)
    lane.post([b"d"])
    lane.run()
    start_over(lane)
    lane.post([b"e"])
    lane.run()  # under epoch 1 it would be fenced
    assert told(lane) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_first_life_begins_with_epoch_one_however_often_it_is_run(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    for _ in range(3):
        lane.run()
    lane.post([b"a"])
    lane.run()
    assert epochs(lane) == [1]
    assert publisher_of(lane.pipeline, "events", 3) == "pms/events/3"


def test_an_epoch_that_a_copy_knows_nothing_of_is_not_used_again(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 1\n")
    lane.post(readings(2))
    lane.run()
    for each in ("checkpoint", "warehouse"):
        shutil.copytree(tmp_path / each, tmp_path / f"{each}.copy")
    shutil.rmtree(tmp_path / "checkpoint")
    resume(lane.pipeline)
    lane.post([b"a", b"b"])
    lane.run()
    assert told(lane) == [b"a", b"b"]
    for each in ("checkpoint", "warehouse"):
        shutil.rmtree(tmp_path / each)
        (tmp_path / f"{each}.copy").rename(tmp_path / each)
    lane.post([b"c"])
    resume(lane.pipeline)
    assert lane.run().quarantined == 3
    assert told(lane) == [b"a", b"b", b"a", b"b", b"c"]
    assert epochs(lane) == [1, 1, 2, 3, 3, 3, 3]


def test_an_epoch_that_was_asked_for_is_kept_until_a_batch_comes(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post([b"a", *readings(2)])
    lane.run()
    resume(lane.pipeline)

    async def steps() -> None:
        async with connect(lane.url) as client:  # one broker, which remembers what was taken
            for _ in range(3):
                async with Consumer(lane.pipeline, client) as consumer:
                    await consumer.run()

    asyncio.run(steps())
    assert epochs(lane) == [1, 2, 2], "opened, asked for, and not again"


def test_a_copy_of_an_epoch_without_a_batch_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post([b"a", *readings(2)])
    lane.run()
    resume(lane.pipeline)
    lane.run()
    for each in ("checkpoint", "warehouse"):
        shutil.copytree(tmp_path / each, tmp_path / f"{each}.copy")
    lane.post([b"b"])
    lane.run()
    for each in ("checkpoint", "warehouse"):
        shutil.rmtree(tmp_path / each)
        (tmp_path / f"{each}.copy").rename(tmp_path / each)
    lane.post([b"c"])
    assert lane.run().quarantined == 2
    assert told(lane) == [b"a", b"b", b"b", b"c"]
