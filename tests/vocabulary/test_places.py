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


@pytest.mark.parametrize("place", ["1700000000000-0", "m0", "8312345678901234"])
def test_a_broker_may_have_positions_of_its_own(place: str) -> None:
    check_place("to", place, has_own_positions=True)
    for check in (check_place, position_of):
        with pytest.raises(InvalidArgument, match="like '0:17'"):
            check("to", place)


@pytest.mark.parametrize("place", ["", "a\nb", "9" * 257, True, float("nan")])
def test_nonsense_is_a_position_nowhere(place: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"to .* is not"):
        check_place("to", place, has_own_positions=True)


def test_a_position_of_another_broker_is_none_of_ours() -> None:
    with pytest.raises(InvalidArgument, match="like '0:17'"):
        position_of("to", "1700000000000-0")
