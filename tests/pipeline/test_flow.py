import asyncio
import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from deltalake import DeltaTable

from penstock.client.client import connect
from penstock.client.reader import Reader
from penstock.pipeline import flow, operations, work
from penstock.pipeline.counting import Counts
from penstock.pipeline.datasets.csv_rows import PMS_CSV
from penstock.pipeline.datasets.features import FeatureView
from penstock.pipeline.flow import Consumer, Producer
from penstock.pipeline.messages import read_reasons
from penstock.pipeline.operations import compact_tables
from penstock.pipeline.refusals import (
    CheckpointAhead,
    CheckpointBehind,
    CheckpointMissing,
    CountsDiffer,
    PipelineRunning,
    SourceDiffers,
    TableLocked,
    TableSchemaDiffers,
)
from penstock.pipeline.repositories.choose import open_repository
from penstock.pipeline.repositories.files import DataFile, write_files
from penstock.vocabulary.errors import Unavailable
from penstock.vocabulary.message import Message
from tests.pipeline.datasets import bodies
from tests.pipeline.lane import Lane, readings

CSV = Path(__file__).parent / "data" / "pms-2019-08.csv"
MOMENTS = (
    "range planned", "ledger written", "range read", "files written", "published",
    "table committed", "progress reported",
)  # fmt: skip


def counted(read: int, stored: int, quarantined: int, duplicate: int) -> tuple[int, ...]:
    return (read, stored, quarantined, duplicate)


def numbers(counts: Counts) -> tuple[int, ...]:
    return (counts.read, counts.stored, counts.quarantined, counts.duplicate)


