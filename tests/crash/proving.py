"""Runs enumerations inside pytest and adds their numbers to the tally."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.journal.memory import ALL_POLICIES
from tests.crash.enumeration import Enumeration, Workload
from tests.tally import Tally

LINE: Final = "crash"
LONG_SEED: Final = 77


def prove(enumeration: Enumeration, tally: Tally) -> None:
    """Checks every image; the numbers count even when one fails."""
    figures = enumeration.figures
    failed = 1
    try:
        with _rarely_collecting():
            enumeration()
        failed = 0
    finally:
        tally.add(LINE, trace_ops=figures.trace_ops, crash_points=figures.crash_points)
        tally.count(LINE, "distinct_images", figures.hashes | figures.depth2_hashes)
        tally.count(LINE, "depth2_images", figures.depth2_hashes)
        tally.add(LINE, damaged_images=figures.damaged_images, failed=failed)
        name = enumeration.workload.__name__
        print(f"{LINE} {name}: {figures} seed={enumeration.seed}")  # noqa: T201 - a proof prints its numbers


def long_form(workload: Workload) -> Enumeration:
    """Every policy at both depths, every kill, every damaged twin, other random cases."""
    return Enumeration(
        workload, depth2_policies=ALL_POLICIES, kill_stride=1, damage_stride=1, seed=LONG_SEED
    )


@contextmanager
def _rarely_collecting() -> Iterator[None]:
    """Thousands of brokers come and go: the collector would take a fifth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
