"""Policy `on_duplicate = replace`: a new message takes the place of waiting ones with its id.

The older message is released in each subscription where nobody holds it, in the same unit that
stores the newer one. What is leased stays with its consumer.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import count as counting

from xxhash import xxh3_128_digest

from penstock.delivery.leases import make_ready, withdraw
from penstock.delivery.pending import Pending
from penstock.delivery.settle import merge
from penstock.delivery.state import Cursor, Partition, Subscription
from penstock.vocabulary.message import Kind
from penstock.vocabulary.records import Outcome, Published, Settled, Unit


def key_of(id: str) -> bytes:
    """The hash by which an id is known."""
    return xxh3_128_digest(id.encode())


def stored_ids(record: Published, ids: Sequence[str | None]) -> list[tuple[str, int]]:
    """The ids of the messages a record stores, each with its offset."""
    kept = record.kept if record.kept is not None else range(record.count)
    return [
        (id, offset)
        for offset, index in zip(counting(record.base), kept, strict=False)
        if (id := ids[index]) is not None
    ]


Ended = dict[tuple[int, Subscription], list[tuple[int, int]]]
"""(Partition, subscription) → what ends there."""


def decide_replace(
    partition: Partition, pending: Pending, record: Published, ids: Sequence[str | None],
    homes: Mapping[int, Iterable[tuple[Partition, int]]],
) -> Published | Unit:  # fmt: skip
    """The record, with the release of every waiting message it replaces.

    `homes`: offset → the partitions it would have had before the topic grew, each with the end of
    what was published then. Older messages wait there too.
    """
    ended: Ended = {}
    for id, offset in stored_ids(record, ids):
        key = key_of(id)
        for home, end in homes.get(offset, ()):
            if isinstance(home.seen, Pending):
                for older in home.seen.older(key):
                    if older < end:
                        _replace(home, home.seen, older, ended)
        for older in pending.older(key):
            _replace(partition, pending, older, ended)
        pending.flying[key] = offset
    if not ended:
        return record
    ends = [
        Settled(record.topic_id, index, subscription.id, Outcome.REPLACED, merge(ranges))
        for (index, subscription), ranges in ended.items()
    ]
    return Unit((record, *ends))


def _replace(partition: Partition, pending: Pending, older: int, ended: Ended) -> None:
    if older in partition.released:
        return
    is_durable = older < partition.next_offset
    for subscription in partition.topic.every_subscription():
        if subscription.is_removing or subscription.policy.kind is Kind.READER:
            continue  # It will be gone when this is applied; or it reads all there ever was.
        if partition.index < len(subscription.cursors):
            cursor = subscription.cursors[partition.index]
            if older in cursor.done or (is_durable and not reserve(cursor, older)):
                continue
            if not subscription.is_durable:
                # Nothing of an ephemeral subscription is written, so this is true at once.
                cursor.done.add(older, older + 1)
                cursor.dropped += 1
                continue
        elif not subscription.is_durable:
            continue  # The partition is not there yet, and the older one comes as well.
        ended.setdefault((partition.index, subscription), []).append((older, older + 1))
        if not is_durable:
            pending.unborn.setdefault(older, []).append(subscription)


def reserve(cursor: Cursor, offset: int) -> bool:
    """Takes one message out of what may be offered; False when somebody holds it."""
    if offset >= cursor.next:
        for low, high in list(cursor.done.gaps(cursor.next, offset)):
            make_ready(cursor, low, high)
        cursor.next = offset + 1
        return True
    ready = cursor.ready
    at = bisect_right(ready, offset, key=_start) - 1 if ready else -1
    if ready and at >= 0 and offset < ready[at][1]:
        low, high = ready[at]
        ready[at : at + 1] = [run for run in ((low, offset), (offset + 1, high)) if run[0] < run[1]]
        cursor.ready = ready or None
        return True
    return withdraw(cursor, offset, offset + 1) > 0


def _start(run: tuple[int, int]) -> int:
    return run[0]


def remember_pending(
    partition: Partition, pending: Pending, record: Published, ids: Sequence[str | None]
) -> None:
    """A record is durable: its messages may be replaced from now on, or were already."""
    for id, offset in stored_ids(record, ids):
        pending.add(key_of(id), offset, partition.released)
    if pending.unborn:
        for offset in range(record.base, record.end):
            for subscription in pending.unborn.pop(offset, ()):
                cursor = subscription.cursors[partition.index]
                if offset not in cursor.done:
                    reserve(cursor, offset)
