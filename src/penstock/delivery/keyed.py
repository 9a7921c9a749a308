"""Kind `key_shared`: one consumer at a time holds a key, and gets its messages in order.

Keys belong to 65,536 slots, slots to consumers. A slot that is to move goes to its new consumer
only when nothing of it is out: until then it gets nothing new. Otherwise only a key whose oldest
message backs off waits, and only that key. All of this is volatile: after a restart nothing is out.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Final

import numpy as np

from penstock.delivery.line import Line, Segment, absorb, offsets_in, same_history, slots_of_hashes
from penstock.delivery.offers import (
    LOSSES_BEFORE_ISOLATION,
    Offer,
    offer_set,
    places_in,
    stop_saving,
)
from penstock.delivery.state import Consumer, Cursor, Lease, State, Subscription, Trial
from penstock.delivery.traits import Numbers, Offsets, Traits
from penstock.vocabulary.limits import SLICE_COUNT_MAX
from penstock.vocabulary.records import Ranges, Returned, Settled

SLOTS: Final = 65_536
WINDOW: Final = 4_096
"""Messages that stand in line at once, at least, before more are looked at."""


class Ghost:
    """Keys of messages that were taken from a consumer while it may still be at work on them."""

    __slots__ = ("consumer", "deadline", "slots")

    def __init__(self, consumer: Consumer, slots: Numbers, deadline: int) -> None:
        self.consumer = consumer
        self.slots = slots
        self.deadline = deadline


class Keys:
    """Which consumer holds which slots, and which slots are on their way to another."""

    __slots__ = (
        "decided", "early", "ghosts", "holder", "is_fenced", "is_moving", "members", "revoked",
        "target",
    )  # fmt: skip

    def __init__(self) -> None:
        self.members: list[Consumer] = []
        self.holder = np.zeros(SLOTS, dtype=np.int64)
        """Consumer id; 0 = nobody."""
        self.target = np.zeros(SLOTS, dtype=np.int64)
        """Who should hold it."""
        self.is_moving = False
        self.is_fenced = False
        """Messages may wait for older ones of their keys, in another partition of a topic that
        grew or taken out of the line: whatever is settled is a reason to look again."""
        self.decided: dict[int, Settled | Returned] = {}
        """Decisions that are not durable yet: their messages are neither out nor waiting."""
        self.ghosts: list[Ghost] = []
        self.early: set[tuple[Cursor, int]] = set()
        """Messages on their way back about which something was decided meanwhile."""
        self.revoked: list[tuple[Consumer, int, Ranges]] = []
        """What was taken of which lease, until its consumer is told."""

    def join_and_leave(self, consumers: list[Consumer]) -> None:
        """Gives slots to whoever came, and those of whoever left to the others."""
        if consumers == self.members:
            return
        gone = [c for c in self.members if c not in consumers]
        fresh = [c for c in consumers if c not in self.members]
        self.members = list(consumers)
        if not consumers:
            self.target[:] = 0
        stayed = [c.id for c in consumers if c not in fresh]
        for consumer in fresh:
            self._join(consumer.id, stayed)
            stayed.append(consumer.id)
        for consumer in gone:
            slots = np.flatnonzero(self.target == consumer.id)
            if consumers:
                self.target[slots] = np.resize(np.array(stayed, dtype=np.int64), len(slots))
        self.is_moving = True

    def _join(self, number: int, others: list[int]) -> None:
        if not others:
            self.target[:] = number
            return
        # Whoever returned goes on with what it holds, and gets what is missing to a fair share.
        self.target[self.holder == number] = number
        share = len(others) + 1
        held = int((self.holder == number).sum())
        missing = SLOTS // share - held
        if missing <= 0:
            return
        step = share if not held else max(share, round((SLOTS - held) / missing))
        for other in others:
            slots = np.flatnonzero(self.target == other)
            self.target[slots[number % step :: step]] = number

    def move(self, subscription: Subscription, now: int) -> None:
        """Moves every slot of which nothing is out to whoever should hold it."""
        if not self.is_moving:
            return
        busy = np.zeros(SLOTS, dtype=bool)
        for slots in self._out(subscription, now):
            busy[slots] = True
        self.holder = np.where(busy, self.holder, self.target)
        self.is_moving = bool((self.holder != self.target).any())

    def _out(self, subscription: Subscription, now: int) -> Iterable[Numbers]:
        for consumer in subscription.consumers or ():
            for lease in consumer.leases.values():
                yield slots_of(lease.cursor, open_offsets(lease))
        for record in self.decided.values():
            cursor = subscription.cursors[record.partition]
            offsets = np.sort(offsets_in(record.ranges))
            if isinstance(record, Settled) and record.mask:
                offsets = places_in(int.from_bytes(record.mask, "little")) + offsets[0]
            yield slots_of(cursor, offsets)
        here = subscription.consumers or ()
        self.ghosts = [g for g in self.ghosts if g.deadline > now and g.consumer in here]
        for ghost in self.ghosts:
            yield ghost.slots


def open_offsets(lease: Lease) -> Offsets:
    """The unfinished messages of a lease."""
    if lease.open is None:
        return np.arange(lease.start, lease.end, dtype=np.int64)
    return places_in(lease.open) + lease.start


def hashes_of(cursor: Cursor, offsets: Offsets) -> Numbers:
    """The keys of some rising offsets, as their hashes; 0 = none."""
    traits = cursor.partition.traits
    return (Traits() if traits is None else traits).of("hashes", offsets)


def slots_of(cursor: Cursor, offsets: Offsets) -> Numbers:
    """The slot of each message; one without a key has the slot of its offset."""
    return slots_of_hashes(hashes_of(cursor, offsets), offsets)


# -- handing out -----------------------------------------------------------------------------------


def dispatch(state: State, subscription: Subscription, now: int, wall: int) -> list[Offer]:
    """Hands waiting messages to the consumers that hold their keys."""
    keys = subscription.keys
    if keys is None:
        keys = subscription.keys = Keys()
    attached = [c for c in subscription.consumers or () if c.is_attached and not c.is_gone]
    keys.join_and_leave(attached)
    keys.move(subscription, now)
    keys.is_fenced = False
    turn = Turn(state, keys, now)
    if subscription.is_saving:
        stop_saving(subscription)
    if len(subscription.cursors) > 1 and any(map(_has_levels, subscription.cursors)):
        _dispatch_together(turn, subscription.cursors, wall)
        return turn.offers
    for cursor in subscription.cursors:
        absorb(cursor, wall, 0)
        is_changed = True
        while is_changed:
            if cursor.isolated:
                _dispatch_isolated(turn, cursor)
            is_changed = turn.has_credit and _dispatch_cursor(turn, cursor, wall)
    return turn.offers


def _has_levels(cursor: Cursor) -> bool:
    traits = cursor.partition.traits
    return traits is not None and bool(traits.counts["levels"])


def _dispatch_together(turn: "Turn", cursors: list[Cursor], wall: int) -> None:
    """Where there are priorities, the highest of all partitions goes first."""
    is_changed = True
    while is_changed:
        for cursor in cursors:
            absorb(cursor, wall)
            if cursor.isolated:
                _dispatch_isolated(turn, cursor)
        is_changed = turn.has_credit and _dispatch_by_priority(turn, cursors, wall)


class Turn:
    """What one round of handing out needs at every step, and what it made."""

    __slots__ = ("keys", "members", "now", "offers", "state")

    def __init__(self, state: State, keys: Keys, now: int) -> None:
        self.state = state
        self.keys = keys
        self.now = now
        self.members = {consumer.id: consumer for consumer in keys.members}
        self.offers: list[Offer] = []

    @property
    def has_credit(self) -> bool:
        """True while somebody can take more."""
        return any(consumer.free > 0 for consumer in self.keys.members)

    def offer(self, consumer: Consumer, cursor: Cursor, offsets: Offsets, trial: Trial) -> None:
        """Leases messages to a consumer."""
        self.offers.append(offer_set(self.state, consumer, cursor, offsets, trial, self.now))


class Blocked:
    """The oldest message of each key that must come before the key's later ones."""

    __slots__ = ("_fences", "_hashes", "_oldest")

    def __init__(self, keys: Keys, cursor: Cursor) -> None:
        runs = [(start, end) for _, start, end, _, _ in cursor.delayed or ()]
        runs += cursor.isolated or ()
        for record in keys.decided.values():
            if isinstance(record, Returned) and record.partition == cursor.partition.index:
                runs += record.ranges
        offsets = np.sort(offsets_in(runs))
        hashes = hashes_of(cursor, offsets)
        self._hashes, first = np.unique(hashes, return_index=True)
        self._oldest = offsets[first]
        self._fences = list(_fences(cursor)) if cursor.partition.topic.growth else []
        if self._fences:
            keys.is_fenced = True

    def apply(self, hashes: Numbers, offsets: Offsets) -> Numbers:
        """True for each message behind one that must come first."""
        is_fenced: Numbers = np.zeros(len(offsets), dtype=bool)
        for start, elsewhere in self._fences:
            is_fenced |= (offsets >= start) & np.isin(hashes, elsewhere)
        if not len(self._hashes):
            return is_fenced
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        is_behind: Numbers = (
            (self._hashes[at] == hashes) & (hashes != 0) & (offsets > self._oldest[at])
        )
        return is_behind | is_fenced


