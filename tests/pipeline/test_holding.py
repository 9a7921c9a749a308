import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import connect
from penstock.pipeline import holding
from penstock.pipeline.flow import Consumer
from penstock.pipeline.refusals import ReaderTaken, SourceDiffers
from penstock.vocabulary.limits import READER_OWNER_BYTES_MAX
from tests.pipeline.lane import Lane, readings
from tests.pipeline.test_flow import numbers


def second(lane: Lane, name: str, extra: str = "") -> Lane:
    """Another file with the same source, and a table and a checkpoint of its own."""
    folder = lane.folder / f"second-{name}"
    folder.mkdir()
    found = Lane(folder, extra=extra)
    text = found.file.read_text(encoding="utf-8").replace(found.url, lane.url)
    found.file.write_text(text.replace("[pipeline.pms]", f"[pipeline.{name}]"), encoding="utf-8")
    found.url = lane.url
    return found


@pytest.mark.parametrize("name", ["two", "pms"])
def test_the_reader_of_another_pipeline_is_refused_and_a_subscription_of_its_own_is_not(
    tmp_path: Path, name: str
) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(10))
    assert lane.run().stored == 10
    with pytest.raises(ReaderTaken, match="is the reader of pipeline 'pms'"):
        second(lane, name).run()
    lane.post(readings(5, 10))
    assert lane.run().stored == 5, "the first one goes on"
    (tmp_path / f"second-{name}").rename(tmp_path / "refused")
    other = second(lane, name, 'subscription = "second"\n')
    assert numbers(other.run()) == (15, 15, 0, 0)


def test_two_pipelines_at_the_same_time_do_not_fence_each_other(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(10))
    other = second(lane, "two").pipeline

    async def steps() -> None:
        async with connect(lane.url) as client, Consumer(lane.pipeline, client) as first:
            with pytest.raises(ReaderTaken, match=r"\[pipeline.two\] a subscription of its own"):
                async with Consumer(other, client):
                    pass
            assert (await first.run()).stored == 10

    asyncio.run(steps())


def test_a_pipeline_that_read_nothing_may_still_change_its_table(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post([])
    lane.run()
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(text.replace("/warehouse", "/another"), encoding="utf-8")
    lane.post(readings(3))
    assert lane.run().stored == 3


def test_an_owner_names_its_pipeline(tmp_path: Path) -> None:
    pipeline = Lane(tmp_path).pipeline
    owner = holding.new_owner(pipeline)
    assert owner != holding.new_owner(pipeline)
    assert holding.holder_in(owner) == holding.holder_of(pipeline)
    assert holding.holder_in("spark-1234") is None
    long = pipeline._replace(name="ü" * 64)
    assert len(holding.new_owner(long).encode()) <= READER_OWNER_BYTES_MAX
    assert holding.holder_in(holding.new_owner(long)) == holding.holder_of(long)


async def _replaced(lane: Lane) -> None:
    async with connect(lane.url) as client:
        await client.delete_subscription(lane.topic, "analytics.pms_monitoring")
        await client.delete_topic(lane.topic)


@pytest.mark.parametrize("count", [5, 100])
def test_a_topic_that_was_replaced_is_refused(tmp_path: Path, count: int) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(50))
    lane.run()
    asyncio.run(_replaced(lane))
    lane.post(readings(count, 1_000))
    for _ in range(2):
        with pytest.raises(SourceDiffers, match="the topic was trimmed or deleted"):
            lane.run()
    assert len(lane.rows()) == 50


def test_a_table_that_ends_behind_its_topic_is_refused(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(5))

    async def steps() -> Any:
        async with connect(lane.url) as client:
            await holding.check_ends(client, lane.pipeline, {0: 5})
            with pytest.raises(SourceDiffers, match="0:6"):
                await holding.check_ends(client, lane.pipeline, {0: 6})

    asyncio.run(steps())
