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
from penstock.pipeline.repositories.syncing import sync_file, write_whole, writing
from penstock.pipeline.settings import Pipeline
from penstock.vocabulary.errors import StorageError

NAME: Final = "ledger.jsonl"
IDENTITY: Final = "pipeline.json"
LOCK: Final = "pipeline.lock"
LINES_MAX: Final = 10_000
"""Lines after which all but the last few are dropped: a pipeline may run for months."""
LINES_KEPT: Final = 100

ADVICE: Final = "open a new epoch with `penstock pipeline resume --from-table`"

Range = tuple[int, int, int]
"""Partition, start, end."""


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose checkpoint a folder is."""

    pipeline: str
    source: str
    """Address and topic, without credentials and options."""
    tables: list[str]


def identity_of(pipeline: Pipeline) -> Identity:
    """What is written into the checkpoint of a pipeline."""
    return Identity(pipeline.name, _place(pipeline.source), pipeline.folders())


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One batch, as it was planned. Batch -1 opens an epoch: its ranges end where it starts."""

    epoch: int
    batch: int
    ranges: list[Range]
    features: dict[str, Any] = {}
    tables: dict[str, int] = {}
    rules: str = ""
    """What the rules it was begun with are known by; empty in older ledgers."""
    is_asked: bool = False
    """Of batch -1: the broker was asked, and has never seen the epoch."""

    def ends(self) -> dict[int, int]:
        """Where each partition's range ends."""
        return {partition: end for partition, _, end in self.ranges}


class Ledger:
    """The ledger in a checkpoint folder, locked for this run.

    Whose checkpoint it is is written with the first entry: a run that is refused leaves no trace.
    Without `is_made` a folder that is missing stays so until then. Without `is_locked` it is looked
    at only, while a run may write to it: a line that is not whole yet is left alone.
    Raises PipelineRunning, CheckpointForeign, StorageError.
    """

    def __init__(
        self, folder: Path, identity: Identity, *, is_made: bool = True, is_locked: bool = True
    ) -> None:
        self._folder = folder
        self._identity = identity
        self.pipeline = identity.pipeline
        self.first_epoch = 1
        """The epoch that a ledger without entries begins with."""
        self._is_locked = is_locked
        self._lock: FolderLock | None = None
        if is_locked and (is_made or folder.exists()):
            self._lock = _locked(folder, self.pipeline)
        try:
            self._is_claimed = self._check_identity(identity)
            self.entries = self._load()
            if is_locked and len(self.entries) > LINES_MAX:
                self._shorten()
        except BaseException:
            self.close()
            raise

    @property
    def last(self) -> Entry | None:
        """The newest entry."""
        return self.entries[-1] if self.entries else None

    @property
    def epoch(self) -> int:
        """The epoch batches are made in."""
        return self.entries[-1].epoch if self.entries else self.first_epoch

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
                        f"this ledger was written with. Put the right one back, or {ADVICE}"
                    )
                if known.is_asked or not entry.is_asked:
                    return
                break
        self._append(entry)
        self.entries.append(entry)
        if len(self.entries) > LINES_MAX:
            self._shorten()

    def open_epoch(self, ends: Mapping[int, int], epoch: int, *, is_asked: bool = False) -> None:
        """Begins again behind these offsets, under a new application name."""
        ranges = [(at, end, end) for at, end in sorted(ends.items())]
        self.record(Entry(epoch, -1, ranges, is_asked=is_asked))

    def close(self) -> None:
        """Lets go of the checkpoint. Doing so twice is harmless."""
        if self._lock is not None:
            self._lock.close()

    def _check_identity(self, identity: Identity) -> bool:
        """True when the folder says that it is this pipeline's, False when it says nothing yet."""
        found = _identity_in(self._folder)
        if found is None:
            return False
        if msgspec.structs.replace(found, source=_place(found.source)) != identity:
            raise _foreign(self._folder, found, identity)
        return True

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
                    raise _damaged(path, number)
                break  # the line that was being written when the power went
            try:
                entries.append(msgspec.json.decode(data, type=Entry))
            except msgspec.MsgspecError as error:
                raise _damaged(path, number) from error
            good += len(line) + 1
        if self._is_locked and good != path.stat().st_size:
            write_whole(path, b"".join(map(_line, entries)))
        return entries

    def _shorten(self) -> None:
        """Drops old entries; the one that opened the newest epoch says where that begins."""
        dropped, kept = self.entries[:-LINES_KEPT], self.entries[-LINES_KEPT:]
        opened = [each for each in dropped if (each.epoch, each.batch) == (self.epoch, -1)]
        self.entries = [*opened, *kept]
        write_whole(self._folder / NAME, b"".join(map(_line, self.entries)))

    def _append(self, entry: Entry) -> None:
        assert self._is_locked
        if self._lock is None:
            self._lock = _locked(self._folder, self.pipeline)
        if not self._is_claimed:
            write_whole(self._folder / IDENTITY, msgspec.json.encode(self._identity))
            self._is_claimed = True
        path = self._folder / NAME
        is_new = not path.exists()
        with writing(path), path.open("ab") as file:
            file.write(_line(entry))
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_file(self._folder)


