"""Single messages published at the same time travel as one batch.

A batch costs the broker about as much as a message. So while a publish is under way, others to the
same topic are gathered until the loop has run everybody who is ready, and sent together. A lone
publisher never waits: with nothing under way its message goes at once.
"""

from asyncio import AbstractEventLoop, Future
from typing import Any, Final

from penstock.drivers.port import Stored
from penstock.vocabulary.errors import PenstockError
from penstock.vocabulary.limits import KIB

BODY_BYTES_CUT: Final = 4 * KIB
"""Larger bodies go alone: for them a batch saves little."""
COUNT_CUT: Final = 1_000


class Gathered:
    """Bodies that wait for each other, and who waits for their receipts."""

    __slots__ = ("_loop", "bodies", "futures", "id_start", "partition", "sequence", "stored")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.bodies: list[bytes] = []
        self.futures: list[Future[None]] = []
        self.partition = 0
        self.sequence = 0
        """Of the first message; known once the batch is sent."""
        self.id_start = ""
        self.stored: Stored | None = None
        """The broker's answer; known once a future is done without an error."""

    def add(self, body: bytes) -> "Future[None]":
        """Takes a body in; the future is done when the broker answered."""
        future: Future[None] = Future(loop=self._loop)
        self.bodies.append(body)
        self.futures.append(future)
        return future

    def answer(self, stored: Any) -> None:
        """Tells everybody who waits."""
        if isinstance(stored, Exception):
            self.fail(stored)
            return
        self.stored = stored
        for future in self.futures:
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Tells everybody that it went wrong."""
        for future in self.futures:
            if not future.done():
                future.set_exception(fresh(error))


def fresh(error: Exception) -> Exception:
    """The same error anew: one answer may go to many waiters, each with its own trace."""
    if isinstance(error, PenstockError):
        return type(error)(error.text, **error.details)
    return error
