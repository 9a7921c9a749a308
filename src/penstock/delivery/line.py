"""The waiting line of a cursor whose messages are not all alike: priorities, delays, keys.

A plain cursor needs no line: it offers ranges as they come. Here every waiting message stands with
its traits, in segments of rising offsets, so that whole segments are judged with one array
operation. The line is volatile: what is unfinished after a restart stands in line again.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

import numpy as np

from penstock.delivery.state import UNTRIED, Cursor, Trial
from penstock.delivery.traits import Numbers, Offsets, Traits

SEGMENT_COUNT_MAX: Final = 4_096
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_TOP_BITS: Final = np.uint64(48)

_NO_TRAITS: Final = Traits()


def slots_of_hashes(hashes: Numbers, offsets: Offsets) -> Numbers:
    """The slot of each key, from its hash; a message without a key has the slot of its offset."""
    spread = offsets.astype(np.uint64) * _SPREAD
    return (np.where(hashes == 0, spread, hashes) >> _TOP_BITS).astype(np.int64)


class Segment:
    """Some waiting messages, by rising offset."""

    __slots__ = ("hashes", "levels", "offsets", "slots", "top", "tried")

    def __init__(self, offsets: Offsets, levels: Numbers, hashes: Numbers, tried: Numbers) -> None:
        self.offsets = offsets
        self.levels = levels
        self.hashes = hashes
        self.tried = tried
        """True where an earlier attempt is known or possible."""
        self.slots = slots_of_hashes(hashes, offsets)
        """Of the key; a message without one has the slot of its offset."""
        self.top = int(levels.max())

    def keep(self, stays: Numbers) -> bool:
        """Leaves only these messages in; False when none is left."""
        self.offsets = self.offsets[stays]
        if not len(self.offsets):
            return False
        self.levels, self.hashes = self.levels[stays], self.hashes[stays]
        self.tried, self.slots = self.tried[stays], self.slots[stays]
        self.top = int(self.levels.max())
        return True


class Line:
    """The waiting messages of one cursor, and those that wait for their time."""

    __slots__ = ("later", "segments")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.later: list[tuple[int, int]] = []
        """(deliver_at in ms, offset), a heap."""

    @property
    def top(self) -> int | None:
        """The highest priority that waits, or None."""
        return max((segment.top for segment in self.segments), default=None)

    @property
    def count(self) -> int:
        """Messages that may be handed out now."""
        return sum(len(segment.offsets) for segment in self.segments)

    def put(self, traits: Traits, offsets: Offsets, wall: int, *, is_tried: bool) -> None:
        """Stands messages in line; those whose time has not come wait aside."""
        for low in range(0, len(offsets), SEGMENT_COUNT_MAX):
            part = offsets[low : low + SEGMENT_COUNT_MAX]
            if traits.counts["due"]:
                due = traits.of("due", part)
                ahead = due > wall
                for row in zip(due[ahead].tolist(), part[ahead].tolist(), strict=True):
                    heappush(self.later, row)
                part = part[~ahead]
            self._stand(traits, part, is_tried=is_tried)

    def _stand(self, traits: Traits, offsets: Offsets, *, is_tried: bool) -> None:
        if len(offsets):
            tried = np.full(len(offsets), is_tried)
            levels, hashes = traits.of("levels", offsets), traits.of("hashes", offsets)
            self._insert(Segment(offsets, levels, hashes, tried))

    def _insert(self, fresh: Segment) -> None:
        """Finds the place; segments that would overlap become one."""
        first, last = int(fresh.offsets[0]), int(fresh.offsets[-1])
        at = len(self.segments)
        while at and int(self.segments[at - 1].offsets[-1]) > first:
            at -= 1
        upto = at
        while upto < len(self.segments) and int(self.segments[upto].offsets[0]) < last:
            upto += 1
        parts = [fresh, *self.segments[at:upto]]
        if len(parts) > 1:
            fresh = _merged(parts)
        self.segments[at:upto] = [fresh]

    def due(self, traits: Traits, wall: int) -> bool:
        """Stands messages in line whose time has come; True when there were any."""
        ready: list[int] = []
        while self.later and self.later[0][0] <= wall:
            ready.append(heappop(self.later)[1])
        for offset in sorted(ready):
            # Tried or not is not known any more: it is looked up when the message is taken.
            self._stand(traits, np.array([offset], dtype=np.int64), is_tried=True)
        return bool(ready)

    def withdraw(self, start: int, end: int) -> int:
        """Takes messages out of the line; returns how many there were."""
        found = 0
        for segment in list(self.segments):
            if int(segment.offsets[-1]) < start or int(segment.offsets[0]) >= end:
                continue
            stays = (segment.offsets < start) | (segment.offsets >= end)
            found += len(stays) - int(stays.sum())
            if not segment.keep(stays):
                self.segments.remove(segment)
        if any(start <= offset < end for _, offset in self.later):
            kept = [row for row in self.later if not start <= row[1] < end]
            found += len(self.later) - len(kept)
            self.later = sorted(kept)
        return found

    def holds(self, offset: int) -> bool:
        """True when this message is in line or waits for its time."""
        return any(offset in segment.offsets for segment in self.segments) or any(
            offset == other for _, other in self.later
        )

    def take_top(self, limit: int) -> tuple[Offsets, bool]:
        """Takes the first messages of the highest priority; and whether one may have been tried."""
        top = self.top
        for segment in self.segments:
            if segment.top == top:
                at = np.flatnonzero(segment.levels == top)[:limit]
                return self.take(segment, at)
        raise AssertionError("nothing waits in this line")

    def take(self, segment: Segment, at: Numbers) -> tuple[Offsets, bool]:
        """Takes messages out of a segment, by their places in it."""
        offsets: Offsets = segment.offsets[at]
        is_tried = bool(segment.tried[at].any())
        stays = np.ones(len(segment.offsets), dtype=bool)
        stays[at] = False
        if not segment.keep(stays):
            self.segments.remove(segment)
        return offsets, is_tried


def _merged(parts: list[Segment]) -> Segment:
    offsets = np.concatenate([part.offsets for part in parts])
    order = np.argsort(offsets, kind="stable")
    return Segment(
        offsets[order],
        np.concatenate([part.levels for part in parts])[order],
        np.concatenate([part.hashes for part in parts])[order],
        np.concatenate([part.tried for part in parts])[order],
    )


def offsets_in(ranges: Iterable[tuple[int, int]]) -> Offsets:
    """All offsets of some ranges."""
    return np.concatenate(
        [np.zeros(0, dtype=np.int64), *(np.arange(*run, dtype=np.int64) for run in ranges)]
    )


def absorb(cursor: Cursor, wall: int, limit: int | None = None) -> Line:
    """Stands what a cursor may offer in line; of what was never offered up to `limit` messages."""
    line = cursor.line
    if line is None:
        line = cursor.line = Line()
    partition = cursor.partition
    traits = partition.traits or _NO_TRAITS
    if line.later:
        line.due(traits, wall)
    if cursor.ready:
        ready, cursor.ready = cursor.ready, None
        line.put(traits, np.sort(offsets_in(ready)), wall, is_tried=True)
    end_of_log = partition.next_offset
    left = end_of_log if limit is None else limit
    while cursor.next < end_of_log and left > 0:
        run = next(cursor.done.gaps(cursor.next, end_of_log), None)
        if run is None:
            cursor.next = end_of_log
            break
        start, end = run[0], min(run[1], run[0] + left)
        line.put(traits, np.arange(start, end, dtype=np.int64), wall, is_tried=False)
        cursor.next = end
        left -= end - start
    return line


def is_lined(cursor: Cursor) -> bool:
    """True when a shared cursor must not offer its messages simply as they came."""
    traits = cursor.partition.traits
    if traits is not None and traits.has_order:
        return True
    line = cursor.line
    if line is not None and not line.segments and not line.later:
        cursor.line = None
    return cursor.line is not None


def same_history(
    cursor: Cursor, offsets: Offsets, *, is_tried: bool
) -> Iterator[tuple[Offsets, Trial]]:
    """The offsets cut where the history of the messages changes."""
    if not is_tried or not cursor.trials:
        yield offsets, UNTRIED
        return
    start = 0
    trial = cursor.trial(int(offsets[0]))
    for at in range(1, len(offsets)):
        other = cursor.trial(int(offsets[at]))
        if other != trial:
            yield offsets[start:at], trial
            start, trial = at, other
    yield offsets[start:], trial
