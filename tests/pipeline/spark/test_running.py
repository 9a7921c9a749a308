"""What is checked before a session starts, and that everything is let go of again."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.pipeline.refusals import PipelineRunning, TableLocked
from penstock.pipeline.repositories.choose import open_repository
from penstock.pipeline.settings import Pipeline, read_file
from penstock.pipeline.spark import running
from penstock.pipeline.spark.refusals import JarsMissing, JavaMissing
from penstock.vocabulary.errors import Unavailable, Unsupported
from tests.pipeline.lane import Lane, readings


def _pipeline(lane: Lane, extra: str = "") -> Pipeline:
    text = lane.file.read_text(encoding="utf-8").replace('lane = "process"\n', extra)
    lane.file.write_text(text, encoding="utf-8")
    (found,) = read_file(str(lane.file)).pipelines.values()
    return found


@pytest.fixture
def lane(tmp_path: Path) -> Lane:
    found = Lane(tmp_path)
    found.post(readings(3))
    return found


def _run(pipeline: Pipeline, master: str = "local[1]") -> None:
    running.run([pipeline], {"master": master}, threading.Event())


@pytest.mark.parametrize("master", ["yarn", "spark://h:7077"])
def test_a_folder_needs_a_local_master(lane: Lane, master: str) -> None:
    with pytest.raises(Unsupported, match="serve it and use penstock://"):
        _run(_pipeline(lane), master)


def test_no_java_is_told_before_anything_is_read(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaMissing):
        _run(_pipeline(lane))
    with running.opened([_pipeline(lane)]):
        pass  # locks were let go of


def test_a_locked_table_is_told(lane: Lane) -> None:
    pipeline = _pipeline(lane)
    storage = open_repository(pipeline.repositories[0], pipeline.table, pipeline.dataset)
    try:
        with pytest.raises(TableLocked):
            _run(pipeline)
    finally:
        storage.close()


def test_another_run_is_told(lane: Lane) -> None:
    pipeline = _pipeline(lane)
    with running.opened([pipeline]), pytest.raises(PipelineRunning):
        _run(pipeline)


def test_a_broker_that_is_not_there_is_told(lane: Lane) -> None:
    pipeline = _pipeline(lane)._replace(url="penstock://127.0.0.1:9")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        _run(pipeline)


def test_the_writer_of_spark_writes_delta_tables_only(lane: Lane) -> None:
    _pipeline(lane, 'writer = "spark"\n')
    text = lane.file.read_text(encoding="utf-8").replace("delta:", "parquet:")
    lane.file.write_text(text, encoding="utf-8")
    (found,) = read_file(str(lane.file)).pipelines.values()
    with pytest.raises(Unsupported, match='writer = "spark", which writes delta: tables'):
        _run(found)


@pytest.mark.parametrize(
    ("extra", "jars"), [("", "spark-kafka"), ('writer = "spark"\n', "spark-delta")]
)
def test_missing_jars_are_told_before_anything_is_made(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str, jars: str
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "none"))
    pipeline = _pipeline(lane, extra)
    if not extra:
        pipeline = pipeline._replace(url="kafka://127.0.0.1:9")
    assert running.jars_of([pipeline]) == [jars]
    with pytest.raises(JarsMissing, match=f"scripts/servers {jars}"):
        _run(pipeline)
    assert not (lane.folder / "checkpoint").exists()


class Late:
    """A query whose Python comes up too late the first times; it needs a few looks to start."""

    def __init__(self, late: int) -> None:
        self.late = late
        self.starts = 0
        self.looks = 0
        self.is_active = False

    @property
    def is_starting(self) -> bool:
        return self.is_active and self.looks < 3

    def start(self, _spark: Any) -> None:
        self.starts += 1
        self.looks = 0
        self.is_active = True

    def poll(self) -> None:
        self.looks += 1
        self.is_active = self.is_active and self.looks < (3 if self.starts <= self.late else 5)

    def is_to_start_again(self) -> bool:
        return self.starts <= self.late

    def check(self) -> None:
        assert self.starts > self.late

    def stop(self) -> None:
        assert not self.is_active


def test_queries_that_start_again_wait_for_their_turn_too(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = [Late(at % 4) for at in range(9)]
    most = 0

    @contextmanager
    def opened(_pipelines: Sequence[Pipeline], _at: Any) -> Iterator[Sequence[Late]]:
        yield lanes

    def show(_lanes: Any) -> None:
        nonlocal most
        most = max(most, sum(each.is_starting for each in lanes))

    monkeypatch.setattr(running, "opened", opened)
    monkeypatch.setattr(running, "POLL_S", 0.001)
    running.run([_pipeline(lane)], {}, threading.Event(), show=show, started="session")
    assert [each.starts for each in lanes] == [at % 4 + 1 for at in range(9)]
    assert most == running.STARTING_MAX
