"""What a partition holds, for whom, and when it lets go."""

import pytest

from penstock.delivery import admin
from penstock.delivery.effects import Effects
from penstock.delivery.holding import drop_retained, forget_trials, lose, release
from penstock.delivery.state import Partition, Subscription, Topic
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause, Removed, SubscriptionDeleted
from tests.delivery.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


@pytest.fixture
def partition(topic: Topic) -> Partition:
    return topic.partitions[0]


def ack_all(world: World, subscription: Subscription, *ranges: tuple[int, int]) -> None:
    consumer = world.join(subscription)
    for lease in world.deliver(consumer):
        world.ack(lease, *ranges)
    world.leave(consumer)


def held(partition: Partition) -> list[int]:
    return [o for o in range(partition.next_offset) if o not in partition.released]


# -- held until every durable cursor has acked -------------------------------------------------


def test_a_message_is_held_until_every_durable_subscription_has_acked_it(
    world: World, topic: Topic, partition: Partition
) -> None:
    billing, audit = world.subscribe(topic, "billing"), world.subscribe(topic, "audit")
    world.publish(topic, 3)
    ack_all(world, billing)
    assert held(partition) == [0, 1, 2]
    ack_all(world, audit, (0, 2))
    assert held(partition) == [2]
    assert world.released == [(partition.key, 0, 2)]


def test_one_message_that_nobody_acks_keeps_only_itself(
    world: World, topic: Topic, partition: Partition
) -> None:
    subscription = world.subscribe(topic)
    world.publish(topic, 100)
    ack_all(world, subscription, (0, 40), (41, 100))
    assert held(partition) == [40]
    assert partition.held == 1


def test_a_subscription_that_starts_later_does_not_hold_what_came_before(
    world: World, topic: Topic, partition: Partition
) -> None:
    billing = world.subscribe(topic, "billing")
    world.publish(topic, 3)
    world.subscribe(topic, "audit", starts=admin.latest(topic))
    ack_all(world, billing)
    assert held(partition) == []


def test_an_ephemeral_subscription_holds_nothing(
    world: World, topic: Topic, partition: Partition
) -> None:
    billing = world.subscribe(topic, "billing")
    admin.make_ephemeral(world.state, topic, SubscriptionPolicy(), (0,), world.wall)
    world.publish(topic, 3)
    ack_all(world, billing)
    assert held(partition) == []


def test_looking_through_an_ephemeral_subscription_deletes_nothing(
    world: World, topic: Topic, partition: Partition
) -> None:
    watcher = admin.make_ephemeral(world.state, topic, SubscriptionPolicy(), (0,), world.wall)
    world.publish(topic, 3)
    ack_all(world, watcher)
    assert held(partition) == [0, 1, 2]


def test_deleting_a_subscription_releases_what_only_it_held(
    world: World, topic: Topic, partition: Partition
) -> None:
    billing, audit = world.subscribe(topic, "billing"), world.subscribe(topic, "audit")
    world.publish(topic, 4)
    ack_all(world, billing, (1, 3))
    world.apply(SubscriptionDeleted(topic.id, audit.id))
    assert held(partition) == [0, 3]
    world.apply(SubscriptionDeleted(topic.id, billing.id))
    assert held(partition) == []


def test_held_bytes_are_those_of_the_records_that_are_held(
    world: World, topic: Topic, partition: Partition
) -> None:
    subscription = world.subscribe(topic)
    sizes = [len(world.publish(topic, body=bytes(size)).batch) for size in (12, 60_000, 60_000, 1)]
    ack_all(world, subscription, (1, 3))
    assert partition.held_bytes == sizes[0] + sizes[3]
    ack_all(world, subscription, (3, 4))
    assert partition.held_bytes == sizes[0]


def test_the_bytes_of_a_record_are_spread_over_its_messages(
    world: World, topic: Topic, partition: Partition
) -> None:
    subscription = world.subscribe(topic)
    world.publish(topic, body=bytes(7_000))
    size = len(world.publish(topic, 100, body=bytes(50)).batch)
    ack_all(world, subscription, (0, 1), *((at, at + 1) for at in range(2, 101, 2)))
    assert abs(partition.held_bytes - size / 2) < 50
    ack_all(world, subscription)
    assert (partition.held, partition.held_bytes, partition.sizes) == (0, 0, None)


# -- messages no durable subscription covered --------------------------------------------------


def test_a_message_nobody_covers_is_kept_with_its_publish_time(
    world: World, topic: Topic, partition: Partition
) -> None:
    world.publish(topic, 3)
    assert partition.retained == [[0, 3, world.wall]]
    assert held(partition) == [0, 1, 2]


