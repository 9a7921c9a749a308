"""Where the publish times of a partition go back: the clock was set back, or copies are older.

Between two set-backs times only rise, so that a time is found there without reading every message.
Dead letters keep the times of their first publish, in no order: there every message is looked at.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from penstock.delivery.state import Partition
from penstock.vocabulary import names

SETBACKS_MAX: Final = 1_000
"""More than these are not told apart: the oldest messages then count as in no order."""


class Stretch(NamedTuple):
    """Messages from `start` to `end`, whose publish times rise or have no order."""

    start: int
    end: int
    is_rising: bool


def note_setback(partition: Partition, offset: int) -> None:
    """The message at `offset` was published before the one in front of it."""
    if partition.setbacks is None:
        partition.setbacks = []
    partition.setbacks.append(offset)
    if len(partition.setbacks) > SETBACKS_MAX:
        # What lies before the first one that is still known has no order.
        del partition.setbacks[0]
        partition.unordered = partition.setbacks[0]


def note_times(partition: Partition, base: int, times: Iterable[int]) -> None:
    """Messages from `base` on bring their own publish times with them."""
    for offset, at in enumerate(times, base):
        if at < partition.newest_at:
            note_setback(partition, offset)
        partition.newest_at = at


def stretches(partition: Partition) -> Iterator[Stretch]:
    """The offsets of a partition, cut where times go back."""
    end = partition.next_offset
    if names.is_dead_topic(partition.topic.name):
        yield Stretch(0, end, is_rising=False)
        return
    start = partition.unordered
    if start:
        yield Stretch(0, start, is_rising=False)
    for offset in partition.setbacks or ():
        yield Stretch(start, offset, is_rising=True)
        start = offset
    yield Stretch(start, end, is_rising=True)


def held_for_all(partition: Partition, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The held messages of start…end, without those that were sent to one subscription alone."""
    for low, high in partition.released.gaps(start, end):
        if partition.aimed is None:
            yield low, high
        else:
            yield from partition.aimed.gaps(low, high)


def dump_setbacks(partition: Partition) -> list[Any] | None:
    """For a snapshot."""
    if not partition.newest_at:
        return None
    return [partition.newest_at, partition.setbacks, partition.unordered]


def load_setbacks(partition: Partition, found: list[Any]) -> None:
    """From a snapshot; one of an older version has none, and times that only rose."""
    partition.newest_at, partition.setbacks, partition.unordered = found
