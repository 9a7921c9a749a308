"""Keys keep their order and their one owner while consumers come and go."""

import pytest

from tests.model.churn import churn
from tests.tally import Tally


def prove(messages: int, moves: int, seed: int, tally: Tally) -> None:
    """Everything is delivered, in order, by one consumer at a time."""
    run = churn(messages, moves, seed)
    stuck = run.drain()
    tally.add(
        "keyed", keys=len(run.keys), moves=run.moves, order_violations=run.order_violations,
        double_owner=run.double_owner, stuck=stuck,
    )  # fmt: skip
    assert (run.order_violations, run.double_owner, stuck) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_keys_keep_their_order_while_consumers_move(seed: int, tally: Tally) -> None:
    prove(25_000, 250, seed, tally)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(10, 20))
def test_a_million_keyed_messages_keep_their_order(seed: int, tally: Tally) -> None:
    prove(100_000, 1_000, seed, tally)
