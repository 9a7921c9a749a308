"""What the driver asks a real Kafka, and that what it publishes is published once."""

import sys
from collections.abc import Iterator

import pytest

from penstock.pipeline.spark import kafka_url
from penstock.pipeline.spark.kafka_link import KafkaLink, Record, sealed
from penstock.pipeline.spark.refusals import KafkaMissing
from penstock.vocabulary.errors import StorageError, UnknownTopic
from penstock.vocabulary.message import Message
from tests.pipeline.spark import kafka_world
from tests.servers.fixtures import unique
from tests.servers.kafka import Cluster


@pytest.fixture
def topic(kafka_server: Cluster) -> str:
    name = unique("monitoring.pms")
    kafka_world.create(kafka_server.bootstrap, name, 2)
    return name


@pytest.fixture
def link(kafka_server: Cluster) -> Iterator[KafkaLink]:
    found = KafkaLink(kafka_url.parse(f"kafka://{kafka_server.bootstrap}", {}), unique("group"))
    yield found
    found.close()


def test_ends_and_progress_are_kafkas_own(link: KafkaLink, topic: str) -> None:
    assert link.ends(topic) == {0: (0, 0), 1: (0, 0)}
    servers = link._settings["bootstrap.servers"]
    kafka_world.post(servers, topic, [b"%d" % at for at in range(20)])
    assert sum(high for _, high in link.ends(topic).values()) == 20
    assert link.committed(topic) == {}
    link.commit(topic, {0: 3})
    link.commit(topic, {})
    assert link.committed(topic) == {0: 3}
    with pytest.raises(UnknownTopic, match="create it first"):
        link.ends("no.such.topic")


def test_the_newest_record_is_found_once(link: KafkaLink, topic: str) -> None:
    assert link.last_body("no.such.topic", -1) is None
    assert link.last_body(topic, -1) is None
    link.ensure_topic(f"{topic}.one", is_kept=False)
    link.ensure_topic(f"{topic}.one", is_kept=False)
    servers = link._settings["bootstrap.servers"]
    kafka_world.post(servers, f"{topic}.one", [b"old", b"new"])
    assert link.last_body(f"{topic}.one", -1) == (1, b"new")
    assert link.last_body(f"{topic}.one", 1) is None


def test_a_batch_that_is_published_again_is_not_published_again(
    link: KafkaLink, topic: str
) -> None:
    out = f"{topic}.quarantine"
    link.ensure_topic(out, is_kept=True)
    records: list[Record] = [
        (out, f"id-{at}", Message(body=b"%d" % at, headers={"penstock-stage": "validate"}))
        for at in range(3)
    ]
    group = unique("published")
    name = unique("pipeline")
    servers = link._settings["bootstrap.servers"]
    assert link.publish(name, records, topic, {0: 5, 1: 2}, group) is True
    assert link.publish(name, records, topic, {0: 5, 1: 2}, group) is False
    assert [body for body, _ in kafka_world.records(servers, out)] == [b"0", b"1", b"2"]
    assert link.publish(name, records[:1], topic, {0: 6, 1: 2}, group) is True

    newer = KafkaLink(kafka_url.parse(f"kafka://{servers}", {}), unique("group"))
    try:
        assert newer.publish(name, records, topic, {0: 6, 1: 2}, group) is False, "a new run knows"
    finally:
        newer.close()
    large = Message(body=b"x" * 70_000_000)
    with pytest.raises(StorageError, match="too large"):
        link.publish(name, [(out, "large", large)], topic, {0: 9, 1: 2}, group)
    assert len(kafka_world.records(servers, out)) == 4, "nothing of it is seen"


def test_headers_are_sealed_as_on_every_foreign_broker() -> None:
    message = Message(
        headers={"type": "penstock.row", "subject": "Süd", "penstock-stage": "x", "empty": ""}
    )
    found = dict(sealed("an-id", message))
    assert found["penstock-id"] == b"an-id"
    assert found["type"] == b"penstock.row"
    assert set(found) == {"penstock-id", "type", "penstock-more"}
    assert b"penstock-stage" in found["penstock-more"]


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(KafkaMissing, match="extra 'kafka'"):
        KafkaLink(kafka_url.parse("kafka://h1", {}), "g")
