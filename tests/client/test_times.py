"""Times of a message: absolute or from now, never both."""

import pytest

from penstock.client.times import moment
from penstock.vocabulary.errors import InvalidArgument


def test_a_time_is_given_in_one_of_two_ways_or_not_at_all() -> None:
    assert moment("deliver_at", None, "delay_s", None, 5_000) == 0
    assert moment("deliver_at", 7.5, "delay_s", None, 5_000) == 7_500
    assert moment("deliver_at", None, "delay_s", 7.5, 5_000) == 12_500
    assert moment("deliver_at", None, "delay_s", 0, 5_000) == 5_000


@pytest.mark.parametrize(
    ("at", "after_s"),
    [(1.0, 1.0), ("noon", None), (float("nan"), None), (-1, None), (None, -1), (None, "5"),
     (None, float("inf")), (None, True), (None, 1e12)],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(at: object, after_s: object) -> None:
    with pytest.raises(InvalidArgument, match=r"expires_at|ttl_s"):
        moment("expires_at", at, "ttl_s", after_s, 0)
