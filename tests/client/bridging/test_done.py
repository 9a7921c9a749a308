"""What was copied is known as ranges, whatever the order it came in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.bridging.done import RANGES_MAX, Done

ranges = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 9)), max_size=40)


@given(ranges)
def test_exactly_what_was_added_is_done(added: list[tuple[int, int, int]]) -> None:
    done = Done()
    truth: set[tuple[int, int]] = set()
    for partition, start, count in added:
        done.add(partition, start, start + count)
        truth |= {(partition, number) for number in range(start, start + count)}
        done = Done.decoded(done.encoded()) if start % 2 else done.copy()
    for partition in range(3):
        for number in range(80):
            assert done.has(partition, number) == ((partition, number) in truth)
        ends = [number + 1 for each, number in truth if each == partition]
        assert done.end_of(partition) == max(ends, default=0)


def test_a_copy_is_its_own() -> None:
    done = Done()
    other = done.copy()
    other.add(0, 1, 2)
    assert not done.has(0, 1)


def test_the_lowest_ranges_are_forgotten_first() -> None:
    done = Done()
    for number in range(RANGES_MAX + 5):
        done.add(0, 2 * number, 2 * number + 1)
    assert not done.has(0, 0)
    assert done.has(0, 2 * (RANGES_MAX + 4))


@pytest.mark.parametrize("body", [None, b"", b"[]", b'{"0": 3}', b'{"x": [[1, 2]]}'])
def test_what_is_no_note_is_refused(body: bytes | None) -> None:
    with pytest.raises(ValueError, match=r"."):
        Done.decoded(body)
