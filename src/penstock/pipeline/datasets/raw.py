"""What a batch of messages is before validation: bodies, and what their headers say about them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from penstock.pipeline.datasets.moments import EPOCH, STAMP

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
RECEIVED: Final = "received-at"
SENDER: Final = "source"


def raw_batch(
    bodies: Sequence[bytes | None],
    *,
    ids: Sequence[str] | None = None,
    headers: Sequence[dict[str, str] | None] | None = None,
    published_ms: Sequence[int] | int = 0,
    partition: int = 0,
    offsets: Sequence[int] | None = None,
) -> pa.RecordBatch:
    """Messages of one partition as one batch."""
    count = len(bodies)
    told = headers or ()
    senders = [each.get(SENDER) if each else None for each in told] or [None] * count
    kinds = [each.get("content-type") if each else None for each in told] or [None] * count
    times = [published_ms] * count if isinstance(published_ms, int) else published_ms
    received = [each * 1000 for each in times]
    known: dict[str, int | None] = {}
    for at, each in enumerate(told):
        text = each.get(RECEIVED) if each else None
        if text is None:
            continue
        if text not in known:
            known[text] = moment_of(text)
        received[at] = received[at] if (found := known[text]) is None else found
    return pa.record_batch(
        [
            pa.array(bodies, pa.binary()),
            pa.array(ids if ids is not None else [""] * count, pa.string()),
            pa.array(senders, pa.string()),
            pa.array(kinds, pa.string()),
            pa.array(received, pa.int64()).cast(STAMP),
            pa.array([partition] * count, pa.int32()),
            pa.array(offsets if offsets is not None else range(count), pa.int64()),
        ],
        schema=RAW,
    )


def moment_of(text: str) -> int | None:
    """The microseconds of an ISO 8601 moment with a zone, or None."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if found.tzinfo is None:
        return None
    return (found - EPOCH) // timedelta(microseconds=1)


def moment_text(us: int) -> str:
    """The same as text: `2020-02-10T08:00:06.032000Z`."""
    found = EPOCH + timedelta(microseconds=us)
    return found.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
