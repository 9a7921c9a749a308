"""How long this process stood still: a machine under load does that, and drivers cannot help it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

STEP_S: Final = 0.01
LATE_S: Final = 0.01
"""So late a step is on any machine."""


class Standstill:
    """Seconds in which nothing was done here."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def note(self, took_s: float) -> None:
        """One step is done."""
        self.seconds += max(0.0, took_s - STEP_S - LATE_S)


@contextmanager
def noticed() -> Iterator[Standstill]:
    """Meanwhile a thread that does nothing else looks at the clock."""
    found, ended = Standstill(), Event()

    def watch() -> None:
        is_over, before = False, time.monotonic()
        while not is_over:
            is_over = ended.wait(STEP_S)
            now = time.monotonic()
            found.note(now - before)
            before = now

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
