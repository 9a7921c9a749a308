"""A place in a topic is text or a time; what is neither is refused by name."""

from typing import Any

import pytest

from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.places import check_place, position_of

NONSENSE: list[Any] = [True, float("nan"), float("inf"), -1, 1e300, 10**400, None, {}, b"0:0"]


@pytest.mark.parametrize(
    ("place", "position"),
    [("earliest", None), ("latest", None), (0, None), (1.5, None), ("0:17", (0, 17))],
)
def test_a_place_is_known_by_its_form(place: Any, position: Any) -> None:
    check_place("start", place)
    assert position_of("start", place) == position


@pytest.mark.parametrize("place", NONSENSE)
def test_what_is_no_place_is_refused(place: Any) -> None:
    for check in (check_place, position_of):
        with pytest.raises(InvalidArgument, match=r"start .* is not 'earliest', 'latest', a time"):
            check("start", place)


@pytest.mark.parametrize(
    "place", ["yesterday", "", "0", "0:", ":0", "²:0", "0:²", "-1:0", "0:1:2", "0:" + "9" * 5000]
)
def test_text_that_is_no_position_is_refused(place: str) -> None:
    for check in (check_place, position_of):
        with pytest.raises(InvalidArgument, match=r"to .* is not"):
            check("to", place)


def test_a_position_of_another_broker_is_none_of_ours() -> None:
    check_place("to", "1700000000000-0")
    with pytest.raises(InvalidArgument, match="like '0:17'"):
        position_of("to", "1700000000000-0")
