"""Claims and refusals are plain values that drivers can carry."""

import pickle

from penstock.vocabulary.claims import Claim, Refusal


def test_a_claim_names_its_lease_its_place_and_its_attempt() -> None:
    claim = Claim(lease_id=7, partition=1, attempt=2, ranges=((3, 5), (8, 9)))
    assert tuple(claim) == (7, 1, 2, ((3, 5), (8, 9)), 0)


def test_a_refusal_says_which_message_and_why() -> None:
    assert tuple(Refusal(partition=0, offset=4, why="gone")) == (0, 4, "gone")


def test_both_travel_between_processes() -> None:
    values = (Claim(1, 0, 1, ((0, 1),)), Refusal(0, 0, "x"))
    assert pickle.loads(pickle.dumps(values)) == values
