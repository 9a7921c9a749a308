"""Which pages of a window may have an id: one look for all pages, before any of them is asked.

There is a byte for each of the first bits of a hash, and in it a bit for each page. A bit that is
not set says that the page does not have such an id; one that is set says little, as about one in
sixteen is when a page is full.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

Numbers = np.ndarray[Any, np.dtype[Any]]

MARK_BITS: Final = 22
_SHIFT: Final = np.uint64(64 - MARK_BITS)
_PAGES: Final = tuple(1 << at for at in range(8))


class Marks:
    """The marks of up to eight pages."""

    __slots__ = ("_bytes", "_taken")

    def __init__(self) -> None:
        self._bytes = np.zeros(1 << MARK_BITS, np.uint8)
        self._taken = 0

    def begin(self) -> int:
        """A bit for one more page; 0 when there is none left: such a page is always asked."""
        for bit in _PAGES:
            if not self._taken & bit:
                self._taken |= bit
                return bit
        return 0

    def end(self, bit: int) -> None:
        """A page is gone; its bit may be had again."""
        if bit:
            self._bytes &= np.uint8(0xFF ^ bit)
            self._taken &= ~bit

    def add(self, low: Numbers, bit: int) -> None:
        """Marks ids, by the lower halves of their hashes, as those of a page."""
        if bit:
            self._bytes[(low >> _SHIFT).astype(np.intp)] |= np.uint8(bit)

    def look(self, low: Numbers, bits: Sequence[int]) -> tuple[Numbers, list[int]]:
        """The indexes of the ids that the pages of these bits may have, page after page.

        And where the indexes of each page end.
        """
        marks = self._bytes.take((low >> _SHIFT).astype(np.intp))
        pairs = np.flatnonzero((marks & np.array(bits, np.uint8)[:, None]) != 0)
        ends = np.searchsorted(pairs, np.arange(1, len(bits) + 1) * len(low))
        return pairs % len(low), ends.tolist()
