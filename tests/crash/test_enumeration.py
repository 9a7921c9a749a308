"""ENUM: every crash of every short workload, and every crash of the recovery after it.

Before each operation on the disk a crash may leave any of several images. Each is recovered and
must look like one step of the workload, no older than the newest confirmed one; see oracle.py.
"""

import pytest

from penstock.journal.memory import ALL_POLICIES, Policy, Verb
from tests.crash.enumeration import Enumeration, Workload, fingerprint
from tests.crash.proving import long_form, prove
from tests.crash.workload import ALL, first_publishes, only_a_later_record_survives
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


def test_the_enumeration_sees_every_kind_of_operation_and_policy() -> None:
    verbs, policies = set(), set()
    for workload in ALL:
        for point in Enumeration(workload, kill_stride=0).points():
            verbs.add(point.op.verb if point.op is not None else None)
            policies.update(label.split(":")[0] for label, _ in point.images)
    assert verbs == {*Verb, None}
    assert policies == {str(policy) for policy in ALL_POLICIES}


def test_an_enumeration_repeats_itself() -> None:
    first, second = (Enumeration(first_publishes) for _ in range(2))
    assert first().hashes == second().hashes


def test_a_torn_group_of_which_a_later_record_is_whole_is_among_the_images() -> None:
    enumeration = Enumeration(only_a_later_record_survives, policies=[Policy.TORN_SUFFIX])
    images = [image for point in enumeration.points() for _, image in point.images]
    torn = [image for image in images if any(b"3" * 100 in data for data in image.values())]
    whole = [image for image in torn if any(bytes(range(256)) in d for d in image.values())]
    assert {fingerprint(image) for image in torn} > {fingerprint(image) for image in whole}
