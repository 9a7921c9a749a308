import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.vocabulary.errors import InvalidArgument, PenstockError, TooLarge
from penstock.vocabulary.limits import BODY_BYTES_MAX
from penstock.wire.line_event import Event, parse_any, parse_event


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ('{"id":"1", "priority": 3, "msg":"tweet 1"}', Event("1", 3, b'"tweet 1"')),
        ('{"id":7,"priority":-2,"msg":{"a": [1,  2.50]}}', Event("7", -2, b'{"a": [1,  2.50]}')),
        ('{"msg":null,"id":"x"}', Event("x", 0, b"null")),
        ('{"id":"x"}', Event("x", 0, None)),
        ('{"id":"ä \\u00e9","priority":0,"msg":"ü"}', Event("ä é", 0, '"ü"'.encode())),
        ('{"id":12345678901234567890123}', Event("12345678901234567890123", 0, None)),
        ('{"id":-5}', Event("-5", 0, None)),
        ('{ "id" : "1" , "priority" : 1 , "msg" : "a" } ', Event("1", 1, b'"a"')),
        ('{"\\u0069d":"1"}', Event("1", 0, None)),
    ],
)  # fmt: skip
def test_an_event_is_its_id_priority_and_the_bytes_of_msg(text: str, event: Event) -> None:
    assert parse_event(text.encode()) == event


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b'{"id":1', "not JSON"),
        (b'{"id":1} x', "not JSON"),
        (b"[]", "is a JSON object"),
        (b'"text"', "is a JSON object"),
        (b"{}", "no id"),
        (b'{"priority":1,"msg":"a"}', "no id"),
        (b'{"id":true}', "id must be text or a whole number"),
        (b'{"id":1.5}', "id must be text or a whole number"),
        (b'{"id":null}', "id must be text or a whole number"),
        (b'{"id":""}', "id must not be empty"),
        (b'{"id":"","priority":1,"msg":"a"}', "id must not be empty"),
        (b'{"id":"\\ud800"}', "not valid Unicode"),
        (b'{"id":1,"priority":"high"}', "priority is not a number"),
        (b'{"id":"1","priority":"3","msg":1}', "priority is not a number"),
        (b'{"id":1,"priority":1.5}', "priority must be a whole number"),
        (b'{"id":1,"priority":true}', "priority is not a number"),
        (b'{"id":1,"priority":null}', "priority is not a number"),
        (b'{"id":"1","priority":32768,"msg":"a"}', "outside the limits"),
        (b'{"id":"1","priority":-32769,"msg":"a"}', "outside the limits"),
        (b'{"id":1,"id":2}', 'the key "id" twice'),
        (b'{"id":"1","priority":1,"msg":"a","msg":"b"}', 'the key "msg" twice'),
        (b'{"id":"1","msg":{"a":1,"a":2}}', 'the key "a" twice'),
        (b'{"id":1,"topic":"t"}', 'no "topic"'),
        (b'{"id":1,"\\u001b[2J":"t"}', 'no "\\u001b[2J"'),
        (b'{"id":1,"msg":NaN}', "NaN"),
        (b'{"id":1,"msg":[-Infinity]}', "-Infinity"),
        (b'{"id":1,"msg":1e999}', "too large"),
        (b'{"id":1,"msg":' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"id":1,"msg":"\xff"}', "not UTF-8"),
        (b'{"id":"1","priority":1,"msg":"\xff"}', "not UTF-8"),
        (b'{"id":1,"msg":"\x01"}', "not JSON"),
        (b'{"id":1,"msg":"\\ud800"}', "not JSON"),
        (b'{"id":1,"msg":' + b"[" * 64 + b"]" * 64 + b"}", "more than 64 levels"),
        (b"[" * 100_000, "more than 64 levels"),
    ],
)
def test_each_broken_rule_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_event(data)
    assert reason in caught.value.text
    assert caught.value.text.isprintable()


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(TooLarge, match="id of 257 bytes"):
        parse_event(b'{"id":"%b","priority":0,"msg":"a"}' % (b"i" * 257))
    with pytest.raises(TooLarge, match="msg of"):
        parse_event(b'{"id":"1","priority":0,"msg":"%b"}' % (b"m" * (BODY_BYTES_MAX - 1)))
    assert parse_event(b'{"id":"1","priority":0,"msg":"%b"}' % (b"m" * (BODY_BYTES_MAX - 2))).body


def test_sixty_four_levels_and_brackets_in_text_are_fine() -> None:
    deepest = b'{"id":1,"msg":' + b"[" * 63 + b"]" * 63 + b"}"
    assert parse_event(deepest).body == b"[" * 63 + b"]" * 63
    flat = b'{"id":1,"msg":[' + b",".join([b"[]"] * 1000) + b"]}"
    assert parse_event(flat)
    assert parse_event(b'{"id":1,"msg":"' + b"[" * 500 + b'\\"' + b"{" * 500 + b'"}')


def _outcome(function: Any, data: bytes) -> Any:
    try:
        return function(data)
    except PenstockError as error:
        return error.code, error.text


_KEYS = st.sampled_from(['"id"', '"priority"', '"msg"', '"i\\u0064"', '"x"', '""'])
_SCALARS = st.sampled_from(
    ['"1"', '"a b"', '""', "1", "-0", "0", "3.0", "1e2", "99999", "true", "null", "NaN", "[]", "{}",
     '"\\n"', '"\x7f"', '"é"', '"\x01"', "01", '"', "", '{"a":1,"a":2}']
)  # fmt: skip
_GAPS = st.sampled_from(["", " ", "\t", "\r", "  "])


@st.composite
def _events(draw: st.DrawFn) -> bytes:
    pairs = draw(st.lists(st.tuples(_KEYS, _SCALARS, _GAPS), max_size=4))
    inside = ",".join(f"{gap}{key}{gap}:{gap}{value}{gap}" for key, value, gap in pairs)
    return ("{" + inside + "}" + draw(_GAPS)).encode()


@given(_events() | st.binary(max_size=60))
@example(b'{"id":"1","priority":1,"msg":"a"}')
@example(b'{"id":"a","priority":1,"msg":"b","msg":2}')
@example(b'{"id":"a","id":"b","priority":1,"msg":2}')
@example(b'{"id":"a","priority":1.0,"msg":"b"}')
@example(b'{"id":"a\x7f","priority":1,"msg":"b\x7f"}')
def test_the_quick_way_decides_as_the_long_way_does(data: bytes) -> None:
    assert _outcome(parse_event, data) == _outcome(parse_any, data)


@given(
    st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable()),
    st.integers(-32768, 32767),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=6,
    ),
)
def test_what_goes_in_comes_out(id: str, priority: int, msg: Any) -> None:
    data = json.dumps({"id": id, "priority": priority, "msg": msg}).encode()
    event = parse_event(data)
    assert (event.id, event.priority) == (id, priority)
    assert event.body is not None
    assert json.loads(event.body) == msg
