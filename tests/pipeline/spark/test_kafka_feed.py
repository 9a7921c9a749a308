"""The same pipeline file on a real Kafka with three partitions: same tables, same discipline."""

import json
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from penstock.pipeline import operations
from penstock.pipeline.refusals import (
    CheckpointBehind,
    CheckpointMissing,
    CountsDiffer,
    SourceDiffers,
)
from penstock.pipeline.settings import read_file
from penstock.pipeline.spark import running, workers
from penstock.pipeline.spark.kafka_feed import KafkaFeed
from penstock.pipeline.spark.refusals import QueryFailed
from penstock.vocabulary.errors import Unavailable, UnknownTopic
from tests.pipeline.lane import readings
from tests.pipeline.spark import kafka_world, world
from tests.pipeline.spark.lanes import BATCH, SparkLane, mixed, plain_rows, whole
from tests.servers.fixtures import unique
from tests.servers.kafka import Cluster


class KafkaLane(SparkLane):
    """A pipeline whose source is Kafka."""

    def __init__(self, folder: Path, servers: str, extra: str = "") -> None:
        self.servers = servers
        super().__init__(folder, f"kafka://{servers}", unique("monitoring.pms"), extra)
        kafka_world.create(servers, self.topic)

    def events(self) -> Counter[str]:
        found = kafka_world.records(self.servers, f"{self.topic}.events")
        return Counter(json.loads(body or b"{}")["id"] for body, _ in found)


@pytest.fixture
def lane(kafka_server: Cluster, tmp_path: Path) -> KafkaLane:
    return KafkaLane(tmp_path, kafka_server.bootstrap, f"max_rows_per_batch = {BATCH}\n")


def _pipelines(lane: SparkLane) -> Any:
    return list(read_file(str(lane.file)).pipelines.values())


def test_one_file_on_kafka_and_on_penstock_gives_one_table(
    spark: Any, kafka_server: Cluster, served: str, tmp_path: Path
) -> None:
    given = mixed(1_000)
    for name in ("kafka", "penstock"):
        (tmp_path / name).mkdir()
    lane = KafkaLane(tmp_path / "kafka", kafka_server.bootstrap)
    kafka_world.post(lane.servers, lane.topic, given)
    counts = lane.run_on(spark)
    assert (counts.read, counts.quarantined) == (1_000, 10)

    other = SparkLane(tmp_path / "penstock", served, unique("monitoring.pms"))
    world.post(served, other.topic, given, 3)
    assert other.run_on(spark) == counts
    assert plain_rows(lane) == plain_rows(other)

    kept = kafka_world.records(lane.servers, f"{lane.topic}.quarantine")
    theirs = other.messages(f"{other.topic}.quarantine")
    mine = [json.loads(headers["penstock-more"])["headers"] for _, headers in kept]
    assert Counter(each["penstock-reasons"] for each in mine) == Counter(
        headers["penstock-reasons"] for _, headers in theirs
    )
    assert Counter(body for body, _ in kept) == Counter(body for body, _ in theirs)
    assert sum(lane.events().values()) == sum(other.events().values()) == counts.events
    ends = kafka_world.committed(lane.servers, lane.topic, f"{lane.topic}.s")
    assert sum(ends.values()) == 1_000, "Kafka's tools see how far the pipeline is"


def test_transactions_that_were_taken_back_do_not_stop_the_stream(
    spark: Any, kafka_server: Cluster, tmp_path: Path
) -> None:
    onward = unique("clean.pms")
    lane = KafkaLane(tmp_path, kafka_server.bootstrap, f'publish = "{onward}"\n')
    kafka_world.abort(lane.servers, lane.topic, readings(3))
    assert lane.run_on(spark).read == 0
    kafka_world.post(lane.servers, lane.topic, [*readings(5), b"nonsense"])
    counts = lane.run_on(spark)
    assert (counts.read, counts.stored, counts.quarantined) == (6, 5, 1)
    assert len(kafka_world.records(lane.servers, onward)) == 5


class Broken(Exception):
    """A run breaks off here."""


def _break_off(lane: SparkLane, spark: Any, moment: str) -> None:
    def at(name: str) -> None:
        if name == moment:
            raise Broken(name)

    with pytest.raises((Broken, QueryFailed)):
        running.run(_pipelines(lane), {}, threading.Event(), at=at, started=spark)


def test_a_run_that_breaks_off_is_finished_and_a_checkpoint_that_does_not_fit_is_refused(
    spark: Any, lane: KafkaLane, tmp_path: Path
) -> None:
    kafka_world.post(lane.servers, lane.topic, [*readings(BATCH + 10), b"nonsense"])
    for moment in ("published", "table committed", "Spark's commit"):
        _break_off(lane, spark, moment)
    lane.run_on(spark)
    whole(lane, BATCH + 10)
    assert set(lane.events().values()) <= {1}, "an event is published once"
    assert len(kafka_world.records(lane.servers, f"{lane.topic}.quarantine")) == 1
    copy = tmp_path / "copy"
    shutil.copytree(lane.checkpoint, copy)
    kafka_world.post(lane.servers, lane.topic, readings(10, BATCH + 10))
    assert lane.run_on(spark).stored == 10

    shutil.rmtree(lane.checkpoint)
    with pytest.raises(CheckpointMissing):
        lane.run_on(spark)
    shutil.copytree(copy, lane.checkpoint, dirs_exist_ok=True)
    with pytest.raises(CheckpointBehind):
        lane.run_on(spark)
    operations.resume(lane.pipeline)
    kafka_world.post(lane.servers, lane.topic, readings(5, BATCH + 20))
    assert lane.run_on(spark).stored == 5
    whole(lane, BATCH + 25)

    kafka_world.delete(lane.servers, lane.topic)
    world.until(lambda: _is_made(lane), "the topic to be made again")
    with pytest.raises(SourceDiffers, match="deleted"):
        lane.run_on(spark)


def _is_made(lane: KafkaLane) -> bool:
    try:
        kafka_world.create(lane.servers, lane.topic)
    except KafkaException:  # Kafka removes a topic some time after it was asked to
        return False
    return True


def test_a_topic_or_a_broker_that_is_not_there_is_told(lane: KafkaLane) -> None:
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(text.replace(lane.topic, "monitoring.none"), encoding="utf-8")
    with pytest.raises(UnknownTopic, match=r"no topic 'monitoring\.none'; create it first"):
        lane.run_on(None)
    lane.file.write_text(text.replace(lane.servers, "127.0.0.1:9"), encoding="utf-8")
    with pytest.raises(Unavailable, match=r"kafka://127\.0\.0\.1:9 does not answer"):
        lane.run_on(None)


def test_offsets_outside_the_ledger_are_noticed(lane: KafkaLane) -> None:
    feed = KafkaFeed(lane.pipeline, 1)

    def done(start: int, end: int) -> workers.Outcome:
        return workers.Outcome(0, start, end, end - start, [], [], b"", b"")

    feed.check_cover([done(0, 5), done(5, 9)], [(0, 0, 10)], "batch 0")  # a marker is at 9
    for wrong in ([done(0, 11)], [done(0, 5), done(4, 9)]):
        with pytest.raises(CountsDiffer, match="batch 0"):
            feed.check_cover(wrong, [(0, 0, 10)], "batch 0")
    with pytest.raises(CountsDiffer):
        feed.check_cover([done(2, 5)], [(0, 3, 10)], "batch 0")
