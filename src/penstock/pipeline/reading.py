"""Messages as a reader gives them, into the columns `validate` takes."""

import pyarrow as pa

from penstock.batch import Batch
from penstock.batch.frame import Frame
from penstock.client.reader import ReadBatch
from penstock.pipeline.datasets.raw import raw_batch


def raw_of(batch: ReadBatch) -> list[pa.RecordBatch]:
    """One raw batch for each stored batch."""
    return [_raw(batch.partition, frame) for frame in batch.frames]


def _raw(partition: int, frame: Frame) -> pa.RecordBatch:
    view = Batch(frame.batch, verify=False)
    indexes = frame.indexes
    bodies, headers, given = view.bodies, view.headers, view.ids
    if len(indexes) != view.count:
        bodies = [bodies[index] for index in indexes]
        headers = None if headers is None else [headers[index] for index in indexes]
    if given is not None and len(indexes) == view.count and None not in given:
        ids = [id for id in given if id is not None]
    else:
        ids = [frame.id_of(view, index) for index in indexes]
    published = view.published_at
    times = (
        frame.published_at if published is None else [int(published[index]) for index in indexes]
    )
    return raw_batch(
        bodies, ids=ids, headers=headers, published_ms=times, partition=partition,
        offsets=frame.offsets,
    )  # fmt: skip
