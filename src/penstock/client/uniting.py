"""Units committed at the same moment travel as one.

A unit costs the broker about as much as a batch. So while one is under way, others are gathered
until the loop has run everybody who is ready, and committed together: one record, all or nothing.
When the broker refuses such a load nothing of it was stored, and each half goes by itself, down to
the single unit that is to blame: a unit is only ever refused for its own sake. A lone unit never
waits.
"""

from asyncio import AbstractEventLoop, Future, Task
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from penstock.client import packing
from penstock.client.gathering import fresh
from penstock.client.publisher import Publisher, Route
from penstock.client.receipts import Parcel, Receipts, Sent
from penstock.client.received import Hold, ReceivedMessage
from penstock.client.settling import Settling, by_hold
from penstock.drivers.port import UnitDriver
from penstock.vocabulary.errors import (
    Closed,
    PenstockError,
    StaleMap,
    StorageError,
    Unconfirmed,
)
from penstock.vocabulary.limits import MIB
from penstock.vocabulary.message import Message, Receipt
from penstock.vocabulary.stored import Stored
from penstock.vocabulary.units import Part

COUNT_CUT: Final = 1_000
"""Publishes and acks of units that travel together."""
BYTES_CUT: Final = 1 * MIB

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

    def committed(self, load: "Load", number: int) -> None:
        """It is durable; the load has its receipts, under this number."""
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
        self._gathers = cast("UnitDriver", publisher.driver).gathers_units
        self._flying = 0
        """Loads that are not answered yet."""
        self._is_crowded = False
        """The last load had more than one unit."""
        self._count = self._bytes = 0
        self._units: list[Waiting] = []
        self._waiting: set[Task[None]] = set()
        """Loads that were refused, to be split anew."""

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
                for _, answer in units:
                    if not answer.done():
                        answer.set_result(None)
            elif isinstance(found, StorageError | Unconfirmed | Closed):
                self._refuse(units, found)  # whether it was stored is open: never again
            else:
                self._send_again(units, load, found)

        try:
            load.send(answered)
        except PenstockError as error:
            self._send_again(units, load, error)
        except Exception as error:  # noqa: BLE001 - whoever waits gets whatever went wrong
            self._refuse(units, error)
        else:
            self._flying += 1
            if load.is_empty:
                answered([])

    def _send_again(self, units: list[Waiting], load: "Load", error: Exception) -> None:
        if isinstance(error, StaleMap) and error.topic in load.split:
            self._split_anew(units, load, error)
        else:
            self._divide(units, error)

    def _split_anew(self, units: list[Waiting], load: "Load", refused: StaleMap) -> None:
        """Nothing of these was stored: a topic got more partitions since they were split."""
        publisher = self._publisher
        partitions = load.split[refused.topic]
        route = publisher.known(refused.topic)

        async def send() -> None:
            route.waiting -= 1
            try:
                await publisher.adopt(route, partitions, refused)
            except PenstockError as error:
                self._refuse(units, error)
            else:
                self._send(units)

        route.waiting += 1  # nothing goes out the new way before them
        task = self._loop.create_task(send())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

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
        for unit, answer in units:
            unit.aborted()
            if not answer.done():
                answer.set_result(fresh(error))


class Load:
    """Some units as one: a batch for each topic, a claim for each lease."""

    def __init__(self, units: list[Unit], publisher: Publisher) -> None:
        self._units = units
        self._publisher = publisher
        self._loads: Loads = []
        self._parts: list[Part] = []
        self.split: dict[str, int] = {}
        """For how many partitions each topic was split."""
        self._outputs: dict[str, Receipts] = {}
        """Receipts by topic, once they are there."""
        self._items: list[list[tuple[str, Message | bytes]]] = []
        """What each unit published, once it is committed."""
        self._receipts: list[list[Receipt]] | None = None
        rows = [row for unit in units for row in unit.items]
        topics = {topic for topic, _ in rows}
        self._messages: dict[str, list[Message | bytes]] = {topic: [] for topic in topics}
        for topic, message in rows:
            self._messages[topic].append(message)
        self._held: dict[Settling, list[tuple[Hold, list[int]]]] = {}
        for hold, offsets in by_hold([message for unit in units for message in unit.acked]):
            settling = cast("Settling", hold.settler)  # a unit settles like the consumer does
            self._held.setdefault(settling, []).append((hold, offsets))

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to commit."""
        return not self._messages and not self._held

    def send(self, answered: Callable[[Any], None]) -> None:
        """Hands it to the driver. An error raised here means that nothing of it was stored."""
        if self.is_empty:
            return
        publisher = self._publisher
        for topic, messages in self._messages.items():
            route = publisher.route(topic)
            route.turn += 1
            self.split[topic] = len(route.sequences)
            parcels = packing.pack(
                messages, len(route.sequences), route.turn,
                is_plain=not packing.has_fields(messages),
            )  # fmt: skip
            self._loads.extend((route, parcel) for parcel in parcels)
        claims = [settling.claims_of(rows) for settling, rows in self._held.items()]
        self._parts = publisher.commit(self._loads, claims, answered)

    def finish(self, stored: list[Stored]) -> None:
        """It is durable: every unit is told."""
        sent: dict[str, list[Sent]] = {}
        publisher = self._publisher.id
        for (_, parcel), part, where in zip(self._loads, self._parts, stored, strict=True):
            row = Sent(parcel, publisher, part.epoch, part.sequence, where)
            sent.setdefault(part.topic, []).append(row)
        for topic, rows in sent.items():
            self._outputs[topic] = Receipts(topic, self._messages[topic], rows)
        for settling, held in self._held.items():
            settling.finish(held)
        # Units know their load, so it lets go of them: no work for the garbage collector.
        units, self._units, self._held = self._units, [], {}
        self._items = [unit.items for unit in units]
        for number, unit in enumerate(units):
            unit.committed(self, number)

    def receipts(self, number: int) -> list[Receipt]:
        """One receipt for each publish of a unit, in their order."""
        if self._receipts is None:
            places = dict.fromkeys(self._outputs, 0)
            self._receipts = []
            for items in self._items:
                found: list[Receipt] = []
                for topic, _ in items:
                    found.append(self._outputs[topic][places[topic]])
                    places[topic] += 1
                self._receipts.append(found)
        return self._receipts[number]
