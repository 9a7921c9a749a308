"""What our client costs over the SDK used directly, for the same work, in one run.

    python -m benchmarks.overhead [nats] [redis] [kafka] [--rounds N] [--json]

Rounds of the SDK and of our client alternate, so that whatever else the machine does happens to
both. The SDK's side sends the same headers, waits for the same confirmations, consumes by batches
and acks each message; that a repeat is stored once is ours alone. Latency is that of one caller who
awaits each publish; throughput that of batches of a hundred, and of consuming them, subscribing and
leaving not counted. CPU is that of this process. Each figure is the median of its rounds.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import nats
import redis.asyncio
import uvloop
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from nats.js.api import ConsumerConfig

import penstock
from penstock.cli.bench import servers
from tests.servers.kafka import Cluster

SIZE: Final = 100
SINGLES: Final = 300
BATCH: Final = 100
BATCHES: Final = 30
BODY: Final = b"x" * SIZE
THROUGHPUT_MAX, LATENCY_MAX = 1.30, 1.20
"""Most that our client may cost: the SDK's time taken as 1."""


class Took(NamedTuple):
    """Seconds by the clock, and of this process's CPU."""

    wall: float
    cpu: float


class Clock:
    """Begins when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def took(self) -> Took:
        """The time since."""
        return Took(time.perf_counter() - self._wall, time.process_time() - self._cpu)


class NatsSdk:
    """nats-py, with the headers our client sends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._name = f"sdk-{uuid4().hex[:8]}"
        self._number = 0

    async def open(self) -> None:
        self._nats = await nats.connect(self._url, pending_size=64 << 20)
        self._js = self._nats.jetstream(timeout=60, publish_async_max_pending=8_000)
        await self._js.add_stream(name=self._name, subjects=[self._name])
        config = ConsumerConfig(max_ack_pending=100_000)
        self._pull = await self._js.pull_subscribe(self._name, "s", config=config)

    async def close(self) -> None:
        await self._js.delete_stream(self._name)
        await self._nats.close()

    def _headers(self) -> dict[str, str]:
        self._number += 1
        id = f"{self._name}-{self._number:x}"
        return {"penstock-id": id, "Nats-Msg-Id": id}

    async def publish(self) -> None:
        await self._js.publish(self._name, BODY, headers=self._headers())

    async def publish_many(self) -> None:
        futures = [
            await self._js.publish_async(self._name, BODY, headers=self._headers())
            for _ in range(BATCH)
        ]
        await asyncio.gather(*futures)

    async def consume(self, count: int) -> Took:
        began = Clock()
        while count > 0:
            found = await self._pull.fetch(BATCH, timeout=5)
            for message in found[:-1]:
                await message.ack()
            await found[-1].ack_sync()
            count -= len(found)
        return began.took()


