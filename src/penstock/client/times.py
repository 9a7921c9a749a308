"""When a message is to be delivered and when it ends: a time, or seconds from now."""

from math import isfinite
from typing import Any

from penstock.batch import check
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.limits import DELAY_S_MAX


def moment(name: str, at: Any, after_name: str, after_s: Any, now_ms: int) -> int:
    """Unix milliseconds of the time that was given in one of two ways; 0 = none.

    Raises InvalidArgument when both were given, or one makes no sense.
    """
    if at is None and after_s is None:
        return 0
    if after_s is None:
        return check.seconds(name, at)
    if at is not None:
        raise InvalidArgument(f"give either {name} or {after_name}, not both")
    is_number = isinstance(after_s, int | float) and not isinstance(after_s, bool)
    if not is_number or not isfinite(after_s) or not 0 <= after_s <= DELAY_S_MAX:
        raise InvalidArgument(
            f"{after_name} must be seconds from 0 to {DELAY_S_MAX:.0f}, not {after_s!r:.80}"
        )
    return now_ms + round(float(after_s) * 1000)
