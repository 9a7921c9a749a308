"""What every table repository must do; each implementation runs it."""

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.pipeline.datasets import mppt, pms
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.raw import raw_batch
from penstock.pipeline.refusals import TableLocked, TableSchemaDiffers
from penstock.pipeline.repositories.compaction import compact
from penstock.pipeline.repositories.files import read_file, write_files
from penstock.pipeline.repositories.port import TableStorage, WriteId
from tests.pipeline.datasets import bodies


def drawn_rows(seed: int, count: int = 100) -> pa.Table:
    draw = random.Random(seed)
    given = [bodies.encoded(bodies.drawn_pms(draw)) for _ in range(count)]
    return pa.Table.from_batches(
        [pms.DATASET.transform(pms.DATASET.validate(raw_batch(given)).good)]
    )


def stored(storage: TableStorage, version: int | None = None) -> list[Any]:
    parts = [read_file(storage.root, storage.dataset, each) for each in storage.files(version)]
    return in_order(pa.concat_tables(parts)) if parts else []


def in_order(rows: pa.Table) -> list[Any]:
    return sorted(map(repr, rows.to_pylist()))


class TableSuite:
    """Inherited with `open_table` filled in."""

    def open_table(self, root: str, dataset: Dataset) -> TableStorage:
        raise NotImplementedError

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path / "warehouse" / "analytics" / "pms_monitoring")

    def test_what_is_written_is_there_once(self, root: str) -> None:
        storage = self.open_table(root, pms.DATASET)
        first, second = drawn_rows(1), drawn_rows(2)
        assert storage.write(first, WriteId("pms/1", 0))
        assert storage.write(second, WriteId("pms/1", 1))
        assert not storage.write(first, WriteId("pms/1", 0))
        assert not storage.write(second, WriteId("pms/1", 1))
        assert stored(storage) == in_order(pa.concat_tables([first, second]))
        assert storage.write(first, WriteId("pms/2", 0))  # another epoch is another application
        storage.close()

    def test_it_is_all_there_after_opening_again(self, root: str) -> None:
        storage = self.open_table(root, pms.DATASET)
        rows = drawn_rows(3)
        added = write_files(root, storage.staging(), pms.DATASET, rows)
        storage.commit(added, WriteId("pms/1", 0), {"ends": {"0": 100}})
        storage.close()
        again = self.open_table(root, pms.DATASET)
        assert stored(again) == in_order(rows)
        assert {epoch: (each.batch, each.source) for epoch, each in again.last("pms").items()} == {
            1: (0, {"ends": {"0": 100}})
        }
        assert again.last("other") == {}
        assert not again.write(rows, WriteId("pms/1", 0))
        again.close()

    def test_a_batch_without_rows_is_a_commit_too(self, root: str) -> None:
        storage = self.open_table(root, pms.DATASET)
        assert storage.commit([], WriteId("pms/1", 0), {"ends": {}})
        assert not storage.commit([], WriteId("pms/1", 0), {"ends": {}})
        assert storage.last("pms")[1].batch == 0
        storage.close()

    def test_an_older_version_has_the_files_it_had(self, root: str) -> None:
        storage = self.open_table(root, pms.DATASET)
        rows = drawn_rows(4)
        storage.write(rows, WriteId("pms/1", 0))
        version = storage.version
        storage.write(drawn_rows(5), WriteId("pms/1", 1))
        assert stored(storage, version) == in_order(rows)
        assert storage.version > version
        storage.close()

    def test_files_know_their_rows_days_and_times(self, root: str) -> None:
        storage = self.open_table(root, pms.DATASET)
        rows = drawn_rows(6)
        storage.write(rows, WriteId("pms/1", 0))
        for file in storage.files():
            part = read_file(root, pms.DATASET, file)
            times = part.column("time_event").cast(pa.int64()).to_pylist()
            assert (file.rows, file.time_min) == (len(part), min(times))
            assert 0 <= file.time_max - max(times) < 1_000, "a log may have milliseconds only"
            keys = list(zip(*(part.column(key).to_pylist() for key in pms.DATASET.keys), times,
                            strict=True))  # fmt: skip
            assert keys == sorted(keys)
            assert {file.day} == {str(day) for day in part.column("day").to_pylist()}
        storage.close()

    def test_files_nobody_commits_are_no_part_of_the_table(self, root: str) -> None:
        storage = self.open_table(root, pms.DATASET)
        write_files(root, storage.staging(), pms.DATASET, drawn_rows(7))
        assert stored(storage) == []
        storage.close()

    def test_opening_syncs_the_newest_version_and_no_other(
        self, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A writer that was killed right after its commit had not synced it."""
        storage = self.open_table(root, pms.DATASET)
        storage.write(drawn_rows(8), WriteId("pms/1", 0))
        older = {Path(root, each.path) for each in storage.files()}
        storage.write(drawn_rows(9), WriteId("pms/1", 1))
        newest = {Path(root, each.path) for each in storage.files()} - older
        storage.close()
        synced: set[Path] = set()
        sync = os.fsync

        def seen(descriptor: int) -> None:
            synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", seen)
        self.open_table(root, pms.DATASET).close()
        entry = max(Path(root).glob("_*/[0-9]*.json"))
        wanted = newest | {each.parent for each in newest} | {entry, entry.parent, Path(root)}
        assert wanted <= synced
        assert not older & synced

    def test_a_second_writer_is_refused(self, root: str) -> None:
        storage = self.open_table(root, pms.DATASET)
        with pytest.raises(TableLocked, match="another writer"):
            self.open_table(root, pms.DATASET)
        storage.close()
        storage.close()
        self.open_table(root, pms.DATASET).close()

    def test_a_table_of_another_dataset_is_refused(self, root: str) -> None:
        storage = self.open_table(root, pms.DATASET)
        storage.write(drawn_rows(8), WriteId("pms/1", 0))
        storage.close()
        with pytest.raises(TableSchemaDiffers, match="no table of dataset 'mppt'"):
            self.open_table(root, mppt.DATASET)
        self.open_table(root, pms.DATASET).close()  # the refused one left no lock

    def test_compaction_keeps_every_row_in_fewer_sorted_files(self, root: str) -> None:
        storage = self.open_table(root, pms.DATASET)
        parts = [drawn_rows(seed, 50) for seed in range(10, 14)]
        for batch, rows in enumerate(parts):
            storage.write(rows, WriteId("pms/1", batch))
        days = len({file.day for file in storage.files()})
        before = len(storage.files())
        version = storage.version
        done = compact(storage)
        assert (done.files_before, done.files_after, done.rows) == (before, days, 200)
        assert len(storage.files()) == days < before
        assert stored(storage) == in_order(pa.concat_tables(parts))
        assert compact(storage).files_before == 0
        assert storage.version > version
        assert not storage.write(parts[0], WriteId("pms/1", 3))  # it still knows its batches
        storage.close()
        again = self.open_table(root, pms.DATASET)
        assert stored(again) == in_order(pa.concat_tables(parts))
        again.close()
