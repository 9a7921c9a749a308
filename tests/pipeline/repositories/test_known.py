from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.pipeline.datasets import pms
from penstock.pipeline.datasets.raw import raw_batch
from penstock.pipeline.repositories import known
from penstock.pipeline.repositories.files import DataFile, read_file, write_files
from penstock.pipeline.repositories.known import Known, first_ones, is_among, marks_of
from tests.pipeline.datasets import bodies
from tests.pipeline.repositories.suite import drawn_rows


def rows_of(*given: dict[str, object], sender: str = "a") -> pa.Table:
    data = [bodies.encoded(each) for each in given]
    raw = raw_batch(data, headers=[{"source": sender}] * len(data))
    return pa.Table.from_batches([pms.DATASET.transform(pms.DATASET.validate(raw).good)])


def test_repeats_inside_a_batch_are_found_and_conflicts_told() -> None:
    rows = rows_of(
        bodies.pms(), bodies.pms(), bodies.pms(pack__amps=1.5), bodies.pms(pack__amps=1.5),
        bodies.pms(pack__id="0242"),
    )  # fmt: skip
    is_new, is_conflict = first_ones(marks_of(rows, pms.DATASET))
    assert is_new.tolist() == [True, False, True, False, True]
    assert is_conflict.tolist() == [False, False, True, False, False]


