import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.errors import InvalidArgument
from penstock.wire.rest_json import DEPTH_MAX, check_depth, convert, key_count, parse, read

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


class Small(msgspec.Struct, forbid_unknown_fields=True):
    a: int = 0


@given(VALUES)
def test_json_reads_as_what_it_says(value: Any) -> None:
    text = json.dumps(value)
    try:
        text.encode()
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    assert parse(text.encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_clear_error(data: bytes) -> None:
    try:
        parse(data)
    except InvalidArgument as caught:
        error: InvalidArgument | None = caught
    else:
        error = None
    assert error is None or error.text.startswith("the body ")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a":1,"a":2}', "names 'a' twice"),
        (b'[{"b":{"a":1,"a":1}}]', "twice"),
        (b"NaN", "NaN"),
        (b'{"a":-Infinity}', "Infinity"),
        (b"[" * 65 + b"]" * 65, "deeper than 64"),
        (b"[" * 100_000, "deeper than 64"),
        (b"\xff\xfe", "not UTF-8|not JSON"),
        (b'{"a"', "not JSON"),
        (b'"\\ud800"', "not Unicode"),
        (b"1" * 5000, "not JSON"),
    ],
)
def test_what_json_must_not_be_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        parse(data)


def test_depth_up_to_the_limit_is_taken() -> None:
    value = parse(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
    check_depth(value)


@given(VALUES)
def test_keys_are_counted_as_colons_are(value: Any) -> None:
    texts = json.dumps(value, ensure_ascii=True).replace("\\\\", "").replace('\\"', "")
    assert key_count(value) == "".join(texts.split('"')[::2]).count(":")


def test_a_wrong_field_is_named() -> None:
    with pytest.raises(InvalidArgument, match="fit: a must be a whole number, not text"):
        read(b'{"a":"x"}', Small)
    with pytest.raises(InvalidArgument, match="there is no field b; known: a"):
        convert({"b": 1}, Small)


def test_nothing_at_all_means_no_field() -> None:
    assert read(b" \n", Small) == Small()
