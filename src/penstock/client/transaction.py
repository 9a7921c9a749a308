"""A transaction: publishes and acks kept here until the block is left, then committed as one unit.

    async with client.transaction() as unit:
        unit.publish("totals", json=total)
        unit.ack(message)

Either everything in it is durable when the block is left, or nothing of it ever happened.
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any, Self, cast

from msgspec import UNSET

from penstock.batch import encode_one
from penstock.client import packing
from penstock.client.publisher import Publisher, Route
from penstock.client.receipts import Parcel, Receipts, Sent
from penstock.client.received import ReceivedMessage
from penstock.client.settling import Settling
from penstock.client.times import moment
from penstock.vocabulary import limits, names
from penstock.vocabulary.errors import InvalidArgument, UnitTooLarge, UsageError
from penstock.vocabulary.message import Message, Receipt
from penstock.vocabulary.stored import Stored
from penstock.vocabulary.units import Part


class Stage(Enum):
    """How far a unit got."""

    NEW = "not entered yet: use 'async with client.transaction() as unit'"
    OPEN = "not committed yet: leave its block first"
    COMMITTING = "being committed"
    COMMITTED = "committed; begin another transaction"
    ABORTED = "aborted; begin another transaction"


class Transaction:
    """One unit of work. `client.transaction()` makes one; it belongs to that client's loop.

    Messages acked in it count as settled while it is open. When it is aborted, or refused, they are
    what they were before: held by their consumer, to be acked or nacked.
    """

    def __init__(self, publishing: Callable[[], Publisher]) -> None:
        self._publishing = publishing
        publisher = publishing()
        self._driver = publisher.driver
        self._knows = publisher.knows
        self._stage = Stage.NEW
        self._messages: dict[str, list[Message]] = {}
        """topic → what is published to it."""
        self._order: list[tuple[str, int]] = []
        """(topic, index in its list) of each publish."""
        self._first: dict[str, bytes] = {}
        """topic → its first message, encoded: mostly there is no second."""
        self._acked: list[ReceivedMessage] = []
        self._size = 0
        self._receipts: list[Receipt] = []

    @property
    def receipts(self) -> list[Receipt]:
        """One receipt for each publish, in their order, once the unit is committed."""
        if self._stage is not Stage.COMMITTED:
            raise UsageError(f"there are no receipts: the unit is {self._stage.value}")
        return self._receipts

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
        self._check_open()
        if not self._knows(topic):
            names.check_topic(topic)
        if json is not UNSET:
            body = packing.json_body(body, json)
        due = ends = 0
        if priority or id is not None or not (deliver_at is delay_s is expires_at is ttl_s is None):
            now, can = self._driver.wall, self._driver.capabilities
            due = moment("deliver_at", deliver_at, "delay_s", delay_s, now)
            ends = moment("expires_at", expires_at, "ttl_s", ttl_s, now)
            packing.refuse_unsupported(can, priority, due or None, ends or None, id)
        message = Message(
            body=body, key=key, id=id, headers=headers, priority=priority,
            deliver_at=due / 1000 if due else None, expires_at=ends / 1000 if ends else None,
        )  # fmt: skip
        batch = encode_one(body, key, id, headers, priority, due, ends)  # type: ignore[arg-type]  # takes text too
        self._check_size(self._size + len(batch))
        self._size += len(batch)
        listed = self._messages.setdefault(topic, [])
        if not listed:
            self._first[topic] = batch
        self._order.append((topic, len(listed)))
        listed.append(message)

    def ack(self, message: ReceivedMessage) -> None:
        """Adds an ack. Raises AlreadySettled, UnitTooLarge, InvalidArgument."""
        self._check_open()
        if not isinstance(message, ReceivedMessage):
            raise InvalidArgument(f"ack takes a received message, not {type(message).__name__}")
        self._check_size(self._size)
        message.settle()
        self._acked.append(message)

    def _check_open(self) -> None:
        if self._stage is not Stage.OPEN:
            raise UsageError(f"nothing can be added: the unit is {self._stage.value}")

    def _check_size(self, size: int) -> None:
        count = len(self._order) + len(self._acked) + 1
        if size > limits.UNIT_BYTES_MAX or count > limits.UNIT_COUNT_MAX:
            raise UnitTooLarge(
                f"a unit takes {limits.UNIT_BYTES_MAX} bytes and {limits.UNIT_COUNT_MAX} publishes "
                f"and acks; with this it would have {size} bytes and {count}: commit more often"
            )

    # -- the end ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._stage is not Stage.NEW:
            raise UsageError("a transaction is entered once; begin another one")
        self._stage = Stage.OPEN
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._abort()
            return
        self._stage = Stage.COMMITTING
        try:
            publisher = self._publishing()
            if self._order and not publisher.driver.has_room():
                await publisher.room()
            answer = self._send(publisher)
        except BaseException:
            self._abort()
            raise
        if isinstance(found := await answer, Exception):
            raise found

    def _abort(self) -> None:
        self._stage = Stage.ABORTED
        for message in self._acked:
            message.unsettle()

    def _send(self, publisher: Publisher) -> "Future[Exception | None]":
        """Hands the unit over; what comes of it is noted even if nobody waits any more."""
        answer: Future[Exception | None] = get_running_loop().create_future()
        loads = self._loads(publisher)
        groups = self._settlings()
        parts: list[Part] = []

        def answered(found: list[Stored] | Exception) -> None:
            if isinstance(found, Exception):
                self._abort()
            else:
                self._finish(publisher, loads, parts, found, groups)
            if not answer.done():
                answer.set_result(found if isinstance(found, Exception) else None)

        if not loads and not groups:
            answered([])
            return answer
        claims = [settling.claims_of(messages) for settling, messages in groups.items()]
        parts.extend(publisher.commit(loads, claims, answered))
        return answer

    def _loads(self, publisher: Publisher) -> list[tuple[Route, Parcel]]:
        loads: list[tuple[Route, Parcel]] = []
        for topic, messages in self._messages.items():
            route = publisher.route(topic)
            if len(messages) == 1:
                partition = 0
                if len(route.sequences) > 1:
                    partition = publisher.choose(route, messages[0].key, messages[0].id)
                loads.append((route, Parcel(partition, self._first[topic], range(1))))
                continue
            route.turn += 1
            parcels = packing.pack(messages, len(route.sequences), route.turn, is_plain=False)
            loads.extend((route, parcel) for parcel in parcels)
        return loads

    def _settlings(self) -> dict[Settling, list[ReceivedMessage]]:
        groups: dict[Settling, list[ReceivedMessage]] = {}
        for message in self._acked:
            settler = message._sheet.hold.settler  # noqa: SLF001 - a unit settles it like its own
            groups.setdefault(cast("Settling", settler), []).append(message)
        return groups

    def _finish(
        self, publisher: Publisher, loads: list[tuple[Route, Parcel]], parts: list[Part],
        stored: list[Stored], groups: dict[Settling, list[ReceivedMessage]],
    ) -> None:  # fmt: skip
        sent: dict[str, list[Sent]] = {}
        for (_, parcel), part, where in zip(loads, parts, stored, strict=True):
            row = Sent(parcel, publisher.id, part.epoch, part.sequence, where)
            sent.setdefault(part.topic, []).append(row)
        receipts = {
            topic: Receipts(topic, self._messages[topic], rows) for topic, rows in sent.items()
        }
        self._receipts = [receipts[topic][index] for topic, index in self._order]
        for settling, messages in groups.items():
            settling.finish(messages)
        self._stage = Stage.COMMITTED
