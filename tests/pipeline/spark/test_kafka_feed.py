"""The same pipeline file on a real Kafka with three partitions: same tables, same discipline."""

import json
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from penstock.cli.main import main
from penstock.pipeline import operations
from penstock.pipeline.datasets.features import Features
from penstock.pipeline.refusals import (
    CheckpointBehind,
    CheckpointMissing,
    CountsDiffer,
    SourceDiffers,
)
from penstock.pipeline.settings import read_file
from penstock.pipeline.spark import kafka_feed, running, workers
from penstock.pipeline.spark.kafka_feed import KafkaFeed
from penstock.pipeline.spark.kafka_link import KafkaLink
from penstock.pipeline.spark.refusals import QueryFailed
from penstock.vocabulary.errors import Unavailable, UnknownTopic
from tests.pipeline.lane import readings
from tests.pipeline.spark import kafka_world, world
from tests.pipeline.spark.kafka_lane import KafkaLane
from tests.pipeline.spark.lanes import BATCH, SparkLane, mixed, new_ledger, plain_rows, whole
from tests.servers.fixtures import unique
from tests.servers.kafka import Cluster


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

    _remake(lane)
    with pytest.raises(SourceDiffers, match="made anew"):
        lane.run_on(spark)


def _remake(lane: KafkaLane) -> None:
    kafka_world.delete(lane.servers, lane.topic)
    world.until(lambda: _is_made(lane), "the topic to be made again")


def _is_made(lane: KafkaLane) -> bool:
    try:
        kafka_world.create(lane.servers, lane.topic)
    except KafkaException:  # Kafka removes a topic some time after it was asked to
        return False
    return True


def test_a_topic_that_was_made_anew_is_refused_also_when_it_is_longer(
    spark: Any, lane: KafkaLane
) -> None:
    kafka_world.post(lane.servers, lane.topic, readings(20))
    assert lane.run_on(spark).stored == 20
    _remake(lane)
    kafka_world.post(lane.servers, lane.topic, readings(60, 100))
    for _ in range(2):  # the advice of other refusals leads here again
        with pytest.raises(SourceDiffers, match=r"made anew.*another checkpoint and table"):
            lane.run_on(spark)
        operations.resume(lane.pipeline)
    whole(lane, 20)


