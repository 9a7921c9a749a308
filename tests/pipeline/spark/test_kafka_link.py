"""What the driver asks a real Kafka, and that what it publishes is published once."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest
from confluent_kafka import TopicPartition

from penstock.pipeline.spark import kafka_link, kafka_url
from penstock.pipeline.spark.kafka_link import KafkaLink, Record, sealed
from penstock.pipeline.spark.refusals import KafkaMissing
from penstock.vocabulary.errors import StorageError, Unavailable, UnknownTopic
from penstock.vocabulary.message import Message
from tests.pipeline.spark import kafka_world, world
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


def test_a_topic_has_an_id_until_it_is_deleted(
    link: KafkaLink, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = link._settings["bootstrap.servers"]
    found = link.topic_id(topic)
    assert found is not None
    assert link.topic_id(topic) == found
    kafka_world.delete(servers, topic)
    world.until(lambda: _is_gone(link, topic), "Kafka to remove the topic")
    with pytest.raises(Unavailable):
        link.topic_id(topic)
    kafka_world.create(servers, topic, 2)
    other = link.topic_id(topic)
    assert other not in (None, found)
    monkeypatch.setattr(kafka_link, "NO_ID", other)
    assert link.topic_id(topic) is None, "a Kafka that gives no ids"


def _is_gone(link: KafkaLink, topic: str) -> bool:
    try:
        link.partitions(topic)
    except UnknownTopic:
        return True
    return False


def test_new_records_are_found_once(link: KafkaLink, topic: str) -> None:
    assert link.bodies_behind("no.such.topic", -1) == []
    assert link.bodies_behind(topic, -1) == []
    link.ensure_topic(f"{topic}.one", is_kept=False)
    link.ensure_topic(f"{topic}.one", is_kept=False)
    servers = link._settings["bootstrap.servers"]
    kafka_world.post(servers, f"{topic}.one", [b"old", b"new"])
    assert link.bodies_behind(f"{topic}.one", -1) == [(0, b"old"), (1, b"new")]
    assert link.bodies_behind(f"{topic}.one", 1) == []


def test_a_topic_that_kafka_refuses_to_make_is_told_with_the_reason(link: KafkaLink) -> None:
    name = unique("pms")
    link.ensure_topic(f"{name}.one", is_kept=False)
    with pytest.raises(Unavailable, match="collides"):
        link.ensure_topic(f"{name}_one", is_kept=False)


def test_new_records_are_found_behind_the_end_of_a_transaction(link: KafkaLink, topic: str) -> None:
    out = f"{topic}.one"
    link.ensure_topic(out, is_kept=False)
    assert link.publish(topic, [(out, "a", Message(body=b"new"))], topic, {0: 0}, f"{topic}.g")
    world.until(lambda: link.ends(out) == {0: (0, 2)}, "a record, and a marker that is none")
    assert link.bodies_behind(out, -1) == [(0, b"new")]
    assert link.bodies_behind(out, 0) == []


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


def test_a_transaction_that_a_killed_run_left_open_is_not_waited_for(
    link: KafkaLink, topic: str
) -> None:
    group, name = unique("published"), unique("pipeline")
    killed = link._producer(name)
    killed.begin_transaction()
    with closing(link._consumer(group)) as member:
        ends = [TopicPartition(topic, 0, 5)]
        killed.send_offsets_to_transaction(ends, member.consumer_group_metadata(), 30.0)
    newer = KafkaLink(
        kafka_url.parse(f"kafka://{link._settings['bootstrap.servers']}", {}), unique("group")
    )
    with closing(newer):
        assert not newer.has_committed(topic, group)
        assert newer.publish(name, [], topic, {0: 5}, group), "the other never came to its end"
        world.until(lambda: newer.has_committed(topic, group), "the note of what is committed")


def test_a_run_that_is_overtaken_is_told_so_however_slow_it_publishes(
    link: KafkaLink, topic: str
) -> None:
    name = unique("pipeline")
    newer = KafkaLink(
        kafka_url.parse(f"kafka://{link._settings['bootstrap.servers']}", {}), unique("group")
    )

    def records() -> Iterator[Record]:
        newer.claim(name)
        for number in range(6_000):
            yield topic, str(number), Message(body=b"x")
            time.sleep(0.01)

    with closing(newer), pytest.raises(Unavailable, match=r"fenced|Fatal"):
        link.publish(name, records(), topic, {0: 5}, unique("published"))


def test_what_is_hidden_behind_a_transaction_is_waited_for(
    link: KafkaLink, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = link._producer(unique("pipeline"))
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(30.0) == 0
    assert link.ends(topic)[0] == (0, 0)

    def commit(_seconds: float) -> None:
        monkeypatch.undo()
        producer.commit_transaction(30.0)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=commit)
    monkeypatch.setattr(kafka_link, "time", clock)
    assert link.settled(topic) == {0: (0, 2), 1: (0, 0)}, "a record, and a marker that is none"


def test_a_topic_that_kafka_knows_later_than_it_was_made_is_waited_for(
    link: KafkaLink, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [UnknownTopic("not yet")] * 3

    def partitions(self: KafkaLink, name: str) -> list[int]:
        if told:
            raise told.pop()
        monkeypatch.undo()
        return self.partitions(name)

    monkeypatch.setattr(KafkaLink, "partitions", partitions)
    link.ensure_topic(topic, is_kept=False)
    assert link.partitions(topic) == [0, 1], "another run has just made it"


def test_a_batch_is_published_again_under_another_note_and_once_under_each(
    link: KafkaLink, topic: str
) -> None:
    out = f"{topic}.quarantine"
    link.ensure_topic(out, is_kept=True)
    group, name, ends = unique("published"), unique("pipeline"), {0: 5, 1: 2}

    def told(note: str, ends: dict[int, int] = ends) -> bool:
        record = (out, "id", Message(body=note.encode()))
        return link.publish(name, [record], topic, ends, group, note)

    assert [told(note) for note in ("a", "a", "b", "a", "b")] == [True, False, True, False, False]
    assert [told(note, {0: 6}) for note in ("b", "b", "a")] == [True, False, True]
    servers = link._settings["bootstrap.servers"]
    said = [body for body, _ in kafka_world.records(servers, out)]
    assert said == [b"a", b"b", b"b", b"a"]


def test_offsets_without_a_note_are_of_any() -> None:
    assert kafka_link.is_out({0: (5, "")}, {0: 5}, "a"), "stored before there were notes"
    assert kafka_link.is_out({0: (9, "a")}, {0: 5}, "")
    assert not kafka_link.is_out({0: (9, "ab")}, {0: 5}, "a")
    assert not kafka_link.is_out({0: (5, "a")}, {0: 5, 1: 1}, "a")


def test_notes_are_of_one_end_and_there_is_an_end_to_them() -> None:
    assert kafka_link.joined_note({}, 0, 5, "a") == "a"
    assert kafka_link.joined_note({0: (5, "a b")}, 0, 5, "c") == "a b c"
    assert kafka_link.joined_note({0: (4, "a b")}, 0, 5, "c") == "c"
    many = " ".join(f"{at:012}" for at in range(1000))
    found = kafka_link.joined_note({0: (5, many)}, 0, 5, "c")
    assert found.endswith(" c")
    assert len(found) < 4096


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
