"""A message as it is received: cheap to make, its columns read only when asked for.

A message knows its sheet (one stored batch), a sheet its hold (one lease), a hold its settler
(one consumer). Settling goes that way up; nothing here talks to a broker.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec

from penstock.batch import Batch
from penstock.batch.frame import Frame, Mark, Slice
from penstock.client import decoding
from penstock.vocabulary.errors import AlreadySettled, NotLeased
from penstock.vocabulary.records import Cause, Ranges

T = TypeVar("T")


class Settler(Protocol):
    """Who takes what was decided about messages to the broker."""

    topic: str
    unsent: int
    """Acks collected and not yet sent. Only a hint: threads may miscount it."""
    unsent_max: int
    """Acks are sent at once when there are this many."""

    def collect(self, hold: "Hold") -> None:
        """The hold has acks to send."""
        ...

    def ack_up_to(self, message: "ReceivedMessage") -> None:
        """Acks everything handed out on the message's partition up to this message."""
        ...

    def give_back(
        self, message: "ReceivedMessage", cause: Cause, delay_s: float | None, reason: str
    ) -> None:
        """Sends the message back to the broker."""
        ...

    def extend(self, message: "ReceivedMessage", seconds: float) -> None:
        """Gives the message more time."""
        ...


class ReceivedMessage(msgspec.Struct, gc=False, eq=False):
    """A message in the hands of the application, until it is acked, nacked or rejected.

    These calls return at once and may come from any thread. A second one on the same message
    raises AlreadySettled; what the broker refuses later is raised by `flush()`.
    """

    _sheet: "Sheet"
    at: int
    """Its number among the messages of this consumer's partition: settling goes by it."""
    body: bytes | None
    """The body; None when the message has none."""
    _is_settled: bool = False

    @property
    def topic(self) -> str:
        """The topic it was published to."""
        return self._sheet.hold.settler.topic

    @property
    def partition(self) -> int:
        """The partition of the topic."""
        return self._sheet.hold.partition

    @property
    def offset(self) -> int | None:
        """Its number in the partition; None when the broker does not number its messages."""
        mark = self._sheet.mark_of(self.at)
        return self.at if mark is None else mark[0]

    @property
    def position(self) -> str:
        """Where it is, as text: a subscription may start here."""
        mark = self._sheet.mark_of(self.at)
        return f"{self._sheet.hold.partition}:{self.at}" if mark is None else mark[1]

    @property
    def id(self) -> str:
        """The id its publisher gave, or the one made from publisher and sequence."""
        sheet = self._sheet
        return sheet.frame.id_of(sheet.view, sheet.index_of(self.at))

    @property
    def key(self) -> bytes | str | None:
        """The key, as it was published."""
        key: bytes | str | None = self._sheet.value(self._sheet.view.keys, self.at)
        return key

    @property
    def headers(self) -> dict[str, str]:
        """The headers; empty when it has none."""
        return self._sheet.value(self._sheet.view.headers, self.at) or {}

    @property
    def priority(self) -> int:
        """The priority; 0 when none was given."""
        return self._sheet.value(self._sheet.view.priorities, self.at) or 0

    @property
    def published_at(self) -> float:
        """Unix seconds of the first publish."""
        sheet = self._sheet
        return sheet.frame.published_at_of(sheet.view, sheet.index_of(self.at)) / 1000

    @property
    def attempt(self) -> int:
        """Which delivery this is, from 1 on; those before it became a dead letter count too."""
        sheet = self._sheet
        return sheet.hold.attempt + (sheet.value(sheet.view.attempts, self.at) or 0)

    @property
    def is_settled(self) -> bool:
        """True once this object was acked, nacked or rejected."""
        return self._is_settled

    def json(self) -> Any:
        """The body as JSON. Raises BodyDoesNotFit."""
        return decoding.decode(self.body, Any)

    def decode(self, kind: type[T]) -> T:
        """The body as this type: Struct, dataclass, pydantic model, dict, list, str or bytes.

        Raises BodyDoesNotFit, naming the field that is wrong.
        """
        value: T = decoding.decode(self.body, kind)
        return value

    def ack(self, cumulative: bool = False) -> None:  # noqa: FBT001, FBT002 - see below
        """Finishes the message; with `cumulative=True` also all handed out before it.

        Cumulative means: on its partition, by this consumer, up to and including this one.
        """
        # Called for each message: an argument by keyword only would cost a fifth more.
        if self._is_settled:
            self._refuse()
        hold = self._sheet.hold
        settler = hold.settler
        if cumulative:
            settler.ack_up_to(self)
            return
        # Between the look above and this line no other thread runs: there is no call in between.
        self._is_settled = True
        hold.acked.append(self.at)
        settler.unsent += 1
        if not hold.is_dirty or settler.unsent >= settler.unsent_max:
            settler.collect(hold)

    def nack(self, *, delay_s: float | None = None, reason: str = "") -> None:
        """Sends the message back; it is delivered again after `delay_s`, or the usual back-off."""
        self._sheet.hold.settler.give_back(self, Cause.NACKED, delay_s, reason)

    def reject(self, reason: str = "") -> None:
        """Sends the message straight to the dead letters: trying again is useless."""
        self._sheet.hold.settler.give_back(self, Cause.REJECTED, 0.0, reason)

    def extend(self, seconds: float) -> None:
        """Asks for so much time, from now on, before the message counts as failed."""
        self._sheet.hold.settler.extend(self, seconds)

    def settle(self) -> None:
        """Notes that this object is settled. Raises AlreadySettled."""
        if self._is_settled:
            self._refuse()
        self._is_settled = True

    def unsettle(self) -> None:
        """Takes `settle` back: the unit it was acked in came to nothing."""
        self._is_settled = False

    def _refuse(self) -> NoReturn:
        if not self._sheet.hold.lease_id:
            raise NotLeased(
                f"message {self.position} of topic {self.topic!r} was only looked at: to settle "
                "it, receive it from a subscription"
            )
        raise AlreadySettled(
            f"message {self.position} of topic {self.topic!r} was settled before: "
            "ack, nack or reject it once"
        )

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.topic} {self.position} attempt {self.attempt}>"


