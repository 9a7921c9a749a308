from pathlib import Path

from tests.cli.conftest import Penstock


def test_a_backup_is_made_and_says_what_it_holds(penstock: Penstock, here: Path) -> None:
    penstock("pub", "orders", "a")
    answer = penstock("backup", "orders.tar", "--json")
    assert answer.code == 0
    found = answer.json()
    assert found["bytes"] == sum(row["used"] for row in found["files"])
    assert (here / "orders.tar").is_file()
    plain = penstock("backup", "folder")
    assert plain.code == 0
    assert plain.out.startswith("folder: ")
    assert "penstock restore folder DIR" in plain.err


def test_nothing_is_replaced(penstock: Penstock, here: Path) -> None:
    penstock("pub", "orders", "a")
    (here / "orders.tar").write_bytes(b"mine")
    answer = penstock("backup", "orders.tar")
    assert answer.code == 2
    assert "exists" in answer.err
    assert (here / "orders.tar").read_bytes() == b"mine"


def test_a_store_that_is_not_there_is_not_made(penstock: Penstock, here: Path) -> None:
    answer = penstock("backup", "orders.tar")
    assert answer.code == 3
    assert list(here.iterdir()) == []