def _fences(cursor: Cursor) -> Iterator[tuple[int, Numbers]]:
    """After growth: from which offset on, and for which keys, older messages lie elsewhere."""
    partition, subscription = cursor.partition, cursor.subscription
    for growth in partition.topic.growth or ():
        for index, end in enumerate(growth.ends):
            other = subscription.cursors[index]
            if other is cursor or other.done.floor >= end:
                continue
            left = offsets_in(other.done.gaps(other.done.floor, end))
            hashes = hashes_of(other, left)
            traits = other.partition.traits
            if traits is not None and traits.counts["due"]:
                hashes = hashes[traits.of("due", left) == 0]  # a time of its own leaves key order
            if (hashes != 0).any():
                ends = growth.ends
                start = ends[partition.index] if partition.index < len(ends) else 0
                yield start, np.unique(hashes[hashes != 0])


def _dispatch_cursor(turn: Turn, cursor: Cursor, wall: int) -> bool:
    """Hands out what it can; True when something turned out to need a consumer of its own."""
    keys = turn.keys
    blocked = Blocked(keys, cursor)
    seen = 0
    line = absorb(cursor, wall, WINDOW)
    while True:
        if any(segment.top or segment.levels.min() for segment in line.segments[seen:]):
            return _dispatch_by_priority(turn, [cursor], wall)
        for segment in list(line.segments[seen:]):
            if not turn.has_credit:
                return False
            known = len(cursor.isolated or ())
            if _dispatch_segment(turn, cursor, line, segment, blocked):
                seen += 1
            if len(cursor.isolated or ()) != known:
                return True
        if cursor.next >= cursor.partition.next_offset:
            return False
        absorb(cursor, wall, WINDOW)


