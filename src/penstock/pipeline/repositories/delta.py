"""`delta:` tables: files are added by one commit of the Delta log for each batch.

The commit carries the application, the batch and where its source ended, so that a repeated batch
is recognised by the table itself, however long ago it was. `deltalake` writes log entries and
checkpoints of the log without syncing them: that is done here, before anybody is told that the
batch is stored.
"""

import json
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from penstock.pipeline.datasets import table
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.refusals import TableLocked, TableSchemaDiffers
from penstock.pipeline.repositories import delta_log
from penstock.pipeline.repositories.files import DataFile, stats_of, write_files
from penstock.pipeline.repositories.locking import FolderLock
from penstock.pipeline.repositories.port import Committed, WriteId
from penstock.pipeline.repositories.syncing import make_folder, sync_file, sync_folders, writing
from penstock.vocabulary.errors import StorageError

LOCK: Final = "_penstock.lock"
LOG: Final = "_delta_log"
SOURCE: Final = "penstock.source"
APPLICATION: Final = "penstock.application"
MS: Final = 1_000
"""Microseconds of a millisecond."""
HISTORY_STEP: Final = 1_000
"""Commits looked at first for what a batch said about its source; then ten times as many."""


class DeltaStorage:
    """One Delta table, locked for this writer. Raises TableLocked, TableSchemaDiffers."""

    def __init__(self, root: str, dataset: Dataset) -> None:
        self.root = root
        self.dataset = dataset
        folder = Path(root)
        self._synced: int | None = None
        """When the checkpoint of the log that was synced last was written."""
        self._lock = FolderLock(
            folder, LOCK, TableLocked,
            f"table {root} has another writer; stop that one, or wait until it is done",
        )  # fmt: skip
        try:
            self._table = self._opened(folder)
            self._sync_newest(folder)
        except BaseException:
            self._lock.close()
            raise

    @staticmethod
    def is_at(folder: Path) -> bool:
        """True when a folder is such a table."""
        return any((folder / LOG).glob("[0-9]*"))

    @property
    def version(self) -> int:
        """The newest version."""
        return int(self._table.version())

    def staging(self) -> str:
        """Files stay where they are written: nobody sees them before the commit."""
        return ""

    def write(self, rows: pa.Table, write_id: WriteId) -> bool:
        """Stores rows in one commit."""
        if self.is_committed(write_id):
            return False
        added = write_files(self.root, self.staging(), self.dataset, rows)
        return self.commit(added, write_id, {})

    def files(self, version: int | None = None) -> list[DataFile]:
        """The files of a version."""
        found = self._table
        if version is not None and version != self.version:
            found = DeltaTable(self.root, version=version)
        actions = pa.table(found.get_add_actions(flatten=True))
        return [_data_file(row, self.dataset) for row in actions.to_pylist()]

    def last(self, pipeline: str) -> dict[int, Committed]:
        """The last batch of each epoch, from the transactions in the log."""
        known = delta_log.transactions(Path(self.root) / LOG, self.version)
        found: dict[int, Committed] = {}
        for epoch, batch in delta_log.epochs(known, pipeline).items():
            write_id = WriteId(f"{pipeline}/{epoch}", batch)
            source = delta_log.source_of(known, write_id)
            found[epoch] = Committed(batch, self._said(write_id) if source is None else source)
        return found

    def _said(self, write_id: WriteId) -> dict[str, Any]:
        """What the commit of a batch says about its source; nothing when the log forgot it.

        Earlier commits of its application tell the ends of partitions that it says nothing of.
        """
        count = HISTORY_STEP
        while True:
            history = self._table.history(count)
            told = [
                json.loads(entry[SOURCE])
                for entry in map(_told, history)
                if entry.get(APPLICATION) == write_id.application and SOURCE in entry
            ]
            if told or len(history) < count:
                break
            count *= 10
        source: dict[str, Any] = {}
        for each in reversed(told):
            source |= each | {"ends": source.get("ends", {}) | each.get("ends", {})}
        return source

    def commit(self, added: list[DataFile], write_id: WriteId, source: dict[str, Any]) -> bool:
        """One log entry for the batch, synced with everything it names."""
        if self.is_committed(write_id):
            return False
        properties = CommitProperties(
            app_transactions=[
                Transaction(*each) for each in delta_log.noted(write_id, source).items()
            ],
            custom_metadata={
                APPLICATION: write_id.application,
                SOURCE: json.dumps(source, separators=(",", ":")),
            },
        )
        self._add([self._added(each, is_new=True) for each in added], properties)
        return True

    def replace(self, removed: list[DataFile], added: list[DataFile]) -> None:
        """The same rows in other files."""
        now = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(each.path, False, now, each.size, {table.DAY: each.day})  # noqa: FBT003
            for each in removed
        ]
        actions += [self._added(each, is_new=False) for each in added]
        self._add(actions, None)

    def vacuum(self, hours: int) -> int:
        """Deletes files that only versions older than this need, or none; how many.

        A reader of such an old version finds them gone. Raises StorageError.
        """
        before = self.version
        try:
            gone = self._table.vacuum(
                hours, dry_run=False, enforce_retention_duration=False, full=True
            )
            self._table.update_incremental()
        except DeltaError as error:
            raise StorageError(f"table {self.root} cannot be vacuumed: {error}") from error
        self._sync_log(before)
        return len(gone)

    def close(self) -> None:
        """Lets go of the table."""
        self._lock.close()

    def _opened(self, folder: Path) -> DeltaTable:
        wanted = Schema.from_arrow(self.dataset.schema)
        if not self.is_at(folder):
            with writing(folder):
                make_folder(folder)
                return DeltaTable.create(str(folder), wanted, partition_by=[table.DAY])
        found = _loaded(folder)
        differs = _difference(found.schema(), wanted)
        if not differs and list(found.metadata().partition_columns) != [table.DAY]:
            differs = f"it is partitioned by {found.metadata().partition_columns}, not by day"
        if differs:
            raise TableSchemaDiffers(
                f"table {folder} is no table of dataset {self.dataset.name!r}: {differs}. Give "
                "another table, or move this one away"
            )
        return found

    def is_committed(self, write_id: WriteId) -> bool:
        """True when this write, or a later one of the application, is stored."""
        last = self._table.transaction_version(write_id.application)
        return last is not None and last >= write_id.batch

    def _added(self, file: DataFile, *, is_new: bool) -> AddAction:
        stats = json.dumps(stats_of(file, self.dataset), separators=(",", ":"))
        now = time.time_ns() // 1_000_000
        return AddAction(file.path, file.size, {table.DAY: file.day}, now, is_new, stats)

    def _add(self, actions: list[Any], properties: CommitProperties | None) -> None:
        before = self.version
        try:
            with writing(self.root):
                self._table.create_write_transaction(
                    actions, "append", Schema.from_arrow(self.dataset.schema), [table.DAY],
                    commit_properties=properties,
                    post_commithook_properties=PostCommitHookProperties(create_checkpoint=True),
                )  # fmt: skip
            self._table.update_incremental()
        except DeltaError as error:
            raise StorageError(f"table {self.root} did not take a commit: {error}") from error
        self._sync_log(before)

    def _sync_newest(self, folder: Path) -> None:
        """Makes the newest version survive a power cut: its writer may have died early.

        Raises StorageError when a power cut took one of its files.
        """
        entry = delta_log.entry(folder / LOG, self.version)
        if not entry.exists():  # cleaned up long after it was synced
            return
        added = {folder / path: size for path, size in delta_log.added(entry).items()}
        for path, size in added.items():
            if not path.exists() or path.stat().st_size != size:
                raise StorageError(
                    f"{path} is missing or not whole. {entry}, the newest commit of the table, "
                    f"names it: {delta_log.POWER_CUT}"
                )
            sync_file(path)
        sync_folders(path.parent for path in added)
        self._sync_log(self.version - 1)

    def _sync_log(self, before: int) -> None:
        """Makes the commits after a version survive a power cut, and a checkpoint made of them."""
        log = Path(self.root) / LOG
        for version in range(before + 1, self.version + 1):
            sync_file(delta_log.entry(log, version))
        hint = log / delta_log.HINT
        written = hint.stat().st_mtime_ns if hint.exists() else None
        if written != self._synced:
            for path in (*delta_log.newest_checkpoint(log), hint):
                sync_file(path)
            self._synced = written
        sync_folders([log, self.root])


