"""Topic names in Kafka's letters: reversible, and those of other programs stay as they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drivers.kafka.names import check_group, is_hidden, kafka_name, topic_name
from penstock.vocabulary.errors import InvalidName


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("monitoring.pms", "monitoring.pms"),
        ("my_topic-1", "my_topic-1"),
        ("a:b/c", "a_x3A_b_x2F_c"),
        ("größe", "gr_xC3__xB6__xC3__x9F_e"),
        ("a_x3A_b", "a_x5F_x3A_b"),
        ("orders.dead.billing", "orders.dead.billing"),
    ],
)
def test_a_name_that_kafka_allows_stays(topic: str, name: str) -> None:
    assert kafka_name(topic) == name
    assert topic_name(name) == topic


@given(st.text(min_size=1, max_size=20).filter(lambda text: text not in {".", ".."}))
def test_every_name_comes_back(topic: str) -> None:
    topic.encode()
    assert topic_name(kafka_name(topic)) == topic


@given(st.text("abxX_3A5F:.", min_size=1, max_size=12), st.text("abxX_3A5F:.", min_size=1))
def test_two_names_never_meet(one: str, two: str) -> None:
    if one != two and not {one, two} & {".", ".."}:
        assert kafka_name(one) != kafka_name(two)


def test_a_name_of_another_program_that_only_looks_escaped_stays() -> None:
    assert topic_name("a_xFF_b") == "a_xFF_b", "no text"
    assert topic_name("a_x41_b") == "a_x41_b", "nobody escapes an A"


@pytest.mark.parametrize("topic", [".", "..", "x" * 250, "ü" * 50])
def test_what_kafka_forbids_is_refused(topic: str) -> None:
    with pytest.raises(InvalidName, match="Kafka"):
        kafka_name(topic)


def test_names_of_our_own_are_kept_apart() -> None:
    assert check_group("billing") == "billing"
    with pytest.raises(InvalidName, match=r"penstock\."):
        check_group("penstock.reader.x")
    assert is_hidden("__consumer_offsets")
    assert not is_hidden("_x")
