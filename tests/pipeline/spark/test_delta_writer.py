"""`writer = "spark"`: the same table, written by Spark's own Delta writer, each batch once."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock.pipeline.datasets import finding
from penstock.pipeline.repositories.delta import DeltaStorage
from penstock.pipeline.repositories.files import write_files
from penstock.pipeline.repositories.port import WriteId
from penstock.pipeline.spark.delta_writer import STAGING, SparkDeltaStorage
from penstock.vocabulary.errors import StorageError
from tests.pipeline.spark import world
from tests.pipeline.spark.lanes import SparkLane, mixed, plain_rows
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
    finally:
        storage.close()
