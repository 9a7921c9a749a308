from pathlib import Path

from penstock.cli import dump
from tests.cli.conftest import Penstock


def test_every_record_is_shown(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "billing")
    penstock("pub", "orders", "hello", "--key", "k", "--id", "a")
    answer = penstock("dump", "penstock-data")
    assert answer.code == 0
    for word in ("superblock", "snapshot", "TopicCreated", "SubscriptionCreated", "Published"):
        assert word in answer.out
    assert "hello" not in answer.out


def test_bodies_are_shown_when_asked_for(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello", "--key", "k", "--id", "a")
    assert "0  id=a  key=k  hello" in penstock("dump", "penstock-data", "--bodies").out


def test_json_lines_for_machines(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello", "--id", "a")
    rows = penstock("dump", "file:./penstock-data", "--bodies", "--json").rows()
    published = [row for row in rows if row.get("kind") == "Published"]
    assert [row["messages"][0]["body"] for row in published] == ["hello"]


def test_a_unit_shows_its_parts_below_it() -> None:
    row = {
        "row": "record",
        "position": "1:512",
        "checksum": "rescued",
        "kind": "Unit",
        "records": [{"kind": "Settled", "topic_id": 1}],
    }
    first, second = dump.lines(row)
    assert first.split() == ["1:512", "Unit", "checksum=rescued"]
    assert second.split() == ["Settled", "topic_id=1"]


def test_messages_that_cannot_be_read_say_why() -> None:
    row = {"row": "record", "position": "1:512", "kind": "Published", "messages": "too short"}
    assert list(dump.lines(row))[1].strip() == "too short"


def test_nothing_is_created_by_looking(penstock: Penstock, here: Path) -> None:
    assert penstock("dump", "missing").code == 3
    assert list(here.iterdir()) == []


def test_a_folder_without_a_store_has_nothing_to_show(penstock: Penstock, here: Path) -> None:
    (here / "empty").mkdir()
    assert penstock("dump", "empty", "--json").error()["code"] == "not-a-store"
