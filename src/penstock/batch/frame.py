"""A frame: a stored batch and which of its messages are meant. What readers and consumers get."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from penstock.batch.encode import Columns
from penstock.batch.view import Batch
from penstock.vocabulary.message import render_id
from penstock.vocabulary.records import Copied, Published

Mark = tuple[int | None, str]
"""Offset and position of a message, in the words of a broker that is not ours."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Messages `offsets[i]` = number `indexes[i]` of the batch."""

    batch: bytes
    offsets: Sequence[int]
    indexes: Sequence[int]
    published_at: int
    publisher: bytes
    epoch: int
    sequence: int
    marks: Sequence[Mark] | None = None
    """Where the broker itself says each message of the batch is, when offsets do not tell."""

    def id_of(self, view: Batch, index: int) -> str:
        """The given id of a message, or the one rendered from its publisher."""
        given = view.ids[index] if view.ids is not None else None
        if given is not None:
            return given
        return render_id(self.publisher, self.epoch, self.sequence + index)

    def published_at_of(self, view: Batch, index: int) -> int:
        """When a message was first published, in ms."""
        column = view.published_at
        return self.published_at if column is None else int(column[index])


def frame_of(record: Published | Copied, start: int, end: int) -> Frame:
    """The part of a stored record that lies in start…end."""
    if isinstance(record, Copied):
        pairs = [(o, i) for i, o in enumerate(record.offsets) if start <= o < end]
        offsets = [offset for offset, _ in pairs]
        return Frame(record.batch, offsets, [index for _, index in pairs], 0, bytes(16), 0, 0)
    low, high = max(start, record.base), min(end, record.base + record.count)
    indexes: Sequence[int] = range(low - record.base, high - record.base)
    if record.kept is not None:
        indexes = [record.kept[index] for index in indexes]
    return Frame(
        record.batch, range(low, high), indexes, record.published_at, record.publisher,
        record.epoch, record.sequence,
    )  # fmt: skip


def gather(frames: Iterable[Frame]) -> tuple[list[int], Columns]:
    """The messages of several frames as columns for a new home: ids and times made explicit."""
    offsets: list[int] = []
    rows: list[tuple[Any, ...]] = []
    for frame in frames:
        view = Batch(frame.batch)
        offsets.extend(frame.offsets)
        rows.extend(_row(frame, view, index) for index in frame.indexes)
    columns = [list(column) for column in zip(*rows, strict=True)]
    return offsets, Columns(**dict(zip(_NAMES, columns, strict=True)))


_NAMES = (
    "bodies", "keys", "ids", "headers", "priorities", "deliver_at", "expires_at", "published_at",
    "attempts",
)  # fmt: skip


def _row(frame: Frame, view: Batch, index: int) -> tuple[Any, ...]:
    return (
        view.bodies[index],
        view.keys[index] if view.keys is not None else None,
        frame.id_of(view, index),
        view.headers[index] if view.headers is not None else None,
        view.priorities[index] if view.priorities is not None else 0,
        view.deliver_at[index] if view.deliver_at is not None else 0,
        view.expires_at[index] if view.expires_at is not None else 0,
        frame.published_at_of(view, index),
        view.attempts[index] if view.attempts is not None else 0,
    )


class Slice(msgspec.Struct, frozen=True, gc=False):
    """What one lease hands over: messages of one partition, all at the same attempt.

    Without frames it says that the lease is void: what was not handed out yet must not be.
    """

    lease_id: int
    partition: int
    start: int
    end: int
    attempt: int
    frames: list[Frame]
    mask: int | None = None
    """Bits of the messages in the frames, from `start` on, where the sender knows them."""
