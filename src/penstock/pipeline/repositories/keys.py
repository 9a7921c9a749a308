"""Row keys, for stores that have keys: `<type>#<id>[#<pack>]#<time>#<hash8 of what it says>`.

pms#PMS-01-001#0241#2020-02-10T08:00:06.032000Z#5f1c09e2

Keys of one device and pack sort by time. Two readings of one moment have different keys; the same
reading has the same key, however often and by whomever it was sent.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.datasets import table
from penstock.pipeline.datasets.dataset import Dataset

SEPARATOR: Final = "#"
TIME: Final = "%Y-%m-%dT%H:%M:%S"
HASH_DIGITS: Final = 8


def row_keys(dataset: Dataset, rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """The key of each row, as text. A `#` or `%` inside an id is written as `%23` or `%25`."""
    count = len(rows)
    if not count:
        return pa.array([], pa.string())
    own = rows.select(dataset.schema.names)
    digests = table.hashes(own)[:, 0]
    hashed = pa.array([f"{digest:016x}"[:HASH_DIGITS] for digest in digests.tolist()], pa.string())
    parts = [
        pa.array([dataset.name] * count, pa.string()),
        *(_escaped(_whole(own.column(name))) for name in dataset.keys),
        _times(_whole(own.column("time_event"))),
        hashed,
    ]
    return pc.binary_join_element_wise(*parts, SEPARATOR)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _escaped(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring(texts, "%", "%25")
    return pc.replace_substring(texts, SEPARATOR, "%23")


def _times(stamps: pa.Array) -> pa.Array:
    """Moments in UTC, all of one width, so that they sort as text."""
    texts = pc.strftime(stamps, format=TIME)
    ending = pa.scalar("Z", pa.string())
    # Arrow writes seconds with as many decimals as the type has: six.
    return pc.binary_join_element_wise(texts, ending, "")
