"""What happens to a delivered message: ack, nack, reject, expiry, hand-back, loss of a consumer.

Deciding closes the messages' bits in their lease at once, so that a second decision finds them
gone; the record makes it true.
"""

from penstock.delivery import revoked
from penstock.delivery.keyed import later_of_key
from penstock.delivery.leases import (
    EARLIER_START,
    close_bits,
    close_mask,
    is_of_earlier_start,
    withdraw,
)
from penstock.delivery.offers import mask_of
from penstock.delivery.once import decide_missed, is_shade, take_back
from penstock.delivery.state import Consumer, Cursor, Lease, Subscription, bit_ranges
from penstock.delivery.tokens import is_stale
from penstock.vocabulary import names
from penstock.vocabulary.claims import Claim, Refusal
from penstock.vocabulary.records import Cause, Missed, Outcome, Ranges, Returned, Settled

_NONCE = 0x9E3779B97F4A7C15


def decide_ack(consumer: Consumer, claims: list[Claim]) -> tuple[list[Settled], list[Refusal]]:
    """Records that finish the claimed messages, one per partition, and what was refused."""
    if consumer.subscription.policy.qos == 0:
        take_back(consumer, claims)
        return [], []
    accepted: dict[Cursor, list[tuple[int, int]]] = {}
    refused: list[Refusal] = []
    scattered: list[Settled] = []
    for claim in claims:
        if claim.mask:
            record = _ack_scattered(consumer, claim)
            if record is not None:
                scattered.append(record)
                continue
        cursor, closed = _close(consumer, claim, refused)
        if closed:
            accepted.setdefault(cursor, []).extend(closed)
    records = [_settled(cursor, ranges, Outcome.ACKED) for cursor, ranges in accepted.items()]
    return scattered + records, refused


