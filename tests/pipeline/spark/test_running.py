"""What is checked before a session starts, and that everything is let go of again."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.client import connect
from penstock.gateway.samples import from_json
from penstock.pipeline import operations
from penstock.pipeline.flow import ensure_topic
from penstock.pipeline.refusals import (
    BadPipelineFile,
    CheckpointMissing,
    PipelineRunning,
    TableLocked,
)
from penstock.pipeline.repositories.choose import open_repository
from penstock.pipeline.repositories.files import read_file as read_rows
from penstock.pipeline.settings import Pipeline, read_file
from penstock.pipeline.spark import kafka_link, running
from penstock.pipeline.spark.refusals import JarsMissing, JavaMissing, QueryFailed
from penstock.vocabulary.errors import Unavailable, Unsupported
from penstock.vocabulary.message import Message
from tests.pipeline.lane import Lane, readings
from tests.pipeline.spark import world
from tests.servers.fixtures import unique

POSTED = Path(__file__).parents[1] / "data"


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


def test_a_run_that_is_refused_leaves_the_reader_where_it_is(lane: Lane) -> None:
    lane.run()
    operations.resume(lane.pipeline)
    lane.post(readings(2, 3))
    lane.run()  # in process: the ledger knows a batch of this epoch, and Spark's checkpoint none
    with pytest.raises(CheckpointMissing), running.opened([_pipeline(lane)]):
        pass

    async def lag() -> int | None:
        async with connect(lane.url) as client:
            return (await operations.status(_pipeline(lane), client)).lag

    assert asyncio.run(lag()) == 0, "it was moved back to the beginning of the epoch"


@pytest.mark.parametrize("scheme", ["penstock", "kafka"])
def test_a_broker_that_is_not_there_is_told(
    lane: Lane, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_link, "ASK_S", 1.0)
    pipeline = _pipeline(lane)._replace(url=f"{scheme}://127.0.0.1:9")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        _run(pipeline)
    assert not Path(pipeline.folders()[0]).exists(), "no table is made for it"


def test_the_writer_of_spark_writes_delta_tables_only(lane: Lane) -> None:
    _pipeline(lane, 'writer = "spark"\n')
    text = lane.file.read_text(encoding="utf-8").replace("delta:", "parquet:")
    lane.file.write_text(text, encoding="utf-8")
    with pytest.raises(BadPipelineFile, match="key writer: Spark writes delta: tables, not 'parq"):
        read_file(str(lane.file))


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


FILE = """
[pipeline.mppt]
source = "{url}/{topic}.mppt"
dataset = "mppt"
subscription = "{topic}.mppt.s"
repository = "delta:{folder}/warehouse"
publish = "{topic}.rows"
checkpoint = "{folder}/checkpoints/mppt"

[pipeline.inverter]
source = "{url}/{topic}.inverter"
dataset = "inverter"
subscription = "{topic}.inverter.s"
repository = ["delta:{folder}/warehouse", "parquet:{folder}/plain"]
checkpoint = "{folder}/checkpoints/inverter"

