"""The measurements a person can ask for by name, each in processes of its own."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.cli.bench import child, compaction, reading, recovery, topics
from penstock.cli.bench.plan import Plan

Tick = Callable[[], None] | None

MODES: Final = (
    "publish",
    "consume",
    "end-to-end",
    "latency",
    "callers",
    "one",
    "memory",
    "topics",
    "recovery",
    "compaction",
    "shared",
    "key-shared",
    "multicast",
    "priorities",
    "ids",
    "transactions",
    "reader",
)
ON_DISK: Final = frozenset({"topics", "recovery", "compaction", "reader"})
"""Measurements that mean nothing without a disk."""


def measure(mode: str, plan: Plan, tick: Tick = None) -> dict[str, Any]:
    """The figures of one mode."""
    match mode:
        case "memory":
            found = child.run("unacked", beside(plan, "unacked"), tick)
            return found | child.run("backlog", beside(plan, "backlog"), tick)
        case "topics":
            return topics.measure_all(plan, tick)
        case "recovery":
            return recovery.measure_all(plan, tick)
        case "compaction":
            return compaction.measure_all(plan, tick)
        case "reader":
            return reading.measure_all(plan, tick)
        case "ids":
            found = child.run("ids", plan, tick)
            return found | child.run("ids-memory", beside(plan, "memory"), tick)
        case _:
            return child.run(mode, plan, tick)


def beside(plan: Plan, name: str) -> Plan:
    """The same plan in a folder of its own."""
    folder = f"{plan.folder}-{name}" if plan.folder else ""
    return msgspec.structs.replace(plan, folder=folder)
