"""Patterns: what they match, when two of them meet, and which are refused."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.errors import InvalidName
from penstock.vocabulary.filters import (
    check_filter,
    check_pattern,
    is_pattern,
    levels,
    matches,
    overlap,
)

MATCHES = [
    ("sensors/+/temp", "sensors/a/temp", True),
    ("sensors/*/temp", "sensors/a/temp", True),
    ("sensors/+/temp", "sensors.a:temp", True),
    ("sensors/+/temp", "sensors/a/b/temp", False),
    ("sensors/+/temp", "sensors/temp", False),
    ("sensors/+", "sensors", False),
    ("sensors/+", "sensors/", True),
    ("sensors/#", "sensors/a/b", True),
    ("sensors.>", "sensors/a/b", True),
    ("sensors/#", "sensors", True),
    ("sensors/#", "sensorsx", False),
    ("#", "anything.at:all", True),
    ("+", "orders", True),
    ("+", "orders.new", False),
    ("#", "$system.feature", False),
    ("+", "$system", False),
    ("#", "orders.dead.billing", False),
    ("orders.*.billing", "orders.dead.billing", False),
    ("#", "orders.deadly", True),
    ("+/b/#", "a/b", True),
    ("+/b/#", "a/c/d", False),
]


@pytest.mark.parametrize(("pattern", "topic", "expected"), MATCHES)
def test_a_pattern_matches_level_by_level(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a/#/b", "must be the last level"),
        (">.a", "must be the last level"),
        ("a//+", "empty level"),
        ("/+", "empty level"),
        ("+/", "empty level"),
        ("+x", "level of its own"),
        ("a/x#", "level of its own"),
        ("a/+*", "level of its own"),
        ("a b/+", "space"),
        ("x" * 254 + "/+", "over the limit"),
        (".".join("+" * 17), "more than 16 levels"),
        ("a.dead.+", "can match nothing"),
        ("$system.#", "can match nothing"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        check_pattern(text)


@pytest.mark.parametrize("text", ["+", "#", "a.b.>", "a/+/c", "*:x", "größe/+"])
def test_a_pattern_that_makes_sense_passes_unchanged(text: str) -> None:
    assert is_pattern(text)
    assert check_filter(text) == check_pattern(text) == text


def test_a_filter_without_marks_is_a_topic() -> None:
    assert not is_pattern("orders.new")
    assert check_filter("orders.new") == "orders.new"
    assert check_filter("orders.dead.s", reserved=True) == "orders.dead.s"
    with pytest.raises(InvalidName, match="reserved"):
        check_filter("orders.dead.s")
    with pytest.raises(InvalidName, match="non-empty"):
        check_filter(7)  # type: ignore[arg-type]  # that is the point


LEVEL = st.sampled_from(["a", "b", "+", "*"])
PATTERNS = st.builds(
    lambda parts, rest: "/".join([*parts, *rest]),
    st.lists(LEVEL, min_size=1, max_size=3),
    st.sampled_from([[], ["#"], [">"]]),
)
TOPICS = ["/".join(parts) for size in range(1, 6) for parts in product("abc", repeat=size)]


@given(PATTERNS, PATTERNS)
def test_two_patterns_overlap_exactly_when_a_topic_matches_both(one: str, other: str) -> None:
    both = any(matches(one, topic) and matches(other, topic) for topic in TOPICS)
    assert overlap(one, other) is both
    assert overlap(other, one) is both


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5), PATTERNS)
def test_the_separator_does_not_matter(parts: list[str], pattern: str) -> None:
    found = {matches(pattern, mark.join(parts)) for mark in "/.:"}
    assert len(found) == 1
    assert levels(".".join(parts)) == parts
