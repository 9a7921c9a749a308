from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.pipeline.datasets import pms
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.refusals import TableSchemaDiffers
from penstock.pipeline.repositories.delta import DeltaStorage
from penstock.pipeline.repositories.port import TableStorage, WriteId
from penstock.vocabulary.errors import StorageError
from tests.pipeline.repositories.suite import TableSuite, drawn_rows, in_order


class TestDelta(TableSuite):
    def open_table(self, root: str, dataset: Dataset) -> TableStorage:
        return DeltaStorage(root, dataset)

    def test_deltalake_and_duckdb_read_the_same_rows(self, root: str) -> None:
        storage = DeltaStorage(root, pms.DATASET)
        rows = drawn_rows(1)
        storage.write(rows, WriteId("pms/1", 0))
        dataset = DeltaTable(root).to_pyarrow_dataset()
        found = dataset.to_table().select(pms.DATASET.schema.names)
        assert in_order(found.cast(pms.DATASET.schema)) == in_order(rows)
        with duckdb.connect() as connection:
            connection.sql("set timezone = 'UTC'")
            relation = connection.from_arrow(dataset.to_table())
            (sums,) = relation.aggregate("count(*), sum(pack.watts), max(cell[4].dvcl)").fetchall()
        assert sums[0] == len(rows)
        assert sums[1] == pytest.approx(sum(each["watts"] for each in rows["pack"].to_pylist()))
        storage.close()

    def test_the_log_carries_application_and_batch(self, root: str) -> None:
        storage = DeltaStorage(root, pms.DATASET)
        storage.write(drawn_rows(1), WriteId("pms/3", 17))
        storage.close()
        assert DeltaTable(root).transaction_version("pms/3") == 17

    def test_a_delta_table_with_other_columns_is_refused(self, root: str) -> None:
        DeltaTable.create(root, pa.schema([("pms_id", pa.int64())]))
        with pytest.raises(TableSchemaDiffers, match="'pms_id' has another type"):
            DeltaStorage(root, pms.DATASET)

    def test_a_commit_that_the_disk_refuses_names_the_table(self, root: str) -> None:
        class Full:
            def version(self) -> int:
                return 0

            def create_write_transaction(self, *_given: Any, **_options: Any) -> None:
                raise OSError("Unable to copy \x1b[31m↳\x1b[0m No space left on device")

        storage = DeltaStorage(root, pms.DATASET)
        storage._table = Full()  # type: ignore[assignment]
        with pytest.raises(StorageError, match=f"{root} cannot be written: .* copy ↳ No space"):
            storage.replace([], [])
        storage.close()

    def test_another_partitioning_is_refused(self, root: str) -> None:
        DeltaTable.create(root, pms.DATASET.schema, partition_by=["pms_id"])
        with pytest.raises(TableSchemaDiffers, match="partitioned by"):
            DeltaStorage(root, pms.DATASET)

    def test_log_and_files_are_synced_before_a_commit_returns(
        self, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[str] = []
        place = "penstock.pipeline.repositories.delta"
        monkeypatch.setattr(f"{place}.sync_file", lambda path: synced.append(Path(path).name))
        monkeypatch.setattr(
            f"{place}.sync_folders", lambda paths: synced.extend(Path(each).name for each in paths)
        )
        storage = DeltaStorage(root, pms.DATASET)
        del synced[:]
        storage.write(drawn_rows(1), WriteId("pms/1", 0))
        assert synced == [f"{1:020}.json", "_delta_log", "pms_monitoring"]
        storage.close()
