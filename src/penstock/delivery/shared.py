"""Kind `shared`: each message to one consumer with credit.

`dispatch` looks at what waits and who has credit, makes leases, and returns offers; it decides
nothing durable. Slices are as large as credit allows while there is more waiting than credit,
and shared out evenly otherwise, so that no worker idles beside a hoarder.
"""

from penstock.delivery.leases import make_ready
from penstock.delivery.line import absorb, is_lined, same_history
from penstock.delivery.offers import (
    LOSSES_BEFORE_ISOLATION,
    Offer,
    offer_run,
    offer_set,
    stop_saving,
)
from penstock.delivery.state import UNTRIED, Consumer, Cursor, State, Subscription, Trial
from penstock.delivery.traits import Traits
from penstock.vocabulary.limits import SLICE_COUNT_MAX


def dispatch(state: State, subscription: Subscription, now: int, wall: int) -> list[Offer]:
    """Hands waiting messages to consumers with credit, the highest priority first."""
    consumers = [c for c in subscription.consumers or () if c.free > 0]
    offers: list[Offer] = []
    if not consumers and not subscription.is_saving:
        return offers
    for cursor in subscription.cursors:
        if cursor.isolated:
            _dispatch_isolated(state, cursor, offers, now)
        if cursor.line is not None or (cursor.partition.traits is not None and is_lined(cursor)):
            absorb(cursor, wall)
    if subscription.is_saving:
        consumers = stop_saving(subscription)
    cursors = [c for c in subscription.cursors if _has_waiting(c)]
    while cursors and consumers:
        consumers = [c for c in consumers if c.free > 0]
        if not consumers:
            break
        consumer = _least_loaded(consumers, subscription.turn)
        cursor = _next_cursor(cursors, subscription.turn)
        limit = _limit(consumer, consumers, cursor, cursors)
        is_taken = (_take_run if cursor.line is None else _take_set)(
            state, consumer, cursor, limit, offers, now
        )
        if not is_taken or cursor.line is not None:
            cursors = [c for c in cursors if _has_waiting(c)]
    return offers


def _next_cursor(cursors: list[Cursor], turn: int) -> Cursor:
    """The one whose first message has the highest priority; among equals it goes round."""
    if len(cursors) > 1 and any(cursor.line is not None for cursor in cursors):
        tops = [_top(cursor) for cursor in cursors]
        highest = max(tops)
        cursors = [cursor for cursor, top in zip(cursors, tops, strict=True) if top == highest]
    return cursors[turn % len(cursors)]


def _top(cursor: Cursor) -> int:
    top = 0 if cursor.line is None else cursor.line.top
    return 0 if top is None else top


def _least_loaded(consumers: list[Consumer], turn: int) -> Consumer:
    """Whoever holds least; among equals it goes round."""
    first = turn % len(consumers)
    return min(consumers[first:] + consumers[:first], key=lambda c: c.outstanding)


def _has_waiting(cursor: Cursor) -> bool:
    if cursor.line is not None:
        return bool(cursor.line.segments)
    return bool(cursor.ready) or cursor.next < cursor.partition.next_offset


def waiting_count(cursor: Cursor) -> int:
    """Messages that could be offered now; an upper bound, exact when none has gaps."""
    ready = sum(high - low for low, high in cursor.ready) if cursor.ready else 0
    if cursor.line is not None:
        ready += cursor.line.count
    return ready + max(0, cursor.partition.next_offset - cursor.next)


