"""ENUM: every crash of every short workload, and every crash of the recovery after it.

Before each operation on the disk a crash may leave any of several images. Each is recovered and
must look like one step of the workload, no older than the newest confirmed one; see oracle.py.
"""

import pytest

from penstock.journal.memory import Policy, Verb
from tests.crash.enumeration import Enumeration, Workload
from tests.crash.proving import long_form, prove
from tests.crash.workload import ALL
from tests.crash.workload_publishing import first_publishes, only_a_later_record_survives
from tests.tally import Tally


def name(workload: Workload) -> str:
    return workload.__name__


@pytest.mark.parametrize("workload", ALL, ids=name)
def test_no_crash_of_a_workload_loses_or_invents_anything(workload: Workload, tally: Tally) -> None:
    prove(Enumeration(workload), tally)


@pytest.mark.prove
@pytest.mark.parametrize("workload", ALL, ids=name)
def test_no_crash_by_any_policy_at_any_depth_loses_anything(
    workload: Workload, tally: Tally
) -> None:
    prove(long_form(workload), tally)


def test_the_workloads_do_every_kind_of_operation() -> None:
    runs = [Enumeration(workload, policies=[Policy.DROP_ALL], kill_stride=0) for workload in ALL]
    found = {point.op.verb for run in runs for point in run.points() if point.op is not None}
    assert found == {*Verb}


def test_an_enumeration_repeats_itself() -> None:
    first, second = (Enumeration(first_publishes) for _ in range(2))
    assert first().hashes == second().hashes


def test_a_torn_group_of_which_only_a_later_record_survives_is_among_the_images() -> None:
    enumeration = Enumeration(only_a_later_record_survives, policies=[Policy.TORN_SUFFIX])
    images = [image for point in enumeration.points() for _, image in point.images]
    files = [data for image in images for data in image.values()]
    assert any(b"2" * 420 in data and b"1" * 420 not in data for data in files)
