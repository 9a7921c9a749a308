"""How long one publish takes, measured from the moment it was due.

Publishes are due at a fixed rate, a tenth of what the raw disk does. One that starts late because
the one before was slow has waited already, and that waiting counts. Raw synced writes take turns
with them, due at the same rate, so that both meet the same hiccups of the disk. `busy` is the same
while tiny segments roll, snapshots are taken, and what a consumer acked is compacted away.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.cli.bench import measure, raw
from penstock.cli.bench.broker import BUSY, opened
from penstock.cli.bench.plan import SUBSCRIPTION, TOPIC, Plan
from penstock.cli.bench.publish import raw_times
from penstock.vocabulary.limits import CREDIT_MAX

LOAD: Final = 0.1
"""Share of the raw rate at which publishes are due."""
TURNS: Final = 10
KEEP_EVERY: Final = 100


def latency(plan: Plan) -> dict[str, Any]:
    """One task awaiting each publish, with the usual settings."""
    return _beside_raw(plan, is_busy=False)


def busy(plan: Plan) -> dict[str, Any]:
    """The same with tiny segments, many snapshots and compaction."""
    return _beside_raw(plan, is_busy=True)


def _beside_raw(plan: Plan, *, is_busy: bool) -> dict[str, Any]:
    if not plan.folder:
        return asyncio.run(_publish(plan, 1_000.0, None, is_busy=False))
    rate = len(times := raw_times(plan)) / sum(times) * LOAD
    with raw.writing(plan.path.parent) as write:
        return asyncio.run(_publish(plan, rate, write, is_busy=is_busy))


async def _publish(
    plan: Plan, rate: float, write: Callable[[], None] | None, *, is_busy: bool
) -> dict[str, Any]:
    body = measure.bodies(1, plan.size)[0]
    ours: list[float] = []
    beside: list[float] = []
    late = 0.0

    async def write_raw() -> None:
        assert write is not None
        write()

    async with opened(plan, BUSY if is_busy else None) as client:
        before = await client.stats()
        consuming = asyncio.create_task(_sparse(client)) if is_busy else None
        await client.publish(TOPIC, body)
        count = plan.messages or max(1, int(plan.seconds * rate))
        for part in shares(count, TURNS):
            times, latest = await paced(lambda: client.publish(TOPIC, body), rate, part)
            ours += times
            late = max(late, latest)
            if write is not None:
                beside += (await paced(write_raw, rate, part))[0]
        if consuming is not None:
            consuming.cancel()
            await asyncio.wait([consuming])
        after = await client.stats()
    found = {
        "rate": rate,
        "latency": measure.latency(ours),
        "start_late": late,
        "records": after["records"] - before["records"],
        "segments": after["segments"],
        "disk_bytes": after["disk_bytes"],
    }
    return found | ({"raw": measure.latency(beside)} if beside else {})


def shares(count: int, turns: int) -> list[int]:
    """The count in about equal parts, none of them empty."""
    return [part for i in range(turns) if (part := count * (i + 1) // turns - count * i // turns)]


async def paced(
    publish: Callable[[], Awaitable[object]], rate: float, count: int
) -> tuple[list[float], float]:
    """Times from due to done, and by how much a start came late when nothing was under way."""
    times: list[float] = []
    late = 0.0
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
