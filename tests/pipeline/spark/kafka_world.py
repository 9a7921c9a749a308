"""What tests do with a real Kafka: topics, records in, records out, by its own library alone."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.pipeline.spark.world import until

WAIT_S = 60.0


def create(servers: str, topic: str, partitions: int = 3) -> None:
    """Makes a topic."""
    wanted = NewTopic(topic, partitions, 1)
    admin = AdminClient(_common(servers))  # it must live until it has answered
    for made in admin.create_topics([wanted]).values():
        made.result(WAIT_S)
    until(lambda: topic in admin.list_topics(timeout=WAIT_S).topics, "Kafka to know its new topic")


def delete(servers: str, topic: str) -> None:
    """Removes a topic."""
    admin = AdminClient(_common(servers))
    for gone in admin.delete_topics([topic]).values():
        gone.result(WAIT_S)
    until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics, "Kafka to forget a topic")


def trim(servers: str, topic: str, starts: dict[int, int]) -> None:
    """Removes what lies before these offsets, as retention does."""
    admin = AdminClient(_common(servers))
    places = [TopicPartition(topic, at, start) for at, start in starts.items()]
    for gone in admin.delete_records(places).values():
        gone.result(WAIT_S)


def post(
    servers: str, topic: str, given: Sequence[bytes | None], headers: dict[str, str] | None = None
) -> None:
    """Publishes bodies, keys going round, as any other program does."""
    producer = Producer(
        {
            **_common(servers),
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "message.max.bytes": 1_040_000,
        }
    )
    said = headers or {"source": "site"}
    for at, body in enumerate(given):
        producer.produce(topic, value=body, key=f"k{at % 7}", headers=dict(said))
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def abort(servers: str, topic: str, given: Sequence[bytes]) -> None:
    """Publishes bodies in a transaction that is taken back: offsets that hold no record."""
    producer = Producer({**_common(servers), "transactional.id": f"abort.{topic}"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for body in given:
        producer.produce(topic, value=body, partition=0)
    assert producer.flush(WAIT_S) == 0
    producer.abort_transaction(WAIT_S)
    settle(servers, topic)


def settle(servers: str, topic: str) -> None:
    """Waits until every transaction in a topic is seen: Kafka ends them after it said so."""
    readers = [
        Consumer({**_common(servers), "group.id": "looking", "isolation.level": level})
        for level in ("read_committed", "read_uncommitted")
    ]
    try:
        until(
            lambda: _ends(readers[0], topic) == _ends(readers[1], topic),
            f"the end of all transactions in {topic}",
        )
    finally:
        for reader in readers:
            reader.close()


def _ends(reader: Consumer, topic: str) -> list[int]:
    """Where each partition ends for a reader; nowhere when there is no such topic."""
    told = reader.list_topics(topic, timeout=WAIT_S).topics[topic]
    if told.error is not None:
        return []
    places = [TopicPartition(topic, at) for at in sorted(told.partitions)]
    return [reader.get_watermark_offsets(each, timeout=WAIT_S)[1] for each in places]


def records(servers: str, topic: str) -> list[tuple[bytes | None, dict[str, str]]]:
    """Every record of a topic that was committed: body and headers."""
    settle(servers, topic)
    reader = Consumer(
        {
            **_common(servers), "group.id": "looking", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )  # fmt: skip
    found: list[tuple[bytes | None, dict[str, str]]] = []
    try:
        told = reader.list_topics(topic, timeout=WAIT_S).topics[topic]
        if told.error is not None:
            return []
        left = set(told.partitions)
        reader.assign([TopicPartition(topic, at, 0) for at in left])
        while left:
            record: Any = reader.poll(WAIT_S)
            assert record is not None
            if record.error() is not None:
                left.discard(record.partition())
                continue
            headers = {name: value.decode() for name, value in record.headers() or []}
            found.append((record.value(), headers))
    finally:
        reader.close()
    return found


def committed(servers: str, topic: str, group: str, partitions: int = 3) -> dict[int, int]:
    """How far a group is."""
    reader = Consumer({**_common(servers), "group.id": group})
    try:
        places = [TopicPartition(topic, at) for at in range(partitions)]
        return {each.partition: each.offset for each in reader.committed(places, timeout=WAIT_S)}
    finally:
        reader.close()


def _common(servers: str) -> dict[str, Any]:
    return {"bootstrap.servers": servers, "log_level": 0}
