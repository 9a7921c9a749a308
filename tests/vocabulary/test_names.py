"""Which names are allowed; each rule has a name that breaks it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary import limits
from penstock.vocabulary.errors import InvalidName
from penstock.vocabulary.names import (
    check_consumer,
    check_dead,
    check_member,
    check_subscription,
    check_topic,
    dead_topic,
    is_dead_topic,
)

CHECKS = [check_topic, check_subscription, check_consumer]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ["orders", "a.b.c", "imu:front/left", "größe", "日本", "a-b_c"])
def test_ordinary_names_pass_unchanged(check: object, name: str) -> None:
    assert callable(check)
    assert check(name) == name


@pytest.mark.parametrize("check", [check_topic, check_consumer])
def test_an_at_sign_is_for_topics_and_consumers(check: object) -> None:
    assert callable(check)
    assert check("a@1") == "a@1"


def test_an_at_sign_in_a_subscription_is_kept_for_multicasts() -> None:
    with pytest.raises(InvalidName, match="'@', which stands between"):
        check_subscription("a@1")


def test_a_member_is_named_after_its_multicast_and_consumer() -> None:
    assert check_member("news", "app", "left:1") == "app@left:1"


@pytest.mark.parametrize(
    ("consumer", "why"),
    [
        ("a@b", "contains '@'"),
        ("a b", "space"),
        ("", "non-empty"),
        ("a+b", "kept for patterns"),
        ("x" * 120, "over the limit of 255"),
        (":".join("abcdefghijklmnop"), "levels"),
    ],
)
def test_a_member_that_could_have_no_dead_letters_is_refused(consumer: str, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        check_member("t" * 130, "app", consumer)


@pytest.mark.parametrize(
    ("topic", "subscription", "why"),
    [
        ("t" * 200, "s" * 100, "306 bytes is over the limit of 255"),
        ("/".join("abcdefghijklmno"), "app", "more than 16 levels"),
        ("orders", "a+b", "kept for patterns"),
    ],
)
def test_a_subscription_that_could_have_no_dead_letters_is_refused(
    topic: str, subscription: str, why: str
) -> None:
    with pytest.raises(InvalidName, match=why):
        check_dead(topic, subscription)
    check_dead("t" * 149, "s" * 100)
    check_dead("/".join("abcdefghijklmn"), "app")


BROKEN = {
    "empty": "",
    "space": "a b",
    "tab": "a\tb",
    "line end": "a\nb",
    "nul": "a\0b",
    "escape": "a\x1bb",
    "no-break space": "a\u00a0b",
    "bidirectional mark": "a\u202eb",
    "lone surrogate": "a\ud800",
    "decomposed form": "e\u0301",
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", BROKEN.values(), ids=BROKEN.keys())
def test_names_that_could_mislead_are_refused(check: object, name: str) -> None:
    assert callable(check)
    with pytest.raises(InvalidName):
        check(name)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", [None, 7, b"orders"])
def test_only_text_can_be_a_name(check: object, name: object) -> None:
    assert callable(check)
    with pytest.raises(InvalidName, match="non-empty text"):
        check(name)


@pytest.mark.parametrize(
    ("check", "bytes_max"),
    [
        (check_topic, limits.TOPIC_BYTES_MAX),
        (check_subscription, limits.SUBSCRIPTION_BYTES_MAX),
        (check_consumer, limits.CONSUMER_BYTES_MAX),
    ],
)
def test_the_limit_counts_bytes_not_letters(check: object, bytes_max: int) -> None:
    assert callable(check)
    assert check("a" * bytes_max)
    with pytest.raises(InvalidName, match="over the limit"):
        check("a" * (bytes_max + 1))
    with pytest.raises(InvalidName, match="over the limit"):
        check("é" * (bytes_max // 2 + 1))


@pytest.mark.parametrize("mark", "/.:")
def test_a_topic_has_at_most_sixteen_levels(mark: str) -> None:
    assert check_topic(mark.join("a" * 16))
    with pytest.raises(InvalidName, match="levels"):
        check_topic(mark.join("a" * 17))


@pytest.mark.parametrize("mark", "+*#>")
def test_pattern_marks_are_not_for_topics(mark: str) -> None:
    with pytest.raises(InvalidName, match="kept for patterns"):
        check_topic(f"orders{mark}")


def test_the_dead_letter_mark_is_reserved() -> None:
    with pytest.raises(InvalidName, match="reserved"):
        check_topic("orders.dead.billing")
    assert check_topic("orders.dead.billing", reserved=True)


@pytest.mark.parametrize("name", ["a.dead.b", "dead", "dead.b", "a.dead"])
def test_no_subscription_name_can_make_a_second_dead_letter_mark(name: str) -> None:
    with pytest.raises(InvalidName, match="reserved"):
        check_subscription(name)


def test_a_topic_may_speak_of_the_dead_without_the_mark() -> None:
    assert check_topic("deadline.undead")


def test_the_dead_letter_topic_is_named_after_topic_and_subscription() -> None:
    assert dead_topic("orders", "billing") == "orders.dead.billing"
    assert is_dead_topic("orders.dead.billing")
    assert not is_dead_topic("orders")


names = st.lists(st.sampled_from(["a", ".", "dead", ":"]), min_size=1, max_size=6).map("".join)


@given(names, names, names, names)
def test_two_subscriptions_never_share_a_dead_letter_topic(
    topic: str, name: str, other_topic: str, other_name: str
) -> None:
    try:
        pairs = [(check_topic(topic), check_subscription(name))]
        pairs.append((check_topic(other_topic), check_subscription(other_name)))
    except InvalidName:
        return
    assert (pairs[0] == pairs[1]) == (dead_topic(*pairs[0]) == dead_topic(*pairs[1]))
