"""A wish is plain data: the same one can be sent again."""

from penstock.vocabulary.units import Part, UnitWish


def test_a_wish_sent_again_is_the_same_wish() -> None:
    first = UnitWish(b"p", 1, 2, [Part("orders", 0, b"batch", 1, 0, 7)])
    again = UnitWish(b"p", 1, 2, [Part("orders", 0, b"batch", 1, 0, 7)])
    assert first == again
    assert first != again._replace(sequence=3)
