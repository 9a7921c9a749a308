"""A given id is stored once: which messages of a batch are new, and what is remembered of them."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from penstock.batch.given import given_ids
from penstock.delivery.dedup import (
    Hashes,
    Numbers,
    Window,
    are_different,
    hashes,
    hashes_in,
    hashes_of_all,
)
from penstock.delivery.pending import Pending
from penstock.delivery.replace import remember_pending
from penstock.delivery.state import Partition
from penstock.vocabulary.errors import MalformedBatch
from penstock.vocabulary.policy import OnDuplicate
from penstock.vocabulary.records import Published


class Sifted(msgspec.Struct):
    """What a window says about a batch."""

    keys: Hashes
    """Hashes of the new ids."""
    rows: Numbers
    """Indexes of the messages that have them."""
    kept: tuple[int, ...] | None
    """Indexes of all new messages; None = all of the batch."""
    places: dict[int, int]
    """Offsets of the others, by their index."""
    twins: dict[int, int]
    """Indexes of messages whose id came before in this batch → where."""


def replaces(partition: Partition) -> bool:
    """True when newer messages of this topic replace older ones."""
    return partition.topic.policy.on_duplicate == OnDuplicate.REPLACE


def window_of(partition: Partition) -> Window:
    """The window of a partition, made when it is needed first."""
    if not isinstance(partition.seen, Window):
        partition.seen = Window()
    return partition.seen


def pending_of(partition: Partition) -> Pending:
    """The ids that wait in a partition whose messages are replaced."""
    if not isinstance(partition.seen, Pending):
        partition.seen = Pending()
    return partition.seen


def sift(
    window: Window, ids: Sequence[str | None], skip: int, now_wall: int,
    gone: frozenset[int] = frozenset(),
) -> Sifted:  # fmt: skip
    """Tells new messages from known ones; the first `skip`, and those `gone`, are known already."""
    if gone:
        ids = [None if index in gone else id for index, id in enumerate(ids)]
    rows, keys, twins = _first_ones(ids, skip)
    return _sifted(window, rows, keys, twins, skip, len(ids), now_wall, gone)


def sift_alike(
    partition: Partition, column: memoryview, count: int, now_wall: int
) -> Sifted | None:
    """The same for a column of short ids of one length, no two of them equal; None for any other.

    Most publishers make such ids; they need not be decoded.
    """
    keys = hashes_in(column, count)
    if keys is None or not are_different(keys):
        return None
    return _sifted(window_of(partition), np.arange(count), keys, {}, 0, count, now_wall)


def _sifted(
    window: Window, rows: Numbers, keys: Hashes, twins: dict[int, int], skip: int, count: int,
    now_wall: int, gone: frozenset[int] = frozenset(),
) -> Sifted:  # fmt: skip
    found = window.find(keys, now_wall)
    is_new = found < 0
    if is_new.all():
        if not twins and not gone:
            kept = tuple(range(skip, count)) if skip else None
            return Sifted(keys, rows, kept, {}, twins)
        places: dict[int, int] = {}
    else:
        is_known = ~is_new
        places = dict(zip(rows[is_known].tolist(), found[is_known].tolist(), strict=True))
        rows, keys = rows[is_new], keys.pick(is_new)
    kept = tuple(i for i in range(skip, count) if not (i in places or i in twins or i in gone))
    return Sifted(keys, rows, kept, places, twins)


def _first_ones(ids: Sequence[str | None], skip: int) -> tuple[Numbers, Hashes, dict[int, int]]:
    """Each given id where it comes first: its index and hash; and the indexes of its twins."""
    if not skip and ids[0] is not None:
        keys = hashes_of_all(ids)
        if keys is not None and are_different(keys):
            return np.arange(len(ids)), keys, {}
    first: dict[str, int] = {}
    twins: dict[int, int] = {}
    for index in range(skip, len(ids)):
        id = ids[index]
        if id is not None and first.setdefault(id, index) != index:
            twins[index] = first[id]
    return np.array(list(first.values()), np.int64), hashes(list(first)), twins


def note(window: Window, sifted: Sifted, base: int, now_wall: int) -> None:
    """Remembers the new ids of a batch that is being stored from `base` on."""
    rows, kept = sifted.rows, sifted.kept
    offsets = base + (rows if kept is None else np.searchsorted(np.array(kept, np.int64), rows))
    window.add(sifted.keys, offsets, now_wall)
    if sifted.twins:
        stored = dict(zip(rows.tolist(), offsets.tolist(), strict=True))
        for index, first in sifted.twins.items():
            sifted.places[index] = stored[first] if first in stored else sifted.places[first]


def places_of(window: Window, ids: Sequence[str | None], now_wall: int) -> dict[int, int]:
    """The offsets of remembered messages, by their index."""
    rows = [index for index, id in enumerate(ids) if id is not None]
    found = window.find(hashes([id for id in ids if id is not None]), now_wall).tolist()
    return {index: place for index, place in zip(rows, found, strict=True) if place >= 0}


def remember(partition: Partition, record: Published, *, is_copy: bool = False) -> None:
    """A batch with more than bodies is durable: its given ids are known from now on.

    Copies, such as a redriven message (`is_copied`), never count as given again.
    """
    is_replacing = replaces(partition)
    if not is_replacing:
        if is_copy:
            return
        seen = partition.seen
        if isinstance(seen, Window) and record.base < seen.decided:
            return  # known since it was decided
    try:
        ids = given_ids(record.batch)
    except MalformedBatch:
        return  # stored before ids were looked at
    if ids is None:
        return
    if is_replacing:
        remember_pending(partition, pending_of(partition), record, ids)
        return
    kept = record.kept if record.kept is not None else range(record.count)
    pairs = [(id, at) for at, index in enumerate(kept) if (id := ids[index]) is not None]
    places = record.base + np.array([at for _, at in pairs], np.int64)
    window_of(partition).add(hashes([id for id, _ in pairs]), places, record.published_at)


def forget_ids(partition: Partition, now_wall: int) -> None:
    """Lets go of ids that no longer matter."""
    seen = partition.seen
    if isinstance(seen, Window):
        seen.forget(now_wall)
        if not seen:
            partition.seen = None
    elif isinstance(seen, Pending):
        seen.sweep(partition.released)


def dump_ids(partition: Partition) -> list[Any] | None:
    """What is durable of the known ids, for a snapshot."""
    seen = partition.seen
    if isinstance(seen, Window):
        return seen.state(partition.next_offset)
    return None if seen is None else seen.state(partition.released)


def load_ids(partition: Partition, state: list[Any]) -> None:
    """Puts known ids from a snapshot back."""
    restored = Pending.restored if replaces(partition) else Window.restored
    partition.seen = restored(state)
