"""What each record does to the state, live and in recovery alike."""

import pytest

from penstock.delivery.apply import NOBODY, REJECTED, apply, is_exhausted, topic_ids
from penstock.delivery.counts import count
from penstock.delivery.effects import Effects
from penstock.delivery.shared import after_recovery, due
from penstock.delivery.state import Consumer, Cursor, Subscription, Topic, Trial
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import (
    Attached,
    Cause,
    Copied,
    Delivered,
    Detached,
    Lost,
    Outcome,
    Published,
    Record,
    Removed,
    Returned,
    Settled,
    Skipped,
    Started,
    SubscriptionCreated,
    TopicCreated,
    TopicDeleted,
    Unit,
)
from tests.delivery.world import NAMED, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


@pytest.fixture
def subscription(world: World, topic: Topic) -> Subscription:
    return world.subscribe(topic)


@pytest.fixture
def consumer(world: World, subscription: Subscription) -> Consumer:
    return world.join(subscription)


@pytest.fixture
def cursor(subscription: Subscription) -> Cursor:
    return subscription.cursors[0]


# -- messages ----------------------------------------------------------------------------------


def test_a_publish_attaches_its_messages_to_every_subscription(world: World, topic: Topic) -> None:
    both = [world.subscribe(topic, "billing"), world.subscribe(topic, "audit")]
    record = world.publish(topic, 3)
    assert [subscription.cursors[0].attached for subscription in both] == [3, 3]
    partition = topic.partitions[0]
    assert (partition.next_offset, partition.held) == (3, 3)
    assert partition.held_bytes == len(record.batch)


def test_a_publish_for_one_subscription_is_finished_for_the_others(
    world: World, topic: Topic, cursor: Cursor
) -> None:
    other = world.subscribe(topic, "audit").cursors[0]
    cursor.dead = 1
    world.apply(Published(topic.id, 0, 0, 1, NOBODY, 0, 0, 0, b"", None, cursor.subscription.id))
    assert (cursor.attached, cursor.dead) == (0, 0)
    assert 0 not in cursor.done
    assert 0 in other.done


def test_dead_letters_of_a_deleted_namesake_are_new_to_the_subscription(
    world: World, topic: Topic, cursor: Cursor
) -> None:
    cursor.dead = 1
    world.apply(Published(topic.id, 0, 0, 3, NOBODY, 0, 0, 0, b"", None, cursor.subscription.id))
    assert (cursor.attached, cursor.dead) == (2, 0)


def test_the_broker_itself_is_no_publisher_to_remember(world: World, topic: Topic) -> None:
    world.apply(Published(topic.id, 0, 0, 1, NOBODY, 0, 0, 0, b""))
    assert topic.partitions[0].publishers is None


def test_a_gap_in_the_log_is_counted_as_dropped_not_as_waiting(
    world: World, topic: Topic, cursor: Cursor
) -> None:
    world.publish(topic, 2)
    world.apply(Published(topic.id, 0, 5, 1, NAMED, 0, 9, 0, b""))
    counted = count(cursor.subscription)
    assert (counted.attached, counted.dropped, counted.waiting) == (6, 3, 3)
    assert topic.partitions[0].lost is not None
    assert topic.partitions[0].lost.ranges() == [(2, 5)]
    assert topic.partitions[0].held == 3


def test_skipped_offsets_are_nobodys_messages(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 2)
    world.apply(Skipped(topic.id, 0, 1000))
    partition = topic.partitions[0]
    assert (partition.next_offset, partition.reserved, partition.held) == (1000, 1000, 2)
    assert count(cursor.subscription).attached == 2
    assert world.publish(topic).base == 1000


def test_skipping_backwards_changes_nothing(world: World, topic: Topic) -> None:
    world.publish(topic, 5)
    world.apply(Skipped(topic.id, 0, 3))
    assert topic.partitions[0].next_offset == 5


def test_a_copy_changes_nothing_but_places(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic, 3)
    before = count(cursor.subscription)
    world.apply(Copied(topic.id, 0, (0, 2), b""))
    assert count(cursor.subscription) == before
    assert topic.partitions[0].held == 3


