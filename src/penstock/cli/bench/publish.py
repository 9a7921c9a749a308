"""How fast messages are stored: in batches, and one by one from many callers."""

import asyncio
import time
from typing import Any, Final

from penstock.cli.bench import groups, measure, raw
from penstock.cli.bench.broker import opened
from penstock.cli.bench.plan import TOPIC, Budget, Plan

WARM_UP: Final = 0.05
"""This share of the time is spent before the clock starts."""
RAW_S: Final = 2.0
RAW_SHARE: Final = 0.1


def publish(plan: Plan) -> dict[str, Any]:
    """Batches, several in flight; and the raw write rate of the groups they made."""
    found = asyncio.run(_publish(plan))
    if plan.folder:
        found |= _beside_raw(plan, found)
    return found


async def _publish(plan: Plan) -> dict[str, Any]:
    batch = measure.bodies(plan.batch, plan.size)
    done = 0

    async with opened(plan) as client:

        async def caller(budget: Budget) -> None:
            nonlocal done
            while budget.take(len(batch)):
                await client.publish_many(TOPIC, batch)
                done += len(batch)

        async def callers(budget: Budget) -> None:
            await asyncio.gather(*(caller(budget) for _ in range(plan.in_flight)))

        await callers(Budget(plan.seconds * WARM_UP))
        done = 0
        began = time.perf_counter()
        await callers(Budget(plan.seconds, plan.messages))
        elapsed = time.perf_counter() - began
    return rates(plan, done, elapsed)


def callers(plan: Plan) -> dict[str, Any]:
    """Many tasks, each awaiting its own publish; the raw disk is measured before and after."""
    times = raw_times(plan)
    found = asyncio.run(_callers(plan))
    times += raw_times(plan)
    if times:
        found |= {"raw_syncs_per_s": len(times) / sum(times), "raw": measure.latency(times)}
    return found


def raw_times(plan: Plan) -> list[float]:
    """Small synced writes on the disk of this plan, for a tenth of its time."""
    return raw.sync_times(plan.path.parent, plan.seconds * RAW_SHARE) if plan.folder else []


async def _callers(plan: Plan) -> dict[str, Any]:
    body = measure.bodies(1, plan.size)[0]
    times: list[float] = []

    async with opened(plan) as client:

        async def caller(budget: Budget) -> None:
            while budget.take(1):
                began = time.perf_counter()
                await client.publish(TOPIC, body)
                times.append(time.perf_counter() - began)

        async def everyone(budget: Budget) -> None:
            await asyncio.gather(*(caller(budget) for _ in range(plan.callers)))

        await everyone(Budget(plan.seconds * WARM_UP))
        times.clear()
        began = time.perf_counter()
        await everyone(Budget(plan.seconds, plan.messages))
        elapsed = time.perf_counter() - began
    return rates(plan, len(times), elapsed) | {"latency": measure.latency(times)}


def rates(plan: Plan, done: int, elapsed: float) -> dict[str, Any]:
    """Messages and bytes a second."""
    return {
        "messages": done,
        "seconds": elapsed,
        "messages_per_s": done / elapsed,
        "bytes_per_s": done * plan.size / elapsed,
    }


def _beside_raw(plan: Plan, found: dict[str, Any]) -> dict[str, Any]:
    sizes = groups.group_sizes(plan.path)
    rate = raw.write_rate(plan.path.parent, sizes, min(RAW_S, plan.seconds))
    return {
        "groups": len(sizes),
        "group_bytes": sum(sizes) / len(sizes),
        "raw_bytes_per_s": rate,
        "raw_share": found["bytes_per_s"] / rate,
    }
