"""How fast messages reach a consumer and are acknowledged."""

import asyncio
import time
from typing import Any, Final

from penstock.cli.bench import measure
from penstock.cli.bench.broker import opened
from penstock.cli.bench.plan import SUBSCRIPTION, TOPIC, Budget, Plan
from penstock.cli.bench.publish import rates

AHEAD_MAX: Final = 100_000
"""Messages under way: publishers that are further ahead wait for the consumer."""
AHEAD_S: Final = 0.001
CREDIT: Final = 50_000
PATIENCE_S: Final = 60.0
"""A consumer that is not done this long after the last publish has lost something."""


def end_to_end(plan: Plan) -> dict[str, Any]:
    """Publish in batches, deliver, `ack()` each message; the clock stops at the last ack."""
    return asyncio.run(_end_to_end(plan))


async def _end_to_end(plan: Plan) -> dict[str, Any]:
    batch = measure.bodies(plan.batch, plan.size)
    sent = taken = 0
    is_over = False

    async with opened(plan) as client:
        await client.create_subscription(TOPIC, SUBSCRIPTION)

        async def publisher(budget: Budget) -> None:
            nonlocal sent
            while budget.take(len(batch)):
                sent += len(batch)
                await client.publish_many(TOPIC, batch)
                while sent - taken > AHEAD_MAX:  # noqa: ASYNC110 - an event costs each message
                    await asyncio.sleep(AHEAD_S)

        async def consumer() -> None:
            nonlocal taken
            async with client.subscribe(TOPIC, SUBSCRIPTION, credit=CREDIT) as deliveries:
                async for message in deliveries:
                    message.ack()
                    taken += 1
                    if is_over and taken == sent:
                        break
                await deliveries.flush()

        began = time.perf_counter()
        consuming = asyncio.create_task(consumer())
        budget = Budget(plan.seconds, plan.messages)
        await asyncio.gather(*(publisher(budget) for _ in range(plan.in_flight)))
        is_over = True
        sent += 1
        await client.publish(TOPIC, b"the last one, so that the consumer sees the end")
        await asyncio.wait([consuming], timeout=PATIENCE_S)
        elapsed = time.perf_counter() - began
        consuming.cancel()
    return rates(plan, taken, elapsed) | {"published": sent, "lost": sent - taken}


def consume(plan: Plan) -> dict[str, Any]:
    """Takes what was published before, in batches; the clock stops when the acks are durable."""
    return asyncio.run(_consume(plan))


async def _consume(plan: Plan) -> dict[str, Any]:
    total = plan.scaled(2_000_000, 200_000)
    batch = measure.bodies(min(plan.batch, total), plan.size)
    taken = 0
    async with opened(plan) as client:
        await client.create_subscription(TOPIC, SUBSCRIPTION)
        for _ in range(-(-total // len(batch))):
            await client.publish_many(TOPIC, batch)
        total = -(-total // len(batch)) * len(batch)
        began = time.perf_counter()
        async with client.subscribe(TOPIC, SUBSCRIPTION, credit=CREDIT) as deliveries:
            async for part in deliveries.batches(max_messages=plan.batch):
                taken += len(part)
                part.ack()
                if taken >= total:
                    break
            await deliveries.flush()
            elapsed = time.perf_counter() - began
    return rates(plan, taken, elapsed)
