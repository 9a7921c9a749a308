"""More partitions for a topic that is in use, and where the messages of a key lay before.

From the decision on, publishes are spread the new way: `topic.map` has the new partitions before
`topic.partitions` does, so that no batch spread the old way comes behind the record. A map is named
by its number of partitions, since a topic only ever gets more.
"""

from collections.abc import Sequence

from penstock.delivery.effects import Effects
from penstock.delivery.keeping import Keeping, is_keeping
from penstock.delivery.state import Cursor, Growth, Partition, State, Topic
from penstock.vocabulary import limits
from penstock.vocabulary.errors import InvalidArgument, PartitionsOnlyGrow, StaleMap
from penstock.vocabulary.records import PartitionsAdded, Record, SubscriptionCreated


def decide_partitions(topic: Topic, partitions: int, now_wall: int) -> PartitionsAdded | None:
    """A record that gives the topic so many partitions; None when it has them.

    Raises PartitionsOnlyGrow, InvalidArgument.
    """
    known = len(topic.map)
    if not 1 <= partitions <= limits.PARTITIONS_MAX:
        raise InvalidArgument(f"partitions must be 1…{limits.PARTITIONS_MAX}, not {partitions}")
    if partitions < known:
        raise PartitionsOnlyGrow(
            f"topic {topic.name!r} has {known} partitions, and partitions cannot be removed: "
            f"create another topic with {partitions} and publish there",
            partitions=known,
        )
    if partitions == known:
        return None
    if topic.policy.dead_of is not None:
        raise InvalidArgument(f"{topic.name!r} is a dead-letter topic: it has one partition")
    ends = tuple(partition.reserved for partition in topic.map)
    topic.map = [*topic.map, *(Partition(topic, index) for index in range(known, partitions))]
    topic.growing = (*topic.growing, Growth(known, ends, now_wall))
    return PartitionsAdded(topic.id, partitions, ends, now_wall)


def apply_added(state: State, record: PartitionsAdded, _effects: Effects) -> None:
    """The partitions are there: every subscription covers them from their beginning."""
    topic = state.topics[record.topic_id]
    topic.growing = topic.growing[1:]
    if record.partitions > len(topic.partitions):
        _note(topic, Growth(len(record.ends), record.ends, record.added_at))
        _widen(topic, record.partitions)


def partitions_of(record: Record) -> int:
    """How many partitions a topic has at least when this can be said of it."""
    if isinstance(record, SubscriptionCreated):
        return len(record.starts)
    return int(getattr(record, "partition", 0)) + 1


def assume_added(topic: Topic, partitions: int, now_wall: int) -> None:
    """A record speaks of partitions whose adding is lost: they must have been there."""
    if partitions > len(topic.partitions):
        ends = tuple(partition.next_offset for partition in topic.partitions)
        _note(topic, Growth(len(ends), ends, now_wall))
        _widen(topic, partitions)


def _note(topic: Topic, growth: Growth) -> None:
    topic.growth = [*(topic.growth or ()), growth]


def _widen(topic: Topic, count: int) -> None:
    decided = topic.map
    for index in range(len(topic.partitions), count):
        partition = decided[index] if index < len(decided) else Partition(topic, index)
        if is_keeping(topic.policy) and partition.keeping is None:
            partition.keeping = Keeping()
        topic.partitions.append(partition)
        for subscription in topic.every_subscription():
            subscription.cursors.append(Cursor(subscription, partition, 0))
    if len(decided) <= len(topic.partitions):
        topic.map = topic.partitions


def check_map(topic: Topic, partition: int, publisher: bytes, epoch: int, sequence: int) -> None:
    """Looks at a batch that was split for another number of partitions than there are.

    Raises StaleMap when it is new, and so certainly not stored. What may have been stored before is
    let through, to the partition it was for: it is answered as the duplicate it is.
    """
    now = len(topic.map)
    if partition < now:
        known = (topic.map[partition].publishers or {}).get(publisher)
        if known is None:
            # A generated publisher that is unknown may have been forgotten; it is told so.
            is_new = sequence == 0 or bool(publisher[0] & 1)
        else:
            is_new = epoch > known.epoch or (epoch == known.epoch and sequence > known.decided)
        if not is_new:
            return
    raise stale_map(topic)


def stale_map(topic: Topic) -> StaleMap:
    """Says that a batch, or a unit with it, was not stored because it was split another way."""
    now = len(topic.map)
    return StaleMap(
        f"topic {topic.name!r} has {now} partitions now: this batch was split for another number "
        "and was not stored; split it anew",
        partitions=now,
        topic=topic.name,
    )


def growths(topic: Topic) -> tuple[Growth, ...]:
    """Every time it got more partitions, as decided, durable or not."""
    return (*topic.growth, *topic.growing) if topic.growth else topic.growing


def earlier_homes(
    topic: Topic, partition: int, key_hash: int, offset: int | None = None
) -> list[tuple[int, int]]:
    """Where messages of a key, older than those in `partition`, may still lie: (partition, end).

    Only those below `end` are meant. With `offset`, the homes before the message at that offset of
    `partition`; without, those before a message published now. Oldest homes first.
    """
    ends: dict[int, int] = {}
    for growth in growths(topic) if offset is None else topic.growth or ():
        is_older = partition >= growth.partitions or (
            offset is None or offset >= growth.ends[partition]
        )
        home = key_hash % growth.partitions
        if is_older and home != partition:
            ends[home] = max(growth.ends[home], ends.get(home, 0))
    return list(ends.items())


def growth_state(topic: Topic) -> list[Growth] | None:
    """For a snapshot."""
    return topic.growth


def restore_growth(topic: Topic, rows: Sequence[Sequence[object]]) -> None:
    """From a snapshot."""
    topic.growth = [Growth(count, tuple(ends), at) for count, ends, at in rows]  # type: ignore[arg-type]
