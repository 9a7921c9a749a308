"""Pipelines on Spark: exactly once, whatever dies; the same rows as in process; named refusals."""

import asyncio
import shutil
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.client.client import connect
from penstock.gateway.samples import from_csv
from penstock.pipeline import operations
from penstock.pipeline.ledger import Ledger, identity_of
from penstock.pipeline.refusals import (
    CheckpointBehind,
    CheckpointForeign,
    CheckpointMissing,
    CountsDiffer,
    PipelineRunning,
    RangesDiffer,
    SourceDiffers,
)
from penstock.pipeline.settings import Pipeline, read_file
from penstock.pipeline.spark import query, running
from penstock.pipeline.spark.refusals import QueryFailed
from penstock.vocabulary.errors import Unavailable
from tests.pipeline.lane import readings
from tests.pipeline.spark import world
from tests.pipeline.spark.lanes import BATCH, MOMENTS, SparkLane, mixed, whole
from tests.servers.fixtures import unique

CSV = world.ROOT / "tests" / "pipeline" / "data" / "pms-2019-08.csv"


@pytest.fixture
def lane(served: str, tmp_path: Path) -> SparkLane:
    return SparkLane(tmp_path, served, unique("monitoring.pms"), f"max_rows_per_batch = {BATCH}\n")


def test_both_lanes_give_the_same_rows_events_and_refused_readings(
    spark: Any, served: str, tmp_path: Path
) -> None:
    given = mixed(10_000)
    (tmp_path / "spark").mkdir()
    (tmp_path / "process").mkdir()
    lane = SparkLane(tmp_path / "spark", served, unique("monitoring.pms"))
    world.post(served, lane.topic, given, 2)
    counts = lane.run_on(spark)
    assert counts.read == 10_000
    assert counts.quarantined == 100
    assert counts.duplicate >= 10

    other = SparkLane(tmp_path / "process", served, lane.topic)
    text = other.file.read_text(encoding="utf-8")
    text = text.replace(f"{lane.topic}.s", f"{lane.topic}.p").replace(
        'dataset = "pms"\n',
        'dataset = "pms"\nlane = "process"\n'
        f'quarantine = "{lane.topic}.q2"\nevents = "{lane.topic}.e2"\n',
    )
    other.file.write_text(text, encoding="utf-8")
    assert other.run() == counts
    assert _sorted(lane).equals(_sorted(other)), "byte for byte"
    for mine, theirs in (("quarantine", "q2"), ("events", "e2")):
        one = lane.messages(f"{lane.topic}.{mine}")
        two = lane.messages(f"{lane.topic}.{theirs}")
        assert sorted(map(repr, one)) == sorted(map(repr, two))
        assert one

    _same_everywhere(spark, lane, counts.stored)


def _sorted(lane: SparkLane) -> pa.Table:
    table = pa.table(DeltaTable(str(lane.table())).to_pyarrow_table())
    keys = [(name, "ascending") for name in ("pms_id", "pack_id", "time_event", "time_processing")]
    rows = table.select(sorted(table.column_names)).to_pylist()
    ordered = sorted(rows, key=lambda row: (*(str(row[name]) for name, _ in keys), repr(row)))
    return pa.Table.from_pylist(ordered)


def _same_everywhere(spark: Any, lane: SparkLane, stored: int) -> None:
    """Spark SQL, DuckDB and deltalake read the same."""
    question = (
        "select pms_id, count(*) as n, round(sum(pack.watts), 2) as watts, "
        "sum(cell[{first}].dvcl) as dvcl, {micros}(min(time_event)) as low, max(day) as day "
        "from {table} group by pms_id order by pms_id"
    )
    duck = duckdb.connect()
    duck.register("stored_rows", DeltaTable(str(lane.table())).to_pyarrow_table())
    one = duck.execute(question.format(first=1, micros="epoch_us", table="stored_rows")).fetchall()
    assert sum(row[1] for row in one) == stored
    if "io.delta" not in spark.conf.get("spark.sql.extensions", ""):
        pytest.skip("the Delta jars are missing: Spark itself cannot read the table")
    spark.read.format("delta").load(str(lane.table())).createOrReplaceTempView("pms_rows")
    two = [
        tuple(row)
        for row in spark.sql(
            question.format(first=0, micros="unix_micros", table="pms_rows")
        ).collect()
    ]
    files = DeltaTable(str(lane.table())).file_uris()
    three = duck.execute(
        question.format(
            first=1,
            micros="epoch_us",
            table=f"read_parquet({files!r}, hive_partitioning = true)",
        )
    ).fetchall()

    def plain(rows: list[Any]) -> list[Any]:
        return [(*row[:5], str(row[5])) for row in rows]

    assert plain(one) == plain(two) == plain(three)


