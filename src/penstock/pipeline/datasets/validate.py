"""Splits a batch of messages into typed rows and refused ones, with every reason."""

import logging
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.datasets import fast, moments
from penstock.pipeline.datasets.csv_rows import CsvForm
from penstock.pipeline.datasets.raw import CSV, csv_columns
from penstock.pipeline.datasets.shape import Number, Numbers, Shape, Text, Time, Whole
from penstock.pipeline.datasets.strict import Judge, Reason, Values, short

log = logging.getLogger("penstock.pipeline")

STAGE: Final = "validate"


class Refused(NamedTuple):
    """A message that is not a reading: its number in the batch, and why."""

    row: int
    reasons: tuple[Reason, ...]


class Validated(NamedTuple):
    """The readings, in order, and the rest.

    `good` has a column for each path of the shape, with a time as `time_event` and `time_zone`;
    and `_row` (the number in the batch), `_id`, `_sender`, `_time_processing`, `_partition`,
    `_offset`.
    """

    good: pa.RecordBatch
    refused: list[Refused]


class Validator:
    """Validates bodies of one shape."""

    def __init__(self, shape: Shape, csv: CsvForm | None = None) -> None:
        times = [leaf.path for leaf in shape.leaves if isinstance(leaf.field, Time)]
        assert times == ["time_local"], "a body has one time, its key `time_local`"
        self._shape = shape
        self._judge = Judge(shape)
        self._csv = csv

    def validate(self, raw: pa.RecordBatch, *, ranges: bool = True) -> Validated:
        """Judges every message; `ranges=False` leaves range rules out."""
        parsed = self._parsed(raw.column("body"), ranges=ranges)
        is_sure = parsed.is_sure
        kinds = raw.column("content_type")
        if kinds.null_count < len(kinds):
            is_sure &= ~np.asarray(pc.starts_with(pc.fill_null(kinds, ""), CSV))
        if is_sure.all():
            return Validated(_typed(self._shape, parsed.columns, raw, None), [])
        saved, refused = self._second_look(raw, np.flatnonzero(~is_sure).tolist(), ranges=ranges)
        rows = np.flatnonzero(is_sure)
        picked = {path: column.take(pa.array(rows)) for path, column in parsed.columns.items()}
        if saved:
            rows, picked = _merged(self._shape, rows, picked, saved)
        return Validated(_typed(self._shape, picked, raw, rows), refused)

    def _parsed(self, bodies: pa.BinaryArray, *, ranges: bool) -> fast.Parsed:
        """What the fast parser is sure of. When it fails, that is nothing: the judge reads all."""
        try:
            return fast.parse(self._shape, bodies, ranges=ranges)
        except Exception:
            log.exception("%s bodies are read one by one: the fast parser failed", len(bodies))
            return fast.Parsed(_built(self._shape, []), np.zeros(len(bodies), np.bool_))

    def _second_look(
        self, raw: pa.RecordBatch, rows: list[int], *, ranges: bool
    ) -> tuple[dict[int, Values], list[Refused]]:
        """What the strict judge says about the bodies that are not certainly right."""
        saved: dict[int, Values] = {}
        refused: list[Refused] = []
        bodies, kinds = raw.column("body"), raw.column("content_type")
        for row in rows:
            kind = kinds[row].as_py()
            body = bodies[row].as_py()
            if kind is not None and kind.startswith(CSV):
                found: Values | list[Reason] = self._wrong_row(body or b"", kind)
            else:
                found = self._judge.judge(body, ranges=ranges)
            if isinstance(found, dict):
                saved[row] = found
            else:
                refused.append(Refused(row, tuple(found)))
        return saved, refused

    def _wrong_row(self, raw: bytes, kind: str) -> list[Reason]:
        """Why a row of a CSV is no reading: had it been one, it would have come as JSON."""
        form = self._csv or CsvForm((), lambda _: {})
        wrong = form.wrong(raw, csv_columns(kind, form.columns))
        return [Reason(*map(short, each)) for each in wrong]


def _merged(
    shape: Shape, rows: Any, columns: dict[str, pa.Array], saved: dict[int, Values]
) -> tuple[Any, dict[str, pa.Array]]:
    """Both kinds of good rows in the order of the batch."""
    more = _built(shape, list(saved.values()))
    all_rows = np.concatenate([rows, np.fromiter(saved, np.int64, len(saved))])
    order = np.argsort(all_rows, kind="stable")
    indexes = pa.array(order)
    joined = {
        path: pa.concat_arrays([column, more[path]]).take(indexes)
        for path, column in columns.items()
    }
    return all_rows[order], joined


def _built(shape: Shape, values: list[Values]) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    for path, field in shape.leaves:
        found = [each[path] for each in values]
        match field:
            case Time():
                columns[path] = pa.array([each.us for each in found], pa.int64())
                columns[f"{path}.offset"] = pa.array([each.offset for each in found], pa.int16())
            case Text():
                columns[path] = pa.array(found, pa.string())
            case Number():
                columns[path] = pa.array(found, pa.float64())
            case Whole():
                columns[path] = pa.array(found, pa.int64())
            case Numbers():
                columns[path] = pa.array(found, pa.list_(pa.float64()))
            case _:
                columns[path] = pa.array(found, pa.list_(pa.int64()))
    return columns


def _typed(
    shape: Shape, columns: dict[str, pa.Array], raw: pa.RecordBatch, rows: Any
) -> pa.RecordBatch:
    """The typed batch: values, the moment, and what the messages say about themselves."""
    arrays: dict[str, pa.Array] = {}
    for path, field in shape.leaves:
        match field:
            case Time():
                arrays["time_event"] = columns[path].cast(moments.STAMP)
                arrays["time_zone"] = moments.zones(np.asarray(columns[f"{path}.offset"]))
            case Number() | Numbers():
                arrays[path] = _without_negative_zero(columns[path])
            case _:
                arrays[path] = columns[path]
    picked = raw if rows is None else raw.take(pa.array(rows, pa.int64()))
    numbers = np.arange(len(raw)) if rows is None else rows
    arrays |= {
        "_row": pa.array(numbers, pa.int64()),
        "_id": picked.column("id"),
        "_sender": picked.column("sender"),
        "_time_processing": picked.column("received"),
        "_partition": picked.column("partition"),
        "_offset": picked.column("offset"),
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _without_negative_zero(array: pa.Array) -> pa.Array:
    if pa.types.is_list(array.type):
        values = array.flatten().to_numpy(zero_copy_only=False) + 0.0
        sizes = np.asarray(pc.list_value_length(array))
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(values))
    return pa.array(array.to_numpy(zero_copy_only=False) + 0.0)
