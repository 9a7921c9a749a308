"""Room in a topic with `max_bytes`, beside what readers have planned."""

import pytest

from penstock.delivery import reader
from penstock.delivery.room import check_room, is_held_by_readers, planned_bytes
from penstock.delivery.state import Topic
from penstock.vocabulary.errors import HeldByReader
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Lost
from tests.delivery.world import World, the

READER = SubscriptionPolicy(kind=Kind.READER)


@pytest.fixture
def world() -> World:
    return World()


def planned(world: World, name: str, topic: Topic, ends: dict[int, int]) -> None:
    subscription = world.subscribe(topic, name, READER)
    world.apply(the(reader.decide_open(subscription, "run-1")))
    world.apply(the(reader.decide_plan(subscription, "run-1", ends)))


def test_planned_ranges_count_once_whoever_planned_them(world: World) -> None:
    topic = world.topic(partitions=2)
    sizes = [
        len(world.publish(topic, partition=at, body=bytes(size)).batch)
        for at, size in [(0, 10), (0, 500), (0, 30), (1, 1000)]
    ]
    assert planned_bytes(topic) == 0
    planned(world, "tables", topic, {0: 2})
    assert planned_bytes(topic) == sizes[0] + sizes[1]
    planned(world, "copies", topic, {0: 1, 1: 1})
    assert planned_bytes(topic) == sizes[0] + sizes[1] + sizes[3]
    world.apply(Lost(topic.id, 0, ((1, 2),)))
    assert planned_bytes(topic) == sizes[0] + sizes[3]


def test_there_is_room_to_the_last_byte(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(max_bytes=2_000))
    size = len(world.publish(topic, body=bytes(1_000)).batch)
    world.publish(topic, body=bytes(900))
    planned(world, "tables", topic, {0: 1})
    assert not is_held_by_readers(topic, 2_000 - size)
    assert is_held_by_readers(topic, 2_001 - size)
    check_room(topic, 2_000 - size)
    with pytest.raises(HeldByReader, match=f"planned to read {size}"):
        check_room(topic, 2_001 - size)


def test_without_a_plan_or_a_limit_there_is_always_room(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(max_bytes=2_000))
    world.publish(topic, body=bytes(1_000))
    assert not is_held_by_readers(topic, 5_000)
    world.subscribe(topic, "tables", READER)
    assert not is_held_by_readers(topic, 5_000), "it has planned nothing"
    free = world.topic("free")
    world.publish(free)
    planned(world, "tables", free, {0: 1})
    assert not is_held_by_readers(free, 1 << 40)
