"""Messages as a reader gives them, into the columns `validate` takes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.batch import Batch
from penstock.batch import format as layout
from penstock.batch.frame import Frame
from penstock.client.reader import ReadBatch
from penstock.pipeline.datasets.raw import Headers, Told, raw_batch
from penstock.vocabulary.message import render_id

DIGITS_MAX: Final = 16
"""Of 64 bits."""
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
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
        ids: Any = given
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


def _ids(
    partition: int, frame: Frame, given: Sequence[str | None] | None
) -> list[str] | pa.StringArray:
    """The ids of messages, some of which were published without one.

    Such an id is made of the publisher and its number, which begin anew in each partition of a
    topic: beyond the first, the partition is a part of it, so that it is the topic's only one.
    """
    start = render_id(frame.publisher, frame.epoch, 0)[:-1]
    first = frame.sequence
    end = f".{partition}" if partition else ""
    if given is None:
        return numbered(start, _array(frame.indexes) + np.uint64(first), end)
    return [
        f"{start}{first + index:x}{end}" if (own := given[index]) is None else own
        for index in frame.indexes
    ]


def _array(numbers: Sequence[int]) -> np.ndarray[Any, np.dtype[Any]]:
    if isinstance(numbers, range):  # much faster than one by one
        return np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.uint64)
    return np.array(numbers, np.uint64)


def numbered(start: str, numbers: np.ndarray[Any, np.dtype[Any]], end: str) -> pa.StringArray:
    """`start`, the number in hexadecimal digits, `end`: for rising numbers, all at once."""
    parts = []
    longer = np.array([16**digits for digits in range(1, DIGITS_MAX)], np.uint64)
    cuts = [0, *np.searchsorted(numbers, longer).tolist(), len(numbers)]
    for digits, (low, high) in enumerate(pairwise(cuts), 1):
        if low < high:
            parts.append(_same_length(start.encode(), numbers[low:high], digits, end.encode()))
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def _same_length(
    start: bytes, numbers: np.ndarray[Any, np.dtype[Any]], digits: int, end: bytes
) -> pa.StringArray:
    count, width = len(numbers), len(start) + digits + len(end)
    texts = np.empty((count, width), np.uint8)
    texts[:, : len(start)] = np.frombuffer(start, np.uint8)
    for at in range(digits):
        shift = np.uint64(4 * (digits - 1 - at))
        texts[:, len(start) + at] = _DIGITS[(numbers >> shift) & np.uint64(15)]
    texts[:, len(start) + digits :] = np.frombuffer(end, np.uint8)
    ends = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(texts.reshape(-1)))


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