def test_a_topic_that_is_made_anew_under_a_batch_is_noticed(
    spark: Any, lane: KafkaLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_world.post(lane.servers, lane.topic, readings(5))
    said = iter(["one", "two"])
    with monkeypatch.context() as patched:
        patched.setattr(KafkaLink, "topic_id", lambda *_: next(said))
        with pytest.raises(SourceDiffers, match="the id one, and knows it by two now"):
            lane.run_on(spark)
    assert lane.rows() == []


def test_what_kafka_removed_is_named_and_the_pipeline_goes_on_behind_it(
    spark: Any, lane: KafkaLane
) -> None:
    kafka_world.post(lane.servers, lane.topic, readings(30))
    assert lane.run_on(spark).stored == 30
    ends = kafka_world.committed(lane.servers, lane.topic, f"{lane.topic}.s")
    kafka_world.post(lane.servers, lane.topic, readings(30, 30))
    lost = {at: end + 1 for at, end in ends.items() if at < 2}
    kafka_world.trim(lane.servers, lane.topic, lost)
    gone = ", ".join(f"{at}:{ends[at]} to {at}:{lost[at]}" for at in lost)
    for _ in range(2):
        with pytest.raises(SourceDiffers, match=f"no longer holds {gone},.*--skip-missing"):
            lane.run_on(spark)
        operations.resume(lane.pipeline)
    assert main(["pipeline", "resume", str(lane.file), "--from-table", "--skip-missing"]) == 0
    assert lane.run_on(spark).stored == 28
    whole(lane, 58)


def test_a_pipeline_that_starts_over_publishes_what_it_refuses(spark: Any, lane: KafkaLane) -> None:
    kafka_world.post(lane.servers, lane.topic, [*readings(5), b"nonsense"])
    assert lane.run_on(spark).quarantined == 1
    for name in ("other", "third"):
        shutil.rmtree(lane.checkpoint)
        shutil.rmtree(lane.table())
        lane.file.write_text(
            f'{lane.table_text("pms")}quarantine = "{lane.topic}.{name}"\n', encoding="utf-8"
        )
        assert lane.run_on(spark).quarantined == 1
        assert len(kafka_world.records(lane.servers, f"{lane.topic}.{name}")) == 1


def test_a_batch_that_is_done_again_under_other_rules_publishes_what_they_say(
    spark: Any, lane: KafkaLane
) -> None:
    kafka_world.post(lane.servers, lane.topic, [*readings(5), b"nonsense"])
    _break_off(lane, spark, "published")
    before = sum(lane.events().values())
    text = lane.file.read_text(encoding="utf-8")
    limits = "[pipeline.pms.analyse]\ntemp_max = -50.0\n"
    lane.file.write_text(text.replace("\n[spark]", f"{limits}\n[spark]"), encoding="utf-8")
    _break_off(lane, spark, "published")
    after = sum(lane.events().values())
    assert after > before, "the new rules find more"
    counts = lane.run_on(spark)
    assert (counts.stored, counts.events) == (5, after - before)
    assert sum(lane.events().values()) == after, "the same rules say it once"
    assert len(kafka_world.records(lane.servers, f"{lane.topic}.quarantine")) == 2

    kafka_world.post(lane.servers, lane.topic, [b"wrong"])
    lane.file.write_text(text, encoding="utf-8")
    assert lane.run_on(spark).quarantined == 1
    kept = kafka_world.records(lane.servers, f"{lane.topic}.quarantine")
    assert [body for body, _ in kept].count(b"wrong") == 1
    assert len(kept) == 3, "what is stored is not told again when rules change"


def test_a_topic_or_a_broker_that_is_not_there_is_told(lane: KafkaLane) -> None:
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(text.replace(lane.topic, "monitoring.none"), encoding="utf-8")
    with pytest.raises(UnknownTopic, match=r"no topic 'monitoring\.none'; create it first"):
        lane.run_on(None)
    lane.file.write_text(text.replace(lane.servers, "127.0.0.1:9"), encoding="utf-8")
    with pytest.raises(Unavailable, match=r"kafka://127\.0\.0\.1:9 does not answer"):
        lane.run_on(None)


def test_offsets_outside_the_ledger_are_noticed(lane: KafkaLane) -> None:
    feed = KafkaFeed(lane.pipeline, new_ledger(lane))

    def done(start: int, end: int) -> workers.Outcome:
        return workers.Outcome(0, start, end, end - start, [], [], b"", b"")

    feed.check_cover([done(0, 5), done(5, 9)], [(0, 0, 10)], "batch 0")  # a marker is at 9
    for wrong in ([done(0, 11)], [done(0, 5), done(4, 9)]):
        with pytest.raises(CountsDiffer, match="batch 0"):
            feed.check_cover(wrong, [(0, 0, 10)], "batch 0")
    with pytest.raises(CountsDiffer):
        feed.check_cover([done(2, 5)], [(0, 3, 10)], "batch 0")


def test_features_are_the_last_that_are_some(
    lane: KafkaLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique("system.feature")
    monkeypatch.setattr(kafka_feed, "FEATURES", topic)
    feed = KafkaFeed(lane.pipeline, new_ledger(lane))
    feed.open()
    try:
        assert feed.features() == (-1, Features())
        kafka_world.create(lane.servers, topic, 1)
        bad = [b"{", b'{"release":["caf\xe9"]}', None]
        kafka_world.post(lane.servers, topic, [b'{"operational":["logging"]}', *bad])
        assert feed.features() == (3, Features(operational=("logging",)))
        kafka_world.post(lane.servers, topic, [b'{"operational":["x"]}'])
        assert feed.features() == (4, Features(operational=("x",)))
        assert feed.features() == (4, Features(operational=("x",)))
    finally:
        feed.close()
