"""Every id that waits in one partition of a topic whose newer messages replace older ones."""

from collections.abc import Iterator
from typing import Any, Final

from penstock.delivery.ranges import RangeSet

OLDER_MAX: Final = 1_000
"""So many messages of one id are known at once; older ones, leased or kept for a time, stay."""
SWEEP_MIN: Final = 1_024


class Pending:
    """The hashes of given ids and the offsets of the held messages that have them."""

    __slots__ = ("_sweep_at", "flying", "places", "unborn")

    def __init__(self) -> None:
        self.places: dict[bytes, list[int]] = {}
        """hash → offsets, rising; some may be released since."""
        # volatile
        self._sweep_at = SWEEP_MIN
        self.flying: dict[bytes, int] = {}
        """hash → offset of the newest message that is decided and not yet durable."""
        self.unborn: dict[int, list[Any]] = {}
        """offset → subscriptions in which a message was replaced before it was durable."""

    def older(self, key: bytes) -> Iterator[int]:
        """Offsets of the messages with this id, durable ones first."""
        yield from self.places.get(key, ())
        if key in self.flying:
            yield self.flying[key]

    def add(self, key: bytes, offset: int, released: RangeSet) -> None:
        """A message is durable."""
        if self.flying.get(key) == offset:
            del self.flying[key]
        known = self.places.get(key)
        if known is None:
            if len(self.places) >= self._sweep_at:
                self.sweep(released)
            self.places[key] = [offset]
            return
        known[:] = [each for each in known if each not in released][1 - OLDER_MAX :]
        known.append(offset)

    def sweep(self, released: RangeSet) -> None:
        """Lets go of messages that nothing holds any more."""
        self.places = dict(self._held(released))
        self._sweep_at = max(SWEEP_MIN, 2 * len(self.places))

    def _held(self, released: RangeSet) -> Iterator[tuple[bytes, list[int]]]:
        for key, offsets in self.places.items():
            held = [offset for offset in offsets if offset not in released]
            if held:
                yield key, held

    def state(self, released: RangeSet) -> list[Any] | None:
        """What is durable of it, for a snapshot."""
        return list(self._held(released)) or None

    @classmethod
    def restored(cls, state: list[Any]) -> "Pending":
        """From a snapshot."""
        fresh = cls()
        fresh.places = dict(state)
        fresh._sweep_at = max(SWEEP_MIN, 2 * len(fresh.places))
        return fresh
