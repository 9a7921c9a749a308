"""A wish says who joins what, and how much it takes at once."""

from penstock.vocabulary.wishes import Wish


def test_a_consumer_is_not_named_by_the_application_unless_said() -> None:
    assert not Wish("orders", "billing", None, None, 10, 1 << 20, "c-1").is_named
