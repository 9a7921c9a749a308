import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.pipeline.datasets import pms
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.repositories import parquet
from penstock.pipeline.repositories.compaction import compact
from penstock.pipeline.repositories.files import DataFile, read_file, write_files
from penstock.pipeline.repositories.parquet import ParquetStorage
from penstock.pipeline.repositories.port import TableStorage, WriteId
from penstock.vocabulary.errors import StorageError
from tests.pipeline.repositories.suite import TableSuite, drawn_rows, in_order, stored


class Crash(Exception):
    pass


def seen(root: str) -> list[Any]:
    """What a plain reader finds."""
    found = [
        DataFile(str(each.relative_to(root)), each.parent.name.removeprefix("day="), 0, 0, 0, 0)
        for each in Path(root).glob("day=*/*.parquet")
    ]
    return in_order(pa.concat_tables([read_file(root, pms.DATASET, each) for each in found]))


class TestParquet(TableSuite):
    def open_table(self, root: str, dataset: Dataset) -> TableStorage:
        return ParquetStorage(root, dataset)

    def test_plain_readers_see_the_rows_by_day(self, root: str) -> None:
        storage = ParquetStorage(root, pms.DATASET)
        rows = drawn_rows(1)
        write_files(root, storage.staging(), pms.DATASET, drawn_rows(2))  # never committed
        storage.write(rows, WriteId("pms/1", 0))
        with duckdb.connect() as connection:
            found = connection.sql(
                f"select count(*), count(distinct day) from read_parquet('{root}/day=*/*.parquet', "
                "hive_partitioning = true)"
            ).fetchall()
        assert found == [(len(rows), len(set(rows["day"].to_pylist())))]
        storage.close()

    def test_a_missing_manifest_is_told_and_no_version_is_written_over(self, root: str) -> None:
        storage = ParquetStorage(root, pms.DATASET)
        for batch in range(3):
            storage.write(drawn_rows(batch), WriteId("pms/1", batch))
        storage.close()
        gone = Path(root) / parquet.MANIFESTS / f"{1:020}.json"
        kept = gone.rename(gone.with_suffix(".aside"))
        with pytest.raises(StorageError, match="version 1 is missing"):
            ParquetStorage(root, pms.DATASET)
        kept.rename(gone)
        again = ParquetStorage(root, pms.DATASET)
        assert again.version == 2
        again.close()

    @pytest.mark.parametrize("renames", [0, 1, 3])
    def test_renames_that_a_crash_left_undone_are_finished(
        self, root: str, renames: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = ParquetStorage(root, pms.DATASET)
        rows = drawn_rows(3)
        replace = os.replace
        done: list[Path] = []

        def crash(source: Path, target: Path) -> None:
            if Path(target).suffix == ".parquet":
                if len(done) == renames:
                    raise Crash
                done.append(target)
            replace(source, target)

        monkeypatch.setattr(os, "replace", crash)
        with pytest.raises(Crash):
            storage.write(rows, WriteId("pms/1", 0))
        monkeypatch.undo()
        storage.close()
        again = ParquetStorage(root, pms.DATASET)
        assert stored(again) == in_order(rows)
        assert not again.write(rows, WriteId("pms/1", 0))
        assert not (Path(root) / parquet.STAGING).exists()
        again.close()

    @pytest.mark.parametrize("steps", range(7))
    def test_merged_files_are_there_before_the_old_ones_go(
        self, root: str, steps: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """At each moment, and after a kill, a plain reader finds every row, some perhaps twice."""
        storage = ParquetStorage(root, pms.DATASET)
        rows = drawn_rows(1)
        rows = rows.filter(pc.equal(rows["day"], rows["day"][0])).slice(0, 8)
        for batch in range(4):
            storage.write(rows.slice(batch * 2, 2), WriteId("pms/1", batch))
        whole = set(in_order(rows))
        assert len(whole) == 8
        done: list[Path] = []

        def crash_at(call: Callable[..., None]) -> Callable[..., None]:
            def called(first: Path, *given: Any) -> None:
                if (given or [first])[-1].suffix == ".parquet":
                    if len(done) == steps:
                        raise Crash
                    done.append(first)
                call(first, *given)

            return called

        for name in ("replace", "unlink"):
            monkeypatch.setattr(os, name, crash_at(getattr(os, name)))
        with suppress(Crash):
            compact(storage)
        monkeypatch.undo()
        assert set(seen(root)) == whole
        storage.close()
        again = ParquetStorage(root, pms.DATASET)
        assert seen(root) == stored(again) == sorted(whole)
        again.close()

    def test_a_batch_without_its_manifest_never_happened(
        self, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = ParquetStorage(root, pms.DATASET)

        def crash(path: Path, data: bytes) -> None:
            raise Crash

        monkeypatch.setattr(parquet, "write_whole", crash)
        with pytest.raises(Crash):
            storage.write(drawn_rows(4), WriteId("pms/1", 0))
        monkeypatch.undo()
        storage.close()
        again = ParquetStorage(root, pms.DATASET)
        assert stored(again) == []
        assert again.write(drawn_rows(4), WriteId("pms/1", 0))
        again.close()

    def test_a_file_that_went_missing_is_named(self, root: str) -> None:
        storage = ParquetStorage(root, pms.DATASET)
        storage.write(drawn_rows(5), WriteId("pms/1", 0))
        storage.close()
        (Path(root) / storage.files()[0].path).unlink()
        with pytest.raises(StorageError, match="is missing"):
            ParquetStorage(root, pms.DATASET)

    def test_a_manifest_that_is_none_is_named(self, root: str) -> None:
        storage = ParquetStorage(root, pms.DATASET)
        storage.write(drawn_rows(6), WriteId("pms/1", 0))
        storage.close()
        (Path(root) / parquet.MANIFESTS / f"{0:020}.json").write_bytes(b"{")
        with pytest.raises(StorageError, match="is no manifest"):
            ParquetStorage(root, pms.DATASET)
