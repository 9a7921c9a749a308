"""When time or size removes messages, and publishers are forgotten.

Nothing here removes what a guard protects: a guard is asked about a range and answers with the
parts of it that must stay, rising and disjoint.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Final

from penstock.delivery.keeping import Run
from penstock.delivery.policies import held_bytes, is_over
from penstock.delivery.publish import is_generated
from penstock.delivery.reader import protect_planned
from penstock.delivery.state import Partition, Topic
from penstock.delivery.traits import NEVER
from penstock.vocabulary.limits import PUBLISHER_IDLE_S_MAX
from penstock.vocabulary.records import Outlived, Ranges, Removed

Guard = Callable[[Partition, int, int], Iterable[Run]]
GUARDS: Final[tuple[Guard, ...]] = (protect_planned,)
"""Who may forbid a removal."""


def decide_retention(
    partition: Partition, now_wall: int, guards: Sequence[Guard] = GUARDS
) -> list[Removed | Outlived]:
    """Records for everything whose time is over."""
    if any(subscription.seeks for subscription in partition.topic.every_subscription()):
        return []  # A seek that is not yet durable may want some of it.
    records: list[Removed | Outlived] = []
    aged = merged_free(partition, _aged(partition, now_wall), guards)
    if aged:
        records.append(Removed(partition.topic.id, partition.index, aged))
    ranges = merged_free(partition, _outlived(partition, now_wall), guards)
    if partition.keeping is None:
        if ranges:
            records.append(Removed(partition.topic.id, partition.index, ranges))
        return records
    window = _window(partition, now_wall)
    if ranges or window:
        records.append(Outlived(partition.topic.id, partition.index, ranges, window))
    return records


def _outlived(partition: Partition, now_wall: int) -> list[Run]:
    """Messages that no durable cursor covered, kept long enough."""
    retain_s = partition.topic.policy.retain_s
    if not partition.retained or retain_s is None:
        return []
    limit = now_wall - int(retain_s * 1000)
    return [(start, end) for start, end, at in partition.retained if at <= limit]


def _aged(partition: Partition, now_wall: int) -> list[Run]:
    """Held messages over `max_age_s`."""
    max_age_s = partition.topic.policy.max_age_s
    if partition.keeping is None or max_age_s is None:
        return []
    limit = now_wall - int(max_age_s * 1000)
    return [
        gap
        for start, end, _ in takewhile(lambda row: row[2] <= limit, partition.keeping.rows)
        for gap in partition.released.gaps(start, end)
    ]


def _window(partition: Partition, now_wall: int) -> int:
    """Where the replay window begins now; 0 when it has not moved."""
    keeping, replay_s = partition.keeping, partition.topic.policy.replay_s
    if keeping is None or replay_s <= 0:
        return 0
    window = keeping.end_before(now_wall - int(replay_s * 1000))
    return window if window > keeping.window else 0


def due_at(partition: Partition) -> int:
    """The wall time at which something of a partition is next due for removal."""
    policy, keeping = partition.topic.policy, partition.keeping
    soonest = NEVER
    if partition.retained and policy.retain_s is not None:
        soonest = partition.retained[0][2] + int(policy.retain_s * 1000)
    if keeping is None:
        return soonest
    if keeping.rows and policy.max_age_s is not None:
        soonest = min(soonest, keeping.rows[0][2] + int(policy.max_age_s * 1000))
    if policy.replay_s > 0 and (at := keeping.next_time()) is not None:
        soonest = min(soonest, at + int(policy.replay_s * 1000))
    return soonest


# -- size ------------------------------------------------------------------------------------------


def decide_size(topic: Topic, guards: Sequence[Guard] = GUARDS) -> list[Removed]:
    """Records that bring a topic down to its `max_bytes`.

    Each partition gives its oldest messages, in proportion to what it holds; what guards
    protect in one is made up for by the others. When that is not enough nothing is removed.
    """
    limit = topic.policy.max_bytes
    if limit is None or not is_over(topic):
        return []
    total = held_bytes(topic)
    if any(subscription.seeks for subscription in topic.every_subscription()):
        return []
    over = total - limit
    partitions = [partition for partition in topic.partitions if partition.held > 0]
    freed = 0
    found: dict[Partition, list[Run]] = {}
    for partition in partitions:
        share = -(-over * partition.held_bytes // total)
        freed += _take_oldest(partition, share, guards, found)
    for partition in partitions:
        if freed < over:
            freed -= _size_of(partition, found.pop(partition, []))
            freed += _take_oldest(partition, over - freed, guards, found)
    if freed < over:
        return []
    return [
        Removed(topic.id, partition.index, tuple(runs)) for partition, runs in found.items() if runs
    ]


def _take_oldest(
    partition: Partition, size: int, guards: Sequence[Guard], found: dict[Partition, list[Run]]
) -> int:
    """Takes the oldest messages that make up `size` bytes; returns how many bytes they are."""
    runs, sizes, freed = found.setdefault(partition, []), partition.sizes, 0
    if sizes is None:
        return 0
    for low, high in partition.released.gaps(partition.released.floor, partition.next_offset):
        for start, end in _free(partition, low, high, guards):
            if freed >= size:
                return freed
            upto = sizes.reach(start, end, size - freed)
            freed += sizes.between(start, upto)
            _append(runs, start, upto)
    return freed


def _size_of(partition: Partition, runs: list[Run]) -> int:
    return sum(partition.sizes.between(*run) for run in runs) if partition.sizes is not None else 0


# -- guards ----------------------------------------------------------------------------------------


def merged_free(partition: Partition, runs: list[Run], guards: Sequence[Guard]) -> Ranges:
    """What of these ranges no guard protects, joined where it touches."""
    found: list[Run] = []
    for low, high in runs:
        for start, end in _free(partition, low, high, guards):
            _append(found, start, end)
    return tuple(found)


def _free(partition: Partition, start: int, end: int, guards: Sequence[Guard]) -> list[Run]:
    runs = [(start, end)]
    for guard in guards:
        for low, high in guard(partition, start, end):
            runs = [
                (a, b)
                for first, last in runs
                for a, b in ((first, min(last, low)), (max(first, high), last))
                if a < b
            ]
    return runs


def _append(runs: list[Run], start: int, end: int) -> None:
    if runs and runs[-1][1] == start:
        runs[-1] = (runs[-1][0], end)
    else:
        runs.append((start, end))


# -- publishers ------------------------------------------------------------------------------------


def forget_publishers(partition: Partition, now_wall: int) -> None:
    """Drops the state of generated publishers that were idle for long; named ones stay."""
    if not partition.publishers:
        return
    limit = now_wall - int(PUBLISHER_IDLE_S_MAX * 1000)
    idle = [
        publisher
        for publisher, known in partition.publishers.items()
        if known.used_at < limit and is_generated(publisher) and known.decided <= known.last
    ]
    for publisher in idle:
        del partition.publishers[publisher]
    if not partition.publishers:
        partition.publishers = None
