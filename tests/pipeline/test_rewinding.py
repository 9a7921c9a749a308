import asyncio
import shutil
from pathlib import Path

import pytest

from penstock.client.client import connect
from penstock.pipeline.operations import resume
from penstock.pipeline.refusals import CheckpointAhead, PipelineRefused
from penstock.pipeline.rewinding import rewind
from penstock.vocabulary.message import Message
from tests.pipeline.lane import Lane, readings


def test_a_table_from_an_older_copy_gets_back_what_it_lacks(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 10\n")
    lane.post(readings(20), partitions=2)
    lane.run()
    shutil.copytree(tmp_path / "warehouse", tmp_path / "older")
    lane.post(readings(30, 20))
    lane.run()
    shutil.rmtree(tmp_path / "warehouse")
    shutil.move(tmp_path / "older", tmp_path / "warehouse")
    with pytest.raises(CheckpointAhead):
        lane.run()
    assert sum(resume(lane.pipeline).values()) == 20
    lane.post(readings(5, 50))
    assert lane.run().stored == 35
    assert sorted(row["pack"]["amps"] for row in lane.rows()) == [at / 8 for at in range(55)]


def test_what_the_broker_let_go_is_refused_and_nothing_more_is_lost() -> None:
    async def steps() -> None:
        async with connect("memory:") as client:
            await client.create_topic("t", retain_s=0.0)
            reader = await client.reader("t", "r", owner="me")
            await client.publish_many("t", [Message(body=b"x")] * 5)
            await reader.plan()
            await reader.commit({0: 5})
            await client.publish("t", b"unread")
            with pytest.raises(PipelineRefused, match="no longer holds 0:2 to 0:5"):
                await rewind(client, reader, {0: 2})
            assert [each.end for each in await reader.plan()] == [6]
            assert await rewind(client, reader, {0: 5}) is reader

    asyncio.run(steps())
