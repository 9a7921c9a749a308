"""An explicit durability is a minimum; `replicated` stands beside `synced`."""

import pytest

from penstock.client.levels import check_level, satisfies, weaker
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.message import Durability

MEMORY, WRITTEN, SYNCED, REPLICATED = Durability


@pytest.mark.parametrize(
    ("given", "enough_for"),
    [
        (MEMORY, {MEMORY}),
        (WRITTEN, {MEMORY, WRITTEN}),
        (SYNCED, {MEMORY, WRITTEN, SYNCED}),
        (REPLICATED, {MEMORY, WRITTEN, REPLICATED}),
    ],
)
def test_a_level_satisfies_itself_and_what_is_below(
    given: Durability, enough_for: set[Durability]
) -> None:
    assert {wanted for wanted in Durability if satisfies(given, wanted)} == enough_for


def test_the_weaker_level_counts() -> None:
    assert weaker(SYNCED, WRITTEN) is WRITTEN
    assert weaker(MEMORY, SYNCED) is MEMORY


def test_an_unknown_level_is_refused_with_the_known_ones() -> None:
    assert check_level("written") is WRITTEN
    with pytest.raises(InvalidArgument, match=r"'sync'.*'memory', 'written', 'synced'"):
        check_level("sync")
