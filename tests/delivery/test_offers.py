"""Offers: leases of runs and of scattered messages."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.offers import mask_of, offer_run, offer_set, places_in
from penstock.delivery.state import UNTRIED
from tests.delivery.world import World


@given(st.sets(st.integers(0, 5000), min_size=1))
def test_a_mask_and_its_places_are_the_same(places: set[int]) -> None:
    rising = np.array(sorted(places), dtype=np.int64)
    mask = mask_of(rising, max(places) + 1)
    assert mask == sum(1 << place for place in places)
    assert places_in(mask).tolist() == sorted(places)


def test_a_set_without_gaps_is_a_run() -> None:
    world = World()
    subscription = world.subscribe(world.topic())
    consumer = world.join(subscription)
    world.publish(subscription.topic, 10)
    (cursor,) = subscription.cursors
    offsets = np.arange(2, 5, dtype=np.int64)
    scattered = np.array([5, 7], dtype=np.int64)
    one = offer_set(world.state, consumer, cursor, offsets, UNTRIED, world.now)
    other = offer_run(world.state, consumer, cursor, 8, 10, UNTRIED, world.now)
    third = offer_set(world.state, consumer, cursor, scattered, UNTRIED, world.now)
    assert (one.lease.open, one.record.mask) == (None, b"")
    assert (other.lease.count, other.record.mask) == (2, b"")
    assert (third.lease.open, third.lease.count, third.record.mask) == (0b101, 2, b"\x05")
    assert consumer.outstanding == cursor.leased == 7
