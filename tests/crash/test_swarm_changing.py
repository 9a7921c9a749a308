"""ENUM over workloads drawn from a seed that dwell on topics, subscriptions and restarts."""

import pytest

from tests.crash.enumeration import Enumeration
from tests.crash.proving import long_form, prove
from tests.crash.swarm import Mood, swarm
from tests.tally import Tally

SEEDS = range(42)
LONG_SEEDS = range(1_000, 1_200)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_crash_of_a_drawn_workload_loses_or_invents_anything(seed: int, tally: Tally) -> None:
    prove(Enumeration(swarm(Mood.CHANGING, seed), depth2_stride=2), tally)


@pytest.mark.prove
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_no_crash_by_any_policy_of_a_drawn_workload_loses_anything(seed: int, tally: Tally) -> None:
    prove(long_form(swarm(Mood.CHANGING, seed)), tally)