def _dispatch_segment(
    turn: Turn, cursor: Cursor, line: Line, segment: Segment, blocked: Blocked
) -> bool:
    """Hands out what it can of a segment; True when something of it stays in line."""
    allowed = _allowed(turn.keys, segment, blocked)
    holders = turn.keys.holder[segment.slots]
    chosen = np.zeros(len(segment.offsets), dtype=bool)
    for consumer in turn.keys.members:
        left = _limit(consumer, cursor)
        at = np.flatnonzero(allowed & (holders == consumer.id))[: max(0, left)]
        for low in range(0, len(at), SLICE_COUNT_MAX):
            part = at[low : low + SLICE_COUNT_MAX]
            chosen[part] = True
            is_tried = bool(segment.tried[part].any())
            if not _lease(turn, consumer, cursor, segment.offsets[part], is_tried=is_tried):
                break
    if chosen.any() and not segment.keep(~chosen):
        line.segments.remove(segment)
        return False
    return True


def _allowed(keys: Keys, segment: Segment, blocked: Blocked) -> Numbers:
    holders = keys.holder[segment.slots]
    allowed: Numbers = (holders == keys.target[segment.slots]) & (holders != 0)
    return allowed & ~blocked.apply(segment.hashes, segment.offsets)


def _limit(consumer: Consumer, cursor: Cursor) -> int:
    room = (consumer.credit_bytes - consumer.outstanding_bytes) // cursor.partition.mean_bytes + 1
    return min(consumer.free, room)


def _lease(
    turn: Turn, consumer: Consumer, cursor: Cursor, taken: Offsets, *, is_tried: bool
) -> bool:
    """Leases messages taken out of the line; False when one must go out alone, later."""
    for offsets, trial in same_history(cursor, taken, is_tried=is_tried):
        if trial.losses >= LOSSES_BEFORE_ISOLATION:
            # What follows of its key must not go first, so all that follows stands back.
            alone = [(offset, offset + 1) for offset in offsets.tolist()]
            cursor.isolated = sorted([*(cursor.isolated or ()), *alone])
            back = [(offset, offset + 1) for offset in taken[taken > offsets[-1]].tolist()]
            cursor.ready = sorted([*(cursor.ready or ()), *back]) or None
            return False
        turn.offer(consumer, cursor, offsets, trial)
    return True


