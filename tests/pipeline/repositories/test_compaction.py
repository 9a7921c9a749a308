"""That rows survive is in the suite of each repository; here is what is chosen."""

import time
from pathlib import Path

import pytest

from penstock.pipeline.datasets import pms
from penstock.pipeline.repositories.compaction import _groups, chosen, compact, is_due
from penstock.pipeline.repositories.delta import DeltaStorage
from penstock.pipeline.repositories.files import DataFile
from penstock.pipeline.repositories.port import WriteId
from penstock.vocabulary.errors import StorageError
from tests.pipeline.datasets import bodies
from tests.pipeline.repositories.suite import drawn_rows
from tests.pipeline.repositories.test_known import rows_of


def file(name: str, day: str, size: int) -> DataFile:
    return DataFile(name, day, 1, size, 0, 0)


def test_small_files_of_a_day_with_several_are_chosen() -> None:
    files = [file("a", "1", 10), file("b", "1", 20), file("c", "1", 90), file("d", "2", 10)]
    assert {day: [each.path for each in few] for day, few in chosen(files, 100).items()} == {
        "1": ["a", "b"]
    }


def test_groups_stay_below_the_target_and_nothing_is_alone() -> None:
    files = [file(str(at), "1", 40) for at in range(5)]
    assert [[each.path for each in group] for group in _groups(files, 100)] == [
        ["0", "1"], ["2", "3"],
    ]  # fmt: skip


def test_files_are_due_by_their_number_and_by_their_age(tmp_path: Path) -> None:
    storage = DeltaStorage(str(tmp_path), pms.DATASET)
    rows = rows_of(bodies.pms())
    size = 1_000_000
    storage.write(rows, WriteId("pms/1", 0))
    later = time.time() + 100
    assert not is_due(storage, size, 2, 60, later), "a file alone stays"
    storage.write(rows, WriteId("pms/1", 1))
    assert is_due(storage, size, 2, 0, later - 100), "two are two"
    assert is_due(storage, size, 3, 60, later), "two old ones"
    assert not is_due(storage, size, 3, 200, later), "two that are not so old"
    assert not is_due(storage, size, 3, 0, later), "age does not count"
    assert not is_due(storage, size, 0, 60, later), "never"
    for each in storage.files():
        (tmp_path / each.path).unlink()
    assert not is_due(storage, size, 3, 60, later), "files that are gone are no matter of this"
    storage.close()


def test_files_that_lost_rows_are_not_replaced(tmp_path: Path) -> None:
    storage = DeltaStorage(str(tmp_path), pms.DATASET)
    for batch in range(2):
        storage.write(drawn_rows(batch, 30), WriteId("pms/1", batch))
    name = sorted(storage.files(), key=lambda each: each.day)
    first = [each for each in name if each.day == name[0].day]
    (tmp_path / first[0].path).write_bytes((tmp_path / first[1].path).read_bytes())
    before = storage.version
    if first[0].rows != first[1].rows:
        with pytest.raises(StorageError, match="their log says"):
            compact(storage)
        assert storage.version == before
    storage.close()
