"""Whether and where a batch is stored: offsets reserved, retries recognised."""

import msgspec

from penstock.batch.given import given_ids, ids_column, is_copied
from penstock.delivery.growth import growths
from penstock.delivery.homes import homes_before, known_elsewhere
from penstock.delivery.replace import decide_replace
from penstock.delivery.room import check_room
from penstock.delivery.state import Partition, Publisher
from penstock.delivery.traits import is_plain
from penstock.delivery.unique import (
    Sifted,
    note,
    pending_of,
    places_of,
    replaces,
    sift,
    sift_alike,
    window_of,
)
from penstock.vocabulary.errors import MalformedBatch, PublisherFenced, PublisherForgotten
from penstock.vocabulary.records import Published, Unit


class Duplicate(msgspec.Struct, frozen=True):
    """The whole batch was stored before; `base` is None when its place is no longer known."""

    base: int | None
    places: dict[int, int] | None = None
    """Offsets by index, where known, when the messages do not lie one behind the other."""


class Decided(msgspec.Struct, frozen=True):
    """A publish that is more than its record: part of it was stored before, or it replaces."""

    record: Published | Unit
    published: Published
    places: dict[int, int] | None = None
    """Offsets of the messages that were stored before, by their index."""


class InFlight(msgspec.Struct, frozen=True):
    """The same batch is decided and not yet durable: ask again when it is."""


def is_generated(publisher: bytes) -> bool:
    """True for publisher ids that were drawn at random, not derived from a name."""
    return not publisher[0] & 1


def decide_publish(
    partition: Partition, batch: bytes, count: int, publisher: bytes, epoch: int, sequence: int,
    now_wall: int,
) -> Published | Decided | Duplicate | InFlight:  # fmt: skip
    """Reserves offsets for what is new in this batch.

    Raises PublisherFenced, PublisherForgotten, MalformedBatch, HeldByReader; nothing has changed
    then.
    """
    known = partition.publishers.get(publisher) if partition.publishers else None
    if not is_plain(batch):
        ids = ids_column(batch)
        if ids is not None and (replaces(partition) or not is_copied(batch)):
            source = (publisher, epoch, sequence)
            return _decide_given(partition, batch, ids, count, source, known, now_wall)
    if known is not None and epoch == known.epoch and sequence > known.decided:
        if partition.topic.policy.max_bytes is not None:
            check_room(partition.topic, len(batch))
        known.decided = sequence + count - 1
        base = partition.reserved
        partition.reserved = base + count
        return Published(
            partition.topic.id, partition.index, base, count, publisher, epoch, sequence, now_wall,
            batch,
        )  # fmt: skip
    skip = _screen(known, count, publisher, epoch, sequence)
    if not isinstance(skip, int):
        return skip
    kept = tuple(range(skip, count)) if skip else None
    return _store(partition, known, batch, count, kept, (publisher, epoch, sequence), now_wall)


Source = tuple[bytes, int, int]
"""Publisher, epoch and sequence of a batch."""


def _screen(
    known: Publisher | None, count: int, publisher: bytes, epoch: int, sequence: int
) -> int | Duplicate | InFlight:
    """How many messages at the beginning of a batch this publisher has stored already."""
    if known is None:
        if sequence and is_generated(publisher):
            raise PublisherForgotten(
                "this publisher is not known here any more, so a retry cannot be told from a new "
                "message; it was not stored. Open a new client to go on"
            )
    elif epoch < known.epoch:
        raise PublisherFenced(
            f"publisher epoch {epoch} is over: a newer client of this name has published since "
            f"(epoch {known.epoch}); open a new client to take over"
        )
    elif epoch == known.epoch:
        last = sequence + count - 1
        if last <= known.last:
            return _duplicate(known, sequence)
        if sequence <= known.decided:
            if known.decided > known.last:
                return InFlight()
            return known.last + 1 - sequence
    return 0


