"""Which durability is enough: `memory` < `written` < `synced`; `replicated` beside `synced`."""

from typing import Any, Final

from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.message import Durability

_RANKS: Final = {
    Durability.MEMORY: 0,
    Durability.WRITTEN: 1,
    Durability.SYNCED: 2,
    Durability.REPLICATED: 2,
}


def check_level(durability: Any) -> Durability:
    """The level of this name. Raises InvalidArgument."""
    try:
        return Durability(durability)
    except ValueError:
        known = ", ".join(repr(each.value) for each in Durability)
        raise InvalidArgument(f"unknown durability {durability!r}; known: {known}") from None


def satisfies(given: Durability, wanted: Durability) -> bool:
    """True when `given` is at least `wanted`; `replicated` and `synced` do not imply each other."""
    return given is wanted or _RANKS[given] > _RANKS[wanted]


def weaker(one: Durability, other: Durability) -> Durability:
    """The weaker of two levels."""
    return min(one, other, key=_RANKS.__getitem__)
