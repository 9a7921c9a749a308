"""What may be offered, what is out, and taking messages back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.leases import close_bits, make_ready, void_leases, withdraw
from penstock.delivery.state import Cursor, Lease
from tests.delivery.world import World


@pytest.fixture
def world() -> World:
    return World()


def leased(world: World, count: int) -> Lease:
    topic = world.topic()
    consumer = world.join(world.subscribe(topic))
    world.publish(topic, count)
    return world.deliver_one(consumer)


def cursor_of(world: World) -> Cursor:
    return world.subscribe(world.topic()).cursors[0]


def test_older_messages_are_offered_first(world: World) -> None:
    cursor = cursor_of(world)
    for start in (5, 2, 9, 0):
        make_ready(cursor, start, start + 1)
    assert cursor.ready == [(0, 1), (2, 3), (5, 6), (9, 10)]


spots = st.lists(st.integers(0, 30), unique=True, max_size=20)


@given(spots, st.integers(0, 30), st.integers(1, 30))
def test_withdrawing_takes_out_exactly_what_was_asked(
    offsets: list[int], start: int, size: int
) -> None:
    end = start + size
    cursor = cursor_of(World())
    third = len(offsets) // 3
    for offset in offsets[:third]:
        make_ready(cursor, offset, offset + 1)
    cursor.isolated = [(o, o + 1) for o in offsets[third : 2 * third]] or None
    cursor.delayed = [(100 + o, o, o + 1, 0, 0) for o in offsets[2 * third :]] or None
    found = withdraw(cursor, start, end)
    left = [o for o, _ in cursor.ready or ()]
    left += [o for o, _ in cursor.isolated or ()]
    left += [o for _, o, *_ in cursor.delayed or ()]
    assert sorted(left) == sorted(o for o in offsets if not start <= o < end)
    assert found == len(offsets) - len(left)


def test_withdrawing_from_the_middle_keeps_both_ends(world: World) -> None:
    cursor = cursor_of(world)
    make_ready(cursor, 0, 10)
    cursor.delayed = [(7, 20, 30, 8, 9)]
    assert withdraw(cursor, 4, 6) == 2
    assert withdraw(cursor, 22, 23) == 1
    assert cursor.ready == [(0, 4), (6, 10)]
    assert cursor.delayed == [(7, 20, 22, 8, 9), (7, 23, 30, 8, 9)]


def test_closing_a_whole_lease_frees_its_consumer(world: World) -> None:
    lease = leased(world, 4)
    assert close_bits(lease, 0, 4) == [(0, 4)]
    assert lease.consumer.leases == {}
    assert (lease.consumer.outstanding, lease.consumer.outstanding_bytes) == (0, 0)
    assert lease.cursor.leased == 0


def test_closing_a_part_keeps_the_rest_leased(world: World) -> None:
    lease = leased(world, 4)
    assert close_bits(lease, 1, 3) == [(1, 3)]
    assert lease.unfinished() == [(0, 1), (3, 4)]
    assert (lease.consumer.outstanding, lease.cursor.leased, lease.count) == (2, 2, 2)


def test_a_message_is_closed_once(world: World) -> None:
    lease = leased(world, 4)
    close_bits(lease, 1, 2)
    assert close_bits(lease, 0, 4) == [(0, 1), (2, 4)]
    assert close_bits(lease, 0, 4) == []
    assert lease.cursor.leased == 0


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8))
def test_closing_in_any_order_accounts_for_every_message(pairs: list[tuple[int, int]]) -> None:
    lease = leased(World(), 12)
    open_offsets = set(range(12))
    for start, end in pairs:
        if start < end:
            closed = close_bits(lease, start, end)
            hit = {o for low, high in closed for o in range(low, high)}
            assert hit == open_offsets & set(range(start, end))
            open_offsets -= hit
            assert lease.count == lease.consumer.outstanding == len(open_offsets)
            assert lease.cursor.leased == len(open_offsets)
    assert (lease.id in lease.consumer.leases) == bool(open_offsets)


def test_a_consumer_that_holds_nothing_is_no_longer_isolated(world: World) -> None:
    lease = leased(world, 2)
    lease.consumer.is_isolated = lease.consumer.is_saving = True
    found = []
    for offset in (0, 1):
        close_bits(lease, offset, offset + 1)
        found.append((lease.consumer.is_isolated, lease.consumer.is_saving))
    assert found == [(True, True), (False, False)]


def test_voiding_takes_messages_out_of_every_lease_of_the_cursor(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic)
    first, second = world.join(subscription, 3), world.join(subscription, 3)
    world.publish(topic, 6)
    leases = [offer.lease for offer in world.dispatch(subscription)]
    assert {lease.consumer for lease in leases} == {first, second}
    void_leases(subscription.cursors[0], 2, 4)
    assert first.outstanding + second.outstanding == subscription.cursors[0].leased == 4


def test_voiding_leaves_other_partitions_alone(world: World) -> None:
    topic = world.topic(partitions=2)
    subscription = world.subscribe(topic)
    consumer = world.join(subscription)
    world.publish(topic, 2, partition=0)
    world.publish(topic, 2, partition=1)
    world.dispatch(subscription)
    void_leases(subscription.cursors[0], 0, 2)
    assert (consumer.outstanding, subscription.cursors[1].leased) == (2, 2)
