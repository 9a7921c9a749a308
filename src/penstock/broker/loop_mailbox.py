"""Answers from the broker's threads to one event loop: one wake-up for each posted batch."""

import logging
from asyncio import AbstractEventLoop, InvalidStateError
from collections import deque
from collections.abc import Callable
from typing import Any

Letter = tuple[Callable[[Any], None], Any]

log = logging.getLogger("penstock.broker")


class LoopMailbox:
    """Calls each target on the loop, in the order of posting.

    `on_dead` is called, in the posting thread, when the loop was closed without closing the
    client: letters can never arrive any more.
    """

    def __init__(self, loop: AbstractEventLoop, on_dead: Callable[[], None]) -> None:
        self._loop = loop
        self._on_dead = on_dead
        self._waiting: deque[list[Letter]] = deque()
        self._is_scheduled = False

    def post(self, letters: list[Letter]) -> None:
        """Delivers these letters soon. For any thread; the list must not change afterwards."""
        self._waiting.append(letters)
        if self._is_scheduled:
            # `deliver` clears the mark before it looks, so it finds what was appended just now.
            return
        self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self.deliver)
        except RuntimeError:  # the loop is closed
            self._waiting.clear()
            self._on_dead()

    def deliver(self) -> None:
        """Calls the targets of everything posted so far. On the loop's thread."""
        self._is_scheduled = False
        waiting = self._waiting
        while waiting:
            for target, answer in waiting.popleft():
                try:
                    target(answer)
                except InvalidStateError:
                    # Whoever waited for this answer was cancelled meanwhile.
                    continue
                except Exception:
                    log.exception("an answer from the broker could not be handled")
