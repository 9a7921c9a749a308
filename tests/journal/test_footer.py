"""The footer of a sealed segment, read in place."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from penstock.journal.footer import (
    EMPTY_BYTES,
    ENTRY_BYTES,
    PARTITION_BYTES,
    Footer,
    decode_footer,
    encode_footer,
)

u64 = st.integers(0, 2**64 - 1)
rows = st.lists(st.tuples(u64, u64, u64), min_size=1, max_size=5)
tables = st.dictionaries(u64, rows, max_size=8)


def flat(entries: list[tuple[int, int, int]]) -> "array[int]":
    return array("Q", [number for row in entries for number in row])


@given(tables)
def test_every_partition_finds_its_entries(table: dict[int, list[tuple[int, int, int]]]) -> None:
    footer = Footer(encode_footer({key: flat(entries) for key, entries in table.items()}))
    for key, entries in table.items():
        found = footer.get(key)
        assert found is not None
        assert list(found) == list(flat(entries))
    assert list(footer) == sorted(table)


@given(tables, u64)
def test_a_partition_that_is_not_there_is_not_found(
    table: dict[int, list[tuple[int, int, int]]], key: int
) -> None:
    footer = Footer(encode_footer({k: flat(entries) for k, entries in table.items()}))
    assert (footer.get(key) is None) == (key not in table)


@given(tables)
def test_everything_comes_back(table: dict[int, list[tuple[int, int, int]]]) -> None:
    payload = encode_footer({key: flat(entries) for key, entries in table.items()})
    again = {key: list(found) for key, found in decode_footer(payload).items()}
    assert again == {key: list(flat(entries)) for key, entries in table.items()}


@given(tables)
def test_the_size_is_known_before_it_is_written(
    table: dict[int, list[tuple[int, int, int]]],
) -> None:
    payload = encode_footer({key: flat(entries) for key, entries in table.items()})
    count = sum(len(entries) for entries in table.values())
    assert len(payload) == EMPTY_BYTES + PARTITION_BYTES * len(table) + ENTRY_BYTES * count


def test_an_empty_segment_has_an_empty_footer() -> None:
    assert encode_footer({}) == bytes(EMPTY_BYTES)
    assert list(Footer(bytes(EMPTY_BYTES))) == []