[pipeline.pms]
source = "{url}/{topic}.pms"
dataset = "pms"
subscription = "{topic}.pms.s"
repository = "parquet:{folder}/plain"
checkpoint = "{folder}/checkpoints/pms"
max_rows_per_batch = 10
compact_files = 3
"""


def test_every_dataset_goes_into_every_repository_in_one_session(
    spark: Any, served: str, tmp_path: Path
) -> None:
    """Devices post, the gateway's messages go through Spark; rows, forwarded rows and files."""
    topic = unique("monitoring")
    file = tmp_path / "pipeline.toml"
    file.write_text(FILE.format(url=served, topic=topic, folder=tmp_path), encoding="utf-8")
    pipelines = list(read_file(str(file)).pipelines.values())
    for each in pipelines[:2]:
        body = (POSTED / f"post-{each.name}.json").read_bytes()
        asyncio.run(_publish(served, each.topic, from_json(each.dataset, body, {"source": "site"})))
    world.post(served, f"{topic}.pms", readings(40))
    lanes = running.run(pipelines, {}, threading.Event(), started=spark)
    assert [(each.counts.read, each.counts.stored) for each in lanes] == [(1, 1), (4, 4), (40, 40)]

    mppt, inverter, pms = pipelines
    (row,) = _rows(mppt, 0)
    assert (row["mppt_id"], row["sender"]) == ("IT6415AD-01-012", "site")
    assert row["pv"] == [{"volts": 48.0, "amps": 6.0, "watts": 288.0}] * 2
    assert row["battery"] == {"volts": 55.1, "amps": 0.0, "watts": 0.0}
    assert (row["status"]["bus_connect"], row["status"]["charging"]) == (True, "not-charging")
    (told,) = asyncio.run(_peeked(served, f"{topic}.rows"))
    forwarded = json.loads(told.body)
    assert told.headers["type"] == "penstock.row.mppt"
    assert (forwarded["pv"], forwarded["load"]) == (row["pv"], row["load"])
    assert forwarded["time_event"] == "2020-02-09 08:00:06.0320"

    one, two = (sorted(_rows(inverter, at), key=repr) for at in (0, 1))
    assert one == two, "both repositories hold the same"
    assert [each["inverter_id"][-1] for each in one] == ["1", "1", "2", "2"]
    assert [cell["watts"] for cell in one[0]["grid"]] == [91.7848] * 3
    assert sorted(each["pack"]["amps"] for each in _rows(pms, 0)) == [at / 8 for at in range(40)]
    storage = open_repository(pms.repositories[0], pms.table, pms.dataset)
    assert len(storage.files()) < lanes[2].batches == 4, "small files were merged on the way"
    storage.close()


async def _publish(url: str, topic: str, messages: list[Message]) -> None:
    async with connect(url) as client:
        await ensure_topic(client, topic)
        await client.publish_many(topic, messages)


async def _peeked(url: str, topic: str) -> list[Any]:
    async with connect(url) as client:
        return list(await client.peek(topic, 100))


def _rows(pipeline: Pipeline, number: int) -> list[dict[str, Any]]:
    storage = open_repository(pipeline.repositories[number], pipeline.table, pipeline.dataset)
    try:
        parts = [read_rows(storage.root, storage.dataset, each) for each in storage.files()]
        return [dict(row) for row in pa.concat_tables(parts).to_pylist()]
    finally:
        storage.close()


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

    def ask_to_stop(self) -> None:
        pass

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


class Stopped(Late):
    """A query that goes on until it is stopped, and tells in which order it is told what."""

    def __init__(self, name: str, told: list[str], *, fails: bool = False) -> None:
        super().__init__(0)
        self.name = name
        self.told = told
        self.fails = fails

    def poll(self) -> None:
        pass

    def ask_to_stop(self) -> None:
        self.told.append(f"ask {self.name}")

    def stop(self) -> None:
        self.told.append(f"stop {self.name}")
        self.is_active = False
        if self.fails:
            raise QueryFailed(f"{self.name} does not stop")


def test_all_are_asked_to_stop_before_one_is_waited_for_and_none_is_forgotten(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    lanes = [Stopped("a", told), Stopped("b", told, fails=True), Stopped("c", told)]

    @contextmanager
    def opened(_pipelines: Sequence[Pipeline], _at: Any) -> Iterator[Sequence[Stopped]]:
        yield lanes

    monkeypatch.setattr(running, "opened", opened)
    monkeypatch.setattr(running, "POLL_S", 0.001)
    stopping = threading.Event()
    with pytest.raises(QueryFailed, match="b does not stop"):
        running.run(
            [_pipeline(lane)], {}, stopping, show=lambda _: stopping.set(), started="session"
        )
    assert told == ["ask a", "ask b", "ask c", "stop a", "stop b", "stop c"]
