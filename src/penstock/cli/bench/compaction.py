"""Whether space comes back: almost everything is acked, a few messages stay, the disk shrinks."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.cli.bench import child, measure
from penstock.cli.bench.broker import opened
from penstock.cli.bench.plan import SUBSCRIPTION, TOPIC, Plan
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.limits import CREDIT_MAX, MIB

SETTLE_S: Final = 5.0
"""Disk use is looked at this long after the last ack."""
SEGMENTS: Final = 4
OVERHEAD: Final = 100
"""Bytes of bookkeeping a kept message may take beside its body."""
BATCH: Final = 1_000
IN_FLIGHT: Final = 10
QUICK: Final = JournalSettings(segment_bytes_max=4 * MIB)
"""Small segments, so that a short run has something to compact."""
KEPT_WAIT_S: Final = 2.0
PATIENCE_S: Final = 60.0
SLOWEST_PER_S: Final = 20_000
"""A consumer slower than this has stopped."""

Tick = Callable[[], None] | None


def measure_all(plan: Plan, tick: Tick = None) -> dict[str, Any]:
    """Keeps one message in `keep_every` and sees that the disk shrinks and the kept survive."""
    asked = msgspec.structs.replace(plan, messages=count_of(plan))
    found = child.run("keep", asked, tick)
    return found | child.run("collect", asked, tick)


def count_of(plan: Plan) -> int:
    """How many messages: a gigabyte of bodies, or a little."""
    full = 10_000_000 if plan.size <= OVERHEAD else 1_000_000
    return plan.scaled(full, 300_000 if plan.size <= OVERHEAD else 50_000)


def is_kept(number: int, plan: Plan) -> bool:
    """Whether the message with this number is never acked."""
    every = plan.keep_every or count_of(plan)
    return number % every == every // 2


def body_of(number: int, noise: bytes) -> bytes:
    """A body that tells its number."""
    return (b"%012d" % number) + noise


def keep(plan: Plan) -> dict[str, Any]:
    """Publishes, acks all but the kept ones, waits, and looks at the disk."""
    return asyncio.run(_keep(plan))


async def _keep(plan: Plan) -> dict[str, Any]:
    assert plan.messages is not None
    async with opened(plan, QUICK if plan.is_quick else None) as client:
        await client.create_subscription(TOPIC, SUBSCRIPTION, lease_s=3_600.0)
        await _publish(client, plan, plan.messages)
        peak = measure.segment_bytes(plan.path)
        async with client.subscribe(TOPIC, SUBSCRIPTION, credit=CREDIT_MAX) as deliveries:
            patience_s = PATIENCE_S + plan.messages / SLOWEST_PER_S
            kept = await asyncio.wait_for(_ack(deliveries, plan), patience_s)
            await deliveries.flush()
            await asyncio.sleep(SETTLE_S)
            disk = measure.segment_bytes(plan.path)
            other = measure.other_bytes(plan.path)
            segment = measure.segment_bytes_max(plan.path)
            stats = await client.stats()
    return {
        "messages": plan.messages,
        "kept": kept,
        "peak_bytes": peak,
        "disk_bytes": disk,
        "other_bytes": other,
        "segment_bytes": segment,
        "limit_bytes": kept * (plan.size + OVERHEAD) + SEGMENTS * segment,
        "segments": stats["segments"],
        "spare_segments": stats["spare_segments"],
    }


async def _publish(client: Any, plan: Plan, count: int) -> None:
    noise = measure.bodies(1, plan.size)[0][12:]
    numbers = iter(range(0, count, BATCH))

    async def caller() -> None:
        for first in numbers:
            end = min(first + BATCH, count)
            await client.publish_many(TOPIC, [body_of(i, noise) for i in range(first, end)])

    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))


async def _ack(deliveries: Any, plan: Plan) -> int:
    assert plan.messages is not None
    taken = kept = 0
    async for part in deliveries.batches(max_messages=BATCH):
        for message in part:
            if is_kept(int(message.body[:12]), plan):
                kept += 1
            else:
                message.ack()
        taken += len(part)
        if taken >= plan.messages:
            break
    return kept


def collect(plan: Plan) -> dict[str, Any]:
    """Opens the store again and takes what was kept: exactly that, each once."""
    return asyncio.run(_collect(plan))


async def _collect(plan: Plan) -> dict[str, Any]:
    assert plan.messages is not None
    wanted = {i for i in range(plan.messages) if is_kept(i, plan)}
    began = time.perf_counter()
    found: list[int] = []
    async with (
        opened(plan) as client,
        client.subscribe(TOPIC, SUBSCRIPTION) as deliveries,
    ):
        while message := await deliveries.receive(timeout_s=KEPT_WAIT_S):
            found.append(int(message.body[:12]))
            message.ack()
    return {
        "survived": len(wanted & set(found)),
        "missing": len(wanted - set(found)),
        "unexpected": len(found) - len(wanted & set(found)),
        "collect_s": time.perf_counter() - began,
    }