def test_lost_messages_are_dropped_for_every_subscription(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 4)
    world.deliver_one(consumer)
    world.apply(Lost(topic.id, 0, ((1, 3),)))
    assert (cursor.dropped, cursor.leased, consumer.outstanding) == (2, 2, 2)
    assert topic.partitions[0].lost is not None
    assert topic.partitions[0].lost.ranges() == [(1, 3)]


def test_removed_messages_are_released_and_dropped(
    world: World, topic: Topic, cursor: Cursor
) -> None:
    world.publish(topic, 4)
    effects = world.apply(Removed(topic.id, 0, ((0, 1), (2, 3))))
    assert cursor.dropped == 2
    assert [(low, high) for _, low, high in effects.released] == [(0, 1), (2, 3)]
    assert topic.partitions[0].held == 2


# -- deliveries --------------------------------------------------------------------------------


def test_a_delivery_is_remembered_with_its_slice_and_company(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    world.apply(Delivered(topic.id, 0, subscription.id, 0, 2, False, 1))
    world.apply(Delivered(topic.id, 0, subscription.id, 2, 3, True, 1))
    assert cursor.trial(0) == Trial(attempt=1, slice=2, out=1)
    assert cursor.trial(2) == Trial(attempt=1, slice=1, out=2)


def test_a_delivery_of_what_is_finished_leaves_no_trace(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    world.apply(Settled(topic.id, 0, subscription.id, Outcome.ACKED, ((1, 2),)))
    world.apply(Delivered(topic.id, 0, subscription.id, 0, 3, False, 1))
    assert [cursor.trial(offset).attempt for offset in range(3)] == [1, 0, 1]


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (Outcome.ACKED, "acked"),
        (Outcome.DEAD, "dead"),
        (Outcome.EXPIRED, "expired"),
        (Outcome.DROPPED, "dropped"),
    ],
)
def test_each_outcome_is_counted_under_its_name(
    world: World,
    topic: Topic,
    subscription: Subscription,
    cursor: Cursor,
    outcome: Outcome,
    name: str,
) -> None:
    world.publish(topic, 3)
    world.apply(Settled(topic.id, 0, subscription.id, outcome, ((0, 2),)))
    assert getattr(cursor, name) == 2
    others = {"acked", "dead", "expired", "dropped"} - {name}
    assert [getattr(cursor, other) for other in others] == [0, 0, 0]


def test_a_message_is_settled_once(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    world.apply(Settled(topic.id, 0, subscription.id, Outcome.ACKED, ((0, 2),)))
    world.apply(Settled(topic.id, 0, subscription.id, Outcome.DEAD, ((1, 3),)))
    assert (cursor.acked, cursor.dead) == (2, 1)


def test_a_settled_message_leaves_no_attempts_or_reasons_behind(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic)
    world.give_back(world.deliver_one(consumer), delay_s=0, reason="x")
    world.ack(world.deliver_one(consumer))
    assert cursor.trials is not None
    assert cursor.trials.items() == []
    assert cursor.reasons == {}


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (Cause.NACKED, Trial(1, 1, 0, 2, 0)),
        (Cause.EXPIRED, Trial(1, 1, 0, 2, 0)),
        (Cause.REJECTED, Trial(1, REJECTED, 0, 2, 0)),
        (Cause.LOST, Trial(1, 0, 1, 2, 0)),
        (Cause.LOST_ALONE, Trial(1, 1, 1, 2, 0)),
        (Cause.UNSTARTED, Trial(0, 0, 0, 2, 0)),
        (Cause.RELEASED, Trial(1, 0, 0, 2, 0)),
    ],
)
def test_each_way_to_come_back_counts_in_its_own_way(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor, cause: Cause,
    expected: Trial,
) -> None:  # fmt: skip
    world.publish(topic, 2)
    world.apply(Delivered(topic.id, 0, subscription.id, 0, 2, False, 1))
    world.apply(Returned(topic.id, 0, subscription.id, cause, ((0, 2),), 0, world.wall, "", ""))
    assert cursor.trial(0) == expected


