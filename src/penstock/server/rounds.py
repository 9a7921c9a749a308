"""Looking after many connections: a few at a time, and with few words.

A server may have thousands of connections, and lose its patience with all of them at one moment. To
look at all of them in one go, or to end them in one go, would make everybody else wait.
"""

import logging
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterable
from typing import Any, Final

STEP_S: Final = 0.005
LOOKS_MAX: Final = 256
"""Connections that are looked at in one step."""
ENDS_MAX: Final = 8
"""Connections that are ended in one step: each costs as much as a hundred looks."""
SAID_MAX: Final = 5
"""Endings that are logged one by one in one second; the others are counted."""


class Rounds:
    """Looks at everything again and again, in steps. Belongs to one loop."""

    def __init__(
        self, loop: AbstractEventLoop, every_s: float, whole: Callable[[], Iterable[Any]],
        look: Callable[[Any, float], bool],
    ) -> None:  # fmt: skip
        """`look` gets one of the whole and the time, and returns True when it ended it."""
        self._loop = loop
        self._every_s = every_s
        self._whole = whole
        self._look = look
        self._left: list[Any] = []
        self._began = 0.0
        self._timer: TimerHandle | None = loop.call_later(every_s, self._begin)

    def stop(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._began = self._loop.time()
        self._left = list(self._whole())
        self._step()

    def _step(self) -> None:
        now = self._loop.time()
        left, looks, ends = self._left, 0, 0
        while left and looks < LOOKS_MAX and ends < ENDS_MAX:
            looks += 1
            ends += self._look(left.pop(), now)
        if self._timer is None:
            return  # what it looked at stopped it
        if left:
            self._timer = self._loop.call_later(STEP_S, self._step)
        else:
            wait_s = max(STEP_S, self._began + self._every_s - self._loop.time())
            self._timer = self._loop.call_later(wait_s, self._begin)


class Complaints:
    """Logs why connections were ended. When they are many, the last ones are summed up."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._since = float("-inf")
        self._said = 0
        self._more = 0
        self._last = ""

    def say(self, now: float, text: str, level: int = logging.WARNING) -> None:
        """One connection was ended; the text says which, and why."""
        self.sum_up(now)
        if self._said < SAID_MAX:
            self._said += 1
            self._log.log(level, "%s", text)
        else:
            self._more += 1
            self._last = text

    def sum_up(self, now: float) -> None:
        """Says how many there were in the last second that were not logged."""
        if now - self._since < 1.0:
            return
        more, self._more = self._more, 0
        self._since, self._said = now, 0
        if more:
            text = "%d more connections were ended in the same second, the last one: %s"
            self._log.warning(text, more, self._last)
