"""What `analyse` finds in a valid row: events, each with the value and the limit it crossed."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.pipeline.datasets.moments import STAMP

NumberArray = np.ndarray[Any, np.dtype[Any]]

RULE_COUNT_MAX: Final = 1_024
"""Rules a dataset may have: the number of a rule is the lower part of a sequence."""
EVENTS: Final = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("severity", pa.string()),
        pa.field("device", pa.string()),
        pa.field("pack", pa.string()),
        pa.field("time_event", STAMP),
        pa.field("path", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("limit", pa.float64()),
        pa.field("_number", pa.int32()),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
    ]
)
"""Columns with an underscore say where the event comes from; they are not part of its message."""
PUBLIC: Final = tuple(name for name in EVENTS.names if not name.startswith("_"))


class Rule(NamedTuple):
    """A kind of event. Its number never changes and is never used again."""

    number: int
    id: str
    severity: str


CONFLICT: Final = Rule(1, "time.conflict", "warning")
"""Two different readings of one device and pack at one moment; every dataset has it."""


class Finding(NamedTuple):
    """The rows of a batch where a rule fires, once for each row."""

    rule: Rule
    rows: NumberArray
    paths: Sequence[str]
    values: Sequence[float | None]
    limit: float | None = None


def fired(
    rule: Rule, is_hit: NumberArray, path: str, values: NumberArray, limit: float | None
) -> Finding:
    """A finding about one path."""
    rows = np.flatnonzero(is_hit)
    return Finding(rule, rows, [path] * len(rows), values[rows].astype(float).tolist(), limit)


def worst(rule: Rule, columns: dict[str, NumberArray], limit: float) -> Finding:
    """A finding about the largest of several values of a row, where it is above the limit."""
    paths = list(columns)
    table = np.column_stack([columns[path] for path in paths])
    at = table.argmax(axis=1)
    values = table[np.arange(len(table)), at]
    rows = np.flatnonzero(values > limit)
    return Finding(rule, rows, [paths[each] for each in at[rows]], values[rows].tolist(), limit)


def as_events(
    good: pa.RecordBatch, device: str, pack: str | None, findings: Iterable[Finding]
) -> pa.RecordBatch:
    """The findings as events, in the order of the rows, then of the rules."""
    parts = []
    for each in findings:
        number, id, _ = each.rule
        assert CONFLICT.number < number < RULE_COUNT_MAX, (
            f"rule {id!r} has the number {number}: they are 2 to {RULE_COUNT_MAX - 1}"
        )
        if len(each.rows):
            parts.append(_events(good, device, pack, each))
    if not parts:
        return pa.RecordBatch.from_pylist([], EVENTS)
    table = pa.Table.from_batches(parts)
    found = table.sort_by(
        [("_partition", "ascending"), ("_offset", "ascending"), ("_number", "ascending")]
    )
    return found.combine_chunks().to_batches()[0]


def _events(
    good: pa.RecordBatch, device: str, pack: str | None, finding: Finding
) -> pa.RecordBatch:
    rows = good.take(pa.array(finding.rows))
    count = len(rows)
    number, id, severity = finding.rule
    return pa.RecordBatch.from_arrays(
        [
            pa.array([f"{each}/{id}" for each in rows.column("_id").to_pylist()], pa.string()),
            pa.array([id] * count, pa.string()),
            pa.array([severity] * count, pa.string()),
            rows.column(device),
            pa.nulls(count, pa.string()) if pack is None else rows.column(pack),
            rows.column("time_event"),
            pa.array(finding.paths, pa.string()),
            pa.array(finding.values, pa.float64()),
            pa.array([finding.limit] * count, pa.float64()),
            pa.array([number] * count, pa.int32()),
            rows.column("_partition"),
            rows.column("_offset"),
        ],
        schema=EVENTS,
    )


def conflicts(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """An event for each of these rows: their device, pack and moment were there before."""
    count = len(rows)
    number, id, severity = CONFLICT
    pack = rows.column(keys[1]) if len(keys) > 1 else pa.nulls(count, pa.string())
    return pa.Table.from_arrays(
        [
            pa.array([f"{each}/{id}" for each in rows.column("_id").to_pylist()], pa.string()),
            pa.array([id] * count, pa.string()),
            pa.array([severity] * count, pa.string()),
            rows.column(keys[0]),
            pack,
            rows.column("time_event"),
            pa.array(["time_local"] * count, pa.string()),
            pa.nulls(count, pa.float64()),
            pa.nulls(count, pa.float64()),
            pa.array([number] * count, pa.int32()),
            rows.column("_partition"),
            rows.column("_offset"),
        ],
        schema=EVENTS,
    )
