"""How many bytes the messages of a partition take: exact by stored record, in runs of offsets.

Inside a record every message takes the same, and the first ones a byte more where it does not come
out even, so that parts of a record add up to it however it is cut. Neighbours whose messages all
take the same are one run. See docs/decisions/0030-what-a-message-weighs.md.
"""

from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Any, Final

import numpy as np

from penstock.delivery.ranges import RangeSet

SWEEP_MIN: Final = 64
KIND: Final = "<i8"
"""Numbers in a snapshot."""


class Sizes:
    """The sizes of the messages from the oldest held one on."""

    __slots__ = ("_sweep_at", "ends", "sums")

    def __init__(self, start: int) -> None:
        self.ends = array("q", (start,))
        """Where runs begin and end, rising."""
        self.sums = array("q", (0,))
        """Bytes of everything before each of these offsets."""
        self._sweep_at = SWEEP_MIN

    def add(self, start: int, end: int, size: int, released: RangeSet) -> None:
        """A record of these messages takes so many bytes."""
        ends, sums = self.ends, self.sums
        if start > ends[-1]:  # What lies between was never stored here.
            ends.append(start)
            sums.append(sums[-1])
        count = end - ends[-1]
        if count <= 0:
            return
        if len(ends) > 1:
            each, rest = divmod(sums[-1] - sums[-2], ends[-1] - ends[-2])
            if not rest and each * count == size:
                ends[-1] = end
                sums[-1] += size
                return
        ends.append(end)
        sums.append(sums[-1] + size)
        if len(ends) > self._sweep_at:
            self.sweep(released)

    def between(self, start: int, end: int) -> int:
        """The bytes of these messages."""
        return self._before(end) - self._before(start)

    def _before(self, offset: int) -> int:
        ends, sums = self.ends, self.sums
        at = bisect_left(ends, offset)
        if at == len(ends):
            return sums[-1]
        if at == 0:
            return sums[0]
        low = ends[at - 1]
        each, rest = divmod(sums[at] - sums[at - 1], ends[at] - low)
        return sums[at - 1] + each * (offset - low) + min(offset - low, rest)

    def of_mask(self, base: int, mask: int) -> int:
        """The bytes of the offsets of these bits, counted from `base`."""
        ends, sums = self.ends, self.sums
        first = max(1, bisect_right(ends, base))
        last = min(bisect_left(ends, base + mask.bit_length()), len(ends) - 1)
        if first > last:
            return 0
        low = ends[first - 1]
        if first < last or base < low or base + mask.bit_length() > ends[first]:
            return self._of_wide_mask(base, mask, first, last)
        each, rest = divmod(sums[first] - sums[first - 1], ends[first] - low)
        longer = max(0, low + rest - base)
        return each * mask.bit_count() + (mask & ((1 << longer) - 1)).bit_count()

    def _of_wide_mask(self, base: int, mask: int, first: int, last: int) -> int:
        """The same for a mask over many runs, all of them at once."""
        data = np.frombuffer(mask.to_bytes((mask.bit_length() + 7) // 8, "little"), np.uint8)
        found = np.unpackbits(data, bitorder="little")
        counts = np.concatenate(([0], np.cumsum(found, dtype=np.int64)))
        edges = np.array(self.ends[first - 1 : last + 1], np.int64) - base
        sums = np.array(self.sums[first - 1 : last + 1], np.int64)
        each, rest = np.divmod(np.diff(sums), np.diff(edges))
        most = len(found)
        here = counts[np.clip(edges, 0, most)]
        longer = counts[np.clip(edges[:-1] + rest, 0, most)] - here[:-1]
        return int((each * np.diff(here) + longer).sum())

    def reach(self, start: int, end: int, size: int) -> int:
        """The first offset up to `end` at which the messages from `start` on have this size."""
        ends, sums = self.ends, self.sums
        wanted = self._before(start) + size
        at = bisect_left(sums, wanted)
        if at == len(sums):
            return end
        low, left = ends[at - 1], wanted - sums[at - 1]
        each, rest = divmod(sums[at] - sums[at - 1], ends[at] - low)
        count = -(-left // (each + 1))
        if count > rest:
            count = -(-(left - rest) // each)
        return min(end, low + count)

    def sweep(self, released: RangeSet) -> None:
        """Forgets where the sizes of messages change that are gone."""
        ends, sums = self.ends, self.sums
        is_held = [next(released.gaps(low, high), None) is not None for low, high in pairwise(ends)]
        kept = [
            at
            for at, (before, behind) in enumerate(
                zip([False, *is_held], [*is_held, True], strict=True)
            )
            if before or behind
        ]
        self.ends = array("q", (ends[at] for at in kept))
        self.sums = array("q", (sums[at] for at in kept))
        self._sweep_at = max(SWEEP_MIN, 2 * len(kept))

    def state(self) -> list[bytes]:
        """For a snapshot."""
        return [np.array(each, KIND).tobytes() for each in (self.ends, self.sums)]

    @classmethod
    def restored(cls, state: list[Any]) -> "Sizes":
        """From a snapshot."""
        fresh = cls(0)
        fresh.ends, fresh.sums = (
            array("q", np.frombuffer(data, KIND).astype("i8").tobytes()) for data in state
        )
        fresh._sweep_at = max(SWEEP_MIN, 2 * len(fresh.ends))
        return fresh
