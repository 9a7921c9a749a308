"""Kind `reader`: a durable place in each partition, without leases, priority or dead letters.

A reader holds everything from its progress on. What it has planned to read, from its progress to
the newest planned end, is held whatever else the topic may remove: `planned_ranges` tells.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.batch.frame import Frame
from penstock.delivery.effects import Effects
from penstock.delivery.holding import lose, release
from penstock.delivery.state import Cursor, Partition, Reader, State, Subscription, Topic
from penstock.vocabulary import limits
from penstock.vocabulary.errors import (
    InvalidArgument,
    NotPlanned,
    PositionNotHeld,
    ReaderFenced,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicInUse,
)
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.reading import ReaderState
from penstock.vocabulary.records import Ranges, ReaderMoved, ReaderOpened, SubscriptionDeleted

# -- what removal asks ---------------------------------------------------------------------------


def planned_ranges(partition: Partition) -> list[tuple[int, int]]:
    """What readers have planned to read of a partition: nothing may remove it. Sorted, disjoint.

    A plan counts from its decision on, so that nothing decided later overtakes it.
    """
    found: list[tuple[int, int]] = []
    for subscription in partition.topic.durable_subscriptions():
        reader = subscription.reader
        if reader is not None and partition.index < len(reader.planned):
            start, end = reader.progress[partition.index], reader.next_planned[partition.index]
            if start < end:
                found.append((start, end))
    found.sort()
    merged: list[tuple[int, int]] = []
    for low, high in found:
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def protect_planned(partition: Partition, start: int, end: int) -> list[tuple[int, int]]:
    """The parts of start…end that a reader has planned to read and that must stay."""
    return [
        (max(low, start), min(high, end))
        for low, high in planned_ranges(partition)
        if low < end and start < high
    ]


def is_held_by_reader(partition: Partition, start: int, end: int) -> bool:
    """True when a reader has planned to read any of start…end."""
    return bool(protect_planned(partition, start, end))


def outside_planned(partition: Partition, ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The parts of these ranges that no reader has planned to read."""
    parts = list(ranges)
    for low, high in planned_ranges(partition):
        parts = [
            (a, b)
            for start, end in parts
            for a, b in ((start, min(end, low)), (max(start, high), end))
            if a < b
        ]
    return tuple(parts)


def unplanned_frames(partition: Partition, frames: list[Frame]) -> list[Frame]:
    """Frames without the messages a reader has planned to read."""
    planned = planned_ranges(partition)
    if not planned:
        return frames
    found: list[Frame] = []
    for frame in frames:
        pairs = [
            (offset, index)
            for offset, index in zip(frame.offsets, frame.indexes, strict=True)
            if not any(low <= offset < high for low, high in planned)
        ]
        if pairs:
            offsets, indexes = [o for o, _ in pairs], [i for _, i in pairs]
            found.append(msgspec.structs.replace(frame, offsets=offsets, indexes=indexes))
    return found


def _has_planned(subscription: Subscription) -> bool:
    reader = subscription.reader
    return reader is not None and any(
        start < end for start, end in zip(reader.progress, reader.next_planned, strict=True)
    )


def check_topic_unplanned(subscription: Subscription) -> None:
    """Raises TopicInUse while this subscription is a reader with a planned range."""
    if _has_planned(subscription):
        raise TopicInUse(
            f"reader {subscription.name!r} has planned to read topic "
            f"{subscription.topic.name!r}; commit what it read, or give it up with "
            "'await reader.release(force=True)'"
        )


def check_unplanned(subscription: Subscription) -> None:
    """Raises SubscriptionInUse while this subscription is a reader with a planned range."""
    if _has_planned(subscription):
        raise SubscriptionInUse(
            f"reader {subscription.name!r} of topic {subscription.topic.name!r} has a planned "
            "range that it has not committed; commit it, or give it up with "
            "'await reader.release(force=True)'"
        )


def refuse_reader(topic: Topic, name: str | None, policy: SubscriptionPolicy | None) -> None:
    """Raises SubscriptionConflict when a consumer wants to attach to a reader."""
    known = (topic.subscriptions or {}).get(name) if name is not None else None
    kind = policy.kind if known is None and policy is not None else None
    if known is not None:
        kind = known.policy.kind
    if kind is Kind.READER:
        raise SubscriptionConflict(
            f"subscription {name!r} on topic {topic.name!r} is a reader, which consumers cannot "
            "join; open it with client.reader(topic, name, owner=…), or use another name"
        )


# -- decisions -----------------------------------------------------------------------------------