def _loaded(folder: Path) -> DeltaTable:
    """The table, without a checkpoint of its log that a power cut damaged. Raises StorageError."""
    try:
        return DeltaTable(str(folder))
    except DeltaError:
        delta_log.mend(folder / LOG)
    try:
        return DeltaTable(str(folder))
    except DeltaError as error:
        raise StorageError(f"table {folder} cannot be read: {error}") from error


def _told(entry: dict[str, Any]) -> dict[str, Any]:
    """A commit with what its writer said about it; Spark's writer keeps that as one text."""
    try:
        said = json.loads(entry.get("userMetadata") or "{}")
    except ValueError:
        return entry
    return entry | said if isinstance(said, dict) else entry


def _difference(found: Schema, wanted: Schema) -> str:
    """What the first difference of two schemas is; empty when they are equal."""
    has = {each.name: each.type for each in found.fields}
    needs = {each.name: each.type for each in wanted.fields}
    for name, kind in needs.items():
        if name not in has:
            return f"it has no column {name!r}"
        if has[name] != kind:
            return f"column {name!r} has another type"
    extra = [name for name in has if name not in needs]
    return f"it has a column {extra[0]!r} that the dataset does not have" if extra else ""


def _data_file(row: dict[str, Any], dataset: Dataset) -> DataFile:
    low, high = row.get("min.time_event"), row.get("max.time_event")
    day = row["partition.day"].isoformat()
    # A file of another writer may come without statistics: then it may hold any time of its day.
    first = _us(low) if low is not None else -(2**62)
    last = _last(_us(high)) if high is not None else 2**62
    return DataFile(
        row["path"], day, row.get("num_records") or 0, row["size_bytes"], first, last,
        tuple(row.get(f"min.{key}") or "" for key in dataset.keys),
        tuple(row.get(f"max.{key}") or "" for key in dataset.keys),
    )  # fmt: skip


def _last(us: int) -> int:
    """The latest time that a maximum may stand for: Spark's writer cuts it to milliseconds."""
    return us if us % MS else us + MS - 1


def _us(moment: Any) -> int:
    return int(pa.scalar(moment, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py())
