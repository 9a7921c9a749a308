"""The words the tests of this driver are written in."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from confluent_kafka import Consumer, Producer

import penstock
from penstock.drivers.choose import address_of
from penstock.drivers.kafka.carrier import KafkaCarrier, connect
from tests.servers.kafka import Cluster

TEST_S = 60.0


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a test, not for ever."""
    return asyncio.run(asyncio.wait_for(work, TEST_S))


def url_of(cluster: Cluster, options: str = "topics=1:1") -> str:
    return f"kafka://{cluster.bootstrap}?session_s=6&{options}"


def client_of(cluster: Cluster, options: str = "topics=1:1") -> penstock.Client:
    return penstock.connect(url_of(cluster, options))


async def carrier_of(cluster: Cluster, options: str = "topics=1:1") -> KafkaCarrier:
    return await connect(address_of(url_of(cluster, options)))


def produce(cluster: Cluster, topic: str, *records: dict[str, Any]) -> list[int]:
    """Stores records as another program does; their partitions."""
    placed: list[int] = []
    config = {"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random"}
    producer = Producer(config)
    for record in records:
        producer.produce(
            topic, on_delivery=lambda _, m: placed.append(m.partition() or 0), **record
        )
        producer.flush(TEST_S)
    return placed


def consume(cluster: Cluster, topic: str, count: int) -> list[Any]:
    """The first messages of a topic as another program gets them."""
    config = {
        "bootstrap.servers": cluster.bootstrap, "group.id": f"other-{topic}",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    }  # fmt: skip
    consumer = Consumer(config)
    found: list[Any] = []
    try:
        consumer.subscribe([topic])
        while len(found) < count:
            message = consumer.poll(TEST_S)
            assert message is not None, found
            if message.error() is None:
                found.append(message)
    finally:
        consumer.close()
    return found
