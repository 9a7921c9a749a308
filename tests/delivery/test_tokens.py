"""QoS 2 knows which attempt finished a message."""

import pytest

from penstock.delivery import tokens
from penstock.delivery.settle import decide_ack
from penstock.delivery.snapshot import restore_topic, topic_state
from penstock.delivery.state import State
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.policy import SubscriptionPolicy
from tests.delivery.world import World, claim, the


def twice_handed(qos: int) -> tuple[World, Claim, Claim]:
    """A message whose first lease ran out and whose second holder acked it; both tokens."""
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic, policy=SubscriptionPolicy(qos=qos))
    first = world.join(subscription, name="first")
    world.publish(topic, 3)
    old = world.deliver_one(first)
    world.wait(31)
    world.expire(subscription)
    (new,) = world.deliver(first)
    world.ack(new)
    return world, claim(old), claim(new)


@pytest.mark.parametrize(("qos", "expected"), [(1, 0), (2, 3)])
def test_a_stale_token_of_a_finished_message_is_refused_at_qos_2(qos: int, expected: int) -> None:
    world, old, _ = twice_handed(qos)
    (consumer,) = the(next(iter(world.state.subscriptions.values())).consumers)
    records, refused = decide_ack(consumer, [old])
    assert records == []
    assert [each.why for each in refused] == ["it was handed out again"] * expected


@pytest.mark.parametrize("qos", [1, 2])
def test_the_token_that_acked_may_ack_again(qos: int) -> None:
    world, _, new = twice_handed(qos)
    (consumer,) = the(next(iter(world.state.subscriptions.values())).consumers)
    assert decide_ack(consumer, [new]) == ([], [])


def test_a_message_finished_at_its_first_attempt_takes_no_room() -> None:
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic, policy=SubscriptionPolicy(qos=2))
    consumer = world.join(subscription)
    world.publish(topic, 5)
    lease = world.deliver_one(consumer)
    world.ack(lease)
    (cursor,) = subscription.cursors
    assert cursor.finished is None
    assert not tokens.is_stale(cursor, 3, 1)
    assert tokens.is_stale(cursor, 3, 2)


def test_a_snapshot_keeps_which_attempt_it_was() -> None:
    world, old, new = twice_handed(2)
    state = State()
    topic = restore_topic(state, topic_state(world.state.names["orders"]), 0, 0)
    (cursor,) = (topic.subscriptions or {})["billing"].cursors
    assert tokens.is_stale(cursor, 1, old.attempt)
    assert not tokens.is_stale(cursor, 1, new.attempt)


def test_what_is_remembered_is_bounded_and_forgetting_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "RUNS_MAX", 4)
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic, policy=SubscriptionPolicy(qos=2))
    consumer = world.join(subscription)
    world.publish(topic, 40)
    for _ in range(2):
        lease = world.deliver_one(consumer)
        if lease.attempt == 1:
            world.wait(31)
            world.expire(subscription)
    for offset in range(0, 40, 2):
        world.ack(lease, (offset, offset + 1))
    (cursor,) = subscription.cursors
    assert cursor.finished is not None
    assert len(cursor.finished) <= 5
    assert tokens.is_stale(cursor, 0, 1)
    assert tokens.is_stale(cursor, 0, 2)
    assert not tokens.is_stale(cursor, 38, 2)
