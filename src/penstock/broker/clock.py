"""The broker's two clocks: monotonic for leases and back-off, wall for everything people see."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> int:
        """Monotonic milliseconds."""
        ...

    def wall(self) -> int:
        """Unix milliseconds."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall(self) -> int:
        return time.time_ns() // 1_000_000
