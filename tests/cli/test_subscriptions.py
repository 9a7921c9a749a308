import pytest

from penstock.client.blocking import connect_blocking
from tests.cli.conftest import Penstock, broker_url


def test_subscriptions_show_where_every_message_is(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "billing")
    for body in ("one", "two", "three"):
        penstock("pub", "orders", body)
    penstock("sub", "orders", "--subscription", "billing", "--count", "1")
    title, row = penstock("subscriptions", "list").out.splitlines()
    assert title.split()[:5] == ["TOPIC", "SUBSCRIPTION", "KIND", "CONSUMERS", "WAITING"]
    assert row.split()[:5] == ["orders", "billing", "shared", "0", "2"]
    places = ["WAITING", "LEASED", "DELAYED", "ACKED", "DEAD", "EXPIRED", "DROPPED"]
    assert title.split()[4:] == places, "all that a message can be"
    assert sum(map(int, row.split()[4:])) == 3
    (found,) = penstock("subscriptions", "list", "orders", "--json").json()
    assert (found["attached"], found["acked"], found["waiting"]) == (3, 1, 2)
    assert found["unexplained"] == 0


def test_readers_show_their_owner_their_progress_and_what_they_planned(penstock: Penstock) -> None:
    for body in ("one", "two", "three"):
        penstock("pub", "orders", body)
    with connect_blocking(broker_url()) as client:
        reader = client.reader("orders", "tables", owner="run-7")
        reader.plan(2)
        reader.commit({0: 1})
    lines = penstock("subscriptions", "list").out.splitlines()
    assert lines[1].split()[:5] == ["orders", "tables", "reader", "0", "2"]
    assert lines[2].split() == ["TOPIC", "READER", "OWNER", "PARTITION", "PROGRESS", "PLANNED"]
    assert lines[3].split() == ["orders", "tables", "run-7", "0", "1", "2"]
    (row,) = penstock("subscriptions", "list", "--json").json()
    assert row["reader"] == {"owner": "run-7", "progress": [1], "planned": [2]}
    refused = penstock("subscriptions", "delete", "orders", "tables", "--yes")
    assert refused.code == 1
    assert "planned range" in refused.err


def test_no_subscriptions_is_said(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello")
    answer = penstock("subscriptions", "list")
    assert (answer.code, answer.out) == (0, "")
    assert "no subscriptions" in answer.err


def test_a_policy_is_created_and_altered_field_by_field(penstock: Penstock) -> None:
    words = ("subscriptions", "create", "orders", "billing", "--lease", "2m", "--max-attempts", "3")
    policy = penstock(*words, "--json").json()["policy"]
    assert (policy["lease_s"], policy["retry"]) == (120.0, {"max_attempts": 3})
    changed = penstock(
        "subscriptions", "alter", "orders", "billing", "--retry-first", "1", "--json"
    ).json()["policy"]
    assert (changed["lease_s"], changed["retry"]) == (120.0, {"first_s": 1.0, "max_attempts": 3})
    unlimited = penstock(
        "subscriptions", "alter", "orders", "billing", "--max-attempts", "unlimited", "--json"
    ).json()["policy"]
    assert unlimited["retry"]["max_attempts"] is None


def test_a_start_may_be_chosen(penstock: Penstock) -> None:
    penstock("pub", "orders", "one")
    penstock("subscriptions", "create", "orders", "late", "--start", "latest")
    penstock("subscriptions", "create", "orders", "all")
    rows = penstock("subscriptions", "list", "--json").json()
    assert [(row["subscription"], row["waiting"]) for row in rows] == [("all", 1), ("late", 0)]


def test_creating_is_told(penstock: Penstock) -> None:
    answer = penstock("subscriptions", "create", "orders", "billing")
    assert answer == (0, "", "subscription 'billing' of topic 'orders' exists\n")


def test_a_subscription_is_deleted(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "billing")
    answer = penstock("subscriptions", "delete", "orders", "billing", "--json")
    assert answer.json() == {"deleted": "billing", "topic": "orders"}
    assert penstock("subscriptions", "list", "--json").json() == []


@pytest.mark.parametrize(
    "words", [["delete", "orders", "biling"], ["alter", "orders", "biling", "--lease", "5"]]
)
def test_an_unknown_name_is_answered_with_the_nearest(words: list[str], penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "billing")
    answer = penstock("subscriptions", *words)
    assert answer.code == 1
    assert "did you mean 'billing'?" in answer.err


def test_altering_nothing_is_wrong_usage(penstock: Penstock) -> None:
    assert penstock("subscriptions", "alter", "orders", "billing").code == 2


def test_a_value_out_of_range_is_wrong_usage(penstock: Penstock) -> None:
    answer = penstock("subscriptions", "create", "orders", "billing", "--lease", "100d", "--json")
    assert answer.code == 2
    assert answer.error()["code"] == "invalid-argument"


def test_a_subscription_is_moved(penstock: Penstock) -> None:
    penstock("topics", "create", "orders", "--replay", "1h")
    penstock("subscriptions", "create", "orders", "billing")
    for body in ("one", "two", "three"):
        penstock("pub", "orders", body)
    penstock("sub", "orders", "--subscription", "billing", "--count", "3")
    answer = penstock("subscriptions", "seek", "orders", "billing", "0:1")
    assert answer == (
        0, "", "subscription 'billing' of topic 'orders' moved: 2 messages waiting\n"
    )  # fmt: skip
    row = penstock("subscriptions", "seek", "orders", "billing", "latest", "--json").json()
    assert (row["acked"], row["dropped"], row["unexplained"]) == (1, 2, 0)
    row = penstock(
        "subscriptions", "seek", "orders", "billing", "2020-01-31T12:00", "--json"
    ).json()
    assert (row["waiting"], row["attached"]) == (3, 3)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("orders", "billing", "0:7"), 1, "0:0"),
        (("orders", "billing", "somewhere"), 2, "somewhere"),
        (("orders", "biling", "latest"), 1, "biling"),
    ],
)
def test_a_move_that_cannot_be_made_is_told(
    penstock: Penstock, words: tuple[str, ...], code: int, text: str
) -> None:
    penstock("subscriptions", "create", "orders", "billing")
    answer = penstock("subscriptions", "seek", *words)
    assert (answer.code, text in answer.err) == (code, True)


def test_kind_and_qos_are_chosen_once(penstock: Penstock) -> None:
    words = ("subscriptions", "create", "orders", "charges", "--kind", "key_shared", "--qos", "2")
    row = penstock(*words, "--json").json()
    assert (row["kind"], row["policy"]["qos"]) == ("key_shared", 2)
    assert penstock(*words).code == 0
    answer = penstock("subscriptions", "create", "orders", "charges")
    assert answer.code == 1
    assert "ask for what it has" in answer.err


def test_a_multicast_is_moved_member_by_member(penstock: Penstock) -> None:
    penstock("topics", "create", "news", "--replay", "1h")
    named = ("sub", "news", "--subscription", "screens", "--kind", "multicast", "--consumer")
    penstock(*named, "hall", "--timeout", "0.05")
    penstock("pub", "news", "open")
    penstock(*named, "hall", "--count", "1")
    answer = penstock("subscriptions", "seek", "news", "screens", "earliest")
    assert answer.code == 1
    assert "screens@consumer" in answer.err
    assert penstock("subscriptions", "seek", "news", "screens@hall", "earliest").code == 0
    assert penstock(*named, "hall", "--count", "1").out == "open\n"
