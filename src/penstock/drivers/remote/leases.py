"""What one consumer holds, as its driver must know it to return after a lost connection.

The client numbers leases by itself: a server that was started again uses its numbers again, so
each lease has two, and claims are translated on their way out. What was settled stays held until
the server has confirmed it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.batch.frame import Slice
from penstock.vocabulary.claims import Claim, Held, Kept, Revoked
from penstock.vocabulary.records import Ranges

LEASES_OLD: Final = 1_024
"""With more leases than this, those that were not renewed for long are forgotten."""
PRUNED_AT_ONCE: Final = 8


class Lease:
    """One slice: its number at the server, and which of its messages are not done with."""

    __slots__ = ("attempt", "confirmed", "left", "number", "offsets", "partition", "touched_at")

    def __init__(self, part: Slice, now: float) -> None:
        self.number = part.lease_id
        self.partition = part.partition
        self.attempt = part.attempt
        self.offsets: list[Sequence[int]] = [frame.offsets for frame in part.frames]
        self.left = sum(map(len, self.offsets))
        self.confirmed: list[Claim] = []
        self.touched_at = now

    def open_ranges(self) -> Ranges:
        """Where the messages lie that are not confirmed to be settled."""
        left = {offset for run in self.offsets for offset in run}
        for claim in self.confirmed:
            left.difference_update(offsets_of(claim))
        return as_ranges(left)

    def narrow(self, ranges: Ranges) -> None:
        """Only these messages are meant from now on."""
        self.offsets = [range(start, end) for start, end in ranges]
        self.confirmed = []
        self.left = sum(map(len, self.offsets))


class Leases:
    """All leases of one consumer."""

    def __init__(self) -> None:
        self._last = 0
        self._leases: dict[int, Lease] = {}
        self._own: dict[int, int] = {}
        """Number at the server → number here."""

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, part: Slice, now: float) -> int:
        """Notes a slice; returns the number that the client knows it by."""
        self._last += 1
        self._leases[self._last] = Lease(part, now)
        self._own[part.lease_id] = self._last
        return self._last

    def number_of(self, own: int) -> int:
        """The number at the server; 0 when the lease is not known any more."""
        lease = self._leases.get(own)
        return 0 if lease is None else lease.number

    def own_number(self, number: int) -> int:
        """The number here; 0 when the lease is not known any more."""
        return self._own.get(number, 0)

    def touch(self, own: int, now: float) -> None:
        """A lease is renewed."""
        lease = self._leases.get(own)
        if lease is not None:
            lease.touched_at = now

    def translate(self, claim: Claim) -> Claim:
        """A claim as the server understands it."""
        return claim._replace(lease_id=self.number_of(claim.lease_id))

    def confirm(self, claim: Claim) -> None:
        """The server has made this decision durable."""
        lease = self._leases.get(claim.lease_id)
        if lease is None:
            return
        lease.left -= count_of(claim)
        if lease.left <= 0:
            self.drop(claim.lease_id)
        else:
            lease.confirmed.append(claim)

    def drop(self, own: int) -> None:
        """A lease is over."""
        lease = self._leases.pop(own, None)
        if lease is not None and self._own.get(lease.number) == own:
            del self._own[lease.number]

    def revoke(self, news: Revoked) -> tuple[tuple[int, Ranges], ...]:
        """What the server took back, in the client's numbers."""
        parts: list[tuple[int, Ranges]] = []
        for number, ranges in news.parts:
            own = self.own_number(number)
            lease = self._leases.get(own)
            if lease is None:
                continue
            parts.append((own, ranges))
            gone = {offset for start, end in ranges for offset in range(start, end)}
            kept = {o for start, end in lease.open_ranges() for o in range(start, end)} - gone
            lease.narrow(as_ranges(kept))
            if not kept:
                self.drop(own)
        return tuple(parts)

    def held(self, held_max: int) -> list[Held]:
        """What to name on return, newest leases first to be left out when there are too many."""
        rows: list[Held] = []
        for lease in list(self._leases.values())[:held_max]:
            ranges = lease.open_ranges()
            if ranges:
                rows.append(Held(lease.number, lease.partition, lease.attempt, ranges))
        return rows

    def keep(self, kept: list[Kept]) -> tuple[list[int], list[tuple[int, Ranges]]]:
        """Takes over what the server kept.

        Returns the leases that are lost, and what is lost of those that were kept in part.
        """
        found: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        for old, number, ranges in kept:
            own = self.own_number(old)
            if own:
                found.setdefault(own, (number, []))[1].extend(ranges)
        lost: list[int] = []
        partly: list[tuple[int, Ranges]] = []
        before, self._own = self._leases, {}
        for own, lease in list(before.items()):
            if own not in found:
                del before[own]
                lost.append(own)
                continue
            number, rows = found[own]
            had = {o for start, end in lease.open_ranges() for o in range(start, end)}
            has = {o for start, end in rows for o in range(start, end)}
            if had - has:
                partly.append((own, as_ranges(had - has)))
            lease.number = number
            lease.narrow(tuple(sorted(rows)))
            self._own[number] = own
        return lost, partly

    def prune(self, before: float) -> None:
        """Forgets old leases that nobody renewed: the server has handed their messages on."""
        if len(self._leases) > LEASES_OLD:
            for own in list(self._leases)[:PRUNED_AT_ONCE]:
                if self._leases[own].touched_at < before:
                    self.drop(own)


def count_of(claim: Claim) -> int:
    """How many messages a claim means."""
    if claim.mask:
        return claim.mask.bit_count()
    return sum(end - start for start, end in claim.ranges)


def offsets_of(claim: Claim) -> Iterable[int]:
    """The messages a claim means."""
    if not claim.mask:
        return (offset for start, end in claim.ranges for offset in range(start, end))
    start = claim.ranges[0][0]
    return (start + n for n in range(claim.mask.bit_length()) if claim.mask >> n & 1)


def as_ranges(offsets: Iterable[int]) -> Ranges:
    """Offsets as ranges, rising."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return tuple(ranges)
