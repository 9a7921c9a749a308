"""`parquet:` tables: plain files in folders by day, and a manifest for each batch beside them.

A batch is staged, its manifest is synced, then its files are renamed into place. Whoever opens the
table finishes renames that a crash left undone. A reader that looks at the files alone may see a
part of the newest batch, never a row twice.

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
from penstock.pipeline.repositories.syncing import make_folder, sync_folders, write_whole
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
            schema=self._schema(),
            application=application,
            batch=batch,
            source=source,
            added=added,
        )
        self._append(manifest)
        return True

    def replace(self, removed: list[DataFile], added: list[DataFile]) -> None:
        """The same rows in other files, which were staged."""
        self._append(Manifest(schema=self._schema(), added=added, removed=removed))

    def close(self) -> None:
        """Lets go of the table."""
        self._lock.close()

    def _schema(self) -> str:
        return str(self.dataset.schema)

    def is_committed(self, write_id: WriteId) -> bool:
        """True when this write, or a later one of the application, is stored."""
        return any(
            each.application == write_id.application and each.batch >= write_id.batch
            for each in reversed(self._versions)
        )

    def _append(self, manifest: Manifest) -> None:
        path = self._folder / MANIFESTS / f"{len(self._versions):020}.json"
        write_whole(path, msgspec.json.encode(manifest))
        self._versions.append(manifest)
        self._finish(manifest)

    def _load(self) -> None:
        for path in sorted((self._folder / MANIFESTS).glob("[0-9]*.json")):
            try:
                manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
            except msgspec.MsgspecError as error:
                raise StorageError(f"{path} is no manifest: {error}") from error
            if manifest.schema != self._schema():
                raise TableSchemaDiffers(
                    f"table {self.root} is no table of dataset {self.dataset.name!r}: its columns "
                    "are others. Give another table, or move this one away"
                )
            self._versions.append(manifest)
        if self._versions:
            self._finish(self._versions[-1])
        shutil.rmtree(self._folder / STAGING, ignore_errors=True)

    def _finish(self, manifest: Manifest) -> None:
        """Puts the files of a manifest in place; what is done already stays."""
        folders: set[Path] = set()
        for file in manifest.removed:  # first, so that no row is ever there twice
            (self._folder / file.path).unlink(missing_ok=True)
            folders.add((self._folder / file.path).parent)
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
            folders.add(place.parent)
        sync_folders(each for each in folders if each.exists())
