"""Rows into Parquet files: the part of a write that workers do, each on its own.

A file holds rows of one day, sorted by device, pack and time. Its name is unique to the attempt:
a file nobody commits is never part of a table.
"""

import os
import secrets
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.datasets import table
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.raw import moment_text
from penstock.pipeline.repositories.syncing import make_folder, sync_folders, writing

COMPRESSION: Final = "zstd"
ROW_GROUP_ROWS: Final = 200_000
FILE_ROWS_MAX: Final = 2_000_000


class DataFile(msgspec.Struct, frozen=True):
    """A file of a table: where it is, and what a reader may know without opening it."""

    path: str
    """Relative to the table: `day=2020-02-10/….parquet`."""
    day: str
    rows: int
    size: int
    time_min: int
    """Microseconds since 1970, as `time_max`."""
    time_max: int
    """No row is later; the latest may be earlier, where a log has milliseconds."""
    keys_min: tuple[str, ...] = ()
    keys_max: tuple[str, ...] = ()

    def overlaps(self, day: str, first: int, last: int) -> bool:
        """True when rows of this day and time may be in the file."""
        return self.day == day and self.time_min <= last and self.time_max >= first


def write_files(root: str, staging: str, dataset: Dataset, rows: pa.Table) -> list[DataFile]:
    """Writes rows as files, one for each day, and syncs them."""
    found: list[DataFile] = []
    folders: set[str] = set()
    for day, part in by_day(rows):
        for start in range(0, len(part), FILE_ROWS_MAX):
            piece = part.slice(start, FILE_ROWS_MAX)
            found.append(_write(Path(root), staging, dataset, day, piece))
            folders.add(str((Path(root) / staging / found[-1].path).parent))
    sync_folders(folders)
    return found


def by_day(rows: pa.Table) -> list[tuple[str, pa.Table]]:
    """The rows of each day."""
    if not len(rows):
        return []
    days = rows.column(table.DAY)
    known = sorted(pc.unique(days).to_pylist())
    if len(known) == 1:
        return [(known[0].isoformat(), rows)]
    return [
        (day.isoformat(), rows.filter(pc.equal(days, pa.scalar(day, pa.date32())))) for day in known
    ]


def _write(root: Path, staging: str, dataset: Dataset, day: str, rows: pa.Table) -> DataFile:
    rows = rows.combine_chunks()
    rows = table.taken(rows, np.asarray(table.in_order(rows, dataset.keys)).astype(np.int64))
    name = f"day={day}/part-{secrets.token_hex(12)}.parquet"
    place = root / staging / name
    with writing(place.parent):
        make_folder(place.parent)
    with writing(place), place.open("wb") as file:
        pq.write_table(
            rows.drop_columns([table.DAY]), file, compression=COMPRESSION, use_dictionary=False,
            row_group_size=ROW_GROUP_ROWS, write_statistics=[*dataset.keys, "time_event"],
        )  # fmt: skip
        file.flush()
        os.fsync(file.fileno())
    return described(rows, dataset, name, day, place.stat().st_size)


def described(rows: pa.Table, dataset: Dataset, path: str, day: str, size: int) -> DataFile:
    """What is known about a file of these rows."""
    times = np.asarray(rows.column("time_event").cast(pa.int64()))
    ends = [pc.min_max(rows.column(key)).as_py() for key in dataset.keys]
    return DataFile(
        path, day, len(rows), size, int(times.min()), int(times.max()),
        tuple(each["min"] for each in ends), tuple(each["max"] for each in ends),
    )  # fmt: skip


def read_file(
    root: str, dataset: Dataset, file: DataFile, columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of a file, as the table has them; all columns, or some without the day."""
    own = pq.ParquetFile(Path(root) / file.path).read(columns)
    if columns is not None:
        wanted = pa.schema([dataset.schema.field(name) for name in columns])
        return own.select(columns).cast(wanted)
    if table.DAY in own.column_names:  # written by Spark
        own = own.drop_columns([table.DAY])
    day = pa.array([date.fromisoformat(file.day)] * len(own), pa.date32())
    return (
        own.append_column(pa.field(table.DAY, pa.date32()), day)
        .select(dataset.schema.names)
        .cast(dataset.schema)
    )


def stats_of(file: DataFile, dataset: Dataset) -> dict[str, Any]:
    """The statistics a Delta log keeps about a file."""
    low: dict[str, Any] = dict(zip(dataset.keys, file.keys_min, strict=True))
    high: dict[str, Any] = dict(zip(dataset.keys, file.keys_max, strict=True))
    low["time_event"], high["time_event"] = moment_text(file.time_min), moment_text(file.time_max)
    return {
        "numRecords": file.rows,
        "minValues": low,
        "maxValues": high,
        "nullCount": dict.fromkeys(low, 0),
    }
