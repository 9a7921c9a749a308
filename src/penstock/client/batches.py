"""Several received messages at once: settled with one call, bodies without an object for each."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import overload

from penstock.client.received import Hold, ReceivedMessage, Sheet
from penstock.client.settling import Settling, check_delay, check_reason
from penstock.vocabulary.errors import AlreadySettled

Piece = tuple[Sheet, int, int]
"""Messages low…high of a sheet."""


class ReceivedBatch(Sequence[ReceivedMessage]):
    """Messages that were waiting, in the order of their arrival.

    `ack()` and `nack()` settle all that were not settled one by one, and may come from any thread.
    """

    def __init__(self, settling: Settling) -> None:
        self._settling = settling
        self._holds: list[tuple[Hold, list[Piece]]] = []
        self._count = 0
        self._messages: list[ReceivedMessage] | None = None
        self._is_settled = False

    def add(self, hold: Hold, pieces: list[Piece]) -> None:
        """Puts messages that were taken out of a hold into the batch."""
        self._holds.append((hold, pieces))
        self._count += sum(high - low for _, low, high in pieces)

    def append(self, message: ReceivedMessage) -> None:
        """Puts one message that was taken out of its hold into the batch."""
        sheet = message._sheet  # noqa: SLF001 - a batch is several of them
        at = bisect_left(sheet.frame.offsets, message.at)
        if not self._holds or self._holds[-1][0] is not sheet.hold:
            self._holds.append((sheet.hold, []))
        pieces = self._holds[-1][1]
        if pieces and pieces[-1][0] is sheet and pieces[-1][2] == at:
            pieces[-1] = (sheet, pieces[-1][1], at + 1)
        else:
            pieces.append((sheet, at, at + 1))
        self._count += 1

    @property
    def bodies(self) -> list[bytes | None]:
        """Every body, without making a message for each: the fast way to read a batch."""
        parts = [sheet.bodies(low, high) for sheet, low, high in self._pieces()]
        return parts[0] if len(parts) == 1 else [body for part in parts for body in part]

    def ack(self) -> None:
        """Finishes all its messages. Raises AlreadySettled the second time."""
        self._settle()
        for hold, pieces in self._holds:
            self._settling.ack_many(hold, _offsets(pieces))

    def nack(self, *, delay_s: float | None = None, reason: str = "") -> None:
        """Sends all its messages back. Raises AlreadySettled the second time."""
        check_delay(delay_s)
        reason = check_reason(reason)
        self._settle()
        # The last first: a nack takes the later messages of its key back, for kind `key_shared`.
        for hold, pieces in reversed(self._holds):
            self._settling.give_back_many(hold, _offsets(pieces), delay_s, reason)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return iter(self._made())

    @overload
    def __getitem__(self, index: int) -> ReceivedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[ReceivedMessage]: ...
    def __getitem__(self, index: int | slice) -> ReceivedMessage | list[ReceivedMessage]:
        return self._made()[index]

    def __repr__(self) -> str:
        return f"<ReceivedBatch of {self._count} messages of {self._settling.topic}>"

    def _made(self) -> list[ReceivedMessage]:
        if self._messages is None:
            self._messages = []
            for sheet, low, high in self._pieces():
                self._messages.extend(sheet.messages(low, high))
        return self._messages

    def _pieces(self) -> Iterator[Piece]:
        for _, pieces in self._holds:
            yield from pieces

    def _settle(self) -> None:
        if self._is_settled:
            raise AlreadySettled("this batch was settled before: ack or nack it once")
        self._is_settled = True


def _offsets(pieces: list[Piece]) -> list[int]:
    offsets: list[int] = []
    for sheet, low, high in pieces:
        offsets.extend(sheet.frame.offsets[low:high])
    return offsets
