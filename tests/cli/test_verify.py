from pathlib import Path

import pytest

from penstock.cli.verify import existing
from penstock.vocabulary.errors import NotAStore
from tests.cli.conftest import Penstock


def _damage(folder: Path) -> None:
    """Breaks the body of a confirmed message."""
    for path in folder.glob("segment-*"):
        data = bytearray(path.read_bytes())
        at = data.find(b"a precious body")
        if at >= 0:
            data[at] ^= 0xFF
            path.write_bytes(data)


def test_a_whole_store_is_ok(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello")
    answer = penstock("verify", "penstock-data")
    assert answer.code == 0
    assert answer.out.splitlines()[0].split() == ["FILE", "VERDICT", "RECORDS", "REMARK"]
    assert "\nok: " in answer.out


def test_the_verdict_for_machines(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello")
    found = penstock("verify", "file:./penstock-data", "--json").json()
    assert (found["verdict"], found["lost_records"]) == ("ok", 0)


def test_damage_is_found_and_named(penstock: Penstock, here: Path) -> None:
    penstock("pub", "orders", "a precious body")
    _damage(here / "penstock-data")
    answer = penstock("verify", "penstock-data")
    assert answer.code == 1
    assert "damaged" in answer.out
    assert "penstock salvage penstock-data OUT" in answer.err


def test_nothing_is_created_by_looking(penstock: Penstock, here: Path) -> None:
    assert penstock("verify", "missing").code == 3
    assert list(here.iterdir()) == []


def test_a_folder_without_a_store_cannot_be_verified(penstock: Penstock, here: Path) -> None:
    (here / "empty").mkdir()
    assert penstock("verify", "empty", "--json").error()["code"] == "not-a-store"


def test_a_file_is_not_a_folder(here: Path) -> None:
    (here / "file").write_text("x")
    with pytest.raises(NotAStore, match="there is no folder"):
        existing(here / "file")
