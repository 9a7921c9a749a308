"""Very many topics: how fast, how much memory each, and how long until they are open again."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.cli.bench import child, measure
from penstock.cli.bench.broker import opened
from penstock.cli.bench.plan import SUBSCRIPTION, Budget, Plan

CREATORS: Final = 32
"""Topics created at the same time."""


def measure_all(plan: Plan, tick: Callable[[], None] | None = None) -> dict[str, Any]:
    """Builds the topics in one child and opens them again in another."""
    found = child.run("topics", plan, tick)
    return found | {"reopen_s": child.run("reopen", plan, tick)["open_s"]}


def build(plan: Plan) -> dict[str, Any]:
    """One topic beside many, by the same callers; the store is closed in good order."""
    count = plan.scaled(100_000, 5_000)
    one = msgspec.structs.replace(plan, folder=f"{plan.folder}-one", messages=None)
    alone = asyncio.run(_publish(one, ["topic-0"]))
    many = asyncio.run(_publish(plan, [f"topic-{i}" for i in range(count)]))
    return {
        "topics": count,
        "messages_per_s": many["messages_per_s"],
        "one_topic_messages_per_s": alone["messages_per_s"],
        "share": many["messages_per_s"] / alone["messages_per_s"],
        "bytes_per_topic": (many["after"] - many["before"]) / count,
        "create_s": many["create_s"],
    }


async def _publish(plan: Plan, names: list[str]) -> dict[str, Any]:
    body = measure.bodies(1, plan.size)[0]
    async with opened(plan) as client:
        before = measure.settled_bytes()
        began = time.perf_counter()
        await _create(client, names)
        create_s = time.perf_counter() - began
        after = measure.settled_bytes()
        rate = await _spread(client, names, body, plan)
    return {"messages_per_s": rate, "before": before, "after": after, "create_s": create_s}


async def _create(client: Any, names: list[str]) -> None:
    left = iter(names)

    async def creator() -> None:
        for name in left:
            await client.create_subscription(name, SUBSCRIPTION)

    await asyncio.gather(*(creator() for _ in range(CREATORS)))


async def _spread(client: Any, names: list[str], body: bytes, plan: Plan) -> float:
    """Single publishes a second, each caller going round all topics with a stride of its own.

    Each topic gets one message before the clock starts: a first publish makes what later ones use.
    """
    for start in range(0, len(names), plan.callers):
        part = names[start : start + plan.callers]
        await asyncio.gather(*(client.publish(name, body) for name in part))
    done = 0
    budget = Budget(plan.seconds)

    async def caller(number: int) -> None:
        nonlocal done
        at = number * 7_919
        while budget.take(1):
            at = (at + 104_729) % len(names)
            await client.publish(names[at], body)
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(caller(i) for i in range(plan.callers)))
    return done / (time.perf_counter() - began)
