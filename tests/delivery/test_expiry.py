"""Expiry: a message ends while it waits, never in somebody's hands, and always counted."""

import pytest

from penstock.delivery.counts import count, unexplained
from penstock.delivery.expiry import AGAIN_MS, next_expiry
from penstock.delivery.keyed import open_offsets
from penstock.delivery.traits import NEVER
from penstock.vocabulary.message import Message
from penstock.vocabulary.records import Cause, Removed
from tests.delivery.world import World


@pytest.fixture
def world() -> World:
    return World()


def ending(world: World, *seconds: float | None) -> list[Message]:
    now = world.wall / 1000
    return [Message(body=b"x", expires_at=None if s is None else now + s) for s in seconds]


def test_what_waits_ends_at_its_time_in_every_subscription(world: World) -> None:
    topic = world.topic()
    first, second = world.subscribe(topic, "a"), world.subscribe(topic, "b")
    world.publish_messages(topic, ending(world, 5, None, 9))
    assert world.end_messages(topic) == []
    assert next_expiry(topic.partitions[0]) == world.wall + 5000
    world.wait(5)
    assert len(world.end_messages(topic)) == 2
    for subscription in (first, second):
        found = count(subscription)
        assert (found.expired, found.waiting) == (1, 2)
        assert unexplained(found) == 0
    assert topic.partitions[0].held == 2
    assert next_expiry(topic.partitions[0]) == world.wall + 4000
    world.wait(5)
    world.end_messages(topic)
    assert next_expiry(topic.partitions[0]) == NEVER
    consumer = world.join(first)
    assert [lease.start for lease in world.deliver(consumer)] == [1]


def test_a_lease_is_not_interrupted_and_the_message_ends_when_it_comes_back(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic)
    consumer = world.join(subscription)
    world.publish_messages(topic, ending(world, 5, 5))
    (lease,) = world.deliver(consumer)
    world.wait(6)
    assert world.end_messages(topic) == []
    assert next_expiry(topic.partitions[0]) <= world.wall + AGAIN_MS
    assert world.ack(lease, (0, 1)) == []
    world.give_back(lease, (1, 2), delay_s=0.0)
    assert next_expiry(topic.partitions[0]) <= world.wall, "it is looked at before it goes out"
    world.end_messages(topic)
    assert world.deliver(consumer) == []
    found = count(subscription)
    assert (found.acked, found.expired, found.leased) == (1, 1, 0)
    assert topic.partitions[0].held == 0


def test_a_message_that_backs_off_ends_too(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic)
    consumer = world.join(subscription)
    world.publish_messages(topic, ending(world, 5))
    (lease,) = world.deliver(consumer)
    world.give_back(lease, delay_s=60.0)
    world.wait(6)
    world.end_messages(topic)
    assert (count(subscription).expired, count(subscription).delayed) == (1, 0)


def test_what_no_subscription_covers_is_removed(world: World) -> None:
    topic = world.topic()
    world.publish_messages(topic, ending(world, 5, None))
    world.wait(6)
    (record,) = world.end_messages(topic)
    assert record == Removed(topic.id, 0, ((0, 1),))
    assert topic.partitions[0].held == 1


def test_what_no_subscription_covers_is_removed_beside_what_one_has(world: World) -> None:
    topic = world.topic()
    world.publish_messages(topic, ending(world, 5))
    subscription = world.subscribe(topic, starts=(1,))
    world.publish_messages(topic, ending(world, 5, None))
    world.wait(6)
    world.end_messages(topic)
    found = count(subscription)
    assert (found.attached, found.expired, found.waiting) == (2, 1, 1)
    assert topic.partitions[0].held == 1


def test_dead_letters_do_not_end(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic)
    consumer = world.join(subscription)
    world.publish_messages(topic, ending(world, 5))
    (lease,) = world.deliver(consumer)
    (cursor,) = subscription.cursors
    world.give_back(lease, cause=Cause.REJECTED)
    world.bury(cursor, (0, 1))
    dead = world.state.names[f"{topic.name}.dead.{subscription.name}"]
    assert next_expiry(dead.partitions[0]) == NEVER


def test_among_many_only_the_due_ones_go(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic)
    world.publish_messages(topic, ending(world, *(n % 3 * 10 + 1 for n in range(300))))
    consumer = world.join(subscription)
    world.wait(2)
    world.end_messages(topic)
    out = [o for lease in world.deliver(consumer) for o in open_offsets(lease).tolist()]
    assert out == [n for n in range(300) if n % 3]
    assert count(subscription).expired == 100
