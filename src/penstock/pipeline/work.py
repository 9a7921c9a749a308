"""The row work of a batch: validate and analyse, then transform. What workers call."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.events import EVENTS
from penstock.pipeline.datasets.strict import Reason
from penstock.pipeline.datasets.validate import STAGE
from penstock.pipeline.repositories.known import Marks, marks_of
from penstock.vocabulary.limits import MIB

ROWS_AT_ONCE: Final = 40_000
"""Rows that are worked on together: large enough for vectors, small enough for caches. Parsers are
set up for each such piece: with 5,000 rows that takes a third of the time."""

BYTES_AT_ONCE: Final = 16 * MIB
"""Bytes that are worked on together; a parser needs many times their memory."""

BYTES_IN_PIECE: Final = 256 * MIB
"""Bytes of a range that are in memory together."""


class Quarantined(msgspec.Struct, frozen=True):
    """A message that is no reading, with all that is needed to mend it and send it again."""

    partition: int
    offset: int
    id: str
    body: bytes | None
    sender: str | None
    content_type: str | None
    received: int
    """Microseconds since 1970."""
    reasons: tuple[Reason, ...]
    stage: str = STAGE


class Checked(NamedTuple):
    """Messages after `validate` and `analyse`."""

    read: int
    good: list[pa.RecordBatch]
    quarantined: list[Quarantined]
    events: pa.Table


class Made(NamedTuple):
    """Rows after `transform`, and what tells them apart."""

    rows: pa.Table
    """With `_partition`, `_offset` and `_id` of their messages beside them."""
    marks: Marks


BESIDE: Final = ("_partition", "_offset", "_id")


def check(
    dataset: Dataset, raws: Iterable[pa.RecordBatch], *, ranges: bool = True, limits: Any = None
) -> Checked:
    """Validates and analyses. Pure, as `make`: the same messages give the same outcome."""
    read = 0
    good: list[pa.RecordBatch] = []
    events: list[pa.RecordBatch] = []
    quarantined: list[Quarantined] = []
    for raw in coalesced(raws):
        read += len(raw)
        checked = dataset.validate(raw, ranges=ranges)
        good.append(checked.good)
        found = dataset.analyse(checked.good, limits)
        if len(found):
            events.append(found)
        quarantined += [_quarantined(raw, each.row, each.reasons) for each in checked.refused]
    return Checked(read, good, quarantined, pa.Table.from_batches(events, schema=EVENTS))


def make(dataset: Dataset, good: Iterable[pa.RecordBatch]) -> Made:
    """Transforms valid messages into rows."""
    parts: list[pa.RecordBatch] = []
    marks: list[Marks] = []
    for each in good:
        rows = dataset.transform(each)
        marks.append(marks_of(rows, dataset))
        for name in BESIDE:
            rows = rows.append_column(name, each.column(name))
        parts.append(rows)
    table = pa.Table.from_batches(parts, schema=_beside(dataset))
    if not parts:
        return Made(table, marks_of(table.select(dataset.schema.names), dataset))
    moments = np.concatenate([each.moment for each in marks])
    return Made(table, Marks(lambda: np.concatenate([each.content for each in marks]), moments))


def coalesced(raws: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Small batches joined, large ones cut: by rows, and by bytes where rows are long."""
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for raw in raws:
        own = raw.nbytes
        if not count and (len(raw) >= ROWS_AT_ONCE or own >= BYTES_AT_ONCE):
            yield from _pieces(raw)  # as it is: nothing is copied
            continue
        waiting.append(raw)
        count += len(raw)
        size += own
        if count >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield from _cut(waiting)
            waiting, count, size = [], 0, 0
    if count:
        yield from _cut(waiting)


def pieces(raws: Iterable[pa.RecordBatch], rows_max: int) -> Iterator[list[pa.RecordBatch]]:
    """The batches in groups of about `rows_max` rows, or fewer long ones; none is cut."""
    found: list[pa.RecordBatch] = []
    count = size = 0
    for raw in raws:
        found.append(raw)
        count += len(raw)
        size += raw.nbytes
        if count >= rows_max or size >= BYTES_IN_PIECE:
            yield found
            found, count, size = [], 0, 0
    if found:
        yield found


def _cut(raws: list[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    table = pa.Table.from_batches(raws).combine_chunks()
    for each in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        yield from _halved(each)


def _pieces(raw: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """A large batch in equal parts."""
    parts = -(-len(raw) // ROWS_AT_ONCE)
    size = -(-len(raw) // parts)
    for start in range(0, len(raw), size):
        yield from _halved(raw.slice(start, size))


def _halved(raw: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """Cut until every part is small enough, or one message."""
    if len(raw) < 2 or raw.nbytes <= BYTES_AT_ONCE:  # noqa: PLR2004 - halves
        yield raw
        return
    half = len(raw) // 2
    yield from _halved(raw.slice(0, half))
    yield from _halved(raw.slice(half))


def _beside(dataset: Dataset) -> pa.Schema:
    return pa.schema(
        [
            *dataset.schema,
            pa.field("_partition", pa.int32()),
            pa.field("_offset", pa.int64()),
            pa.field("_id", pa.string()),
        ]
    )


def _quarantined(raw: pa.RecordBatch, row: int, reasons: tuple[Reason, ...]) -> Quarantined:
    (one,) = (
        raw.slice(row, 1)
        .cast(
            pa.schema(
                [
                    field.with_type(pa.int64()) if field.name == "received" else field
                    for field in raw.schema
                ]
            )
        )
        .to_pylist()
    )
    return Quarantined(
        one["partition"], one["offset"], one["id"], one["body"], one["sender"],
        one["content_type"], one["received"], reasons,
    )  # fmt: skip
