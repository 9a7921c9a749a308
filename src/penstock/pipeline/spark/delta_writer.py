"""`writer = "spark"`: the same files of the same rows, stored by Spark's own Delta writer.

The workers put their files into a folder beside the log, which no reader of the table looks into;
Spark reads them there and appends the rows in one commit, which carries application and batch as
every commit of ours does. Slower than adding the files themselves; for tables with features that
only Spark's writer knows.
"""

import json
import shutil
from pathlib import Path
from typing import Any, Final

from penstock.pipeline.datasets import table
from penstock.pipeline.repositories.delta import APPLICATION, SOURCE, DeltaStorage
from penstock.pipeline.repositories.files import DataFile
from penstock.pipeline.repositories.port import WriteId
from penstock.pipeline.repositories.syncing import make_folder, sync_file, sync_folders
from penstock.pipeline.spark.launching import reason_of
from penstock.vocabulary.errors import StorageError

STAGING: Final = "_penstock_staging"


class SparkDeltaStorage(DeltaStorage):
    """A Delta table that a Spark session writes to. `spark` is set before the first commit."""

    spark: Any = None

    def staging(self) -> str:
        """Names that begin so are no part of a Delta table."""
        return STAGING

    def commit(self, added: list[DataFile], write_id: WriteId, source: dict[str, Any]) -> bool:
        """One commit of Spark's; repeated, Spark's writer sees that it is there, and so do we."""
        if self.is_committed(write_id):
            return False
        place = Path(self.root).absolute()
        if added:
            self._append(place, added, write_id, source)
        else:  # Spark has no commit for nothing, and the batch must be known
            return super().commit(added, write_id, source)
        before = self.version
        self._table.update_incremental()
        if not self.is_committed(write_id):
            raise StorageError(
                f"table {self.root} did not take batch {write_id.batch} of {write_id.application}"
            )
        days = {str(place / f"{table.DAY}={each.day}") for each in added}
        known = {each.path for each in self.files(before)}
        for each in self.files():
            if each.path not in known:
                sync_file(place / each.path)
        sync_folders(days)
        self._sync_log(before)
        shutil.rmtree(place / STAGING, ignore_errors=True)
        return True

    def replace(self, removed: list[DataFile], added: list[DataFile]) -> None:
        """The same rows in other files, which were staged: they need no writer of Spark's."""
        place = Path(self.root)
        for each in added:
            make_folder((place / each.path).parent)
            (place / STAGING / each.path).replace(place / each.path)
        sync_folders((place / each.path).parent for each in added)
        super().replace(removed, added)

    def _append(
        self, place: Path, added: list[DataFile], write_id: WriteId, source: dict[str, Any]
    ) -> None:
        staged = [str(place / STAGING / each.path) for each in added]
        told = {APPLICATION: write_id.application, SOURCE: json.dumps(source)}
        try:
            frame = self.spark.read.option("basePath", str(place / STAGING)).parquet(*staged)
            (
                frame.select(*self.dataset.schema.names)
                .repartition(1)
                .sortWithinPartitions(table.DAY, *self.dataset.keys, "time_event")
                .write.format("delta")
                .mode("append")
                .partitionBy(table.DAY)
                .option("txnAppId", write_id.application)
                .option("txnVersion", write_id.batch)
                .option("userMetadata", json.dumps(told))
                .save(str(place))
            )
        except Exception as error:
            reason = reason_of(str(error))
            raise StorageError(f"Spark did not write to table {self.root}: {reason}") from error
