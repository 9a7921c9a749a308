from pathlib import Path

import pytest

from penstock.pipeline.operations import compact_tables
from penstock.pipeline.repositories.choose import open_repository
from penstock.pipeline.repositories.viewing import EMPTY, View, view
from penstock.vocabulary.errors import StorageError
from tests.pipeline.lane import Lane, readings


@pytest.fixture(params=["delta", "parquet"])
def lane(tmp_path: Path, request: pytest.FixtureRequest) -> Lane:
    found = Lane(tmp_path, extra="max_rows_per_batch = 10\n")
    text = found.file.read_text(encoding="utf-8").replace("delta:", f"{request.param}:")
    found.file.write_text(text, encoding="utf-8")
    return found


def looked(lane: Lane, pipeline: str = "pms") -> View:
    return view(lane.pipeline.repositories[0], lane.pipeline.table, pipeline)


def test_a_table_in_use_is_looked_at(lane: Lane) -> None:
    assert looked(lane) == EMPTY
    assert not (lane.folder / "warehouse").exists()
    lane.post(readings(25))
    lane.run()
    pipeline = lane.pipeline
    table = open_repository(pipeline.repositories[0], pipeline.table, pipeline.dataset)
    try:
        assert looked(lane) == View({1: 2}, 25)
        assert looked(lane, "other") == View({}, 25)
    finally:
        table.close()
    compact_tables(pipeline)
    assert looked(lane) == View({1: 2}, 25)


def test_files_that_a_writer_has_staged_are_left_alone(lane: Lane) -> None:
    lane.post(readings(5))
    lane.run_and_die("files written")
    before = sorted(lane.folder.joinpath("warehouse").rglob("*"))
    assert looked(lane) == EMPTY
    assert sorted(lane.folder.joinpath("warehouse").rglob("*")) == before


def test_a_table_that_cannot_be_read_is_named(lane: Lane) -> None:
    lane.post(readings(5))
    lane.run()
    for path in lane.folder.joinpath("warehouse").rglob("0*.json"):
        path.write_text("{")
    with pytest.raises(StorageError, match=r"cannot be read|is no manifest"):
        looked(lane)
