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


class UnitWish(NamedTuple):
    """A unit and its own number; its acks travel beside it."""

    publisher: bytes
    epoch: int
    sequence: int
    parts: list[Part]
