import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.errors import InvalidArgument
from penstock.wire.line import PARTS, WORDS, Command, Language, Verb, is_http

LANGUAGE = Language()


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"sub tweets", Command(Verb.SUBSCRIBE, "tweets")),
        (b"SUBSCRIBE tweets", Command(Verb.SUBSCRIBE, "tweets")),
        (b"unsub tweets", Command(Verb.UNSUBSCRIBE, "tweets")),
        (b"UNSUBSCRIBE tweets", Command(Verb.UNSUBSCRIBE, "tweets")),
        (b"ack tweets 1", Command(Verb.ACK, "tweets", "1")),
        (b"ACKNOWLEDGE tweets a  b c ", Command(Verb.ACK, "tweets", "a  b c ")),
        (b'pub t {"id": 1}', Command(Verb.PUBLISH, "t", '{"id": 1}')),
        (b'PUBLISH t {"id": 1}', Command(Verb.PUBLISH, "t", '{"id": 1}')),
        (b"nack t 1", Command(Verb.NACK, "t", "1")),
        (b"id bob", Command(Verb.ID, "bob")),
        (b"id", Command(Verb.ID)),
        (b"peek t 5", Command(Verb.PEEK, "t", "5")),
        (b"peek t", Command(Verb.PEEK, "t")),
        (b"topics", Command(Verb.TOPICS)),
        (b"stats ", Command(Verb.STATS)),
        (b"explain t 1", Command(Verb.EXPLAIN, "t", "1")),
        (b"help pub", Command(Verb.HELP, "pub")),
        (b"quit", Command(Verb.QUIT)),
        ("sub grüße".encode(), Command(Verb.SUBSCRIBE, "grüße")),
    ],
)  # fmt: skip
def test_a_line_is_a_command(line: bytes, command: Command) -> None:
    assert LANGUAGE.parse(line) == command


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"PUB t {}", "unknown command: PUB; did you mean pub?"),
        (b"publish t {}", "unknown command: publish; did you mean PUBLISH?"),
        (b"sbu t", "unknown command: sbu; did you mean sub?"),
        (b"frobnicate", "unknown command: frobnicate; type help for a list"),
        (b" sub t", "unknown command: ;"),
        (b"\x1b[2Jsub t", "unknown command: \\x1b[2Jsub;"),
        (b"sub", "usage: sub <topic>;"),
        (b"sub  t", "usage: sub <topic>; parts are separated by single spaces"),
        (b"sub t more", "usage: sub <topic>;"),
        (b"ack t", "usage: ack <topic> <id>;"),
        (b"pub t", "usage: pub <topic> <json>; parts are separated by single spaces; see help pub"),
        (b"quit now", "usage: quit;"),
        (b"sub \xff", "not UTF-8 text: byte 5"),
    ],
)
def test_what_is_no_command_says_what_to_write_instead(line: bytes, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        LANGUAGE.parse(line)
    assert text in caught.value.text
    assert caught.value.text.isprintable()


def test_words_can_be_chosen() -> None:
    language = Language({"publish": ["SEND", "+"], "help": ["?"]})
    assert language.parse(b"+ t {}").verb is Verb.PUBLISH
    assert language.parse(b"?") == Command(Verb.HELP)
    assert language.parse(b"sub t").verb is Verb.SUBSCRIBE
    assert language.publish_words == {b"SEND", b"+"}
    assert language.usage(Verb.PUBLISH) == "SEND <topic> <json>"
    with pytest.raises(InvalidArgument, match=r"unknown command: pub.*type \? for"):
        language.parse(b"pub t {}")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"send": ["s"]}, "no command 'send'"),
        ({"publish": []}, "must be a list"),
        ({"publish": "pub"}, "must be a list"),
        ({"publish": ["two words"]}, "without spaces"),
        ({"publish": [""]}, "cannot stand for"),
        ({"publish": ["\x1b"]}, "cannot stand for"),
        ({"publish": ["sub"]}, "stands for both 'publish' and 'subscribe'"),
    ],
)
def test_a_choice_that_makes_no_sense_is_named(words: dict[str, list[str]], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Language(words)


def test_every_verb_has_words_and_a_form() -> None:
    assert set(WORDS) == set(PARTS) == set(Verb)


@given(st.binary(max_size=80) | st.text(max_size=40).map(lambda t: t.encode("utf-8", "replace")))
def test_any_line_is_a_command_or_a_reason(line: bytes) -> None:
    try:
        found = LANGUAGE.parse(line).verb.value
    except InvalidArgument as error:
        found = error.text
    assert found.isprintable()


@pytest.mark.parametrize(
    "line", [b"GET / HTTP/1.1", b"POST /v1/topics HTTP/1.0", b"Host: localhost:8000", b"host:x"]
)
def test_a_request_is_known_by_its_lines(line: bytes) -> None:
    assert is_http(line)


@pytest.mark.parametrize(
    "line", [b"GET", b"pub t {}", b"pub HTTP/1.1 {}", b"sub host:", b"localhost:"]
)
def test_a_command_is_no_request(line: bytes) -> None:
    assert not is_http(line)