def test_uncovered_messages_of_one_second_share_a_row_with_the_newest_time(
    world: World, topic: Topic, partition: Partition
) -> None:
    world.wall = 5_000_100
    world.publish(topic)
    world.wall = 5_000_900
    world.publish(topic)
    world.wall = 5_001_050
    world.publish(topic)
    assert partition.retained == [[0, 2, 5_000_900], [2, 3, 5_001_050]]


def test_a_topic_that_retains_nothing_lets_go_at_once(world: World) -> None:
    topic = world.topic("brief", policy=TopicPolicy(retain_s=0))
    world.publish(topic, 3)
    assert held(topic.partitions[0]) == []
    assert topic.partitions[0].held == 0


def test_a_durable_subscription_that_starts_before_it_takes_a_retained_message_over(
    world: World, topic: Topic, partition: Partition
) -> None:
    world.publish(topic, 4)
    subscription = world.subscribe(topic, starts=(2,))
    assert partition.retained == [[0, 2, world.wall]]
    assert subscription.cursors[0].attached == 2
    ack_all(world, subscription)
    assert held(partition) == [0, 1]


def test_a_later_subscription_does_not_shorten_what_is_retained(
    world: World, topic: Topic, partition: Partition
) -> None:
    world.publish(topic, 2)
    world.subscribe(topic, starts=admin.latest(topic))
    assert partition.retained == [[0, 2, world.wall]]
    world.publish(topic)
    assert partition.retained == [[0, 2, world.wall]]


def test_a_retained_message_survives_the_end_of_a_subscription_that_never_covered_it(
    world: World, topic: Topic, partition: Partition
) -> None:
    world.publish(topic, 2)
    subscription = world.subscribe(topic, starts=admin.latest(topic))
    world.apply(SubscriptionDeleted(topic.id, subscription.id))
    assert held(partition) == [0, 1]


def test_what_is_retained_is_not_released_with_its_neighbours(
    world: World, topic: Topic, partition: Partition
) -> None:
    world.publish(topic, 6)
    partition.retained = [[2, 4, world.wall]]
    effects = Effects(0, 0)
    release(partition, 0, 6, effects)
    assert effects.released == [(partition.key, 0, 2), (partition.key, 4, 6)]
    assert held(partition) == [2, 3]


def test_a_row_is_cut_where_messages_leave_it(partition: Partition) -> None:
    partition.retained = [[0, 10, 5], [10, 20, 6]]
    drop_retained(partition, 4, 12)
    assert partition.retained == [[0, 4, 5], [12, 20, 6]]
    drop_retained(partition, 0, 20)
    assert partition.retained is None


# -- removed and lost --------------------------------------------------------------------------


def test_a_removed_message_is_taken_from_whoever_has_it(
    world: World, topic: Topic, partition: Partition
) -> None:
    subscription = world.subscribe(topic)
    consumer = world.join(subscription)
    cursor = subscription.cursors[0]
    world.publish(topic, 5)
    lease = world.deliver_one(consumer)
    world.give_back(lease, (0, 1), delay_s=10)
    world.give_back(lease, (1, 2), cause=Cause.UNSTARTED)
    world.give_back(lease, (2, 3), cause=Cause.REJECTED)
    world.apply(Removed(topic.id, 0, ((0, 4),)))
    assert cursor.dropped == 4
    assert (cursor.delayed, cursor.ready) == (None, None)
    assert lease.unfinished() == [(4, 5)]
    assert held(partition) == [4]
    assert [cursor.trial(offset).attempt for offset in range(4)] == [0, 0, 0, 0]


def test_what_the_log_lost_is_finished_for_everyone_and_held_by_nobody(
    world: World, topic: Topic, partition: Partition
) -> None:
    subscription = world.subscribe(topic)
    world.publish(topic, 2)
    effects = Effects(0, 0)
    lose(partition, 2, 5, effects)
    cursor = subscription.cursors[0]
    assert (cursor.attached, cursor.dropped) == (5, 3)
    assert (partition.next_offset, partition.reserved, partition.held) == (5, 5, 2)
    assert effects.released == [(partition.key, 2, 5)]


def test_forgetting_attempts_touches_only_the_named_messages(world: World, topic: Topic) -> None:
    subscription = world.subscribe(topic)
    consumer = world.join(subscription)
    cursor = subscription.cursors[0]
    world.publish(topic, 4)
    lease = world.deliver_one(consumer)
    world.give_back(lease, (1, 4), cause=Cause.REJECTED, reason="x")
    forget_trials(cursor, 1, 3)
    assert [cursor.trial(offset).attempt for offset in range(4)] == [1, 0, 0, 1]
    assert cursor.reasons == {3: ("x", "worker")}
    assert cursor.doomed is not None
    assert cursor.doomed.ranges() == [(3, 4)]
