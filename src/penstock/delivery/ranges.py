"""Sets and maps of offsets kept as ranges, because messages come and go in runs.

A RangeSet is everything below a floor plus disjoint ranges above it; a RangeMap gives runs of
offsets one value. Both cost a few words however many messages they speak of.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

Run = tuple[int, int]


class RangeSet:
    """Offsets below `floor` and in the ranges above it."""

    __slots__ = ("_ends", "_starts", "floor")

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self._starts: list[int] | None = None
        self._ends: list[int] | None = None

    def __contains__(self, offset: int) -> bool:
        if offset < self.floor:
            return True
        if self._starts is None or self._ends is None:
            return False
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def add(self, start: int, end: int) -> list[Run]:
        """Puts start…end in; returns the parts that were not in before."""
        start = max(start, self.floor)
        if start >= end:
            return []
        if self._starts is None or self._ends is None:
            if start == self.floor:
                self.floor = end
            else:
                self._starts, self._ends = [start], [end]
            return [(start, end)]
        fresh = list(self.gaps(start, end))
        if fresh:
            self._merge(self._starts, self._ends, start, end)
        return fresh

    def _merge(self, starts: list[int], ends: list[int], start: int, end: int) -> None:
        low = bisect_left(ends, start)
        high = bisect_right(starts, end)
        if low < high:
            start, end = min(start, starts[low]), max(end, ends[high - 1])
        starts[low:high] = [start]
        ends[low:high] = [end]
        if starts[0] <= self.floor:
            self.floor = ends[0]
            del starts[0], ends[0]
            if not starts:
                self._starts = self._ends = None

    def remove(self, start: int, end: int) -> None:
        """Takes start…end out; what lies below the floor cannot be taken out."""
        if self._starts is None or self._ends is None:
            return
        keep = [
            (low, high)
            for old in self.ranges()
            for low, high in ((old[0], min(old[1], start)), (max(old[0], end), old[1]))
            if low < high
        ]
        self._starts = [low for low, _ in keep] or None
        self._ends = [high for _, high in keep] or None

    def reopen(self, start: int, end: int) -> None:
        """Takes start…end out, below the floor too: the floor falls to `start` when it must."""
        if start >= end:
            return
        if start < self.floor:
            above, floor = self.ranges(), self.floor
            self.floor, self._starts, self._ends = start, None, None
            for low, high in [(end, floor), *above]:
                if low < high:
                    self.add(low, high)
        self.remove(start, end)

    def gaps(self, start: int, end: int) -> Iterator[Run]:
        """The parts of start…end that are not in."""
        start = max(start, self.floor)
        if self._starts is None or self._ends is None:
            if start < end:
                yield start, end
            return
        at = bisect_right(self._ends, start)
        while start < end:
            if at == len(self._starts) or self._starts[at] >= end:
                yield start, end
                return
            if start < self._starts[at]:
                yield start, self._starts[at]
            start = self._ends[at]
            at += 1

    def inside(self, start: int, end: int) -> Iterator[Run]:
        """The parts of start…end that are in."""
        at = start
        for low, high in self.gaps(start, end):
            if at < low:
                yield at, low
            at = high
        if at < end:
            yield at, end

    def missing(self, start: int, end: int) -> int:
        """How many of start…end are not in."""
        if self._starts is None:
            return max(0, end - max(start, self.floor))
        return sum(high - low for low, high in self.gaps(start, end))

    def ranges(self) -> list[Run]:
        """The ranges above the floor."""
        if self._starts is None or self._ends is None:
            return []
        return list(zip(self._starts, self._ends, strict=True))

    def state(self) -> list[Any]:
        """For a snapshot."""
        return [self.floor, self._starts, self._ends] if self._starts else [self.floor]

    @classmethod
    def restored(cls, state: list[Any]) -> "RangeSet":
        """From a snapshot."""
        fresh = cls(state[0])
        if len(state) > 1:
            fresh._starts, fresh._ends = state[1], state[2]
        return fresh


class RangeMap:
    """Runs of offsets with a value each; offsets without one have none."""

    __slots__ = ("_ends", "_starts", "_values")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._values: list[Any] = []

    def __len__(self) -> int:
        return len(self._starts)

    def get(self, offset: int) -> Any:
        """The value at an offset, or None."""
        at = bisect_right(self._starts, offset) - 1
        return self._values[at] if at >= 0 and offset < self._ends[at] else None

    def runs(self, start: int, end: int) -> Iterator[tuple[int, int, Any]]:
        """start…end cut where the value changes; None where there is none."""
        at = bisect_right(self._ends, start)
        while start < end:
            if at == len(self._starts) or self._starts[at] >= end:
                yield start, end, None
                return
            if start < self._starts[at]:
                yield start, self._starts[at], None
                start = self._starts[at]
            upto = min(end, self._ends[at])
            yield start, upto, self._values[at]
            start = upto
            at += 1

    def clear(self, start: int, end: int) -> None:
        """Start…end have no value any more."""
        self._splice(start, end, [])

    def set(self, start: int, end: int, value: Any) -> None:
        """Start…end have this value."""
        self._splice(start, end, [(start, end, value)])

    def _splice(self, start: int, end: int, middle: list[tuple[int, int, Any]]) -> None:
        starts, ends, values = self._starts, self._ends, self._values
        low = bisect_right(ends, start)
        high = bisect_left(starts, end)
        if low > 0 and middle and ends[low - 1] == start and values[low - 1] == middle[0][2]:
            low -= 1
        if high < len(starts) and middle and starts[high] == end and values[high] == middle[-1][2]:
            high += 1
        rows = list(middle)
        if low < high:
            if starts[low] < start:
                rows.insert(0, (starts[low], start, values[low]))
            if ends[high - 1] > end:
                rows.append((end, ends[high - 1], values[high - 1]))
        rows = _joined(rows)
        starts[low:high] = [row[0] for row in rows]
        ends[low:high] = [row[1] for row in rows]
        values[low:high] = [row[2] for row in rows]

    def items(self) -> list[tuple[int, int, Any]]:
        """Every run."""
        return list(zip(self._starts, self._ends, self._values, strict=True))

    @classmethod
    def restored(cls, state: list[Any]) -> "RangeMap":
        """From the `items` in a snapshot."""
        fresh = cls()
        for start, end, value in state:
            fresh._starts.append(start)
            fresh._ends.append(end)
            fresh._values.append(tuple(value))
        return fresh


def _joined(rows: list[tuple[int, int, Any]]) -> list[tuple[int, int, Any]]:
    joined: list[tuple[int, int, Any]] = []
    for start, end, value in rows:
        if joined and joined[-1][1] == start and joined[-1][2] == value:
            joined[-1] = (joined[-1][0], end, value)
        else:
            joined.append((start, end, value))
    return joined