def check_owner(owner: Any) -> str:
    """Returns a token that may own a reader. Raises InvalidArgument."""
    if not isinstance(owner, str) or not owner or not owner.isprintable():
        raise InvalidArgument(
            f"owner must be printable text that all processes of one run share, not {owner!r}"
        )
    if len(owner.encode(errors="replace")) > limits.READER_OWNER_BYTES_MAX:
        raise InvalidArgument(
            f"owner of {len(owner)} characters is over the limit of "
            f"{limits.READER_OWNER_BYTES_MAX} bytes"
        )
    return owner


def reader_of(subscription: Subscription) -> Reader:
    """The reader of a subscription, which has one for each of its partitions."""
    if subscription.policy.kind is not Kind.READER:
        raise SubscriptionConflict(
            f"subscription {subscription.name!r} on topic {subscription.topic.name!r} is of kind "
            f"{subscription.policy.kind.value!r}, not a reader; use another name"
        )
    reader = subscription.reader
    if reader is None:
        reader = subscription.reader = Reader([c.done.floor for c in subscription.cursors])
    for cursor in subscription.cursors[len(reader.progress) :]:
        for places in (reader.progress, reader.planned, reader.next_progress, reader.next_planned):
            places.append(cursor.done.floor)
    return reader


def decide_open(subscription: Subscription, owner: str) -> ReaderOpened | None:
    """A record that makes it the owner, or None when it is. Raises ReaderFenced."""
    reader = reader_of(subscription)
    newest = reader.opening[-1] if reader.opening else reader.owner
    if owner == newest:
        return None
    if owner in (reader.owner, *reader.retired, *reader.opening):
        raise _fenced(subscription)
    reader.opening.append(owner)
    return ReaderOpened(subscription.topic.id, subscription.id, owner)


def check_reader(subscription: Subscription, owner: str) -> Reader:
    """The reader, when this owner may use it. Raises ReaderFenced."""
    reader = reader_of(subscription)
    if owner != (reader.opening[-1] if reader.opening else reader.owner):
        raise _fenced(subscription)
    return reader


def _fenced(subscription: Subscription) -> ReaderFenced:
    return ReaderFenced(
        f"reader {subscription.name!r} of topic {subscription.topic.name!r} was opened by another "
        "owner since; stop this run, or open the reader with a new owner token to take it over"
    )


def describe_reader(subscription: Subscription) -> ReaderState:
    """What is durable of a reader."""
    reader = reader_of(subscription)
    return ReaderState(reader.owner, tuple(reader.progress), tuple(reader.planned))


def describe_row(subscription: Subscription) -> dict[str, Any]:
    """What a list of subscriptions says about a reader besides its counts."""
    if subscription.policy.kind is not Kind.READER:
        return {}
    found = describe_reader(subscription)
    progress, planned = list(found.progress), list(found.planned)
    return {"reader": {"owner": found.owner, "progress": progress, "planned": planned}}


def count_upto(cursor: Cursor, start: int, count: int) -> int:
    """The end of a range from `start` with so many messages, or all there are."""
    partition = cursor.partition
    for low, high in cursor.done.gaps(start, partition.next_offset):
        if high - low >= count:
            return low + count
        count -= high - low
    return partition.next_offset


def decide_plan(
    subscription: Subscription, owner: str, ends: Mapping[int, int]
) -> ReaderMoved | None:
    """A record that extends the planned ranges to these ends, or None when they reach so far."""
    reader = check_reader(subscription, owner)
    longer = {i: end for i, end in ends.items() if end > reader.next_planned[i]}
    for index, end in longer.items():
        reader.next_planned[index] = min(end, subscription.cursors[index].partition.next_offset)
    return _moved(subscription, reader) if longer else None


def decide_commit(
    subscription: Subscription, owner: str, ends: Mapping[int, int]
) -> ReaderMoved | None:
    """A record that moves the progress, or None when it is there. Raises NotPlanned."""
    reader = check_reader(subscription, owner)
    for index, end in ends.items():
        check_partition(subscription, index)
        low, high = reader.next_progress[index], reader.next_planned[index]
        if not isinstance(end, int) or isinstance(end, bool):
            raise InvalidArgument(f"the end for partition {index} must be an offset, not {end!r}")
        if not low <= end <= high:
            raise NotPlanned(
                f"reader {subscription.name!r} cannot commit {index}:{end}: its progress is "
                f"{index}:{low} and its planned range ends at {index}:{high}; commit forward, "
                "after plan"
            )
    further = {i: end for i, end in ends.items() if end > reader.next_progress[i]}
    for index, end in further.items():
        reader.next_progress[index] = end
    return _moved(subscription, reader) if further else None


