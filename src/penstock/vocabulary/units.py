"""What a client asks for when it commits a unit: batches to store, told apart from a retry."""

from typing import NamedTuple

import msgspec


class Part(msgspec.Struct, frozen=True, gc=False):
    """One batch of a unit, numbered like any other batch of its publisher."""

    topic: str
    partition: int
    batch: bytes
    count: int
    epoch: int
    sequence: int
    partitions: int = 0
    """How many partitions it was split for; 0 = whatever there are."""


class UnitWish(NamedTuple):
    """A unit and its own number; its acks travel beside it."""

    publisher: bytes
    epoch: int
    sequence: int
    parts: list[Part]
