"""What a program needs of its broker, said once and checked when it starts, before anything runs.

    client = penstock.connect(url, needs=("ids", "key_shared", "synced"))

Opening it over a URL that cannot keep one of them is refused, and the refusal names them all.
"""

from collections.abc import Awaitable, Callable, Iterable
from difflib import get_close_matches
from typing import Any, Final

from penstock.client.levels import satisfies
from penstock.drivers.capabilities import ROWS, has
from penstock.drivers.port import Capabilities, Driver
from penstock.vocabulary.errors import InvalidArgument, Unsupported
from penstock.vocabulary.message import Durability

_ABILITIES: Final[dict[str, str]] = {
    "ids": "dedup", "delay": "deliver_at", "expiry": "expires_at", "readers": "reader",
    **{row: row for row in ROWS},
}  # fmt: skip
"""Words for the rows of the matrix; each row is one itself."""
_QOS: Final = {f"qos{level}": level for level in (0, 1, 2)}
_LEVELS: Final = {level.value: level for level in Durability}
NEEDS: Final = (*_ABILITIES, "order", *_QOS, *_LEVELS)
"""Everything that may be needed: rows of the matrix, order of a key, QoS, levels of durability."""


def check_needs(needs: Any) -> tuple[str, ...]:
    """The needs as a tuple. Raises InvalidArgument for a word that is none."""
    if isinstance(needs, str) or not isinstance(needs, Iterable):
        raise InvalidArgument(f"needs must be a list of words such as ('ids',), not {needs!r:.80}")
    found = tuple(needs)
    for word in found:
        if word not in NEEDS:
            close = get_close_matches(str(word), NEEDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(NEEDS)}"
            raise InvalidArgument(f"there is no need {word!r:.80}; {hint}")
    return found


def missing(needs: Iterable[str], can: Capabilities) -> list[str]:
    """The needs that a URL cannot keep."""
    return [word for word in needs if not _is_kept(word, can)]


def _is_kept(word: str, can: Capabilities) -> bool:
    if word in _ABILITIES:
        return has(can, _ABILITIES[word])
    if word == "order":
        return can.has_order_per_key
    if word in _QOS:
        return _QOS[word] in can.qos
    return satisfies(can.durability, _LEVELS[word])


async def opened(open_driver: Callable[[], Awaitable[Driver]], needs: tuple[str, ...]) -> Driver:
    """A connection over which every need is kept. Raises Unsupported, and what opening raises."""
    driver = await open_driver()
    can = driver.capabilities
    lacks = missing(needs, can)
    if lacks:
        await driver.close()
        raise Unsupported(
            f"this program needs {', '.join(lacks)}, which {can.scheme}: URLs do not have; see "
            f"'penstock capabilities', or use another broker"
        )
    return driver
