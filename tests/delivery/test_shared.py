"""Kind `shared`: who gets which message, in which slices, and what is written before."""

import pytest

from penstock.delivery.shared import after_recovery, due, waiting_count
from penstock.delivery.state import Consumer, Subscription, Topic
from penstock.vocabulary.limits import SLICE_COUNT_MAX
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause, Delivered, Published, Started
from tests.delivery.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


@pytest.fixture
def subscription(world: World, topic: Topic) -> Subscription:
    return world.subscribe(topic)


def held(world: World, subscription: Subscription, *consumers: Consumer) -> list[int]:
    world.dispatch(subscription)
    return [consumer.outstanding for consumer in consumers]


# -- who gets what -----------------------------------------------------------------------------


def test_each_message_goes_to_one_consumer(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    for _ in range(3):
        world.join(subscription, 7)
    world.publish(topic, 20)
    leases = [offer.lease for offer in world.dispatch(subscription)]
    offsets = [o for lease in leases for o in range(lease.start, lease.end)]
    assert sorted(offsets) == list(range(20))


def test_one_consumer_with_enough_credit_gets_everything_in_one_slice(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic, 30)
    lease = world.deliver_one(consumer)
    assert (lease.start, lease.end, lease.attempt) == (0, 30, 1)


def test_whole_slices_while_more_waits_than_there_is_credit(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    first, second = world.join(subscription, 10), world.join(subscription, 10)
    world.publish(topic, 50)
    offers = world.dispatch(subscription)
    assert [offer.lease.end - offer.lease.start for offer in offers] == [10, 10]
    assert first.outstanding == second.outstanding == 10


def test_slices_are_split_when_fewer_wait_than_there_is_credit(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumers = [world.join(subscription, 100) for _ in range(4)]
    world.publish(topic, 40)
    shares = held(world, subscription, *consumers)
    assert sum(shares) == 40
    assert min(shares) > 0
    assert max(shares) <= 20


@pytest.mark.parametrize("count", [2, 3, 5, 8, 13])
def test_no_worker_idles_beside_a_hoarder(
    world: World, topic: Topic, subscription: Subscription, count: int
) -> None:
    consumers = [world.join(subscription, 1000) for _ in range(count)]
    world.publish(topic, count)
    assert min(held(world, subscription, *consumers)) == 1


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_messages_that_come_one_by_one_are_shared_out_too(
    world: World, topic: Topic, subscription: Subscription, count: int
) -> None:
    consumers = [world.join(subscription, 1000) for _ in range(count)]
    for _ in range(3 * count):
        world.publish(topic)
        world.dispatch(subscription)
    assert [consumer.outstanding for consumer in consumers] == [3] * count


@pytest.mark.parametrize("count", [2, 3, 4])
def test_idle_consumers_take_turns(
    world: World, topic: Topic, subscription: Subscription, count: int
) -> None:
    consumers = [world.join(subscription, 1000) for _ in range(count)]
    served = []
    for _ in range(count):
        world.publish(topic)
        (offer,) = world.dispatch(subscription)
        served.append(offer.lease.consumer.id)
        world.ack(offer.lease)
    assert sorted(served) == [consumer.id for consumer in consumers]


@pytest.mark.parametrize("position", [0, 1])
def test_a_message_goes_to_whoever_holds_least(
    world: World, topic: Topic, subscription: Subscription, position: int
) -> None:
    consumers = [world.join(subscription, 1000) for _ in range(2)]
    idle, hoarder = consumers[position], consumers[1 - position]
    idle.is_attached = False
    world.publish(topic, 7)
    world.dispatch(subscription)
    idle.is_attached = True
    for _ in range(5):
        world.publish(topic)
        world.dispatch(subscription)
    assert (hoarder.outstanding, idle.outstanding) == (7, 5)


def test_a_full_consumer_does_not_slow_another(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    slow, quick = world.join(subscription, 1), world.join(subscription, 1000)
    world.publish(topic, 100)
    world.dispatch(subscription)
    assert (slow.outstanding, quick.outstanding) == (1, 99)
    world.publish(topic, 50)
    assert held(world, subscription, slow, quick) == [1, 149]


def test_no_slice_is_larger_than_the_limit(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription, 10 * SLICE_COUNT_MAX)
    world.publish(topic, 2 * SLICE_COUNT_MAX + 1)
    sizes = [lease.end - lease.start for lease in world.deliver(consumer)]
    assert sizes == [SLICE_COUNT_MAX, SLICE_COUNT_MAX, 1]


@pytest.mark.parametrize("count", [2, 3])
def test_partitions_take_turns_too(world: World, count: int) -> None:
    topic = world.topic("wide", partitions=count)
    subscription = world.subscribe(topic)
    for partition in range(count):
        world.publish(topic, 10, partition)
    world.join(subscription, count)
    for number in range(count):
        for consumer in subscription.consumers or ():
            consumer.credit = number + 1
        world.dispatch(subscription)
    assert [cursor.leased for cursor in subscription.cursors] == [1] * count


def test_every_partition_is_served(world: World) -> None:
    topic = world.topic("wide", partitions=3)
    subscription = world.subscribe(topic)
    consumer = world.join(subscription)
    for partition in range(3):
        world.publish(topic, 5, partition)
    world.dispatch(subscription)
    assert [cursor.leased for cursor in subscription.cursors] == [5, 5, 5]
    assert consumer.outstanding == 15


def test_two_subscriptions_each_get_everything(world: World, topic: Topic) -> None:
    billing, audit = world.subscribe(topic, "billing"), world.subscribe(topic, "audit")
    consumers = [world.join(billing), world.join(audit)]
    world.publish(topic, 4)
    assert [world.deliver_one(c).end for c in consumers] == [4, 4]


# -- credit ------------------------------------------------------------------------------------


def test_nobody_gets_more_messages_than_its_credit(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription, 7)
    world.publish(topic, 20)
    assert held(world, subscription, consumer) == [7]
    assert world.dispatch(subscription) == []


def test_an_ack_makes_room_for_as_many(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription, 7)
    world.publish(topic, 20)
    lease = world.deliver_one(consumer)
    world.ack(lease, (0, 3))
    second = world.deliver_one(consumer)
    assert (second.start, second.end) == (7, 10)


def test_byte_credit_ends_the_hand_over_too(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    for _ in range(20):
        world.publish(topic, 10, body=bytes(1000))
    consumer = world.join(subscription, credit_bytes=10_000)
    world.dispatch(subscription)
    assert 5 <= consumer.outstanding <= 12
    assert world.dispatch(subscription) == []


def test_byte_credit_is_judged_by_the_partition_the_messages_come_from(world: World) -> None:
    topic = world.topic("wide", partitions=2)
    subscription = world.subscribe(topic)
    for _ in range(40):
        world.publish(topic, 10, 0, body=b"")
        world.publish(topic, 10, 1, body=bytes(10_000))
    consumer = world.join(subscription, credit_bytes=100_000)
    world.dispatch(subscription)
    assert subscription.cursors[1].leased * 10_000 < 3 * 100_000
    assert consumer.free == 0


def test_one_message_is_handed_over_however_large(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription, credit_bytes=100)
    for _ in range(30):
        world.publish(topic, body=bytes(5000))
    assert held(world, subscription, consumer) == [1]


def test_a_consumer_gets_nothing_before_its_attachment_is_durable(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    consumer.is_attached = False
    world.publish(topic)
    assert world.dispatch(subscription) == []


# -- attempts and what is written --------------------------------------------------------------


def test_a_first_delivery_is_handed_over_without_waiting_for_its_record(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription, name="w1")
    world.publish(topic, 3)
    (offer,) = world.dispatch(subscription)
    assert not offer.is_strict
    assert offer.record == Delivered(topic.id, 0, subscription.id, 0, 3, False, consumer.id)


def test_an_attempt_is_counted_when_it_is_delivered(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic, 2)
    world.deliver_one(consumer)
    assert [subscription.cursors[0].trial(o).attempt for o in (0, 1)] == [1, 1]


def test_messages_with_different_histories_come_in_different_slices(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic, 4)
    lease = world.deliver_one(consumer)
    world.give_back(lease, (1, 2), delay_s=0)
    world.give_back(lease, (0, 1), (2, 4), cause=Cause.UNSTARTED)
    slices = [(x.start, x.end, x.attempt) for x in world.deliver(consumer)]
    assert slices == [(0, 1, 1), (1, 2, 2), (2, 4, 1)]


def test_what_comes_back_is_offered_before_what_is_new(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription, 2)
    world.publish(topic, 6)
    lease = world.deliver_one(consumer)
    world.give_back(lease, (0, 2), cause=Cause.UNSTARTED)
    assert [(x.start, x.end) for x in world.deliver(consumer)] == [(0, 2)]


def test_after_an_abrupt_loss_a_delivery_is_written_before_it_is_handed_over(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    lost = world.join(subscription)
    world.publish(topic, 2)
    world.deliver_one(lost)
    world.lose(lost)
    world.publish(topic, 1)
    world.join(subscription)
    strict = {(o.lease.start, o.lease.end): o.is_strict for o in world.dispatch(subscription)}
    assert strict == {(0, 2): True, (2, 3): False}


def test_after_recovery_every_unfinished_message_is_delivered_strictly(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 3)
    after_recovery(subscription.cursors[0])
    world.publish(topic, 2)
    world.join(subscription)
    strict = {(o.lease.start, o.lease.end): o.is_strict for o in world.dispatch(subscription)}
    assert strict == {(0, 3): True, (3, 5): False}


def test_after_recovery_everything_unfinished_waits_except_what_backs_off_or_is_doomed(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic, 6)
    lease = world.deliver_one(consumer)
    world.ack(lease, (0, 1))
    world.give_back(lease, (2, 3), delay_s=10)
    world.give_back(lease, (4, 5), cause=Cause.REJECTED)
    cursor = subscription.cursors[0]
    after_recovery(cursor)
    assert cursor.ready == [(1, 2), (3, 4), (5, 6)]
    assert cursor.next == 6


def test_after_recovery_a_doomed_message_at_the_very_start_is_not_offered(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic, 2)
    world.give_back(world.deliver_one(consumer), (0, 1), cause=Cause.REJECTED)
    after_recovery(subscription.cursors[0])
    assert subscription.cursors[0].ready == [(1, 2)]


# -- isolation ---------------------------------------------------------------------------------


def lose_twice(world: World, subscription: Subscription, credit: int = 1000) -> None:
    for _ in range(2):
        consumer = world.join(subscription, credit)
        world.deliver(consumer)
        world.lose(consumer)


def test_after_one_loss_messages_come_back_together(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 50)
    consumer = world.join(subscription)
    world.deliver(consumer)
    world.lose(consumer)
    second = world.join(subscription)
    lease = world.deliver_one(second)
    assert (lease.end - lease.start, second.is_isolated) == (50, False)


def test_after_two_losses_a_slice_is_a_tenth_of_the_lost_one_and_alone(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 50)
    lose_twice(world, subscription)
    world.publish(topic, 10)
    consumer = world.join(subscription)
    lease = world.deliver_one(consumer)
    assert (lease.start, lease.end) == (0, 5)
    assert consumer.is_isolated


def test_an_isolated_consumer_holds_nothing_else_until_it_is_done(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 50)
    lose_twice(world, subscription)
    consumer = world.join(subscription)
    lease = world.deliver_one(consumer)
    world.publish(topic, 5)
    assert world.dispatch(subscription) == []
    world.ack(lease, (0, 4))
    assert world.dispatch(subscription) == []
    world.ack(lease, (4, 5))
    following = world.deliver_one(consumer)
    assert (following.start, following.end) == (5, 10)


def test_isolation_goes_down_to_one_message_which_is_then_lost_alone(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 50)
    lose_twice(world, subscription)
    sizes: list[int] = []
    while len(sizes) < 3:
        consumer = world.join(subscription)
        lease = world.deliver_one(consumer)
        if lease.start > 0:
            world.ack(lease)
            world.leave(consumer)
        else:
            sizes.append(lease.end - lease.start)
            world.lose(consumer)
            world.wait(60)
    assert sizes == [5, 1, 1]
    assert subscription.cursors[0].trial(0).counted == 2


def test_one_killer_is_found_without_condemning_its_neighbours(world: World, topic: Topic) -> None:
    policy = SubscriptionPolicy(retry=Retry(max_attempts=3, first_s=0.0, max_s=0.0))
    subscription = world.subscribe(topic, policy=policy)
    cursor = subscription.cursors[0]
    world.publish(topic, 200)
    killer = 137
    for _ in range(300):
        consumer = world.join(subscription)
        leases = world.deliver(consumer)
        if not leases:
            break
        if any(lease.start <= killer < lease.end for lease in leases):
            world.lose(consumer)
            continue
        for lease in leases:
            world.ack(lease)
        world.leave(consumer)
    assert cursor.acked == 199
    assert cursor.doomed is not None
    assert cursor.doomed.ranges() == [(killer, killer + 1)]


def test_a_busy_consumer_saves_itself_up_for_an_isolated_message(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    busy = world.join(subscription, 3)
    world.publish(topic, 3)
    lease = world.deliver_one(busy)
    world.publish(topic, 2)
    lose_twice(world, subscription)
    world.publish(topic, 5)
    world.ack(lease, (0, 1))
    assert world.dispatch(subscription) == []
    assert busy.is_saving
    world.ack(lease, (1, 3))
    isolated = world.deliver_one(busy)
    assert (isolated.start, isolated.end, isolated.is_alone) == (3, 4, True)


def test_only_one_consumer_is_kept_free_for_isolated_messages(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumers = [world.join(subscription, 3) for _ in range(3)]
    world.publish(topic, 9)
    leases = [offer.lease for offer in world.dispatch(subscription)]
    world.publish(topic, 2)
    lose_twice(world, subscription)
    world.publish(topic, 20)
    for lease in leases:
        world.ack(lease, (lease.start, lease.start + 1))
    world.dispatch(subscription)
    assert [consumer.is_saving for consumer in consumers].count(True) == 1
    assert sorted(consumer.outstanding for consumer in consumers) == [2, 3, 3]


def test_a_message_alone_with_a_consumer_of_credit_one_is_known_to_be_alone(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.join(subscription, 1)
    world.publish(topic, 2)
    (offer,) = world.dispatch(subscription)
    assert offer.record.is_alone


def test_a_message_that_may_get_company_is_not_alone(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.join(subscription, 2)
    world.publish(topic, 1)
    (offer,) = world.dispatch(subscription)
    assert not offer.record.is_alone


# -- time and place ----------------------------------------------------------------------------


def test_a_back_off_ends_when_its_time_has_come(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic)
    world.give_back(world.deliver_one(consumer), delay_s=2)
    cursor = subscription.cursors[0]
    assert not due(cursor, world.now + 1999, world.wall)
    assert world.dispatch(subscription) == []
    assert due(cursor, world.now + 2000, world.wall)
    assert cursor.delayed is None
    assert world.deliver_one(consumer).attempt == 2


def test_a_lease_ends_after_the_time_of_its_policy(world: World, topic: Topic) -> None:
    subscription = world.subscribe(topic, policy=SubscriptionPolicy(lease_s=5))
    consumer = world.join(subscription)
    world.publish(topic)
    assert world.deliver_one(consumer).deadline == world.now + 5000
    assert consumer.deadline == world.now + 5000


def test_finished_messages_above_the_place_are_passed_over(world: World, topic: Topic) -> None:
    target = world.subscribe(topic, "billing")
    other = world.subscribe(topic, "audit")
    world.publish(topic)
    world.apply(Published(topic.id, 0, 1, 1, bytes(16), 0, 0, world.wall, b"", None, target.id))
    world.publish(topic)
    consumer = world.join(other)
    assert [(x.start, x.end) for x in world.deliver(consumer)] == [(0, 1), (2, 3)]


def test_waiting_counts_what_is_new_and_what_came_back(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription, 4)
    world.publish(topic, 10)
    lease = world.deliver_one(consumer)
    world.give_back(lease, (0, 2), cause=Cause.UNSTARTED)
    assert waiting_count(subscription.cursors[0]) == 8


def test_a_restart_counts_a_loss_for_what_was_out(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription, 2)
    world.publish(topic, 3)
    world.deliver_one(consumer)
    world.apply(Started(1, False, world.wall))
    trials = [subscription.cursors[0].trial(offset) for offset in range(3)]
    assert [trial.losses for trial in trials] == [1, 1, 0]
    assert [trial.counted for trial in trials] == [0, 0, 0]
