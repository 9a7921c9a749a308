"""Single messages published at the same time travel as one batch.

A batch costs the broker about as much as a message. So while a publish is under way, others to the
same topic are gathered until the loop has run everybody who is ready, and sent together. A lone
publisher never waits: with nothing under way its message goes at once.
"""

from asyncio import Future
from itertools import repeat
from typing import Any, Final

from penstock.client.receipts import home_of, spelled_place
from penstock.vocabulary.errors import PenstockError
from penstock.vocabulary.limits import KIB
from penstock.vocabulary.message import Receipt

BODY_BYTES_CUT: Final = 4 * KIB
"""Larger bodies go alone: for them a batch saves little."""
COUNT_CUT: Final = 1_000
_DIGITS: Final = [f"{number:02x}" for number in range(256)]


class Gathered:
    """Bodies that wait for each other, and who waits for their receipts."""

    __slots__ = ("bodies", "futures", "id_start", "partition", "sequence", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.bodies: list[bytes] = []
        self.futures: list[Future[Receipt]] = []
        """One for each body; it gets the receipt when the broker answered."""
        self.partition = 0
        self.sequence = 0
        """Of the first message; known once the batch is sent."""
        self.id_start = ""

    def answer(self, stored: Any) -> None:
        """Tells everybody who waits."""
        if isinstance(stored, Exception):
            for future in self.futures:
                if not future.done():
                    future.set_exception(fresh(stored))
            return
        if stored.base is not None and stored.kept is stored.places is None:
            receipts = self._plain_receipts(stored)
        else:
            receipts = [self._receipt(stored, index) for index in range(len(self.futures))]
        for future, receipt in zip(self.futures, receipts, strict=True):
            if not future.done():
                future.set_result(receipt)

    def _plain_receipts(self, stored: Any) -> list[Receipt]:
        """The receipts of messages that lie one behind the other."""
        count, partition, base = len(self.futures), self.partition, stored.base
        offsets = range(base, base + count)
        return list(
            map(
                Receipt,
                repeat(self.topic, count),
                repeat(partition),
                offsets,
                [f"{partition}:{offset}" for offset in offsets],
                ids_from(self.id_start, self.sequence, count),
                repeat(stored.durability),
                repeat(stored.is_duplicate),
            )
        )

    def _receipt(self, stored: Any, index: int) -> Receipt:
        offset, position, is_duplicate = spelled_place(stored, self.partition, index)
        home = home_of(stored, self.partition, index)
        id = f"{self.id_start}{self.sequence + index:x}"
        return Receipt(self.topic, home, offset, position, id, stored.durability, is_duplicate)


def ids_from(start: str, sequence: int, count: int) -> list[str]:
    """The ids of messages whose publisher gave none: of `sequence` and those after it."""
    ids: list[str] = []
    end = sequence + count
    while sequence < end:  # as many at a time as differ in their last two digits only
        upto = min(end, (sequence | 0xFF) + 1)
        if sequence <= 0xFF:  # noqa: PLR2004 - shorter than two digits, maybe
            ids += [f"{start}{number:x}" for number in range(sequence, upto)]
        else:
            head = f"{start}{sequence >> 8:x}"
            first = sequence & 0xFF
            ids += [head + digits for digits in _DIGITS[first : first + upto - sequence]]
        sequence = upto
    return ids


def fresh(error: Exception) -> Exception:
    """The same error anew: one answer may go to many waiters, each with its own trace."""
    if isinstance(error, PenstockError):
        return type(error)(error.text, **error.details)
    return error
