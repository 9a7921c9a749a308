"""What a broker answers to a publish."""

from collections.abc import Sequence

import msgspec

from penstock.vocabulary.message import Durability


class Stored(msgspec.Struct, frozen=True, gc=False):
    """Answer to a publish: offsets from `base` on; None when a duplicate's place is forgotten."""

    base: int | None
    durability: Durability
    is_duplicate: bool
    kept: tuple[int, ...] | None = None
    places: dict[int, int] | None = None
    """Offsets of messages that were stored before, by their index, where known."""
    marks: Sequence[tuple[int | None, str]] | None = None
    """Offset and position of each message, from a broker whose offsets do not rise one by one."""
    homes: Sequence[int] | None = None
    """Partition of each message, where the broker chose it."""
