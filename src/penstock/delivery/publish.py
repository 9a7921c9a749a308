"""Whether and where a batch is stored: offsets reserved, retries recognised."""

import msgspec

from penstock.delivery.state import Partition, Publisher
from penstock.vocabulary.errors import PublisherFenced, PublisherForgotten
from penstock.vocabulary.records import Published


class Duplicate(msgspec.Struct, frozen=True):
    """The whole batch was stored before; `base` is None when its place is no longer known."""

    base: int | None


class InFlight(msgspec.Struct, frozen=True):
    """The same batch is decided and not yet durable: ask again when it is."""


def is_generated(publisher: bytes) -> bool:
    """True for publisher ids that were drawn at random, not derived from a name."""
    return not publisher[0] & 1


def decide_publish(
    partition: Partition, batch: bytes, count: int, publisher: bytes, epoch: int, sequence: int,
    now_wall: int,
) -> Published | Duplicate | InFlight:  # fmt: skip
    """Reserves offsets for what is new in this batch.

    Raises PublisherFenced, PublisherForgotten.
    """
    known = partition.publishers.get(publisher) if partition.publishers else None
    kept: tuple[int, ...] | None = None
    if known is not None and epoch == known.epoch and sequence > known.decided:
        known.decided = sequence + count - 1
        base = partition.reserved
        partition.reserved = base + count
        return Published(
            partition.topic.id, partition.index, base, count, publisher, epoch, sequence, now_wall,
            batch,
        )  # fmt: skip
    if known is None:
        if sequence and is_generated(publisher):
            raise PublisherForgotten(
                "this publisher is not known here any more, so a retry cannot be told from a new "
                "message; it was not stored. Open a new client to go on"
            )
    elif epoch < known.epoch:
        raise PublisherFenced(
            f"publisher epoch {epoch} is over: epoch {known.epoch} has published since"
        )
    elif epoch == known.epoch:
        last = sequence + count - 1
        if last <= known.last:
            return _duplicate(known, sequence)
        if sequence <= known.decided:
            if known.decided > known.last:
                return InFlight()
            kept = tuple(range(known.last + 1 - sequence, count))
    _reserve(partition, known, publisher, epoch, sequence + count - 1, now_wall)
    base = partition.reserved
    stored = count if kept is None else len(kept)
    partition.reserved = base + stored
    topic_id = partition.topic.id
    return Published(
        topic_id, partition.index, base, stored, publisher, epoch, sequence, now_wall, batch, kept
    )


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
