"""Spark's own checkpoint, and whether it fits the ledger.

Spark writes `offsets/N` before batch N and `commits/N` after it. Both are synced here before
anybody relies on them: Spark itself does not.
"""

import json
from pathlib import Path
from typing import Any, Final

from penstock.pipeline.ledger import Ledger, Range
from penstock.pipeline.refusals import (
    CheckpointAhead,
    CheckpointBehind,
    CheckpointForeign,
    CheckpointMissing,
    RangesDiffer,
)
from penstock.pipeline.repositories.syncing import make_folder, sync_file, write_whole
from penstock.vocabulary.errors import StorageError

OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
LOGS: Final = (OFFSETS, COMMITS)
ADVICE: Final = "open a new epoch with `penstock pipeline resume --from-table`"


class SparkCheckpoint:
    """The checkpoint of one query: that of one epoch of a pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def last(self, log: str) -> int:
        """The newest batch in `offsets` or `commits`; -1 when there is none."""
        numbers = (int(path.name) for path in (self.folder / log).glob("[0-9]*"))
        return max(numbers, default=-1)

    def has(self, log: str, batch: int) -> bool:
        """True when a batch is in the log."""
        return (self.folder / log / str(batch)).exists()

    def sync(self, log: str, batch: int) -> None:
        """Makes an entry survive a power cut."""
        sync_file(self.folder / log / str(batch))
        sync_file(self.folder / log)

    def ends(self, batch: int) -> dict[int, int]:
        """Where each partition ends after a batch. Raises StorageError."""
        path = self.folder / OFFSETS / str(batch)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return plain_offsets(json.loads(lines[2]))
        except (OSError, ValueError, IndexError, AttributeError, TypeError) as error:
            raise StorageError(
                f"{path} does not say what batch {batch} reads: {error}. Put the checkpoint back "
                f"from a copy, or {ADVICE}"
            ) from error

    def ranges(self, batch: int, initial: dict[int, int]) -> list[Range]:
        """What a batch reads; the first one starts at `initial`."""
        starts = self.ends(batch - 1) if batch > 0 else initial
        return [
            (at, starts.get(at, 0), end)
            for at, end in sorted(self.ends(batch).items())
            if end > starts.get(at, 0)
        ]

    def query_id(self) -> str | None:
        """The id Spark gave the query; None before its first start."""
        try:
            found: str = json.loads((self.folder / "metadata").read_text(encoding="utf-8"))["id"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{self.folder / 'metadata'} is damaged: {error}. Put it back from a copy, or "
                f"{ADVICE}"
            ) from error
        return found

    def clear_drafts(self) -> None:
        """Removes what a driver killed in its first note left: Spark would refuse to begin.

        Nothing is in it: a note that is whole has its number as its name.
        """
        if max(map(self.last, LOGS)) < 0:
            for log in LOGS:
                for draft in (self.folder / log).glob(".*"):
                    draft.unlink()

    def _claim(self) -> Path:
        return self.folder.parent / f"{self.folder.name}.query"

    def claim(self) -> None:
        """Notes whose checkpoint this is, once the query has started."""
        found = self.query_id()
        if found is not None and not self._claim().exists():
            make_folder(self.folder.parent)
            write_whole(self._claim(), found.encode())

    def check_claim(self) -> None:
        """Raises CheckpointForeign when the folder is not the one that was claimed.

        Raises CheckpointMissing when it holds batches and does not say whose they are: Spark would
        not begin.
        """
        if not self._claim().exists():
            return
        wanted, found = self._claim().read_text(encoding="utf-8"), self.query_id()
        if found is None and max(map(self.last, LOGS)) >= 0:
            raise CheckpointMissing(
                f"{self.folder / 'metadata'} is gone, and the folder holds batches. Put the file "
                f"back from a copy, or {ADVICE}"
            )
        if found is not None and found != wanted:
            raise CheckpointForeign(
                f"{self.folder} is the checkpoint of another Spark query ({found}, not {wanted}). "
                f"Put the right one back, or {ADVICE}"
            )


def plain_offsets(found: Any) -> dict[int, int]:
    """Offsets by partition: ours as they are, those of a Kafka topic without its name."""
    if len(found) == 1:
        (only,) = found.values()
        found = only if isinstance(only, dict) else found
    return {int(at): int(offset) for at, offset in found.items()}


def judge(
    ledger: Ledger, spark: SparkCheckpoint, initial: dict[int, int], *, is_open: bool
) -> None:
    """Refuses a checkpoint of Spark that does not fit the ledger; `is_open`: a table lacks a batch.

    Raises CheckpointForeign, CheckpointMissing, CheckpointBehind, CheckpointAhead, RangesDiffer.
    """
    spark.check_claim()
    planned, committed = spark.last(OFFSETS), spark.last(COMMITS)
    known = ledger.entries[-1].batch if ledger.entries else -1
    where = f"pipeline {ledger.pipeline!r}: {spark.folder}"
    if planned < 0 <= known:
        raise CheckpointMissing(
            f"{where} holds no batch, and the ledger knows batch {known}. Put Spark's checkpoint "
            f"back, or {ADVICE}"
        )
    if planned < known:
        raise CheckpointBehind(
            f"{where} is at batch {planned}, and the ledger at {known}. Put the newer checkpoint "
            f"back, or {ADVICE}"
        )
    if planned > known + 1 or committed > known or (is_open and 0 <= known <= committed):
        raise CheckpointAhead(
            f"{where} is at batch {max(planned, committed)}, and what is stored ends at "
            f"{known - 1 if is_open else known}. Put ledger and table back, or {ADVICE}"
        )
    if planned == known >= 0:
        found = spark.ranges(planned, initial)
        if sorted(found) != sorted(ledger.entries[-1].ranges):
            raise RangesDiffer(
                f"{where} says that batch {planned} reads {found}, the ledger says "
                f"{ledger.entries[-1].ranges}. Put the right checkpoint back, or {ADVICE}"
            )
