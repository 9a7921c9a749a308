"""Where one message is, told from the state alone."""

import numpy as np
import pytest

from penstock.delivery import explain_case as at
from penstock.delivery import settle
from penstock.delivery.explain_case import Case
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Cause, Outcome, Settled
from tests.delivery.world import World, claim

KEYED = SubscriptionPolicy(kind=Kind.KEY_SHARED)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0.0 s"),
        (1_500, "1.5 s"),
        (119_999, "120.0 s"),
        (120_000, "2.0 minutes"),
        (7_200_000, "2.0 hours"),
        (604_800_000, "7.0 days"),
    ],
)
def test_a_length_of_time_as_people_read_it(milliseconds: int, text: str) -> None:
    assert at.seconds(milliseconds) == text


def test_one_message_and_several() -> None:
    assert [at.messages(n) for n in (0, 1, 2)] == ["0 messages", "1 message", "2 messages"]


def test_place_and_history(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic)
    world.publish(topic, 2)
    world.give_back(world.deliver_one(world.join(subscription, name="w")), (1, 2), reason="bad")
    case = Case(subscription.cursors[0], 1, world.now, world.wall)
    found = at.place(case)
    assert (found["topic"], found["subscription"]) == ("orders", "billing")
    assert (found["position"], found["partition"], found["offset"]) == ("0:1", 0, 1)
    known = {"attempt": 1, "last_reason": "bad", "last_consumer": "w"}
    assert at.history(case) == known


def test_traits_of_messages_with_and_without_any(world: World) -> None:
    topic = world.topic()
    cursor = world.subscribe(topic).cursors[0]
    world.publish(topic)
    offsets = np.array([0])
    assert at.trait(cursor, "levels", 0) == 0
    assert at.traits_of(cursor, "levels", offsets).tolist() == [0]
    world.publish_messages(topic, [Message(body=b"x", priority=4)])
    assert at.trait(cursor, "levels", 1) == 4
    assert at.traits_of(cursor, "levels", np.array([0, 1])).tolist() == [0, 4]


def test_a_message_waits_until_somebody_has_it(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic)
    cursor = subscription.cursors[0]
    world.publish(topic, 3)
    assert at.is_waiting(cursor, 2)
    lease = world.deliver_one(world.join(subscription))
    assert not at.is_waiting(cursor, 2)
    assert at.lease_of(cursor, 2) is lease
    world.give_back(lease, (1, 2), delay_s=5)
    assert at.is_backing_off(cursor, 1)
    assert at.lease_of(cursor, 1) is None
    assert at.holds(lease, 0)
    assert not at.holds(lease, 1)
    assert not at.holds(lease, 3)
    world.wait(6)
    assert at.is_waiting(cursor, 1)


def test_a_message_in_line_waits(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic)
    cursor = subscription.cursors[0]
    messages = [Message(body=b"x", priority=p) for p in (1, 2, 3)]
    world.publish_messages(topic, messages)
    world.deliver(world.join(subscription, credit=1))
    assert cursor.line is not None
    assert [at.is_waiting(cursor, offset) for offset in range(3)] == [True, True, False]


def test_decisions_that_are_not_durable(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic, policy=KEYED)
    cursor = subscription.cursors[0]
    world.publish_messages(topic, [Message(body=b"x", key="a"), Message(body=b"x", key="b")])
    lease = world.deliver_one(world.join(subscription))
    settle.decide_ack(lease.consumer, [claim(lease, (0, 1))])
    assert len(at.undurable(cursor, 0)) == 1
    assert not at.is_coming_back(cursor, 0)
    cause = Cause.NACKED
    settle.decide_return(lease.consumer, claim(lease, (1, 2)), cause, 1.0, "", world.wall)
    assert at.is_coming_back(cursor, 1)


def test_the_messages_of_a_decision() -> None:
    whole = Settled(1, 0, 1, Outcome.ACKED, ((2, 4), (7, 8)))
    assert at.offsets_of(whole).tolist() == [2, 3, 7]
    scattered = Settled(1, 0, 1, Outcome.ACKED, ((2, 7),), mask=b"\x15")
    assert at.offsets_of(scattered).tolist() == [2, 4, 6]
