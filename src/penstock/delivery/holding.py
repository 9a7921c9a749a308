"""What a partition still holds, for whom, and when it lets go."""

from typing import Final

from penstock.delivery.effects import Effects
from penstock.delivery.leases import void_leases, withdraw
from penstock.delivery.ranges import RangeSet
from penstock.delivery.sizes import Sizes
from penstock.delivery.state import Cursor, Partition, bit_ranges
from penstock.vocabulary.records import Published, Ranges

ROW_MS: Final = 1_000


def hold(partition: Partition, start: int, end: int, size: int) -> None:
    """A record of these messages is stored and takes so many bytes."""
    partition.held += end - start
    partition.held_bytes += size
    if partition.sizes is None:
        partition.sizes = Sizes(start)
    partition.sizes.add(start, end, size, partition.released)


def release(
    partition: Partition, start: int, end: int, effects: Effects, *, is_forced: bool = False
) -> None:
    """Releases the part of start…end that no durable cursor and no policy holds.

    `is_forced`: whatever the policy keeps goes too.
    """
    parts = [(start, end)]
    for subscription in partition.topic.durable_subscriptions():
        done = subscription.cursors[partition.index].done
        parts = [piece for low, high in parts for piece in done.inside(low, high)]
    if partition.retained:
        parts = _outside(parts, partition.retained)
    keeping = partition.keeping
    if keeping is not None and not is_forced:
        parts = keeping.free(parts, partition.topic.policy)
    for low, high in parts:
        for fresh_low, fresh_high in partition.released.add(low, high):
            partition.held -= fresh_high - fresh_low
            if partition.sizes is not None:
                partition.held_bytes -= partition.sizes.between(fresh_low, fresh_high)
            if partition.aimed:
                partition.aimed.remove(fresh_low, fresh_high)
            if keeping is not None:
                keeping.forget(fresh_low, fresh_high)
            effects.released.append((partition.key, fresh_low, fresh_high))
            traits = partition.traits
            if traits is not None and not traits.release(fresh_low, fresh_high):
                partition.traits = None
    if not partition.held:
        partition.sizes = None


def release_mask(partition: Partition, base: int, mask: int, effects: Effects) -> None:
    """The same for the offsets of these bits, counted from `base`."""
    if partition.retained or partition.aimed or partition.keeping is not None:
        for low, high in bit_ranges(mask, base):
            release(partition, low, high, effects)
        return
    for subscription in partition.topic.durable_subscriptions():
        mask = subscription.cursors[partition.index].done.within_mask(base, mask)
    fresh = partition.released.add_mask(base, mask)
    if not fresh:
        return
    partition.held -= fresh.bit_count()
    if partition.sizes is not None:
        partition.held_bytes -= partition.sizes.of_mask(base, fresh)
        if not partition.held:
            partition.sizes = None
    effects.scattered.append((partition.key, base, fresh))
    traits = partition.traits
    if traits is not None and not traits.release_mask(base, fresh):
        partition.traits = None


def _outside(parts: list[tuple[int, int]], rows: list[list[int]]) -> list[tuple[int, int]]:
    for low, high, _ in rows:
        parts = [
            (a, b)
            for start, end in parts
            for a, b in ((start, min(end, low)), (max(start, high), end))
            if a < b
        ]
    return parts


def take_over(partition: Partition, start: int, end: int) -> None:
    """A durable cursor holds these messages now, and no longer their time alone."""
    if partition.retained:
        rows = [row for row in partition.taken or () if row[1] > partition.released.floor]
        partition.taken = sorted(rows + _within(partition.retained, start, end)) or None
        drop_retained(partition, start, end)


def keep_again(partition: Partition, start: int, end: int, effects: Effects) -> None:
    """The cursor that had taken these over is gone: what no other covers is kept for its time."""
    others = partition.topic.durable_subscriptions()
    end = min([end, *(each.cursors[partition.index].begin for each in others)])
    rows = _within(partition.taken or [], start, end)
    if rows:
        partition.taken = _cut(partition.taken or [], start, end)
        partition.retained = sorted([*(partition.retained or ()), *rows])
        effects.retained[partition] = None