def test_the_real_file_ends_as_the_contract_says(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    given = [msgspec.json.encode(row.body) for row in PMS_CSV.read(CSV.read_bytes())]
    lane.post(given)
    assert numbers(lane.run()) == counted(2_851, 2_840, 11, 0)
    assert numbers(lane.run()) == (0, 0, 0, 0)
    lane.post(given)
    assert numbers(lane.run()) == counted(2_851, 0, 11, 2_840)
    rows = lane.rows()
    assert len(rows) == 2_840
    quarantined = lane.messages("monitoring.pms.quarantine")
    assert len(quarantined) == 22
    assert all(len(read_reasons(headers)) == 14 for _, headers in quarantined)
    # 734 times occur twice with different readings: each is one conflict.
    told = Counter(each.rpartition("/")[2] for each in lane.events())
    assert told["time.conflict"] == 2_840 - len({row["time_event"] for row in rows})
    root = str(tmp_path / "warehouse" / "analytics" / "pms_monitoring")
    table = DeltaTable(root).to_pyarrow_table()
    assert table.num_rows == 2_840
    with duckdb.connect() as connection:
        found = connection.from_arrow(table).aggregate("count(*), sum(pack.watts)").fetchall()
    assert found[0][0] == 2_840
    assert found[0][1] == pytest.approx(sum(row["pack"]["watts"] for row in rows))


@pytest.mark.parametrize(("name", "count"), [("pms", None), ("mppt", 1), ("inverter", 4)])
def test_the_requests_of_the_seed_are_stored(tmp_path: Path, name: str, count: int | None) -> None:
    posted = json.loads((CSV.parent / f"post-{name}.json").read_text(encoding="utf-8"))
    given = [
        bodies.encoded({f"{name}_id": each[f"{name}_id"], "status": each["status"], **sample})
        for each in posted["datasets"]
        for sample in each["data"]
    ]
    assert count is None or len(given) == count
    lane = Lane(tmp_path, name)
    lane.post(given)
    assert numbers(lane.run()) == (len(given), len(given), 0, 0)
    assert len(lane.rows()) == len(given)


def test_a_topic_that_was_not_there_is_made_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lane = Lane(tmp_path)
    assert numbers(lane.run()) == (0, 0, 0, 0)
    (line,) = caplog.messages
    assert line.startswith("pipeline pms: there was no file:")
    assert "empty until somebody publishes" in line
    lane.run()
    assert len(caplog.messages) == 1, "it is there now"


def test_true_duplicates_are_kept_once_and_conflicts_twice(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 4\n")
    one, other = bodies.encoded(bodies.pms()), bodies.encoded(bodies.pms(pack__amps=9))
    lane.post([one, one, other, one, other, one, one])
    assert numbers(lane.run()) == (7, 2, 0, 5)
    told = Counter(each.rpartition("/")[2] for each in lane.events())
    assert told == {"cell.open": 2, "time.conflict": 1}
    assert sorted(row["pack"]["amps"] for row in lane.rows()) == [-0.625, 9.0]


@pytest.mark.parametrize("skip", [0, pytest.param(1, marks=pytest.mark.prove)])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_dies_at_any_moment_loses_and_doubles_nothing(
    tmp_path: Path, moment: str, skip: int
) -> None:
    lane = Lane(tmp_path, extra='max_rows_per_batch = 60\npublish = "clean.pms"\n')
    given = readings(150)
    given[7] = given[70] = b"not a reading"
    given[100] = given[3]
    lane.post(given, partitions=2, ids=True)
    lane.run_and_die(moment, skip)
    lane.run()
    rows = Counter(row["pack"]["amps"] for row in lane.rows())
    expected = {round(at / 8, 3) for at in range(150)} - {7 / 8, 70 / 8, 100 / 8}
    assert set(rows) == expected  # nothing is missing
    assert set(rows.values()) == {1}  # nothing is there twice
    assert len(lane.messages("monitoring.pms.quarantine")) == 2
    assert set(lane.events().values()) == {1}
    forwarded = Counter(body for body, _ in lane.messages("clean.pms"))
    assert (len(forwarded), set(forwarded.values())) == (147, {1})
    assert numbers(lane.run()) == (0, 0, 0, 0)


@pytest.mark.parametrize("moment", ["published", "table committed"])
def test_parquet_tables_survive_the_same_deaths(tmp_path: Path, moment: str) -> None:
    lane = Lane(tmp_path)
    text = lane.file.read_text(encoding="utf-8").replace("delta:", "parquet:")
    lane.file.write_text(text, encoding="utf-8")
    lane.post(readings(50))
    lane.run_and_die(moment)
    lane.run()
    assert sorted(row["pack"]["amps"] for row in lane.rows()) == [at / 8 for at in range(50)]


def test_two_repositories_get_the_same_rows_and_each_its_own_recovery(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    both = f'["delta:{tmp_path}/warehouse", "parquet:{tmp_path}/plain"]'
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(text.replace(f'"delta:{tmp_path}/warehouse"', both), encoding="utf-8")
    lane.post(readings(40))
    lane.run_and_die("table committed")  # the first table has it, the second does not
    lane.run()
    assert sorted(map(repr, lane.rows(0))) == sorted(map(repr, lane.rows(1)))
    assert len(lane.rows(1)) == 40


def test_a_batch_that_only_the_second_table_lacks_is_finished_after_the_first_was_merged(
    tmp_path: Path,
) -> None:
    """The version that the ledger names has files that are gone from a parquet: table by then."""
    lane = Lane(tmp_path, extra="max_rows_per_batch = 10\ncompact_files = 2\n")
    both = f'["parquet:{tmp_path}/plain", "delta:{tmp_path}/warehouse"]'
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(text.replace(f'"delta:{tmp_path}/warehouse"', both), encoding="utf-8")
    given = readings(20)
    lane.post([*given[::2], *given[1::2]])  # the batches overlap in time
    lane.run_and_die("files written", 3)
    lane.run()
    for number in (0, 1):
        amps = sorted(row["pack"]["amps"] for row in lane.rows(number))
        assert amps == [at / 8 for at in range(20)]
    assert numbers(operations.counted(lane.pipeline)) == (20, 20, 0, 0)
    assert set(lane.events().values()) == {1}


@pytest.mark.parametrize("moment", ["published", "table committed", "progress reported"])
def test_every_stored_batch_is_counted_once_wherever_a_run_dies(
    tmp_path: Path, moment: str
) -> None:
    lane = Lane(tmp_path)
    lane.post([*readings(10), b"x"])
    lane.run_and_die(moment)
    lane.run()
    assert operations.counted(lane.pipeline) == Counts(11, 10, 1, 0, 10)
    assert len(lane.rows()) == 10


def test_real_world_shapes_never_stop_the_stream(tmp_path: Path) -> None:
    good = readings(50)
    bad: list[bytes | None] = [
        b"", b"{", b"[" * 60_000 + b"]" * 60_000, b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b"\xff\xfe", b"NaN", b"x" * 1_000_000, None,
        bodies.encoded(bodies.pms(pack__amps=float("nan"))),
        bodies.encoded(bodies.pms(pms_id="y" * 1_000_000, more=1)),
        bodies.encoded(bodies.pms(unknown=1)), bodies.encoded(bodies.pms(pack__dock="1")),
        bodies.encoded(bodies.pms(time_local="20200210T150006")),
        bodies.encoded([bodies.pms()]), bodies.encoded(bodies.pms(pack__temp=None)),
    ]  # fmt: skip
    lane = Lane(tmp_path)
    lane.post([*good[:25], *bad, *good[25:]])
    assert numbers(lane.run()) == (50 + len(bad), 50, len(bad), 0)
    kept = lane.messages("monitoring.pms.quarantine")
    assert [body for body, _ in kept] == bad
    assert all(read_reasons(headers) for _, headers in kept)


def test_a_checkpoint_that_does_not_fit_its_table_is_refused(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 10\n")
    lane.post(readings(20))
    lane.run()
    older = tmp_path / "older"
    shutil.copytree(tmp_path / "checkpoint", older)
    warehouse = tmp_path / "warehouse"
    shutil.copytree(warehouse, tmp_path / "older-warehouse")
    lane.post(readings(30, 20))
    lane.run()
    shutil.move(tmp_path / "checkpoint", tmp_path / "newer")
    with pytest.raises(CheckpointMissing, match="resume --from-table"):
        lane.run()
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(older, tmp_path / "checkpoint")
    with pytest.raises(CheckpointBehind):
        lane.run()
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "newer", tmp_path / "checkpoint")
    shutil.move(warehouse, tmp_path / "newer-warehouse")
    shutil.move(tmp_path / "older-warehouse", warehouse)
    with pytest.raises(CheckpointAhead):
        lane.run()
    shutil.rmtree(warehouse)
    shutil.move(tmp_path / "newer-warehouse", warehouse)
    assert numbers(lane.run()) == (0, 0, 0, 0)
    assert len(lane.rows()) == 50


def test_a_table_that_is_one_batch_behind_is_refused_by_the_same_name(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(10))
    lane.run()
    shutil.copytree(tmp_path / "warehouse", tmp_path / "older")
    lane.post(readings(10, 10))
    lane.run()
    shutil.rmtree(tmp_path / "warehouse")
    shutil.move(tmp_path / "older", tmp_path / "warehouse")
    with pytest.raises(CheckpointAhead, match=r"lacks batch 1 of 'pms/1'.*resume --from-table"):
        lane.run()
    assert operations.resume(lane.pipeline) == {0: 10}
    assert numbers(lane.run()) == (10, 10, 0, 0)
    assert len(lane.rows()) == 20
    assert numbers(operations.counted(lane.pipeline)) == (20, 20, 0, 0)


def test_a_first_run_that_fails_leaves_the_checkpoint_to_whoever_comes_next(
    tmp_path: Path,
) -> None:
    lane = Lane(tmp_path)
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(text.replace(lane.url, "penstock://127.0.0.1:9"), encoding="utf-8")
    with pytest.raises(Unavailable):
        lane.run()
    other = Lane(tmp_path, "mppt")
    other.post([])
    other.run()
    wrong = text.replace('"pms"\n', '"pms"\ntable = "analytics.mppt_monitoring"\n')
    lane.file.write_text(wrong, encoding="utf-8")
    with pytest.raises(TableSchemaDiffers):
        lane.run()
    lane.file.write_text(text, encoding="utf-8")
    lane.post(readings(5))
    assert numbers(lane.run()) == (5, 5, 0, 0)


def test_a_second_run_and_a_locked_table_are_refused(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(5))

    async def steps() -> None:
        async with Consumer(lane.pipeline):
            with pytest.raises(PipelineRunning):
                async with Consumer(lane.pipeline):
                    pass

    asyncio.run(steps())
    pipeline = lane.pipeline
    storage = open_repository(pipeline.repositories[0], pipeline.table, pipeline.dataset)
    with pytest.raises(TableLocked):
        lane.run()
    storage.close()
    assert numbers(lane.run()) == (5, 5, 0, 0)


def test_range_rules_follow_the_feature_and_a_retry_keeps_what_it_had(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    wide = [bodies.encoded(bodies.pms(pack__dock=99, time_local=f"20200210T1500{at:02}Z"))
            for at in range(10)]  # fmt: skip

    async def switch(*names: str) -> None:
        async with connect(lane.url) as client:
            await FeatureView(client).change(operational=list(names))

    asyncio.run(switch())
    lane.post(wide)
    lane.run_and_die("ledger written")
    asyncio.run(switch("validation"))
    assert numbers(lane.run()) == (10, 10, 0, 0)  # planned while validation was off
    lane.post([each.replace(b"T15", b"T16") for each in wide])
    assert numbers(lane.run()) == (10, 0, 10, 0)


def test_messages_that_get_lost_on_the_way_stop_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(10))
    check = work.check

    def lossy(*given: Any, **options: Any) -> work.Checked:
        found = check(*given, **options)
        return found._replace(good=[each.slice(1) for each in found.good])

    monkeypatch.setattr(work, "check", lossy)
    with pytest.raises(CountsDiffer, match="10 read is not 9 stored"):
        lane.run()
    monkeypatch.undo()
    assert lane.rows() == []
    assert numbers(lane.run()) == (0, 0, 0, 0) or len(lane.rows()) == 10


def test_a_row_that_no_file_has_stops_the_pipeline_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(10))

    def lossy(root: str, staging: str, dataset: Any, rows: Any) -> list[DataFile]:
        return write_files(root, staging, dataset, rows.slice(1))

    monkeypatch.setattr(flow, "write_files", lossy)
    with pytest.raises(CountsDiffer, match="hold 9 rows, and 10 are to be stored"):
        lane.run()
    monkeypatch.undo()
    assert lane.rows() == []
    assert lane.messages("monitoring.pms.events") == []
    lane.run()
    assert len(lane.rows()) == 10


def test_small_files_are_merged_while_it_runs(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 10\ncompact_files = 4\n")
    lane.post(readings(100))
    assert numbers(lane.run()) == (100, 100, 0, 0)
    pipeline = lane.pipeline
    storage = open_repository(pipeline.repositories[0], pipeline.table, pipeline.dataset)
    assert len(storage.files()) <= 4
    storage.close()
    assert len(lane.rows()) == 100
    lane.post(readings(100))
    assert numbers(lane.run()) == (100, 0, 0, 100)


def test_a_lane_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra='trigger = "asap"\n')

    async def steps() -> Counts:
        async with connect(lane.url) as client, Consumer(lane.pipeline, client) as consumer:
            running = asyncio.create_task(consumer.run())
            for at in range(3):
                await client.publish(lane.topic, readings(1, at)[0], key="k")
                async with asyncio.timeout(60):
                    while consumer.counts.stored <= at:  # noqa: ASYNC110 - it only counts
                        await asyncio.sleep(0.01)
            consumer.stop()
            return await running

    assert numbers(asyncio.run(steps())) == (3, 3, 0, 0)


def test_a_plan_larger_than_a_batch_is_cut(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra="max_rows_per_batch = 60\n")
    lane.post(readings(150), partitions=2)

    async def steps() -> int:
        async with connect(lane.url) as client:
            older = await client.reader(lane.topic, lane.pipeline.subscription, owner="older")
            planned = await older.plan()
            assert sum(end - start for _, start, end in planned) == 150
            async with Consumer(lane.pipeline, client) as consumer:
                assert numbers(await consumer.run()) == (150, 150, 0, 0)
                return consumer.batches

    assert asyncio.run(steps()) == 3


def test_the_classes_are_those_of_the_framework() -> None:
    assert [each.__name__ for each in (Consumer, flow.Subscriber, Producer, flow.Publisher)] == [
        "Consumer", "Subscriber", "Producer", "Publisher",
    ]  # fmt: skip


def test_few_small_files_are_merged_once_one_is_old(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra="compact_after_s = 3600\n")
    for at in range(2):
        lane.post(readings(10, at * 10))
        lane.run()
    files = list((tmp_path / "warehouse").rglob("part-*.parquet"))
    assert len(files) == 2, "they are new"
    os.utime(files[0], (time.time() - 3601, time.time() - 3601))
    lane.post(readings(10, 20))
    lane.run()
    (done,) = compact_tables(lane.pipeline).values()
    assert (done.files_before, len(lane.rows())) == (0, 30), "nothing was left to merge"


def test_a_topic_trimmed_below_the_checkpoint_is_refused_before_anything_is_read(
    tmp_path: Path,
) -> None:
    lane = Lane(tmp_path)
    lane.post(readings(20))
    lane.run()
    lane.post(readings(20, 20))

    lane.trim()
    lane.post(readings(5, 40))
    with pytest.raises(SourceDiffers, match=r"goes on at 0:20 up to 0:40.* was trimmed"):
        lane.run()
    assert len(lane.rows()) == 20


def test_features_that_changed_before_a_message_came_are_those_of_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = Lane(tmp_path)
    lane.post([])
    plan = Reader.plan

    async def steps() -> Counts:
        async with connect(lane.url) as client, Consumer(lane.pipeline, client) as consumer:

            async def plan_late(self: Reader, *given: Any, **options: Any) -> Any:
                monkeypatch.undo()
                await FeatureView(client).change(operational=["logging"])
                await client.publish(lane.topic, bodies.encoded(bodies.pms(pack__dock=60)))
                return await plan(self, *given, **options)

            monkeypatch.setattr(Reader, "plan", plan_late)
            return await consumer.run()

    assert numbers(asyncio.run(steps())) == (1, 1, 0, 0)


def test_a_running_lane_follows_a_change_of_features(tmp_path: Path) -> None:
    lane = Lane(tmp_path, extra='trigger = "asap"\n')
    lane.post(readings(1))

    async def steps() -> Counts:
        async with connect(lane.url) as client, Consumer(lane.pipeline, client) as consumer:
            running = asyncio.create_task(consumer.run())

            async def post(first: int) -> None:
                wide = [
                    bodies.encoded(bodies.pms(pack__dock=60, time_local=f"20200210T0000{at}Z"))
                    for at in range(first, first + 5)
                ]
                known = consumer.counts.read
                await client.publish_many(lane.topic, [Message(body=x) for x in wide])
                while consumer.counts.read < known + 5:  # noqa: ASYNC110 - it only counts
                    await asyncio.sleep(0.01)

            await post(10)
            assert numbers(consumer.counts) == (6, 1, 5, 0)
            await FeatureView(client).change(operational=["logging"])
            await post(20)
            assert numbers(consumer.counts) == (11, 6, 5, 0)
            await FeatureView(client).change(operational=["logging", "validation"])
            await post(30)
            consumer.stop()
            return await running

    assert numbers(asyncio.run(asyncio.wait_for(steps(), 60))) == (16, 6, 10, 0)
