"""The driver of a pipeline from Kafka is killed at every named moment: the same discipline."""

from pathlib import Path
from typing import Any

import pytest

from penstock.pipeline import operations
from tests.pipeline.lane import readings
from tests.pipeline.spark import kafka_world
from tests.pipeline.spark.kafka_lane import KafkaLane
from tests.pipeline.spark.lanes import BATCH, MOMENTS, die, duplicates, whole
from tests.servers.kafka import Cluster

POSTED = BATCH + 10
OWN = tuple(each for each in MOMENTS if each != "range planned")
"""Spark's own connector plans, and holds nothing for it."""


@pytest.mark.prove
def test_the_driver_is_killed_at_each_moment_and_the_next_run_finishes(
    spark: Any, kafka_server: Cluster, tmp_path: Path, tally: Any
) -> None:
    """Each run finishes what the one before it left, goes on, and dies."""
    kills = 2 * len(OWN)
    lane = KafkaLane(tmp_path, kafka_server.bootstrap)
    text = lane.table_text("pms", f'max_rows_per_batch = {BATCH}\npublish = "{lane.topic}.rows"\n')
    lane.file.write_text(text, encoding="utf-8")
    for number in range(kills):
        given = [*readings(POSTED, number * POSTED), b"nonsense"]
        kafka_world.post(lane.servers, lane.topic, given)
        die(lane.file, {"pms": OWN[number % len(OWN)]}, skip=number // len(OWN))
        assert not duplicates(lane), f"after kill {number}"
    lane.run_on(spark)
    rows, double = kills * POSTED, duplicates(lane)
    missing = rows - (len(lane.rows()) - double)
    tally.add("spark-kafka", kills=kills, rows=rows, missing=missing, duplicate=double)
    whole(lane, rows)
    counts = operations.counted(lane.pipeline)
    assert (counts.stored, counts.quarantined) == (rows, kills)
    assert set(lane.events().values()) <= {1}, "an event is published once"
    assert len(lane.records(f"{lane.topic}.quarantine")) == kills
    assert len(lane.records(f"{lane.topic}.rows")) == rows
