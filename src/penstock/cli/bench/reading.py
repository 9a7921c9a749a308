"""How fast a reader goes through what is on the disk."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock.cli.bench import child, measure
from penstock.cli.bench.broker import opened
from penstock.cli.bench.plan import SUBSCRIPTION, TOPIC, Budget, Plan
from penstock.cli.bench.publish import rates

OWNER: Final = "bench"

Tick = Callable[[], None] | None


def measure_all(plan: Plan, tick: Tick = None) -> dict[str, Any]:
    """Fills a store in one child and reads it in another, which opens it anew."""
    return child.run("reader-fill", plan, tick) | child.run("reader-read", plan, tick)


def fill(plan: Plan) -> dict[str, Any]:
    """Publishes what is read later, and closes the store in good order."""
    return {"published": asyncio.run(_fill(plan))}


async def _fill(plan: Plan) -> int:
    batch = measure.bodies(plan.batch, plan.size)
    budget = Budget(0, plan.scaled(5_000_000, 300_000))
    done = 0

    async with opened(plan) as client:

        async def caller() -> None:
            nonlocal done
            while budget.take(len(batch)):
                await client.publish_many(TOPIC, batch)
                done += len(batch)

        await asyncio.gather(*(caller() for _ in range(plan.in_flight)))
    return done


def read(plan: Plan) -> dict[str, Any]:
    """Reads everything from its beginning to its end, again until the time is over."""
    return asyncio.run(_read(plan))


async def _read(plan: Plan) -> dict[str, Any]:
    messages = wrong = turns = 0
    elapsed = 0.0
    async with opened(plan) as client:
        reader = await client.reader(TOPIC, SUBSCRIPTION, owner=OWNER)
        (planned,) = await reader.plan(max_messages=None)
        held = (await client.stats())["messages_held"]
        while not turns or (plan.messages is None and elapsed < plan.seconds):
            drop_cached(plan.path)
            began = time.perf_counter()
            count, skips = await _turn(reader, planned)
            elapsed += time.perf_counter() - began
            messages, wrong, turns = messages + count, wrong + skips, turns + 1
        await reader.commit({planned.partition: planned.end})
    return rates(plan, messages, elapsed) | {
        "turns": turns,
        "lost": max(0, held * turns - messages),
        "repeated": max(0, messages - held * turns) + wrong,
    }


async def _turn(reader: Any, planned: Any) -> tuple[int, int]:
    """Reads a range; returns how many bodies there were, and how often the offsets did not go on.

    Both right means that each message came once and in its place.
    """
    partition, at, end = planned
    count = skips = 0
    async for batch in reader.batches(partition, at, end):
        count += len(batch.bodies)
        for frame in batch.frames:
            skips += frame.offsets != range(at, at + len(frame.offsets))
            at += len(frame.offsets)
    return count, skips + (at != end)


def drop_cached(folder: Path) -> None:
    """Asks the system to forget what it keeps in memory of a store's segments."""
    for path in folder.glob("segment-*"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
