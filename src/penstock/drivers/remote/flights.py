"""Publishes and units that are not answered yet, in the order they were given.

They are sent again, unchanged and in this order, on each new connection until one answers: their
numbers tell the broker what it has stored already.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from penstock.drivers.port import Answer
from penstock.drivers.remote.attachment import RemoteAttachment
from penstock.drivers.remote.link import Link, give
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.limits import MIB, UNITS_KEPT
from penstock.vocabulary.units import UnitWish
from penstock.wire import frames
from penstock.wire.frames import RECENT, RECENT_S_MAX, Type
from penstock.wire.frames_hello import UNIT_MAPS
from penstock.wire.frames_publish import encode_unit, publish_head

FLYING_BYTES_MAX: Final = 16 * MIB
"""Bytes not answered above which publishers wait."""
FLYING_MAX: Final = 16_384
"""Batches not answered above which publishers wait."""


class Flight:
    """One batch under way, or one unit."""

    __slots__ = ("answer", "batch", "claims", "numbers", "partitions", "since", "size", "topic")

    def __init__(
        self, topic: bytes, batch: bytes, numbers: tuple[int, int, bytes, int, int],
        partitions: int, answer: Answer, since: float,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.batch = batch
        self.numbers = numbers
        """Partition, count, publisher, epoch, sequence."""
        self.partitions = partitions
        self.answer = answer
        self.since = since
        self.size = len(batch)
        self.claims: Any = None

    @property
    def is_unit(self) -> bool:
        """True for a unit."""
        return False

    def send(self, link: Link, number: int) -> None:
        """Sends it under a number."""
        head = publish_head(self.topic, *self.numbers, self.partitions, link.refusals)
        flags = RECENT if time.time() - self.since < RECENT_S_MAX else 0
        link.send_pieces(frames.frame_of(Type.PUBLISH, number, [head, self.batch], flags))


class UnitFlight(Flight):
    """One unit under way."""

    __slots__ = ("wish",)

    def __init__(
        self, wish: UnitWish, claims: list[tuple[RemoteAttachment, list[Claim]]], answer: Answer,
        since: float,
    ) -> None:  # fmt: skip
        super().__init__(b"", b"", (0, 0, b"", 0, 0), 0, answer, since)
        self.wish = wish
        self.claims = claims
        self.size = sum(len(part.batch) for part in wish.parts)

    @property
    def is_unit(self) -> bool:
        return True

    def send(self, link: Link, number: int) -> None:
        """Sends it under a number, its claims as the server understands them now."""
        claims = [
            (attachment.channel, [attachment.leases.translate(claim) for claim in listed])
            for attachment, listed in self.claims
        ]
        flags = RECENT if time.time() - self.since < RECENT_S_MAX else 0
        has_maps = link.welcome is not None and UNIT_MAPS in link.welcome.features
        pieces = encode_unit(self.wish, claims, link.refusals, has_maps=has_maps)
        link.send_pieces(frames.frame_of(Type.UNIT, number, pieces, flags))


class Flights:
    """Everything under way, and who waits for room."""

    def __init__(self, next_number: Callable[[], int]) -> None:
        self.flying: dict[int, Flight] = {}
        self._next_number = next_number
        self._bytes = 0
        self._units = 0
        """Units that were sent."""
        self._queued: dict[int, Flight] = {}
        """Not sent: there is no connection, or too many units are under way."""
        self._room: list[Answer] = []

    def has_room(self) -> bool:
        """True when more may come."""
        return self._bytes <= FLYING_BYTES_MAX and len(self.flying) <= FLYING_MAX

    def when_room(self, answer: Answer) -> None:
        """Answers None when more may come."""
        self._room.append(answer)

    def add(self, flight: Flight, link: Link | None) -> None:
        """Sends it, or keeps it until there is a connection."""
        number = self._next_number()
        self.flying[number] = flight
        self._bytes += flight.size
        if link is None or self._queued or link.is_stopping:
            self._queued[number] = flight
            if link is not None and not link.is_stopping:
                self.go_on(link)
        else:
            self._send(number, flight, link)

    def _send(self, number: int, flight: Flight, link: Link) -> bool:
        if flight.is_unit:
            if self._units >= UNITS_KEPT:
                self._queued[number] = flight
                return False
            self._units += 1
        flight.send(link, number)
        return True

    def go_on(self, link: Link) -> None:
        """Sends what waits."""
        queued, self._queued = self._queued, {}
        for number, flight in queued.items():
            if self._queued or not self._send(number, flight, link):
                self._queued[number] = flight

    def send_again(self, link: Link) -> None:
        """A new connection: everything goes out once more, in its order."""
        self._units = 0
        self._queued = dict(self.flying)
        self.go_on(link)

    def hold(self) -> None:
        """The connection is gone."""
        self._units = 0
        self._queued = dict(self.flying)

    def behind(self, number: int, link: Link) -> None:
        """Something before it was refused: it was not looked at, and goes again."""
        flight = self.flying.pop(number, None)
        if flight is not None:
            if flight.is_unit:
                self._units -= 1
            self.flying[number] = flight
            if self._queued or link.is_stopping:
                self._queued[number] = flight
            else:
                self._send(number, flight, link)

    def keep(self, number: int) -> bool:
        """A flight that was refused for now waits for the next connection; False when unknown."""
        return number in self.flying

    def take(self, number: int, link: Link | None) -> Flight | None:
        """A flight was answered."""
        flight = self.flying.pop(number, None)
        if flight is None:
            return None
        self._bytes -= flight.size
        if flight.is_unit and number not in self._queued:
            self._units -= 1
            if self._queued and link is not None and not link.is_stopping:
                self.go_on(link)
        if self._room and self.has_some_room():
            room, self._room = self._room, []
            for answer in room:
                give(answer, None)
        return flight

    def has_some_room(self) -> bool:
        """True when publishers that wait may go on."""
        return self._bytes <= FLYING_BYTES_MAX // 2 and len(self.flying) <= FLYING_MAX // 2

    def end(self, error: Exception) -> None:
        """Nothing will be answered any more."""
        flying, self.flying = self.flying, {}
        room, self._room = self._room, []
        self._queued, self._bytes = {}, 0
        for flight in flying.values():
            give(flight.answer, error)
        for answer in room:
            give(answer, error)
