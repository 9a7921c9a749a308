"""A look over a whole table: gaps, clashes and order, which no single row can show.

A table keeps when a reading arrived, not its offset: rows that arrived in the same microsecond, as
those of one request do, are taken to have come in the order of their own times.
"""

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.repositories.files import read_file
from penstock.pipeline.repositories.known import marks_of
from penstock.pipeline.repositories.port import TableStorage

Numbers = np.ndarray[Any, np.dtype[Any]]

GAP_FACTOR: Final = 3.0
"""A step this many times the usual one is a gap."""
SHOWN_MAX: Final = 100
"""Gaps, and steps backwards, of one device and pack that are told one by one: the longest."""


class Step(msgspec.Struct, frozen=True):
    """From one reading to the next."""

    before: str
    after: str
    seconds: float


class Series(msgspec.Struct, frozen=True):
    """The readings of one device and pack."""

    keys: tuple[str, ...]
    rows: int
    first: str
    last: str
    usual_step_s: float
    gaps: int
    longest_gap_s: float
    clashes: int
    """Rows whose moment another row has too."""
    backwards: int
    """Steps into the past, in the order in which the rows arrived."""
    gap_steps: list[Step]
    """The longest gaps, longest first."""
    backward_steps: list[Step]
    """The farthest steps back, farthest first."""


class Checked(msgspec.Struct, frozen=True):
    """What a look over a table found."""

    rows: int
    duplicates: int
    """Rows that say exactly what another says: 0 unless something is broken."""
    series: list[Series]


def check_table(storage: TableStorage) -> Checked:
    """Looks at every row of a table."""
    dataset = storage.dataset
    columns = [*dataset.keys, "time_event", "time_processing"]
    parts: list[pa.Table] = []
    contents: list[Numbers] = []
    for file in storage.files():
        rows = read_file(storage.root, dataset, file)
        contents.append(marks_of(rows, dataset).content)
        parts.append(rows.select(columns))
    if not parts:
        return Checked(0, 0, [])
    table = pa.concat_tables(parts)
    different = len(np.unique(np.concatenate(contents), axis=0))
    return Checked(len(table), len(table) - different, series_of(table, dataset))


def series_of(table: pa.Table, dataset: Dataset) -> list[Series]:
    """Each device and pack with its steps and gaps."""
    names = [*dataset.keys, "time_event"]
    ordered = table.sort_by([(name, "ascending") for name in names]).combine_chunks()
    times = np.asarray(ordered.column("time_event").cast(pa.int64()))
    arrivals = np.asarray(ordered.column("time_processing").cast(pa.int64()))
    is_first = np.zeros(len(times), np.bool_)
    is_first[:1] = True
    for key in dataset.keys:
        codes = np.asarray(ordered.column(key).combine_chunks().dictionary_encode().indices)
        is_first[1:] |= codes[1:] != codes[:-1]
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(times))
    found = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        keys = tuple(ordered.column(key)[start].as_py() for key in dataset.keys)
        found.append(_series(keys, times[start:end], arrivals[start:end]))
    return found


def _series(keys: tuple[str, ...], times: Numbers, arrivals: Numbers) -> Series:
    steps = np.diff(times) / 1e6
    moves = steps[steps > 0]
    usual = float(np.median(moves)) if len(moves) else 0.0
    is_gap = steps > usual * GAP_FACTOR
    gaps = _steps(times, is_gap)
    # Sorted by time already: a stable sort leaves what arrived together in that order.
    came = times[np.argsort(arrivals, kind="stable")]
    is_back = np.diff(came) < 0
    return Series(
        keys, len(times), _shown(times[0]), _shown(times[-1]), usual, int(is_gap.sum()),
        gaps[0].seconds if gaps else 0.0, int((steps == 0).sum()), int(is_back.sum()),
        gaps, _steps(came, is_back),
    )  # fmt: skip


def _steps(times: Numbers, is_one: Numbers) -> list[Step]:
    """The steps that are one, the largest first."""
    places = np.flatnonzero(is_one)
    seconds = np.diff(times)[places] / 1e6
    order = np.argsort(-np.abs(seconds), kind="stable")[:SHOWN_MAX]
    return [
        Step(_shown(times[at]), _shown(times[at + 1]), float(size))
        for at, size in zip(places[order].tolist(), seconds[order].tolist(), strict=True)
    ]


def _shown(us: Any) -> str:
    return f"{np.datetime64(int(us), 'us')}Z"