def test_what_comes_later_is_added_and_nothing_is_done_twice(spark: Any, lane: SparkLane) -> None:
    world.post(lane.url, lane.topic, readings(100), 2)
    assert lane.run_on(spark).stored == 100
    assert world.lag(lane.url, lane.topic, f"{lane.topic}.s") == 0
    assert lane.run_on(spark).read == 0
    world.post(lane.url, lane.topic, [*readings(10, 95), b"nonsense"], 2)
    counts = lane.run_on(spark)
    assert (counts.read, counts.stored, counts.duplicate, counts.quarantined) == (11, 5, 5, 1)
    whole(lane, 105)
    found = operations.counted(lane.pipeline)
    assert (found.read, found.stored) == (111, 105)


@pytest.mark.parametrize("left", [".0.5f1.tmp", "..0.5f1.tmp.crc", ".0.crc"])
def test_a_driver_that_was_killed_in_its_first_note_is_run_again(
    spark: Any, lane: SparkLane, left: str
) -> None:
    """Spark refuses to begin where it finds what it left itself."""
    world.post(lane.url, lane.topic, readings(10), 2)
    offsets = lane.checkpoint / "spark" / "1" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / left).write_text("v1\n", encoding="utf-8")
    assert lane.run_on(spark).stored == 10
    whole(lane, 10)


def test_a_lost_a_foreign_and_an_old_checkpoint_are_refused_and_resume_goes_on(
    spark: Any, lane: SparkLane, tmp_path: Path
) -> None:
    world.post(lane.url, lane.topic, readings(100), 2)
    lane.run_on(spark)
    copy = tmp_path / "copy"
    shutil.copytree(lane.checkpoint, copy)
    world.post(lane.url, lane.topic, readings(50, 100), 2)
    lane.run_on(spark)

    def put_back() -> None:
        shutil.rmtree(lane.checkpoint)
        shutil.copytree(kept, lane.checkpoint)

    kept = tmp_path / "kept"
    shutil.copytree(lane.checkpoint, kept)

    shutil.rmtree(lane.checkpoint)
    with pytest.raises(CheckpointMissing):
        lane.run_on(spark)
    shutil.copytree(copy, lane.checkpoint, dirs_exist_ok=True)
    with pytest.raises(CheckpointBehind):
        lane.run_on(spark)
    put_back()
    shutil.rmtree(lane.checkpoint / "spark")
    with pytest.raises(CheckpointMissing, match="Spark's checkpoint"):
        lane.run_on(spark)
    put_back()
    shutil.rmtree(lane.checkpoint / "spark" / "1")
    shutil.copytree(copy / "spark" / "1", lane.checkpoint / "spark" / "1")
    with pytest.raises(CheckpointBehind):
        lane.run_on(spark)
    put_back()
    newest = max(int(each.name) for each in (lane.checkpoint / "spark/1/offsets").glob("[0-9]*"))
    offsets = lane.checkpoint / "spark" / "1" / "offsets" / str(newest)
    lines = offsets.read_text(encoding="utf-8").splitlines()
    offsets.write_text("\n".join([*lines[:2], '{"0": 1, "1": 1}']), encoding="utf-8")
    with pytest.raises(RangesDiffer):
        lane.run_on(spark)
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(text.replace("[pipeline.pms]", "[pipeline.other]"), encoding="utf-8")
    with pytest.raises(CheckpointForeign, match="belongs to pipeline 'pms'"):
        lane.run_on(spark)
    lane.file.write_text(text, encoding="utf-8")

    identity = lane.checkpoint / "pipeline.json"
    identity.write_text(identity.read_text().replace('"pms"', '"other"'), encoding="utf-8")
    with pytest.raises(CheckpointForeign, match="belongs to pipeline 'other'"):
        lane.run_on(spark)
    operations.resume(lane.pipeline)
    assert (tmp_path / "checkpoint.aside-1" / "spark" / "1").is_dir()
    world.post(lane.url, lane.topic, readings(25, 150), 2)
    assert lane.run_on(spark).stored == 25
    whole(lane, 175)
    assert operations.counted(lane.pipeline).stored == 175


