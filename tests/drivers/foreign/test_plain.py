"""Lists that are mostly not looked at are the same as lists that are."""

import pytest

from penstock.batch import encode_many
from penstock.drivers.foreign.carrier import Placed
from penstock.drivers.foreign.envelope import letters_of
from penstock.drivers.foreign.plain import Homes, Marks, Places, PlainLetters, batch_letters
from penstock.vocabulary.message import Message

SENDER = bytes(range(16))


def test_plain_letters_are_those_of_the_batch() -> None:
    batch = encode_many([b"a", b"", b"c" * 300])
    found = batch_letters(batch, SENDER, 7, 254)
    assert isinstance(found, PlainLetters)
    assert list(found) == letters_of(batch, SENDER, 7, 254)
    assert found[-1].id.endswith("-7-100")
    assert found[1:] == letters_of(batch, SENDER, 7, 254)[1:]
    with pytest.raises(IndexError):
        found[3]


@pytest.mark.parametrize("message", [Message(body=None), Message(body=b"x", key="k")])
def test_anything_else_has_letters_of_its_own(message: Message) -> None:
    batch = encode_many([message, b"y"])
    found = batch_letters(batch, SENDER, 7, 0)
    assert isinstance(found, list)
    assert not found[0].is_plain


def test_places_are_spelled_when_looked_at() -> None:
    raw = [(0, 5), (2, 9)]
    placed = Places(raw)
    assert placed == [Placed(5, "0:5"), Placed(9, "2:9", partition=2)]
    assert Marks(raw) == ((5, "0:5"), (9, "2:9"))
    assert Homes(raw) == (0, 2)
    assert len(placed[1:]) == 1
    assert placed[1:][0].partition == 2
    assert hash(Homes(raw)) == hash((0, 2))
