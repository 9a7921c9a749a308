"""Many small files into few large ones, sorted again: the same rows, byte for byte."""

from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.pipeline.repositories.files import DataFile, read_file, write_files
from penstock.pipeline.repositories.port import TableStorage
from penstock.vocabulary.errors import StorageError

TARGET_BYTES: Final = 128 * 1024 * 1024
SMALL: Final = 0.5
"""A file below this part of the target is small."""


class Compacted(NamedTuple):
    """What a compaction did."""

    days: int
    files_before: int
    files_after: int
    rows: int
    vacuumed: int = 0
    """Files that no version needs any more, deleted."""


def chosen(files: list[DataFile], target_bytes: int = TARGET_BYTES) -> dict[str, list[DataFile]]:
    """The small files of each day that has more than one of them."""
    days: dict[str, list[DataFile]] = {}
    for file in sorted(files, key=lambda each: (each.day, each.time_min, each.path)):
        if file.size < target_bytes * SMALL:
            days.setdefault(file.day, []).append(file)
    return {day: small for day, small in days.items() if len(small) > 1}


def is_due(
    storage: TableStorage, target_bytes: int, files_max: int, after_s: float, now: float
) -> bool:
    """True when a day has so many small files, or several and one of them is as old as this.

    0 files = never; 0 seconds = only their number counts. `now` is Unix seconds.
    """
    if not files_max:
        return False
    days = chosen(storage.files(), target_bytes).values()
    if any(len(small) >= files_max for small in days):
        return True
    if not after_s:
        return False
    return any(_written(storage.root, file) <= now - after_s for small in days for file in small)


def _written(root: str, file: DataFile) -> float:
    """When a file was written; a file that is gone is left for those who need its rows."""
    try:
        return (Path(root) / file.path).stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def compact(storage: TableStorage, target_bytes: int = TARGET_BYTES) -> Compacted:
    """Merges small files, day by day, one commit for each group. The caller has the table's lock.

    Raises StorageError when the rows are not all there afterwards; then nothing was replaced.
    """
    days = before = after = rows = 0
    for small in chosen(storage.files(), target_bytes).values():
        days += 1
        for group in _groups(small, target_bytes):
            merged = pa.concat_tables(
                [read_file(storage.root, storage.dataset, file) for file in group]
            )
            if len(merged) != sum(file.rows for file in group):
                raise StorageError(
                    f"table {storage.root}: the files of {group[0].day} hold {len(merged)} rows, "
                    f"their log says {sum(file.rows for file in group)}"
                )
            added = write_files(storage.root, storage.staging(), storage.dataset, merged)
            storage.replace(group, added)
            before += len(group)
            after += len(added)
            rows += len(merged)
    return Compacted(days, before, after, rows)


def _groups(files: list[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Files that together make about one of the target size; a file left alone stays."""
    groups: list[list[DataFile]] = [[]]
    size = 0
    for file in files:
        if groups[-1] and size + file.size > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return [group for group in groups if len(group) > 1]
