"""The ledger of a pipeline: what each batch reads, written down and synced before it is read.

One line for each batch: application `<pipeline>/<epoch>`, batch, source ranges, features and the
version of each table. A batch that was interrupted is done again from its line, with the same
ranges, features and tables, and so gives the same rows. `judge` compares the ledger with what a
table says, and refuses by name what cannot be made exact.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from xxhash import xxh3_64_hexdigest

from penstock.pipeline.refusals import (
    CheckpointAhead,
    CheckpointBehind,
    CheckpointForeign,
    CheckpointMissing,
    PipelineRunning,
    RangesDiffer,
)
from penstock.pipeline.repositories.locking import FolderLock
from penstock.pipeline.repositories.port import Committed
from penstock.pipeline.repositories.syncing import make_folder, sync_file, write_whole
from penstock.vocabulary.errors import StorageError

NAME: Final = "ledger.jsonl"
IDENTITY: Final = "pipeline.json"
LOCK: Final = "pipeline.lock"
LINES_MAX: Final = 10_000
"""Lines after which all but the last few are dropped when the ledger is opened."""
LINES_KEPT: Final = 100

Range = tuple[int, int, int]
"""Partition, start, end."""


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose checkpoint a folder is."""

    pipeline: str
    source: str
    tables: list[str]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One batch, as it was planned. Batch -1 opens an epoch: its ranges end where it starts."""

    epoch: int
    batch: int
    ranges: list[Range]
    features: dict[str, Any] = {}
    tables: dict[str, int] = {}

    def ends(self) -> dict[int, int]:
        """Where each partition's range ends."""
        return {partition: end for partition, _, end in self.ranges}


class Ledger:
    """The ledger in a checkpoint folder, locked for this run.

    Raises PipelineRunning, CheckpointForeign, StorageError.
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._folder = folder
        self.pipeline = identity.pipeline
        self._lock = FolderLock(
            folder, LOCK, PipelineRunning,
            f"pipeline {identity.pipeline!r} is running already with checkpoint {folder}; stop "
            "that run first",
        )  # fmt: skip
        try:
            self._check_identity(identity)
            self.entries = self._load()
        except BaseException:
            self._lock.close()
            raise

    @property
    def last(self) -> Entry | None:
        """The newest entry."""
        return self.entries[-1] if self.entries else None

    @property
    def epoch(self) -> int:
        """The epoch batches are made in; 1 in a new ledger."""
        return self.entries[-1].epoch if self.entries else 1

    @property
    def application(self) -> str:
        """What tables know this pipeline by."""
        return f"{self.pipeline}/{self.epoch}"

    def next_batch(self) -> int:
        """The number of the next batch."""
        return self.entries[-1].batch + 1 if self.entries else 0

    def record(self, entry: Entry) -> None:
        """Writes an entry down; synced when it returns. Raises RangesDiffer.

        The same batch may be recorded again with the same ranges: nothing is written then.
        """
        for known in reversed(self.entries):
            if (known.epoch, known.batch) == (entry.epoch, entry.batch):
                if sorted(known.ranges) != sorted(entry.ranges):
                    raise RangesDiffer(
                        f"batch {entry.batch} of {self.pipeline}/{entry.epoch} has the ranges "
                        f"{entry.ranges} and had {known.ranges}: the checkpoint is not the one "
                        "this ledger was written with. Put the right one back, or open a new "
                        "epoch with `penstock pipeline resume --from-table`"
                    )
                return
        self._append(entry)
        self.entries.append(entry)

    def open_epoch(self, ends: Mapping[int, int], epoch: int) -> None:
        """Begins again behind these offsets, under a new application name."""
        self.record(Entry(epoch, -1, [(at, end, end) for at, end in sorted(ends.items())]))

    def close(self) -> None:
        """Lets go of the checkpoint. Doing so twice is harmless."""
        self._lock.close()

    def _check_identity(self, identity: Identity) -> None:
        path = self._folder / IDENTITY
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Identity)
        except FileNotFoundError:
            make_folder(self._folder)
            write_whole(path, msgspec.json.encode(identity))
            return
        except msgspec.MsgspecError as error:
            raise StorageError(f"{path} does not say whose checkpoint this is: {error}") from error
        if found != identity:
            raise CheckpointForeign(
                f"checkpoint {self._folder} belongs to pipeline {found.pipeline!r}, from "
                f"{found.source} to {', '.join(found.tables)}; this is {identity.pipeline!r}, from "
                f"{identity.source} to {', '.join(identity.tables)}. Give each pipeline its own"
            )

    def _load(self) -> list[Entry]:
        path = self._folder / NAME
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        entries: list[Entry] = []
        good = 0
        for number, line in enumerate(lines):
            if number == len(lines) - 1 and not line:
                break
            data = _opened(line)
            if data is None:
                if any(_opened(each) is not None for each in lines[number + 1 :]):
                    raise StorageError(
                        f"{path}: line {number + 1} is damaged; put the file back from a copy, or "
                        "open a new epoch with `penstock pipeline resume --from-table`"
                    )
                break  # the line that was being written when the power went
            entries.append(msgspec.json.decode(data, type=Entry))
            good += len(line) + 1
        if good != path.stat().st_size or len(entries) > LINES_MAX:
            entries = entries[-LINES_KEPT:] if len(entries) > LINES_MAX else entries
            write_whole(path, b"".join(map(_line, entries)))
        return entries

    def _append(self, entry: Entry) -> None:
        path = self._folder / NAME
        is_new = not path.exists()
        with path.open("ab") as file:
            file.write(_line(entry))
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_file(self._folder)


def judge(ledger: Ledger, table: str, committed: Mapping[int, Committed]) -> bool:
    """True when the newest batch of the ledger is still to be stored in this table.

    Raises CheckpointMissing, CheckpointBehind, CheckpointAhead.
    """
    advice = "open a new epoch with `penstock pipeline resume --from-table`"
    last = ledger.last
    if last is None:
        if committed:
            raise CheckpointMissing(
                f"table {table} holds batches of pipeline {ledger.pipeline!r} up to epoch "
                f"{max(committed)}, batch {committed[max(committed)].batch}, and the checkpoint "
                f"knows none. Put the checkpoint back, or {advice}"
            )
        return False
    newest = max(committed, default=last.epoch)
    stored = committed[last.epoch].batch if last.epoch in committed else -1
    if newest > last.epoch or stored > last.batch:
        raise CheckpointBehind(
            f"table {table} holds epoch {newest}, batch {committed[newest].batch} of pipeline "
            f"{ledger.pipeline!r}; the checkpoint is at epoch {last.epoch}, batch {last.batch}. "
            f"Put the newer checkpoint back, or {advice}"
        )
    if stored < last.batch - 1:
        raise CheckpointAhead(
            f"table {table} holds batches of {ledger.application!r} up to {stored}, and the "
            f"checkpoint says that {last.batch - 1} is stored. Put the table back, or {advice}"
        )
    return stored < last.batch


def _line(entry: Entry) -> bytes:
    data = msgspec.json.encode(entry)
    return xxh3_64_hexdigest(data).encode() + b" " + data + b"\n"


def _opened(line: bytes) -> bytes | None:
    """The entry of a line, when it is whole."""
    checksum, _, data = line.partition(b" ")
    return data if checksum == xxh3_64_hexdigest(data).encode() else None
