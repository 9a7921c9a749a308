"""Scripted cases of messages that do not move: each with its reason and its details."""

from typing import Any

import pytest

from penstock.delivery import settle
from penstock.delivery.explain import CHECKS, DONE_REASONS, explain_message, oldest_unfinished
from penstock.delivery.explain_case import Case, lease_until
from penstock.delivery.publish import decide_publish
from penstock.delivery.state import Cursor, Subscription, Topic
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause, Lost, Outcome, Removed, Settled
from tests.delivery.world import NAMED, World, claim

POLICY = SubscriptionPolicy(lease_s=30, retry=Retry(max_attempts=3, first_s=4, max_s=4))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


@pytest.fixture
def subscription(world: World, topic: Topic) -> Subscription:
    return world.subscribe(topic, policy=POLICY)


@pytest.fixture
def cursor(subscription: Subscription) -> Cursor:
    return subscription.cursors[0]


def explain(world: World, cursor: Cursor, offset: int, **known: Any) -> dict[str, Any]:
    found = explain_message(Case(cursor, offset, world.now, world.wall, **known))
    assert found["position"] == f"{cursor.partition.index}:{offset}"
    assert (found["topic"], found["subscription"]) == ("orders", cursor.subscription.name)
    assert found["text"]
    return found


# -- not there, or done ------------------------------------------------------------------------


def test_a_message_that_was_not_published(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 2)
    found = explain(world, cursor, 2)
    assert (found["reason"], found["end"]) == ("not-published", 2)


def test_a_message_that_waits_for_its_sync(world: World, topic: Topic, cursor: Cursor) -> None:
    decide_publish(topic.partitions[0], b"", 1, NAMED, 0, 0, world.wall)
    assert explain(world, cursor, 0)["reason"] == "unsynced"


def test_a_message_lost_to_damage(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 3)
    world.apply(Lost(topic.id, 0, ((1, 2),)))
    assert explain(world, cursor, 1)["reason"] == "lost"
    assert explain(world, cursor, 0)["reason"] == "no-consumer"


def test_a_message_before_the_start_of_the_subscription(world: World, topic: Topic) -> None:
    world.publish(topic, 3)
    late = world.subscribe(topic, "late", starts=(2,))
    found = explain(world, late.cursors[0], 1)
    assert (found["reason"], found["first"]) == ("not-covered", 2)
    assert explain(world, late.cursors[0], 2)["reason"] == "no-consumer"


def test_a_message_sent_back_to_another_subscription(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic, 1)
    other = world.subscribe(topic, "other")
    lease = world.deliver_one(world.join(subscription))
    world.give_back(lease, cause=Cause.REJECTED)
    world.bury(cursor, (0, 1))
    world.redrive(subscription, world.state.names["orders.dead.billing"].partitions[0], (0, 1))
    found = explain(world, other.cursors[0], 1)
    assert found["reason"] == "not-covered"
    assert "another subscription" in found["text"]
    assert explain(world, cursor, 1)["reason"] == "ready"


def test_an_acked_message(world: World, topic: Topic, subscription: Subscription) -> None:
    world.publish(topic, 3)
    lease = world.deliver_one(world.join(subscription))
    world.ack(lease, (0, 2))
    assert explain(world, subscription.cursors[0], 1)["reason"] == "acked"


@pytest.mark.parametrize(
    ("outcome", "reason"), [(Outcome.EXPIRED, "expired"), (Outcome.DROPPED, "dropped")]
)
def test_a_message_that_went_without_an_ack(
    world: World, topic: Topic, cursor: Cursor, outcome: Outcome, reason: str
) -> None:
    world.publish(topic, 3)
    world.apply(Settled(topic.id, 0, cursor.subscription.id, outcome, ((0, 2),)))
    assert explain(world, cursor, 0)["reason"] == reason


