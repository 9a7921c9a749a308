"""A look over a whole table: gaps and clashes that no single row can show."""

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


class Checked(msgspec.Struct, frozen=True):
    """What a look over a table found."""

    rows: int
    duplicates: int
    """Rows that say exactly what another says: 0 unless something is broken."""
    series: list[Series]


def check_table(storage: TableStorage) -> Checked:
    """Looks at every row of a table."""
    dataset = storage.dataset
    columns = [*dataset.keys, "time_event"]
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
        found.append(_series(keys, times[start:end]))
    return found


def _series(keys: tuple[str, ...], times: Numbers) -> Series:
    steps = np.diff(times) / 1e6
    moves = steps[steps > 0]
    usual = float(np.median(moves)) if len(moves) else 0.0
    gaps = moves[moves > usual * GAP_FACTOR]
    return Series(
        keys, len(times), _shown(times[0]), _shown(times[-1]), usual, len(gaps),
        float(gaps.max()) if len(gaps) else 0.0, int((steps == 0).sum()),
    )  # fmt: skip


def _shown(us: Any) -> str:
    return f"{np.datetime64(int(us), 'us')}Z"
