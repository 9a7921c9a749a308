"""The shape of the broker's state: what exists, what counts as free, what is unfinished."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.state import UNTRIED, Consumer, Lease, State, Trial, bit_ranges
from tests.delivery.world import World


def consumer_of(credit: int = 10, credit_bytes: int = 1000) -> Consumer:
    world = World()
    return world.join(world.subscribe(world.topic()), credit, credit_bytes=credit_bytes)


@given(st.sets(st.integers(0, 70)), st.integers(0, 1000))
def test_runs_of_ones_are_exactly_the_set_bits(bits: set[int], base: int) -> None:
    ranges = bit_ranges(sum(1 << bit for bit in bits), base)
    assert [o for low, high in ranges for o in range(low, high)] == [base + b for b in sorted(bits)]
    assert all(high < low for (_, high), (low, _) in pairwise(ranges))


def test_a_fresh_lease_is_unfinished_as_a_whole() -> None:
    world = World()
    topic = world.topic()
    consumer = world.join(world.subscribe(topic))
    lease = Lease(1, consumer, consumer.subscription.cursors[0], 5, 8, 1, 0)
    assert lease.unfinished() == [(5, 8)]
    assert lease.mask() == 0b111


def test_a_lease_with_closed_bits_knows_what_is_left() -> None:
    consumer = consumer_of()
    lease = Lease(1, consumer, consumer.subscription.cursors[0], 5, 9, 1, 0)
    lease.open = 0b1010
    assert lease.unfinished() == [(6, 7), (8, 9)]


def test_a_consumer_has_the_credit_it_does_not_use() -> None:
    consumer = consumer_of(credit=10)
    consumer.outstanding = 4
    assert consumer.free == 6


def test_a_consumer_out_of_byte_credit_has_none() -> None:
    consumer = consumer_of(credit_bytes=1000)
    consumer.outstanding_bytes = 999
    assert consumer.free == 10
    consumer.outstanding_bytes = 1000
    assert consumer.free == 0


def test_a_consumer_is_not_served_before_its_attachment_is_durable() -> None:
    consumer = consumer_of()
    consumer.is_attached = False
    assert consumer.free == 0


def test_a_consumer_that_is_gone_isolated_or_saving_gets_nothing() -> None:
    for name in ("is_gone", "is_isolated", "is_saving"):
        consumer = consumer_of()
        setattr(consumer, name, True)
        assert consumer.free == 0, name


def test_a_message_nobody_tried_has_no_attempts() -> None:
    world = World()
    cursor = world.subscribe(world.topic()).cursors[0]
    assert cursor.trial(0) is UNTRIED
    assert Trial() == (0, 0, 0, 0, 0)


def test_a_pending_subscription_is_not_counted_among_those_that_exist() -> None:
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic)
    assert topic.durable_subscriptions() == topic.every_subscription() == [subscription]
    subscription.is_pending = True
    assert topic.durable_subscriptions() == topic.every_subscription() == []


def test_an_ephemeral_subscription_exists_and_holds_nothing() -> None:
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic)
    subscription.is_durable = False
    assert topic.durable_subscriptions() == []
    assert topic.every_subscription() == [subscription]


def test_numbers_from_a_snapshot_never_go_back() -> None:
    state = State()
    state.set_next_ids((5, 6, 7))
    state.set_next_ids((2, 9, 3))
    assert state.next_ids() == (5, 9, 7)
