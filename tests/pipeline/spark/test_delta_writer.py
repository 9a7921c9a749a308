"""`writer = "spark"`: the same table, written by Spark's own Delta writer, each batch once."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction

from penstock.pipeline.datasets import finding, table
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.repositories.compaction import compact
from penstock.pipeline.repositories.delta import APPLICATION, SOURCE, DeltaStorage
from penstock.pipeline.repositories.files import DataFile, stats_of, write_files
from penstock.pipeline.repositories.known import Known, marks_of
from penstock.pipeline.repositories.port import TableStorage, WriteId
from penstock.pipeline.spark.delta_writer import STAGING, SparkDeltaStorage
from penstock.vocabulary.errors import StorageError
from tests.pipeline.datasets import bodies
from tests.pipeline.repositories.suite import TableSuite, drawn_rows, in_order
from tests.pipeline.repositories.test_known import rows_of
from tests.pipeline.spark import world
from tests.pipeline.spark.lanes import SparkLane, mixed, plain_rows, whole
from tests.servers.fixtures import unique

PMS = finding.find("pms")


def test_both_writers_give_the_same_table_and_one_goes_on_where_the_other_ended(
    spark: Any, served: str, tmp_path: Path
) -> None:
    if "io.delta" not in spark.conf.get("spark.sql.extensions", ""):
        pytest.skip("the Delta jars are missing: Spark itself cannot write")
    topic = unique("monitoring.pms")
    lanes = {}
    for writer in ("spark", "penstock"):
        (tmp_path / writer).mkdir()
        lane = lanes[writer] = SparkLane(tmp_path / writer, served, topic)
        extra = f'writer = "{writer}"\nsubscription = "{writer}"\nevents = "{topic}.{writer}"\n'
        text = lane.table_text("pms", "").replace(f'subscription = "{topic}.s"\n', extra)
        lane.file.write_text(text, encoding="utf-8")
    given = mixed(400)
    world.post(served, topic, given[:300], 2)
    counts = [lane.run_on(spark) for lane in lanes.values()]
    assert counts[0] == counts[1], counts
    assert counts[0].stored > 200
    one, two = lanes.values()
    assert plain_rows(one) == plain_rows(two)
    assert not (one.table() / STAGING).exists()
    (entry,) = [each for each in DeltaTable(str(one.table())).history() if "userMetadata" in each]
    assert entry["operation"] == "WRITE", "Spark's own"

    text = one.file.read_text(encoding="utf-8")
    one.file.write_text(text.replace('writer = "spark"', 'writer = "penstock"'), encoding="utf-8")
    world.post(served, topic, given[300:], 2, first=300)
    assert one.run_on(spark) == two.run_on(spark)
    assert plain_rows(one) == plain_rows(two)


@pytest.mark.parametrize(("compact_files", "files"), [(0, 2), (2, 1)])
def test_tables_of_sparks_writer_keep_every_reading_once_merged_or_not(
    spark: Any, served: str, tmp_path: Path, compact_files: int, files: int
) -> None:
    if "io.delta" not in spark.conf.get("spark.sql.extensions", ""):
        pytest.skip("the Delta jars are missing: Spark itself cannot write")
    topic = unique("monitoring.pms")
    extra = f'writer = "spark"\nmax_rows_per_batch = 4\ncompact_files = {compact_files}\n'
    lane = SparkLane(tmp_path, served, topic, extra)
    given: list[bytes | None] = [
        bodies.encoded(bodies.pms(time_local=f"20200210T1500{second:02}.032999+0700"))
        for second in range(7)
    ]
    world.post(served, topic, [*given, given[0], given[-1]], 1)
    counts = lane.run_on(spark)
    assert (counts.read, counts.stored, counts.duplicate) == (9, 7, 2)
    whole(lane, 7)
    assert len(DeltaTable(str(lane.table())).file_uris()) == files
    assert DeltaTable(str(lane.table())).to_pyarrow_table().num_rows == 7


class Full:
    """A Spark whose disk is full; the error is what Python is told of one of Java's."""

    @property
    def read(self) -> None:
        raise OSError(
            "An error occurred while calling o77.save.\n"
            ": org.apache.spark.SparkException: Job aborted.\n"
            "\tat org.apache.spark.sql.execution.QueryExecution.commit(QueryExecution.scala:1)\n"
            "Caused by: java.io.IOException: No space left on device\n"
            "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n"
        )


