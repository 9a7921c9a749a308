"""Messages as the columns of a Spark source: as they are, or as rows of a dataset."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.batch import Batch
from penstock.batch.frame import Frame
from penstock.client.reader import ReadBatch
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.reading import raw_of
from penstock.pipeline.work import coalesced
from penstock.vocabulary.errors import InvalidArgument

STAMP: Final = pa.timestamp("us", "UTC")
BODIES: Final = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("body", pa.binary()),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        pa.field("published_at", STAMP),
    ]
)
"""The columns of emit=bodies. An absent body is null, an empty one is not."""
BESIDE: Final = (
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_id", pa.string()),
    pa.field("_reasons", pa.string()),
    pa.field("_body", pa.binary()),
)
"""What emit=typed has beside the columns of the dataset. `_reasons` and `_body` are null, except
for a message that is no reading: of that one they are all there is."""
ROWS_AT_ONCE: Final = 10_000
"""Rows that are handed to Spark together."""


def typed_schema(dataset: Dataset) -> pa.Schema:
    """The columns of emit=typed."""
    return pa.schema([*dataset.schema, *BESIDE])


def chosen(schema: pa.Schema, names: Sequence[str] | None) -> pa.Schema:
    """Some of the columns, in the order asked for. Raises InvalidArgument."""
    if names is None:
        return schema
    for name in names:
        if name not in schema.names:
            known = ", ".join(schema.names)
            raise InvalidArgument(f"option columns: there is no {name!r}; known: {known}")
    return pa.schema([schema.field(name) for name in names])


def bodies(batches: Iterable[ReadBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Messages as they are stored, in the columns of `schema`."""
    for batch in batches:
        for frame in batch.frames:
            yield from _cut(_plain(batch.partition, frame, schema))


def typed(
    batches: Iterable[ReadBatch], dataset: Dataset, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows of a dataset, and messages that are no readings with the reasons why."""
    raws = (raw for batch in batches for raw in raw_of(batch))
    for raw in coalesced(raws):
        found = dataset.validate(raw)
        rows = dataset.transform(found.good)
        for name in ("_partition", "_offset", "_id"):
            rows = rows.append_column(name, found.good.column(name))
        count = len(rows)
        rows = rows.append_column("_reasons", pa.nulls(count, pa.string()))
        rows = rows.append_column("_body", pa.nulls(count, pa.binary()))
        if count:
            yield from _cut(rows.select(schema.names))
        if found.refused:
            yield from _cut(_refused(raw, found.refused, dataset).select(schema.names))


def _refused(raw: pa.RecordBatch, refused: Sequence[Any], dataset: Dataset) -> pa.RecordBatch:
    given = raw.take(pa.array([each.row for each in refused]))
    reasons = [msgspec.json.encode(each.reasons).decode() for each in refused]
    empty = [pa.nulls(len(refused), field.type) for field in dataset.schema]
    beside = [
        given.column("partition"), given.column("offset"), given.column("id"),
        pa.array(reasons, pa.string()), given.column("body"),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays([*empty, *beside], schema=typed_schema(dataset))


def _plain(partition: int, frame: Frame, schema: pa.Schema) -> pa.RecordBatch:
    """One stored batch; only the columns asked for are decoded."""
    view = Batch(frame.batch, verify=False)
    makers = {
        "partition": lambda: pa.array([partition] * len(frame.offsets), pa.int32()),
        "offset": lambda: pa.array(frame.offsets, pa.int64()),
        "id": lambda: pa.array([frame.id_of(view, at) for at in frame.indexes], pa.string()),
        "key": lambda: _keys(_picked(view.keys, frame, view.count)),
        "body": lambda: pa.array(_picked(view.bodies, frame, view.count), pa.binary()),
        "headers": lambda: _headers(_picked(view.headers, frame, view.count)),
        "published_at": lambda: _times(view, frame),
    }
    return pa.RecordBatch.from_arrays([makers[name]() for name in schema.names], schema=schema)


def _picked(values: Sequence[Any] | None, frame: Frame, count: int) -> Sequence[Any]:
    indexes = frame.indexes
    if values is None:
        return [None] * len(indexes)
    return values if len(indexes) == count else [values[index] for index in indexes]


def _keys(values: Sequence[bytes | str | None]) -> pa.Array:
    plain = [each.encode() if isinstance(each, str) else each for each in values]
    return pa.array(plain, pa.binary())


def _headers(values: Sequence[dict[str, str] | None]) -> pa.Array:
    ends = [0]
    names: list[str] = []
    texts: list[str] = []
    for each in values:
        if each:
            names += each.keys()
            texts += each.values()
        ends.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(ends, pa.int32()), pa.array(names, pa.string()), pa.array(texts, pa.string())
    )


def _times(view: Batch, frame: Frame) -> pa.Array:
    own = view.published_at
    if own is None:
        times = [frame.published_at * 1000] * len(frame.indexes)
    else:
        times = [int(own[index]) * 1000 for index in frame.indexes]
    return pa.array(times, pa.int64()).cast(STAMP)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(batch), ROWS_AT_ONCE):
        yield batch.slice(start, ROWS_AT_ONCE)
