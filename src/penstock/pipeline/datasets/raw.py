"""What a batch of messages is before validation: bodies, and what their headers say about them."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.pipeline.datasets.moments import END_US, EPOCH, FIRST_US, STAMP

RAW: Final = pa.schema(
    [
        pa.field("body", pa.binary()),
        pa.field("id", pa.string()),
        pa.field("sender", pa.string()),
        pa.field("content_type", pa.string()),
        pa.field("received", STAMP),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
    ]
)
"""The columns `validate` takes. `received` is the header `received-at`, else the publish time."""
CSV: Final = "text/csv"
_COLUMNS: Final = re.compile(r'; columns="([^"]*)"')
RECEIVED: Final = "received-at"
SENDER: Final = "source"

Headers = dict[str, str] | None


class Told(NamedTuple):
    """The headers of many messages: the different ones, and which of them each message has."""

    different: list[Headers]
    which: np.ndarray[Any, np.dtype[Any]]


def told(headers: Sequence[Headers]) -> Told:
    """Headers message by message."""
    known: dict[tuple[tuple[str, str], ...], int] = {}
    which = [known.setdefault(tuple((each or {}).items()), len(known)) for each in headers]
    return Told([dict(each) for each in known], np.array(which, np.int64))


def raw_batch(
    bodies: Sequence[bytes | None],
    *,
    ids: Sequence[str] | pa.StringArray | None = None,
    headers: Sequence[Headers] | Told | None = None,
    published_ms: Sequence[int] | int = 0,
    partition: int = 0,
    offsets: Sequence[int] | None = None,
) -> pa.RecordBatch:
    """Messages of one partition as one batch."""
    count = len(bodies)
    said = headers if isinstance(headers, Told) else told(headers or [None] * count)
    which = pa.array(said.which)
    senders = pa.array([(each or {}).get(SENDER) for each in said.different], pa.string())
    kinds = pa.array([(each or {}).get("content-type") for each in said.different], pa.string())
    numbers: Any = range(count) if offsets is None else offsets
    if isinstance(numbers, range):
        numbers = np.arange(numbers.start, numbers.stop, numbers.step)
    return pa.record_batch(
        [
            pa.array(bodies, pa.binary()),
            pa.array(ids, pa.string()) if ids is not None else pa.array([""] * count, pa.string()),
            senders.take(which),
            kinds.take(which),
            _received(said, published_ms, count),
            pa.array(np.full(count, partition, np.int32)),
            pa.array(numbers, pa.int64()),
        ],
        schema=RAW,
    )


def _received(said: Told, published_ms: Sequence[int] | int, count: int) -> pa.Array:
    texts = [(each or {}).get(RECEIVED) for each in said.different]
    found = [None if text is None else moment_of(text) for text in texts]
    if None not in found and count:
        return pa.array(np.array(found, np.int64)[said.which]).cast(STAMP)
    published = np.broadcast_to(publish_times(np.asarray(published_ms, np.int64)), (count,))
    times = np.array([each or 0 for each in found], np.int64)[said.which]
    is_told = np.array([each is not None for each in found], np.bool_)[said.which]
    return pa.array(np.where(is_told, times, published)).cast(STAMP)


def publish_times(ms: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Milliseconds of publishes as microseconds; a clock beyond all calendars is at their end."""
    found: np.ndarray[Any, np.dtype[Any]] = np.clip(ms, FIRST_US // 1000, END_US // 1000) * 1000
    return found


def moment_of(text: str) -> int | None:
    """The microseconds of an ISO 8601 moment with a zone; None when it is none of years 1-9999."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if found.tzinfo is None:
        return None
    us = (found - EPOCH) // timedelta(microseconds=1)
    return us if FIRST_US <= us <= END_US else None


def moment_text(us: int) -> str:
    """The same as text: `2020-02-10T08:00:06.032000Z`."""
    found = EPOCH + timedelta(microseconds=us)
    return found.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def csv_type(columns: Sequence[str], usual: Sequence[str]) -> str:
    """The content type of a CSV row: with its columns, unless they are in the usual order."""
    return CSV if list(columns) == list(usual) else f'{CSV}; columns="{",".join(columns)}"'


def csv_columns(kind: str, usual: Sequence[str]) -> list[str]:
    """The columns of a CSV row of this content type."""
    found = _COLUMNS.search(kind)
    return found[1].split(",") if found else list(usual)
