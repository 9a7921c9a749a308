"""Records as Spark's Kafka connector gives them, into the columns `validate` takes.

A record of ours says more about itself in headers of its own, as on every foreign broker:
`penstock-id`, `penstock-at` (milliseconds of the first publish), `penstock-body` = absent, and
`penstock-more`, JSON with the headers that a record cannot hold as they are.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.datasets.moments import STAMP
from penstock.pipeline.datasets.raw import RAW, RECEIVED, SENDER, moment_of, publish_times
from penstock.pipeline.spark import workers

RETURNED: Final = "outcome binary"
ID: Final = "penstock-id"
AT: Final = "penstock-at"
BODY: Final = "penstock-body"
MORE: Final = "penstock-more"
TYPE: Final = "content-type"
NAMES: Final = (ID, AT, BODY, MORE, TYPE, SENDER, RECEIVED)
"""The headers that are looked at."""
_MILLISECONDS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)

Numbers = np.ndarray[Any, np.dtype[Any]]


def selected(frame: Any) -> Any:
    """The connector's columns that `raw_of` takes: each header as a column of its own.

    Spark needs longer to turn the list of all headers into Arrow, even an empty one, than the
    connector needs to read a record.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the driver has Spark

    def first(name: str) -> Any:
        own = f.filter("headers", lambda each: each["key"] == name)
        return f.get(own, f.lit(0))["value"].alias(name)

    return frame.select("partition", "offset", "timestamp", "value", *map(first, NAMES))


def _texts(column: pa.Array) -> pa.Array:
    """The text of a header for each record, null where it is not."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:  # some program's header is no text
        given = column.to_pylist()
        texts = [None if each is None else each.decode(errors="replace") for each in given]
        return pa.array(texts, pa.string())


def raw_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records of one or more partitions as raw messages."""
    count = len(batch)
    said = {name: _texts(batch.column(name)) for name in NAMES}
    partition, offset = batch.column("partition"), batch.column("offset")
    ids = said[ID]
    places = pc.binary_join_element_wise(partition.cast(pa.string()), offset.cast(pa.string()), ":")
    more = said[MORE]
    sender, kind, received = said[SENDER], said[TYPE], said[RECEIVED]
    if more.null_count < count:
        sender = _from_more(sender, more, SENDER)
        kind = _from_more(kind, more, TYPE)
        received = _from_more(received, more, RECEIVED)
        ids = _from_more(ids, more, None)
    body = batch.column("value").cast(pa.binary())
    absent = pc.fill_null(pc.equal(said[BODY], "absent"), False)  # noqa: FBT003
    if pc.any(absent).as_py():
        body = pc.if_else(absent, pa.scalar(None, pa.binary()), body)
    times = _times(received, _published(batch.column("timestamp"), said[AT]))
    return pa.RecordBatch.from_arrays(
        [
            body, pc.coalesce(ids, places), sender, kind, times, partition.cast(pa.int32()),
            offset.cast(pa.int64()),
        ],
        schema=RAW,
    )  # fmt: skip


def _from_more(column: pa.Array, more: pa.Array, name: str | None) -> pa.Array:
    """A column with what `penstock-more` says instead; the name of a header, or None for the id."""
    found = column.to_pylist()
    for at, text in enumerate(more.to_pylist()):
        if text is None:
            continue
        try:
            tree = msgspec.json.decode(text, type=dict[str, Any])
            value = tree.get("id") if name is None else tree.get("headers", {}).get(name)
        except (msgspec.MsgspecError, AttributeError, RecursionError):
            continue
        if isinstance(value, str):
            found[at] = value
    return pa.array(found, pa.string())


def _published(stamps: pa.Array, first: pa.Array) -> Numbers:
    """Microseconds of each record's publish."""
    ms = np.asarray(stamps.cast(STAMP).cast(pa.int64())) // 1000
    if first.null_count < len(first):
        for at, text in enumerate(first.to_pylist()):
            if text is not None and _MILLISECONDS.fullmatch(text):
                ms[at] = int(text)
    return publish_times(ms)


def _times(received: pa.Array, published: Numbers) -> pa.Array:
    """`received-at` where it is a moment, else the publish time."""
    coded = received.dictionary_encode()
    known = [None if each is None else moment_of(each) for each in coded.dictionary.to_pylist()]
    if not known:
        return pa.array(published).cast(STAMP)
    which = np.asarray(pc.fill_null(coded.indices, 0)).astype(np.int64)
    told = np.array([each or 0 for each in known], np.int64)[which]
    is_told = np.array([each is not None for each in known], np.bool_)[which]
    is_told &= np.asarray(received.is_valid())
    return pa.array(np.where(is_told, told, published)).cast(STAMP)


# -- the work of a task -----------------------------------------------------------------------


def worked(plan: workers.Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark calls in a worker: the records of a task in, encoded outcomes out."""
    for outcome in outcomes_of(plan, batches, {}):
        data = pa.array([workers.encode(outcome)], pa.binary())
        yield pa.RecordBatch.from_arrays([data], names=["outcome"])


def outcomes_of(
    plan: workers.Plan, batches: Iterable[pa.RecordBatch], priors: workers.Priors
) -> Iterator[workers.Outcome]:
    """The work on records, partition by partition."""
    pieces = (piece for batch in batches for piece in by_partition(batch))
    for partition, group in groupby(pieces, key=lambda each: each[0]):
        seen = [2**62, -1]

        def raws(group: Any = group, seen: list[int] = seen) -> Iterator[pa.RecordBatch]:
            for _, piece in group:  # noqa: B031 - called once
                raw = raw_of(piece)
                ends = pc.min_max(raw.column("offset")).as_py()
                seen[:] = [min(seen[0], ends["min"]), max(seen[1], ends["max"])]
                yield raw

        done = workers.work_messages(plan, partition, 0, 0, raws(), priors)
        yield msgspec.structs.replace(done, start=seen[0], end=seen[1] + 1)


def by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The records of each partition, in their order."""
    if not len(batch):
        return
    partitions = np.asarray(batch.column("partition"))
    cuts = np.flatnonzero(np.diff(partitions)) + 1
    starts = [0, *cuts.tolist()]
    for start, end in zip(starts, [*starts[1:], len(batch)], strict=True):
        yield int(partitions[start]), batch.slice(start, end - start)
