"""The desk of a `key_shared` consumer, on a broker that gives whole partitions to one consumer.

A nack, or a lease that ends, takes back what the consumer has of that key behind it. A line is
kept for the key: the message that failed, what was taken back, and what arrives meanwhile. When the
first of the line is due all of it goes to the feed, from where it comes again in order; the key
stands still until it did. Pure.
"""

from bisect import insort
from typing import Final

from penstock.drivers.foreign.carrier import Release
from penstock.drivers.foreign.desk import HANDED_AGAIN, Desk, Held, State, Work
from penstock.drivers.foreign.envelope import Letter
from penstock.vocabulary.claims import Claim, Revoked
from penstock.vocabulary.records import Cause, Ranges

Key = tuple[int, bytes | str]
LINED_MIN: Final = 1_000
"""So many messages may wait in lines whatever the credit is."""


class Place:
    """One message of a line."""

    __slots__ = ("due", "held", "is_counted", "offset")

    def __init__(self, held: Held, due: float, *, is_counted: bool) -> None:
        self.held = held
        self.offset = held.letter.offset or 0
        self.due = due
        self.is_counted = is_counted
        """The application had it, so that its attempt counts."""

    def __lt__(self, other: "Place") -> bool:
        return self.offset < other.offset


class Line:
    """The messages of a key that stands still."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        """By offset."""
        self.awaited: list[int] = []
        """Offsets that were given to the feed and come again, in this order."""


class KeyedDesk(Desk):
    """What one `key_shared` consumer holds."""

    def _begin(self) -> None:
        self._lines: dict[Key, Line] = {}

    def room(self) -> tuple[int, int]:
        if sum(len(line.places) for line in self._lines.values()) >= max(self._credit, LINED_MIN):
            return 0, 0
        return super().room()

    # -- in --------------------------------------------------------------------------------------

    def arrived(self, letters: list[Letter], now: float, wall: int) -> Work:
        free: list[Letter] = []
        for letter in letters:
            line = self._lines.get(_key(letter)) if letter.key is not None else None
            if line is None:
                free.append(letter)
            elif line.awaited and letter.offset in line.awaited:
                line.awaited.remove(letter.offset)
                free.append(letter)
                if not line.awaited:
                    free += [place.held.letter for place in line.places]
                    del self._lines[_key(letter)]
            else:
                held = Held(letter, now, self.policy.lease_s)
                held.state = State.LAPSED
                insort(line.places, Place(held, now, is_counted=False))
        return super().arrived(free, now, wall) if free else Work()

    # -- decisions -------------------------------------------------------------------------------

    def give_back(
        self, claim: Claim, cause: Cause, delay_s: float | None, reason: str, now: float, wall: int
    ) -> Work:  # fmt: skip
        work = super().give_back(claim, cause, delay_s, reason, now, wall)
        if cause is Cause.NACKED:
            parts = tuple(part for news in work.revoked for part in news.parts)
            work.revoked = [Revoked(claim, parts)]
        return work

    def _send_back(
        self, work: Work, letter: Letter, delay_s: float, now: float, *, is_new: bool = False
    ) -> None:
        if letter.key is None:
            super()._send_back(work, letter, delay_s, now, is_new=is_new)
            return
        line = self._lines.setdefault(_key(letter), Line())
        held = Held(letter, now, self.policy.lease_s)
        insort(line.places, Place(held, now + delay_s, is_counted=not is_new))
        parts = self._take_back(letter, line, now)
        if parts:
            work.revoked.append(Revoked(None, parts))

    def _take_back(self, letter: Letter, line: Line, now: float) -> tuple[tuple[int, Ranges], ...]:
        """What is out of this key behind a message."""
        key, offset = _key(letter), letter.offset or 0
        found: list[tuple[int, Ranges]] = []
        for lease_id, lease in self._leases.items():
            taken: list[tuple[int, int]] = []
            for at, held in enumerate(lease.items, lease.start):
                other = held.letter
                is_behind = other.key is not None and _key(other) == key
                if is_behind and held.state is State.OUT and (other.offset or 0) > offset:
                    self._return_credit(other)
                    held.state = State.LAPSED
                    insort(line.places, Place(held, now, is_counted=False))
                    taken.append((at, at + 1))
            if taken:
                found.append((lease_id, tuple(taken)))
        return tuple(found)

    def let_go(self, partitions: set[int]) -> Work:
        for key in [key for key in self._lines if key[0] in partitions]:
            del self._lines[key]
        return super().let_go(partitions)

    def detach(self, begun: dict[int, Ranges], now: float) -> Work:
        work = super().detach(begun, now)
        for line in self._lines.values():
            work.release += [
                Release(each.held.letter, max(0.0, each.due - now), not each.is_counted)
                for each in line.places
                if each.held.state is not State.DONE
            ]
        self._lines.clear()
        return work

    # -- time ------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        dues = [line.places[0].due for line in self._lines.values() if _is_waiting(line)]
        base = super().next_due()
        return min([*dues, *([] if base is None else [base])], default=None)

    def _lapse(self, held: Held, now: float, wall: int, work: Work) -> None:
        if held.letter.key is None or self._is_exhausted(held.letter.attempt) or self.is_once:
            super()._lapse(held, now, wall, work)
            return
        self._return_credit(held.letter)
        held.state = State.LAPSED
        self._send_back(work, held.letter, 0.0, now)
        line = self._lines[_key(held.letter)]
        for place in line.places:
            if place.held.letter is held.letter:
                place.held = held  # a late ack finds it

    def tick(self, now: float, wall: int) -> Work:
        work = super().tick(now, wall)
        for line in self._lines.values():
            if _is_waiting(line) and line.places[0].due <= now:
                self._return_line(line, work)
        for key in [key for key, line in self._lines.items() if not _has_any(line)]:
            del self._lines[key]
        return work

    def _return_line(self, line: Line, work: Work) -> None:
        """Gives a line to the feed, which brings it again."""
        places = [place for place in line.places if place.held.state is not State.DONE]
        for place in places:
            if place.held.lease is not None:
                place.held.lease.left -= 1
            place.held.state, place.held.until = State.DONE, HANDED_AGAIN
            work.release.append(Release(place.held.letter, 0.0, not place.is_counted))
        line.awaited = [place.offset for place in places]
        line.places = []


def _key(letter: Letter) -> Key:
    assert letter.key is not None
    return letter.partition, letter.key


def _is_waiting(line: Line) -> bool:
    return bool(line.places) and not line.awaited


def _has_any(line: Line) -> bool:
    return bool(line.places or line.awaited)
