"""How long until a store serves again: after a clean stop, and after its process was killed."""

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.broker.broker import Broker
from penstock.cli.bench import child, measure
from penstock.cli.bench.broker import opened
from penstock.cli.bench.plan import SUBSCRIPTION, TOPIC, Plan
from penstock.journal.disk import FolderDisk

FULL_BYTES: Final = 1_000_000_000
QUICK_BYTES: Final = 100_000_000
BATCH: Final = 100
IN_FLIGHT: Final = 20
TELL_EVERY: Final = 100
"""Batches between two lines that say how much is confirmed."""

Tick = Callable[[], None] | None


def measure_all(plan: Plan, tick: Tick = None) -> dict[str, Any]:
    """Fills two stores, stops one in good order and kills the other, and opens both again."""
    clean = msgspec.structs.replace(plan, folder=f"{plan.folder}-clean")
    killed = msgspec.structs.replace(plan, folder=f"{plan.folder}-killed")
    child.run("fill", clean, tick)
    stopped = child.run("reopen", clean, tick)
    confirmed = fill_and_kill(killed, tick)
    crashed = child.run("reopen", killed, tick)
    return {
        "clean_open_s": stopped["open_s"],
        "clean_bytes": stopped["disk_bytes"],
        "killed_open_s": crashed["open_s"],
        "killed_log_bytes": crashed["log_bytes"],
        "killed_torn_bytes": crashed["torn_bytes"],
        "confirmed": confirmed,
        "held": crashed["messages_held"],
        "lost": max(0, confirmed - crashed["messages_held"]),
    }


def fill_and_kill(plan: Plan, tick: Tick = None) -> int:
    """Kills a filling process in the middle; returns how many messages it had confirmed."""
    confirmed = 0
    with child.start("fill-on", plan) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                confirmed = int(line)
                if tick is not None:
                    tick()
                if confirmed >= _goal(plan):
                    process.send_signal(signal.SIGKILL)
        finally:
            process.kill()
    if confirmed < _goal(plan):
        raise child.Failed("the process that fills the store ended before it was killed")
    return confirmed


def fill(plan: Plan) -> dict[str, Any]:
    """Fills a store and stops in good order."""
    return {"messages": asyncio.run(_fill(plan, _goal(plan)))}


def fill_on(plan: Plan) -> dict[str, Any]:
    """Fills a store, saying how much is confirmed, until somebody kills this process."""
    asyncio.run(_fill(plan, None))
    raise AssertionError("nobody killed this process")


def _goal(plan: Plan) -> int:
    return plan.messages or (QUICK_BYTES if plan.is_quick else FULL_BYTES) // plan.size


async def _fill(plan: Plan, goal: int | None) -> int:
    batch = measure.bodies(BATCH, plan.size)
    done = told = 0

    async with opened(plan) as client:
        await client.create_subscription(TOPIC, SUBSCRIPTION)

        async def caller() -> None:
            nonlocal done, told
            while goal is None or done < goal:
                await client.publish_many(TOPIC, batch)
                done += len(batch)
                if goal is None and done - told >= BATCH * TELL_EVERY:
                    told = done
                    print(done, flush=True)

        await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return done


def reopen(plan: Plan) -> dict[str, Any]:
    """Opens the store as a new process would, and closes it again."""
    began = time.perf_counter()
    broker = Broker.open(FolderDisk(plan.path))
    elapsed = time.perf_counter() - began
    try:
        found = broker.stats()
    finally:
        broker.close()
    return {
        "open_s": elapsed,
        "log_bytes": found["recovery"]["log_bytes"],
        "torn_bytes": found["recovery"]["torn_bytes"],
        "is_clean": found["recovery"]["is_clean"],
        "messages_held": found["messages_held"],
        "disk_bytes": found["disk_bytes"],
        "topics": found["topics"],
    }
