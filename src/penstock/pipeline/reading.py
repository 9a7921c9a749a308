"""Messages as a reader gives them, into the columns `validate` takes."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.batch import Batch
from penstock.batch import format as layout
from penstock.batch.frame import Frame
from penstock.client.reader import ReadBatch
from penstock.pipeline.datasets.raw import Headers, Told, raw_batch
from penstock.vocabulary.message import render_id

_RAWS: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_HEADERS: Final = msgspec.msgpack.Decoder(dict[str, str] | None)


def raw_of(batch: ReadBatch) -> list[pa.RecordBatch]:
    """One raw batch for each stored batch."""
    return [_raw(batch.partition, frame) for frame in batch.frames]


def _raw(partition: int, frame: Frame) -> pa.RecordBatch:
    view = Batch(frame.batch, verify=False)
    indexes = frame.indexes
    is_whole = len(indexes) == view.count
    bodies, given = view.bodies, view.ids
    if not is_whole:
        bodies = [bodies[index] for index in indexes]
    if given is not None and is_whole and None not in given:
        ids: list[str] = given  # type: ignore[assignment]  # none is missing
    else:
        ids = _ids(partition, frame, given)
    published = view.published_at
    times = (
        frame.published_at if published is None else [int(published[index]) for index in indexes]
    )
    said = _told(frame.batch, view.count)
    if not is_whole:
        said = Told(said.different, said.which[np.array(indexes, np.int64)])
    return raw_batch(
        bodies, ids=ids, headers=said, published_ms=times, partition=partition,
        offsets=frame.offsets,
    )  # fmt: skip


def _ids(partition: int, frame: Frame, given: Sequence[str | None] | None) -> list[str]:
    """The ids of messages, some of which were published without one.

    Such an id is made of the publisher and its number, which begin anew in each partition of a
    topic: beyond the first, the partition is a part of it, so that it is the topic's only one.
    """
    start = render_id(frame.publisher, frame.epoch, 0)[:-1]
    first = frame.sequence
    end = f".{partition}" if partition else ""
    if given is None:
        return [f"{start}{first + index:x}{end}" for index in frame.indexes]
    return [
        f"{start}{first + index:x}{end}" if (own := given[index]) is None else own
        for index in frame.indexes
    ]


def _told(batch: bytes, count: int) -> Told:
    """The headers of a batch; each different one is decoded once."""
    _, spans = layout.read_directory(batch, verify=False)
    if layout.HEADERS not in spans:
        return Told([None], np.zeros(count, np.int64))
    start, end = spans[layout.HEADERS]
    known: dict[bytes, int] = {}
    which = [
        known.setdefault(bytes(raw), len(known))
        for raw in _RAWS.decode(memoryview(batch)[start:end])
    ]
    different: list[Headers] = [_HEADERS.decode(raw) for raw in known]
    return Told(different, np.array(which, np.int64))