def test_an_epoch_that_a_copy_knows_nothing_of_is_not_used_again(
    spark: Any, lane: SparkLane, tmp_path: Path
) -> None:
    world.post(lane.url, lane.topic, readings(10), 2)
    lane.run_on(spark)
    places = (lane.checkpoint, tmp_path / "warehouse")
    for each in places:
        shutil.copytree(each, each.with_name(f"{each.name}.copy"))
    shutil.rmtree(lane.checkpoint)
    operations.resume(lane.pipeline)
    world.post(lane.url, lane.topic, [b"a", b"b"], 2)
    assert lane.run_on(spark).quarantined == 2
    used = Ledger(lane.checkpoint, identity_of(lane.pipeline), is_locked=False).epoch
    for each in places:
        shutil.rmtree(each)
        each.with_name(f"{each.name}.copy").rename(each)
    world.post(lane.url, lane.topic, [b"c"], 2)
    operations.resume(lane.pipeline)
    assert lane.run_on(spark).quarantined == 3
    found = sorted(body for body, _ in lane.messages(lane.pipeline.quarantine))
    assert found == [b"a", b"a", b"b", b"b", b"c"]
    epoch = Ledger(lane.checkpoint, identity_of(lane.pipeline), is_locked=False).epoch
    assert epoch > used
    assert (lane.checkpoint / "spark" / str(epoch) / "offsets" / "0").exists()
    whole(lane, 10)


def test_the_real_file_ends_as_the_contract_says(spark: Any, lane: SparkLane) -> None:
    text = lane.file.read_text(encoding="utf-8").replace(f"= {BATCH}", "= 2000")
    lane.file.write_text(text, encoding="utf-8")
    given = from_csv(lane.pipeline.dataset, CSV.read_bytes(), {"source": "site"})

    async def steps() -> None:
        async with connect(lane.url) as client:
            await client.publish_many(lane.topic, given)

    world.post(lane.url, lane.topic, [])
    asyncio.run(steps())
    counts = lane.run_on(spark)
    assert (counts.read, counts.stored, counts.quarantined, counts.duplicate) == (2851, 2840, 11, 0)
    assert len(lane.rows()) == 2_840
    later = [each.body for each in given if isinstance(each.body, bytes)]
    assert len(later) == 2_851
    world.post(lane.url, lane.topic, later)  # under other ids
    counts = lane.run_on(spark)
    assert (counts.stored, counts.quarantined, counts.duplicate) == (0, 11, 2840)


FLAKY = """
import secrets
from dataclasses import replace
from pathlib import Path
from penstock.pipeline.datasets.pms import DATASET as PMS

def rows(good):
    place = Path(__file__).parent / "tried"
    place.mkdir(exist_ok=True)
    if len(good) and len(list(place.iterdir())) < 2:
        (place / secrets.token_hex(4)).touch()
        raise RuntimeError("this attempt fails")
    return PMS.rows(good)

DATASET = replace(PMS, rows=rows)
"""


def test_tasks_that_fail_are_tried_again_and_leave_no_row_twice(
    spark: Any, lane: SparkLane
) -> None:
    module = lane.folder / "flaky.py"
    module.write_text(FLAKY, encoding="utf-8")
    text = lane.file.read_text(encoding="utf-8").replace('"pms"', f'"{module}"')
    lane.file.write_text(text, encoding="utf-8")
    world.post(lane.url, lane.topic, readings(30), 2)
    assert lane.run_on(spark).stored == 30
    assert len(list((lane.folder / "tried").iterdir())) == 2
    whole(lane, 30)


