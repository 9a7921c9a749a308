"""ENUM over workloads drawn from a seed that dwell on seeks, readers and topic policies."""

import pytest

from tests.crash.enumeration import Enumeration
from tests.crash.proving import long_form, prove
from tests.crash.swarm_features import Feature, feature_swarm
from tests.tally import Tally

SEEDS = range(80)
LONG_SEEDS = range(1_000, 1_060)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_crash_of_a_drawn_workload_loses_or_invents_anything(seed: int, tally: Tally) -> None:
    workload = feature_swarm(Feature.MOVING, seed)
    prove(Enumeration(workload, kill_stride=3, damage_stride=16), tally)


@pytest.mark.prove
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_no_crash_by_any_policy_of_a_drawn_workload_loses_anything(seed: int, tally: Tally) -> None:
    prove(long_form(feature_swarm(Feature.MOVING, seed)), tally)
