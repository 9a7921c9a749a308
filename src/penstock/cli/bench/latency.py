"""How long one publish takes, measured from the moment it was due.

Publishes are due at a fixed rate, a quarter of what the raw disk does. One that starts late because
the one before was slow has waited already, and that waiting counts. `busy` is the same while
tiny segments roll, snapshots are taken, and what a consumer acked is compacted away.
"""

import asyncio
import time
from typing import Any, Final

from penstock.cli.bench import measure
from penstock.cli.bench.broker import BUSY, opened
from penstock.cli.bench.plan import SUBSCRIPTION, TOPIC, Plan
from penstock.cli.bench.publish import raw_times
from penstock.vocabulary.limits import CREDIT_MAX

LOAD: Final = 0.25
"""Share of the raw rate at which publishes are due."""
KEEP_EVERY: Final = 100


def latency(plan: Plan) -> dict[str, Any]:
    """One task awaiting each publish, with the usual settings."""
    return _beside_raw(plan, is_busy=False)


def busy(plan: Plan) -> dict[str, Any]:
    """The same with tiny segments, many snapshots and compaction."""
    return _beside_raw(plan, is_busy=True)


def _beside_raw(plan: Plan, *, is_busy: bool) -> dict[str, Any]:
    if not plan.folder:
        return asyncio.run(_publish(plan, 1_000.0, is_busy=False))
    times = raw_times(plan)
    rate = len(times) / sum(times) * LOAD
    found = asyncio.run(_publish(plan, rate, is_busy=is_busy))
    times += raw_times(plan)
    return found | {"raw": measure.latency(times)}


async def _publish(plan: Plan, rate: float, *, is_busy: bool) -> dict[str, Any]:
    body = measure.bodies(1, plan.size)[0]
    async with opened(plan, BUSY if is_busy else None) as client:
        before = await client.stats()
        beside = asyncio.create_task(_sparse(client)) if is_busy else None
        await client.publish(TOPIC, body)
        times, worst_late = await paced(lambda: client.publish(TOPIC, body), rate, plan)
        if beside is not None:
            beside.cancel()
            await asyncio.wait([beside])
        after = await client.stats()
    return {
        "rate": rate,
        "latency": measure.latency(times),
        "start_late": worst_late,
        "records": after["records"] - before["records"],
        "segments": after["segments"],
        "disk_bytes": after["disk_bytes"],
    }


async def paced(publish: Any, rate: float, plan: Plan) -> tuple[list[float], float]:
    """Times from due to done, and by how much a start came late when nothing was under way."""
    times: list[float] = []
    late = 0.0
    count = plan.messages or max(1, int(plan.seconds * rate))
    began = time.perf_counter() + 0.01
    for i in range(count):
        due = began + i / rate
        is_idle = time.perf_counter() < due
        while time.perf_counter() < due:  # noqa: ASYNC110 - a timer is late by up to 1 ms
            await asyncio.sleep(0)
        if is_idle:
            late = max(late, time.perf_counter() - due)
        await publish()
        times.append(time.perf_counter() - due)
    return times, late


async def _sparse(client: Any) -> None:
    """A consumer that acks all but every hundredth message: segments empty, and are compacted."""
    taken = 0
    async with client.subscribe(TOPIC, SUBSCRIPTION, credit=CREDIT_MAX) as deliveries:
        async for message in deliveries:
            taken += 1
            if taken % KEEP_EVERY:
                message.ack()