def _ack_scattered(consumer: Consumer, claim: Claim) -> Settled | None:
    """Scattered messages of one lease at once; None when one of them must be looked at alone."""
    lease = consumer.leases.get(claim.lease_id)
    ((start, end),) = claim.ranges
    if lease is None or start < lease.start or end > lease.end:
        return None
    mask = claim.mask & ((1 << (end - start)) - 1)
    bits = mask << (start - lease.start)
    if lease.mask() & bits != bits:
        return None
    close_mask(lease, bits)
    cursor = lease.cursor
    cursor.settling += mask.bit_count()
    subscription = cursor.subscription
    data = mask.to_bytes((end - start + 7) // 8, "little")
    record = Settled(
        subscription.topic.id, cursor.partition.index, subscription.id, Outcome.ACKED,
        ((start, end),), data,
    )  # fmt: skip
    if subscription.keys is not None:
        subscription.keys.decided[id(record)] = record
    return record


def _settled(cursor: Cursor, ranges: list[tuple[int, int]], outcome: Outcome) -> Settled:
    merged = merge(ranges)
    cursor.settling += sum(high - low for low, high in merged)
    subscription = cursor.subscription
    record = Settled(
        subscription.topic.id, cursor.partition.index, subscription.id, outcome, merged
    )
    if subscription.keys is not None:
        subscription.keys.decided[id(record)] = record
    return record


def merge(ranges: list[tuple[int, int]]) -> Ranges:
    """Sorted and joined."""
    if len(ranges) == 1:
        return (ranges[0],)
    ranges.sort()
    merged = [ranges[0]]
    for low, high in ranges[1:]:
        if low <= merged[-1][1]:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def _close(
    consumer: Consumer, claim: Claim, refused: list[Refusal]
) -> tuple[Cursor, list[tuple[int, int]]]:
    cursor = consumer.subscription.cursors[claim.partition]
    lease = consumer.leases.get(claim.lease_id)
    closed: list[tuple[int, int]] = []
    ranges: Ranges | list[tuple[int, int]] = claim.ranges
    if claim.mask:
        ranges = bit_ranges(claim.mask, claim.ranges[0][0])
    for start, end in ranges:
        found: list[tuple[int, int]] = []
        if (
            lease is not None
            and lease.cursor is cursor
            and lease.start <= start <= end <= lease.end
        ):
            found = close_bits(lease, start, end)
        closed.extend(found)
        if sum(high - low for low, high in found) < end - start:
            closed.extend(_close_late(consumer, start, end, found, claim, refused))
    return cursor, closed


def close_all(lease: Lease) -> list[tuple[int, int]]:
    """Ends a lease; returns what was still open."""
    if lease.open is None:
        return close_bits(lease, lease.start, lease.end)
    return [part for low, high in lease.unfinished() for part in close_bits(lease, low, high)]


def _close_late(
    consumer: Consumer, start: int, end: int, found: list[tuple[int, int]], claim: Claim,
    refused: list[Refusal],
) -> list[tuple[int, int]]:  # fmt: skip
    """A late claim is accepted unless the message was handed out again or is finished."""
    cursor = consumer.subscription.cursors[claim.partition]
    closed: list[tuple[int, int]] = []
    for offset in range(start, end):
        if any(low <= offset < high for low, high in found):
            continue
        if claim.lease_id < cursor.voided:
            refused.append(Refusal(claim.partition, offset, "the subscription was moved by a seek"))
            continue
        if offset in cursor.done:
            # Acking again what is acked is success; at QoS 2 only with the token that did it.
            if is_stale(cursor, offset, claim.attempt):
                refused.append(Refusal(claim.partition, offset, "it was handed out again"))
            continue
        if is_of_earlier_start(consumer, claim.lease_id):
            refused.append(Refusal(claim.partition, offset, EARLIER_START))
        elif cursor.trial(offset).attempt not in (claim.attempt, claim.attempt - 1):
            # A message that came back unstarted has its attempt again; it waits, or it is out.
            refused.append(Refusal(claim.partition, offset, "it was handed out again"))
        elif withdraw(cursor, offset, offset + 1) or revoked.accept(cursor, offset):
            closed.append((offset, offset + 1))
        else:
            refused.append(Refusal(claim.partition, offset, "it is not leased to you"))
    return closed


def decide_return(
    consumer: Consumer, claim: Claim, cause: Cause, delay_s: float | None, reason: str,
    now_wall: int,
) -> tuple[list[Returned], list[Refusal]]:  # fmt: skip
    """A record that brings claimed messages back: nack, reject or hand-back."""
    refused: list[Refusal] = []
    if consumer.subscription.policy.qos == 0:
        take_back(consumer, [claim])
        return [], []
    cursor, closed = _close(consumer, claim, refused)
    if not closed:
        return [], refused
    records = [returned(cursor, closed, cause, delay_s, reason, consumer.name, now_wall)]
    if cause is Cause.NACKED:
        records += revoke(consumer, cursor, closed, now_wall)
    return records, refused


def revoke(
    consumer: Consumer, cursor: Cursor, ranges: list[tuple[int, int]], now_wall: int
) -> list[Returned]:
    """Kind `key_shared`: what is out of the same keys comes back too, to come again in order."""
    keys = cursor.subscription.keys
    if keys is None:
        return []
    closed: list[tuple[int, int]] = []
    for lease, offsets in later_of_key(consumer, cursor, ranges):
        mask = mask_of(offsets - lease.start, lease.end - lease.start)
        runs = bit_ranges(mask, lease.start)
        keys.revoked.append((consumer, lease.id, tuple(runs)))
        for low, high in runs:
            closed += close_bits(lease, low, high)
    if not closed:
        return []
    return [returned(cursor, closed, Cause.REVOKED, 0.0, "", "", now_wall)]


def returned(
    cursor: Cursor, ranges: list[tuple[int, int]], cause: Cause, delay_s: float | None,
    reason: str, consumer: str, now_wall: int,
) -> Returned:  # fmt: skip
    """A record that brings back messages whose bits in their leases are closed."""
    merged = merge(ranges)
    cursor.settling += sum(high - low for low, high in merged)
    subscription = cursor.subscription
    if delay_s is None:
        needs_backoff = cause in (Cause.NACKED, Cause.LOST_ALONE) or (
            cause is Cause.REJECTED and not has_dead_letters(subscription)
        )
        delay_s = backoff_s(cursor, merged[0][0]) if needs_backoff else 0.0
    record = Returned(
        subscription.topic.id, cursor.partition.index, subscription.id, cause, merged,
        max(0, int(delay_s * 1000)), now_wall, reason, consumer,
    )  # fmt: skip
    if subscription.keys is not None:
        subscription.keys.decided[id(record)] = record
    return record


def backoff_s(cursor: Cursor, offset: int) -> float:
    """First × 2ⁿ up to max, less up to a quarter of jitter that depends on the message."""
    retry = cursor.subscription.policy.retry
    counted = min(cursor.trial(offset).counted, 30)
    full = min(retry.first_s * 2.0**counted, retry.max_s)
    spread = ((offset + 1) * _NONCE * (counted + 1) & 0xFFFF) / 0x10000
    return full * (1 - spread / 4)


def decide_expired(subscription: Subscription, now: int, now_wall: int) -> list[Returned]:
    """Records for every lease that ran out by `now`."""
    found: list[Returned] = []
    for consumer in subscription.consumers or ():
        if consumer.leases and consumer.deadline <= now:
            for lease in list(consumer.leases.values()):
                ranges = _expired(lease, now)
                if ranges:
                    found.append(
                        returned(
                            lease.cursor, ranges, Cause.EXPIRED, 0.0, "lease expired",
                            consumer.name, now_wall,
                        )
                    )  # fmt: skip
                    if subscription.keys is not None:
                        subscription.keys.revoked.append((consumer, lease.id, tuple(ranges)))
                    found += revoke(consumer, lease.cursor, ranges, now_wall)
            consumer.deadline = next_deadline(consumer)
    return found


def _expired(lease: Lease, now: int) -> list[tuple[int, int]]:
    if not lease.is_out:
        return []
    if lease.deadline <= now:
        lease.passed = lease.end
    while lease.marks and lease.marks[0][1] <= now:
        lease.passed = max(lease.passed, lease.marks.pop(0)[0])
    if lease.passed == lease.start:
        return []
    late = lease.mask() & ((1 << (lease.passed - lease.start)) - 1)
    if lease.kept:
        lease.kept = {offset: until for offset, until in lease.kept.items() if until > now}
        for offset in lease.kept:
            late &= ~(1 << (offset - lease.start))
    ranges = bit_ranges(late, lease.start)
    return [part for low, high in ranges for part in close_bits(lease, low, high)]


def next_deadline(consumer: Consumer) -> int:
    """The earliest moment a lease of this consumer may run out."""
    earliest = 1 << 62
    for lease in consumer.leases.values():
        if lease.passed < lease.end:
            mark = lease.marks[0][1] if lease.marks else lease.deadline
            earliest = min(earliest, mark, lease.deadline)
        # What has time of its own needs it only once the rest of the lease has run out.
        for offset, until in (lease.kept or {}).items():
            if offset < lease.passed:
                earliest = min(earliest, until)
    return earliest


def extend(consumer: Consumer, lease_id: int, start: int, end: int | None, deadline: int) -> bool:
    """Renews a lease from `start` on, or only start…end; all others keep the time they had."""
    lease = consumer.leases.get(lease_id)
    if lease is None:
        return False
    if end is not None:
        kept = lease.kept = lease.kept or {}
        for offset in range(max(start, lease.start), min(end, lease.end)):
            kept[offset] = max(deadline, kept.get(offset, 0))
    elif deadline > lease.deadline:
        if start > lease.start:
            marks = lease.marks = lease.marks or []
            if not marks or start > marks[-1][0]:
                marks.append((min(start, lease.end), lease.deadline))
        lease.deadline = deadline
    return True


def decide_detach(
    consumer: Consumer, started: dict[int, Ranges], now_wall: int, *, is_clean: bool
) -> list[Returned | Missed]:
    """Records for everything a leaving consumer held.

    `started` tells, per lease, what the application had begun; the rest gets its attempt back.
    """
    found: list[Returned | Missed] = []
    held_one = consumer.outstanding == 1
    for lease in list(consumer.leases.values()):
        cursor = lease.cursor
        begun = started.get(lease.id, ())
        if is_shade(lease):
            found.extend(decide_missed(lease, begun, is_clean=is_clean))
            continue
        for start, end in begun:
            ranges = close_bits(lease, max(start, lease.start), min(end, lease.end))
            if ranges:
                found.append(_left(cursor, ranges, consumer, now_wall, is_clean, held_one))
        ranges = close_all(lease)
        if ranges and is_clean:
            found.append(returned(cursor, ranges, Cause.UNSTARTED, 0.0, "", "", now_wall))
        elif ranges:
            found.append(_left(cursor, ranges, consumer, now_wall, is_clean, held_one))
    return found


def _left(
    cursor: Cursor, ranges: list[tuple[int, int]], consumer: Consumer, now_wall: int,
    is_clean: bool, is_alone: bool,  # noqa: FBT001 - private, both named at each call
) -> Returned:  # fmt: skip
    if is_clean:
        return returned(
            cursor, ranges, Cause.RELEASED, 0.0, "consumer closed", consumer.name, now_wall
        )
    cause = Cause.LOST_ALONE if is_alone else Cause.LOST
    return returned(cursor, ranges, cause, None, "consumer lost", consumer.name, now_wall)


def has_dead_letters(subscription: Subscription) -> bool:
    """True when this subscription's failed messages go to a dead-letter topic."""
    return subscription.is_durable and not names.is_dead_topic(subscription.topic.name)
