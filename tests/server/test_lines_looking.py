import json

import pytest

from penstock.server import lines_looking as looking
from penstock.vocabulary.errors import InvalidArgument, UnknownSubscription, UnknownTopic
from penstock.vocabulary.message import Message
from tests.broker.rig import Rig


def _rows(reply: bytes) -> list[str]:
    header, *lines = reply.decode().split("\r\n")
    assert lines.pop() == ""
    assert header == f"ok {len(lines)}"
    assert all(line.startswith("  ") for line in lines)
    return [line[2:] for line in lines]


def test_topics_are_listed_by_name_and_by_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    for topic in ("b", "ab", "aa"):
        rig.publish(topic, b"x")
    assert [json.loads(row)["topic"] for row in _rows(looking.topics(rig.broker, ""))] == [
        "aa", "ab", "b",
    ]  # fmt: skip
    assert len(_rows(looking.topics(rig.broker, "a"))) == 2
    monkeypatch.setattr(looking, "LINE_LISTED_MAX", 2)
    assert _rows(looking.topics(rig.broker, ""))[-1] == "and 1 more: say how the name begins"


@pytest.mark.parametrize("count", ["0", "101", "-1", "1.5", "ten", "\u0661", "1000000"])
def test_a_count_that_is_none_is_refused(count: str) -> None:
    rig = Rig()
    rig.publish("t", b"x")
    with pytest.raises(InvalidArgument, match="from 1 to 100"):
        looking.peek(rig.broker, "t", count)


def test_peek_takes_nothing_and_says_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.publish("t", *[b"%d" % n for n in range(20)])
    assert [json.loads(row)["msg"] for row in _rows(looking.peek(rig.broker, "t", "3"))] == [
        0,
        1,
        2,
    ]
    assert len(_rows(looking.peek(rig.broker, "t", ""))) == 10
    monkeypatch.setattr(looking, "OUT_BYTES_MAX", 200)
    *rows, last = _rows(looking.peek(rig.broker, "t", "20"))
    assert len(rows) == 2
    assert last.startswith("and 18 more, too large")
    assert len(rig.held("t")) == 20
    with pytest.raises(UnknownTopic):
        looking.peek(rig.broker, "nothing", "1")


def test_numbers_of_the_broker_and_of_the_listener() -> None:
    broker, own = map(json.loads, _rows(looking.stats(Rig().broker, {"you": "bob\x1b"})))
    assert broker["health"]["status"] == "ok"
    assert own == {"lines": {"you": "bob\x1b"}}


def test_an_explanation_is_one_line() -> None:
    rig = Rig()
    rig.publish("t", Message(id="1", body=b"x"))  # type: ignore[arg-type]
    assert looking.explain(rig.broker, "t", None, "1", {}).startswith(b"ok no-subscription: ")
    with pytest.raises(UnknownSubscription):
        looking.explain(rig.broker, "t", "line.bob", "1", {})
