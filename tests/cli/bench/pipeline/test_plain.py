"""The plain way gives the same rows as the pipeline; it needs a Spark session."""

from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench.pipeline import plain, readings
from penstock.pipeline.datasets import pms
from penstock.pipeline.datasets.raw import raw_batch
from tests.pipeline.spark.world import sparking


@pytest.mark.prove
def test_it_computes_what_the_pipeline_computes(tmp_path: Path) -> None:
    bodies = [readings.body(number) for number in range(200)]
    good = pms.DATASET.validate(raw_batch(bodies)).good
    expected = [simple(row) for row in pms.DATASET.transform(good).to_pylist()]
    with sparking() as spark:
        frame = spark.createDataFrame(
            [(bytearray(body),) for body in [*bodies, b"{}"]], "value BINARY"
        )
        rows = plain.table(frame.selectExpr("value", "current_timestamp() AS timestamp"))
        found = [simple(row.asDict(recursive=True)) for row in rows.collect()]
    assert found == expected


def simple(row: dict[str, Any]) -> dict[str, Any]:
    """What both ways say; where a message came from and when is theirs."""
    left_out = {"sender", "time_processing", "time_event", "time_zone"}
    return {name: row[name] for name in sorted(row) if name not in left_out}
