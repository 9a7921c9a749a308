"""How fast units of one ack and one publish are, beside plain publishes by as many tasks."""

import asyncio
import time
from typing import Any, Final

from penstock.cli.bench import measure
from penstock.cli.bench.broker import opened
from penstock.cli.bench.deliver import CREDIT
from penstock.cli.bench.plan import SUBSCRIPTION, TOPIC, Budget, Plan
from penstock.cli.bench.publish import rates

TURNS: Final = 5
"""Plain publishes and units take turns, so that a change of the machine's mood hits both."""
PLAIN: Final = "plain"
RESULTS: Final = "results"


def transactions(plan: Plan) -> dict[str, Any]:
    """Units and plain publishes in turn, each for the time of the plan."""
    return asyncio.run(_transactions(plan))


async def _transactions(plan: Plan) -> dict[str, Any]:
    plain = units = 0
    plain_s = units_s = 0.0
    async with opened(plan) as client:
        for topic in (TOPIC, RESULTS):
            await client.create_subscription(topic, SUBSCRIPTION)
        async with client.subscribe(TOPIC, SUBSCRIPTION, credit=CREDIT) as deliveries:
            for _ in range(TURNS):
                count, seconds = await _publish(client, plan)
                plain, plain_s = plain + count, plain_s + seconds
                await _supply(client, plan, count)
                count, seconds = await _commit(client, deliveries, plan, count)
                units, units_s = units + count, units_s + seconds
        proof = await _proof(client, units)
    return rates(plan, units, units_s) | {
        "plain_messages_per_s": plain / plain_s,
        "share": (units / units_s) / (plain / plain_s),
        **proof,
    }


async def _publish(client: Any, plan: Plan) -> tuple[int, float]:
    """Each task awaits its own publish; how many there were, in what time."""
    body = measure.bodies(1, plan.size)[0]
    done = 0
    budget = _budget(plan)

    async def caller() -> None:
        nonlocal done
        while budget.take(1):
            await client.publish(PLAIN, body)
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(plan.callers)))
    return done, time.perf_counter() - began


async def _supply(client: Any, plan: Plan, count: int) -> None:
    """Stores what the next turn takes, in batches as large as those of so many single callers."""
    bodies = measure.bodies(count, plan.size)
    for at in range(0, count, plan.callers):
        await client.publish_many(TOPIC, bodies[at : at + plan.callers])


async def _commit(client: Any, deliveries: Any, plan: Plan, inputs: int) -> tuple[int, float]:
    """Each task takes an input and commits its ack together with a result, while there are any."""
    body = measure.bodies(1, plan.size)[0]
    done = 0
    budget = _budget(plan)

    async def caller() -> None:
        nonlocal done, inputs
        while inputs > 0 and budget.take(1):
            inputs -= 1
            message = await deliveries.receive()
            async with client.transaction() as unit:
                unit.publish(RESULTS, body)
                unit.ack(message)
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(plan.callers)))
    return done, time.perf_counter() - began


def _budget(plan: Plan) -> Budget:
    messages = None if plan.messages is None else max(1, plan.messages // TURNS)
    return Budget(plan.seconds / TURNS, messages)


async def _proof(client: Any, units: int) -> dict[str, int]:
    """Each unit has acked one input and stored one result; neither without the other."""
    (taken,) = await client.subscriptions(TOPIC)
    (made,) = await client.subscriptions(RESULTS)
    counts = (taken["acked"], made["waiting"])
    return {
        "lost": sum(max(0, units - count) for count in counts),
        "repeated": sum(max(0, count - units) for count in counts),
    }
