"""How much memory a backlog takes: what is delivered and not acked, and what only waits."""

import asyncio
import threading
import time
import tracemalloc
from typing import Any, Final

from penstock.batch import encode_many
from penstock.broker.broker import Broker, Sink
from penstock.broker.mailbox import DIRECT
from penstock.cli.bench import measure
from penstock.cli.bench.broker import opened
from penstock.cli.bench.plan import SUBSCRIPTION, TOPIC, Budget, Plan
from penstock.journal.disk import FolderDisk
from penstock.journal.memory import MemoryDisk
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.limits import CREDIT_MAX
from penstock.vocabulary.policy import SubscriptionPolicy

DELIVERY: Final = 100
"""Messages handed over together."""
PUBLISHER: Final = bytes(16)
PATIENCE_S: Final = 120.0


def unacked(plan: Plan) -> dict[str, Any]:
    """The broker's own memory while a consumer holds messages in deliveries of 100.

    Measured at the broker, whose consumer here lets the bodies go: what is left is its state.
    """
    count = plan.scaled(1_000_000, 200_000) // DELIVERY * DELIVERY
    settings = JournalSettings(cache_bytes=0)
    disk = FolderDisk(plan.path) if plan.folder else MemoryDisk()
    broker = Broker.open(disk, settings)
    arrived = Arrivals(count)
    sink = Sink(DIRECT, arrived, lambda _: None)
    try:
        broker.attach(
            TOPIC, SUBSCRIPTION, SubscriptionPolicy(lease_s=3_600.0), None, CREDIT_MAX, 1 << 40,
            "bench", sink,
        )  # fmt: skip
        _send(broker, plan, 0, 1)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        _send(broker, plan, 1, count // DELIVERY)
        arrived.wait()
        after = tracemalloc.get_traced_memory()[0]
        held = broker.subscriptions(TOPIC)[0]["leased"]
    finally:
        tracemalloc.stop()
        broker.close()
    return {"unacked": held, "deliveries": arrived.slices, "state_bytes": after - before}


class Arrivals:
    """Counts what arrives and lets it go."""

    def __init__(self, expected: int) -> None:
        self.slices = 0
        self._left = expected
        self._is_complete = threading.Event()

    def __call__(self, part: Any) -> None:
        self.slices += 1
        self._left -= part.end - part.start
        if self._left <= 0:
            self._is_complete.set()

    def wait(self) -> None:
        """Returns when everything arrived."""
        assert self._is_complete.wait(PATIENCE_S), "not every message arrived"


def _send(broker: Broker, plan: Plan, first: int, end: int) -> None:
    """Publishes batches number first…end and waits for each, so that deliveries stay as small."""
    batch = encode_many(measure.bodies(DELIVERY, plan.size))
    gate = threading.Semaphore(DELIVERY)
    for number in range(first, end):
        gate.acquire()
        broker.publish(
            TOPIC, 0, batch, DELIVERY, PUBLISHER, 1, number * DELIVERY, DIRECT,
            lambda _: gate.release(),
        )  # fmt: skip
    for _ in range(DELIVERY):
        gate.acquire()


def backlog(plan: Plan) -> dict[str, Any]:
    """The memory of a whole process that holds messages published one by one."""
    return asyncio.run(_backlog(plan))


async def _backlog(plan: Plan) -> dict[str, Any]:
    count = plan.scaled(10_000_000, 200_000)
    body = measure.bodies(1, plan.size)[0]
    async with opened(plan) as client:
        await client.create_subscription(TOPIC, SUBSCRIPTION)
        budget = Budget(0, count)

        async def caller() -> None:
            while budget.take(1):
                await client.publish(TOPIC, body)

        before = measure.settled_bytes()
        began = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(plan.callers)))
        elapsed = time.perf_counter() - began
        held = (await client.stats())["messages_held"]
        after = measure.settled_bytes()
    return {
        "messages_held": held,
        "resident_bytes": after,
        "resident_bytes_empty": before,
        "messages_per_s": count / elapsed,
    }
