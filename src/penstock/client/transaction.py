"""A transaction: publishes and acks kept here until the block is left, then committed as one unit.

    async with client.transaction() as unit:
        unit.publish("totals", json=total)
        unit.ack(message)

Either everything in it is durable when the block is left, or nothing of it ever happened.
"""

from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

from msgspec import UNSET

from penstock.batch import encode_one
from penstock.client import packing
from penstock.client.gathering import BODY_BYTES_CUT
from penstock.client.publisher import Publisher
from penstock.client.received import ReceivedMessage
from penstock.client.times import moment
from penstock.client.uniting import Load, uniting_of
from penstock.vocabulary import limits, names
from penstock.vocabulary.errors import InvalidArgument, UnitTooLarge, UsageError
from penstock.vocabulary.message import Message, Receipt

PLAIN_BYTES: Final = 48
"""What a message that is only a body takes besides it."""


class Stage(Enum):
    """How far a unit got."""

    NEW = "not entered yet: use 'async with client.transaction() as unit'"
    OPEN = "not committed yet: leave its block first"
    COMMITTING = "being committed"
    COMMITTED = "committed; begin another transaction"
    ABORTED = "aborted; begin another transaction"


_NEW: Final = Stage.NEW
_OPEN: Final = Stage.OPEN
_COMMITTING: Final = Stage.COMMITTING
_COMMITTED: Final = Stage.COMMITTED


class Transaction:
    """One unit of work. `client.transaction()` makes one; it belongs to that client's loop.

    Messages acked in it count as settled while it is open. When it is aborted, or refused, they are
    what they were before: held by their consumer, to be acked or nacked.
    """

    __slots__ = (
        "_load", "_number", "_publisher", "_publishing", "_stage", "acked", "is_single", "items",
        "size",
    )  # fmt: skip

    def __init__(self, publisher: Publisher, publishing: Callable[[], Publisher]) -> None:
        self._publisher = publisher
        self._publishing = publishing
        self._stage = _NEW
        self.items: list[tuple[str, Message | bytes]] = []
        """Topic and message of each publish."""
        self.acked: list[ReceivedMessage] = []
        self.size = 0
        """About how many bytes the messages have."""
        self.is_single = False
        """Messages with an id of their own: the window of each id is looked up for it alone."""
        self._load: Load | None = None
        """With what it was committed, and its number there."""
        self._number = 0

    @property
    def receipts(self) -> list[Receipt]:
        """One receipt for each publish, in their order, once the unit is committed."""
        if self._stage is not _COMMITTED or self._load is None:
            raise UsageError(f"there are no receipts: the unit is {self._stage.value}")
        return self._load.receipts(self._number)

    # -- what is in it ---------------------------------------------------------------------------

    def publish(  # noqa: PLR0913 - as wide as a message
        self, topic: str, body: bytes | str | None = None, *, json: Any = UNSET,
        key: bytes | str | None = None, id: str | None = None,
        headers: dict[str, str] | None = None, priority: int = 0, deliver_at: float | None = None,
        delay_s: float | None = None, expires_at: float | None = None, ttl_s: float | None = None,
    ) -> None:  # fmt: skip
        """Adds a message; it is checked now and stored when the unit is committed.

        Raises TooLarge, UnitTooLarge, InvalidArgument, InvalidName, Unsupported: the message is not
        in the unit then.
        """
        if self._stage is not _OPEN:
            self._check_open()
        if not self._publisher.knows(topic):
            names.check_topic(topic)
        if json is not UNSET:
            body = packing.json_body(body, json)
        is_timed = not (deliver_at is delay_s is expires_at is ttl_s is None)
        has_texts = key is not None or id is not None or headers is not None
        is_bare = not (has_texts or priority or is_timed)
        if is_bare and type(body) is bytes and len(body) <= BODY_BYTES_CUT:
            size = self.size + PLAIN_BYTES + len(body)
            if self.items or self.acked or size > limits.UNIT_BYTES_MAX:
                self._check_size(size)
            self.size = size
            self.items.append((topic, body))
            return
        due = ends = 0
        if priority or id is not None or is_timed:
            now, can = self._publisher.driver.wall, self._publisher.driver.capabilities
            due = moment("deliver_at", deliver_at, "delay_s", delay_s, now)
            ends = moment("expires_at", expires_at, "ttl_s", ttl_s, now)
            packing.refuse_unsupported(can, priority, due or None, ends or None, id)
        message = Message(
            body=body, key=key, id=id, headers=headers, priority=priority,
            deliver_at=due / 1000 if due else None, expires_at=ends / 1000 if ends else None,
        )  # fmt: skip
        batch = encode_one(body, key, id, headers, priority, due, ends)  # type: ignore[arg-type]  # takes text too
        self._check_size(self.size + len(batch))
        self.size += len(batch)
        self.is_single = self.is_single or id is not None
        self.items.append((topic, message))

    def ack(self, message: ReceivedMessage) -> None:
        """Adds an ack. Raises AlreadySettled, UnitTooLarge, InvalidArgument."""
        if self._stage is not _OPEN:
            self._check_open()
        if not isinstance(message, ReceivedMessage):
            raise InvalidArgument(f"ack takes a received message, not {type(message).__name__}")
        if len(self.items) + len(self.acked) >= limits.UNIT_COUNT_MAX:
            self._check_size(self.size)
        message.settle()
        self.acked.append(message)

    def _check_open(self) -> None:
        if self._stage is not Stage.OPEN:
            raise UsageError(f"nothing can be added: the unit is {self._stage.value}")

    def _check_size(self, size: int) -> None:
        count = len(self.items) + len(self.acked) + 1
        if size > limits.UNIT_BYTES_MAX or count > limits.UNIT_COUNT_MAX:
            raise UnitTooLarge(
                f"a unit takes {limits.UNIT_BYTES_MAX} bytes and {limits.UNIT_COUNT_MAX} publishes "
                f"and acks; with this it would have {size} bytes and {count}: commit more often"
            )

    # -- the end ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._stage is not _NEW:
            raise UsageError("a transaction is entered once; begin another one")
        self._stage = _OPEN
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.aborted()
            return
        self._stage = _COMMITTING
        try:
            publisher = self._publishing()
            if self.items and not publisher.driver.has_room():
                await publisher.room()
            answer = uniting_of(publisher).commit(self)
        except BaseException:
            self.aborted()
            raise
        found = await answer
        if found is not None:
            raise found

    def aborted(self) -> None:
        """Nothing of it happened, or nobody knows what did."""
        self._stage = Stage.ABORTED
        for message in self.acked:
            message.unsettle()

    def committed(self, load: Load, number: int) -> None:
        """It is durable; the load has its receipts, under this number."""
        self._stage = _COMMITTED
        self._load, self._number = load, number
