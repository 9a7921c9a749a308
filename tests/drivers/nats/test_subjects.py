"""Topics as subjects: reversible, so that no two meet."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drivers.nats.subjects import NAME_BYTES_MAX, covers, safe_name, subject_of, topic_of

NAMES = st.text(st.sampled_from("ab%$.:/é-" + string.digits), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("topic", "subject"),
    [
        ("orders", "orders"), ("a.b", "a.b"), ("a:b", "a.:b"), ("a/b", "a./b"),
        ("a..b", "a.%.b"), ("a::b", "a.:.:b"), (".a", "%.a"), (":a", "%.:a"), ("a%b", "a%25b"),
        ("$SYS.x", "%24SYS.x"), ("50%", "50%25"), ("%24x", "%2524x"),
    ],
)  # fmt: skip
def test_the_subject_of_a_topic(topic: str, subject: str) -> None:
    assert subject_of(topic) == subject
    assert topic_of(subject) == topic


@given(NAMES)
def test_every_topic_comes_back(topic: str) -> None:
    subject = subject_of(topic)
    assert topic_of(subject) == topic
    assert all(subject.split(".")), "no token is empty"
    assert not subject.startswith("$")


@given(NAMES, NAMES)
def test_no_two_topics_meet(one: str, other: str) -> None:
    if one != other:
        assert subject_of(one) != subject_of(other)
        assert safe_name(one) != safe_name(other)


def test_what_is_no_topic_is_none() -> None:
    for subject in ("orders.*", "orders.>", "$JS.API.INFO", "a%zz"):
        assert topic_of(subject) is None, subject


def test_a_long_name_ends_in_a_hash() -> None:
    one, other = "x" * 300 + "1", "x" * 300 + "2"
    assert len(safe_name(one)) == NAME_BYTES_MAX
    assert safe_name(one) != safe_name(other)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True), ("a.*", "a.b", True), (">", "a.b", True), ("a.>", "a.b.c", True),
        ("a.>", "a", False), ("a.*", "a.b.c", False), ("a", "b", False), ("a.b", "a", False),
    ],
)  # fmt: skip
def test_what_a_pattern_means(pattern: str, subject: str, expected: bool) -> None:
    assert covers(pattern, subject) is expected
