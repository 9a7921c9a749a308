"""RangeSet against a plain set, RangeMap against a plain dict."""

from collections.abc import Iterable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from penstock.delivery import ranges
from penstock.delivery.ranges import RangeMap, RangeSet

HIGHEST = 40
offsets = st.integers(0, HIGHEST)


@pytest.fixture(autouse=True, params=[2, 3, 12])
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 4, 8 and 4,096 offsets, so that few offsets reach over many blocks."""
    shift = request.param
    monkeypatch.setattr(ranges, "SHIFT", shift)
    monkeypatch.setattr(ranges, "BLOCK", 1 << shift)
    monkeypatch.setattr(ranges, "FULL", (1 << (1 << shift)) - 1)
    monkeypatch.setattr(ranges, "_LOW", (1 << shift) - 1)


values = st.sampled_from([(1,), (2,), (3, 4)])


def spread(runs: Iterable[tuple[int, int]]) -> list[int]:
    return [offset for low, high in runs for offset in range(low, high)]


class SetMachine(RuleBasedStateMachine):
    @initialize(floor=st.integers(0, 5))
    def begin(self, floor: int) -> None:
        self.ours = RangeSet(floor)
        self.model = set(range(floor))

    @rule(start=offsets, end=offsets)
    def add(self, start: int, end: int) -> None:
        fresh = self.ours.add(start, end)
        assert spread(fresh) == sorted(set(range(start, end)) - self.model)
        self.model |= set(range(start, end))

    @rule(start=offsets, size=st.integers(1, 12))
    def remove(self, start: int, size: int) -> None:
        self.ours.remove(start, start + size)
        self.model -= set(range(max(start, self.ours.floor), start + size))

    @rule(base=offsets, mask=st.integers(0, 1 << 20))
    def add_mask(self, base: int, mask: int) -> None:
        asked = {base + bit for bit in range(21) if mask >> bit & 1}
        inside = self.ours.within_mask(base, mask)
        assert {base + bit for bit in range(21) if inside >> bit & 1} == asked & self.model
        fresh = self.ours.add_mask(base, mask)
        assert {base + bit for bit in range(21) if fresh >> bit & 1} == asked - self.model
        self.model |= asked

    @rule(start=offsets, size=st.integers(1, 12))
    def reopen(self, start: int, size: int) -> None:
        self.ours.reopen(start, start + size)
        self.model -= set(range(start, start + size))

    @rule()
    def store_and_restore(self) -> None:
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.ours.state()))
        self.ours = RangeSet.restored(state)

    @rule(start=offsets, end=offsets)
    def look(self, start: int, end: int) -> None:
        asked = set(range(start, end))
        assert spread(self.ours.gaps(start, end)) == sorted(asked - self.model)
        assert spread(self.ours.inside(start, end)) == sorted(asked & self.model)
        assert self.ours.missing(start, end) == len(asked - self.model)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        for offset in range(HIGHEST + 30):
            assert (offset in self.ours) == (offset in self.model)

    @invariant()
    def ranges_are_rising_disjoint_and_apart(self) -> None:
        last = self.ours.floor
        for low, high in self.ours.ranges():
            assert last < low < high
            last = high


class MapMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ours = RangeMap()
        self.model: dict[int, tuple[int, ...]] = {}

    @rule(start=offsets, size=st.integers(1, 12), value=values)
    def set_value(self, start: int, size: int, value: tuple[int, ...]) -> None:
        self.ours.set(start, start + size, value)
        self.model.update(dict.fromkeys(range(start, start + size), value))

    @rule(start=offsets, size=st.integers(1, 12))
    def clear(self, start: int, size: int) -> None:
        self.ours.clear(start, start + size)
        for offset in range(start, start + size):
            self.model.pop(offset, None)

    @rule(base=offsets, mask=st.integers(0, 1 << 20), value=values)
    def set_mask(self, base: int, mask: int, value: tuple[int, ...]) -> None:
        asked = [base + bit for bit in range(21) if mask >> bit & 1]
        for part, found in self.ours.split_mask(base, mask):
            assert part
            for offset in [base + bit for bit in range(21) if part >> bit & 1]:
                assert self.model.get(offset) == found
        self.ours.set_mask(base, mask, value)
        self.model.update(dict.fromkeys(asked, value))

    @rule(base=offsets, mask=st.integers(0, 1 << 20))
    def clear_mask(self, base: int, mask: int) -> None:
        self.ours.clear_mask(base, mask)
        for bit in range(21):
            if mask >> bit & 1:
                self.model.pop(base + bit, None)

    @rule()
    def store_and_restore(self) -> None:
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.ours.items()))
        self.ours = RangeMap.restored(state)

    @rule(start=offsets, end=offsets)
    def look(self, start: int, end: int) -> None:
        found = {
            offset: value
            for low, high, value in self.ours.runs(start, end)
            for offset in range(low, high)
        }
        assert found == {offset: self.model.get(offset) for offset in range(start, end)}

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        for offset in range(HIGHEST + 30):
            assert self.ours.get(offset) == self.model.get(offset)

    @invariant()
    def neighbours_with_one_value_are_one_run(self) -> None:
        rows = self.ours.items()
        assert len(rows) == len(self.ours)
        for (_, end, value), (start, _, other) in pairwise(rows):
            assert end <= start
            assert end < start or value != other


STEPS = settings(stateful_step_count=15, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("machine", [SetMachine, MapMachine])
def test_against_a_plain_set_and_a_plain_dict(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(machine, settings=STEPS)


def test_filling_the_gap_above_the_floor_raises_the_floor() -> None:
    ours = RangeSet()
    ours.add(3, 5)
    assert ours.floor == 0
    ours.add(0, 3)
    assert (ours.floor, ours.ranges()) == (5, [])


def test_a_set_without_holes_costs_one_number_in_a_snapshot() -> None:
    ours = RangeSet()
    ours.add(0, 1_000_000)
    assert ours.state() == [1_000_000]


def test_what_lies_below_the_floor_cannot_be_taken_out() -> None:
    ours = RangeSet(10)
    ours.add(20, 30)
    ours.remove(0, 25)
    assert 5 in ours
    assert ours.ranges() == [(25, 30)]


@given(st.lists(st.tuples(offsets, offsets), max_size=12))
def test_the_order_of_adding_does_not_matter(pairs: list[tuple[int, int]]) -> None:
    forward, backward = RangeSet(), RangeSet()
    for start, end in pairs:
        forward.add(start, end)
    for start, end in reversed(pairs):
        backward.add(start, end)
    assert forward.state() == backward.state()


def test_an_empty_question_has_an_empty_answer() -> None:
    ours = RangeSet(3)
    assert list(ours.gaps(5, 5)) == []
    assert list(ours.inside(5, 5)) == []
    assert ours.missing(5, 4) == 0
    assert list(RangeMap().runs(5, 5)) == []


@given(st.sets(offsets), st.integers(0, 10))
def test_runs_of_ones_in_a_mask(bits: set[int], base: int) -> None:
    mask = sum(1 << bit for bit in bits)
    runs = list(ranges.mask_runs(mask, base))
    assert [o - base for run in runs for o in range(*run)] == sorted(bits)
    assert all(high < low for (_, high), (low, _) in pairwise(runs)), "runs that touch are one"


def test_the_first_run_is_found_without_the_others() -> None:
    every_second = (1 << 4_000) // 3
    assert next(ranges.mask_runs(every_second, 7)) == (7, 8)
