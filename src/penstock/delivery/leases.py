"""The volatile side of a cursor: what may be offered, what is out, and taking messages back."""

from typing import Final

from penstock.delivery.keyed import haunt
from penstock.delivery.state import Consumer, Cursor, Lease, bit_ranges

LEASE_BITS: Final = 40
"""Lease ids of one start of the broker: its generation stands above these bits."""
EARLIER_START: Final = "the broker was started again since, and it was not named on return"


def is_of_earlier_start(consumer: Consumer, lease_id: int) -> bool:
    """True for a lease that ended when the broker did."""
    return lease_id >> LEASE_BITS < consumer.generation


def make_ready(cursor: Cursor, start: int, end: int) -> None:
    """These messages may be offered again; older ones come first."""
    if cursor.partition.traits is not None:
        cursor.partition.traits.touch(start, end)
    if cursor.ready is None:
        cursor.ready = []
    cursor.ready.append((start, end))
    if len(cursor.ready) > 1 and cursor.ready[-2] > (start, end):
        cursor.ready.sort()


def withdraw(cursor: Cursor, start: int, end: int) -> int:
    """Takes messages out of what may be offered; returns how many were there."""
    found = 0
    for name in ("ready", "isolated"):
        rows = getattr(cursor, name)
        if rows:
            kept, count = _cut(rows, start, end)
            found += count
            setattr(cursor, name, kept or None)
    if cursor.line is not None:
        found += cursor.line.withdraw(start, end)
    if cursor.delayed:
        fresh = []
        for due, low, high, wall, delay in cursor.delayed:
            for a, b in ((low, min(high, start)), (max(low, end), high)):
                if a < b:
                    fresh.append((due, a, b, wall, delay))
            found += max(0, min(high, end) - max(low, start))
        cursor.delayed = sorted(fresh) or None
    if found and cursor.subscription.keys is not None:
        cursor.subscription.keys.is_fenced = True  # Later ones of their keys may have waited.
    return found


def _cut(rows: list[tuple[int, int]], start: int, end: int) -> tuple[list[tuple[int, int]], int]:
    kept: list[tuple[int, int]] = []
    count = 0
    for low, high in rows:
        count += max(0, min(high, end) - max(low, start))
        kept.extend((a, b) for a, b in ((low, min(high, start)), (max(low, end), high)) if a < b)
    return kept, count


def void_leases(cursor: Cursor, start: int, end: int) -> None:
    """Closes whatever consumers hold of these messages."""
    for consumer in cursor.subscription.consumers or ():
        for lease in list(consumer.leases.values()):
            if lease.cursor is cursor and lease.start < end and start < lease.end:
                haunt(lease, start, end)
                close_bits(lease, max(start, lease.start), min(end, lease.end))


def void_shades(cursor: Cursor, start: int, end: int) -> None:
    """QoS 0: whoever was sent these finished messages need not say any more what became of them."""
    for consumer in cursor.subscription.consumers or ():
        for lease in list(consumer.leases.values()):
            is_shade = lease.cursor is not cursor and lease.cursor.partition is cursor.partition
            if is_shade and lease.start < end and start < lease.end:
                close_bits(lease, max(start, lease.start), min(end, lease.end))


def close_bits(lease: Lease, start: int, end: int) -> list[tuple[int, int]]:
    """Marks start…end of a lease finished; returns the parts that were still open."""
    consumer, cursor = lease.consumer, lease.cursor
    if lease.open is None and start <= lease.start and end >= lease.end:
        closed = [(lease.start, lease.end)]
        count = lease.count
        lease.count = lease.open = 0
    else:
        bits = ((1 << (end - start)) - 1) << (start - lease.start)
        hit = lease.mask() & bits
        if not hit:
            return []
        count = hit.bit_count()
        lease.open = lease.mask() & ~bits
        lease.count -= count
        low = (hit & -hit).bit_length() - 1
        if hit >> low == (1 << count) - 1:
            closed = [(lease.start + low, lease.start + low + count)]
        else:
            closed = bit_ranges(hit, lease.start)
    consumer.outstanding -= count
    consumer.outstanding_bytes -= count * lease.bytes_each
    cursor.leased -= count
    _end_if_empty(lease)
    return closed


def close_mask(lease: Lease, bits: int) -> None:
    """Marks open messages of a lease finished, by their bits."""
    count = bits.bit_count()
    lease.open = lease.mask() & ~bits
    lease.count -= count
    lease.consumer.outstanding -= count
    lease.consumer.outstanding_bytes -= count * lease.bytes_each
    lease.cursor.leased -= count
    _end_if_empty(lease)


def _end_if_empty(lease: Lease) -> None:
    consumer = lease.consumer
    if lease.count == 0:
        consumer.leases.pop(lease.id, None)
        if not consumer.leases:
            consumer.is_isolated = False
            consumer.is_saving = False