def test_a_batch_that_spark_does_not_write_is_an_error_and_not_stored(tmp_path: Path) -> None:
    lane_rows = DeltaStorage(str(tmp_path / "other"), PMS)
    lane_rows.close()
    storage = SparkDeltaStorage(str(tmp_path / "table"), PMS)
    try:
        added = write_files(storage.root, storage.staging(), PMS, PMS.schema.empty_table())
        assert storage.commit(added, WriteId("p/1", 0), {"ends": {}}) is True, "nothing is a batch"
        assert storage.commit(added, WriteId("p/1", 0), {}) is False
        assert storage.last("p")[1].source == {"ends": {}}
        storage.spark = None
        with pytest.raises(StorageError, match="Spark did not write"):
            storage._append(tmp_path, [], WriteId("p/1", 1), {})
        storage.spark = Full()
        with pytest.raises(StorageError, match=r"table: No space left on device$"):
            storage._append(tmp_path, [], WriteId("p/1", 1), {})
    finally:
        storage.close()


class WithoutSpark(SparkDeltaStorage):
    """Its appends say what Spark's say: one transaction, a text, times cut to milliseconds."""

    def _append(
        self, place: Path, added: list[DataFile], write_id: WriteId, source: dict[str, Any]
    ) -> None:
        told = {APPLICATION: write_id.application, SOURCE: json.dumps(source)}
        DeltaTable(str(place)).create_write_transaction(
            [self._copied(place, each) for each in added],
            "append", Schema.from_arrow(self.dataset.schema), [table.DAY],
            commit_properties=CommitProperties(
                app_transactions=[Transaction(*write_id)],
                custom_metadata={"userMetadata": json.dumps(told)},
            ),
        )  # fmt: skip

    def _copied(self, place: Path, file: DataFile) -> AddAction:
        name = file.path.replace("part-", "spark-")
        (place / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(place / STAGING / file.path, place / name)
        said = msgspec.structs.replace(
            file,
            time_min=file.time_min // 1000 * 1000,
            time_max=file.time_max // 1000 * 1000,
        )
        stats = json.dumps(stats_of(said, self.dataset))
        return AddAction(name, file.size, {table.DAY: file.day}, 0, True, stats)


class TestSparkDelta(TableSuite):
    def open_table(self, root: str, dataset: Dataset) -> TableStorage:
        return WithoutSpark(root, dataset)

    def test_merged_files_are_there_after_the_next_batch_too(self, root: str) -> None:
        storage = WithoutSpark(root, PMS)
        parts = [drawn_rows(seed, 50) for seed in range(5)]
        for batch, rows in enumerate(parts):
            storage.write(rows, WriteId("pms/1", batch))
            compact(storage)
        storage.close()
        found = DeltaTable(root).to_pyarrow_table().select(PMS.schema.names).cast(PMS.schema)
        assert in_order(found) == in_order(pa.concat_tables(parts))

    def test_a_duplicate_is_found_behind_times_that_were_cut(self, root: str) -> None:
        storage = WithoutSpark(root, PMS)
        first, last = "20200210T150006.032001+0700", "20200210T150006.032999+0700"
        rows = rows_of(bodies.pms(time_local=first), bodies.pms(time_local=last))
        storage.write(rows, WriteId("pms/1", 0))
        for again in (rows, rows.slice(0, 1), rows.slice(1, 1)):
            sifted = Known(root, PMS).sift(again, marks_of(again, PMS), storage.files())
            assert not sifted.is_new.any()
        storage.close()
