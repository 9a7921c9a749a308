"""Messages that wait behind others."""

import pytest

from penstock.delivery.explain_case import Case
from penstock.delivery.explain_line import ahead_of, behind, behind_priority, waiting_offsets
from penstock.delivery.state import Cursor, Subscription
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import SubscriptionPolicy
from tests.delivery.world import World


@pytest.fixture
def world() -> World:
    return World()


def leveled(world: World, subscription: Subscription, *levels: int, partition: int = 0) -> None:
    messages = [Message(body=b"x", priority=level) for level in levels]
    world.publish_messages(subscription.topic, messages, partition)


def case(world: World, cursor: Cursor, offset: int) -> Case:
    return Case(cursor, offset, world.now, world.wall)


def test_a_plain_line_goes_as_it_came(world: World) -> None:
    subscription = world.subscribe(world.topic())
    cursor = subscription.cursors[0]
    world.publish(subscription.topic, 5)
    assert [ahead_of(case(world, cursor, n)) for n in range(5)] == [0, 1, 2, 3, 4]
    found = behind(case(world, cursor, 3))
    assert found is not None
    assert (found["reason"], found["head"]) == ("behind-others", (cursor, 0))
    assert behind(case(world, cursor, 0)) is None
    assert waiting_offsets(cursor, world.wall).tolist() == [0, 1, 2, 3, 4]


def test_higher_priorities_of_all_partitions_come_first(world: World) -> None:
    subscription = world.subscribe(world.topic(partitions=2))
    first, second = subscription.cursors
    leveled(world, subscription, 0, 3, 0, 3)
    leveled(world, subscription, 8, partition=1)
    found = behind(case(world, first, 1))
    assert found is not None
    assert (found["reason"], found["ahead"], found["priority"]) == ("behind-priority", 1, 3)
    assert (found["highest"], found["head"]) == (8, (second, 0))
    found = behind(case(world, first, 2))
    assert found is not None
    assert (found["ahead"], found["head"]) == (3, (second, 0))
    assert behind(case(world, second, 0)) is None


def test_within_a_priority_the_partition_counts(world: World) -> None:
    subscription = world.subscribe(world.topic(partitions=2))
    cursor = subscription.cursors[0]
    leveled(world, subscription, 3, 0, 3)
    leveled(world, subscription, 3, 3, partition=1)
    found = behind(case(world, cursor, 2))
    assert found is not None
    assert (found["reason"], found["ahead"]) == ("behind-others", 1)


def test_what_is_not_due_and_what_is_out_keeps_nobody_back(world: World) -> None:
    subscription = world.subscribe(world.topic())
    cursor = subscription.cursors[0]
    due = world.wall / 1000 + 60
    messages = [Message(body=b"x", priority=9, deliver_at=due), Message(body=b"y")]
    world.publish_messages(subscription.topic, messages)
    assert waiting_offsets(cursor, world.wall).tolist() == [1]
    assert behind(case(world, cursor, 1)) is None
    leveled(world, subscription, 5, 0)
    world.deliver(world.join(subscription, credit=1))
    assert waiting_offsets(cursor, world.wall).tolist() == [1, 3]
    world.wait(60)
    assert waiting_offsets(cursor, world.wall).tolist() == [0, 1, 3]


def test_keys_have_an_order_of_their_own(world: World) -> None:
    policy = SubscriptionPolicy(kind=Kind.KEY_SHARED)
    subscription = world.subscribe(world.topic(), policy=policy)
    world.publish(subscription.topic, 3)
    last = case(world, subscription.cursors[0], 2)
    assert behind(last) is None
    assert ahead_of(last) == 2


def test_the_words_for_a_priority(world: World) -> None:
    cursor = world.subscribe(world.topic()).cursors[0]
    found = behind_priority(4, 1, 7, (cursor, 0))
    assert "behind 4 messages of a higher priority than its 1, the highest of 7" in found["text"]
