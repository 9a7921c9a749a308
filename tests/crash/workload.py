"""Short workloads that together touch every operation of the broker.

A segment has 4 KiB and a group at least 512 bytes, so a handful of commands fills one. The
workloads themselves are in the modules named after what they dwell on.
"""

from tests.crash.enumeration import Workload
from tests.crash.workload_changing import CHANGING
from tests.crash.workload_given import GIVEN
from tests.crash.workload_keeping import KEEPING
from tests.crash.workload_moving import MOVING
from tests.crash.workload_ordering import ORDERING
from tests.crash.workload_publishing import PUBLISHING
from tests.crash.workload_settling import SETTLING
from tests.crash.workload_snapshots import SNAPSHOTS
from tests.crash.workload_uniting import UNITING

ALL: tuple[Workload, ...] = (
    *PUBLISHING, *SETTLING, *CHANGING, *KEEPING, *SNAPSHOTS, *GIVEN, *ORDERING, *MOVING,
    *UNITING,
)  # fmt: skip
