"""A topic of Kafka is told by its id; a pipeline begins with an epoch that Kafka does not know."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.pipeline.ledger import Entry
from penstock.pipeline.refusals import SourceDiffers
from penstock.pipeline.spark import kafka_beginning, kafka_url
from penstock.pipeline.spark.kafka_link import KafkaLink
from tests.pipeline.spark import kafka_world
from tests.pipeline.spark.lanes import SparkLane, new_ledger
from tests.servers.fixtures import unique
from tests.servers.kafka import Cluster


@pytest.fixture
def lane(tmp_path: Path) -> SparkLane:
    return SparkLane(tmp_path, "kafka://127.0.0.1:9", "monitoring.pms")


def test_the_id_of_the_topic_is_kept_and_another_is_refused(lane: SparkLane) -> None:
    pipeline = lane.pipeline
    with_past = new_ledger(lane)
    with_past.open_epoch({0: 0}, 1)
    kafka_beginning.check_topic(pipeline, with_past, "any")  # a checkpoint from before ids
    kafka_beginning.note_topic(pipeline, "one")
    kafka_beginning.note_topic(pipeline, None)
    kafka_beginning.check_topic(pipeline, with_past, "one")
    kafka_beginning.check_topic(pipeline, with_past, None)  # a Kafka that gives none
    with pytest.raises(SourceDiffers, match="the id one, and knows it by two now"):
        kafka_beginning.check_topic(pipeline, with_past, "two")
    with_past.open_epoch({0: 0}, 2)
    with pytest.raises(SourceDiffers, match="another checkpoint and table"):
        kafka_beginning.check_topic(pipeline, with_past, "two")
    with_past.close()


def test_a_pipeline_that_has_read_nothing_takes_any_topic(lane: SparkLane) -> None:
    lane.checkpoint.mkdir()
    kafka_beginning.note_topic(lane.pipeline, "one")
    kafka_beginning.check_topic(lane.pipeline, new_ledger(lane), "two")
    kafka_beginning.note_topic(lane.pipeline, "two")
    assert (lane.checkpoint / kafka_beginning.NAME).read_text(encoding="utf-8") == "two"


def test_what_kafka_lacks_is_named(lane: SparkLane) -> None:
    def check(held: dict[int, tuple[int, int]]) -> None:
        kafka_beginning.check_held(lane.pipeline, {0: 5, 1: 7}, {0: 9, 1: 7, 2: 3}, held)

    check({0: (5, 9), 1: (0, 20), 2: (0, 3)})
    with pytest.raises(SourceDiffers, match=r"goes on at 2:0 up to 2:3, .* holds 2:0 to 2:0"):
        check({0: (6, 9), 1: (0, 20)})
    with pytest.raises(SourceDiffers, match=r"no longer holds 0:5 to 0:6, 2:0 to 2:1, .*--skip"):
        check({0: (6, 9), 1: (7, 7), 2: (1, 3)})


@pytest.fixture
def used(kafka_server: Cluster, tmp_path: Path) -> Iterator[tuple[SparkLane, KafkaLink]]:
    """A pipeline whose epochs 1 and 2 are known to Kafka."""
    lane = SparkLane(tmp_path, f"kafka://{kafka_server.bootstrap}", unique("monitoring.pms"))
    kafka_world.create(kafka_server.bootstrap, lane.topic)
    name = kafka_beginning.producer_of(lane.pipeline)
    with closing(KafkaLink(kafka_url.parse(lane.url), unique("group"))) as before:
        for epoch in (1, 2):
            group = kafka_beginning.group_of(lane.pipeline, epoch)
            assert before.publish(name, [], lane.topic, {0: 9}, group)
    with closing(KafkaLink(kafka_url.parse(lane.url), unique("group"))) as link:
        yield lane, link


def test_an_epoch_without_batches_is_one_that_kafka_does_not_know(
    used: tuple[SparkLane, KafkaLink],
) -> None:
    lane, link = used
    ledger = new_ledger(lane)
    kafka_beginning.choose_epoch(link, lane.pipeline, ledger)
    assert (ledger.entries, ledger.epoch) == ([], 3)

    ledger.open_epoch({0: 5, 1: 6}, 1)
    for _ in range(2):
        kafka_beginning.choose_epoch(link, lane.pipeline, ledger)
        assert [each.epoch for each in ledger.entries] == [1, 3]
    assert ledger.entries[-1].batch == -1
    assert ledger.entries[-1].ends() == {0: 5, 1: 6}
    ledger.close()


def test_an_epoch_with_batches_is_kept(used: tuple[SparkLane, KafkaLink]) -> None:
    lane, link = used
    ledger = new_ledger(lane)
    ledger.open_epoch({0: 0}, 1)
    offsets = lane.checkpoint / "spark" / "1" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "1").touch()
    kafka_beginning.choose_epoch(link, lane.pipeline, ledger)
    assert ledger.epoch == 1, "Spark is ahead of the ledger, which is refused later"
    (offsets / "1").rename(offsets / "0")
    ledger.record(Entry(1, 0, [(0, 0, 9)]))
    kafka_beginning.choose_epoch(link, lane.pipeline, ledger)
    assert ledger.epoch == 1
    ledger.close()
