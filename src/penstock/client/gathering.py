"""Single messages published at the same time travel as one batch.

A batch costs the broker about as much as a message. So while a publish is under way, others to the
same topic are gathered until the loop has run everybody who is ready, and sent together. A lone
publisher never waits: with nothing under way its message goes at once.
"""

from asyncio import AbstractEventLoop, Future
from typing import Any, Final

from penstock.client.receipts import home_of, spelled_place
from penstock.vocabulary.errors import PenstockError
from penstock.vocabulary.limits import KIB
from penstock.vocabulary.message import Receipt

BODY_BYTES_CUT: Final = 4 * KIB
"""Larger bodies go alone: for them a batch saves little."""
COUNT_CUT: Final = 1_000


class Gathered:
    """Bodies that wait for each other, and who waits for their receipts."""

    __slots__ = ("_loop", "bodies", "futures", "id_start", "partition", "sequence", "topic")

    def __init__(self, topic: str, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.topic = topic
        self.bodies: list[bytes] = []
        self.futures: list[Future[Receipt]] = []
        self.partition = 0
        self.sequence = 0
        """Of the first message; known once the batch is sent."""
        self.id_start = ""

    def add(self, body: bytes) -> "Future[Receipt]":
        """Takes a body in; the future gets the receipt when the broker answered."""
        future: Future[Receipt] = Future(loop=self._loop)
        self.bodies.append(body)
        self.futures.append(future)
        return future

    def answer(self, stored: Any) -> None:
        """Tells everybody who waits."""
        if isinstance(stored, Exception):
            for future in self.futures:
                if not future.done():
                    future.set_exception(fresh(stored))
            return
        topic, partition, durability = self.topic, self.partition, stored.durability
        id_start, sequence, base = self.id_start, self.sequence, stored.base
        is_plain = base is not None and stored.kept is stored.places is None
        offset, is_duplicate = base, stored.is_duplicate
        for index, future in enumerate(self.futures):
            if not future.done():
                if is_plain:
                    offset = base + index
                    position = f"{partition}:{offset}"
                else:
                    offset, position, is_duplicate = spelled_place(stored, partition, index)
                    partition = home_of(stored, partition, index)
                id = f"{id_start}{sequence + index:x}"
                future.set_result(
                    Receipt(topic, partition, offset, position, id, durability, is_duplicate)
                )


def fresh(error: Exception) -> Exception:
    """The same error anew: one answer may go to many waiters, each with its own trace."""
    if isinstance(error, PenstockError):
        return type(error)(error.text, **error.details)
    return error
