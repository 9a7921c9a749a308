"""Consumers that come back after their connection ended without a word.

While the broker runs it knows what each consumer had: a consumer that returns names what it holds
and goes on with it; the rest never reached it, and gets its attempt back. After a stop the broker
knows only what may be out, and who was attached: that lies in a *pool* of the subscription, which
hands out nothing until everybody has returned or the time for it is over.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from penstock.delivery import settle
from penstock.delivery.keyed import Keys, open_offsets, slots_of
from penstock.delivery.leases import close_bits, withdraw
from penstock.delivery.offers import LOSSES_BEFORE_ISOLATION
from penstock.delivery.once import add_shade, is_shade
from penstock.delivery.state import Consumer, Cursor, Lease, State, Subscription
from penstock.delivery.traits import NEVER
from penstock.vocabulary.claims import Held, Kept, Returning
from penstock.vocabulary.limits import SLICE_COUNT_MAX
from penstock.vocabulary.message import Kind
from penstock.vocabulary.records import Cause, Delivered, Record, Returned

LOST_REASON: Final = "consumer lost"
SPAN_MAX: Final = 1 << 26
"""From the first to the last message of a lease, in sum over all that one consumer names."""
Runs = list[tuple[int, int]]


class Awaiting:
    """Consumers of a subscription that were attached when the broker stopped."""

    __slots__ = ("missing", "pool", "until")

    def __init__(self, pool: Consumer, until: int) -> None:
        self.missing: dict[int, tuple[str, int]] = {}
        """consumer id → (name, generation) of those that have not returned."""
        self.pool = pool
        """Stands for all of them: it holds what was out, and is never handed anything."""
        self.until = until
        """Monotonic ms: later nobody is waited for."""

    @property
    def names(self) -> list[str]:
        """Who has not returned."""
        return sorted(name for name, _ in self.missing.values())


class Resumed(NamedTuple):
    """What a return decides."""

    kept: list[Kept]
    records: list[Record]
    """To be made durable, in this order."""


# -- after a stop --------------------------------------------------------------------------------


def begin_awaiting(state: State, until: int, sink: Any) -> list[Subscription]:
    """Puts what was out into pools, where consumers of the log may return."""
    found: dict[Subscription, None] = {}
    for number, (subscription_id, name, generation) in state.attached.items():
        subscription = state.subscriptions[subscription_id]
        awaiting = subscription.awaiting
        if awaiting is None:
            pool = Consumer(0, "", subscription, 0, 0, sink)
            pool.deadline, pool.away_until = NEVER, until
            awaiting = subscription.awaiting = Awaiting(pool, until)
            subscription.consumers = [*(subscription.consumers or ()), pool]
            for cursor in subscription.cursors:
                _fill_pool(state, pool, cursor)
            found[subscription] = None
        awaiting.missing[number] = (name, generation)
    return list(found)


def _fill_pool(state: State, pool: Consumer, cursor: Cursor) -> None:
    """What was out when the broker stopped is leased to the pool, and no longer waits."""
    out: Runs = []
    for start, end, found in cursor.trials.items() if cursor.trials else ():
        attempt, is_out = found[0], found[4]
        for low, high in list(cursor.done.gaps(start, end)) if is_out else ():
            out.append((low, high))
            for at in range(low, high, SLICE_COUNT_MAX):
                upto = min(high, at + SLICE_COUNT_MAX)
                lease = _lease(state, pool, cursor, [(at, upto)], attempt, NEVER)
                lease.is_alone = is_out > 1
    if out and cursor.ready:
        cursor.ready = outside(cursor.ready, out) or None


def outside(rows: Iterable[tuple[int, int]], holes: Runs) -> Runs:
    """The parts of rising ranges that are in none of these, which rise too."""
    left: Runs = []
    at = 0
    for start, end in rows:
        low = start
        while at < len(holes) and holes[at][1] <= low:
            at += 1
        here = at
        while here < len(holes) and holes[here][0] < end:
            if low < holes[here][0]:
                left.append((low, holes[here][0]))
            low = max(low, holes[here][1])
            here += 1
        if low < end:
            left.append((low, end))
    return left


def is_awaited(subscription: Subscription, name: str, returning: Returning) -> bool:
    """True for a consumer the log knows under this name, attached by that start of the broker."""
    awaiting = subscription.awaiting
    known = None if awaiting is None else awaiting.missing.get(returning.consumer_id)
    return known is not None and known[0] == name and known[1] in (0, returning.generation)


def resume_from_pool(state: State, consumer: Consumer, returning: Returning, now: int) -> Resumed:
    """Gives a consumer the log knows what it names, as far as that may be out with it."""
    subscription = consumer.subscription
    awaiting = subscription.awaiting
    assert awaiting is not None
    del awaiting.missing[returning.consumer_id]
    kept: list[tuple[int, Lease]] = []
    records: list[Record] = []
    for held in _sound(subscription, returning.held):
        cursor = subscription.cursors[held.partition]
        if held.lease_id < cursor.voided:
            continue
        bytes_each = cursor.partition.mean_bytes
        if subscription.policy.qos == 0:
            runs = [run for low, high in held.ranges for run in cursor.done.inside(low, high)]
            if runs:
                span = runs[0][0], runs[-1][1]
                lease = add_shade(state, consumer, cursor, runs, held.attempt, bytes_each, span)
                kept.append((held.lease_id, lease))
            continue
        known = _out_of_pool(awaiting.pool, cursor, held)
        fresh = _out_of_line(cursor, held)
        if fresh:
            records.append(_delivered(consumer, cursor, fresh))
        runs = sorted([*known, *fresh])
        if runs:
            lease = _lease(state, consumer, cursor, runs, held.attempt, _deadline(consumer, now))
            kept.append((held.lease_id, lease))
    return Resumed(_kept(consumer, kept), records)


def _sound(subscription: Subscription, held: list[Held]) -> Iterator[Held]:
    """What could be a lease: of a partition there is, and no more than one slice has."""
    left = SPAN_MAX
    for each in held:
        ranges = [(low, high) for low, high in each.ranges if 0 <= low < high]
        if not ranges or not 0 <= each.partition < len(subscription.cursors):
            continue
        merged = settle.merge(ranges)
        left -= merged[-1][1] - merged[0][0]
        if left < 0:
            return
        if sum(high - low for low, high in merged) <= SLICE_COUNT_MAX:
            yield each._replace(ranges=merged)


def _out_of_pool(pool: Consumer, cursor: Cursor, held: Held) -> Runs:
    """The log has this attempt, and nobody else has named it."""
    first, last = held.ranges[0][0], held.ranges[-1][1]
    found: Runs = []
    for lease in list(pool.leases.values()):
        is_meant = lease.cursor is cursor and lease.attempt == held.attempt
        if is_meant and lease.start < last and first < lease.end:
            for low, high in held.ranges:
                if low < lease.end and lease.start < high:
                    found += close_bits(lease, max(low, lease.start), min(high, lease.end))
    return found


def _out_of_line(cursor: Cursor, held: Held) -> Runs:
    """The record of this attempt was not written any more: the log has the attempt before."""
    found: Runs = []
    for start, end in held.ranges:
        waiting = [*(cursor.ready or ()), *(cursor.isolated or ())]
        waiting += [(low, high) for _, low, high, _, _ in cursor.delayed or ()]
        for low, high in waiting:
            if low < end and start < high:
                found += _one_attempt(cursor, max(low, start), min(high, end), held.attempt - 1)
    for low, high in found:
        withdraw(cursor, low, high)
    return sorted(found)


def _one_attempt(cursor: Cursor, start: int, end: int, attempt: int) -> Runs:
    """The parts of start…end that were delivered so often, and came back."""
    if not cursor.trials:
        return [] if attempt else [(start, end)]
    rows = cursor.trials.runs(start, end)
    trials = [(low, high, (0, 0, 0, 0, 0) if row is None else row) for low, high, row in rows]
    return [(low, high) for low, high, row in trials if row[0] == attempt and not row[4]]


def _delivered(consumer: Consumer, cursor: Cursor, runs: Runs) -> Delivered:
    subscription, start, end = consumer.subscription, runs[0][0], runs[-1][1]
    mask = _mask(runs)
    is_alone = mask == 1 and not consumer.leases
    data = b"" if len(runs) == 1 else mask.to_bytes((end - start + 7) // 8, "little")
    return Delivered(
        subscription.topic.id, cursor.partition.index, subscription.id, start, end, is_alone,
        consumer.id, data,
    )  # fmt: skip


def decide_awaited(subscription: Subscription, now_wall: int) -> list[Record]:
    """Ends the waiting: what nobody named comes back.

    When everybody returned it never reached anybody, and gets its attempt back; otherwise it is
    lost with whoever stayed away.
    """
    awaiting = subscription.awaiting
    assert awaiting is not None
    subscription.awaiting = None
    pool = awaiting.pool
    names = awaiting.names
    name = names[0] if len(names) == 1 else ""
    parts: dict[tuple[Cursor, Cause], Runs] = {}
    for lease in list(pool.leases.values()):
        cause = Cause.UNSTARTED
        if names:
            cause = Cause.LOST_ALONE if lease.is_alone else Cause.LOST
        parts.setdefault((lease.cursor, cause), []).extend(settle.close_all(lease))
    records: list[Record] = []
    for (cursor, cause), runs in parts.items():
        if cause is Cause.UNSTARTED:
            back = settle.returned(cursor, runs, cause, 0.0, "", "", now_wall)
        else:
            back = settle.returned(cursor, runs, cause, None, LOST_REASON, name, now_wall)
        records.append(back)
        for consumer in subscription.consumers or ():
            records += settle.revoke(consumer, cursor, list(back.ranges), now_wall)
    subscription.consumers = [c for c in subscription.consumers or () if c is not pool] or None
    return records


# -- while the broker runs -----------------------------------------------------------------------


def resume_from(
    state: State, former: Consumer, consumer: Consumer, held: list[Held], now: int, now_wall: int
) -> Resumed:
    """Gives a consumer what it still holds of what it had; the rest never reached it."""
    subscription = consumer.subscription
    kept: list[tuple[int, Lease]] = []
    for each in _sound(subscription, held):
        lease = former.leases.get(each.lease_id)
        is_his = lease is not None and lease.is_out and lease.attempt == each.attempt
        if lease is None or not is_his or lease.cursor.partition.index != each.partition:
            continue
        runs = [
            part
            for low, high in each.ranges
            if low < lease.end and lease.start < high
            for part in close_bits(lease, max(low, lease.start), min(high, lease.end))
        ]
        if not runs:
            continue
        if is_shade(lease):
            span = runs[0][0], runs[-1][1]
            fresh = add_shade(
                state, consumer, lease.cursor, runs, lease.attempt, lease.bytes_each, span
            )
        else:
            deadline = _deadline(consumer, now)
            fresh = _lease(state, consumer, lease.cursor, runs, lease.attempt, deadline)
        kept.append((each.lease_id, fresh))
    records: list[Record] = []
    for record in settle.decide_detach(former, {}, now_wall, is_clean=True):
        records.append(record)
        if isinstance(record, Returned):
            cursor = subscription.cursors[record.partition]
            records += settle.revoke(consumer, cursor, list(record.ranges), now_wall)
    _inherit_ghosts(former, consumer)
    return Resumed(_kept(consumer, kept), records)


def _inherit_ghosts(former: Consumer, consumer: Consumer) -> None:
    keys = consumer.subscription.keys
    for ghost in () if keys is None else keys.ghosts:
        if ghost.consumer is former:
            ghost.consumer = consumer


# -- leases --------------------------------------------------------------------------------------


def _deadline(consumer: Consumer, now: int) -> int:
    return now + int(consumer.subscription.policy.lease_s * 1000)


def _mask(runs: Runs) -> int:
    start = runs[0][0]
    return sum(((1 << (high - low)) - 1) << (low - start) for low, high in runs)


def _lease(
    state: State, consumer: Consumer, cursor: Cursor, runs: Runs, attempt: int, deadline: int
) -> Lease:
    """A lease of messages that are out already."""
    number = state.next_lease_id
    state.next_lease_id = number + 1
    start, end = runs[0][0], runs[-1][1]
    lease = Lease(number, consumer, cursor, start, end, attempt, deadline)
    lease.bytes_each = cursor.partition.mean_bytes
    lease.count = sum(high - low for low, high in runs)
    if lease.count < end - start:
        lease.open = _mask(runs)
    if not consumer.leases or deadline < consumer.deadline:
        consumer.deadline = deadline
    consumer.leases[number] = lease
    consumer.outstanding += lease.count
    consumer.outstanding_bytes += lease.count * lease.bytes_each
    cursor.leased += lease.count
    if any(cursor.trial(low).losses >= LOSSES_BEFORE_ISOLATION for low, _ in runs):
        consumer.is_isolated = True
    if cursor.subscription.policy.kind is Kind.KEY_SHARED:
        _own(lease)
    return lease


def _own(lease: Lease) -> None:
    """The keys of what it holds are with a consumer, whoever had them."""
    subscription = lease.cursor.subscription
    if subscription.keys is None:
        subscription.keys = Keys()
    slots = slots_of(lease.cursor, open_offsets(lease))
    subscription.keys.holder[slots] = lease.consumer.id
    subscription.keys.is_moving = True


def still_kept(consumer: Consumer) -> list[Kept]:
    """What a consumer keeps after more was taken from it."""
    rows = [(each, consumer.leases.get(each.lease_id)) for each in consumer.kept]
    return [
        each._replace(ranges=tuple(lease.unfinished())) for each, lease in rows if lease is not None
    ]


def _kept(consumer: Consumer, rows: list[tuple[int, Lease]]) -> list[Kept]:
    """What is left of the leases; whatever was revoked at once is not news to the consumer."""
    keys = consumer.subscription.keys
    if keys is not None:
        keys.revoked = [row for row in keys.revoked if row[0] is not consumer]
    return [Kept(old, lease.id, tuple(lease.unfinished())) for old, lease in rows if lease.count]
