"""Ranges of a batch, cut for the tasks that do them."""

from collections.abc import Sequence
from typing import Final

from penstock.vocabulary.reading import PlannedRange

ROWS_PER_TASK_MIN: Final = 5_000
"""A range is not cut into smaller pieces than this."""


def cut(ranges: Sequence[PlannedRange], tasks: int) -> list[PlannedRange]:
    """About so many ranges, none of them very short, in the same order."""
    total = sum(end - start for _, start, end in ranges)
    size = max(ROWS_PER_TASK_MIN, -(-total // max(1, tasks)))
    if tasks <= len(ranges):
        return list(ranges)
    return [
        PlannedRange(partition, at, min(at + size, end))
        for partition, start, end in ranges
        for at in range(start, end, size)
    ]
