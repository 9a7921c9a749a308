"""QoS 2: which attempt finished a message, so that the token of an older one is refused.

A message that was finished at its first attempt, as most are, takes no room here.
"""

from typing import Any, Final

from penstock.delivery.ranges import RangeMap
from penstock.delivery.state import Cursor

FIRST: Final = (1,)
UNKNOWN: Final = (0,)
"""Too long ago to be known: no token fits."""
RUNS_MAX: Final = 10_000
QOS_2: Final = 2


def note_finished(cursor: Cursor, start: int, end: int) -> None:
    """Remembers the attempts on messages that are about to be finished."""
    if not cursor.trials:
        return
    for low, high, found in list(cursor.trials.runs(start, end)):
        if found is not None and found[0] > 1:
            if cursor.finished is None:
                cursor.finished = RangeMap()
            cursor.finished.set(low, high, (found[0],))
    if cursor.finished is not None and len(cursor.finished) > RUNS_MAX:
        half = cursor.finished.items()[RUNS_MAX // 2]
        cursor.finished.set(0, half[1], UNKNOWN)


def is_stale(cursor: Cursor, offset: int, attempt: int) -> bool:
    """True when, at QoS 2, a finished message was finished by another attempt than this one."""
    if cursor.subscription.policy.qos != QOS_2:
        return False
    found = cursor.finished.get(offset) if cursor.finished is not None else None
    return bool((found or FIRST)[0] != attempt)


def dump_finished(cursor: Cursor) -> Any:
    """For a snapshot."""
    return None if cursor.finished is None else cursor.finished.items()


def load_finished(cursor: Cursor, found: Any) -> None:
    """From a snapshot."""
    cursor.finished = RangeMap.restored(found)
