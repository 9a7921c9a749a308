"""What each record does to the state. The same code runs live and in recovery.

`apply` changes durable fields and notes in Effects what the broker must do about it: which
bytes are free, which subscriptions have something to hand out, what is doomed.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.batch import Batch
from penstock.batch.given import is_copied, messages_in
from penstock.delivery import matching, members
from penstock.delivery.effects import Effects
from penstock.delivery.growth import apply_added
from penstock.delivery.holding import (
    forget_trials,
    hold,
    lose,
    release,
    release_mask,
    remove,
    retain,
)
from penstock.delivery.leases import make_ready, withdraw
from penstock.delivery.once import apply_missed
from penstock.delivery.policies import (
    apply_outlived,
    forget_rows,
    keep_published,
)
from penstock.delivery.ranges import RangeMap, RangeSet
from penstock.delivery.reader import apply_reader_moved, apply_reader_opened
from penstock.delivery.registry import (
    apply_subscription_altered,
    apply_subscription_created,
    apply_subscription_deleted,
    apply_topic_altered,
    apply_topic_created,
    apply_topic_deleted,
)
from penstock.delivery.seek import apply_sought, note_ending
from penstock.delivery.setbacks import note_times
from penstock.delivery.state import (
    UNTRIED,
    Cursor,
    Partition,
    Publisher,
    State,
    Topic,
    Trial,
    bit_ranges,
)
from penstock.delivery.tokens import QOS_2, note_finished
from penstock.delivery.traits import Traits, is_plain, traits_of
from penstock.delivery.unique import remember
from penstock.delivery.units import apply_unit_committed
from penstock.vocabulary import names
from penstock.vocabulary import records as r
from penstock.vocabulary.errors import MalformedBatch

REJECTED: Final = 1 << 30
"""Value of Trial.counted for a message that must not be tried again."""

_COUNTED: Final = frozenset({r.Cause.NACKED, r.Cause.EXPIRED, r.Cause.REJECTED, r.Cause.LOST_ALONE})


def apply(state: State, record: r.Record, effects: Effects) -> None:
    """Makes one durable record true."""
    _APPLIERS[type(record)](state, record, effects)


def topic_ids(record: r.Record) -> list[int]:
    """The topics a record speaks of."""
    if isinstance(record, r.Unit):
        return [number for part in record.records for number in topic_ids(part)]
    if isinstance(record, r.WITHOUT_TOPIC):
        return []
    return [record.topic_id]


# -- messages ------------------------------------------------------------------------------------


def apply_published(state: State, record: r.Published, effects: Effects) -> None:
    """A batch is durable: every subscription gets it, or the topic keeps it for a time."""
    topic = state.topics[record.topic_id]
    partition = topic.partitions[record.partition]
    base, count = record.base, record.count
    if base > partition.next_offset:
        lose(partition, partition.next_offset, base, effects)
    end = base + count
    partition.next_offset = end
    partition.reserved = max(partition.reserved, end)
    size = len(record.batch)
    hold(partition, base, end, size)
    partition.mean_bytes = (3 * partition.mean_bytes + size // (count or 1)) // 4 + 1
    _remember_publisher(partition, record)
    is_copy = False
    if not is_plain(record.batch):
        is_copy = is_copied(record.batch)
        _note_traits(partition, record, effects)
        remember(partition, record, is_copy=is_copy)
    at = record.published_at
    if is_copy:
        _note_copies(partition, record)
    elif at >= partition.newest_at:
        partition.newest_at = at
    else:
        note_times(partition, base, (at,))
    if partition.keeping is not None:
        keep_published(partition, record, effects)
    if record.target:
        partition.aimed = partition.aimed or RangeSet()
        partition.aimed.add(base, end)
    is_covered = False
    if topic.subscriptions:
        is_covered = _offer(topic, partition.index, record, effects)
    if not is_covered:
        retain(partition, record, effects)


def _note_copies(partition: Partition, record: r.Published) -> None:
    """Copies keep the times of their first publish; those sent to one subscription are no start."""
    if record.target or names.is_dead_topic(partition.topic.name):
        return
    try:
        times = Batch(record.batch, verify=False).published_at
    except MalformedBatch:
        return
    if times is not None:
        kept = range(record.count) if record.kept is None else record.kept
        note_times(partition, record.base, (times[index] for index in kept))


def _note_traits(partition: Partition, record: r.Published, effects: Effects) -> None:
    """Dead letters have no times of their own: they neither wait nor expire."""
    is_timed = not names.is_dead_topic(partition.topic.name)
    try:
        found = traits_of(record, is_timed=is_timed)
    except MalformedBatch:
        return  # Whoever reads it is told; the broker goes on.
    if found:
        if partition.traits is None:
            partition.traits = Traits()
        partition.traits.add(record.base, record.count, found)
        if "expiry" in found:
            effects.expiring[partition] = None


def _offer(topic: Topic, index: int, record: r.Published, effects: Effects) -> bool:
    """Gives the new messages to every cursor; True when a durable one holds them."""
    is_covered = False
    assert topic.subscriptions is not None
    for subscription in topic.subscriptions.values():
        if subscription.is_pending:
            continue
        cursor = subscription.cursors[index]
        if record.target and subscription.id != record.target:
            cursor.done.add(record.base, record.end)
            continue
        if record.target:
            # Dead letters left by a deleted subscription of the same name are new to this one.
            known = min(cursor.dead, record.count)
            cursor.dead -= known
            cursor.attached += record.count - known
        else:
            cursor.attached += record.count
        if subscription.is_durable:
            is_covered = True
        effects.dirty[subscription] = None
    return is_covered


def _remember_publisher(partition: Partition, record: r.Published) -> None:
    if record.publisher == NOBODY:
        return
    if partition.publishers is None:
        partition.publishers = {}
    publisher = partition.publishers.get(record.publisher)
    if publisher is None or publisher.epoch < record.epoch:
        publisher = Publisher(record.epoch, record.published_at)
        partition.publishers[record.publisher] = publisher
    elif publisher.epoch > record.epoch:
        # It was in flight when a newer epoch was decided: it counts until that one is durable.
        if publisher.last >= 0:
            return
        former = publisher.former or Publisher(record.epoch, record.published_at)
        publisher.former = publisher = former
    if record.kept is None:
        publisher.first, publisher.last = record.sequence, record.sequence + record.count - 1
    else:
        count = messages_in(record.batch)
        publisher.last = record.sequence + count - 1
        # Only when the end of the batch was kept do its places follow from the first one's.
        is_end = record.kept[0] == count - record.count
        publisher.first = record.sequence + record.kept[0] if is_end else -1
    publisher.base = record.base
    publisher.used_at = record.published_at
    publisher.decided = max(publisher.decided, publisher.last)
    publisher.former = None


NOBODY: Final = bytes(16)
"""Publisher of records the broker itself makes."""


def _lost(state: State, record: r.Lost, effects: Effects) -> None:
    partition = state.topics[record.topic_id].partitions[record.partition]
    _catch_up(partition, record.ranges[-1][1], effects)
    if partition.lost is None:
        partition.lost = RangeSet()
    for start, end in record.ranges:
        partition.lost.add(start, end)
    remove(partition, record.ranges, effects)


def _removed(state: State, record: r.Removed, effects: Effects) -> None:
    partition = state.topics[record.topic_id].partitions[record.partition]
    _catch_up(partition, record.ranges[-1][1], effects)
    remove(partition, record.ranges, effects)
    forget_rows(partition)


def _skipped(state: State, record: r.Skipped, _effects: Effects) -> None:
    partition = state.topics[record.topic_id].partitions[record.partition]
    start, end = partition.next_offset, record.next_offset
    if end <= start:
        return
    partition.next_offset = partition.reserved = end
    partition.released.add(start, end)
    for subscription in partition.topic.every_subscription():
        subscription.cursors[partition.index].done.add(start, end)


def _catch_up(partition: Partition, end: int, effects: Effects) -> None:
    """A record that speaks of messages nobody published proves that damage took their publish."""
    if end > partition.next_offset:
        lose(partition, partition.next_offset, end, effects)


def _copied(_state: State, _record: r.Copied, _effects: Effects) -> None:
    """A copy changes where bytes lie, not what is true."""


# -- deliveries ----------------------------------------------------------------------------------


def _delivered(state: State, record: r.Delivered, effects: Effects) -> None:
    cursor = state.subscriptions[record.subscription_id].cursors[record.partition]
    _catch_up(cursor.partition, record.end, effects)
    if cursor.trials is None:
        cursor.trials = RangeMap()
    out = 2 if record.is_alone else 1
    if record.mask:
        _delivered_scattered(cursor, cursor.trials, record, out)
        return
    size = record.end - record.start
    for low, high in cursor.done.gaps(record.start, record.end):
        for start, end, found in list(cursor.trials.runs(low, high)):
            trial = UNTRIED if found is None else found
            cursor.trials.set(start, end, (trial[0] + 1, trial[1], trial[2], size, out))
        if cursor.delayed:
            # Live, the timer took it out; in recovery the back-off ends with this delivery.
            withdraw(cursor, low, high)


def _delivered_scattered(cursor: Cursor, trials: RangeMap, record: r.Delivered, out: int) -> None:
    mask = int.from_bytes(record.mask, "little")
    size = mask.bit_count()
    mask &= ~cursor.done.within_mask(record.start, mask)
    for part, found in trials.split_mask(record.start, mask):
        trial = UNTRIED if found is None else found
        trials.set_mask(record.start, part, (trial[0] + 1, trial[1], trial[2], size, out))
    if cursor.delayed:
        for low, high in bit_ranges(mask, record.start):
            withdraw(cursor, low, high)


def _settled(state: State, record: r.Settled, effects: Effects) -> None:
    subscription = state.subscriptions[record.subscription_id]
    cursor = subscription.cursors[record.partition]
    partition = cursor.partition
    _catch_up(partition, record.ranges[-1][1], effects)
    if subscription.is_saving or _holds_back(cursor):
        effects.dirty[subscription] = None  # Somebody may have waited for one of these.
    if record.mask:
        _settled_scattered(cursor, record, effects)
        return
    for start, end in record.ranges:
        for low, high in cursor.done.add(start, end):
            _count_settled(cursor, record.outcome, high - low)
            if subscription.policy.qos == QOS_2:
                note_finished(cursor, low, high)
            forget_trials(cursor, low, high)
            if cursor.delayed or record.outcome == r.Outcome.REPLACED:
                withdraw(cursor, low, high)
            if subscription.is_durable:
                release(partition, low, high, effects)
                if record.outcome != r.Outcome.ACKED:
                    note_ending(cursor, low, high, record.outcome)


def _holds_back(cursor: Cursor) -> bool:
    """True when messages may wait for others of their key, or for a key to change hands."""
    keys = cursor.subscription.keys
    return keys is not None and (keys.is_moving or keys.is_fenced)


def _settled_scattered(cursor: Cursor, record: r.Settled, effects: Effects) -> None:
    start, partition = record.ranges[0][0], cursor.partition
    fresh = cursor.done.add_mask(start, int.from_bytes(record.mask, "little"))
    _count_settled(cursor, record.outcome, fresh.bit_count())
    if cursor.subscription.policy.qos == QOS_2:
        for low, high in bit_ranges(fresh, start):
            note_finished(cursor, low, high)
    if cursor.reasons or cursor.doomed is not None or cursor.delayed:
        for low, high in bit_ranges(fresh, start):
            forget_trials(cursor, low, high)
            withdraw(cursor, low, high)
    elif cursor.trials:
        cursor.trials.clear_mask(start, fresh)
    if cursor.subscription.is_durable:
        release_mask(partition, start, fresh, effects)


def _count_settled(cursor: Cursor, outcome: r.Outcome, count: int) -> None:
    if outcome == r.Outcome.ACKED:
        cursor.acked += count
    elif outcome == r.Outcome.DEAD:
        cursor.dead += count
    elif outcome == r.Outcome.EXPIRED:
        cursor.expired += count
    else:
        cursor.dropped += count


def _returned(state: State, record: r.Returned, effects: Effects) -> None:
    cursor = state.subscriptions[record.subscription_id].cursors[record.partition]
    _catch_up(cursor.partition, record.ranges[-1][1], effects)
    for start, end in record.ranges:
        for low, high in list(cursor.done.gaps(start, end)):
            _come_back(cursor, low, high, record, effects)
    effects.dirty[cursor.subscription] = None


def _come_back(cursor: Cursor, start: int, end: int, record: r.Returned, effects: Effects) -> None:
    if cursor.trials is None:
        cursor.trials = RangeMap()
    if record.reason or record.consumer:
        if cursor.reasons is None:
            cursor.reasons = {}
        for offset in range(start, end):
            cursor.reasons[offset] = (record.reason, record.consumer)
    if cursor.delayed:
        withdraw(cursor, start, end)
    for low, high, found in list(cursor.trials.runs(start, end)):
        trial = _after_return(Trial(*found) if found else UNTRIED, record.cause)
        cursor.trials.set(low, high, tuple(trial))
        if is_exhausted(cursor, trial):
            _doom(cursor, low, high, effects)
        elif record.delay_ms > 0:
            _delay(cursor, low, high, record, effects)
        else:
            make_ready(cursor, low, high)


def _after_return(trial: Trial, cause: r.Cause) -> Trial:
    attempt, counted, losses = trial.attempt, trial.counted, trial.losses
    if cause in (r.Cause.UNSTARTED, r.Cause.REVOKED):
        attempt = max(0, attempt - 1)
    if cause in _COUNTED and trial.out:  # A late nack speaks of a failure already counted.
        counted += 1
    if cause == r.Cause.REJECTED:
        counted = REJECTED
    if cause in (r.Cause.LOST, r.Cause.LOST_ALONE):
        losses += 1
    return Trial(attempt, counted, losses, trial.slice, 0)


def is_exhausted(cursor: Cursor, trial: Trial) -> bool:
    """True when the message goes to the dead-letter topic instead of another try."""
    subscription = cursor.subscription
    if not subscription.is_durable or names.is_dead_topic(subscription.topic.name):
        return False
    if trial.counted >= REJECTED:
        return True
    limit = subscription.policy.retry.max_attempts
    return limit is not None and trial.counted >= limit


def _doom(cursor: Cursor, start: int, end: int, effects: Effects) -> None:
    if cursor.doomed is None:
        cursor.doomed = RangeSet()
    cursor.doomed.add(start, end)
    if cursor.delayed:
        withdraw(cursor, start, end)
    effects.doomed[cursor] = None


def _delay(cursor: Cursor, start: int, end: int, record: r.Returned, effects: Effects) -> None:
    due_wall = record.decided_at + record.delay_ms
    left = min(max(due_wall - effects.wall, 0), record.delay_ms)
    if cursor.delayed is None:
        cursor.delayed = []
    cursor.delayed.append((effects.now + left, start, end, due_wall, record.delay_ms))
    cursor.delayed.sort()
    effects.delayed[cursor] = None


# -- consumers and starts ------------------------------------------------------------------------


def _attached(state: State, record: r.Attached, effects: Effects) -> None:
    who = (record.subscription_id, record.consumer, state.generation, record.former)
    state.attached[record.consumer_id] = who
    state.next_consumer_id = max(state.next_consumer_id, record.consumer_id + 1)
    effects.attached.append(record.consumer_id)


def _detached(state: State, record: r.Detached, _effects: Effects) -> None:
    state.attached.pop(record.consumer_id, None)
    members.see(state, record.subscription_id, record.at)


def _started(state: State, record: r.Started, effects: Effects) -> None:
    state.generation = record.generation
    for subscription_id, _, _, _ in state.attached.values():
        members.see(state, subscription_id, record.started_at)
    may_return = {
        number: who
        for number, who in state.attached.items()
        if record.is_waiting and who[0] in state.subscriptions
    }
    state.attached = may_return
    awaited = {who[0] for who in may_return.values()}
    for subscription in state.subscriptions.values():
        for cursor in subscription.cursors:
            if cursor.trials:
                _lose_outstanding(cursor, effects, stays_out=subscription.id in awaited)


def _lose_outstanding(cursor: Cursor, effects: Effects, *, stays_out: bool) -> None:
    """Whatever was out when the broker went down is back; a loss alone counts as a failure.

    Where consumers may return, what was out stays out.
    """
    assert cursor.trials is not None
    for start, end, found in cursor.trials.items():
        trial = Trial(*found)
        if trial.out:
            if stays_out:
                continue
            cause = r.Cause.LOST_ALONE if trial.out > 1 else r.Cause.LOST
            trial = _after_return(trial, cause)
            cursor.trials.set(start, end, tuple(trial))
        if is_exhausted(cursor, trial):
            _doom(cursor, start, end, effects)


def _unit(state: State, record: r.Unit, effects: Effects) -> None:
    for part in record.records:
        apply(state, part, effects)


_APPLIERS: Final[dict[Any, Callable[[State, Any, Effects], None]]] = {
    r.Published: apply_published,
    r.Copied: _copied,
    r.Settled: _settled,
    r.Delivered: _delivered,
    r.Returned: _returned,
    r.Removed: _removed,
    r.Lost: _lost,
    r.Skipped: _skipped,
    r.TopicCreated: apply_topic_created,
    r.TopicAltered: apply_topic_altered,
    r.TopicDeleted: apply_topic_deleted,
    r.SubscriptionCreated: apply_subscription_created,
    r.SubscriptionAltered: apply_subscription_altered,
    r.SubscriptionDeleted: apply_subscription_deleted,
    r.ReaderOpened: apply_reader_opened,
    r.ReaderMoved: apply_reader_moved,
    r.Attached: _attached,
    r.Detached: _detached,
    r.Started: _started,
    r.Unit: _unit,
    r.Outlived: apply_outlived,
    r.Sought: apply_sought,
    r.MemberExpired: apply_subscription_deleted,
    r.PatternCreated: matching.apply_created,
    r.PatternDeleted: matching.apply_deleted,
    r.PartitionsAdded: apply_added,
    r.UnitCommitted: apply_unit_committed,
    r.Missed: apply_missed,
}
