"""When messages end by themselves: `expires_at` has passed while they wait.

An expired message is settled in every subscription where it waits; a lease is never interrupted,
so one that is out is judged again when it comes back. What no subscription has is removed.
"""

from typing import Final

import numpy as np

from penstock.delivery.leases import withdraw
from penstock.delivery.offers import mask_of
from penstock.delivery.state import Cursor, Partition, bit_ranges
from penstock.delivery.traits import NEVER, Chunk, Offsets
from penstock.vocabulary.records import Outcome, Ranges, Removed, Settled

AGAIN_MS: Final = 1_000
"""What could not be settled because it is out is looked at again after this time at the latest."""


def decide_expiry(partition: Partition, wall: int) -> list[Settled | Removed]:
    """Records for everything in this partition that has expired and is in nobody's hands."""
    traits = partition.traits
    if traits is None or not traits.counts["expiry"]:
        return []
    records: list[Settled | Removed] = []
    for chunk in traits.chunks:
        if chunk.soonest <= wall:
            records += _expire(partition, chunk, wall)
    return records


def next_expiry(partition: Partition) -> int:
    """The wall time in ms at which something may expire next."""
    traits = partition.traits
    if traits is None or not traits.counts["expiry"]:
        return NEVER
    return min(chunk.soonest for chunk in traits.chunks)


def _expire(partition: Partition, chunk: Chunk, wall: int) -> list[Settled | Removed]:
    expiry = chunk.part("expiry", chunk.base, chunk.end)
    later = expiry[expiry > wall]
    chunk.soonest = int(later.min()) if len(later) else NEVER
    places = np.flatnonzero((expiry > 0) & (expiry <= wall))
    ranges = _ranges(places, chunk)
    records: list[Settled | Removed] = []
    held = [gap for low, high in ranges for gap in partition.released.gaps(low, high)]
    free = held
    for subscription in partition.topic.every_subscription():
        cursor = subscription.cursors[partition.index]
        pending = [gap for low, high in held for gap in cursor.done.gaps(low, high)]
        if not pending:
            continue
        free = [part for low, high in free for part in cursor.done.inside(low, high)]
        if subscription.reader is not None:
            continue  # Readers get every message of a range, whatever its time.
        waiting = [part for low, high in pending for part in _withdrawn(cursor, low, high)]
        if sum(b - a for a, b in waiting) < sum(b - a for a, b in pending):
            chunk.soonest = min(chunk.soonest, wall + AGAIN_MS)
        if waiting:
            cursor.settling += sum(high - low for low, high in waiting)
            records.append(
                Settled(
                    partition.topic.id, partition.index, subscription.id, Outcome.EXPIRED,
                    tuple(waiting),
                )
            )  # fmt: skip
    if free:
        records.append(Removed(partition.topic.id, partition.index, tuple(free)))
    return records


def _ranges(places: Offsets, chunk: Chunk) -> Ranges:
    return tuple(bit_ranges(mask_of(places, chunk.count), chunk.base)) if len(places) else ()


def _withdrawn(cursor: Cursor, start: int, end: int) -> list[tuple[int, int]]:
    """Takes the part of start…end that waits out of what may be offered; returns it."""
    if cursor.next < end:
        # What was never offered stands in line first, so that a part of it can be taken out.
        fresh = list(cursor.done.gaps(cursor.next, end))
        cursor.next = end
        cursor.ready = sorted([*(cursor.ready or ()), *fresh])
    taken: list[tuple[int, int]] = []
    for offset in range(start, end):
        if withdraw(cursor, offset, offset + 1):
            if taken and taken[-1][1] == offset:
                taken[-1] = (taken[-1][0], offset + 1)
            else:
                taken.append((offset, offset + 1))
    return taken