def _moved(subscription: Subscription, reader: Reader) -> ReaderMoved:
    progress, planned = tuple(reader.next_progress), tuple(reader.next_planned)
    return ReaderMoved(subscription.topic.id, subscription.id, progress, planned)


def decide_release(subscription: Subscription, owner: str, *, is_forced: bool) -> Any:
    """A record that removes the reader. Raises SubscriptionInUse, unless forced."""
    check_reader(subscription, owner)
    if not is_forced:
        check_unplanned(subscription)
    subscription.is_removing = True
    return SubscriptionDeleted(subscription.topic.id, subscription.id)


def check_partition(subscription: Subscription, partition: Any) -> None:
    """Raises InvalidArgument when the topic has no such partition."""
    count = len(subscription.cursors)
    is_number = isinstance(partition, int) and not isinstance(partition, bool)
    if not is_number or not 0 <= partition < count:
        raise InvalidArgument(
            f"topic {subscription.topic.name!r} has {count} partition(s), no {partition!r}"
        )


def check_read(
    subscription: Subscription, owner: str, partition: int, start: int, end: int
) -> Cursor:
    """The cursor, when it holds start…end. Raises ReaderFenced, PositionNotHeld."""
    reader = check_reader(subscription, owner)
    check_partition(subscription, partition)
    cursor = subscription.cursors[partition]
    low, high = reader.progress[partition], cursor.partition.next_offset
    if not start <= end:
        raise InvalidArgument(f"a range to read needs start <= end, not {start} and {end}")
    if not low <= start or not end <= high:
        raise PositionNotHeld(
            f"reader {subscription.name!r} does not hold {partition}:{start} to {partition}:{end} "
            f"of topic {subscription.topic.name!r}; it holds {partition}:{low} to "
            f"{partition}:{high}",
            lowest=f"{partition}:{low}",
        )
    return cursor


# -- what the records do -------------------------------------------------------------------------


def apply_reader_opened(state: State, record: ReaderOpened, _effects: Effects) -> None:
    """The reader has a new owner."""
    reader = reader_of(state.subscriptions[record.subscription_id])
    if reader.opening and reader.opening[0] == record.owner:
        del reader.opening[0]
    if reader.owner and reader.owner != record.owner:
        reader.retired.append(reader.owner)
        del reader.retired[: -limits.READER_OWNERS_MAX]
    reader.owner = record.owner


def apply_reader_moved(state: State, record: ReaderMoved, effects: Effects) -> None:
    """The planned ranges are longer, or what lies below the new progress is finished."""
    subscription = state.subscriptions[record.subscription_id]
    reader = reader_of(subscription)
    for cursor, end, planned in zip(
        subscription.cursors, record.progress, record.planned, strict=False
    ):
        partition, index = cursor.partition, cursor.partition.index
        if planned > partition.next_offset:
            # A record that speaks of messages nobody published: damage took their publish.
            lose(partition, partition.next_offset, planned, effects)
        reader.planned[index] = max(reader.planned[index], planned)
        reader.next_planned[index] = max(reader.next_planned[index], planned)
        reader.next_progress[index] = max(reader.next_progress[index], end)
        if end > reader.progress[index]:
            _finish(cursor, reader.progress[index], end, effects)
            reader.progress[index] = end
            if partition.keeping is not None:  # what it held may be over its time
                effects.retained[partition] = None


def _finish(cursor: Cursor, start: int, end: int, effects: Effects) -> None:
    for low, high in cursor.done.add(start, end):
        cursor.acked += high - low
        release(cursor.partition, low, high, effects)


# -- snapshots -----------------------------------------------------------------------------------


def dump_reader(subscription: Subscription) -> list[Any] | None:
    """What a snapshot keeps of a reader."""
    reader = subscription.reader
    if reader is None:
        return None
    return [reader.owner, reader.retired, reader.progress, reader.planned]


def load_reader(subscription: Subscription, found: list[Any]) -> None:
    """A reader from a snapshot."""
    owner, retired, progress, planned = found
    reader = subscription.reader = Reader(list(progress))
    reader.owner, reader.retired = owner, list(retired)
    reader.planned, reader.next_planned = list(planned), list(planned)


def retold(subscription: Subscription) -> list[ReaderOpened | ReaderMoved]:
    """Records that lead to the same reader, for a store that is written again."""
    reader = subscription.reader
    if reader is None:
        return []
    topic_id, number = subscription.topic.id, subscription.id
    owners = [*reader.retired, *([reader.owner] if reader.owner else [])]
    return [
        *(ReaderOpened(topic_id, number, owner) for owner in owners),
        ReaderMoved(topic_id, number, tuple(reader.progress), tuple(reader.planned)),
    ]