def test_what_became_of_one_message_is_not_guessed(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    world.ack(world.deliver_one(world.join(subscription)), (0, 1))
    world.apply(Removed(topic.id, 0, ((1, 2),)))
    found = explain(world, cursor, 0)
    assert (found["reason"], found["acked"], found["dropped"]) == ("finished", 1, 1)


def test_a_dead_letter(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 1)
    lease = world.deliver_one(world.join(cursor.subscription))
    world.give_back(lease, cause=Cause.REJECTED)
    world.bury(cursor, (0, 1))
    found = explain(world, cursor, 0, dead_at="0:0")
    assert found["reason"] == "dead-lettered"
    assert (found["dead_topic"], found["dead_position"]) == ("orders.dead.billing", "0:0")


# -- on its way --------------------------------------------------------------------------------


def test_a_message_on_its_way_to_the_dead_letters(
    world: World, topic: Topic, cursor: Cursor
) -> None:
    world.publish(topic, 1)
    lease = world.deliver_one(world.join(cursor.subscription))
    world.give_back(lease, cause=Cause.REJECTED, reason="no such customer")
    found = explain(world, cursor, 0)
    assert (found["reason"], found["last_reason"]) == ("dying", "no such customer")
    blocked = "dead-letter topic 'orders.dead.billing' holds 5 bytes and may hold 4"
    found = explain(world, cursor, 0, blocked=blocked)
    assert (found["reason"], found["attempt"]) == ("dead-letter-full", 1)
    assert blocked in found["text"]


def test_a_leased_message(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 3)
    world.deliver(world.join(cursor.subscription, name="w7"))
    world.wait(10)
    found = explain(world, cursor, 1)
    assert (found["reason"], found["consumer"], found["attempt"]) == ("leased", "w7", 1)
    assert found["until"] == (world.wall + 20_000) / 1000
    assert "20.0 s" in found["text"]


def test_the_end_of_a_lease_is_that_of_the_message(
    world: World, topic: Topic, cursor: Cursor
) -> None:
    world.publish(topic, 4)
    consumer = world.join(cursor.subscription)
    lease = world.deliver_one(consumer)
    first = lease.deadline
    settle.extend(consumer, lease.id, 1, None, first + 1000)
    settle.extend(consumer, lease.id, 2, None, first + 2000)
    settle.extend(consumer, lease.id, 0, 1, first + 7000)
    ends = [lease_until(lease, offset) - first for offset in range(4)]
    assert ends == [7000, 1000, 2000, 2000]


def test_a_delivery_that_waits_for_its_record(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 1)
    lease = world.deliver_one(world.join(cursor.subscription, name="w1"))
    lease.is_out = False
    found = explain(world, cursor, 0)
    assert (found["reason"], found["consumer"]) == ("settling", "w1")


def test_a_message_that_backs_off(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 1)
    lease = world.deliver_one(world.join(cursor.subscription, name="w1"))
    world.give_back(lease, delay_s=8, reason="timeout")
    due = world.wall / 1000 + 8
    world.wait(3)
    found = explain(world, cursor, 0)
    assert (found["reason"], found["attempt"], found["until"]) == ("backing-off", 1, due)
    assert (found["last_reason"], found["last_consumer"]) == ("timeout", "w1")
    assert "5.0 s" in found["text"]


def test_a_decision_that_waits_for_its_sync(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 2)
    lease = world.deliver_one(world.join(cursor.subscription))
    settle.decide_ack(lease.consumer, [claim(lease, (0, 1))])
    assert explain(world, cursor, 0)["reason"] == "settling"
    assert explain(world, cursor, 1)["reason"] == "leased"


# -- waiting -----------------------------------------------------------------------------------


def test_no_consumer_is_attached(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 5)
    found = explain(world, cursor, 3)
    assert (found["reason"], found["ahead"]) == ("no-consumer", 3)


def test_no_consumer_has_credit(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 5)
    world.deliver(world.join(cursor.subscription, credit=2, name="w1"))
    found = explain(world, cursor, 2)
    assert found["reason"] == "no-credit"
    assert "'w1' has 2 of 2" in found["text"]
    (row,) = found["consumers"]
    assert (row["consumer"], row["outstanding"], row["credit"]) == ("w1", 2, 2)


def test_other_messages_come_first(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 6)
    world.deliver(world.join(cursor.subscription, credit=2, name="w1"))
    found = explain(world, cursor, 5)
    assert (found["reason"], found["ahead"]) == ("behind-others", 3)
    assert (found["head"]["reason"], found["head"]["position"]) == ("no-credit", "0:2")


def test_what_came_back_is_first_in_the_line(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 6)
    consumer = world.join(cursor.subscription, credit=4)
    lease = world.deliver_one(consumer)
    world.give_back(lease, (1, 3), cause=Cause.RELEASED)
    consumer.credit = 2
    assert [explain(world, cursor, n).get("ahead", 0) for n in (1, 2, 4, 5)] == [0, 1, 2, 3]
    assert explain(world, cursor, 5)["head"]["position"] == "0:1"


def test_a_message_lost_twice_waits_for_an_idle_consumer(
    world: World, topic: Topic, cursor: Cursor
) -> None:
    world.publish(topic, 2)
    for _ in range(2):
        consumer = world.join(cursor.subscription)
        world.deliver(consumer)
        world.lose(consumer)
    assert explain(world, cursor, 0)["reason"] == "no-consumer"
    world.publish(topic, 1)
    busy = world.join(cursor.subscription, credit=5, name="busy")
    busy.outstanding = 1
    world.dispatch(cursor.subscription)
    found = explain(world, cursor, 1)
    assert (found["reason"], found["losses"]) == ("isolated", 2)
    assert found["consumers"][0]["state"] == "saving"
    assert explain(world, cursor, 2)["reason"] in {"behind-isolated", "behind-others"}


def test_a_consumer_that_is_attaching(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 1)
    world.join(cursor.subscription).is_attached = False
    assert explain(world, cursor, 0)["reason"] == "attaching"


def test_a_message_about_to_be_handed_over(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 1)
    world.join(cursor.subscription)
    assert explain(world, cursor, 0)["reason"] == "ready"


# -- the list of checks ------------------------------------------------------------------------


def test_the_last_check_always_answers(world: World, cursor: Cursor) -> None:
    assert CHECKS[-1](Case(cursor, 0, world.now, world.wall)) is not None


def test_done_reasons_are_reasons(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 1)
    world.ack(world.deliver_one(world.join(cursor.subscription)))
    assert explain(world, cursor, 0)["reason"] in DONE_REASONS


def test_the_oldest_unfinished_of_each_partition(world: World) -> None:
    topic = world.topic("wide", partitions=3)
    subscription = world.subscribe(topic)
    world.publish(topic, 3, partition=0)
    world.publish(topic, 3, partition=2)
    first = subscription.cursors[0]
    world.apply(Settled(topic.id, 0, subscription.id, Outcome.ACKED, ((0, 2),)))
    assert oldest_unfinished(subscription) == [(first, 2), (subscription.cursors[2], 0)]
