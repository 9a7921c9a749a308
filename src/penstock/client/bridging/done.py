"""Which messages of a source were copied: ranges of numbers for each partition. Pure.

A target that has transactions keeps this beside the copies, in the same unit, so that what is
copied and what is noted can never differ.
"""

from bisect import bisect_right
from typing import Any, Final

import msgspec

RANGES_MAX: Final = 1_000
"""Ranges kept of a partition. The lowest are forgotten first: they were acked long ago."""


class Done:
    """Numbers that were copied."""

    def __init__(self, ranges: dict[int, list[tuple[int, int]]] | None = None) -> None:
        self._ranges = ranges or {}

    def add(self, partition: int, start: int, end: int) -> None:
        """Notes start…end; `end` is not meant."""
        listed = self._ranges.setdefault(partition, [])
        if listed and listed[-1][0] <= start <= listed[-1][1]:
            listed[-1] = (listed[-1][0], max(end, listed[-1][1]))
            return
        listed.append((start, end))
        if len(listed) > 1 and listed[-2][1] > start:
            self._ranges[partition] = _merged(listed)
        del self._ranges[partition][:-RANGES_MAX]

    def has(self, partition: int, number: int) -> bool:
        """True when this one was copied."""
        listed = self._ranges.get(partition, [])
        at = bisect_right(listed, (number, 1 << 64)) - 1
        return at >= 0 and listed[at][0] <= number < listed[at][1]

    def end_of(self, partition: int) -> int:
        """The number behind the last one that was copied; 0 when none was."""
        listed = self._ranges.get(partition)
        return listed[-1][1] if listed else 0

    def copy(self) -> "Done":
        """Another one with the same ranges."""
        return Done({partition: list(listed) for partition, listed in self._ranges.items()})

    def encoded(self) -> bytes:
        """As the body of a message."""
        return msgspec.json.encode({str(key): listed for key, listed in self._ranges.items()})

    @classmethod
    def decoded(cls, body: Any) -> "Done":
        """From the body of a message. Raises ValueError for anything else."""
        found = msgspec.json.decode(body or b"", type=dict[str, list[tuple[int, int]]])
        return cls({int(key): _merged(listed) for key, listed in found.items()})


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
