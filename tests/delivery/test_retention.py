"""When uncovered messages go, and when publishers are forgotten."""

import pytest

from penstock.delivery.publish import Duplicate, decide_publish
from penstock.delivery.retention import NEVER, decide_retention, due_at, forget_publishers
from penstock.delivery.state import Topic
from penstock.vocabulary.errors import PublisherForgotten
from penstock.vocabulary.policy import TopicPolicy
from penstock.vocabulary.records import Removed, TopicAltered
from tests.delivery.world import GENERATED, NAMED, World

WEEK_MS = 7 * 24 * 3600 * 1000


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic(policy=TopicPolicy(retain_s=10))


def test_an_uncovered_message_is_kept_for_its_time_and_then_removed(
    world: World, topic: Topic
) -> None:
    world.publish(topic, 3)
    partition = topic.partitions[0]
    assert due_at(partition) == world.wall + 10_000
    assert decide_retention(partition, world.wall + 9_999) == []
    (record,) = decide_retention(partition, world.wall + 10_000)
    assert record == Removed(topic.id, 0, ((0, 3),))
    world.apply(record)
    assert (partition.held, partition.retained) == (0, None)


@pytest.mark.parametrize("later_ms", [1, 500, 999, 1000, 1500])
def test_no_message_goes_before_its_own_time(world: World, topic: Topic, later_ms: int) -> None:
    world.publish(topic)
    world.wall += later_ms
    world.publish(topic)
    records = decide_retention(topic.partitions[0], world.wall + 9_999)
    assert [record.ranges for record in records] in ([], [((0, 1),)])


def test_each_message_goes_about_when_its_own_time_is_over(world: World, topic: Topic) -> None:
    world.publish(topic)
    world.wall += 5_000
    world.publish(topic)
    records = decide_retention(topic.partitions[0], world.wall + 5_000)
    assert records == [Removed(topic.id, 0, ((0, 1),))]


def test_a_covered_message_is_never_removed_by_age(world: World, topic: Topic) -> None:
    world.subscribe(topic)
    world.publish(topic)
    assert decide_retention(topic.partitions[0], world.wall + 10**12) == []
    assert due_at(topic.partitions[0]) == NEVER


def test_a_message_taken_over_is_not_removed_by_age(world: World, topic: Topic) -> None:
    world.publish(topic)
    world.subscribe(topic)
    assert decide_retention(topic.partitions[0], world.wall + 10**12) == []


def test_retention_for_ever_removes_nothing(world: World) -> None:
    topic = world.topic("keep", policy=TopicPolicy(retain_s=None))
    world.publish(topic)
    assert decide_retention(topic.partitions[0], world.wall + 10**12) == []
    assert due_at(topic.partitions[0]) == NEVER


def test_a_new_policy_counts_for_what_is_there(world: World, topic: Topic) -> None:
    world.publish(topic)
    world.apply(TopicAltered(topic.id, TopicPolicy(retain_s=1)))
    assert due_at(topic.partitions[0]) == world.wall + 1_000


def test_a_clock_that_stepped_back_keeps_messages_rather_longer(world: World, topic: Topic) -> None:
    start = world.wall
    world.publish(topic)
    world.wall -= 3_600_000
    world.publish(topic)
    assert decide_retention(topic.partitions[0], start - 3_600_000 + 9_999) == []


# -- publishers --------------------------------------------------------------------------------


def test_a_generated_publisher_is_forgotten_after_a_week_without_use(
    world: World, topic: Topic
) -> None:
    world.publish(topic, publisher=GENERATED)
    partition = topic.partitions[0]
    forget_publishers(partition, world.wall + WEEK_MS)
    assert partition.publishers is not None
    forget_publishers(partition, world.wall + WEEK_MS + 1)
    assert partition.publishers is None


def test_a_retry_of_a_forgotten_publisher_is_refused_not_stored(world: World, topic: Topic) -> None:
    partition = topic.partitions[0]
    world.publish(topic, publisher=GENERATED)
    record = world.publish(topic, publisher=GENERATED)
    forget_publishers(partition, world.wall + WEEK_MS + 1)
    with pytest.raises(PublisherForgotten):
        decide_publish(partition, record.batch, 1, GENERATED, 0, record.sequence, world.wall)
    assert partition.next_offset == partition.reserved == 2


def test_a_named_publisher_is_remembered_for_ever(world: World, topic: Topic) -> None:
    record = world.publish(topic, publisher=NAMED)
    partition = topic.partitions[0]
    forget_publishers(partition, world.wall + 1000 * WEEK_MS)
    again = decide_publish(partition, record.batch, 1, NAMED, 0, record.sequence, world.wall)
    assert again == Duplicate(0)


def test_using_it_keeps_a_generated_publisher_known(world: World, topic: Topic) -> None:
    world.publish(topic, publisher=GENERATED)
    world.wall += WEEK_MS
    world.publish(topic, publisher=GENERATED)
    partition = topic.partitions[0]
    forget_publishers(partition, world.wall + WEEK_MS)
    assert partition.publishers is not None


def test_a_publisher_with_something_in_flight_is_not_forgotten(world: World, topic: Topic) -> None:
    record = world.publish(topic, publisher=GENERATED)
    partition = topic.partitions[0]
    decide_publish(partition, record.batch, 1, GENERATED, 0, 1, world.wall)
    forget_publishers(partition, world.wall + WEEK_MS + 1)
    assert partition.publishers is not None


def test_a_partition_without_publishers_has_nothing_to_forget(topic: Topic) -> None:
    forget_publishers(topic.partitions[0], 10**15)
    assert topic.partitions[0].publishers is None
