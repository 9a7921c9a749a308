from tests.cli.conftest import Penstock


def _filled(penstock: Penstock) -> None:
    penstock("topics", "create", "tweets", "--on-duplicate", "replace")
    penstock("subscriptions", "create", "tweets", "line.alice")
    penstock("pub", "tweets", '"low"', "--id", "1", "--priority", "1")
    penstock("pub", "tweets", "no json", "--id", "2", "--priority", "5")


def test_the_log_shows_each_subscriber_with_its_events_in_order(penstock: Penstock) -> None:
    _filled(penstock)
    found = penstock("topics", "log", "tweets", "--json").json()
    assert list(found) == ["line.alice"]
    rows = found["line.alice"]
    assert [list(row) for row in rows] == [["timestamp", "priority", "msg", "id"]] * 2
    assert [(row["id"], row["priority"], row["msg"]) for row in rows] == [
        ("2", 5, "no json"),
        ("1", 1, "low"),
    ]
    assert all(row["timestamp"] > 1_600_000_000_000 for row in rows)


def test_people_see_a_line_for_each_event_and_what_is_left_out(penstock: Penstock) -> None:
    _filled(penstock)
    answer = penstock("topics", "log", "tweets", "--count", "1")
    title, row = answer.out.splitlines()
    assert title == "line.alice: 2"
    assert '"id": "2"' in row
    assert answer.err == "1 more wait for line.alice: see --count\n"


def test_nothing_of_an_event_moves_the_cursor(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "tweets", "s")
    penstock("pub", "tweets", "a\x9b2Jb")
    assert "\x9b" not in penstock("topics", "log", "tweets").out


def test_a_topic_without_subscribers_says_so(penstock: Penstock) -> None:
    penstock("topics", "create", "tweets")
    answer = penstock("topics", "log", "tweets")
    assert (answer.code, answer.out) == (0, "")
    assert "has no subscribers" in answer.err


def test_an_unknown_topic_is_named(penstock: Penstock) -> None:
    penstock("topics", "create", "tweets")
    answer = penstock("topics", "log", "tweats")
    assert answer.code != 0
    assert "tweats" in answer.err
