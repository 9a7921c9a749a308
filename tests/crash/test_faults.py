"""A disk that refuses: EIO at each sync, ENOSPC at each write; once, or from then on."""

import pytest

from tests.crash.enumeration import Workload
from tests.crash.faults import Figures, faults_of, inject
from tests.crash.oracle import Violation
from tests.crash.workload import ALL
from tests.crash.workload_changing import deletion_meets_dead_letters
from tests.crash.workload_keeping import killed_and_opened
from tests.crash.workload_ordering import holes_in_leases, keys_lost_and_found
from tests.crash.workload_uniting import patterns
from tests.tally import Tally

# One decides deletions that a failed store hides at once, one a pattern that it lists at once, and
# the others go on with another disk.
HIDDEN = {
    deletion_meets_dead_letters,
    patterns,
    killed_and_opened,
    holes_in_leases,
    keys_lost_and_found,
}
WORKLOADS = [each for each in ALL if each not in HIDDEN]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_after_a_failure_nothing_is_confirmed_and_nothing_is_lost(
    workload: Workload, tally: Tally
) -> None:
    figures = Figures()
    try:
        for fault in faults_of(workload):
            try:
                inject(workload, fault, figures)
            except Violation as violation:
                raise Violation(f"{workload.__name__}, {fault}: {violation}") from violation
    finally:
        tally.add(
            "sync",
            injected_failures=figures.injected_failures,
            acks_after_failure=figures.acks_after_failure,
            refused=figures.refused,
            reopened=figures.reopened,
        )
        print(f"sync {workload.__name__}: {figures}")  # noqa: T201 - a proof prints its numbers
