"""MUTANTS: every planted bug is caught by the stage named for it, and only planted bugs are."""

import pytest

from tests.crash.oracle import Violation
from tests.crash.sabotages import SABOTAGES, Sabotage
from tests.tally import Tally

STAGES = {sabotage.stage: sabotage for sabotage in SABOTAGES}


def name(sabotage: Sabotage) -> str:
    return f"{sabotage.id}-{sabotage.plant.__name__}"


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=name)
def test_a_planted_bug_is_caught_by_its_stage(sabotage: Sabotage, tally: Tally) -> None:
    caught = 0
    try:
        with sabotage.plant(), pytest.raises(Violation) as found:
            sabotage.stage()
        caught = 1
        print(f"{sabotage.id} ({sabotage.what}) caught: {str(found.value)[:300]}")  # noqa: T201 - a proof prints its numbers
    finally:
        tally.add("mutants", caught=caught, planted=1)
        tally.name("mutants", "uncaught", [] if caught else [sabotage.id])


@pytest.mark.parametrize("sabotage", STAGES.values(), ids=name)
def test_the_same_stage_passes_when_nothing_is_planted(sabotage: Sabotage) -> None:
    sabotage.stage()


def test_there_are_enough_planted_bugs_and_each_has_its_own_name() -> None:
    names = [sabotage.id for sabotage in SABOTAGES]
    assert len(set(names)) == len(names) >= 55
