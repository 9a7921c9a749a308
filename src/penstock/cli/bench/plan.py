"""What to measure and how much of it: one value that travels to the child process as JSON."""

import time
from pathlib import Path
from typing import Final

import msgspec

TOPIC: Final = "bench"
SUBSCRIPTION: Final = "reader"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of one measurement. `folder` is empty for a broker in memory."""

    folder: str = ""
    server: str = ""
    """The URL of a server that does the work, instead of a broker in the folder."""
    seconds: float = 10.0
    messages: int | None = None
    """How many messages instead of how many seconds."""
    size: int = 100
    batch: int = 1_000
    callers: int = 100
    in_flight: int = 10
    """Batches published at the same time; 0 = as many as suit the broker."""
    rate: float | None = None
    """Messages a second, for latency."""
    durability: str = "synced"
    keep_every: int | None = None
    """Compaction: one message in so many is never acked; None = one of all."""
    is_quick: bool = False

    @property
    def url(self) -> str:
        """The broker of this measurement."""
        if self.server:
            return self.server
        return f"file:{self.folder}" if self.folder else "memory:bench"

    @property
    def path(self) -> Path:
        """The folder of the broker; only for measurements on disk."""
        assert self.folder, "this measurement needs a folder"
        return Path(self.folder)

    def scaled(self, full: int, quick: int) -> int:
        """How many messages or topics: what was asked, else the full or the quick number."""
        return self.messages or (quick if self.is_quick else full)

    def share(self, turn: int, turns: int) -> int | None:
        """How many of the messages belong to one of several turns; None when time decides."""
        if self.messages is None:
            return None
        return self.messages * (turn + 1) // turns - self.messages * turn // turns


class Budget:
    """How long a loop may go on: until the time is over, or the messages are used up."""

    def __init__(self, seconds: float, messages: int | None = None) -> None:
        self._ends = float("inf") if messages is not None else time.perf_counter() + seconds
        self._left = float("inf") if messages is None else messages

    def take(self, count: int) -> bool:
        """True when `count` more messages may be sent."""
        if self._left <= 0 or time.perf_counter() >= self._ends:
            return False
        self._left -= count
        return True
