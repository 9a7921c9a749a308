"""Ids of Pub/Sub obey its rules, never meet, and lead back to their names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drivers.pubsub import names

RULE = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}")
TEXT = st.text(min_size=1, max_size=255).filter(lambda text: len(text.encode()) <= 255)


@pytest.mark.parametrize(
    ("topic", "id"),
    [
        ("orders", "orders"),
        ("a.b", "a.b"),
        ("a:b", "a~3Ab"),
        ("ab", "p~-ab"),
        ("1st", "p~-1st"),
        ("google.orders", "p~-google.orders"),
        ("p~-x", "p~7E-x"),
        ("orders.dead.billing", "orders.dead.billing"),
    ],
)
def test_a_topic_has_an_id(topic: str, id: str) -> None:
    assert names.topic_id(topic) == id
    assert names.topic_of(id, {}) == topic


@given(TEXT)
def test_every_topic_comes_back(topic: str) -> None:
    id = names.topic_id(topic)
    assert RULE.fullmatch(id)
    assert RULE.fullmatch(names.keeper_id(topic))
    assert names.topic_of(id, names.labels_of(id, topic, b"")) == topic


@given(TEXT, st.text(min_size=1, max_size=32))
def test_every_subscription_comes_back(topic: str, name: str) -> None:
    id = names.subscription_id(topic, name)
    assert RULE.fullmatch(id)
    assert names.subscription_of(topic, id, names.labels_of(id, name, b"")) == name


def test_names_that_look_alike_do_not_meet() -> None:
    pairs = [("a.b", "c"), ("a", "b.c"), ("a.b.c", "c"), ("a" * 250, "b"), ("a" * 250, "c")]
    assert len({names.subscription_id(*pair) for pair in pairs}) == len(pairs)
    assert names.topic_id("ä" * 120) != names.topic_id("ä" * 119 + "ö")


def test_subscriptions_of_other_programs_are_known_by_their_id() -> None:
    assert names.subscription_of("orders", "their-own", {}) == "their-own"
    assert names.subscription_of("orders", "stock~.billing", {}) == "stock~.billing"
    assert names.subscription_of("orders", "orders~.~zz", {}) == "orders~.~zz"


def test_what_is_nobodys_has_no_name() -> None:
    assert names.subscription_of("orders", names.passing_id("look"), {}) is None
    assert names.subscription_of("orders", names.keeper_id("orders"), {}) is None
    assert names.topic_of("their~topic", {}) is None


@given(st.binary(max_size=1_500))
def test_bytes_fit_into_labels(data: bytes) -> None:
    labels = names.packed("penstock-policy", data)
    assert names.unpacked("penstock-policy", labels) == data
    for name, value in labels.items():
        assert re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", name)
        assert re.fullmatch(r"[a-z0-9_-]{0,63}", value)


def test_labels_have_an_end() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        names.packed("penstock-policy", bytes(3_000))


def test_labels_that_make_no_sense_are_none() -> None:
    assert names.unpacked("penstock-policy", {"penstock-policy": "0189"}) is None
    assert names.unpacked("penstock-policy", {"team": "x"}) is None
