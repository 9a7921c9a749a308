from pathlib import Path

import pytest

from penstock.pipeline.counting import COUNTS, Counts, counted, keep, note
from penstock.pipeline.refusals import CountsDiffer
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