def _dispatch_by_priority(turn: Turn, cursors: list[Cursor], wall: int) -> bool:
    """One key after the other, by the priority of its oldest message: key order comes first.

    True when something turned out to need a consumer of its own.
    """
    rows: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for number, cursor in enumerate(cursors):
        blocked = Blocked(turn.keys, cursor)
        for segment in absorb(cursor, wall).segments:
            allowed = np.flatnonzero(_allowed(turn.keys, segment, blocked))
            holders = turn.keys.holder[segment.slots]
            for at in allowed.tolist():
                offset = int(segment.offsets[at])
                key = (number, int(segment.hashes[at]) or -1 - offset)
                row = (-int(segment.levels[at]), offset, int(holders[at]))
                rows.setdefault(key, []).append(row)
    heads = [(key_rows[0][:2], 0, key) for key, key_rows in rows.items()]
    heapify(heads)
    while heads:
        _, place, key = heads[0]
        _, offset, holder = rows[key][place]
        cursor = cursors[key[0]]
        consumer = turn.members.get(holder)
        if consumer is None or _limit(consumer, cursor) <= 0:
            heappop(heads)
            continue
        absorb(cursor, wall, 0).withdraw(offset, offset + 1)
        taken: Offsets = np.array([offset], dtype=np.int64)
        if not _lease(turn, consumer, cursor, taken, is_tried=True):
            return True
        if place + 1 == len(rows[key]):
            heappop(heads)
        else:
            heapreplace(heads, (rows[key][place + 1][:2], place + 1, key))
    return False


def _dispatch_isolated(turn: Turn, cursor: Cursor) -> None:
    """A message that was lost twice goes alone to whoever holds its key, once that one is idle.

    Older messages of its key go first, in the usual way.
    """
    keys = turn.keys
    rows, cursor.isolated = cursor.isolated or [], None
    blocked = Blocked(keys, cursor)
    waiting: list[tuple[int, int]] = []
    for start, end in rows:
        offsets: Offsets = np.array([start], dtype=np.int64)
        slot = int(slots_of(cursor, offsets)[0])
        consumer = turn.members.get(int(keys.holder[slot]))
        hashes = hashes_of(cursor, offsets)
        is_behind = blocked.apply(hashes, offsets)[0] or _is_behind(cursor, waiting, hashes, start)
        if consumer is None or keys.holder[slot] != keys.target[slot] or is_behind:
            waiting.append((start, end))
        elif consumer.outstanding:
            consumer.is_saving = cursor.subscription.is_saving = True
            waiting.append((start, end))
        else:
            consumer.is_saving = False
            consumer.is_isolated = True
            turn.offer(consumer, cursor, offsets, cursor.trial(start))
            if start + 1 < end:
                waiting.append((start + 1, end))
    cursor.isolated = waiting or None


def _is_behind(
    cursor: Cursor, waiting: list[tuple[int, int]], hashes: Numbers, offset: int
) -> bool:
    """True when an older message of the key stands in line, or among those that go alone."""
    (number,) = hashes.tolist()
    if not number:
        return False
    if waiting and number in hashes_of(cursor, np.sort(offsets_in(waiting))):
        return True
    line = cursor.line
    return line is not None and any(
        bool(((segment.hashes == number) & (segment.offsets < offset)).any())
        for segment in line.segments
    )


# -- coming back -----------------------------------------------------------------------------------


def later_of_key(
    consumer: Consumer, cursor: Cursor, ranges: Iterable[tuple[int, int]]
) -> list[tuple[Lease, Offsets]]:
    """What a consumer still holds of the keys of these messages, behind the first of each key."""
    offsets = np.sort(offsets_in(ranges))
    hashes = hashes_of(cursor, offsets)
    offsets, hashes = offsets[hashes != 0], hashes[hashes != 0]
    if not len(offsets):
        return []
    keyed, first = np.unique(hashes, return_index=True)
    found: list[tuple[Lease, Offsets]] = []
    for lease in list(consumer.leases.values()):
        if lease.cursor is not cursor or lease.end <= offsets[0]:
            continue
        held = open_offsets(lease)
        held_hashes = hashes_of(cursor, held)
        at = np.minimum(np.searchsorted(keyed, held_hashes), len(keyed) - 1)
        later = held[(keyed[at] == held_hashes) & (held > offsets[first[at]])]
        if len(later):
            found.append((lease, later))
    return found


def haunt(lease: Lease, start: int, end: int) -> None:
    """Messages are taken from a consumer without its doing: their keys stay with it meanwhile."""
    keys = lease.cursor.subscription.keys
    if keys is None or not lease.is_out:
        return
    offsets = open_offsets(lease)
    offsets = offsets[(offsets >= start) & (offsets < end)]
    offsets = offsets[hashes_of(lease.cursor, offsets) != 0]  # without a key there is no order
    if len(offsets):
        slots = slots_of(lease.cursor, offsets)
        keys.ghosts.append(Ghost(lease.consumer, slots, lease.deadline))
        keys.is_moving = True
