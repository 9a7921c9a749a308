"""Random operations against a real broker and the model of it, compared after every step."""

import pytest

from tests.model.operations import Operations, run, shrink
from tests.tally import Tally

STEPS = 100
GROUP = 10
"""Seeds of one test."""


def prove(first: int, tally: Tally) -> None:
    """Runs a group of seeds."""
    for seed in range(first, first + GROUP):
        driver = run(seed, STEPS)
        tally.add("model", examples=1, steps=len(driver.done), failed=0)


@pytest.mark.parametrize("first", range(0, 200, GROUP))
def test_the_broker_does_what_the_model_allows(first: int, tally: Tally) -> None:
    prove(first, tally)


@pytest.mark.prove
@pytest.mark.parametrize("first", range(10_000, 15_000, GROUP))
def test_the_broker_does_what_the_model_allows_for_long(first: int, tally: Tally) -> None:
    prove(first, tally)


def test_a_broker_that_forgets_an_ack_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Operations._finish
    told: list[int] = []

    def forget(self: Operations, *arguments: object) -> None:
        told.append(1)
        broker = self.rig.broker
        if len(told) == 3:
            with monkeypatch.context() as patch:
                patch.setattr(broker, "ack", lambda *_: [])
                finish(self, *arguments)  # type: ignore[arg-type]
        else:
            finish(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Operations, "_finish", forget)
    with pytest.raises(AssertionError, match="acked is"):
        run(1, STEPS)


def test_a_failure_is_cut_down_to_the_steps_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    def purge(_self: Operations, _chance: object) -> None:
        raise AssertionError("purging always fails here")

    monkeypatch.setattr(Operations, "purge", purge)
    monkeypatch.setattr(Operations, "operations", {"publish": 5, "wait": 5, "purge": 1})
    chosen, text = shrink(1, STEPS)
    assert len(chosen) == 1
    assert text == "AssertionError: purging always fails here"
