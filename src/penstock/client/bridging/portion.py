"""Some messages on their way from one broker to another, column by column. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from penstock.batch.encode import Columns
from penstock.drivers.port import Capabilities
from penstock.vocabulary.errors import InvalidArgument, Unsupported

COLUMNS: Final = Columns.__struct_fields__
FIELDS: Final = ("priority", "delay", "expiry")
"""What may be left out when the target cannot keep it."""


class Portion(msgspec.Struct):
    """Messages of one partition of the source, in their order."""

    partition: int
    columns: Columns
    numbers: list[int] | None
    """The source's number of each, rising; None when the source has none."""
    start: int = 0
    end: int = 0
    """Every number in start…end is in here, or does not exist; 0 = only these numbers are meant."""
    token: Any = None
    """What the source needs to be told that these are safe."""

    @property
    def count(self) -> int:
        """How many messages."""
        return len(self.columns.bodies)

    @property
    def size(self) -> int:
        """Bytes of their bodies."""
        return sum(len(body) for body in self.columns.bodies if body)

    def name(self, at: int) -> str:
        """How to speak of one message."""
        if self.numbers is None:
            return f"message {(self.columns.ids or [None])[at]!r}"
        return f"message {self.partition}:{self.numbers[at]}"

    def halves(self) -> tuple["Portion", "Portion"]:
        """The same messages in two portions."""
        middle = self.count // 2
        first, second = (picked(self, part) for part in (range(middle), range(middle, self.count)))
        if self.end and self.numbers is not None:
            first.end = second.start = self.numbers[middle]
        return first, second


def picked(portion: Portion, indexes: Sequence[int]) -> Portion:
    """Some messages of a portion; it covers the same numbers."""
    numbers = portion.numbers
    return msgspec.structs.replace(
        portion, columns=picked_columns(portion.columns, indexes),
        numbers=None if numbers is None else [numbers[at] for at in indexes],
    )  # fmt: skip


def picked_columns(columns: Columns, indexes: Sequence[int]) -> Columns:
    """Some messages."""
    found: dict[str, Any] = {}
    for name in COLUMNS:
        values = getattr(columns, name)
        found[name] = None if values is None else [values[at] for at in indexes]
    return Columns(**found)


def check_without(without: Iterable[str]) -> frozenset[str]:
    """The fields to leave out. Raises InvalidArgument for one that does not exist."""
    found = frozenset(without)
    for name in sorted(found - set(FIELDS)):
        raise InvalidArgument(f"{name!r} cannot be left out; known: {', '.join(FIELDS)}")
    return found


def fit(portion: Portion, can: Capabilities, without: frozenset[str], now_ms: int) -> None:
    """Makes the messages what the target can keep.

    A delay that is over needs no keeping. Raises Unsupported, which names the message, for what
    would be lost and was not given up by `without`.
    """
    columns = portion.columns
    columns.attempts = None
    if columns.deliver_at is not None and not can.has_delay:
        columns.deliver_at = [0 if due <= now_ms else due for due in columns.deliver_at]
    for name, field, can_keep in (
        ("priority", "priorities", can.has_priority),
        ("delay", "deliver_at", can.has_delay),
        ("expiry", "expires_at", can.has_expiry),
    ):
        values = getattr(columns, field)
        if name in without or values is None or not any(values):
            setattr(columns, field, None)
        elif not can_keep:
            at = next(at for at, value in enumerate(values) if value)
            raise Unsupported(
                f"{portion.name(at)} has a {name}, which {can.scheme}: URLs cannot keep: copy to "
                f"another broker, or leave it out with --without {name}"
            )
