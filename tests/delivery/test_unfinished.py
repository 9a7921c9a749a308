from typing import Any

import pytest

from penstock.delivery import unfinished
from penstock.delivery.unfinished import Unfinished, with_queues
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import SubscriptionPolicy
from tests.broker.rig import Rig


def _looked(rig: Rig, limit: int) -> list[tuple[int, int]]:
    (cursor,) = rig.subscription("t", "s").cursors
    found = Unfinished(cursor, limit)
    while found.look():
        pass
    return found.rows()


@pytest.mark.parametrize("step", [1, 3, 65_536])
def test_the_highest_priority_comes_first_then_as_they_came(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "STEP", step)
    rig = Rig()
    rig.broker.create_subscription("t", "s", SubscriptionPolicy(), "earliest")
    levels = [0, 5, -3, 5, 0, 9, 1]
    messages: list[Any] = [Message(body=b"x", priority=level) for level in levels]
    rig.publish("t", *messages)
    order = sorted(range(7), key=lambda offset: (-levels[offset], offset))
    assert _looked(rig, 100) == [(levels[offset], offset) for offset in order]
    assert _looked(rig, 3) == [(9, 5), (5, 1), (5, 3)]


def test_what_is_leased_is_unfinished_and_what_is_acked_is_not() -> None:
    rig = Rig()
    worker = rig.attach("t", "s", credit=2)
    rig.publish("t", b"a", b"b", b"c")
    rig.ack(worker, worker.take_one(), (0, 1))
    assert _looked(rig, 10) == [(0, 1), (0, 2)]


def test_readers_multicasts_and_ephemeral_consumers_have_no_queue_of_their_own() -> None:
    rig = Rig()
    rig.broker.create_subscription("t", "b", SubscriptionPolicy(), "earliest")
    rig.broker.create_subscription("t", "a", SubscriptionPolicy(kind=Kind.KEY_SHARED), "earliest")
    rig.broker.create_subscription("t", "m", SubscriptionPolicy(kind=Kind.MULTICAST), None)
    rig.broker.open_reader("t", "r", "owner", "earliest")
    rig.attach("t", None, start="latest")
    names = [each.name for each in with_queues(rig.broker.state.names["t"])]
    assert sorted(names) == ["a", "b"]