@pytest.mark.parametrize("count", [5, 100])
def test_a_topic_that_was_replaced_is_refused(spark: Any, lane: SparkLane, count: int) -> None:
    world.post(lane.url, lane.topic, readings(50))
    lane.run_on(spark)

    async def steps() -> None:
        async with connect(lane.url) as client:
            await client.delete_subscription(lane.topic, f"{lane.topic}.s")
            await client.delete_topic(lane.topic)

    asyncio.run(steps())
    world.post(lane.url, lane.topic, readings(count, 50))
    with pytest.raises(SourceDiffers, match="deleted"):
        lane.run_on(spark)
    assert len(lane.rows()) == 50


def test_a_first_run_that_is_refused_leaves_the_checkpoint_to_whoever_comes_next(
    lane: SparkLane,
) -> None:
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(text.replace(lane.url, "penstock://127.0.0.1:9"), encoding="utf-8")
    with pytest.raises(Unavailable):
        running.opened([lane.pipeline]).__enter__()
    lane.file.write_text(text.replace("[pipeline.pms]", "[pipeline.other]"), encoding="utf-8")
    with running.opened([lane.pipeline]):
        pass
    lane.file.write_text(
        text.replace("[pipeline.pms]", "[pipeline.third]").replace('.s"', '.t"'),
        encoding="utf-8",
    )
    with running.opened([lane.pipeline]):
        pass
    assert not (lane.checkpoint / "pipeline.json").exists()


def test_a_second_run_is_refused_and_touches_nothing(lane: SparkLane) -> None:
    world.post(lane.url, lane.topic, readings(5))
    pipelines: list[Pipeline] = [lane.pipeline]
    with running.opened(pipelines):
        second = running.opened(pipelines)
        with pytest.raises(PipelineRunning, match="is running already"):
            second.__enter__()


def test_what_ended_a_batch_is_told_as_it_is_or_as_spark_says_it(lane: SparkLane) -> None:
    pipelines: list[Pipeline] = [lane.pipeline]
    with running.opened(pipelines) as (opened,):
        opened.check()
        opened.failed = CountsDiffer("one is missing")
        with pytest.raises(CountsDiffer, match="one is missing"):
            opened.check()
        opened.failed = ValueError("x\npenstock.vocabulary.errors.ReaderFenced: a newer run")
        with pytest.raises(QueryFailed, match="ReaderFenced: a newer run"):
            opened.check()


