import io
import json
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Penstock


def type_in(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


def test_a_receipt_says_where_the_message_is(penstock: Penstock) -> None:
    answer = penstock("pub", "orders", "hello", "--id", "order-1")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "orders 0:0  id order-1  synced\n"


def test_a_repeated_id_is_called_a_duplicate(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello", "--id", "order-1")
    answer = penstock("pub", "orders", "hello", "--id", "order-1")
    assert answer.out == "orders 0:0  id order-1  synced, duplicate: not stored again\n"
    assert penstock("pub", "orders", "hello", "--id", "order-1", "--json").json()["duplicate"]
    assert len(penstock("peek", "orders", "--json").rows()) == 1


def test_repeated_ids_of_many_lines_are_counted(penstock: Penstock, here: Path) -> None:
    (here / "rows").write_text("".join(f'{{"body": "x", "id": "{n % 3}"}}\n' for n in range(5)))
    answer = penstock("pub", "orders", "--file", "rows", "--ndjson")
    assert answer.out.startswith("5 messages confirmed, 2 of them duplicates")


def test_a_receipt_for_machines(penstock: Penstock) -> None:
    assert penstock("pub", "orders", "hello", "--id", "order-1", "--json").json() == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "position": "0:0",
        "id": "order-1",
        "durability": "synced",
        "duplicate": False,
    }


def test_a_quiet_publish_prints_nothing(penstock: Penstock) -> None:
    assert penstock("pub", "orders", "hello", "-q") == (0, "", "")


def test_key_headers_and_body_arrive(penstock: Penstock) -> None:
    penstock("pub", "t", "ünïcode", "--key", "k", "--header", "a=1", "--header", "b=x=y")
    (row,) = penstock("peek", "t", "--json").rows()
    assert (row["body"], row["key"], row["headers"]) == ("ünïcode", "k", {"a": "1", "b": "x=y"})


def test_a_message_may_have_no_body(penstock: Penstock) -> None:
    assert penstock("pub", "t", "--key", "photo-1").code == 0
    (row,) = penstock("peek", "t", "--json").rows()
    assert row["body"] is None


def test_an_empty_body_is_not_an_absent_one(penstock: Penstock) -> None:
    penstock("pub", "t", "")
    (row,) = penstock("peek", "t", "--json").rows()
    assert row["body"] == ""


def test_standard_input_is_one_body(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, b"two\nlines\n")
    assert penstock("pub", "t", "-").code == 0
    (row,) = penstock("peek", "t", "--json").rows()
    assert row["body"] == "two\nlines\n"


def test_each_line_may_be_a_body(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, b"one\n\ntwo\nthree")
    answer = penstock("pub", "t", "-", "--lines", "--key", "k")
    assert answer.out == "3 messages confirmed  0:0 … 0:2  synced\n"
    rows = penstock("peek", "t", "--json").rows()
    assert [(row["body"], row["key"]) for row in rows] == [
        ("one", "k"),
        ("two", "k"),
        ("three", "k"),
    ]


def test_many_lines_are_one_report_for_machines(penstock: Penstock, here: Path) -> None:
    (here / "lines").write_text("".join(f"{n}\n" for n in range(2_500)))
    assert penstock("pub", "t", "--file", "lines", "--lines", "--json").json() == {
        "topic": "t",
        "published": 2_500,
        "duplicates": 0,
        "first": "0:0",
        "last": "0:2499",
        "durability": "synced",
    }


def test_an_empty_input_publishes_nothing(penstock: Penstock, here: Path) -> None:
    (here / "empty").write_text("")
    answer = penstock("pub", "t", "--file", "empty", "--lines", "--json")
    assert (answer.code, answer.json()["published"]) == (0, 0)


def test_ndjson_carries_everything_a_message_has(penstock: Penstock, here: Path) -> None:
    messages = [
        {"body": "plain", "key": "k", "id": "a", "headers": {"h": "v"}},
        {"json": {"n": 1}},
        {"body_base64": "AP8="},
    ]
    (here / "in").write_text("".join(json.dumps(each) + "\n" for each in messages))
    assert penstock("pub", "t", "--file", "in", "--ndjson").code == 0
    first, second, third = penstock("peek", "t", "--json").rows()
    assert (first["body"], first["key"], first["id"], first["headers"]) == (
        "plain",
        "k",
        "a",
        {"h": "v"},
    )
    assert (second["body"], third["body_base64"]) == ('{"n":1}', "AP8=")


def test_what_peek_prints_can_be_published_elsewhere(penstock: Penstock, here: Path) -> None:
    penstock("pub", "from", "hello", "--key", "k", "--id", "a")
    (here / "copy").write_text(penstock("peek", "from", "--json").out)
    assert penstock("pub", "to", "--file", "copy", "--ndjson").code == 0
    (row,) = penstock("peek", "to", "--json").rows()
    assert (row["body"], row["key"], row["id"], row["topic"]) == ("hello", "k", "a", "to")


def test_a_higher_priority_goes_first(penstock: Penstock) -> None:
    penstock("pub", "alarms", "all well")
    penstock("pub", "alarms", "fire", "--priority", "9")
    answer = penstock("sub", "alarms", "--subscription", "desk", "--count", "2")
    assert answer.out == "fire\nall well\n"


@pytest.mark.parametrize("words", [["x"], ["--file", "line", "--lines"]], ids=["one", "lines"])
def test_a_delayed_message_waits(words: list[str], penstock: Penstock, here: Path) -> None:
    (here / "line").write_text("x\n")
    penstock("subscriptions", "create", "mails", "post")
    assert penstock("pub", "mails", *words, "--delay", "1h").code == 0
    assert penstock("sub", "mails", "--subscription", "post", "--timeout", "0.05").out == ""
    (row,) = penstock("subscriptions", "list", "mails", "--json").json()
    assert (row["delayed"], row["waiting"]) == (1, 0)


@pytest.mark.parametrize("words", [["x"], ["--file", "line", "--lines"]], ids=["one", "lines"])
def test_a_message_past_its_time_to_live_is_not_delivered(
    words: list[str], penstock: Penstock, here: Path
) -> None:
    (here / "line").write_text("x\n")
    penstock("subscriptions", "create", "mails", "post")
    assert penstock("pub", "mails", *words, "--ttl", "1ms").code == 0
    penstock("pub", "mails", "y", "--ttl", "1h")
    time.sleep(0.01)
    taking = ("sub", "mails", "--subscription", "post", "--timeout")
    assert penstock(*taking, "60", "--count", "1").out == "y\n"
    assert penstock(*taking, "0.2").out == ""
    (row,) = penstock("subscriptions", "list", "mails", "--json").json()
    assert (row["expired"], row["acked"]) == (1, 1)


def test_a_wrong_line_is_named(penstock: Penstock, here: Path) -> None:
    (here / "in").write_text('{"body": "x"}\n{"body": 5}\n')
    answer = penstock("pub", "t", "--file", "in", "--ndjson")
    assert answer.code == 2
    assert "line 2: 'body' must be text" in answer.err


def test_a_json_body_is_checked_and_marked(penstock: Penstock) -> None:
    assert penstock("pub", "t", '{"a": 1}', "--json-body").code == 0
    (row,) = penstock("peek", "t", "--json").rows()
    assert row["headers"] == {"content-type": "application/json"}
    assert penstock("pub", "t", "{", "--json-body").code == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["t"], "give a BODY"),
        (["t", "x", "--lines"], "read '-'"),
        (["t", "x", "--file", "f"], "not both"),
        (["t", "-", "--lines", "--id", "a"], "--id names one message"),
        (["t", "-", "--ndjson", "--key", "a"], "each line has its own key"),
        (["t", "-", "--ndjson", "--delay", "1"], "each line has its own key"),
        (["t", "-", "--ndjson", "--ttl", "0"], "each line has its own key"),
        (["t", "x", "--delay", "soon"], "not a length of time"),
        (["t", "-", "--lines", "--ndjson"], "not allowed with"),
        (["t", "x", "--header", "plain"], "not a header of the form name=value"),
        ([], "TOPIC"),
    ],
)
def test_wrong_usage(words: list[str], problem: str, penstock: Penstock) -> None:
    answer = penstock("pub", *words)
    assert answer.code == 2
    assert problem in answer.err


def test_a_wrong_topic_name_is_wrong_usage(penstock: Penstock) -> None:
    answer = penstock("pub", "two words", "x", "--json")
    assert answer.code == 2
    assert answer.error()["code"] == "invalid-name"


def test_a_missing_file_is_said(penstock: Penstock) -> None:
    answer = penstock("pub", "t", "--file", "missing")
    assert answer.code == 1
    assert "missing: No such file" in answer.err


def test_a_file_called_dash_is_standard_input(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, b"hello")
    assert penstock("pub", "t", "--file", "-").code == 0
    (row,) = penstock("peek", "t", "--json").rows()
    assert row["body"] == "hello"
    assert penstock("pub", "t", "body", "--file", "-").code == 2
