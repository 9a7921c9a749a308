"""The answer to a publish is a small value."""

from penstock.vocabulary.message import Durability
from penstock.vocabulary.stored import Stored


def test_most_answers_need_three_fields() -> None:
    stored = Stored(7, Durability.SYNCED, is_duplicate=False)
    assert (stored.base, stored.kept, stored.places) == (7, None, None)
    assert stored == Stored(7, Durability.SYNCED, False, None, None)