def test_stored_rows_are_duplicates_whoever_sent_them(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = str(tmp_path_factory.mktemp("table"))
    files = write_files(root, "", pms.DATASET, rows_of(bodies.pms()))
    again = rows_of(bodies.pms(), bodies.pms(pack__amps=1.5), sender="b")
    sifted = Known(root, pms.DATASET).sift(again, marks_of(again, pms.DATASET), files)
    assert sifted.is_new.tolist() == [False, True]
    assert sifted.is_conflict.tolist() == [False, True]


def test_all_of_a_table_is_found_again_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = str(tmp_path_factory.mktemp("table"))
    rows, others = drawn_rows(1, 500), drawn_rows(2, 500)
    files = write_files(root, "", pms.DATASET, rows)
    mixed = pa.concat_tables([rows, others])
    sifted = Known(root, pms.DATASET).sift(mixed, marks_of(mixed, pms.DATASET), files)
    assert not sifted.is_new[:500].any()
    expected, _ = first_ones(marks_of(mixed, pms.DATASET))
    assert sifted.is_new[500:].tolist() == expected[500:].tolist()
    assert sifted.is_new[500:].sum() > 450


def test_only_files_that_overlap_are_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = str(tmp_path_factory.mktemp("table"))
    old = rows_of(bodies.pms(time_local="20200101T000000Z"))
    files = write_files(root, "", pms.DATASET, old)
    rows = rows_of(bodies.pms(time_local="20200101T000001Z"))
    memory = Known("no such folder", pms.DATASET)
    assert memory.sift(rows, marks_of(rows, pms.DATASET), files).is_new.all()
    with pytest.raises(FileNotFoundError):
        memory.sift(old, marks_of(old, pms.DATASET), files)


def test_each_day_asks_its_own_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def overlaps(file: DataFile, day: str, _first: int, _last: int) -> bool:
        asked.append(f"{file.path} {day}")
        return False

    monkeypatch.setattr(DataFile, "overlaps", overlaps)
    rows = rows_of(*(bodies.pms(time_local=f"202001{day:02}T000000Z") for day in (1, 2, 3)))
    days = [f"2020-01-{day:02}" for day in range(1, 31)]
    files = [DataFile(f"day={day}/part.parquet", day, 1, 1, 0, 2**62) for day in days]
    memory = Known("no such folder", pms.DATASET)
    assert memory.sift(rows, marks_of(rows, pms.DATASET), files).is_new.all()
    assert asked == [f"day={day}/part.parquet {day}" for day in days[:3]]


def test_what_is_kept_of_files_has_a_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(known, "CACHE_ROWS_MAX", 150)
    root = str(tmp_path_factory.mktemp("table"))
    rows = drawn_rows(3, 400)
    files = write_files(root, "", pms.DATASET, rows)
    memory = Known(root, pms.DATASET)
    sifted = memory.sift(rows, marks_of(rows, pms.DATASET), files)
    assert not sifted.is_new.any()
    assert memory._rows <= 150


def test_marks_of_a_file_are_those_of_its_rows(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = str(tmp_path_factory.mktemp("table"))
    rows = rows_of(bodies.pms(), bodies.pms(pack__amps=3))
    (file,) = write_files(root, "", pms.DATASET, rows)
    read = marks_of(read_file(root, pms.DATASET, file), pms.DATASET)
    marks = marks_of(rows, pms.DATASET)
    assert np.sort(read.content, axis=0).tolist() == np.sort(marks.content, axis=0).tolist()


def test_what_rows_say_is_hashed_only_when_moments_meet(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = str(tmp_path_factory.mktemp("table"))
    memory = Known(root, pms.DATASET)
    rows = drawn_rows(5, 300)
    marks = marks_of(rows, pms.DATASET)
    is_new, _ = first_ones(marks)
    rows = rows.filter(pa.array(is_new)).sort_by("pack_id")
    marks = marks_of(rows, pms.DATASET)
    assert memory.sift(rows, marks, []).is_new.all()
    files = write_files(root, "", pms.DATASET, rows)
    if len(files) == 1:
        memory.note(files[0], marks)
    other = rows_of(bodies.pms(time_local="20200215T010101Z"))
    met = marks_of(other, pms.DATASET)
    assert memory.sift(other, met, files).is_new.all()
    assert not met.is_hashed
    again = marks_of(rows, pms.DATASET)
    assert not memory.sift(rows, again, files).is_new.any()
    assert again.is_hashed


def test_a_file_whose_rows_are_gone_is_read_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = str(tmp_path_factory.mktemp("table"))
    first = bodies.pms(time_local="20200101T000002Z")
    rows = rows_of(first, bodies.pms(time_local="20200101T000001Z"))
    (file,) = write_files(root, "", pms.DATASET, rows)
    memory = Known(root, pms.DATASET)
    memory.note(file, marks_of(rows, pms.DATASET))
    changed = bodies.pms(time_local="20200101T000001Z", pack__amps=9)
    again = rows_of(first, changed)
    for _ in range(2):
        sifted = memory.sift(again, marks_of(again, pms.DATASET), [file])
        assert sifted.is_new.tolist() == [False, True]
        assert sifted.is_conflict.tolist() == [False, True]
    some = marks_of(again, pms.DATASET).pick(np.array([False, True]))
    assert some.content.tolist() == marks_of(again, pms.DATASET).content[1:].tolist()


def test_of_a_file_nobody_knows_only_the_keys_are_read_until_moments_meet(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asked: list[Any] = []

    def watched(root: str, dataset: Any, file: Any, columns: Any = None) -> pa.Table:
        asked.append(columns)
        return read_file(root, dataset, file, columns)

    monkeypatch.setattr(known, "read_file", watched)
    root = str(tmp_path_factory.mktemp("table"))
    rows = rows_of(*(bodies.pms(time_local=f"20200101T0000{at:02}Z") for at in (1, 3)))
    (file,) = write_files(root, "", pms.DATASET, rows)
    memory = Known(root, pms.DATASET)
    between = rows_of(bodies.pms(time_local="20200101T000002Z"))
    assert memory.sift(between, marks_of(between, pms.DATASET), [file]).is_new.all()
    assert asked == [["pms_id", "pack_id", "time_event"]]
    sifted = memory.sift(rows, marks_of(rows, pms.DATASET), [file])
    assert not sifted.is_new.any()
    assert asked[1:] == [None]


def test_values_among_others_are_found() -> None:
    rng = np.random.default_rng(7)
    values = rng.integers(0, 50, 200).astype(np.uint64)
    for others in (rng.integers(25, 75, 40).astype(np.uint64), values[:0]):
        assert (is_among(values, others) == np.isin(values, others)).all()
    assert not len(is_among(values[:0], values))
