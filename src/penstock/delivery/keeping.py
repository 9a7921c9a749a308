"""What a topic's policy keeps of a partition beyond acks and `retain_s`.

The replay window is one offset, publish times are rows of many messages, and only `keep_last`
knows single messages: those that are the newest of their key.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

from penstock.vocabulary.policy import TopicPolicy

Run = tuple[int, int]
Key = bytes | None
"""A message without a key counts as one of a key of its own."""

ROW_MS_MIN: Final = 1_000
ROWS_PER_SHORTER: Final = 1_024
ROWS_PER_LONGER: Final = 16_384
"""A message may stay longer than asked by these parts of the times, or by a second."""
ROWS_MAX: Final = 2 * ROWS_PER_LONGER
"""More rows than this are joined, two and two: an old backlog is known less exactly."""


class Keeping:
    """Publish times, the replay window and the newest messages of each key."""

    __slots__ = ("kept", "newest", "rows", "window")

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        """[start, end, newest publish time ms] of messages, rising in all three."""
        self.window = 0
        """Everything below has left the replay window."""
        self.newest: dict[Key, list[int]] = {}
        """The newest offsets of each key, oldest first."""
        self.kept: dict[int, Key] = {}
        """Those offsets and their keys."""

    # -- time --------------------------------------------------------------------------------------

    def note_time(self, start: int, end: int, at: int, row_ms: int) -> None:
        """These messages were published at `at`; never earlier than those before them."""
        rows = self.rows
        if rows:
            last = rows[-1]
            at = max(at, last[2])
            if last[1] == start and at // row_ms == last[2] // row_ms:
                last[1:] = end, at
                return
        rows.append([start, end, at])

    def end_before(self, limit: int) -> int:
        """The offset after the last message that was published at or before `limit`, or 0."""
        at = bisect_right(self.rows, limit, key=_time)
        return self.rows[at - 1][1] if at else 0

    def next_time(self) -> int | None:
        """When the first row of the replay window was published; None when it is empty."""
        at = bisect_right(self.rows, self.window, key=_end)
        return self.rows[at][2] if at < len(self.rows) else None

    def join_rows(self, window: int) -> None:
        """Keeps the rows below the replay window few; a joined row is as young as its youngest."""
        if len(self.rows) <= ROWS_MAX:
            return
        below = bisect_right(self.rows, window, key=_end) // 2 * 2
        pairs = zip(self.rows[0:below:2], self.rows[1:below:2], strict=True)
        self.rows[:below] = [[first[0], *second[1:]] for first, second in pairs]

    # -- the newest of each key --------------------------------------------------------------------

    def note_key(self, key: Key, offset: int, count: int) -> list[int]:
        """This message is its key's newest; returns those that are no longer kept for it."""
        offsets = self.newest.setdefault(key, [])
        offsets.append(offset)
        self.kept[offset] = key
        return self._trim(key, count)

    def trim(self, count: int) -> list[int]:
        """Keeps only so many of each key; returns the others."""
        return [offset for key in list(self.newest) for offset in self._trim(key, count)]

    def _trim(self, key: Key, count: int) -> list[int]:
        offsets = self.newest[key]
        over = offsets[: max(0, len(offsets) - count)]
        del offsets[: len(over)]
        if not offsets:
            del self.newest[key]
        for offset in over:
            del self.kept[offset]
        return over

    def forget(self, start: int, end: int) -> None:
        """These messages are gone."""
        for offset in self._kept_in(start, end):
            key = self.kept.pop(offset)
            offsets = self.newest[key]
            offsets.remove(offset)
            if not offsets:
                del self.newest[key]

    def _kept_in(self, start: int, end: int) -> list[int]:
        if not self.kept:
            return []
        if end - start < len(self.kept):
            return [offset for offset in range(start, end) if offset in self.kept]
        return sorted(offset for offset in self.kept if start <= offset < end)

    # -- both --------------------------------------------------------------------------------------

    def free(self, parts: Sequence[Run], policy: TopicPolicy) -> list[Run]:
        """What of these ranges is kept neither for replay nor as the newest of a key."""
        found: list[Run] = []
        for start, high in parts:
            end = min(high, self.window) if policy.replay_s > 0 else high
            low = start
            for offset in self._kept_in(low, end):
                if low < offset:
                    found.append((low, offset))
                low = offset + 1
            if low < end:
                found.append((low, end))
        return found

    def state(self) -> list[Any] | None:
        """For a snapshot; None when there is nothing to say."""
        if not self.rows and not self.newest and not self.window:
            return None
        return [self.rows, self.window, list(self.newest.items())]

    @classmethod
    def restored(cls, state: list[Any]) -> "Keeping":
        """From a snapshot."""
        fresh = cls()
        fresh.rows, fresh.window, newest = state
        for key, offsets in newest:
            fresh.newest[key] = offsets
            fresh.kept.update(dict.fromkeys(offsets, key))
        return fresh


def is_keeping(policy: TopicPolicy) -> bool:
    """True when a topic of this policy needs the state here."""
    return needs_times(policy) or policy.keep_last > 0 or policy.max_bytes is not None


def needs_times(policy: TopicPolicy) -> bool:
    """True when publish times matter for messages that subscriptions cover."""
    return policy.replay_s > 0 or policy.max_age_s is not None


def row_ms(policy: TopicPolicy) -> int:
    """How many milliseconds of publishing share one row."""
    times = [s for s in (policy.replay_s, policy.max_age_s) if s]
    shorter, longer = min(times, default=0.0), max(times, default=0.0)
    return max(
        ROW_MS_MIN, int(shorter * 1000) // ROWS_PER_SHORTER, int(longer * 1000) // ROWS_PER_LONGER
    )


def _end(row: list[int]) -> int:
    return row[1]


def _time(row: list[int]) -> int:
    return row[2]
