import asyncio
import shutil
from pathlib import Path
from unittest.mock import AsyncMock, patch

import pytest

from penstock.client.client import connect
from penstock.pipeline.operations import resume
from penstock.pipeline.refusals import CheckpointAhead, SourceDiffers
from penstock.pipeline.rewinding import held_from, missing, rewind, shown
from penstock.vocabulary.errors import Unsupported
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
            with pytest.raises(SourceDiffers, match=r"no longer holds 0:2 to 0:5.*--skip-missing"):
                await rewind(client, reader, {0: 2})
            assert await held_from(client, "t") == {0: 5}
            assert [each.end for each in await reader.plan()] == [6]
            assert await rewind(client, reader, {0: 5}) is reader

    asyncio.run(steps())


def test_looking_at_what_is_held_lets_nothing_go() -> None:
    async def steps() -> None:
        async with connect("memory:") as client:
            await client.create_topic("t", 2, retain_s=1e6)
            await client.publish_many("t", [Message(body=b"x", key="k")] * 5)
            before = await client.describe_topic("t")
            assert await held_from(client, "t") == {0: 0, 1: 0}
            assert await client.describe_topic("t") == before

    asyncio.run(steps())


def test_a_broker_that_does_not_tell_what_it_holds_is_named() -> None:
    async def steps() -> None:
        async with connect("memory:") as client:
            with (
                patch.object(type(client), "describe_topic", AsyncMock(return_value={})),
                pytest.raises(Unsupported, match="does not tell what it holds"),
            ):
                await held_from(client, "t")

    asyncio.run(steps())


def test_what_is_missing_lies_between_the_tables_and_the_topic() -> None:
    found = missing({0: 20, 1: 9}, {0: 40, 1: 3, 2: 7})
    assert found == [(0, 20, 40), (2, 0, 7)]
    assert shown(found) == "0:20 to 0:40, 2:0 to 2:7"
    assert missing({0: 5}, {}) == []