def _within(rows: list[list[int]], start: int, end: int) -> list[list[int]]:
    return [
        [max(low, start), min(high, end), at]
        for low, high, at in rows
        if max(low, start) < min(high, end)
    ]


def dump_taken(partition: Partition) -> list[list[int]] | None:
    """For a snapshot."""
    floor = partition.released.floor
    return [row for row in partition.taken or () if row[1] > floor] or None


def load_taken(partition: Partition, found: list[list[int]]) -> None:
    """From a snapshot."""
    partition.taken = found


def drop_retained(partition: Partition, start: int, end: int) -> None:
    """These messages are no longer kept for their time alone."""
    if partition.retained:
        partition.retained = _cut(partition.retained, start, end)


def _cut(rows: list[list[int]], start: int, end: int) -> list[list[int]] | None:
    """Rows without what lies in start…end."""
    left = [
        [a, b, at]
        for low, high, at in rows
        for a, b in ((low, min(high, start)), (max(low, end), high))
        if a < b
    ]
    return left or None


def retain(partition: Partition, record: Published, effects: Effects) -> None:
    """Keeps messages that no durable cursor covers for the time the topic says."""
    retain_s = partition.topic.policy.retain_s
    if retain_s is not None and retain_s <= 0:
        release(partition, record.base, record.end, effects)
        return
    if partition.retained is None:
        partition.retained = []
    effects.retained[partition] = None
    rows = partition.retained
    # One row per second of publishing is precise enough for a rule counted in hours.
    # The newest time counts, so that no message goes before its own.
    at = record.published_at
    if rows and rows[-1][1] == record.base and at // ROW_MS == rows[-1][2] // ROW_MS:
        rows[-1][1:] = record.end, max(at, rows[-1][2])
    else:
        rows.append([record.base, record.end, at])


def wait_again(partition: Partition, start: int, end: int, effects: Effects) -> None:
    """These messages wait for somebody new: those that have expired meanwhile must be seen."""
    traits = partition.traits
    if traits is not None and traits.counts["expiry"]:
        traits.touch(start, end)
        effects.expiring[partition] = None


def lose(partition: Partition, start: int, end: int, effects: Effects) -> None:
    """Messages that were there once and are missing from the log: counted as dropped."""
    if partition.lost is None:
        partition.lost = RangeSet()
    partition.lost.add(start, end)
    partition.next_offset = max(partition.next_offset, end)
    partition.reserved = max(partition.reserved, partition.next_offset)
    for subscription in partition.topic.durable_subscriptions():
        cursor = subscription.cursors[partition.index]
        count = sum(high - low for low, high in cursor.done.add(start, end))
        cursor.attached += count
        cursor.dropped += count
    partition.held += partition.released.missing(start, end)
    release(partition, start, end, effects, is_forced=True)


def remove(partition: Partition, ranges: Ranges, effects: Effects) -> None:
    """Takes messages out of the topic and of every subscription."""
    for start, end in ranges:
        for subscription in partition.topic.every_subscription():
            cursor = subscription.cursors[partition.index]
            for low, high in cursor.done.add(start, end):
                cursor.dropped += high - low
                forget_trials(cursor, low, high)
                void_leases(cursor, low, high)
                withdraw(cursor, low, high)
                effects.dirty[subscription] = None  # Whoever held them can take others.
        drop_retained(partition, start, end)
        release(partition, start, end, effects, is_forced=True)


def forget_trials(cursor: Cursor, start: int, end: int) -> None:
    """The attempts on these messages no longer matter."""
    if cursor.trials:
        cursor.trials.clear(start, end)
    if cursor.reasons:
        for offset in [o for o in cursor.reasons if start <= o < end]:
            del cursor.reasons[offset]
    if cursor.doomed is not None:
        cursor.doomed.remove(start, end)
