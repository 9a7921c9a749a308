from tests.cli.conftest import Penstock


def test_it_shows_what_is_there_and_takes_nothing(penstock: Penstock) -> None:
    penstock("pub", "t", "one", "--key", "k")
    penstock("pub", "t", "two")
    for _ in range(2):
        answer = penstock("tail", "t", "--start", "earliest", "--count", "2")
        assert answer.code == 0
        first, second = answer.out.splitlines()
        assert first.strip().startswith("0:0  ")
        assert first.endswith("  key=k  one")
        assert second.endswith("  two")
    assert penstock("subscriptions", "list", "--json").json() == []


def test_it_ends_after_enough(penstock: Penstock) -> None:
    for body in ("one", "two"):
        penstock("pub", "t", body)
    rows = penstock("tail", "t", "--start", "earliest", "--count", "1", "--json").rows()
    assert [row["body"] for row in rows] == ["one"]


def test_from_the_end_there_is_nothing_yet(penstock: Penstock) -> None:
    penstock("pub", "t", "one")
    answer = penstock("tail", "t", "--timeout", "0.1")
    assert (answer.code, answer.out, answer.err) == (0, "", "following 't'; Ctrl-C ends\n")


def test_without_a_store_there_is_nothing_to_follow(penstock: Penstock) -> None:
    assert penstock("tail", "t", "--timeout", "0.1").code == 3


def test_an_unknown_topic_is_refused_and_not_made(penstock: Penstock) -> None:
    penstock("pub", "orders", "one")
    answer = penstock("tail", "order", "--timeout", "0.1")
    assert answer.code == 1
    assert "there is no topic 'order'; did you mean 'orders'?" in answer.err
    assert [row["topic"] for row in penstock("topics", "list", "--json").json()] == ["orders"]


def test_a_pattern_needs_no_topic_yet(penstock: Penstock) -> None:
    penstock("pub", "orders", "one")
    assert penstock("tail", "sensors/+", "--timeout", "0.1").code == 0
