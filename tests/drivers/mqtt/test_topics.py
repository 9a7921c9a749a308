"""Names and patterns in the words of MQTT."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drivers.mqtt.topics import (
    check_topic,
    client_id,
    covers,
    filter_of,
    holds_of,
    shared_filter,
)
from penstock.vocabulary.errors import InvalidArgument, InvalidName, Unsupported


def test_a_topic_keeps_its_name_and_a_pattern_its_levels() -> None:
    assert filter_of("user.x:1/a") == "user.x:1/a"
    assert filter_of("user/+/a") == filter_of("user/*/a") == "user/+/a"
    assert filter_of("user/#") == filter_of("user/>") == "user/#"
    assert shared_filter("a/b", "user/+") == "$share/a%2Fb/user/+"


@pytest.mark.parametrize("pattern", ["user.+", "user:#", "a/b.+/c"])
def test_a_pattern_whose_levels_mqtt_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(Unsupported, match="only '/' separates levels"):
        filter_of(pattern)


def test_names_of_the_broker_are_refused() -> None:
    for topic in ("$SYS/broker", "$share/a/b"):
        with pytest.raises(InvalidName, match="choose another name"):
            check_topic(topic)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("a/+", "a/b", True),
        ("a/+", "a/b.c", True),
        ("a/+", "a/b/c", False),
        ("a/+", "a", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "$SYS/x", False),
        ("a/b", "a/b", True),
        ("a/b/c", "a/b", False),
    ],
)
def test_covering(pattern: str, topic: str, expected: bool) -> None:
    assert covers(pattern, topic) is expected


NAMES = st.text("ab./:@%ü", min_size=1, max_size=8)


@given(NAMES, NAMES, NAMES, NAMES, st.integers(0, 3))
def test_client_ids_of_different_consumers_differ(
    one: str, other: str, topic: str, place: str, slot: int
) -> None:
    first = client_id(one, place, topic, slot)
    assert first == client_id(one, place, topic, slot)
    assert first.isascii()
    assert "/" not in first
    assert first != client_id(one, place, topic, slot + 1)
    assert (first == client_id(other, place, topic, slot)) == (one == other)
    assert (first == client_id(one, place, other, slot)) == (topic == other)


def test_what_a_url_holds() -> None:
    assert holds_of("orders@billing, a@b@c") == [("orders", "billing"), ("a@b", "c")]
    for text in ("orders", "@x", "orders@"):
        with pytest.raises(InvalidArgument, match="TOPIC@SUBSCRIPTION"):
            holds_of(text)
