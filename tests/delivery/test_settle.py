"""Ack, nack, reject, expiry, renewal, hand-back, and the loss of a consumer."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery import admin, settle
from penstock.delivery.apply import REJECTED
from penstock.delivery.state import Consumer, Cursor, Subscription, Topic, Trial
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause, Outcome, Settled
from tests.delivery.world import World, claim, the


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
    return world.join(subscription, name="w1")


@pytest.fixture
def cursor(subscription: Subscription) -> Cursor:
    return subscription.cursors[0]


# -- ack ---------------------------------------------------------------------------------------


def test_an_ack_finishes_what_it_names(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 5)
    lease = world.deliver_one(consumer)
    assert world.ack(lease, (0, 2), (4, 5)) == []
    assert [offset in cursor.done for offset in range(5)] == [True, True, False, False, True]
    assert (cursor.acked, cursor.leased) == (3, 2)


def test_acks_of_one_partition_make_one_record(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic, 6)
    lease = world.deliver_one(consumer)
    claims = [claim(lease, (4, 6)), claim(lease, (0, 1)), claim(lease, (1, 3))]
    records, refused = settle.decide_ack(consumer, claims)
    assert records == [Settled(topic.id, 0, subscription.id, Outcome.ACKED, ((0, 3), (4, 6)))]
    assert refused == []


def test_acks_of_two_partitions_make_two_records(world: World) -> None:
    topic = world.topic("wide", partitions=2)
    consumer = world.join(world.subscribe(topic))
    world.publish(topic, 1, 0)
    world.publish(topic, 1, 1)
    leases = world.deliver(consumer)
    records, _ = settle.decide_ack(consumer, [claim(lease) for lease in leases])
    assert sorted(record.partition for record in records) == [0, 1]


def test_a_decided_ack_is_neither_leased_nor_waiting_until_it_is_durable(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    lease = world.deliver_one(consumer)
    settle.decide_ack(consumer, [claim(lease)])
    assert (cursor.leased, cursor.settling, consumer.outstanding) == (0, 3, 0)
    assert world.dispatch(consumer.subscription) == []


def test_a_second_decision_about_a_decided_message_finds_it_taken(
    world: World, topic: Topic, consumer: Consumer
) -> None:
    world.publish(topic)
    lease = world.deliver_one(consumer)
    settle.decide_ack(consumer, [claim(lease)])
    records, refused = settle.decide_return(
        consumer, claim(lease), Cause.NACKED, None, "", world.wall
    )
    assert records == []
    assert [refusal.offset for refusal in refused] == [0]


def test_acking_again_with_the_token_that_acked_is_success(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 2)
    lease = world.deliver_one(consumer)
    world.ack(lease)
    assert world.ack(lease) == []
    assert cursor.acked == 2


def test_an_ack_of_what_was_never_delivered_is_refused(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 2)
    records, refused = settle.decide_ack(consumer, [Claim(99, 0, 1, ((0, 2),))])
    assert records == []
    assert [refusal.offset for refusal in refused] == [0, 1]
    assert world.deliver_one(consumer).end == 2
    assert cursor.acked == 0


def test_a_refusal_does_not_spoil_the_other_acks(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 2)
    lease = world.deliver_one(consumer)
    records, refused = settle.decide_ack(consumer, [claim(lease, (0, 1)), claim(lease, (5, 6))])
    assert [record.ranges for record in records] == [((0, 1),)]
    assert [(refusal.partition, refusal.offset) for refusal in refused] == [(0, 5)]


def test_another_consumers_message_cannot_be_acked(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic)
    lease = world.deliver_one(consumer)
    thief = world.join(subscription)
    _, refused = settle.decide_ack(thief, [claim(lease)])
    assert [refusal.offset for refusal in refused] == [0]


# -- late acks ---------------------------------------------------------------------------------


def expire(world: World, subscription: Subscription) -> None:
    world.wait(subscription.policy.lease_s)
    assert world.expire(subscription)


def test_a_late_ack_is_accepted_while_the_message_waits(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    lease = world.deliver_one(consumer)
    expire(world, consumer.subscription)
    assert world.ack(lease, (0, 2)) == []
    assert cursor.acked == 2
    assert [(x.start, x.end) for x in world.deliver(consumer)] == [(2, 3)]


def test_a_late_ack_is_accepted_while_the_message_backs_off(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic)
    lease = world.deliver_one(consumer)
    world.give_back(lease, delay_s=60)
    assert world.ack(lease) == []
    assert (cursor.acked, cursor.delayed) == (1, None)


def test_a_late_ack_is_refused_once_the_message_was_handed_out_again(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic)
    lease = world.deliver_one(consumer)
    expire(world, subscription)
    second = world.deliver_one(consumer)
    (refusal,) = world.ack(lease)
    assert "handed out again" in refusal.why
    assert cursor.acked == 0
    assert world.ack(second) == []


def test_a_late_ack_of_an_older_attempt_is_refused_even_when_the_message_waits_again(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic)
    first = world.deliver_one(consumer)
    expire(world, subscription)
    second = world.deliver_one(consumer)
    expire(world, subscription)
    assert len(world.ack(first)) == 1
    assert world.ack(second) == []
    assert cursor.acked == 1


def test_a_late_ack_comes_from_a_consumer_that_left_too(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic)
    lease = world.deliver_one(consumer)
    world.lose(consumer)
    assert world.ack(lease) == []
    assert cursor.acked == 1


# -- nack and back-off -------------------------------------------------------------------------


def test_a_nack_comes_back_after_the_usual_back_off(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic)
    world.give_back(world.deliver_one(consumer), reason="no luck")
    assert cursor.delayed is not None
    ((due, start, end, due_wall, delay),) = cursor.delayed
    assert (start, end) == (0, 1)
    assert 375 <= delay <= 500
    assert (due - world.now, due_wall - world.wall) == (delay, delay)
    assert cursor.reasons == {0: ("no luck", "w1")}


def test_a_nack_with_a_delay_comes_back_after_that_delay(
    world: World, topic: Topic, consumer: Consumer
) -> None:
    world.publish(topic)
    world.give_back(world.deliver_one(consumer), delay_s=7)
    world.wait(6.999)
    assert world.deliver(consumer) == []
    world.wait(0.001)
    assert world.deliver_one(consumer).attempt == 2


def test_a_nack_without_delay_comes_back_at_once(
    world: World, topic: Topic, consumer: Consumer
) -> None:
    world.publish(topic)
    world.give_back(world.deliver_one(consumer), delay_s=0)
    assert world.deliver_one(consumer).attempt == 2


def test_a_nacked_part_leaves_the_rest_of_the_lease_alone(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 4)
    lease = world.deliver_one(consumer)
    world.give_back(lease, (1, 3))
    assert lease.unfinished() == [(0, 1), (3, 4)]
    assert cursor.leased == 2


def back_off_of(counted: int, offset: int, retry: Retry) -> float:
    world = World()
    topic = world.topic()
    cursor = world.subscribe(topic, policy=SubscriptionPolicy(retry=retry)).cursors[0]
    world.publish(topic, 1)
    world.join(cursor.subscription)
    world.dispatch(cursor.subscription)
    assert cursor.trials is not None
    cursor.trials.set(offset, offset + 1, tuple(Trial(counted=counted)))
    return settle.backoff_s(cursor, offset)


@given(st.integers(0, 60), st.integers(0, 100_000))
def test_back_off_doubles_to_its_cap_less_at_most_a_quarter(counted: int, offset: int) -> None:
    full = min(0.5 * 2.0**counted, 60.0)
    assert 0.75 * full <= back_off_of(counted, offset, Retry()) <= full


@given(st.integers(0, 5), st.floats(0.001, 10), st.floats(10, 1000))
def test_back_off_follows_the_policy_of_the_subscription(
    counted: int, first_s: float, max_s: float
) -> None:
    full = min(first_s * 2.0**counted, max_s)
    found = back_off_of(counted, 0, Retry(first_s=first_s, max_s=max_s))
    assert 0.75 * full <= found <= full


def test_neighbours_do_not_come_back_at_the_same_moment() -> None:
    assert len({back_off_of(3, offset, Retry()) for offset in range(20)}) > 10


def test_back_off_is_the_same_for_the_same_message_and_attempt() -> None:
    assert back_off_of(2, 17, Retry()) == back_off_of(2, 17, Retry())


# -- reject ------------------------------------------------------------------------------------


def test_a_rejected_message_is_doomed_at_once(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 2)
    lease = world.deliver_one(consumer)
    world.give_back(lease, (1, 2), cause=Cause.REJECTED, reason="bad")
    assert cursor.doomed is not None
    assert cursor.doomed.ranges() == [(1, 2)]
    assert cursor.trial(1).counted == REJECTED
    assert world.deliver(consumer) == []


def test_a_rejected_dead_letter_does_not_come_back_in_a_hot_loop(world: World) -> None:
    created = admin.decide_create_topic(
        world.state, "orders.dead.billing", 1, TopicPolicy(), 0, is_explicit=True, is_reserved=True
    )
    world.apply(the(created))
    topic = world.state.names["orders.dead.billing"]
    consumer = world.join(world.subscribe(topic, "inspector"))
    world.publish(topic)
    world.give_back(world.deliver_one(consumer), cause=Cause.REJECTED)
    assert world.deliver(consumer) == []
    world.wait(60)
    assert world.deliver_one(consumer).attempt == 2


# -- hand-back ---------------------------------------------------------------------------------


def test_what_is_handed_back_unstarted_gets_its_attempt_back(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    lease = world.deliver_one(consumer)
    world.give_back(lease, (0, 2), cause=Cause.UNSTARTED)
    assert [cursor.trial(offset).attempt for offset in range(3)] == [0, 0, 1]
    assert world.deliver_one(consumer).attempt == 1


def test_a_clean_close_counts_only_what_was_begun(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 4)
    lease = world.deliver_one(consumer)
    world.leave(consumer, {lease.id: ((0, 2),)})
    assert [cursor.trial(offset).attempt for offset in range(4)] == [1, 1, 0, 0]
    assert [cursor.trial(offset).counted for offset in range(4)] == [0, 0, 0, 0]
    assert [cursor.trial(offset).losses for offset in range(4)] == [0, 0, 0, 0]
    assert cursor.leased == 0


def test_a_clean_close_brings_back_a_wholly_begun_lease_once(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 2)
    lease = world.deliver_one(consumer)
    world.leave(consumer, {lease.id: ((0, 2),)})
    assert cursor.ready == [(0, 2)]
    assert [cursor.trial(offset).attempt for offset in (0, 1)] == [1, 1]


def test_after_a_clean_close_everything_is_offered_again_at_once(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic, 4)
    lease = world.deliver_one(consumer)
    world.leave(consumer, {lease.id: ((1, 2),)})
    slices = world.deliver(world.join(subscription))
    assert [(x.start, x.end, x.attempt) for x in slices] == [(0, 1, 1), (1, 2, 2), (2, 4, 1)]


def test_what_was_acked_before_a_close_stays_acked(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    lease = world.deliver_one(consumer)
    world.ack(lease, (1, 2))
    world.leave(consumer)
    assert (cursor.acked, cursor.leased) == (1, 0)
    assert cursor.ready == [(0, 1), (2, 3)]


# -- abrupt loss -------------------------------------------------------------------------------


def test_a_loss_in_company_raises_the_attempt_and_does_not_count(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 2)
    world.deliver_one(consumer)
    world.lose(consumer)
    trial = cursor.trial(0)
    assert (trial.attempt, trial.counted, trial.losses) == (1, 0, 1)
    assert cursor.ready == [(0, 2)]


def test_a_loss_alone_counts(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic)
    world.deliver_one(consumer)
    world.lose(consumer)
    trial = cursor.trial(0)
    assert (trial.attempt, trial.counted, trial.losses) == (1, 1, 1)
    assert cursor.delayed is not None


def test_two_slices_of_one_message_each_are_company(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    for _ in range(2):
        world.publish(topic)
        world.deliver_one(consumer)
    world.lose(consumer)
    assert [cursor.trial(offset).counted for offset in (0, 1)] == [0, 0]


def test_the_last_message_of_a_slice_is_alone(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    lease = world.deliver_one(consumer)
    world.ack(lease, (0, 2))
    world.lose(consumer)
    assert cursor.trial(2).counted == 1


def test_a_lost_consumer_is_named_as_the_reason(
    world: World, topic: Topic, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic)
    world.deliver_one(consumer)
    world.lose(consumer)
    assert cursor.reasons == {0: ("consumer lost", "w1")}


# -- leases ------------------------------------------------------------------------------------


def test_a_lease_expires_at_its_deadline_and_not_before(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic, 2)
    world.deliver_one(consumer)
    world.wait(29.999)
    assert world.expire(subscription) == []
    world.wait(0.001)
    (record,) = world.expire(subscription)
    assert (record.cause, record.ranges) == (Cause.EXPIRED, ((0, 2),))
    assert (cursor.trial(0).attempt, cursor.trial(0).counted) == (1, 1)
    assert cursor.ready == [(0, 2)]


def test_expiry_takes_only_what_is_unfinished(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic, 4)
    lease = world.deliver_one(consumer)
    world.ack(lease, (1, 3))
    world.wait(30)
    (record,) = world.expire(subscription)
    assert record.ranges == ((0, 1), (3, 4))


def test_expiry_of_one_consumer_leaves_others_alone(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic)
    world.deliver_one(consumer)
    world.wait(10)
    other = world.join(subscription)
    world.publish(topic)
    assert len(world.deliver(other) + world.deliver(consumer)) <= 1
    world.wait(20)
    assert sum(len(record.ranges) for record in world.expire(subscription)) == 1


def renew(
    world: World, consumer: Consumer, lease_id: int, start: int, end: int | None, seconds: float
) -> bool:
    found = settle.extend(consumer, lease_id, start, end, world.now + int(seconds * 1000))
    consumer.deadline = settle.next_deadline(consumer)
    return found


def expired(world: World, subscription: Subscription) -> list[tuple[int, int]]:
    return [pair for record in world.expire(subscription) for pair in record.ranges]


def test_a_renewed_lease_lives_on(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic, 2)
    lease = world.deliver_one(consumer)
    world.wait(20)
    assert renew(world, consumer, lease.id, 0, None, 30)
    world.wait(29.999)
    assert expired(world, subscription) == []
    world.wait(0.001)
    assert expired(world, subscription) == [(0, 2)]


def test_what_lies_below_a_partial_renewal_keeps_the_time_it_had(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic, 6)
    lease = world.deliver_one(consumer)
    world.wait(20)
    renew(world, consumer, lease.id, 2, None, 30)
    world.wait(10)
    assert expired(world, subscription) == [(0, 2)]
    renew(world, consumer, lease.id, 4, None, 30)
    world.wait(20)
    assert expired(world, subscription) == [(2, 4)]
    world.wait(10)
    assert expired(world, subscription) == [(4, 6)]


def test_messages_renewed_one_by_one_outlive_the_others(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic, 4)
    lease = world.deliver_one(consumer)
    world.wait(20)
    renew(world, consumer, lease.id, 1, 2, 30)
    world.wait(10)
    assert expired(world, subscription) == [(0, 1), (2, 4)]
    assert lease.unfinished() == [(1, 2)]
    world.wait(20)
    assert expired(world, subscription) == [(1, 2)]


def test_a_short_renewal_of_one_message_does_not_shorten_its_lease(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic, 2)
    lease = world.deliver_one(consumer)
    renew(world, consumer, lease.id, 0, 1, 5)
    world.wait(29.999)
    assert expired(world, subscription) == []
    world.wait(0.001)
    assert expired(world, subscription) == [(0, 2)]


def test_a_short_renewal_of_one_message_does_not_keep_the_timer_busy(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic, 2)
    lease = world.deliver_one(consumer)
    renew(world, consumer, lease.id, 0, 1, 5)
    world.wait(10)
    world.expire(subscription)
    assert consumer.deadline == lease.deadline


def test_a_shorter_renewal_does_not_shorten_a_lease(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic)
    lease = world.deliver_one(consumer)
    assert renew(world, consumer, lease.id, 0, None, 1)
    world.wait(29.999)
    assert expired(world, subscription) == []


def test_a_lease_that_is_over_cannot_be_renewed(
    world: World, topic: Topic, consumer: Consumer
) -> None:
    world.publish(topic)
    lease = world.deliver_one(consumer)
    world.ack(lease)
    assert not renew(world, consumer, lease.id, 0, None, 30)


def test_a_strict_delivery_that_is_not_out_yet_does_not_expire(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer
) -> None:
    world.publish(topic)
    lease = world.deliver_one(consumer)
    lease.is_out = False
    world.wait(31)
    assert world.expire(subscription) == []
    lease.is_out = True
    assert len(world.expire(subscription)) == 1


def test_a_late_nack_does_not_count_the_same_attempt_twice(
    world: World, topic: Topic, subscription: Subscription, consumer: Consumer, cursor: Cursor
) -> None:
    world.publish(topic)
    lease = world.deliver_one(consumer)
    expire(world, subscription)
    world.give_back(lease)
    assert cursor.trial(0).counted == 1
    assert cursor.trial(0).attempt == 1


# -- small things ------------------------------------------------------------------------------

pairs = st.tuples(st.integers(0, 30), st.integers(1, 6)).map(lambda p: (p[0], p[0] + p[1]))


@given(st.lists(pairs, min_size=1, max_size=10))
def test_merged_ranges_are_rising_disjoint_and_complete(ranges: list[tuple[int, int]]) -> None:
    expected = sorted({o for low, high in ranges for o in range(low, high)})
    merged = settle.merge(list(ranges))
    assert [o for low, high in merged for o in range(low, high)] == expected
    assert all(high < low for (_, high), (low, _) in pairwise(merged))


def test_only_durable_subscriptions_of_ordinary_topics_have_dead_letters(
    world: World, subscription: Subscription
) -> None:
    assert settle.has_dead_letters(subscription)
    subscription.is_durable = False
    assert not settle.has_dead_letters(subscription)
    subscription.is_durable = True
    subscription.topic.name = "orders.dead.billing"
    assert not settle.has_dead_letters(subscription)