def test_what_comes_back_after_it_was_finished_stays_finished(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    world.apply(Settled(topic.id, 0, subscription.id, Outcome.ACKED, ((1, 2),)))
    world.apply(
        Returned(topic.id, 0, subscription.id, Cause.NACKED, ((0, 3),), 0, world.wall, "", "")
    )
    assert cursor.ready == [(0, 1), (2, 3)]


def test_after_max_attempts_a_message_is_doomed(world: World, topic: Topic) -> None:
    policy = SubscriptionPolicy(retry=Retry(max_attempts=3))
    subscription = world.subscribe(topic, policy=policy)
    consumer = world.join(subscription)
    world.publish(topic)
    for attempt in (1, 2, 3):
        lease = world.deliver_one(consumer)
        assert lease.attempt == attempt
        world.give_back(lease, delay_s=0)
    assert list(world.doomed) == subscription.cursors
    assert world.deliver(consumer) == []


def test_without_max_attempts_a_message_is_tried_for_ever(world: World, topic: Topic) -> None:
    policy = SubscriptionPolicy(retry=Retry(max_attempts=None))
    consumer = world.join(world.subscribe(topic, policy=policy))
    world.publish(topic)
    for attempt in range(1, 50):
        lease = world.deliver_one(consumer)
        assert lease.attempt == attempt
        world.give_back(lease, delay_s=0)
    assert world.doomed == {}


@pytest.mark.parametrize("counted", [10, REJECTED])
def test_dead_letters_and_ephemeral_messages_are_never_dead_lettered(
    cursor: Cursor, counted: int
) -> None:
    assert is_exhausted(cursor, Trial(counted=counted))
    cursor.subscription.topic.name = "orders.dead.billing"
    assert not is_exhausted(cursor, Trial(counted=counted))
    cursor.subscription.topic.name = "orders"
    cursor.subscription.is_durable = False
    assert not is_exhausted(cursor, Trial(counted=counted))


def test_a_back_off_read_back_later_has_only_the_rest_of_its_time(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic)
    record = Returned(
        topic.id, 0, subscription.id, Cause.NACKED, ((0, 1),), 10_000, world.wall, "", ""
    )
    effects = Effects(now=500, wall=world.wall + 4_000)
    apply(world.state, record, effects)
    assert cursor.delayed == [(500 + 6_000, 0, 1, world.wall + 10_000, 10_000)]


def test_a_back_off_is_never_longer_than_it_was_whatever_the_wall_clock_says(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic)
    record = Returned(
        topic.id, 0, subscription.id, Cause.NACKED, ((0, 1),), 10_000, world.wall, "", ""
    )
    apply(world.state, record, Effects(now=500, wall=world.wall - 86_400_000))
    assert cursor.delayed is not None
    assert cursor.delayed[0][0] == 500 + 10_000


# -- the same records again, as recovery sees them ---------------------------------------------


def replay(topic: Topic, subscription: Subscription, *records: Record) -> Cursor:
    """A cursor as recovery finds it: nobody moved anything out of its back-off."""
    world = World()
    world.topic()
    world.subscribe(world.state.names["orders"])
    assert (topic.id, subscription.id) == (1, 1)
    world.wall += 3_600_000
    for record in records:
        world.apply(record)
    cursor = world.state.subscriptions[1].cursors[0]
    after_recovery(cursor)
    return cursor


def nacked(delay_ms: int = 5_000) -> Returned:
    return Returned(1, 0, 1, Cause.NACKED, ((0, 1),), delay_ms, World().wall, "", "")


DELIVERED = Delivered(1, 0, 1, 0, 1, False, 1)


def test_a_confirmed_ack_after_a_back_off_is_not_offered_again_after_recovery(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    published = Published(1, 0, 0, 1, NAMED, 0, 0, 0, b"")
    settled = Settled(1, 0, 1, Outcome.ACKED, ((0, 1),))
    cursor = replay(topic, subscription, published, DELIVERED, nacked(), DELIVERED, settled)
    assert cursor.delayed is None
    assert cursor.ready is None
    assert count(cursor.subscription).waiting == 0


def test_a_message_that_backed_off_twice_is_offered_once_after_recovery(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    published = Published(1, 0, 0, 1, NAMED, 0, 0, 0, b"")
    cursor = replay(topic, subscription, published, DELIVERED, nacked(), DELIVERED, nacked())
    assert cursor.delayed is not None
    assert len(cursor.delayed) == 1
    assert due(cursor, 1 << 60, 1 << 60)
    assert cursor.ready == [(0, 1)]


def test_a_message_nacked_again_without_a_delivery_is_offered_once_after_recovery(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    published = Published(1, 0, 0, 1, NAMED, 0, 0, 0, b"")
    cursor = replay(topic, subscription, published, DELIVERED, nacked(), nacked(9_000))
    assert due(cursor, 1 << 60, 1 << 60)
    assert cursor.ready == [(0, 1)]


def test_a_message_out_again_after_its_back_off_waits_after_recovery(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    published = Published(1, 0, 0, 1, NAMED, 0, 0, 0, b"")
    started = Started(2, False, 0)
    cursor = replay(topic, subscription, published, DELIVERED, nacked(), DELIVERED, started)
    assert (cursor.ready, cursor.delayed) == ([(0, 1)], None)


# -- topics and subscriptions ------------------------------------------------------------------


def test_attached_consumers_are_known_until_they_detach(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.apply(Attached(topic.id, subscription.id, 4, "w4"))
    assert world.state.attached == {4: (subscription.id, "w4", 0)}
    assert world.state.next_consumer_id == 5
    world.apply(Detached(topic.id, subscription.id, 4))
    assert world.state.attached == {}


def test_a_start_forgets_the_consumers_of_the_run_before(world: World, consumer: Consumer) -> None:
    world.apply(Started(3, False, 0))
    assert (world.state.generation, world.state.attached) == (3, {})


def test_a_start_counts_a_loss_alone_and_not_one_in_company(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    world.apply(Delivered(topic.id, 0, subscription.id, 0, 2, False, 1))
    world.apply(Delivered(topic.id, 0, subscription.id, 2, 3, True, 2))
    world.apply(Started(1, False, 0))
    assert [cursor.trial(offset).counted for offset in range(3)] == [0, 0, 1]
    assert [cursor.trial(offset).losses for offset in range(3)] == [1, 1, 1]
    assert [cursor.trial(offset).out for offset in range(3)] == [0, 0, 0]


def test_a_restart_adds_at_most_one_loss(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic)
    world.apply(Delivered(topic.id, 0, subscription.id, 0, 1, True, 2))
    world.apply(Started(1, False, 0))
    world.apply(Started(2, False, 0))
    assert cursor.trial(0) == Trial(1, 1, 1, 1, 0)


def test_a_message_that_kills_the_broker_is_doomed_in_the_end(world: World, topic: Topic) -> None:
    policy = SubscriptionPolicy(retry=Retry(max_attempts=2))
    subscription = world.subscribe(topic, policy=policy)
    world.publish(topic)
    for generation in (1, 2):
        world.apply(Delivered(topic.id, 0, subscription.id, 0, 1, True, generation))
        effects = world.apply(Started(generation, False, 0))
    assert list(effects.doomed) == subscription.cursors


# -- units -------------------------------------------------------------------------------------


def test_a_unit_does_all_of_its_parts(world: World, topic: Topic, cursor: Cursor) -> None:
    world.publish(topic)
    parts: tuple[Record, ...] = (
        TopicCreated(9, "other", 1, TopicPolicy(), 0),
        SubscriptionCreated(9, 9, "s", (0,), SubscriptionPolicy(), 0),
        Settled(topic.id, 0, cursor.subscription.id, Outcome.ACKED, ((0, 1),)),
    )
    world.apply(Unit(parts))
    assert "s" in (world.state.topics[9].subscriptions or {})
    assert cursor.acked == 1


def test_a_record_names_the_topics_it_speaks_of() -> None:
    assert topic_ids(Removed(3, 0, ())) == [3]
    assert topic_ids(Started(1, True, 0)) == []
    assert topic_ids(Unit((Removed(3, 0, ()), TopicDeleted(4)))) == [3, 4]
