"""A row of the suite: what to measure, and how its figures are judged."""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.cli.bench.figure import Figure

Result = dict[str, Any]
Judge = Callable[[Result, "Limits"], list[Figure]]


class Limits(msgspec.Struct, frozen=True):
    """What the disk does without Penstock: small synced writes."""

    syncs_per_s: float
    p50: float
    p90: float
    p99: float


class Row(msgspec.Struct, frozen=True):
    """One measurement of the suite, and how its figures are judged."""

    name: str
    mode: str
    changes: dict[str, Any]
    judge: Judge


def nothing_lost(row: str, count: int) -> Figure:
    """A figure that must be 0: nothing lost, nothing repeated."""
    return Figure(row=row, value=count, unit="count", target=0, is_at_most=True)
