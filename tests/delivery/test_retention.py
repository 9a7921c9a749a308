"""When uncovered messages go, and when publishers are forgotten."""

import pytest

from penstock.delivery.counts import count_cursor, unexplained
from penstock.delivery.policies import is_over
from penstock.delivery.publish import Duplicate, decide_publish
from penstock.delivery.retention import (
    Guard,
    decide_retention,
    decide_size,
    due_at,
    forget_publishers,
)
from penstock.delivery.state import Cursor, Partition, Topic
from penstock.delivery.traits import NEVER
from penstock.vocabulary.errors import PublisherForgotten
from penstock.vocabulary.policy import TopicPolicy
from penstock.vocabulary.records import Outlived, Removed, TopicAltered
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


# -- the replay window and the limit of age --------------------------------------------------------


def covered(world: World, policy: TopicPolicy) -> tuple[Topic, Cursor]:
    topic = world.topic("covered", policy=policy)
    return topic, world.subscribe(topic).cursors[0]


def test_the_replay_window_moves_with_time(world: World) -> None:
    topic, _ = covered(world, TopicPolicy(replay_s=10))
    partition = topic.partitions[0]
    world.publish(topic)
    assert due_at(partition) == world.wall + 10_000
    world.wall += 5_000
    world.publish(topic)
    assert decide_retention(partition, world.wall + 4_999) == []
    (record,) = decide_retention(partition, world.wall + 5_000)
    assert record == Outlived(topic.id, 0, (), 1)
    world.apply(record)
    assert decide_retention(partition, world.wall + 5_000) == []
    assert due_at(partition) == world.wall + 10_000


def test_a_message_over_its_age_is_removed_and_counted(world: World) -> None:
    topic, cursor = covered(world, TopicPolicy(max_age_s=10))
    partition = topic.partitions[0]
    consumer = world.join(cursor.subscription)
    world.publish(topic, 3)
    world.ack(world.deliver_one(consumer), (1, 2))
    assert due_at(partition) == world.wall + 10_000
    assert decide_retention(partition, world.wall + 9_999) == []
    (record,) = decide_retention(partition, world.wall + 10_000)
    assert record == Removed(topic.id, 0, ((0, 1), (2, 3)))
    world.apply(record)
    counts = count_cursor(cursor)
    assert (counts.acked, counts.dropped, counts.leased, unexplained(counts)) == (1, 2, 0, 0)
    assert (partition.held, due_at(partition)) == (0, NEVER)


def test_age_wins_over_replay_and_the_newest_of_a_key(world: World) -> None:
    topic, _ = covered(world, TopicPolicy(max_age_s=10, replay_s=1000, keep_last=5))
    world.publish(topic, 2)
    (record,) = decide_retention(topic.partitions[0], world.wall + 10_000)
    world.apply(record)
    assert topic.partitions[0].held == 0


def test_uncovered_messages_of_a_keeping_topic_outlive_their_time(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(retain_s=10, keep_last=1))
    world.publish(topic, 3)
    (record,) = decide_retention(topic.partitions[0], world.wall + 10_000)
    assert record == Outlived(topic.id, 0, ((0, 3),), 0)
    world.apply(record)
    assert topic.partitions[0].held == 1
    assert decide_retention(topic.partitions[0], world.wall + 10**9) == []


def test_nothing_is_removed_while_a_seek_is_under_way(world: World) -> None:
    topic, cursor = covered(world, TopicPolicy(max_age_s=10, max_bytes=1))
    world.publish(topic)
    cursor.subscription.seeks = 1
    assert decide_retention(topic.partitions[0], world.wall + 10_000) == []
    assert decide_size(topic) == []
    cursor.subscription.seeks = 0
    assert decide_retention(topic.partitions[0], world.wall + 10_000)
    assert decide_size(topic)


# -- size ------------------------------------------------------------------------------------------


def test_the_oldest_messages_make_room(world: World) -> None:
    topic, cursor = covered(world, TopicPolicy(max_bytes=10_000))
    for _ in range(20):
        world.publish(topic, body=bytes(1000))
    partition = topic.partitions[0]
    assert is_over(topic)
    (record,) = decide_size(topic)
    ((start, end),) = record.ranges
    assert start == 0
    world.apply(record)
    assert partition.held_bytes <= 10_000
    assert partition.held_bytes > 8_000
    assert cursor.dropped == end
    assert decide_size(topic) == []
    assert not is_over(topic)


def test_no_more_goes_than_what_makes_room(world: World) -> None:
    topic, cursor = covered(world, TopicPolicy(max_bytes=10_000))
    sizes = [len(world.publish(topic, body=bytes(size)).batch) for size in (10, 3000, 10, 9000, 10)]
    (record,) = decide_size(topic)
    assert record.ranges == ((0, 2),)
    world.apply(record)
    assert topic.partitions[0].held_bytes == sum(sizes[2:])
    assert cursor.dropped == 2


def test_all_partitions_give_their_share(world: World) -> None:
    topic = world.topic("wide", partitions=2, policy=TopicPolicy(max_bytes=10_000))
    world.subscribe(topic)
    for number in range(20):
        world.publish(topic, partition=number % 2, body=bytes(1000))
    records = decide_size(topic)
    assert [record.partition for record in records] == [0, 1]
    for record in records:
        world.apply(record)
    assert sum(partition.held_bytes for partition in topic.partitions) <= 10_000
    assert [partition.held for partition in topic.partitions] == [4, 4]


def test_a_topic_within_its_size_or_without_one_gives_nothing(world: World) -> None:
    topic, _ = covered(world, TopicPolicy(max_bytes=10_000))
    world.publish(topic)
    assert decide_size(topic) == []
    assert decide_size(world.topic("plain")) == []


# -- guards ----------------------------------------------------------------------------------------


def guard(low: int, high: int) -> Guard:
    def protects(_partition: Partition, start: int, end: int) -> list[tuple[int, int]]:
        return [(max(low, start), min(high, end))] if start < high and low < end else []

    return protects


def test_no_rule_about_age_takes_what_a_guard_protects(world: World, topic: Topic) -> None:
    world.publish(topic, 10)
    later = world.wall + 10**9
    (record,) = decide_retention(topic.partitions[0], later, [guard(2, 4), guard(6, 7)])
    assert record.ranges == ((0, 2), (4, 6), (7, 10))
    assert decide_retention(topic.partitions[0], later, [guard(0, 10)]) == []
    other, _ = covered(world, TopicPolicy(max_age_s=10))
    world.publish(other, 3)
    (record,) = decide_retention(other.partitions[0], later, [guard(0, 2)])
    assert record.ranges == ((2, 3),)


def test_what_a_guard_protects_is_made_up_for_by_others(world: World) -> None:
    topic, _ = covered(world, TopicPolicy(max_bytes=5_000))
    for _ in range(10):
        world.publish(topic, body=bytes(1000))
    (record,) = decide_size(topic, [guard(0, 4)])
    assert record.ranges == ((4, 10),)


def test_nothing_goes_when_only_guarded_messages_could_make_room(world: World) -> None:
    topic, _ = covered(world, TopicPolicy(max_bytes=5_000))
    for _ in range(10):
        world.publish(topic, body=bytes(1000))
    assert decide_size(topic, [guard(0, 8)]) == []
    wide = world.topic("wide", partitions=2, policy=TopicPolicy(max_bytes=5_000))
    world.subscribe(wide)
    for number in range(20):
        world.publish(wide, partition=number % 2, body=bytes(1000))
    assert decide_size(wide, [guard(0, 100)]) == []


# -- publishers ------------------------------------------------------------------------------------


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
