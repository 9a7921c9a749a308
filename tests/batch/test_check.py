"""Every limit at its edge, and every type that is or is not a value of a message."""

import math
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from penstock.batch import check
from penstock.vocabulary.errors import InvalidArgument, TooLarge
from penstock.vocabulary.limits import (
    BODY_BYTES_MAX,
    HEADER_BYTES_MAX,
    HEADER_COUNT_MAX,
    ID_BYTES_MAX,
    KEY_BYTES_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
)


class Site(StrEnum):
    NORTH = "north"


class Level(IntEnum):
    HIGH = 7


@pytest.mark.parametrize(
    ("convert", "value"),
    [
        (check.body, b"x" * BODY_BYTES_MAX),
        (check.key, b"x" * KEY_BYTES_MAX),
        (check.key, "x" * KEY_BYTES_MAX),
        (check.key, ""),
        (check.id, "é" * (ID_BYTES_MAX // 2)),
        (check.headers, {str(n): "" for n in range(HEADER_COUNT_MAX)}),
        (check.headers, {"ab": "x" * (HEADER_BYTES_MAX - 2)}),
        (check.priority, PRIORITY_MIN),
        (check.priority, PRIORITY_MAX),
    ],
)
def test_a_value_at_its_limit_is_kept_as_it_is(convert: Callable[[Any], Any], value: Any) -> None:
    assert convert(value) == value


@pytest.mark.parametrize(
    ("convert", "value", "text"),
    [
        (check.body, b"x" * (BODY_BYTES_MAX + 1), "body of 1048577 bytes is over the limit of 10"),
        (check.body, b"x" * (BODY_BYTES_MAX + 1), "1048576; .* publish a message without a body"),
        (check.key, b"x" * (KEY_BYTES_MAX + 1), "1024; put it into the body"),
        (check.id, "x" * (ID_BYTES_MAX + 1), "256; use a shorter one"),
        (check.headers, {"a": "x" * (HEADER_BYTES_MAX + 1)}, "16384; put what is long or many"),
        (check.headers, dict.fromkeys(map(str, range(65)), ""), "64; put what is long or many"),
        (check.body, "é" * (BODY_BYTES_MAX // 2 + 1), "body of 1048578 bytes is over the limit"),
        (check.key, b"x" * (KEY_BYTES_MAX + 1), "key of 1025 bytes is over the limit of 1024"),
        (check.key, "é" * (KEY_BYTES_MAX // 2 + 1), "key of 1026 bytes is over the limit of 1024"),
        (check.id, "x" * (ID_BYTES_MAX + 1), "id of 257 bytes is over the limit of 256"),
        (
            check.headers,
            {str(n): "" for n in range(HEADER_COUNT_MAX + 1)},
            "65 headers are over the limit of 64",
        ),
        (
            check.headers,
            {"ab": "x" * (HEADER_BYTES_MAX - 1)},
            "headers of 16385 bytes is over the limit of 16384",
        ),
    ],
)
def test_a_value_over_its_limit_is_too_large(
    convert: Callable[[Any], Any], value: Any, text: str
) -> None:
    with pytest.raises(TooLarge, match=text):
        convert(value)


@pytest.mark.parametrize(
    ("convert", "value", "text"),
    [
        (check.body, 5, "body must be bytes, text or None, not int"),
        (check.body, {"a": 1}, "body must be bytes, text or None, not dict"),
        (check.body, "\ud800", "body is not valid Unicode"),
        (check.key, 5, "key must be bytes, text or None, not int"),
        (check.key, "\ud800", "key is not valid Unicode"),
        (check.id, b"id", "id must be text, not bytes"),
        (check.headers, ["a"], "headers must be a dict of text to text, not list"),
        (check.headers, {1: "a"}, "header name must be text, not int"),
        (check.headers, {"a": 1}, "header 'a' must be text, not int"),
        (check.headers, {"a": "\udfff"}, "header 'a' is not valid Unicode"),
        (check.priority, PRIORITY_MIN - 1, "priority -32769 is outside the limits"),
        (check.priority, PRIORITY_MAX + 1, "priority 32768 is outside the limits"),
        (check.priority, 1.0, "priority must be a whole number, not float"),
    ],
)
def test_a_value_of_another_kind_is_invalid(
    convert: Callable[[Any], Any], value: Any, text: str
) -> None:
    with pytest.raises(InvalidArgument, match=text):
        convert(value)


def test_subclasses_become_their_plain_value() -> None:
    assert type(check.key(Site.NORTH)) is str
    assert type(check.id(Site.NORTH)) is str
    assert type(check.priority(Level.HIGH)) is int
    assert check.headers({Site.NORTH: Site.NORTH}) == {"north": "north"}


@pytest.mark.parametrize("value", [bytearray(b"abc"), memoryview(b"abc"), "abc"])
def test_bodies_of_other_forms_become_bytes(value: Any) -> None:
    assert check.body(value) == b"abc"


def test_no_headers_at_all_are_none() -> None:
    assert check.headers({}) is None


@pytest.mark.parametrize(
    ("value", "expected"), [(None, 0), (1.5, 1500), (7, 7000), (0.0, 1), (0.0001, 1)]
)
def test_seconds_become_milliseconds_and_never_none_by_rounding(value: Any, expected: int) -> None:
    assert check.seconds("expires_at", value) == expected


@pytest.mark.parametrize(
    "value", [-1.0, math.nan, math.inf, -math.inf, 1e300, 1e307, 10**400, "soon"]
)
def test_impossible_times_are_invalid(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="expires_at"):
        check.seconds("expires_at", value)


@pytest.mark.parametrize(
    ("convert", "values"),
    [
        (check.bodies, [b"a", None, b""]),
        (check.keys, ["a", None, b"b"]),
        (check.ids, ["a", None]),
        (check.priorities, [0, 5, -5]),
    ],
)
def test_a_column_that_is_right_already_is_returned_itself(
    convert: Callable[[Any], Any], values: list[Any]
) -> None:
    assert convert(values) is values


@pytest.mark.parametrize(
    ("convert", "values", "text"),
    [
        (check.bodies, [b"", b"x" * (BODY_BYTES_MAX + 1)], "message 1: body of 1048577 bytes"),
        (check.bodies, ["", "\ud800"], "message 1: body is not valid"),
        (check.keys, [None, None, "x" * (KEY_BYTES_MAX + 1)], "message 2: key of 1025 bytes"),
        (check.ids, ["x" * (ID_BYTES_MAX + 1)], "message 0: id of 257 bytes"),
        (check.ids, ["a", ""], "message 1: id must not be empty"),
        (check.ids, [None, ""], "message 1: id must not be empty"),
        (check.priorities, [0, PRIORITY_MAX + 1], "message 1: priority 32768"),
    ],
)
def test_a_column_names_the_message_that_is_wrong(
    convert: Callable[[Any], Any], values: list[Any], text: str
) -> None:
    with pytest.raises((TooLarge, InvalidArgument), match=text):
        convert(values)


def test_long_values_within_the_limit_pass_in_a_column() -> None:
    assert check.keys(["x" * KEY_BYTES_MAX]) == ["x" * KEY_BYTES_MAX]
    assert check.ids(["x" * ID_BYTES_MAX]) == ["x" * ID_BYTES_MAX]
    assert check.bodies(["x", None, b"y"]) == [b"x", None, b"y"]


def test_times_of_a_column_may_not_be_negative() -> None:
    assert check.times("deliver_at", [0, 5]) == [0, 5]
    with pytest.raises(InvalidArgument, match="message 1: deliver_at of -5 ms"):
        check.times("deliver_at", [0, -5])