def test_spark_is_told_of_a_failed_batch_in_a_word(
    lane: SparkLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's pattern over the trace overflows its stack, and Java prints that."""

    def fail(*_: Any) -> None:
        raise CountsDiffer("long " * 10_000)

    with running.opened([lane.pipeline]) as (opened,):
        monkeypatch.setattr(opened, "process", fail)
        with pytest.raises(query.Failed, match="batch 3 of 'pms' failed") as raised:
            opened._on_batch(None, 3)
        assert len("".join(traceback.format_exception(raised.value))) < 2000
        with pytest.raises(CountsDiffer):
            opened.check()


def test_a_stop_that_waited_for_a_batch_knows_that_it_is_done(
    lane: SparkLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it ends the query before Spark has committed that batch."""
    known: list[int] = []
    with running.opened([lane.pipeline]) as (opened,):

        class Guard:
            def __enter__(self) -> None:
                known.append(opened._done)

            def __exit__(self, *_: object) -> None:
                known.append(opened._done)

        monkeypatch.setattr(opened, "process", lambda *_: None)
        monkeypatch.setattr(opened, "_guard", Guard())
        opened._on_batch(None, 3)
    assert known == [-1, 3]


def test_a_batch_that_does_not_end_is_broken_off_and_left_to_the_next_run(
    lane: SparkLane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(query, "STOP_S_MAX", 0.01)
    with running.opened([lane.pipeline]) as (opened,):
        stopped: list[str] = []
        opened.query = SimpleNamespace(isActive=False, stop=lambda: stopped.append("query"))
        with opened._guard:
            opened.stop()
        opened.failed = InterruptedError("the batch")
        opened.check()
    assert stopped == ["query"]
    assert "the next run does it again" in caplog.text


def test_a_query_whose_python_came_up_too_late_is_to_start_again_and_no_other(
    lane: SparkLane,
) -> None:
    with running.opened([lane.pipeline]) as (opened,):
        assert not opened.is_to_start_again(), "it was never started"
        for said, is_again in (("x: " + query.NOT_UP, True), ("another error", False)):
            ended = RuntimeError(said)
            opened.query = SimpleNamespace(isActive=False, exception=lambda ended=ended: ended)
            assert opened.is_to_start_again() is is_again
        with pytest.raises(QueryFailed, match="another error"):
            opened.check()
        opened.query = SimpleNamespace(
            isActive=False, exception=lambda: RuntimeError(query.NOT_UP), stop=lambda: None
        )
        again = 1
        while opened.is_to_start_again():
            again += 1
    assert again == query.REVIVALS_MAX


def test_a_query_starts_until_its_first_batch_is_planned(lane: SparkLane) -> None:
    with running.opened([lane.pipeline]) as (opened,):
        assert not opened.is_starting
        seen = []
        for message in ("Initializing sources", "Getting offsets from X", "Processing new data"):
            opened.query = SimpleNamespace(isActive=True, status={"message": message})
            seen.append(opened.is_starting)
        assert seen == [True, True, False]
        opened.query.status["message"] = "Getting offsets from X"
        assert not opened.is_starting, "it was up before"
        opened.query = None


def test_several_pipelines_are_queries_of_one_session_and_stop_when_asked(
    spark: Any, served: str, tmp_path: Path
) -> None:
    text = ""
    topics = {}
    for number in (1, 2):
        topic = topics[number] = unique("monitoring.pms")
        world.post(served, topic, readings(60, number * 100))
        text += (
            f'[pipeline.p{number}]\nsource = "{served}/{topic}"\ndataset = "pms"\n'
            f'repository = "delta:{tmp_path / str(number)}"\ntrigger = "asap"\n'
            f'checkpoint = "{tmp_path / f"ck{number}"}"\n'
        )
    file = tmp_path / "two.toml"
    file.write_text(text, encoding="utf-8")
    found = list(read_file(str(file)).pipelines.values())
    stopping = threading.Event()

    def show(lanes: list[Any]) -> None:
        if all(each.counts.stored == 60 for each in lanes):
            stopping.set()

    lanes = running.run(found, {}, stopping, started=spark, show=show)
    assert [each.counts.stored for each in lanes] == [60, 60]
    assert not any(each.is_active for each in lanes)
    for each in found:
        assert DeltaTable(each.folders()[0]).to_pyarrow_table().num_rows == 60
        assert world.lag(served, each.topic, each.subscription) == 0


class Broken(Exception):
    """A run breaks off here."""


@pytest.mark.prove  # `test_killing` has the same, with harder ends
def test_a_run_that_breaks_off_at_any_moment_is_finished_by_the_next(
    spark: Any, lane: SparkLane
) -> None:
    posted = 0
    found = read_file(str(lane.file))
    for moment in MOMENTS[1:-1]:
        world.post(lane.url, lane.topic, readings(BATCH + 10, posted), 2, first=posted, ids=True)
        posted += BATCH + 10
        seen: list[str] = []

        def at(name: str, moment: str = moment, seen: list[str] = seen) -> None:
            seen.append(name)
            if name == moment:
                raise Broken(name)

        with pytest.raises((Broken, QueryFailed)):
            running.run(list(found.pipelines.values()), {}, threading.Event(), at=at, started=spark)
        assert moment in seen
    lane.run_on(spark)
    whole(lane, posted)
    assert set(lane.events().values()) <= {1}
    assert operations.counted(lane.pipeline).stored == posted
    assert world.lag(lane.url, lane.topic, f"{lane.topic}.s") == 0
