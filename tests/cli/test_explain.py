"""`penstock explain` says why, what to do, and the details; or one JSON document."""

from tests.cli.conftest import Penstock


def test_a_message_without_a_consumer(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "billing")
    penstock("pub", "orders", "hello", "--id", "order-17", "--key", "k")
    for which in (["--id", "order-17"], ["--position", "0:0"], ["--key", "k"], []):
        answer = penstock("explain", "orders", *which)
        assert answer.code == 0
        assert answer.out.startswith("no-consumer: no consumer is attached")
        assert "position" in answer.out


def test_a_document_for_machines(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "a")
    penstock("subscriptions", "create", "orders", "b")
    penstock("pub", "orders", "hello")
    penstock("sub", "orders", "--subscription", "a", "--count", "1")
    found = penstock("explain", "orders", "--position", "0:0", "--json").json()
    assert (found["reason"], found["subscription"]) == ("no-consumer", "b")
    rows = {row["subscription"]: row["reason"] for row in found["subscriptions"]}
    assert rows == {"a": "acked", "b": "no-consumer"}
    text = penstock("explain", "orders", "--position", "0:0").out
    assert "SUBSCRIPTION" in text
    assert "acked" in text


def test_a_subscription_and_a_consumer(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "billing")
    answer = penstock("explain", "orders", "--subscription", "billing", "--json")
    assert answer.json()["reason"] == "nothing-waits"
    answer = penstock("explain", "orders", "--consumer", "w1", "--json")
    assert answer.json()["reason"] == "no-consumer"


def test_a_message_and_a_consumer_are_answered_both(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "billing")
    penstock("pub", "orders", "hello")
    lines = penstock("explain", "orders", "--position", "0:0", "--consumer", "w1").out.splitlines()
    assert lines[0].startswith("no-consumer: no consumer is attached")
    assert lines[1].startswith("no-consumer: no consumer 'w1' is attached")


def test_a_time_is_shown_as_people_write_it(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello")
    found = penstock("explain", "orders", "--json").json()
    assert found["reason"] == "no-subscription"
    line = next(row for row in penstock("explain", "orders").out.splitlines() if "until" in row)
    assert str(found["until"]) not in line
    assert line.count(":") == 2


def test_wrong_questions(penstock: Penstock) -> None:
    penstock("topics", "create", "orders")
    assert penstock("explain", "odrers").code == 1
    assert penstock("explain", "orders", "--position", "x").code == 2
    assert penstock("explain", "orders", "--id", "a", "--key", "b").code == 2
