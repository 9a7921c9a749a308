"""A lease about to be handed over, whatever kind of subscription made it."""

from typing import NamedTuple

import numpy as np

from penstock.delivery.state import Consumer, Cursor, Lease, State, Subscription, Trial
from penstock.delivery.traits import Offsets
from penstock.vocabulary.records import Delivered

LOSSES_BEFORE_ISOLATION = 2


class Offer(NamedTuple):
    """A lease to hand over. `is_strict`: only after its Delivered record is durable."""

    lease: Lease
    record: Delivered
    is_strict: bool


def offer_run(
    state: State, consumer: Consumer, cursor: Cursor, start: int, end: int, trial: Trial, now: int
) -> Offer:
    """Leases all of start…end to a consumer."""
    return _offer(state, consumer, cursor, start, end, trial, now, None)


def offer_set(
    state: State, consumer: Consumer, cursor: Cursor, offsets: Offsets, trial: Trial, now: int
) -> Offer:
    """Leases these rising offsets to a consumer."""
    start, end = int(offsets[0]), int(offsets[-1]) + 1
    mask = None if end - start == len(offsets) else mask_of(offsets - start, end - start)
    return _offer(state, consumer, cursor, start, end, trial, now, mask)


def mask_of(places: Offsets, size: int) -> int:
    """An integer with these bits set."""
    bits = np.zeros(size, dtype=np.uint8)
    bits[places] = 1
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def places_in(mask: int) -> Offsets:
    """Which bits of an integer are set, rising."""
    data = mask.to_bytes((mask.bit_length() + 7) // 8, "little")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    return np.flatnonzero(bits)


def _offer(
    state: State, consumer: Consumer, cursor: Cursor, start: int, end: int, trial: Trial, now: int,
    mask: int | None,
) -> Offer:  # fmt: skip
    subscription = cursor.subscription
    count = end - start if mask is None else mask.bit_count()
    is_alone = (
        count == 1 and consumer.outstanding == 0 and (consumer.is_isolated or consumer.credit == 1)
    )
    deadline = now + int(subscription.policy.lease_s * 1000)
    number = state.next_lease_id
    state.next_lease_id = number + 1
    lease = Lease(number, consumer, cursor, start, end, trial.attempt + 1, deadline)
    lease.bytes_each = cursor.partition.mean_bytes
    lease.is_alone = is_alone
    data = b""
    if mask is not None:
        lease.open = mask
        lease.count = count
        data = mask.to_bytes((end - start + 7) // 8, "little")
    if not consumer.leases or deadline < consumer.deadline:
        consumer.deadline = deadline
    consumer.leases[number] = lease
    consumer.outstanding += count
    consumer.outstanding_bytes += count * lease.bytes_each
    cursor.leased += count
    record = Delivered(
        subscription.topic.id, cursor.partition.index, subscription.id, start, end, is_alone,
        consumer.id, data,
    )  # fmt: skip
    return Offer(lease, record, start < cursor.strict_below or trial.losses > 0)


def stop_saving(subscription: Subscription) -> list[Consumer]:
    """Whoever may be handed more; nobody makes room when nothing is left that must go alone."""
    consumers = subscription.consumers or []
    if not any(cursor.isolated for cursor in subscription.cursors):
        subscription.is_saving = False
        for consumer in consumers:
            consumer.is_saving = False
    return [consumer for consumer in consumers if consumer.free > 0]
