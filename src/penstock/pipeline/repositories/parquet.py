"""`parquet:` tables: plain files in folders by day, and a manifest for each batch beside them.

A batch is staged, its manifest is synced, then its files are renamed into place. Whoever opens the
table finishes renames that a crash left undone. A reader that looks at the files alone may see a
part of the newest batch. Files that are merged go when the merged one is there: for that moment,
or until a table whose writer was killed then is opened again, such a reader sees their rows twice.
It can tell a row that is there twice, as both say the same; it could not tell a missing one.

    day=2020-02-10/part-….parquet        the rows
    _manifests/00000000000000000007.json what version 7 added and removed, and which batch it was
    _staging/…                           files that are not committed
"""

import shutil
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.refusals import TableLocked, TableSchemaDiffers
from penstock.pipeline.repositories.files import DataFile, write_files
from penstock.pipeline.repositories.locking import FolderLock
from penstock.pipeline.repositories.port import Committed, WriteId
from penstock.pipeline.repositories.syncing import (
    make_folder,
    sync_file,
    sync_folders,
    write_whole,
)
from penstock.vocabulary.errors import StorageError

LOCK: Final = "_penstock.lock"
MANIFESTS: Final = "_manifests"
STAGING: Final = "_staging"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the table."""

    schema: str
    application: str = ""
    batch: int = -1
    source: dict[str, Any] = {}
    added: list[DataFile] = []
    removed: list[DataFile] = []


class ParquetStorage:
    """One table of Parquet files, locked for this writer."""

    def __init__(self, root: str, dataset: Dataset) -> None:
        self.root = root
        self.dataset = dataset
        self._folder = Path(root)
        self._lock = FolderLock(
            self._folder, LOCK, TableLocked,
            f"table {root} has another writer; stop that one, or wait until it is done",
        )  # fmt: skip
        self._versions: list[Manifest] = []
        self._schema = str(dataset.schema)
        try:
            make_folder(self._folder / MANIFESTS)
            self._load()
        except BaseException:
            self._lock.close()
            raise

    @staticmethod
    def is_at(folder: Path) -> bool:
        """True when a folder is such a table."""
        return (folder / MANIFESTS).is_dir()

    @property
    def version(self) -> int:
        """The newest version; -1 before the first."""
        return len(self._versions) - 1

    def staging(self) -> str:
        """Files wait here for their manifest."""
        return STAGING

    def write(self, rows: pa.Table, write_id: WriteId) -> bool:
        """Stores rows as one version."""
        if self.is_committed(write_id):
            return False
        return self.commit(write_files(self.root, STAGING, self.dataset, rows), write_id, {})

    def files(self, version: int | None = None) -> list[DataFile]:
        """The files of a version."""
        end = self.version if version is None else version
        found: dict[str, DataFile] = {}
        for manifest in self._versions[: end + 1]:
            for file in manifest.removed:
                del found[file.path]
            found.update({file.path: file for file in manifest.added})
        return list(found.values())

    def last(self, pipeline: str) -> dict[int, Committed]:
        """The last batch of each epoch, from the manifests."""
        found: dict[int, Committed] = {}
        for manifest in self._versions:
            name, _, epoch = manifest.application.rpartition("/")
            if name == pipeline:
                before = found.get(int(epoch))
                source = dict(manifest.source)
                if before is not None and "ends" in before.source:  # some batches told a part only
                    source["ends"] = before.source["ends"] | source.get("ends", {})
                found[int(epoch)] = Committed(manifest.batch, source)
        return found

    def commit(self, added: list[DataFile], write_id: WriteId, source: dict[str, Any]) -> bool:
        """One manifest for the batch; then its files are put in place."""
        if self.is_committed(write_id):
            return False
        application, batch = write_id
        manifest = Manifest(
            schema=self._schema,
            application=application,
            batch=batch,
            source=source,
            added=added,
        )
        self._append(manifest)
        return True

    def replace(self, removed: list[DataFile], added: list[DataFile]) -> None:
        """The same rows in other files, which were staged."""
        self._append(Manifest(schema=self._schema, added=added, removed=removed))

    def close(self) -> None:
        """Lets go of the table."""
        self._lock.close()

    def is_committed(self, write_id: WriteId) -> bool:
        """True when this write, or a later one of the application, is stored."""
        return any(
            each.application == write_id.application and each.batch >= write_id.batch
            for each in reversed(self._versions)
        )

    def _append(self, manifest: Manifest) -> None:
        path = self._place(len(self._versions))
        write_whole(path, msgspec.json.encode(manifest))
        self._versions.append(manifest)
        self._finish(manifest)

    def _place(self, version: int) -> Path:
        return self._folder / MANIFESTS / f"{version:020}.json"

    def _sync_newest(self) -> None:
        """Makes the newest version survive a power cut: its writer may have died early."""
        for file in self._versions[-1].added:
            sync_file(self._folder / file.path)
        sync_file(self._place(self.version))
        sync_folders([self._folder / MANIFESTS, self._folder])

    def _load(self) -> None:
        for path in sorted((self._folder / MANIFESTS).glob("[0-9]*.json")):
            try:
                manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
            except msgspec.MsgspecError as error:
                raise StorageError(f"{path} is no manifest: {error}") from error
            if path.stem != f"{len(self._versions):020}":
                raise StorageError(
                    f"{path} has no manifest before it: version {len(self._versions)} is missing. "
                    "Put it back from a copy of the table"
                )
            if manifest.schema != self._schema:
                raise TableSchemaDiffers(
                    f"table {self.root} is no table of dataset {self.dataset.name!r}: its columns "
                    "are others. Give another table, or move this one away"
                )
            # One text for all of them: there may be hundreds of thousands.
            self._versions.append(msgspec.structs.replace(manifest, schema=self._schema))
        if self._versions:
            self._finish(self._versions[-1])
            self._sync_newest()
        shutil.rmtree(self._folder / STAGING, ignore_errors=True)

    def _finish(self, manifest: Manifest) -> None:
        """Puts the files of a manifest in place; what is done already stays."""
        for file in manifest.added:
            place = self._folder / file.path
            staged = self._folder / STAGING / file.path
            if staged.exists():
                make_folder(place.parent)
                staged.replace(place)
            elif not place.exists():
                raise StorageError(
                    f"{place} is missing: the manifest of version {self.version} names it"
                )
        self._sync_names(manifest.added)
        for file in manifest.removed:  # now, so that no row is ever missing
            (self._folder / file.path).unlink(missing_ok=True)
        self._sync_names(manifest.removed)

    def _sync_names(self, files: list[DataFile]) -> None:
        folders = {(self._folder / file.path).parent for file in files}
        sync_folders(each for each in folders if each.exists())
