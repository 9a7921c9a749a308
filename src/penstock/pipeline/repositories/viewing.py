"""A table as it is now, for whoever only looks: no lock is taken, and nothing is mended or made.

Its writer may go on meanwhile. A version is whole as soon as its commit, or its manifest, is there.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from penstock.pipeline.repositories import delta_log
from penstock.pipeline.repositories.choose import check_repository, has_table, table_folder
from penstock.pipeline.repositories.delta import LOG
from penstock.pipeline.repositories.parquet import MANIFESTS, Manifest
from penstock.vocabulary.errors import StorageError


class View(NamedTuple):
    """What a table holds."""

    batches: dict[int, int]
    """The last batch of each epoch of the pipeline that asks."""
    rows: int


EMPTY = View({}, 0)
"""A table that does not exist yet."""


def view(url: str, table: str, pipeline: str) -> View:
    """Looks at a table. Raises StorageError."""
    if not has_table(url, table):
        return EMPTY
    folder = Path(table_folder(url, table))
    scheme, _ = check_repository(url)
    return _delta(folder, pipeline) if scheme == "delta" else _parquet(folder, pipeline)


def _delta(folder: Path, pipeline: str) -> View:
    try:
        found = DeltaTable(str(folder))
        files = pa.table(found.get_add_actions(flatten=True)).to_pylist()
    except DeltaError as error:
        raise StorageError(f"table {folder} cannot be read: {error}") from error
    known = delta_log.transactions(folder / LOG, int(found.version()))
    rows = sum(each.get("num_records") or 0 for each in files)  # some writers do not tell
    return View(delta_log.epochs(known, pipeline), rows)


def _parquet(folder: Path, pipeline: str) -> View:
    batches: dict[int, int] = {}
    rows = 0
    for path in sorted((folder / MANIFESTS).glob("[0-9]*.json")):
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
        except msgspec.MsgspecError as error:
            raise StorageError(f"{path} is no manifest: {error}") from error
        name, _, epoch = manifest.application.rpartition("/")
        if name == pipeline:
            batches[int(epoch)] = manifest.batch
        rows += sum(each.rows for each in manifest.added)
        rows -= sum(each.rows for each in manifest.removed)
    return View(batches, rows)
