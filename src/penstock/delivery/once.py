"""QoS 0: a message is finished before it is handed over, so it is handed over at most once.

The record that finishes a slice is durable before the slice goes to its consumer. What the consumer
then holds is no lease any more: only its credit is taken, by a lease's *shade*, until the client
says that the application has it. What never got there is counted as dropped, where that is known.
"""

from penstock.delivery.effects import Effects
from penstock.delivery.leases import close_bits
from penstock.delivery.seek import note_ending
from penstock.delivery.state import Consumer, Cursor, Lease, State, bit_ranges
from penstock.delivery.traits import NEVER
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.records import Missed, Outcome, Ranges, Settled


def decide_hand_over(
    state: State, lease: Lease, offsets: list[int]
) -> tuple[Settled, Lease] | None:
    """A record that finishes these messages of a lease, and the shade that stands for them.

    None when nothing of the lease is left.
    """
    wanted = 0
    for offset in offsets:
        wanted |= 1 << (offset - lease.start)
    ranges = bit_ranges(lease.mask() & wanted, lease.start)
    if not ranges:
        return None
    for low, high in ranges:
        close_bits(lease, low, high)
    record = settled(lease, ranges, Outcome.ACKED)
    return record, _shade(state, lease, ranges)


def settled(lease: Lease, ranges: list[tuple[int, int]], outcome: Outcome) -> Settled:
    """A record that finishes messages whose bits in the lease are closed."""
    cursor = lease.cursor
    cursor.settling += sum(high - low for low, high in ranges)
    subscription = cursor.subscription
    record = Settled(
        subscription.topic.id, cursor.partition.index, subscription.id, outcome, tuple(ranges)
    )
    if subscription.keys is not None:
        subscription.keys.decided[id(record)] = record
    return record


def _shade(state: State, lease: Lease, ranges: list[tuple[int, int]]) -> Lease:
    return add_shade(
        state, lease.consumer, lease.cursor, ranges, lease.attempt, lease.bytes_each,
        (lease.start, lease.end),
    )  # fmt: skip


def add_shade(
    state: State, consumer: Consumer, cursor: Cursor, ranges: list[tuple[int, int]], attempt: int,
    bytes_each: int, span: tuple[int, int],
) -> Lease:  # fmt: skip
    """Takes credit of a consumer for finished messages it was sent."""
    number = state.next_lease_id
    state.next_lease_id = number + 1
    # A cursor of its own, so that nothing a consumer does with it touches the real one.
    apart = Cursor(cursor.subscription, cursor.partition, 0)
    start, end = span
    shade = Lease(number, consumer, apart, start, end, attempt, NEVER)
    shade.bytes_each = bytes_each
    shade.open = sum(((1 << (high - low)) - 1) << (low - start) for low, high in ranges)
    shade.count = sum(high - low for low, high in ranges)
    consumer.leases[number] = shade
    consumer.outstanding += shade.count
    consumer.outstanding_bytes += shade.count * shade.bytes_each
    return shade


def is_shade(lease: Lease) -> bool:
    """True when the messages are finished and only their credit is still taken."""
    cursors = lease.cursor.subscription.cursors
    return lease.cursor is not cursors[lease.cursor.partition.index]


def take_back(consumer: Consumer, claims: list[Claim]) -> None:
    """Whatever the application says about QoS 0 messages, it only gives their credit back."""
    for claim in claims:
        shade = consumer.leases.get(claim.lease_id)
        if shade is not None and is_shade(shade):
            for start, end in claim.ranges:
                if start < shade.end and shade.start < end:
                    close_bits(shade, max(start, shade.start), min(end, shade.end))


def decide_missed(shade: Lease, begun: Ranges, *, is_clean: bool) -> list[Missed]:
    """A record for what a leaving consumer was sent and, as far as is known, never handed on."""
    for start, end in begun:
        if start < shade.end and shade.start < end:
            close_bits(shade, max(start, shade.start), min(end, shade.end))
    ranges = [part for low, high in shade.unfinished() for part in close_bits(shade, low, high)]
    if not ranges:
        return []
    cursor = shade.cursor
    reason = "consumer closed before it took them" if is_clean else "consumer lost"
    topic_id, subscription_id = cursor.partition.topic.id, cursor.subscription.id
    return [Missed(topic_id, cursor.partition.index, subscription_id, tuple(ranges), reason)]


def apply_missed(state: State, record: Missed, _effects: Effects) -> None:
    """Finished messages turn out not to have reached anybody.

    Those that a seek has taken up again, or that are known to have ended otherwise, are counted
    there already.
    """
    cursor = state.subscriptions[record.subscription_id].cursors[record.partition]
    finished = [run for start, end in record.ranges for run in cursor.done.inside(start, end)]
    for start, end in finished:
        for low, high in _acked(cursor, start, end):
            count = min(high - low, cursor.acked)
            cursor.acked -= count
            cursor.dropped += count
            note_ending(cursor, low, high, Outcome.DROPPED)


def _acked(cursor: Cursor, start: int, end: int) -> list[tuple[int, int]]:
    """The parts of finished messages of which nothing but an ack is known."""
    if cursor.otherwise is None:
        return [(start, end)]
    return [(low, high) for low, high, found in cursor.otherwise.runs(start, end) if found is None]
