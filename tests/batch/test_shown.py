import base64
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch.shown import BASE64_KEY, json_of, json_text, tame, value_of


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (None, b"null"),
        (b"null", b"null"),
        (b'{"a": [1, 2.50]}', b'{"a": [1, 2.50]}'),
        (b'{"a":\n\t[1,\r\n2.50]}', b'{"a":[1,2.50]}'),
        (b"plain text", b'"plain text"'),
        (b"", b'""'),
        (b"NaN", b'"NaN"'),
        (b"two\nlines", b'"two\\nlines"'),
        (b"\xff\x00", b'{"$base64":"/wA="}'),
        (b"1e999", b'"1e999"'),
    ],
)
def test_a_body_is_shown_as_json_text_or_base64(body: bytes | None, shown: bytes) -> None:
    assert json_of(body) == shown


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_whatever_the_body_it_is_one_printable_line_that_means_the_same(body: bytes) -> None:
    line = json_of(body)
    assert line.decode().isprintable()
    shown = json.loads(line)
    try:
        assert shown == msgspec.json.decode(body)
        return
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass  # no JSON
    try:
        assert shown == body.decode()
    except UnicodeDecodeError:
        assert base64.b64decode(shown[BASE64_KEY]) == body


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=8))
def test_json_keeps_its_value(value: object) -> None:
    pretty = json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "replace")
    assert json.loads(json_of(pretty)) == json.loads(pretty)


@pytest.mark.parametrize("mark", ["\x7f", "\x9b", "\u202e", "\u2028", "\ufeff", "\U000e0001"])
def test_nothing_in_it_moves_a_cursor(mark: str) -> None:
    for line in (json_of(f'["a{mark}b"]'.encode()), json_of(f"a{mark}b".encode())):
        assert mark not in line.decode()
        assert line.decode().isprintable()
    assert json.loads(json_text(mark)) == mark
    assert tame(b'"plain"') == b'"plain"'


def test_a_value_is_one_that_messagepack_can_carry() -> None:
    assert value_of(b'{"a":1}') == {"a": 1}
    assert value_of(None) is None
    huge = b"1" * 30
    assert value_of(huge) == huge.decode()


def test_json_that_is_too_deep_to_read_is_text() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    assert value_of(deep) == deep.decode()
