import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.errors import DiskFull, PenstockError, UnknownTopic, catalogue
from penstock.wire import line_reply as say

EVIL = ["a\r\nb", "\x1b[2J", "\u202eabc", "\x9b1m", "\x00", "\x7f"]


def test_the_words_of_the_contract() -> None:
    assert say.ok("1") == b"ok 1\r\n"
    assert say.subscribed("t") == b"successfully subscribed to topic t\r\n"
    assert say.unsubscribed("t") == b"successfully unsubscribed from topic t\r\n"
    assert say.no_such_topic("t") == b"error: topic t does not exist\r\n"
    assert say.not_subscribed("t") == b"error: you are not subscribed to topic t\r\n"
    assert say.no_such_event("7") == b"error: event with id 7 does not exist\r\n"
    assert say.delivery(b'"t"', "1", 3, b'{"a": 1}') == (
        b'{"topic":"t","id":"1","priority":3,"msg":{"a": 1}}\r\n'
    )


def test_a_list_says_how_many_lines_follow() -> None:
    assert say.listing(["a", b"b"]) == b"ok 2\r\n  a\r\n  b\r\n"
    assert say.listing([]) == b"ok 0\r\n"


@pytest.mark.parametrize("evil", EVIL)
def test_nothing_from_outside_reaches_a_terminal_raw(evil: str) -> None:
    lines = [
        say.ok(evil), say.subscribed(evil), say.unsubscribed(evil), say.no_such_topic(evil),
        say.not_subscribed(evil), say.no_such_event(evil), say.refused(evil), say.text_line(evil),
        say.error_line(DiskFull(evil)), say.error_line(UnknownTopic(evil), evil),
        say.delivery(b'"t"', evil, 0, evil.encode()),
    ]  # fmt: skip
    for line in lines:
        assert line.endswith(b"\r\n")
        assert line[:-2].decode().isprintable(), line


@pytest.mark.parametrize("kind", catalogue().values(), ids=lambda kind: kind.code)
def test_every_error_has_a_line_with_its_code(kind: type[PenstockError]) -> None:
    assert say.error_line(kind("it broke")) == f"error: it broke [{kind.code}]\r\n".encode()
    assert say.error_line(kind()).startswith(b"error: ")
    assert say.error_line(kind()).count(b"\r\n") == 1


def test_an_unknown_topic_is_said_in_the_words_of_the_contract() -> None:
    assert say.error_line(UnknownTopic("long text"), "t") == b"error: topic t does not exist\r\n"


def test_a_long_name_is_cut_in_errors() -> None:
    assert len(say.no_such_topic("x" * 10_000)) < 400


@given(st.text(max_size=40), st.integers(-32768, 32767), st.none() | st.binary(max_size=60))
def test_a_delivery_is_one_line_with_exactly_four_keys(
    id: str, priority: int, body: bytes | None
) -> None:
    try:
        id.encode()
    except UnicodeEncodeError:
        return
    line = say.delivery(b'"t"', id, priority, body)
    assert line.endswith(b"\r\n")
    assert line[:-2].decode().isprintable()
    found = json.loads(line)
    assert list(found) == ["topic", "id", "priority", "msg"]
    assert (found["id"], found["priority"]) == (id, priority)


def test_an_id_can_be_typed_as_it_is_shown() -> None:
    assert say.shown_id('a"b\n') == 'a\\"b\\n'
    assert say.ok("a\nb") == b"ok a\\nb\r\n"
