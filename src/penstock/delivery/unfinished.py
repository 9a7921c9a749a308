"""Which messages a subscription has not finished, in the order it hands them out.

What is leased, waits, is delayed or backs off is unfinished. The order is the one of the line
protocol: the highest priority first, then as they came.
"""

from typing import Final

import numpy as np

from penstock.delivery.explain_case import traits_of
from penstock.delivery.line import offsets_in
from penstock.delivery.members import listed
from penstock.delivery.state import Cursor, Subscription, Topic
from penstock.delivery.traits import Offsets
from penstock.vocabulary.message import Kind

STEP: Final = 65_536
"""So many offsets are looked at in one go."""


def with_queues(topic: Topic) -> list[Subscription]:
    """The durable subscriptions that have messages of their own, by name."""
    return [
        each
        for each in listed(topic)
        if not each.is_parent and not each.is_pending and each.policy.kind is not Kind.READER
    ]


class Unfinished:
    """The first unfinished messages of one cursor; `look` is called until it says False.

    It looks at a part at a time, so that its caller may let go of the broker meanwhile.
    """

    def __init__(self, cursor: Cursor, limit: int) -> None:
        self._cursor = cursor
        self._limit = limit
        self._at = cursor.done.floor
        self._offsets: Offsets = np.zeros(0, dtype=np.int64)
        self._levels: Offsets = np.zeros(0, dtype=np.int64)

    def look(self) -> bool:
        """Looks at the next part; False when there is none."""
        cursor = self._cursor
        end = min(self._at + STEP, cursor.partition.next_offset)
        if self._at >= end:
            return False
        found = offsets_in(cursor.done.gaps(self._at, end))
        self._at = end
        levels = traits_of(cursor, "levels", found).astype(np.int64)
        offsets = np.concatenate((self._offsets, found))
        levels = np.concatenate((self._levels, levels))
        first = np.lexsort((offsets, -levels))[: self._limit]
        self._offsets, self._levels = offsets[first], levels[first]
        return True

    def rows(self) -> list[tuple[int, int]]:
        """(priority, offset) of what was found, first things first."""
        return list(zip(self._levels.tolist(), self._offsets.tolist(), strict=True))
