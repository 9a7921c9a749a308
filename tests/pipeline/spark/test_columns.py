"""Messages as Arrow columns."""

import asyncio
import json
from pathlib import Path

import pytest

from penstock.client.client import connect
from penstock.pipeline.datasets import finding
from penstock.pipeline.spark import columns
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.message import Message
from tests.pipeline.lane import Lane, readings

PMS = finding.find("pms")


def test_everything_a_message_has_is_a_column(tmp_path: Path) -> None:
    lane = Lane(tmp_path)

    async def steps() -> None:
        async with connect(lane.url) as client:
            await client.create_topic(lane.topic, replay_s=1e6)
            await client.publish_many(
                lane.topic,
                [
                    Message(body=b"one", id="first", key="k", headers={"a": "1", "b": "2"}),
                    Message(body=b"", key=b"\xff"),
                    Message(body=None, headers={"c": "3"}),
                ],
            )

    asyncio.run(steps())
    rows = [
        row for part in columns.bodies(lane.batches(), columns.BODIES) for row in part.to_pylist()
    ]
    assert [row["body"] for row in rows] == [b"one", b"", None]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert [row["key"] for row in rows] == [b"k", b"\xff", None]
    assert rows[0]["id"] == "first"
    assert rows[1]["id"]
    assert [dict(row["headers"]) for row in rows] == [{"a": "1", "b": "2"}, {}, {"c": "3"}]
    assert {row["published_at"].tzinfo is not None for row in rows} == {True}


def test_only_the_columns_asked_for_are_made(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post([b"x"])
    wanted = columns.chosen(columns.BODIES, ["body", "offset"])
    (found,) = columns.bodies(lane.batches(), wanted)
    assert found.schema.names == ["body", "offset"]
    with pytest.raises(InvalidArgument, match=r"no 'bodie'; known: partition, offset"):
        columns.chosen(columns.BODIES, ["bodie"])


def test_typed_rows_are_those_of_the_dataset_and_refused_messages_stay_visible(
    tmp_path: Path,
) -> None:
    lane = Lane(tmp_path)
    lane.post([*readings(5), b"nonsense", *readings(5, 5)])
    schema = columns.typed_schema(PMS)
    rows = [row for part in columns.typed(lane.batches(), PMS, schema) for row in part.to_pylist()]
    assert len(rows) == 11
    good = [row for row in rows if row["_reasons"] is None]
    (bad,) = (row for row in rows if row["_reasons"] is not None)
    assert [row["_offset"] for row in good] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert {row["_body"] for row in good} == {None}
    assert (bad["_body"], bad["_offset"], bad["pms_id"]) == (b"nonsense", 5, None)
    assert json.loads(bad["_reasons"])[0]["rule"] == "json"
