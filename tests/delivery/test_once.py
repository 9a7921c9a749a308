"""QoS 0: finished before it is handed over; afterwards only credit is at stake."""

from penstock.delivery import settle
from penstock.delivery.counts import count, unexplained
from penstock.delivery.once import decide_hand_over, is_shade
from penstock.delivery.shared import dispatch
from penstock.delivery.state import Consumer, Lease, Subscription
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Cause, Missed, Outcome
from tests.delivery.world import World, the


def leased(credit: int = 1000, messages: int = 4) -> tuple[World, Subscription, Consumer, Lease]:
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic, policy=SubscriptionPolicy(qos=0))
    consumer = world.join(subscription, credit)
    world.publish(topic, messages)
    (offer,) = dispatch(world.state, subscription, world.now, world.wall)
    return world, subscription, consumer, offer.lease


def handed(credit: int = 1000) -> tuple[World, Subscription, Consumer, Lease]:
    world, subscription, consumer, lease = leased(credit)
    record, shade = the(decide_hand_over(world.state, lease, [0, 1, 2, 3]))
    world.carry_out(record)
    return world, subscription, consumer, shade


def test_a_hand_over_finishes_the_messages_and_keeps_their_credit_taken() -> None:
    world, subscription, consumer, lease = leased()
    record, shade = the(decide_hand_over(world.state, lease, [0, 1, 2, 3]))
    assert (record.outcome, record.ranges) == (Outcome.ACKED, ((0, 4),))
    assert count(subscription).leased == 4
    world.carry_out(record)
    found = count(subscription)
    assert (found.acked, found.leased, found.waiting) == (4, 0, 0)
    assert is_shade(shade)
    assert not is_shade(lease)
    assert consumer.outstanding == 4
    assert list(consumer.leases) == [shade.id]


def test_what_could_not_be_read_stays_leased() -> None:
    world, subscription, consumer, lease = leased()
    record, shade = the(decide_hand_over(world.state, lease, [0, 3]))
    world.carry_out(record)
    assert record.ranges == ((0, 1), (3, 4))
    assert lease.unfinished() == [(1, 3)]
    assert shade.unfinished() == [(0, 1), (3, 4)]
    assert consumer.outstanding == 4
    assert unexplained(count(subscription)) == 0
    assert decide_hand_over(world.state, lease, [0, 3]) is None


def test_acks_nacks_and_rejects_only_give_credit_back() -> None:
    world, subscription, consumer, shade = handed()
    claim = Claim(shade.id, 0, shade.attempt, ((0, 2),))
    assert settle.decide_ack(consumer, [claim]) == ([], [])
    assert consumer.outstanding == 2
    for cause, start in ((Cause.NACKED, 2), (Cause.REJECTED, 3)):
        claim = Claim(shade.id, 0, shade.attempt, ((start, start + 1),))
        assert settle.decide_return(consumer, claim, cause, 0.0, "", world.wall) == ([], [])
    assert consumer.outstanding == 0
    assert consumer.leases == {}
    assert count(subscription).acked == 4
    assert dispatch(world.state, subscription, world.now, world.wall) == []


def test_a_claim_on_nothing_does_nothing() -> None:
    _, _, consumer, shade = handed()
    assert settle.decide_ack(consumer, [Claim(999, 0, 1, ((0, 4),))]) == ([], [])
    assert settle.decide_ack(consumer, [Claim(shade.id, 0, 1, ((50, 60),))]) == ([], [])
    assert consumer.outstanding == 4


def test_a_shade_never_runs_out() -> None:
    world, subscription, consumer, shade = handed()
    settle.extend(consumer, shade.id, 0, None, world.now + 10)
    world.wait(10 * 24 * 3600)
    assert world.expire(subscription) == []
    assert consumer.outstanding == 4


def test_what_a_leaving_consumer_never_took_is_dropped() -> None:
    world, subscription, consumer, shade = handed()
    world.leave(consumer, {shade.id: ((0, 1),)})
    found = count(subscription)
    assert (found.acked, found.dropped) == (1, 3)
    assert unexplained(found) == 0


def test_what_a_lost_consumer_did_not_confirm_is_dropped() -> None:
    world, subscription, consumer, shade = handed()
    settle.decide_ack(consumer, [Claim(shade.id, 0, 1, ((0, 3),))])
    records = settle.decide_detach(consumer, {}, world.wall, is_clean=False)
    (record,) = records
    assert isinstance(record, Missed)
    assert (record.ranges, record.reason) == (((3, 4),), "consumer lost")
    world.apply(record)
    assert (count(subscription).acked, count(subscription).dropped) == (3, 1)


def test_a_slice_that_was_not_finished_yet_goes_to_somebody_else() -> None:
    world, subscription, consumer, _ = leased()
    world.leave(consumer)
    assert count(subscription).waiting == 4
    other = world.join(subscription)
    (offer,) = dispatch(world.state, subscription, world.now, world.wall)
    assert offer.lease.consumer is other
    assert (offer.lease.start, offer.lease.end) == (0, 4)


def test_only_what_is_finished_by_an_ack_can_be_missed() -> None:
    world = World()
    subscription = world.subscribe(world.topic(), policy=SubscriptionPolicy(qos=0))
    topic, cursor = subscription.topic, subscription.cursors[0]
    world.subscribe(topic, "audit")  # holds them
    world.publish(topic, 4)
    lease = world.deliver_one(world.join(subscription))
    record, _ = the(decide_hand_over(world.state, lease, [0, 1]))
    world.carry_out(record)
    missed = Missed(topic.id, 0, subscription.id, ((1, 4),), "consumer lost")
    world.apply(missed)
    assert (cursor.acked, cursor.dropped) == (1, 1)
    world.apply(missed)
    assert (cursor.acked, cursor.dropped) == (1, 1)
    assert unexplained(count(subscription)) == 0
