"""A given id stays known when its message would go to another partition now."""

import pytest
from xxhash import xxh3_64_intdigest

from penstock.batch import encode_many
from penstock.delivery.growth import decide_partitions
from penstock.delivery.homes import homes_before, known_elsewhere
from penstock.delivery.publish import Decided, Duplicate, decide_publish
from penstock.delivery.state import Topic
from penstock.vocabulary.limits import DEDUP_S
from penstock.vocabulary.message import Message
from penstock.vocabulary.records import Published
from tests.delivery.world import GENERATED, World


def home_of(text: str) -> int:
    return xxh3_64_intdigest(text.encode())


MOVED = next(f"id-{n}" for n in range(99) if home_of(f"id-{n}") % 2)
"""Goes to partition 1 of 2."""


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


def grow(world: World, topic: Topic, partitions: int = 2) -> None:
    record = decide_partitions(topic, partitions, world.wall)
    assert record is not None
    world.apply(record)


def publish(
    world: World, topic: Topic, sequence: int, *ids: str | None, key: str | None = None
) -> object:
    batch = encode_many([Message(body=b"x", id=id, key=key) for id in ids])
    home = topic.map[1]
    return decide_publish(home, batch, len(ids), GENERATED, 0, sequence, world.wall)


def test_the_partition_before_the_growth_is_asked(world: World, topic: Topic) -> None:
    world.publish_messages(topic, [Message(body=b"x", id=MOVED)])
    grow(world, topic)
    assert publish(world, topic, 0, MOVED) == Duplicate(None, {})
    assert topic.map[1].reserved == 0


def test_new_messages_of_the_same_batch_are_stored(world: World, topic: Topic) -> None:
    world.publish_messages(topic, [Message(body=b"x", id=MOVED)])
    grow(world, topic)
    found = publish(world, topic, 0, "new", MOVED, None)
    record = found.published if isinstance(found, Decided) else found
    assert isinstance(record, Published)
    assert (record.kept, record.count) == ((0, 2), 2)


def test_the_same_id_with_another_key_is_another_message(world: World, topic: Topic) -> None:
    key = next(f"k{n}" for n in range(99) if home_of(f"k{n}") % 2)
    world.publish_messages(topic, [Message(body=b"x", id="same", key=key)])
    grow(world, topic)
    assert publish(world, topic, 0, "same", key=key) == Duplicate(None, {})
    grow(world, topic, 3)
    other = next(f"o{n}" for n in range(99) if [home_of(f"o{n}") % c for c in (1, 2)] == [0, 1])
    batch = encode_many([Message(body=b"x", id="unseen", key=other)])
    assert known_elsewhere(topic.map[1], batch, ["unseen"], world.wall) == frozenset()


def test_an_older_map_is_forgotten_with_the_window(world: World, topic: Topic) -> None:
    world.publish_messages(topic, [Message(body=b"x", id=MOVED)])
    grow(world, topic)
    world.wait(DEDUP_S + 2)
    assert isinstance(publish(world, topic, 0, MOVED), Published)


def test_an_id_is_known_while_the_growth_is_on_its_way(world: World, topic: Topic) -> None:
    world.publish_messages(topic, [Message(body=b"x", id=MOVED)])
    assert decide_partitions(topic, 2, world.wall) is not None
    assert publish(world, topic, 0, MOVED) == Duplicate(None, {})


def test_where_messages_would_have_gone_before(world: World, topic: Topic) -> None:
    world.publish(topic, 3)
    grow(world, topic)
    found = publish(world, topic, 0, MOVED, None, "other")
    assert isinstance(found, Published)
    homes = homes_before(topic.partitions[1], found, [MOVED, None, "other"])
    assert homes == {0: [(topic.partitions[0], 3)], 2: [(topic.partitions[0], 3)]}
