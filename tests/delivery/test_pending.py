"""Ids of waiting messages are known until nothing holds the message any more."""

from penstock.delivery.pending import OLDER_MAX, SWEEP_MIN, Pending
from penstock.delivery.ranges import RangeSet


def test_older_messages_are_the_durable_ones_and_the_newest_in_flight() -> None:
    pending = Pending()
    assert list(pending.older(b"a")) == []
    pending.add(b"a", 3, RangeSet())
    pending.add(b"a", 5, RangeSet())
    pending.flying[b"a"] = 9
    assert list(pending.older(b"a")) == [3, 5, 9]


def test_a_message_in_flight_lands_once() -> None:
    pending = Pending()
    pending.flying[b"a"] = 9
    pending.add(b"a", 8, RangeSet())
    assert list(pending.older(b"a")) == [8, 9]
    pending.add(b"a", 9, RangeSet())
    assert list(pending.older(b"a")) == [8, 9]
    assert pending.flying == {}


def test_released_messages_are_let_go() -> None:
    pending = Pending()
    for offset in range(5):
        pending.add(b"a", offset, RangeSet(offset))
    assert list(pending.older(b"a")) == [4]
    pending.sweep(RangeSet(5))
    assert pending.places == {}


def test_the_index_does_not_outgrow_what_is_held() -> None:
    pending = Pending()
    for offset in range(20 * SWEEP_MIN):
        pending.add(b"%d" % offset, offset, RangeSet(offset - 10))
    assert len(pending.places) <= SWEEP_MIN


def test_one_id_has_a_limited_past() -> None:
    pending = Pending()
    for offset in range(OLDER_MAX + 5):
        pending.add(b"a", offset, RangeSet())
    assert list(pending.older(b"a")) == list(range(5, OLDER_MAX + 5))


def test_a_snapshot_holds_what_is_durable_and_held() -> None:
    pending = Pending()
    assert pending.state(RangeSet()) is None
    pending.add(b"a", 1, RangeSet())
    pending.add(b"b", 2, RangeSet())
    pending.flying[b"c"] = 3
    state = pending.state(RangeSet(2))
    assert state is not None
    assert Pending.restored(state).places == {b"b": [2]}
