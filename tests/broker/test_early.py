"""Which publishes count before the sync, and what they may overtake."""

import pytest

from penstock.broker.early import early_publishes
from penstock.delivery.state import Topic
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import (
    Attached,
    Cause,
    Delivered,
    Detached,
    Outcome,
    Published,
    Record,
    Removed,
    Returned,
    Settled,
    SubscriptionCreated,
    SubscriptionDeleted,
    TopicAltered,
    Unit,
)
from tests.delivery.world import World

WRITTEN = TopicPolicy(durability=Durability.WRITTEN)


@pytest.fixture
def world() -> World:
    world = World()
    world.topic("quick", policy=WRITTEN)
    world.topic("safe")
    return world


def publish(topic: Topic | int) -> Published:
    number = topic if isinstance(topic, int) else topic.id
    return Published(number, 0, 0, 1, bytes(16), 0, 0, 0, b"")


def early(world: World, *records: Record) -> set[int]:
    return early_publishes(world.state, list(records), 0, len(records))


def test_only_publishes_to_written_topics_count_early(world: World) -> None:
    assert early(world, publish(1), publish(2), publish(1)) == {0, 2}


def test_without_written_topics_nothing_counts_early() -> None:
    world = World()
    assert early(world, publish(world.topic())) == set()


def test_only_the_asked_part_of_the_records_is_looked_at(world: World) -> None:
    records: list[Record] = [publish(1) for _ in range(4)]
    assert early_publishes(world.state, records, 1, 3) == {1, 2}


OVERTAKEN: list[Record] = [
    Settled(1, 0, 1, Outcome.ACKED, ((0, 1),)),
    Delivered(1, 0, 1, 0, 1, False, 1),
    Returned(1, 0, 1, Cause.NACKED, ((0, 1),), 0, 0, "", ""),
    Attached(1, 1, 1, "w"),
    Detached(1, 1, 1),
]


@pytest.mark.parametrize("record", OVERTAKEN, ids=lambda record: type(record).__name__)
def test_a_publish_may_overtake_what_speaks_of_older_messages(world: World, record: Record) -> None:
    assert early(world, record, publish(1)) == {1}


IN_ORDER: list[Record] = [
    Unit((publish(1), Removed(2, 0, ((0, 1),)))),
    SubscriptionCreated(1, 1, "s", (0,), SubscriptionPolicy(), 0),
    SubscriptionDeleted(1, 1),
    TopicAltered(1, TopicPolicy()),
    Removed(1, 0, ((0, 1),)),
]


@pytest.mark.parametrize("record", IN_ORDER, ids=lambda record: type(record).__name__)
def test_a_publish_does_not_overtake_what_changes_its_meaning(world: World, record: Record) -> None:
    assert early(world, publish(1), record, publish(1), publish(1)) == {0}


def test_what_happens_to_another_topic_does_not_matter(world: World) -> None:
    assert early(world, SubscriptionDeleted(2, 1), publish(1)) == {1}
