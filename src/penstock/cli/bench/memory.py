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
PATIENCE_S: Final = 30.0


def unacked(plan: Plan) -> dict[str, Any]:
    """The broker's own memory while a consumer holds messages in deliveries of 100.

    Measured at the broker, whose consumer here lets the bodies go: what is left is its state.
    """
    batches = plan.scaled(1_000_000, 200_000) // DELIVERY
    batch = encode_many(measure.bodies(DELIVERY, plan.size))
    settings = JournalSettings(cache_bytes=0)
    disk = FolderDisk(plan.path) if plan.folder else MemoryDisk()
    broker = Broker.open(disk, settings)
    arrived = Arrivals()
    sink = Sink(DIRECT, arrived, lambda _: None)
    try:
        broker.attach(
            TOPIC, SUBSCRIPTION, SubscriptionPolicy(lease_s=3_600.0), None, CREDIT_MAX, 1 << 40,
            "bench", sink,
        )  # fmt: skip
        _send(broker, arrived, batch, range(1))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        _send(broker, arrived, batch, range(1, batches))
        after = tracemalloc.get_traced_memory()[0]
        held = broker.subscriptions(TOPIC)[0]["leased"]
    finally:
        tracemalloc.stop()
        broker.close()
    return {"unacked": held, "deliveries": arrived.slices, "state_bytes": after - before}


class Arrivals:
    """Counts what arrives and lets it go."""

    def __init__(self) -> None:
        self.slices = 0
        self._came = threading.Semaphore(0)

    def __call__(self, _part: Any) -> None:
        self.slices += 1
        self._came.release()

    def wait(self) -> None:
        """Returns when one more slice arrived."""
        assert self._came.acquire(timeout=PATIENCE_S), "a delivery did not arrive"


def _send(broker: Broker, arrived: Arrivals, batch: bytes, numbers: range) -> None:
    """Publishes batch after batch and waits for each delivery, so that none grows larger."""
    for number in numbers:
        broker.publish(
            TOPIC, 0, batch, DELIVERY, PUBLISHER, 1, number * DELIVERY, DIRECT, lambda _: None
        )
        arrived.wait()


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