class RedisSdk:
    """redis-py with hiredis, with the fields our client sends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._name = f"sdk-{uuid4().hex[:8]}"
        self._number = 0

    async def open(self) -> None:
        self._redis = redis.asyncio.from_url(self._url)
        await self._redis.xgroup_create(self._name, "s", id="0", mkstream=True)

    async def close(self) -> None:
        await self._redis.delete(self._name)
        await self._redis.aclose()

    def _fields(self) -> dict[Any, Any]:
        self._number += 1
        return {"body": BODY, "penstock-id": f"{self._name}-{self._number:x}"}

    async def publish(self) -> None:
        await self._redis.xadd(self._name, self._fields())

    async def publish_many(self) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for _ in range(BATCH):
                pipe.xadd(self._name, self._fields())
            await pipe.execute()

    async def consume(self, count: int) -> Took:
        began = Clock()
        while count > 0:
            found = await self._redis.xreadgroup("s", "c", {self._name: ">"}, BATCH, block=5_000)
            ids = [id for id, _ in found[0][1]]
            await self._redis.xack(self._name, "s", *ids)
            count -= len(ids)
        return began.took()


class KafkaSdk:
    """confluent-kafka: a thread that polls the producer, a consumer called from a thread."""

    def __init__(self, url: str) -> None:
        self._where = {"bootstrap.servers": urlsplit(url).netloc}
        self._name = f"sdk-{uuid4().hex[:8]}"
        self._number = 0
        self._is_closed = False

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._admin = AdminClient(self._where)
        new = NewTopic(self._name, num_partitions=1, replication_factor=1)
        for future in self._admin.create_topics([new]).values():
            await asyncio.wrap_future(future)
        self._producer = Producer(
            self._where | {"enable.idempotence": True, "acks": "all", "linger.ms": 0.5}
        )
        self._consumer = Consumer(
            self._where
            | {"group.id": self._name, "enable.auto.commit": False, "auto.offset.reset": "earliest",
               "fetch.queue.backoff.ms": 10}
        )  # fmt: skip
        self._consumer.subscribe([self._name])
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._is_closed:
            self._producer.poll(0.2)

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._consumer.close)
        for future in self._admin.delete_topics([self._name]).values():
            await asyncio.wrap_future(future)

    async def publish(self) -> None:
        await self._produce(1)

    async def publish_many(self) -> None:
        await self._produce(BATCH)

    async def _produce(self, count: int) -> None:
        told: asyncio.Future[None] = self._loop.create_future()
        places: list[tuple[int, int]] = []

        def report(error: Any, message: Any) -> None:
            assert error is None, error
            places.append((message.partition(), message.offset()))
            if len(places) == count:
                self._loop.call_soon_threadsafe(told.set_result, None)

        for _ in range(count):
            self._number += 1
            headers = [("penstock-id", f"{self._name}-{self._number:x}".encode())]
            self._producer.produce(self._name, BODY, on_delivery=report, headers=headers)
        await told

    async def consume(self, count: int) -> Took:
        first = await asyncio.to_thread(self._fetch)  # joining the group is not counted
        began = Clock()
        count -= self._finish(first, is_last=count <= len(first))
        while count > 0:
            found = await asyncio.to_thread(self._fetch)
            count -= self._finish(found, is_last=count <= len(found))
        return began.took()

    def _fetch(self) -> list[Any]:
        while True:
            first = self._consumer.poll(5.0)
            if first is not None and first.error() is None:
                return [first, *self._consumer.consume(BATCH - 1, 0)]

    def _finish(self, found: list[Any], *, is_last: bool) -> int:
        for message in found:
            assert message.value()
            assert message.headers()
        place = TopicPartition(self._name, 0, found[-1].offset() + 1)
        self._consumer.commit(offsets=[place], asynchronous=not is_last)
        return len(found)


class Ours:
    """Our client on the same server."""

    def __init__(self, url: str) -> None:
        self._is_joining = self._has_to_join = url.startswith("kafka:")
        self._client = penstock.connect(url)
        self._topic = f"ours-{uuid4().hex[:8]}"

    async def open(self) -> None:
        await self._client.open()
        await self._client.create_subscription(self._topic, "s")

    async def close(self) -> None:
        await self._client.delete_topic(self._topic)
        await self._client.close()

    async def publish(self) -> None:
        await self._client.publish(self._topic, BODY)

    async def publish_many(self) -> None:
        await self._client.publish_many(self._topic, [BODY] * BATCH)

    async def consume(self, count: int) -> Took:
        async with self._client.subscribe(self._topic, "s") as deliveries:
            began = Clock()
            async for batch in deliveries.batches(BATCH):
                if self._has_to_join:  # as the SDK's side does, which joins with its first fetch
                    began, self._has_to_join = Clock(), False
                batch.ack()
                count -= len(batch)
                if count <= 0:
                    break
            await deliveries.flush()
            self._has_to_join = self._is_joining
            return began.took()


async def latency(side: Any) -> Took:
    """One awaited publish, at the median."""
    found: list[Took] = []
    for _ in range(SINGLES):
        began = Clock()
        await side.publish()
        found.append(began.took())
    await side.consume(SINGLES)
    return Took(*(statistics.median(each) for each in zip(*found, strict=True)))


async def flow(side: Any) -> tuple[Took, Took]:
    """Publishing and consuming the same messages."""
    began = Clock()
    for _ in range(BATCHES):
        await side.publish_many()
    took = began.took()
    return took, await side.consume(BATCH * BATCHES)


async def compared(sdk: Any, ours: Any, rounds: int) -> dict[str, float]:
    """Our time over the SDK's, for each kind of work."""
    took: dict[str, tuple[list[Took], list[Took]]] = {
        name: ([], []) for name in ("latency", "publish", "consume", "both")
    }
    for side in (sdk, ours):
        await side.open()
        await latency(side)
    for turn in range(2 * rounds):
        which = (turn + turn // 2) % 2  # who goes first alternates too
        side = (sdk, ours)[which]
        took["latency"][which].append(await latency(side))
        out, back = await flow(side)
        took["publish"][which].append(out)
        took["consume"][which].append(back)
        took["both"][which].append(Took(out.wall + back.wall, out.cpu + back.cpu))
    for side in (sdk, ours):
        await side.close()
    found: dict[str, float] = {}
    for name, sides in took.items():
        for kind in Took._fields:
            one, other = (statistics.median(getattr(each, kind) for each in side) for side in sides)
            found[f"{name} {kind}"] = other / one
            if name == "latency":
                found[f"sdk {kind} us"], found[f"ours {kind} us"] = one * 1e6, other * 1e6
    return found


KINDS: Final[dict[str, tuple[Callable[[Path], Callable[[int], servers.Server]], Any]]] = {
    "nats": (servers.nats, NatsSdk),
    "redis": (lambda folder: servers.redis(folder, fsync="everysec"), RedisSdk),
}


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """The URL of a Kafka on one node."""
    cluster = Cluster(folder, 1)
    try:
        yield f"kafka://{cluster.start().bootstrap}"
    finally:
        cluster.stop()


def measure(kind: str, rounds: int) -> dict[str, float]:
    """Starts a server and compares."""
    if kind == "kafka":
        with tempfile.TemporaryDirectory() as folder, kafka(Path(folder)) as url:
            return uvloop.run(compared(KafkaSdk(url), Ours(f"{url}?topics=1:1"), rounds))
    make, sdk = KINDS[kind]
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.running(make(Path(folder))) as server,
    ):
        url = f"{kind}://{server.address}"
        return uvloop.run(compared(sdk(url), Ours(url), rounds))


def main(words: list[str]) -> int:
    """Prints the figures; 1 when our client costs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.overhead")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join((*KINDS, "kafka")))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(words)
    found = {kind: measure(kind, chosen.rounds) for kind in chosen.kinds or (*KINDS, "kafka")}
    is_fine = all(
        row["both wall"] <= THROUGHPUT_MAX and row["latency wall"] <= LATENCY_MAX
        for row in found.values()
    )
    if chosen.json:
        sys.stdout.write(json.dumps(found) + "\n")
    for kind, row in found.items() if not chosen.json else ():
        sys.stdout.write(f"{kind}\n")
        for name, value in row.items():
            shown = f"{value:10,.0f}" if name.endswith(" us") else f"{value - 1:+10.0%}"
            sys.stdout.write(f"  {name:16}{shown}\n")
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
