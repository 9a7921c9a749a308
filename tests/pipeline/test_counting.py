import os
from pathlib import Path

import pytest

from penstock.pipeline import counting
from penstock.pipeline.counting import COUNTS, Counts, counted, keep, note
from penstock.pipeline.refusals import CountsDiffer
from penstock.pipeline.repositories.files import DataFile
from penstock.pipeline.repositories.port import WriteId


def test_a_batch_that_is_noted_twice_counts_once(tmp_path: Path) -> None:
    for batch in (0, 1, 1):
        line = note(tmp_path, WriteId("pms/1", batch), Counts(10, 8, 1, 1, 2))
    assert line["batch"] == 1
    assert counted(tmp_path) == Counts(20, 16, 2, 2, 4)
    assert counted(tmp_path / "none") == Counts()


def test_a_torn_line_takes_none_of_its_neighbours_with_it(tmp_path: Path) -> None:
    note(tmp_path, WriteId("pms/1", 0), Counts(5, 5))
    with (tmp_path / COUNTS).open("a", encoding="utf-8") as file:
        file.write('{"application": "pms/1", "ba')
    note(tmp_path, WriteId("pms/1", 2), Counts(7, 7))
    assert counted(tmp_path).read == 12


def test_the_lines_of_months_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "BYTES_MAX", 3_000)
    monkeypatch.setattr(counting, "LINES_KEPT", 3)
    for epoch, batches in ((1, 20), (2, 100)):
        for batch in range(batches):
            note(tmp_path, WriteId(f"pms/{epoch}", batch), Counts(5, 3, 1, 1))
    note(tmp_path, WriteId("pms/2", 99), Counts(5, 3, 1, 1))
    assert counted(tmp_path) == Counts(600, 360, 120, 120)
    assert (tmp_path / COUNTS).stat().st_size < 3_500
    keep(tmp_path, tmp_path, "pms", {1: 19, 2: 98})
    assert counted(tmp_path).read == 595


def test_only_what_the_tables_hold_is_kept(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    for application, batch in (("pms/1", 0), ("pms/1", 1), ("pms/2", 0), ("other/1", 0)):
        note(old, WriteId(application, batch), Counts(1, 1))
    keep(old, new, "pms", {1: 0})
    assert counted(new).read == 1
    keep(old, old, "pms", {1: 1, 2: 0})
    assert counted(old).read == 3
    keep(tmp_path / "none", tmp_path / "nowhere", "pms", {1: 1})
    assert not (tmp_path / "nowhere").exists()


def test_a_message_that_is_not_accounted_for_is_an_error() -> None:
    Counts(3, 1, 1, 1).check("here")
    with pytest.raises(CountsDiffer, match="here: 3 read is not 1 stored"):
        Counts(3, 1, 1, 0).check("here")


def test_files_that_do_not_hold_the_rows_to_be_stored_are_an_error() -> None:
    files = [DataFile(name, "2020-02-10", rows, 1, 0, 0) for name, rows in (("a", 2), ("b", 1))]
    Counts(4, 3, 1).check_written("here", files)
    with pytest.raises(CountsDiffer, match="here: the files written hold 2 rows, and 3 are"):
        Counts(4, 3, 1).check_written("here", files[:1])


def test_a_line_is_synced_and_so_is_the_name_of_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def seen(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        assert path.is_dir() or path.read_bytes().endswith(b"}\n"), "written before"
        synced.append(path)

    monkeypatch.setattr(os, "fsync", seen)
    monkeypatch.setattr(os, "fdatasync", seen)
    for batch in range(2):
        note(tmp_path, WriteId("pms/1", batch), Counts(5, 5))
    assert synced == [tmp_path / COUNTS, tmp_path, tmp_path / COUNTS]
