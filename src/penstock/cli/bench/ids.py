"""What it costs that each message has an id of its own, which is stored only once."""

import asyncio
import threading
import time
import tracemalloc
from functools import cache
from itertools import count
from typing import Any, Final

from penstock.batch import encode_many
from penstock.broker.broker import Broker
from penstock.broker.mailbox import DIRECT
from penstock.cli.bench import measure
from penstock.cli.bench.broker import opened
from penstock.cli.bench.plan import TOPIC, Budget, Plan
from penstock.cli.bench.publish import rates
from penstock.journal.disk import FolderDisk
from penstock.journal.memory import MemoryDisk
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.limits import DEDUP_IDS_MAX
from penstock.vocabulary.message import Message

PUBLISHER: Final = bytes(16)
PATIENCE_S: Final = 30.0


def numbered(first: int, bodies: list[bytes]) -> list[Message]:
    """Messages with ids of their own: of their batch, which begins at `first`, and their place.

    They cost little to make: what is measured is the broker, not how numbers are spelled.
    """
    head = f"order-{first:012d}-"
    places = _places(len(bodies))
    return [Message(body=body, id=head + place) for body, place in zip(bodies, places, strict=True)]


@cache
def _places(count: int) -> list[str]:
    return [f"{place:05d}" for place in range(count)]


def publish(plan: Plan) -> dict[str, Any]:
    """Batches of messages with new ids; then one of them once more, of which nothing is stored."""
    return asyncio.run(_publish(plan))


async def _publish(plan: Plan) -> dict[str, Any]:
    bodies = measure.bodies(plan.batch, plan.size)
    firsts = count(0, plan.batch)
    done = known = 0

    async with opened(plan) as client:

        async def caller(budget: Budget) -> None:
            nonlocal done, known
            while budget.take(len(bodies)):
                receipts = await client.publish_many(TOPIC, numbered(next(firsts), bodies))
                known += len(receipts.duplicates)
                done += len(bodies)

        began = time.perf_counter()
        budget = Budget(plan.seconds, plan.messages)
        await asyncio.gather(*(caller(budget) for _ in range(plan.in_flight)))
        elapsed = time.perf_counter() - began
        last = numbered(next(firsts) - plan.batch, bodies)
        again = await client.publish_many(TOPIC, last)
        held = (await client.stats())["messages_held"]
    return rates(plan, done, elapsed) | {
        "lost": max(0, done - held) + known,
        "repeated": max(0, held - done) + len(last) - len(again.duplicates),
    }


def memory(plan: Plan) -> dict[str, Any]:
    """The broker's own memory while it knows very many ids."""
    batches = max(1, plan.scaled(DEDUP_IDS_MAX, DEDUP_IDS_MAX // 5) // plan.batch)
    bodies = measure.bodies(plan.batch, plan.size)
    disk = FolderDisk(plan.path) if plan.folder else MemoryDisk()
    broker = Broker.open(disk, JournalSettings(cache_bytes=0))
    try:
        _store(broker, 0, [b"the first one makes the topic"])
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(batches):
            _store(broker, 1 + number * plan.batch, numbered(number * plan.batch, bodies))
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        broker.close()
    return {
        "ids": batches * plan.batch,
        "id_bytes": after - before,
        "peak_bytes": peak - before,
    }


def _store(broker: Broker, sequence: int, messages: Any) -> None:
    """Publishes and waits for the answer, so that nothing but the ids stays in memory."""
    stored = threading.Event()
    broker.publish(
        TOPIC, 0, encode_many(messages), len(messages), PUBLISHER, 1, sequence, DIRECT,
        lambda _: stored.set(),
    )  # fmt: skip
    assert stored.wait(PATIENCE_S), "a publish was not answered"
