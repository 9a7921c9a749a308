"""Places in a topic, as users name them: where a subscription starts, where a seek goes to.

A place is text ('earliest', 'latest', a position) or a time in Unix seconds. A position is
'<partition>:<offset>', but some brokers have positions of their own, which only they can read.
"""

import re
from typing import Any, Final

from penstock.vocabulary.errors import InvalidArgument

TIME_S_MAX: Final = 1e12
"""Latest time that may be named; far beyond what a clock shows."""
OWN_CHARACTERS_MAX: Final = 256
_POSITION: Final = re.compile(r"[0-9]{1,19}:[0-9]{1,19}")


def check_place(name: str, place: Any, *, has_own_positions: bool = False) -> None:
    """Raises InvalidArgument for what names no place; `name` is that of the argument."""
    if isinstance(place, str):
        if place in {"earliest", "latest"} or _POSITION.fullmatch(place):
            return
        if has_own_positions and place.isprintable() and 0 < len(place) <= OWN_CHARACTERS_MAX:
            return
        raise _wrong(name, place)
    is_number = isinstance(place, int | float) and not isinstance(place, bool)
    if not is_number or not 0 <= place <= TIME_S_MAX:
        raise _wrong(name, place)


def position_of(name: str, place: Any) -> tuple[int, int] | None:
    """Partition and offset of a position, None for any other place.

    Raises InvalidArgument for what is no place.
    """
    check_place(name, place)
    if not isinstance(place, str) or place in {"earliest", "latest"}:
        return None
    partition, _, offset = place.partition(":")
    return int(partition), int(offset)


def _wrong(name: str, place: Any) -> InvalidArgument:
    return InvalidArgument(
        f"{name} {place!r:.80} is not 'earliest', 'latest', a time in Unix seconds or a position "
        "like '0:17'"
    )
