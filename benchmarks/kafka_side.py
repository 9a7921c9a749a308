"""Kafka through confluent-kafka, tuned as its users would."""

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.cli.bench.plan import Plan
from penstock.cli.bench.side import Tally

TOGETHER = 1_000
PATIENCE_S = 30.0
HEADERS = [("penstock-id", b"0123456789abcdef0123456789abcdef-0-0")]
"""Messages of a Penstock client carry their id: the same work is the same bytes."""


class KafkaSide:
    """A producer with a thread that polls it, and a consumer in a thread that commits by hand."""

    in_flight = 8

    def __init__(self, plan: Plan) -> None:
        self._where = {"bootstrap.servers": urlsplit(plan.url).netloc}
        self._topic = f"bench-{uuid4().hex[:8]}"
        self._is_closed = False

    async def open(self) -> None:
        """A topic of one partition and one copy."""
        self._loop = asyncio.get_running_loop()
        self._admin = AdminClient(self._where)
        new = NewTopic(self._topic, num_partitions=1, replication_factor=1)
        for future in self._admin.create_topics([new]).values():
            await asyncio.wrap_future(future)
        self._producer = Producer(
            self._where | {"enable.idempotence": True, "acks": "all", "linger.ms": 0.5}
        )
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._is_closed:
            self._producer.poll(0.1)

    async def close(self) -> None:
        """Deletes the topic."""
        self._is_closed = True
        await asyncio.to_thread(self._thread.join)
        for future in self._admin.delete_topics([self._topic]).values():
            await asyncio.wrap_future(future)

    async def publish(self, body: bytes) -> None:
        """One message."""
        await self.publish_many([body])

    async def publish_many(self, bodies: Sequence[bytes]) -> None:
        """Each message, then all their reports; the loop is woken by the last one."""
        told: asyncio.Future[None] = self._loop.create_future()
        left = len(bodies)

        def report(error: Any, _message: Any) -> None:
            nonlocal left
            assert error is None, error
            left -= 1
            if not left:
                self._loop.call_soon_threadsafe(told.set_result, None)

        for body in bodies:
            self._producer.produce(self._topic, body, on_delivery=report, headers=HEADERS)
        await told

    async def consume(self, tally: Tally) -> None:
        """Batches from a thread; what was taken is committed by hand, once for each batch."""
        done = asyncio.Event()
        thread = threading.Thread(target=self._consume, args=(tally, done), daemon=True)
        thread.start()
        try:
            await done.wait()
        finally:
            tally.wanted = min(tally.wanted, tally.taken)
            await asyncio.to_thread(thread.join)

    def _consume(self, tally: Tally, done: asyncio.Event) -> None:
        consumer = Consumer(
            self._where
            | {
                "group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "earliest",
                "fetch.queue.backoff.ms": 10, "session.timeout.ms": 10_000,
            }
        )  # fmt: skip
        try:
            consumer.subscribe([self._topic])
            while tally.taken < tally.wanted:
                first = consumer.poll(0.01)
                if first is None or first.error() is not None:
                    continue
                found = [first, *consumer.consume(TOGETHER, 0)]
                good = [message for message in found if message.error() is None]
                self._loop.call_soon_threadsafe(partial(_take, tally, good))
                place = TopicPartition(self._topic, 0, good[-1].offset() + 1)
                consumer.commit(offsets=[place], asynchronous=True)
            consumer.commit(offsets=[place], asynchronous=False)
        finally:
            consumer.close()
            self._loop.call_soon_threadsafe(done.set)

    async def about(self) -> dict[str, str]:
        """Versions, and what a confirmation means."""
        cluster = await asyncio.wrap_future(self._admin.describe_cluster())
        return {
            "server": f"kafka, {len(cluster.nodes)} broker(s)",
            "client": f"confluent-kafka {metadata.version('confluent-kafka')}",
            "durability": "written by every copy in sync, synced by none",
        }


def _take(tally: Tally, messages: list[Any]) -> None:
    arrived = tally.arrived
    for message in messages:
        body, _ = message.value(), message.headers()
        if arrived is not None:
            arrived(body)
    tally.taken += len(messages)


def side(plan: Plan) -> KafkaSide:
    """The side of a plan."""
    return KafkaSide(plan)
