"""What a run is given by hand: time, chance, sizes and names, so that it repeats."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

from penstock.journal.settings import JournalSettings

SEED: Final = 20_240_229
SETTINGS: Final = JournalSettings(
    segment_bytes_min=4096, segment_bytes_max=4096, reserve_bytes=0, is_zeroing=False
)
WALL: Final = 1_700_000_000_000
ALICE: Final = bytes(15) + b"\x02"
BOB: Final = b"\x01" + bytes(14) + b"\x04"
"""A publisher with a generated id, and a named one."""


class Hand:
    """A clock that moves when told."""

    def __init__(self, now: int = 1_000_000, wall: int = WALL) -> None:
        self._now, self._wall = now, wall

    def now(self) -> int:
        return self._now

    def wall(self) -> int:
        return self._wall

    def advance(self, milliseconds: int) -> None:
        self._now += milliseconds
        self._wall += milliseconds

    def jump(self, milliseconds: int) -> None:
        """Somebody sets the wall clock."""
        self._wall += milliseconds


@contextmanager
def chance(seed: str) -> Iterator[None]:
    """Store ids and salts from a seed, so that a failure repeats."""
    real, os.urandom = os.urandom, Random(seed).randbytes
    try:
        yield
    finally:
        os.urandom = real
