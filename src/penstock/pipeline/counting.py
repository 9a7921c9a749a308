"""Where the messages of a pipeline went: counted for each batch, and written down.

The line of a batch is written before its tables are committed, so that no stored batch is without
one. A batch that is done again says the same again and counts once.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.pipeline.refusals import CountsDiffer
from penstock.pipeline.repositories.files import DataFile
from penstock.pipeline.repositories.port import WriteId
from penstock.pipeline.repositories.syncing import sync_folders, write_whole, writing

COUNTS: Final = "counts.jsonl"
BYTES_MAX: Final = 1024 * 1024
"""A longer file is shortened: a pipeline may run for months."""
LINES_KEPT: Final = 100
"""The newest batches, which may be done again, keep a line each."""


class Counts(msgspec.Struct):
    """Where the messages of a batch went. read = stored + quarantined + duplicate."""

    read: int = 0
    stored: int = 0
    quarantined: int = 0
    duplicate: int = 0
    events: int = 0

    def check(self, where: str) -> None:
        """Raises CountsDiffer unless every message is accounted for."""
        if self.read != self.stored + self.quarantined + self.duplicate:
            raise CountsDiffer(
                f"{where}: {self.read} read is not {self.stored} stored + {self.quarantined} "
                f"quarantined + {self.duplicate} duplicate; nothing more is written"
            )

    def check_written(self, where: str, files: Iterable[DataFile]) -> None:
        """Raises CountsDiffer unless the files written for a batch hold the rows to be stored."""
        rows = sum(each.rows for each in files)
        if rows != self.stored:
            raise CountsDiffer(
                f"{where}: the files written hold {rows} rows, and {self.stored} are to be stored; "
                "nothing more is written"
            )

    def add(self, other: "Counts") -> None:
        """Adds the counts of another batch."""
        for name in Counts.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def note(checkpoint: Path, write_id: WriteId, counts: Counts) -> dict[str, Any]:
    """Writes the counts of a batch where `pipeline status` finds them, synced; returns the line."""
    line = {
        "application": write_id.application, "batch": write_id.batch,
        **msgspec.to_builtins(counts),
    }  # fmt: skip
    path = checkpoint / COUNTS
    with writing(path), path.open("ab+") as file:
        is_new = not file.tell()
        if not is_new:
            file.seek(-1, 2)
            if file.read(1) != b"\n":  # a line that was being written when the power went
                file.write(b"\n")
        file.write(json.dumps(line).encode() + b"\n")
        size = file.tell()
        file.flush()
        os.fdatasync(file.fileno())
    if is_new:
        sync_folders([checkpoint])
    if size > BYTES_MAX:
        _shorten(checkpoint)
    return line


def _shorten(checkpoint: Path) -> None:
    """Adds the lines of older batches up: one for each epoch, under its newest batch."""
    lines = list(dict(_lines(checkpoint)).items())
    sums: dict[str, tuple[int, Counts]] = {}
    for (application, batch), counts in lines[:-LINES_KEPT]:
        newest, total = sums.get(application, (batch, Counts()))
        total.add(counts)
        sums[application] = (max(newest, batch), total)
    older = [((application, batch), total) for application, (batch, total) in sums.items()]
    write_whole(checkpoint / COUNTS, b"".join(_encoded([*older, *lines[-LINES_KEPT:]])))


def counted(checkpoint: Path) -> Counts:
    """The sum over all batches; one that was done twice counts once."""
    total = Counts()
    for counts in dict(_lines(checkpoint)).values():
        total.add(counts)
    return total


def keep(source: Path, target: Path, pipeline: str, stored: Mapping[int, int]) -> None:
    """Takes over the counts of batches that the tables hold (epoch to batch), and of no others.

    A batch that the tables do not hold is read again in another epoch, and counted there.
    """
    kept = [
        (key, counts)
        for key, counts in dict(_lines(source)).items()
        if _is_stored(key, pipeline, stored)
    ]
    if kept or (target / COUNTS).exists():
        write_whole(target / COUNTS, b"".join(_encoded(kept)))


def _is_stored(key: tuple[str, int], pipeline: str, stored: Mapping[int, int]) -> bool:
    name, _, epoch = key[0].rpartition("/")
    return name == pipeline and epoch.isdecimal() and key[1] <= stored.get(int(epoch), -1)


def _encoded(kept: Iterable[tuple[tuple[str, int], Counts]]) -> Iterator[bytes]:
    for (application, batch), counts in kept:
        line = {"application": application, "batch": batch, **msgspec.to_builtins(counts)}
        yield json.dumps(line).encode() + b"\n"


def _lines(checkpoint: Path) -> Iterator[tuple[tuple[str, int], Counts]]:
    try:
        text = (checkpoint / COUNTS).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            found = json.loads(line)
            key = (found.pop("application"), found.pop("batch"))
            yield key, msgspec.convert(found, Counts)
        except (ValueError, KeyError, AttributeError):
            continue  # the line that was being written when the process ended