def judge(ledger: Ledger, table: str, committed: Mapping[int, Committed]) -> bool:
    """True when the newest batch of the ledger is still to be stored in this table.

    Raises CheckpointMissing, CheckpointBehind, CheckpointAhead.
    """
    last = ledger.last
    if last is None:
        if committed:
            raise CheckpointMissing(
                f"table {table} holds batches of pipeline {ledger.pipeline!r} up to epoch "
                f"{max(committed)}, batch {committed[max(committed)].batch}, and the checkpoint "
                f"knows none. Put the checkpoint back, or {ADVICE}"
            )
        return False
    newest = max(committed, default=last.epoch)
    stored = committed[last.epoch].batch if last.epoch in committed else -1
    if newest > last.epoch or stored > last.batch:
        raise CheckpointBehind(
            f"table {table} holds epoch {newest}, batch {committed[newest].batch} of pipeline "
            f"{ledger.pipeline!r}; the checkpoint is at epoch {last.epoch}, batch {last.batch}. "
            f"Put the newer checkpoint back, or {ADVICE}"
        )
    if stored < last.batch - 1:
        raise CheckpointAhead(
            f"table {table} holds batches of {ledger.application!r} up to {stored}, and the "
            f"checkpoint says that {last.batch - 1} is stored. Put the table back, or {ADVICE}"
        )
    return stored < last.batch


# -- checkpoints that cannot be used ------------------------------------------------------------


def set_aside(folder: Path, pipeline: str) -> Path:
    """Renames a checkpoint that cannot be used; where it is kept. Raises PipelineRunning."""
    lock = _locked(folder, pipeline)
    try:
        number = 1
        while (place := folder.with_name(f"{folder.name}.aside-{number}")).exists():
            number += 1
        folder.rename(place)
        sync_file(place.parent)
    finally:
        lock.close()
    return place


def epoch_in(folder: Path, pipeline: str) -> int:
    """The newest epoch a checkpoint of this pipeline knows, damaged or not; 0 when it is not its.

    A new epoch must have a number that was never used: the broker knows what was published by it.
    """
    try:
        found = _identity_in(folder)
    except StorageError:
        found = None
    if found is not None and found.pipeline != pipeline:
        return 0
    epochs = [int(each.name) for each in (folder / "spark").glob("[0-9]*") if each.name.isdecimal()]
    path = folder / NAME
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            epochs.append(msgspec.json.decode(_opened(line) or b"", type=Entry).epoch)
        except msgspec.MsgspecError:
            continue
    return max(epochs, default=0)


def _locked(folder: Path, pipeline: str) -> FolderLock:
    return FolderLock(
        folder, LOCK, PipelineRunning,
        f"pipeline {pipeline!r} is running already with checkpoint {folder}; stop that run first",
    )  # fmt: skip


def _identity_in(folder: Path) -> Identity | None:
    path = folder / IDENTITY
    try:
        return msgspec.json.decode(path.read_bytes(), type=Identity)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise StorageError(
            f"{path} does not say whose checkpoint this is: {error}. Put it back from a copy, or "
            f"{ADVICE}, which sets this checkpoint aside"
        ) from error


def _foreign(folder: Path, found: Identity, given: Identity) -> CheckpointForeign:
    """The refusal, with what differs and what to do about that."""
    start = f"checkpoint {folder} belongs to pipeline {found.pipeline!r}"
    old, new = _place(found.source), given.source
    if found.pipeline != given.pipeline:
        return CheckpointForeign(
            f"{start}, from {old} to {', '.join(found.tables)}; this is {given.pipeline!r}, from "
            f"{new} to {', '.join(given.tables)}. Give each pipeline its own; if this one was put "
            f"in the place of another, {ADVICE}, which sets it aside"
        )
    if old != new and old.rpartition("/")[2] == new.rpartition("/")[2]:
        return CheckpointForeign(
            f"{start} with the source {old}, and its source is now {new}: the topic has the same "
            "name, its address is another. Put the old address back; or, if it is the same topic, "
            f"{ADVICE}; or, if it is another, give it another checkpoint and table"
        )
    if old != new:
        return CheckpointForeign(
            f"{start} with the source {old}, and its source is now {new}, another topic. Put the "
            "old one back, or give the new one a pipeline, checkpoint and table of its own"
        )
    return CheckpointForeign(
        f"{start} with the tables {', '.join(found.tables)}, and they are now "
        f"{', '.join(given.tables)}. Put the old ones back; or, if they were moved, {ADVICE}; or, "
        "if they are new, give the pipeline another checkpoint and subscription"
    )


def _damaged(path: Path, number: int) -> StorageError:
    return StorageError(
        f"{path}: line {number + 1} is damaged; put the file back from a copy, or {ADVICE}, which "
        "sets this checkpoint aside"
    )


def _place(source: str) -> str:
    """A source without its options, which may change and may hold secrets."""
    return source.partition("?")[0]


def _line(entry: Entry) -> bytes:
    data = msgspec.json.encode(entry)
    return xxh3_64_hexdigest(data).encode() + b" " + data + b"\n"


def _opened(line: bytes) -> bytes | None:
    """The entry of a line, when it is whole."""
    checksum, _, data = line.partition(b" ")
    return data if checksum == xxh3_64_hexdigest(data).encode() else None
