"""Very many connections, each with a topic, a subscription and a consumer of its own."""

import asyncio
import random
import resource
import time
from contextlib import AsyncExitStack
from typing import Any, Final

import uvloop

import penstock
from penstock.cli.bench import measure
from penstock.cli.bench.plan import SUBSCRIPTION, Budget, Plan

FULL, QUICK = 10_000, 200
AT_ONCE: Final = 100
"""Connections that are being made at the same time."""
CREDIT: Final = 10
PATIENCE_S: Final = 60.0


def connections(plan: Plan) -> dict[str, Any]:
    """Opens them all, keeps them, and sends messages through them in no order."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return uvloop.run(_connections(plan))


async def _connections(plan: Plan) -> dict[str, Any]:
    count = plan.scaled(FULL, QUICK)
    async with AsyncExitStack() as stack:
        began = time.perf_counter()
        members: list[tuple[Any, Any, str]] = []
        numbers = iter(range(count))

        async def joiner() -> None:
            for number in numbers:
                client = await stack.enter_async_context(penstock.connect(plan.server))
                topic = f"crowd-{number}"
                await client.create_subscription(topic, SUBSCRIPTION)
                stream = client.subscribe(topic, SUBSCRIPTION, credit=CREDIT)
                members.append((client, await stack.enter_async_context(stream), topic))

        await asyncio.gather(*(joiner() for _ in range(AT_ONCE)))
        joined = time.perf_counter() - began
        times = await _round(members, plan)
    return {
        "connections": count,
        "topics": count,
        "open_s": joined,
        "messages": len(times),
        "latency": measure.latency(times),
        "lost": sum(value < 0 for value in times),
    }


async def _round(members: list[tuple[Any, Any, str]], plan: Plan) -> list[float]:
    """Publish → deliver → ack on connections drawn at random; each member is used by one task."""
    dice = random.Random(1)  # noqa: S311 - the same order in every run
    dice.shuffle(members)
    budget = Budget(plan.seconds)
    body = measure.bodies(1, plan.size)[0]
    times: list[float] = []

    async def caller(own: list[tuple[Any, Any, str]]) -> None:
        while True:
            for client, stream, topic in own:
                if not budget.take(1):
                    return
                began = time.perf_counter()
                await client.publish(topic, body)
                message = await stream.receive(timeout_s=PATIENCE_S)
                if message is None:
                    times.append(-1.0)
                    continue
                message.ack()
                times.append(time.perf_counter() - began)

    tasks = min(plan.callers, len(members))
    await asyncio.gather(*(caller(members[i::tasks]) for i in range(tasks)))
    return times