def _limit(
    consumer: Consumer, consumers: list[Consumer], cursor: Cursor, cursors: list[Cursor]
) -> int:
    limit = min(consumer.free, SLICE_COUNT_MAX)
    if len(consumers) > 1:
        waiting = sum(waiting_count(each) for each in cursors)
        if waiting < sum(other.free for other in consumers):
            limit = min(limit, -(-waiting // len(consumers)))
    room = (consumer.credit_bytes - consumer.outstanding_bytes) // cursor.partition.mean_bytes + 1
    return max(1, min(limit, room))


def _take_run(
    state: State, consumer: Consumer, cursor: Cursor, limit: int, offers: list[Offer], now: int
) -> bool:
    """Hands out the next run of messages with one history; False when there is none."""
    run = _next_run(cursor, limit)
    if run is None:
        return False
    start, end, trial = run
    if trial.losses >= LOSSES_BEFORE_ISOLATION:
        _isolate(cursor, start, end)
        _dispatch_isolated(state, cursor, offers, now)
    else:
        cursor.subscription.turn += 1
        offers.append(offer_run(state, consumer, cursor, start, end, trial, now))
    return True


def _take_set(
    state: State, consumer: Consumer, cursor: Cursor, limit: int, offers: list[Offer], now: int
) -> bool:
    """Hands out the first messages of the highest priority."""
    assert cursor.line is not None
    taken, is_tried = cursor.line.take_top(limit)
    for offsets, trial in same_history(cursor, taken, is_tried=is_tried):
        if trial.losses >= LOSSES_BEFORE_ISOLATION:
            for offset in offsets.tolist():
                _isolate(cursor, offset, offset + 1)
        else:
            cursor.subscription.turn += 1
            offers.append(offer_set(state, consumer, cursor, offsets, trial, now))
    if cursor.isolated:  # last, so that this consumer gets nothing beside them
        _dispatch_isolated(state, cursor, offers, now)
    return True


def _next_run(cursor: Cursor, limit: int) -> tuple[int, int, Trial] | None:
    """Takes the next run of messages with one history out of what waits."""
    if cursor.ready:
        start, end = cursor.ready.pop(0)
        upto = min(end, start + limit)
        upto, trial = _uniform(cursor, start, upto)
        if upto < end:
            cursor.ready.insert(0, (upto, end))
        if not cursor.ready:
            cursor.ready = None
        return start, upto, trial
    end_of_log = cursor.partition.next_offset
    for start, end in cursor.done.gaps(cursor.next, end_of_log):
        upto, trial = _uniform(cursor, start, min(end, start + limit))
        cursor.next = upto
        return start, upto, trial
    cursor.next = max(cursor.next, end_of_log)
    return None


def _uniform(cursor: Cursor, start: int, end: int) -> tuple[int, Trial]:
    """Cuts start…end where the history of the messages changes."""
    if cursor.trials:
        for _, upto, found in cursor.trials.runs(start, end):
            return upto, (UNTRIED if found is None else Trial(*found))
    return end, UNTRIED


def _isolate(cursor: Cursor, start: int, end: int) -> None:
    if cursor.isolated is None:
        cursor.isolated = []
    cursor.isolated.append((start, end))


def _dispatch_isolated(state: State, cursor: Cursor, offers: list[Offer], now: int) -> None:
    """Messages that were lost twice go out in small slices to a consumer that holds nothing."""
    while cursor.isolated:
        consumers = [
            c for c in cursor.subscription.consumers or () if c.is_attached and not c.is_gone
        ]
        idle = [c for c in consumers if c.outstanding == 0]
        if not idle:
            if consumers and not any(c.is_saving or c.is_isolated for c in consumers):
                min(consumers, key=lambda c: c.outstanding).is_saving = True
                cursor.subscription.is_saving = True
            return
        start, end = cursor.isolated.pop(0)
        upto, trial = _uniform(cursor, start, end)
        upto = min(upto, start + max(1, trial.slice // 10))
        if upto < end:
            cursor.isolated.insert(0, (upto, end))
        consumer = idle[0]
        consumer.is_saving = False
        consumer.is_isolated = True
        offers.append(offer_run(state, consumer, cursor, start, upto, trial, now))
    cursor.isolated = None


def due(cursor: Cursor, now: int, wall: int) -> bool:
    """Moves messages whose time has come to what may be offered; True when there were any."""
    line, traits = cursor.line, cursor.partition.traits
    moved = line is not None and bool(line.later) and line.due(traits or Traits(), wall)
    while cursor.delayed and cursor.delayed[0][0] <= now:
        _, start, end, _, _ = cursor.delayed.pop(0)
        make_ready(cursor, start, end)
        moved = True
    if not cursor.delayed:
        cursor.delayed = None
    return moved


def after_recovery(cursor: Cursor) -> None:
    """Rebuilds what may be offered: everything not finished, backing off or doomed."""
    partition = cursor.partition
    cursor.next = partition.next_offset
    cursor.strict_below = partition.next_offset
    runs = list(cursor.done.gaps(cursor.done.floor, partition.next_offset))
    away = [(start, end) for _, start, end, _, _ in cursor.delayed or ()]
    if cursor.doomed is not None:
        away += cursor.doomed.ranges()
        if cursor.doomed.floor:
            away.append((0, cursor.doomed.floor))
    for low, high in away:
        runs = [
            (a, b)
            for start, end in runs
            for a, b in ((start, min(end, low)), (max(start, high), end))
            if a < b
        ]
    cursor.ready = runs or None
    cursor.line = None
    cursor.isolated = None
