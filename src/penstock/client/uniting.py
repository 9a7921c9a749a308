"""Units committed at the same moment travel as one.

A unit costs the broker about as much as a batch. So while one is under way, others are gathered
until the loop has run everybody who is ready, and committed together: one record, all or nothing.
When the broker refuses such a load nothing of it was stored, and each half goes by itself, down to
the single unit that is to blame: a unit is only ever refused for its own sake. A lone unit never
waits.
"""

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from penstock.client import packing
from penstock.client.gathering import fresh
from penstock.client.publisher import Publisher, Route
from penstock.client.receipts import Parcel, Receipts, Sent
from penstock.client.received import ReceivedMessage
from penstock.client.settling import Settling
from penstock.vocabulary.errors import Closed, PenstockError, StorageError, Unconfirmed
from penstock.vocabulary.limits import MIB
from penstock.vocabulary.message import Message
from penstock.vocabulary.stored import Stored
from penstock.vocabulary.units import Part

COUNT_CUT: Final = 1_000
"""Publishes and acks of units that travel together."""
BYTES_CUT: Final = 1 * MIB

Outputs = dict[str, Receipts]
"""Receipts of what the units of one load published, by topic."""
Loads = list[tuple[Route, Parcel]]


class Unit(Protocol):
    """What a transaction tells about itself."""

    items: list[tuple[str, Message | bytes]]
    """Topic and message of each publish."""
    acked: list[ReceivedMessage]
    size: int
    """About how many bytes its messages have."""
    is_single: bool
    """It must go by itself."""

    def committed(self, outputs: Outputs, places: list[int]) -> None:
        """It is durable; `places` tells where each publish is in the receipts of its topic."""
        ...

    def aborted(self) -> None:
        """Nothing of it happened, or nobody knows what did."""
        ...


Waiting = tuple[Unit, "Future[Exception | None]"]
"""A unit and who waits for it."""


def uniting_of(publisher: Publisher) -> "Uniting":
    """The units of a publisher."""
    if publisher.uniting is None:
        publisher.uniting = Uniting(publisher, publisher.loop)
    return publisher.uniting


class Uniting:
    """The units of one client on their way to the broker. Belongs to one event loop."""

    def __init__(self, publisher: Publisher, loop: AbstractEventLoop) -> None:
        self._publisher = publisher
        self._loop = loop
        self._gathers = bool(getattr(publisher.driver, "gathers_units", False))
        self._flying = 0
        """Loads that are not answered yet."""
        self._is_crowded = False
        """The last load had more than one unit."""
        self._count = self._bytes = 0
        self._units: list[Waiting] = []

    def commit(self, unit: Unit) -> "Future[Exception | None]":
        """Hands a unit over; the future gets None, or why nothing of it was stored.

        What comes of it is noted even if nobody waits any more.
        """
        answer: Future[Exception | None] = Future(loop=self._loop)
        if unit.is_single or not self._gathers or not (self._flying or self._is_crowded):
            self.flush()
            self._send([(unit, answer)])
            return answer
        count = len(unit.items) + len(unit.acked)
        if self._count + count > COUNT_CUT or self._bytes + unit.size > BYTES_CUT:
            self.flush()
        if not self._units:
            self._loop.call_soon(self.flush)
            self._publisher.is_held = True
        self._count += count
        self._bytes += unit.size
        self._units.append((unit, answer))
        return answer

    def flush(self) -> None:
        """Sends what was gathered."""
        units = self._units
        if units:
            self._publisher.is_held = False
            self._count = self._bytes = 0
            self._units = []
            self._is_crowded = len(units) > 1
            self._send(units)

    # -- one load ----------------------------------------------------------------------------------

    def _send(self, units: list[Waiting]) -> None:
        load = Load([unit for unit, _ in units], self._publisher)

        def answered(found: list[Stored] | Exception) -> None:
            self._flying -= 1
            if not isinstance(found, Exception):
                load.finish(found)
                _tell(units, None)
            elif isinstance(found, StorageError | Unconfirmed | Closed):
                self._refuse(units, found)  # whether it was stored is open: never again
            else:
                self._divide(units, found)

        try:
            load.send(answered)
        except PenstockError as error:
            self._divide(units, error)
        else:
            self._flying += 1
            if load.is_empty:
                answered([])

    def _divide(self, units: list[Waiting], error: Exception) -> None:
        """Nothing of these was stored: each half again, unless one alone is to blame."""
        half = len(units) // 2
        if not half:
            self._refuse(units, error)
            return
        self._send(units[:half])
        self._send(units[half:])

    @staticmethod
    def _refuse(units: list[Waiting], error: Exception) -> None:
        for unit, _ in units:
            unit.aborted()
        _tell(units, error)


def _tell(units: list[Waiting], error: Exception | None) -> None:
    for _, answer in units:
        if not answer.done():
            answer.set_result(None if error is None else fresh(error))


class Load:
    """Some units as one: a batch for each topic, a claim for each lease."""

    def __init__(self, units: list[Unit], publisher: Publisher) -> None:
        self._units = units
        self._publisher = publisher
        self._messages: dict[str, list[Message | bytes]] = {}
        self._places: list[list[int]] = []
        """Where the publishes of each unit are in the lists of their topics."""
        self._groups: dict[Settling, list[ReceivedMessage]] = {}
        self._loads: Loads = []
        self._parts: list[Part] = []
        for unit in units:
            places: list[int] = []
            for topic, message in unit.items:
                listed = self._messages.get(topic)
                if listed is None:
                    listed = self._messages[topic] = []
                places.append(len(listed))
                listed.append(message)
            self._places.append(places)
            for each in unit.acked:
                # A unit settles a message like its own consumer does.
                settling = cast("Settling", each._sheet.hold.settler)  # noqa: SLF001
                group = self._groups.get(settling)
                if group is None:
                    self._groups[settling] = [each]
                else:
                    group.append(each)

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to commit."""
        return not self._messages and not self._groups

    def send(self, answered: Callable[[Any], None]) -> None:
        """Hands it to the driver. An error raised here means that nothing of it was stored."""
        if self.is_empty:
            return
        publisher = self._publisher
        for topic, messages in self._messages.items():
            route = publisher.route(topic)
            route.turn += 1
            parcels = packing.pack(
                messages, len(route.sequences), route.turn,
                is_plain=not packing.has_fields(messages),
            )  # fmt: skip
            self._loads.extend((route, parcel) for parcel in parcels)
        claims = [settling.claims_of(messages) for settling, messages in self._groups.items()]
        self._parts = publisher.commit(self._loads, claims, answered)

    def finish(self, stored: list[Stored]) -> None:
        """It is durable: every unit learns where its messages are."""
        sent: dict[str, list[Sent]] = {}
        publisher = self._publisher.id
        for (_, parcel), part, where in zip(self._loads, self._parts, stored, strict=True):
            row = Sent(parcel, publisher, part.epoch, part.sequence, where)
            sent.setdefault(part.topic, []).append(row)
        outputs = {
            topic: Receipts(topic, self._messages[topic], rows) for topic, rows in sent.items()
        }
        for settling, messages in self._groups.items():
            settling.finish(messages)
        for unit, places in zip(self._units, self._places, strict=True):
            unit.committed(outputs, places)
