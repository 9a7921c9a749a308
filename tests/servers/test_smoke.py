"""One round trip with each real server, through the client its own users have."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import nats
import paho.mqtt.client as mqtt
import pytest
import redis
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from google.cloud import pubsub_v1  # type: ignore[import-untyped]
from paho.mqtt.enums import CallbackAPIVersion

from penstock.cli.bench import servers
from penstock.cli.bench.servers import Server
from tests.servers.fixtures import starting, unique
from tests.servers.kafka import Cluster

PATIENCE_S = 60.0


def test_nats(nats_server: Server) -> None:
    async def round_trip() -> tuple[bytes, int]:
        client = await nats.connect(f"nats://{nats_server.address}")
        try:
            stream = client.jetstream()
            name = unique("stream")
            await stream.add_stream(name=name, subjects=[name])
            await stream.publish(name, b"hello")
            subscription = await stream.pull_subscribe(name, "reader")
            (message,) = await subscription.fetch(1, timeout=PATIENCE_S)
            await message.ack_sync()
            info = await subscription.consumer_info()
            return message.data, info.num_ack_pending or 0
        finally:
            await client.close()

    assert asyncio.run(round_trip()) == (b"hello", 0)


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_redis(redis_server: Callable[..., Server], fsync: str) -> None:
    server = redis_server(fsync)
    with redis.Redis(port=server.port) as client:
        settings: Any = client.config_get("append*")
        assert (settings["appendonly"], settings["appendfsync"]) == ("yes", fsync)
        name = unique("stream")
        client.xgroup_create(name, "group", id="0", mkstream=True)
        client.xadd(name, {"body": b"hello"})
        ((_, rows),) = client.xreadgroup("group", "reader", {name: ">"})
        ((number, fields),) = rows
        assert fields == {b"body": b"hello"}
        assert client.xack(name, "group", number) == 1


def test_a_confirmed_message_survives_a_kill_of_redis(tmp_path: Path) -> None:
    with starting(lambda: servers.redis(tmp_path / "redis", fsync="always")) as server:
        with redis.Redis(port=server.port) as client:
            client.xadd("stream", {"body": b"hello"})
        server.kill()
        server.start()
        with redis.Redis(port=server.port) as client:
            assert client.xlen("stream") == 1


def test_mosquitto(mosquitto: Server) -> None:
    topic, heard, came = unique("topic"), Event(), Event()
    bodies: list[bytes] = []

    def take(_client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        bodies.append(bytes(message.payload))
        came.set()

    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_subscribe = lambda *_: heard.set()
    client.on_message = take
    client.connect("127.0.0.1", mosquitto.port)
    client.loop_start()
    try:
        client.subscribe(topic, qos=1)
        assert heard.wait(PATIENCE_S)
        client.publish(topic, b"hello", qos=1)
        assert came.wait(PATIENCE_S)
    finally:
        client.disconnect()
        client.loop_stop()
    assert bodies == [b"hello"]


def test_pstest(pstest: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pstest.address)
    with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
        topic = publisher.topic_path("project", unique("topic"))
        subscription = subscriber.subscription_path("project", unique("subscription"))
        publisher.create_topic(name=topic)
        subscriber.create_subscription(name=subscription, topic=topic)
        publisher.publish(topic, b"hello").result(PATIENCE_S)
        answer = subscriber.pull(subscription=subscription, max_messages=1, timeout=PATIENCE_S)
        (found,) = answer.received_messages
        subscriber.acknowledge(subscription=subscription, ack_ids=[found.ack_id])
        assert found.message.data == b"hello"


def test_kafka_on_one_node(kafka_server: Cluster) -> None:
    topic = _new_topic(kafka_server, copies=1)
    _to_kafka(kafka_server, topic, b"hello")
    assert _from_kafka(kafka_server, topic, 1) == [b"hello"]


@pytest.mark.prove  # in every run, the driver loses a node of three under load
def test_kafka_on_three_nodes_goes_on_with_two(kafka_cluster: Cluster) -> None:
    topic = _new_topic(kafka_cluster, copies=3)
    _to_kafka(kafka_cluster, topic, b"all three")
    victim = kafka_cluster.nodes[-1]
    victim.kill()
    try:
        _to_kafka(kafka_cluster, topic, b"two left")
        assert _from_kafka(kafka_cluster, topic, 2) == [b"all three", b"two left"]
    finally:
        victim.start()


def _where(cluster: Cluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap, "log_level": 2}


def _new_topic(cluster: Cluster, copies: int) -> str:
    topic = unique("topic")
    admin = AdminClient(_where(cluster))  # kept: one that is let go takes its requests with it
    new = NewTopic(topic, num_partitions=1, replication_factor=copies)
    admin.create_topics([new])[topic].result(PATIENCE_S)
    return topic


def _to_kafka(cluster: Cluster, topic: str, body: bytes) -> None:
    failed: list[object] = []
    producer = Producer(_where(cluster) | {"acks": "all"})
    producer.produce(topic, body, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failed == [None]


def _from_kafka(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    settings = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(_where(cluster) | settings)
    try:
        consumer.subscribe([topic])
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, found
            assert message.error() is None
            body = message.value()
            assert isinstance(body, bytes)
            found.append(body)
    finally:
        consumer.close()
    return found
