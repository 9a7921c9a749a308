from pathlib import Path

from penstock.client.blocking import connect_blocking
from tests.cli.conftest import Penstock


def test_a_whole_store_is_copied_whole(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello", "--id", "a")
    answer = penstock("salvage", "penstock-data", "copy")
    assert answer.code == 0
    assert "1 message copied to copy, 0 lost" in answer.out
    (row,) = penstock("peek", "orders", "--url", "file:./copy", "--json").rows()
    assert (row["id"], row["body"]) == ("a", "hello")


def test_what_is_broken_is_left_out_and_counted(penstock: Penstock, here: Path) -> None:
    for body in ("one", "a precious body", "three"):
        penstock("pub", "orders", body)
    for path in (here / "penstock-data").glob("segment-*"):
        path.write_bytes(path.read_bytes().replace(b"a precious body", b"a worthless one"))
    answer = penstock("salvage", "penstock-data", "copy", "--json")
    assert answer.code == 1
    assert (answer.json()["messages"], answer.json()["lost_messages"]) == (2, 1)
    rows = penstock("peek", "orders", "--url", "file:./copy", "--json").rows()
    assert [row["body"] for row in rows] == ["one", "three"]


def test_the_target_must_be_new(penstock: Penstock, here: Path) -> None:
    penstock("pub", "orders", "hello")
    (here / "copy").mkdir()
    (here / "copy" / "file").write_text("x")
    assert penstock("salvage", "penstock-data", "copy").code == 2


def test_without_a_source_nothing_is_made(penstock: Penstock, here: Path) -> None:
    assert penstock("salvage", "missing", "copy").code == 3
    assert list(here.iterdir()) == []


def test_both_folders_must_be_named(penstock: Penstock) -> None:
    answer = penstock("salvage", "penstock-data")
    assert answer.code == 2
    assert "OUT" in answer.err


def test_a_store_in_use_is_refused_and_nothing_is_made(penstock: Penstock, here: Path) -> None:
    penstock("pub", "orders", "hello")
    with connect_blocking("file:./penstock-data"):
        answer = penstock("salvage", "penstock-data", "copy")
        assert answer.code == 3
        assert "in use" in answer.err
        assert not (here / "copy").exists()
        (here / "copy").mkdir()
        assert penstock("salvage", "penstock-data", "copy").code == 3
        assert (here / "copy").is_dir()
