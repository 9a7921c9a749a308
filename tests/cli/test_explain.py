"""`penstock explain` says why, what to do, and the details; or one JSON document."""

import pytest

from penstock.cli.explain import show
from penstock.cli.output import Output
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


def test_what_comes_first_is_named_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    head = {"position": "0:1", "reason": "leased", "text": "w1 holds it"}
    found = {"reason": "behind-key", "text": "0:1 goes first", "ahead": 0, "revoked": False}
    show(Output(), {**found, "partition": 0, "owner": "", "head": head, "behind": "0:1"})
    assert capsys.readouterr().out.splitlines() == [
        "behind-key: 0:1 goes first",
        "",
        "ahead   0",
        "behind  0:1",
        "head    0:1 (leased)",
    ]


def test_what_else_keeps_it_is_said_too(capsys: pytest.CaptureFixture[str]) -> None:
    besides = {"reason": "no-consumer", "text": "start one"}
    found = {"reason": "time-paused", "text": "the clock jumped", "besides": besides}
    show(Output(), found)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["time-paused: the clock jumped", "no-consumer: start one"]


def test_rows_say_the_beginning_and_lists_are_readable(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"subscription": "app@a", "position": "0:1", "reason": "leased"}
    rows = [row | {"text": "w1 holds it; see what it does. Of 0:0: nothing"}]
    readers = [{"subscription": "tables", "owner": "r", "progress": [1, 2], "planned": [3, 4]}]
    found = {"reason": "ask-member", "text": "ask one", "members": rows, "readers": readers}
    show(Output(), {**found, "is_in_unit": True, "jumped_s": 7200.0})
    out = capsys.readouterr().out
    assert "is in unit  yes" in out
    assert "jumped s    7,200" in out
    assert "app@a         0:1       leased  w1 holds it\n" in out
    assert "tables        r      1, 2      3, 4" in out


def test_a_multicast_and_a_pattern(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "app", "--kind", "multicast")
    penstock("pub", "orders", "hello")
    assert penstock("explain", "orders").out.startswith("no-member: ")
    penstock("subscriptions", "create", "shop.+", "all")
    assert penstock("explain", "shop.+").out.startswith("no-topic: ")
    for topic in ("shop.a", "shop.b"):
        penstock("pub", topic, "hello")
    answer = penstock("explain", "shop.+")
    assert answer.out.startswith("no-consumer: ")
    assert "shop.b" in answer.out
    assert penstock("explain", "shop.+", "--position", "0:0").code == 2
    assert penstock("explain", "shop.+", "--subscription", "odd").code == 1