class Sheet:
    """One stored batch and which of its messages are meant."""

    __slots__ = ("_view", "frame", "hold")

    def __init__(self, hold: "Hold", frame: Frame) -> None:
        self.hold = hold
        self.frame = frame
        self._view: Batch | None = None

    @property
    def view(self) -> Batch:
        """The batch, opened when something of it is looked at."""
        if self._view is None:
            self._view = Batch(self.frame.batch, verify=False)
        return self._view

    def bodies(self, low: int = 0, high: int | None = None) -> list[bytes | None]:
        """Bodies of the messages low…high of the frame."""
        every = self.view.bodies
        indexes = self.frame.indexes[low:high]
        if isinstance(indexes, range) and indexes.step == 1:
            if len(indexes) == len(every):
                return every
            return every[indexes.start : indexes.stop]
        return [every[index] for index in indexes]

    def messages(self, low: int = 0, high: int | None = None) -> Iterator[ReceivedMessage]:
        """Messages low…high of the frame."""
        offsets = self.frame.offsets[low:high]
        return map(ReceivedMessage, repeat(self), offsets, self.bodies(low, high))

    def index_of(self, offset: int) -> int:
        """Where a message stands in its batch."""
        frame = self.frame
        return frame.indexes[bisect_left(frame.offsets, offset)]

    def mark_of(self, at: int) -> Mark | None:
        """Where the broker says a message is; None when its number says it."""
        marks = self.frame.marks
        return None if marks is None else marks[self.index_of(at)]

    def value(self, column: Sequence[Any] | None, offset: int) -> Any:
        """What a column says about a message; None when the column is absent."""
        return None if column is None else column[self.index_of(offset)]


class Hold:
    """The messages of one lease: which were handed to the application, which are settled."""

    __slots__ = (
        "acked", "attempt", "count", "done", "end", "frames", "is_dirty", "lease_id", "left",
        "partition", "rest", "round", "settler", "start", "taken", "together",
    )  # fmt: skip

    def __init__(self, settler: Settler, part: Slice) -> None:
        self.settler = settler
        self.lease_id = part.lease_id
        self.partition = part.partition
        self.start = part.start
        self.end = part.end
        self.attempt = part.attempt
        self.frames = part.frames
        self.count = sum(len(frame.offsets) for frame in part.frames)
        self.left = self.count
        """Messages not settled."""
        self.done = 0
        """Bits of the settled messages, from `start` on; acks once they are sent."""
        self.acked: list[int] = []
        """Offsets acked and not yet sent. Threads append; only the settler removes."""
        self.together = -1
        """How many of them were acked by one call; -1 when each was acked alone."""
        self.is_dirty = False
        """The settler knows that there are acks to send."""
        self.round = 0
        """Renewal before which it arrived."""
        self.taken = 0
        """Messages taken out before `rest` was made."""
        self.rest: Iterator[ReceivedMessage] | None = None

    def messages(self) -> Iterator[ReceivedMessage]:
        """The messages not handed out yet, one iterator for whoever hands them out."""
        if self.rest is None:
            made: list[ReceivedMessage] = []
            for sheet, low, high in self._pieces(self.taken, self.count):
                made.extend(sheet.messages(low, high))
            self.rest = iter(made)
        return self.rest

    def all_bits(self) -> int | None:
        """A bit for each message, from `start` on; None when that must be found out."""
        return None

    def take(self, count: int) -> "list[tuple[Sheet, int, int]]":
        """Takes up to so many messages out as pieces (sheet, low, high)."""
        low = self.handed
        high = min(self.count, low + count)
        if self.rest is not None:
            deque(self.rest, maxlen=0)  # empty for everybody who still iterates over it
        self.taken, self.rest = high, None
        return self._pieces(low, high)

    def _pieces(self, low: int, high: int) -> "list[tuple[Sheet, int, int]]":
        pieces: list[tuple[Sheet, int, int]] = []
        at = 0
        for frame in self.frames:
            size = len(frame.offsets)
            first, last = max(low - at, 0), min(high - at, size)
            if first < last:
                pieces.append((Sheet(self, frame), first, last))
            at += size
        return pieces

    def offsets(self, low: int, high: int) -> Iterator[int]:
        """Offsets of the messages low…high, counted from 0."""
        for sheet, first, last in self._pieces(low, high):
            yield from sheet.frame.offsets[first:last]

    def handed_offsets(self) -> Iterator[int]:
        """Offsets of the messages the application was given."""
        return self.offsets(0, self.handed)

    def begun(self) -> Ranges:
        """Where the messages lie that the application was given."""
        return ((self.start, self.first_unhanded),)

    @property
    def handed(self) -> int:
        """How many messages the application was given."""
        # A list's iterator knows what is left, so that handing out need not count.
        return self.taken if self.rest is None else self.count - length_hint(self.rest)

    @property
    def first_unhanded(self) -> int:
        """Offset of the first message that was not handed out; the end when all were."""
        left = self.handed
        for frame in self.frames:
            if left < len(frame.offsets):
                return frame.offsets[left]
            left -= len(frame.offsets)
        return self.end

    @property
    def first_unsettled(self) -> int:
        """Offset of the first message that is not settled."""
        return self.start + (~self.done & (self.done + 1)).bit_length() - 1
