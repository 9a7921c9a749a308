"""Consumers that return: the parts that decide."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.returning import outside

EDGES = st.lists(st.integers(0, 60), unique=True, max_size=20).map(sorted)


def runs(edges: list[int]) -> list[tuple[int, int]]:
    """Rising ranges that do not touch."""
    return list(zip(edges[::2], edges[1::2], strict=False))


def offsets(ranges: list[tuple[int, int]]) -> list[int]:
    return [offset for low, high in ranges for offset in range(low, high)]


@given(EDGES.map(runs), EDGES.map(runs))
def test_what_is_outside_some_ranges(
    rows: list[tuple[int, int]], holes: list[tuple[int, int]]
) -> None:
    expected = [offset for offset in offsets(rows) if offset not in offsets(holes)]
    assert offsets(outside(rows, holes)) == expected


def test_touching_ranges_may_be_cut_by_one_hole() -> None:
    assert outside([(0, 3), (3, 6)], [(1, 5)]) == [(0, 1), (5, 6)]
