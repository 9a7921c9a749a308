import pytest

from tests.cli.conftest import Penstock


def test_bodies_are_printed_and_acknowledged(penstock: Penstock) -> None:
    penstock("pub", "t", "one")
    penstock("pub", "t", "two")
    answer = penstock("sub", "t", "--subscription", "s", "--count", "2")
    assert (answer.code, answer.out) == (0, "one\ntwo\n")
    assert "as subscription 's'" in answer.err
    again = penstock("sub", "t", "--subscription", "s", "--timeout", "0.1")
    assert (again.code, again.out) == (0, "")


def test_a_subscription_goes_on_where_it_was(penstock: Penstock) -> None:
    for body in ("one", "two", "three"):
        penstock("pub", "t", body)
    assert penstock("sub", "t", "--subscription", "s", "--count", "1").out == "one\n"
    assert penstock("sub", "t", "--subscription", "s", "--count", "2").out == "two\nthree\n"
    assert penstock("sub", "t", "--subscription", "s", "--timeout", "0.2").out == ""


def test_what_was_not_acked_comes_again(penstock: Penstock) -> None:
    penstock("pub", "t", "one")
    words = ("sub", "t", "--subscription", "s", "--count", "1")
    assert penstock(*words, "--no-ack").out == "one\n"
    assert penstock(*words).out == "one\n"


def test_json_lines_carry_everything(penstock: Penstock) -> None:
    penstock("pub", "t", "one", "--key", "k", "--id", "a", "--header", "h=v")
    answer = penstock("sub", "t", "--subscription", "s", "--count", "1", "--json")
    (row,) = answer.rows()
    assert answer.err == ""
    assert {name: row[name] for name in ("topic", "position", "id", "key", "body", "attempt")} == {
        "topic": "t",
        "position": "0:0",
        "id": "a",
        "key": "k",
        "body": "one",
        "attempt": 1,
    }


@pytest.mark.parametrize(
    ("start", "out"),
    [
        ("0:1", "two\nthree\n"),
        ("latest", ""),
        ("earliest", "one\ntwo\nthree\n"),
        ("2020-01-01", "one\ntwo\nthree\n"),
    ],
)
def test_a_start_skips_what_lies_before(start: str, out: str, penstock: Penstock) -> None:
    for body in ("one", "two", "three"):
        penstock("pub", "t", body)
    words = ("sub", "t", "--subscription", "s", "--start", start)
    count = len(out.splitlines())
    if count:
        assert penstock(*words, "--count", str(count)).out == out
    assert penstock(*words, "--timeout", "0.2").out == ""


def test_without_a_name_only_new_messages_are_meant(penstock: Penstock) -> None:
    penstock("pub", "t", "one")
    answer = penstock("sub", "t", "--timeout", "0.1")
    assert (answer.code, answer.out) == (0, "")
    assert "new messages only" in answer.err


def test_fewer_messages_than_asked_is_a_failure(penstock: Penstock) -> None:
    penstock("pub", "t", "one")
    answer = penstock("sub", "t", "--subscription", "s", "--count", "2", "--timeout", "5", "--json")
    assert answer.code == 1
    assert answer.error() == {
        "code": "timeout",
        "text": "1 message of 2 came before 5 s without one",
    }


def test_a_reader_is_refused_with_the_reason(penstock: Penstock) -> None:
    answer = penstock("sub", "t", "--subscription", "s", "--kind", "reader", "--timeout", "0.1")
    assert answer.code == 1
    assert "a reader has no consumers" in answer.err


def test_a_kind_that_does_not_exist_is_wrong_usage(penstock: Penstock) -> None:
    answer = penstock("sub", "t", "--kind", "shred")
    assert answer.code == 2
    assert "is not one of shared" in answer.err


def test_a_pattern_shows_every_topic_that_matches(penstock: Penstock) -> None:
    penstock("pub", "sensors/a/temp", "one")
    penstock("pub", "sensors/a/hum", "other")
    words = ("sub", "sensors/+/temp", "--subscription", "s", "--json")
    for topic, body in (("sensors/a/temp", "one"), ("sensors/b/temp", "two")):
        if body == "two":
            penstock("pub", topic, body)
        (row,) = penstock(*words, "--count", "1").rows()
        assert (row["topic"], row["body"]) == (topic, body)
        assert penstock(*words, "--timeout", "0.2").rows() == []
    listed = penstock("subscriptions", "list", "--json").json()
    assert [row["topic"] for row in listed] == [
        "sensors/+/temp",
        "sensors/a/temp",
        "sensors/b/temp",
    ]
    assert penstock("subscriptions", "delete", "sensors/+/temp", "s", "--yes").code == 0
    assert "sensors" not in penstock("subscriptions", "list").out


def test_a_wrong_pattern_is_refused_with_the_reason(penstock: Penstock) -> None:
    answer = penstock("sub", "a/#/b", "--timeout", "0.1")
    assert answer.code != 0
    assert "must be the last level" in answer.err


def test_each_consumer_of_a_multicast_gets_every_message(penstock: Penstock) -> None:
    words = ("sub", "t", "--subscription", "s", "--kind", "multicast")
    for name in ("left", "right"):
        assert penstock(*words, "--consumer", name, "--timeout", "0.2").out == ""
    penstock("pub", "t", "one")
    for name in ("left", "right"):
        assert penstock(*words, "--consumer", name, "--count", "1").out == "one\n"
        assert penstock(*words, "--consumer", name, "--timeout", "0.2").out == ""
    assert penstock(*words, "--timeout", "0.3").out == ""
    table = penstock("subscriptions", "list", "t").out
    assert "s@left" in table
    assert "s@right" in table


def test_a_qos_is_for_a_new_subscription(penstock: Penstock) -> None:
    penstock("pub", "t", "one")
    words = ("sub", "t", "--subscription", "s", "--qos")
    assert penstock(*words, "0", "--no-ack", "--count", "1").out == "one\n"
    assert penstock(*words, "0", "--timeout", "0.5").out == ""
    assert penstock(*words, "2", "--timeout", "0.5").code == 1
    assert penstock(*words, "3").code == 2