def _store(
    partition: Partition, known: Publisher | None, batch: bytes, count: int,
    kept: tuple[int, ...] | None, source: Source, now_wall: int,
) -> Published:  # fmt: skip
    if partition.topic.policy.max_bytes is not None:
        check_room(partition.topic, len(batch))
    publisher, epoch, sequence = source
    _reserve(partition, known, publisher, epoch, sequence + count - 1, now_wall)
    base = partition.reserved
    stored = count if kept is None else len(kept)
    partition.reserved = base + stored
    topic_id = partition.topic.id
    return Published(
        topic_id, partition.index, base, stored, publisher, epoch, sequence, now_wall, batch, kept
    )


def _decide_given(
    partition: Partition, batch: bytes, column: memoryview, count: int, source: Source,
    known: Publisher | None, now_wall: int,
) -> Published | Decided | Duplicate | InFlight:  # fmt: skip
    """A batch with given ids: those that are known are not stored, or replace older ones.

    What is known here may still be in flight. Records become durable in the order they were
    decided or not at all, so the answer need only wait for everything decided before it.
    """
    skip = _screen(known, count, *source)
    is_replacing = replaces(partition)
    if skip == 0 and not is_replacing and not growths(partition.topic):
        alike = sift_alike(partition, column, count, now_wall)
        if alike is not None:
            return _store_new(partition, batch, alike, count, source, known, now_wall)
    ids = given_ids(batch) or ()
    if len(ids) != count:
        raise MalformedBatch(f"the batch has {len(ids)} ids for {count} messages")
    if not isinstance(skip, int):
        if isinstance(skip, Duplicate) and skip.base is None and not is_replacing:
            return _known(count, places_of(window_of(partition), ids, now_wall))
        return skip
    if is_replacing:
        kept = tuple(range(skip, count)) if skip else None
        published = _store(partition, known, batch, count, kept, source, now_wall)
        homes = homes_before(partition, published, ids) if growths(partition.topic) else {}
        record = decide_replace(partition, pending_of(partition), published, ids, homes)
        return published if record is published else Decided(record, published)
    gone: frozenset[int] = frozenset()
    if growths(partition.topic):
        gone = known_elsewhere(partition, batch, ids, now_wall)
    sifted = sift(window_of(partition), ids, skip, now_wall, gone)
    return _store_new(partition, batch, sifted, count, source, known, now_wall)


def _store_new(
    partition: Partition, batch: bytes, sifted: Sifted, count: int, source: Source,
    known: Publisher | None, now_wall: int,
) -> Published | Decided | Duplicate:  # fmt: skip
    """Stores what is new of a batch with given ids, and remembers it."""
    window = window_of(partition)
    if sifted.kept == ():
        note(window, sifted, partition.reserved, now_wall)
        return _known(count, sifted.places)
    published = _store(partition, known, batch, count, sifted.kept, source, now_wall)
    note(window, sifted, published.base, now_wall)
    window.decided = partition.reserved
    return Decided(published, published, sifted.places) if sifted.places else published


def _known(count: int, places: dict[int, int]) -> Duplicate:
    base = places.get(0)
    if base is not None and all(places.get(n) == base + n for n in range(count)):
        return Duplicate(base)
    return Duplicate(None, places)


def _duplicate(known: Publisher, sequence: int) -> Duplicate:
    if sequence >= known.first >= 0:
        return Duplicate(known.base + sequence - known.first)
    return Duplicate(None)


def _reserve(
    partition: Partition, known: Publisher | None, publisher: bytes, epoch: int, last: int,
    now_wall: int,
) -> None:  # fmt: skip
    if known is None or known.epoch < epoch:
        if partition.publishers is None:
            partition.publishers = {}
        former = None if known is None else known.durable()
        known = Publisher(epoch, now_wall)
        known.former = former
        partition.publishers[publisher] = known
    known.decided = max(known.decided, last)
