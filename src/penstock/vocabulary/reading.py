"""What a reader plans, reads and reports: ranges of offsets, partition by partition."""

from typing import NamedTuple

import msgspec


class PlannedRange(NamedTuple):
    """Messages start…end of one partition; `end` is not read."""

    partition: int
    start: int
    end: int


class ReaderState(msgspec.Struct, frozen=True):
    """Where a reader is, in each partition."""

    owner: str
    progress: tuple[int, ...]
    """Everything below is finished and no longer held by this reader."""
    planned: tuple[int, ...]
    """Everything from `progress` up to here is held whatever the topic's limits say."""

    def ranges(self) -> list[PlannedRange]:
        """The planned ranges that are not empty."""
        return [
            PlannedRange(partition, start, end)
            for partition, (start, end) in enumerate(zip(self.progress, self.planned, strict=True))
            if start < end
        ]
