"""Names of queues lead back to topics and subscriptions; letters keep what they carry."""

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.kubemq import channels

TEXT = st.text(min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("topic", "name", "queue"),
    [
        ("orders", "billing", "orders=.billing"),
        ("a.b", "c", "a.b=.c"),
        ("a:b", "c@d", "a=3Ab=.c=40d"),
        ("a..b", "c.", "a=2E=2Eb=.c=2E"),
    ],
)
def test_a_subscription_is_a_queue(topic: str, name: str, queue: str) -> None:
    assert channels.queue_of(topic, name) == queue
    assert channels.parts_of(queue) == (topic, name)


@given(TEXT, TEXT)
def test_every_name_comes_back(topic: str, name: str) -> None:
    for queue, parts in (
        (channels.escaped(topic), (topic, None)),
        (channels.queue_of(topic, name), (topic, name)),
    ):
        assert re.fullmatch(r"[A-Za-z0-9_=.-]+", queue)
        assert not queue.endswith(".")
        assert channels.parts_of(queue) == parts


def test_queues_of_consumers_and_of_others_are_nobodys() -> None:
    assert channels.parts_of(channels.passing_queue("orders")) is None
    assert channels.parts_of("their=queue") is None
    assert channels.belongs(channels.passing_queue("orders"), "orders")
    assert not channels.belongs("orders2=.x", "orders")


def test_a_letter_goes_to_every_queue_with_its_times() -> None:
    letter = Letter(
        body=None, id="i", key="k", headers={"a": "ü"}, deliver_at=12_500, expires_at=20_000
    )
    one, two = channels.fields_of(letter, ["a", "b"], 10.0)
    assert (one["Channel"], two["Channel"]) == ("a", "b")
    assert one["MessageID"] == two["MessageID"] == letter.position
    assert one["Policy"] == {"DelaySeconds": 3, "ExpirationSeconds": 10}
    attributes = SimpleNamespace(Timestamp=5_000_000, ReceiveCount=2, Sequence=7)
    back = channels.opened(
        SimpleNamespace(
            MessageID=one["MessageID"], Body=one["Body"], Tags=one["Tags"], Attributes=attributes
        )
    )
    assert (back.body, back.id, back.key, back.headers) == (None, "i", "k", {"a": "ü"})
    assert (back.attempt, back.sequence, back.published_at) == (2, 7, 5)
