from pathlib import Path

from tests.cli.conftest import Penstock


def test_a_backup_becomes_a_store(penstock: Penstock, here: Path) -> None:
    penstock("pub", "orders", "a", "--key", "k")
    penstock("backup", "orders.tar")
    answer = penstock("restore", "orders.tar", "again", "--json")
    assert answer.code == 0
    assert answer.json()["dir"] == "again"
    assert penstock("verify", "again").code == 0
    assert penstock("peek", "orders", "--url", "file:again", "--json").rows()[0]["key"] == "k"
    plain = penstock("restore", "orders.tar", "third")
    assert plain.out.startswith("third: ")
    assert "penstock stats --url file:third" in plain.err


def test_verify_knows_a_backup(penstock: Penstock, here: Path) -> None:
    penstock("pub", "orders", "a")
    penstock("backup", "orders.tar")
    answer = penstock("verify", "orders.tar", "--json")
    assert (answer.code, answer.json()["verdict"]) == (0, "ok")
    assert "a whole backup" in penstock("verify", "orders.tar").out
    data = bytearray((here / "orders.tar").read_bytes())
    data[5000] ^= 1
    (here / "orders.tar").write_bytes(data)
    answer = penstock("verify", "orders.tar", "--json")
    assert (answer.code, answer.error()["code"]) == (1, "backup-damaged")


def test_what_cannot_be_restored_says_why(penstock: Penstock, here: Path) -> None:
    assert "there is no backup" in penstock("restore", "orders.tar", "again").err
    penstock("pub", "orders", "a")
    penstock("backup", "orders.tar")
    answer = penstock("restore", "orders.tar", "penstock-data")
    assert answer.code == 2
    assert "not empty" in answer.err
