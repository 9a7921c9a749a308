import pickle

import pytest

from penstock.pipeline import refusals
from penstock.vocabulary.errors import PenstockError, catalogue

KINDS = [
    each
    for each in vars(refusals).values()
    if isinstance(each, type) and issubclass(each, PenstockError)
    if each.__module__ == refusals.__name__
]


@pytest.mark.parametrize("kind", KINDS)
def test_each_refusal_has_a_code_of_its_own_and_pickles(kind: type[PenstockError]) -> None:
    assert catalogue()[kind.code] is kind
    assert str(pickle.loads(pickle.dumps(kind("why", table="x")))) == "why"
