from tests.cli.conftest import Penstock


def test_the_oldest_messages_are_shown_and_stay(penstock: Penstock) -> None:
    for number in range(12):
        penstock("pub", "t", f"body-{number}")
    for _ in range(2):
        lines = penstock("peek", "t").out.splitlines()
        assert len(lines) == 10
        assert lines[0].strip().startswith("0:0  ")
        assert lines[9].endswith("  body-9")
    assert len(penstock("peek", "t", "--count", "3").out.splitlines()) == 3
    assert penstock("subscriptions", "list", "--json").json() == []


def test_json_lines_for_machines(penstock: Penstock) -> None:
    penstock("pub", "t", "hello", "--id", "a")
    (row,) = penstock("peek", "t", "--json").rows()
    assert (row["id"], row["body"], row["attempt"]) == ("a", "hello", 0)


def test_an_empty_topic_holds_nothing(penstock: Penstock) -> None:
    penstock("topics", "create", "t")
    answer = penstock("peek", "t")
    assert (answer.code, answer.out) == (0, "")
    assert "holds no messages" in answer.err


def test_an_unknown_topic_is_answered_with_the_nearest(penstock: Penstock) -> None:
    penstock("topics", "create", "orders")
    answer = penstock("peek", "odrers")
    assert answer.code == 1
    assert "did you mean 'orders'?" in answer.err
    assert "[unknown-topic]" in answer.err
