"""A comparison finds every kind of difference, and names the first one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch.encode import Columns
from penstock.client.bridging.portion import Portion, picked_columns
from penstock.client.bridging.verify import (
    NAMES,
    Difference,
    Expected,
    Verified,
    fields_that_differ,
    rows_of,
)

COUNT = 6


def columns(**changed: Any) -> Columns:
    fields: dict[str, Any] = {
        "bodies": [b"%d" % at for at in range(COUNT)],
        "ids": [f"i{at}" for at in range(COUNT)],
        "keys": ["a", "b", "a", "b", None, None],
    }
    return Columns(**{**fields, **changed})


def compared(*seen: Columns) -> Verified:
    expected = Expected()
    expected.add(Portion(0, columns(), list(range(10, 10 + COUNT))))
    for each in seen:
        expected.see(each)
    return expected.outcome()[0]


def order(*indexes: int) -> Columns:
    return picked_columns(columns(), indexes)


def test_the_same_is_equal() -> None:
    found = compared(columns())
    assert found.is_equal
    assert (found.compared, found.others, found.difference) == (COUNT, 0, None)
    assert found.source_digest == found.target_digest
    assert found.compares == NAMES


@pytest.mark.parametrize("places", [(1, 3, 0, 2, 4, 5), (4, 0, 2, 5, 1, 3), (0, 1, 4, 2, 5, 3)])
def test_only_the_order_of_a_key_counts(places: tuple[int, ...]) -> None:
    assert compared(order(*places)).is_equal
    assert compared(order(*places[:3]), order(*places[3:])).is_equal


def test_a_missing_one_is_named() -> None:
    found = compared(order(0, 1, 3, 4))
    assert (found.is_equal, found.missing) == (False, 2)
    assert found.difference == Difference("missing", "0:12", "i2")
    assert found.source_digest != found.target_digest


def test_one_too_many_is_named() -> None:
    found = compared(order(0, 1, 2, 3, 4, 5, 3))
    assert (found.repeated, found.difference) == (1, Difference("repeated", "0:13", "i3"))


@pytest.mark.parametrize(("places", "id"), [((2, 1, 0, 3, 4, 5), "i0"), ((0, 1, 2, 3, 5, 4), "i4")])
def test_one_out_of_order_is_named(places: tuple[int, ...], id: str) -> None:
    found = compared(order(*places))
    assert found.misplaced == 1
    assert found.difference is not None
    assert (found.difference.kind, found.difference.id) == ("order", id)


def test_a_changed_one_is_named_and_given_back() -> None:
    expected = Expected()
    expected.add(Portion(0, columns(), list(range(COUNT))))
    expected.see(columns(bodies=[b"0", b"1", b"2", b"3", b"other", b"5"]))
    found, theirs = expected.outcome()
    assert (found.changed, found.missing) == (1, 0)
    assert found.difference == Difference("changed", "0:4", "i4")
    assert theirs is not None
    assert fields_that_differ(rows_of(columns())[4][2], theirs) == ["body"]


def test_messages_of_others_are_left_alone() -> None:
    theirs = Columns(bodies=[b"x", b"y"], ids=["other", "i0"])
    found = compared(theirs, columns())
    assert found.is_equal
    assert found.others == 2


def test_what_the_source_holds_twice_must_be_there_twice() -> None:
    twice = Columns(bodies=[b"x", b"x"], ids=["i", "i"])
    for seen, missing in ((twice, 0), (picked_columns(twice, [0]), 1)):
        expected = Expected()
        expected.add(Portion(0, twice, [1, 2]))
        expected.see(seen)
        assert expected.outcome()[0].missing == missing


def test_an_empty_body_is_not_an_absent_one_nor_a_text_key_a_key_of_bytes() -> None:
    found = [
        rows_of(Columns(bodies=[body], ids=["i"], keys=[key]))[0][1]
        for body, key in ((None, None), (b"", None), (b"", ""), (b"", b""))
    ]
    assert len(set(found)) == 4
    empty = Columns(bodies=[b""], ids=["i"], headers=[{}])
    assert rows_of(empty)[0][1] == rows_of(Columns(bodies=[b""], ids=["i"]))[0][1]


@given(st.data())
def test_whatever_is_done_to_the_target_is_found(data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, COUNT - 1), max_size=8))
    found = compared(order(*places))
    keys = columns().keys
    is_right = sorted(places) == list(range(COUNT)) and all(
        one < other
        for at, one in enumerate(places)
        for other in places[at + 1 :]
        if keys is not None and keys[one] == keys[other]
    )
    assert found.is_equal == is_right
