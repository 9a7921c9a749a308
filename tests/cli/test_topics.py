import io
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Penstock


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_topics_are_listed_with_what_they_hold(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello")
    penstock("subscriptions", "create", "orders", "billing")
    penstock("topics", "create", "alarms", "--partitions", "3")
    answer = penstock("topics", "list")
    assert answer.code == 0
    title, *rows = answer.out.splitlines()
    assert title.split() == [
        "TOPIC",
        "PARTITIONS",
        "MESSAGES",
        "BYTES",
        "PUBLISHED",
        "SUBSCRIPTIONS",
    ]
    assert [row.split()[:3] for row in rows] == [["alarms", "3", "0"], ["orders", "1", "1"]]
    assert rows[1].endswith("billing")


def test_the_list_for_machines(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello")
    (row,) = penstock("topics", "list", "--json").json()
    assert (row["topic"], row["messages"], row["subscriptions"]) == ("orders", 1, [])


def test_a_store_without_topics_says_so(penstock: Penstock) -> None:
    penstock("topics", "create", "t")
    penstock("topics", "delete", "t")
    answer = penstock("topics", "list")
    assert (answer.code, answer.out) == (0, "")
    assert "no topics yet" in answer.err


def test_creating_twice_is_harmless_and_differently_is_not(penstock: Penstock) -> None:
    words = ("topics", "create", "orders", "--partitions", "2", "--retain", "7d")
    assert penstock(*words).err == "topic 'orders' exists, with 2 partitions\n"
    assert penstock(*words).code == 0
    answer = penstock("topics", "create", "orders", "--partitions", "3")
    assert answer.code == 1
    assert "[topic-exists]" in answer.err


def test_a_topic_may_replace_what_waits(penstock: Penstock) -> None:
    penstock("topics", "create", "status", "--on-duplicate", "replace")
    found = penstock("topics", "describe", "status", "--json").json()
    assert found["policy"] == {"on_duplicate": "replace"}
    assert "duplicates  replace" in penstock("topics", "describe", "status").out
    assert penstock("topics", "create", "other", "--on-duplicate", "both").code == 2
    assert penstock("topics", "alter", "status", "--on-duplicate", "drop").code == 2


def test_a_topic_is_described(penstock: Penstock) -> None:
    penstock("topics", "create", "orders", "--durability", "written", "--retain", "forever")
    penstock("subscriptions", "create", "orders", "billing")
    penstock("pub", "orders", "hello")
    found = penstock("topics", "describe", "orders", "--json").json()
    assert found["policy"] == {"durability": "written", "retain_s": None}
    assert [row["subscription"] for row in found["subscriptions"]] == ["billing"]
    text = penstock("topics", "describe", "orders").out
    assert "durability  written" in text
    assert "retain      for ever" in text
    assert "billing" in text


def test_a_policy_is_altered_field_by_field(penstock: Penstock) -> None:
    penstock("topics", "create", "orders", "--retain", "1h")
    answer = penstock("topics", "alter", "orders", "--durability", "written", "--json")
    assert answer.json()["policy"] == {"durability": "written", "retain_s": 3_600.0}
    assert penstock("topics", "alter", "orders", "--retain", "forever").code == 0


def test_rules_about_keeping_are_set_and_shown(penstock: Penstock) -> None:
    words = ("--replay", "2h", "--keep-last", "3", "--max-age", "7d", "--max-bytes", "5M")
    assert penstock("topics", "create", "orders", *words).code == 0
    policy = penstock("topics", "describe", "orders", "--json").json()["policy"]
    assert policy == {
        "replay_s": 7200.0, "keep_last": 3, "max_age_s": 604_800.0, "max_bytes": 5_000_000,
    }  # fmt: skip
    text = penstock("topics", "describe", "orders").out
    for title in ("replay", "keep last", "max age", "max bytes"):
        assert title in text
    words = ("--replay", "0", "--keep-last", "0", "--max-age", "none", "--max-bytes", "none")
    policy = penstock("topics", "alter", "orders", *words, "--json").json()["policy"]
    assert not any(policy.values())
    assert "replay" not in penstock("topics", "describe", "orders").out
    assert penstock("topics", "alter", "orders", "--keep-last", "-1").code != 0


def test_altering_nothing_is_wrong_usage(penstock: Penstock) -> None:
    penstock("topics", "create", "orders")
    answer = penstock("topics", "alter", "orders")
    assert answer.code == 2
    assert "--durability, --retain" in answer.err


def test_partitions_are_added_and_not_removed(penstock: Penstock) -> None:
    penstock("topics", "create", "orders", "--partitions", "2")
    answer = penstock("topics", "alter", "orders", "--partitions", "5", "--json")
    assert answer.json()["partitions"] == 5
    answer = penstock("topics", "alter", "orders", "--partitions", "3")
    assert answer.code == 1
    assert "[partitions-only-grow]" in answer.err
    assert penstock("topics", "describe", "orders", "--json").json()["partitions"] == 5


def test_a_topic_is_deleted_with_everything(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello")
    answer = penstock("topics", "delete", "orders", "--yes", "--json")
    assert answer.json() == {"deleted": "orders", "messages": 1}
    assert penstock("topics", "list", "--json").json() == []


def test_a_person_may_change_their_mind(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock("pub", "orders", "hello")
    monkeypatch.setattr(sys, "stdin", Keyboard("n\n"))
    answer = penstock("topics", "delete", "orders")
    assert answer.code == 1
    assert "delete topic 'orders' with 1 message, 0 subscriptions? [y/N]" in answer.err
    assert len(penstock("topics", "list", "--json").json()) == 1


@pytest.mark.parametrize("verb", ["describe", "delete"])
def test_an_unknown_topic_is_answered_with_the_nearest(verb: str, penstock: Penstock) -> None:
    penstock("topics", "create", "orders")
    answer = penstock("topics", verb, "ordesr")
    assert answer.code == 1
    assert "did you mean 'orders'?" in answer.err


def test_looking_creates_no_store(penstock: Penstock, here: Path) -> None:
    answer = penstock("topics", "list")
    assert answer.code == 3
    assert "`penstock pub` creates one" in answer.err
    assert list(here.iterdir()) == []
