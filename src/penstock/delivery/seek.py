"""Moving a subscription: what lies below its new place is finished, what is held above waits.

Deciding voids what consumers hold, so that whatever they still say of it is refused. Counts
move: a message that comes again leaves the count in which it ended.
"""

from typing import Final

from penstock.delivery.effects import Effects
from penstock.delivery.holding import lose, release, take_over, wait_again
from penstock.delivery.leases import void_leases, void_shades
from penstock.delivery.ranges import RangeMap
from penstock.delivery.state import Cursor, State, Subscription
from penstock.vocabulary.errors import Unsupported
from penstock.vocabulary.message import Kind
from penstock.vocabulary.records import Outcome, Sought

MOVABLE: Final = frozenset({Kind.SHARED, Kind.KEY_SHARED, Kind.MULTICAST})
"""Kinds of subscriptions that can be moved."""
ROWS_BETWEEN_LOOKS: Final = 64
"""After so many endings those of released messages are forgotten."""


def decide_seek(
    state: State, subscription: Subscription, places: tuple[int | None, ...]
) -> Sought | None:
    """A record that moves a subscription, or None when there is nowhere to move it.

    What consumers hold where it moves is void from now on. Raises Unsupported.
    """
    kind = subscription.policy.kind
    if kind not in MOVABLE or subscription.is_parent:
        hint = "make a new one that starts where you want"
        if subscription.is_parent:
            hint = f"move its members one by one, as '{subscription.name}@consumer'"
        raise Unsupported(
            f"subscription {subscription.name!r} is of kind {kind.value!r} and cannot be moved; "
            + hint
        )
    if all(place is None for place in places):
        return None
    subscription.seeks += 1
    for cursor, place in zip(subscription.cursors, places, strict=True):
        if place is not None:
            cursor.voided = state.next_lease_id
            void_leases(cursor, 0, cursor.partition.reserved)
            # What is finished and comes again is counted where it ends then.
            for run in cursor.partition.released.gaps(place, cursor.partition.reserved):
                void_shades(cursor, *run)
    return Sought(subscription.topic.id, subscription.id, places, state.next_lease_id)


def apply_sought(state: State, record: Sought, effects: Effects) -> None:
    """The subscription stands at its new places."""
    subscription = state.subscriptions[record.subscription_id]
    subscription.seeks = max(0, subscription.seeks - 1)
    # Partitions added since the seek was decided are not in it.
    for cursor, place in zip(subscription.cursors, record.places, strict=False):
        if place is not None:
            partition = cursor.partition
            if place > partition.next_offset:  # Damage took the publishing of what lies before.
                lose(partition, partition.next_offset, place, effects)
            cursor.voided = max(cursor.voided, record.voided)
            _move(cursor, place, effects)
    effects.dirty[subscription] = None


def _move(cursor: Cursor, place: int, effects: Effects) -> None:
    end = cursor.partition.next_offset
    void_leases(cursor, 0, end)
    cursor.trials = cursor.reasons = cursor.doomed = cursor.delayed = None
    cursor.ready = cursor.isolated = cursor.line = None
    cursor.next = place
    for low, high in cursor.done.add(0, place):
        cursor.dropped += high - low
        release(cursor.partition, low, high, effects)
        note_ending(cursor, low, high, Outcome.DROPPED)
    for low, high in _finished(cursor, place, end):
        _reopen(cursor, low, high)
    cursor.begin = min(cursor.begin, place)
    if cursor.finished is not None:
        cursor.finished.clear(place, end)
    if cursor.partition.traits is not None:
        cursor.partition.traits.touch(place, end)
    take_over(cursor.partition, place, end)
    wait_again(cursor.partition, place, end, effects)


def _finished(cursor: Cursor, start: int, end: int) -> list[tuple[int, int]]:
    """What is finished and still held; messages sent to one subscription only do not come again."""
    partition = cursor.partition
    runs = [
        run
        for low, high in cursor.done.inside(start, end)
        for run in partition.released.gaps(low, high)
    ]
    if partition.aimed is not None:
        runs = [run for low, high in runs for run in partition.aimed.gaps(low, high)]
    return runs


def _reopen(cursor: Cursor, start: int, end: int) -> None:
    cursor.done.reopen(start, end)
    fresh = min(end, max(start, cursor.begin))
    cursor.attached += fresh - start
    if cursor.otherwise is None:
        cursor.acked -= end - fresh
        return
    for low, high, found in list(cursor.otherwise.runs(fresh, end)):
        count = high - low
        outcome = Outcome.ACKED if found is None else Outcome(found[0])
        if outcome is Outcome.ACKED:
            cursor.acked -= count
        elif outcome is Outcome.DEAD:
            # A dead letter sent back meanwhile took the place of the first in the count.
            known = min(cursor.dead, count)
            cursor.dead -= known
            cursor.attached += count - known
        elif outcome is Outcome.EXPIRED:
            cursor.expired -= count
        else:
            cursor.dropped -= count
    cursor.otherwise.clear(start, end)


def note_ending(cursor: Cursor, start: int, end: int, outcome: Outcome) -> None:
    """Remembers how messages ended that are still held and could come again."""
    released = cursor.partition.released
    for low, high in released.gaps(start, end):
        if cursor.otherwise is None:
            cursor.otherwise = RangeMap()
        cursor.otherwise.set(low, high, (int(outcome),))
    endings = cursor.otherwise
    if endings is not None and len(endings) % ROWS_BETWEEN_LOOKS == 0:
        for low, high, _ in endings.items():
            for gone in list(released.inside(low, high)):
                endings.clear(*gone)
