"""Who publishes, and how far it got: identity, sequence numbers, and one answer for each batch.

A batch gets its sequence number in the same breath in which it is handed to the driver, so numbers
rise in the order the broker sees; a batch that is refused at once uses up none.
"""

import os
import time
from asyncio import AbstractEventLoop, Future
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast

from xxhash import xxh3_128_digest

from penstock.batch import encode_many
from penstock.client.gathering import COUNT_CUT as GATHER_COUNT
from penstock.client.gathering import Gathered, fresh
from penstock.client.growth import Flights, landing, repack
from penstock.client.packing import partition_of
from penstock.client.receipts import Parcel, Receipts, Sent, home_of, spelled_place
from penstock.drivers.port import Answer, Attachment, Driver, EpochDriver, UnitDriver
from penstock.vocabulary import names
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import (
    Closed,
    InvalidArgument,
    PenstockError,
    PublisherForgotten,
    PublishFailed,
    StaleMap,
    StorageError,
    Unconfirmed,
    Unsupported,
)
from penstock.vocabulary.limits import ID_BYTES_MAX
from penstock.vocabulary.message import Receipt, render_id
from penstock.vocabulary.requests import TakeEpoch
from penstock.vocabulary.stored import Stored
from penstock.vocabulary.units import Part, UnitWish

if TYPE_CHECKING:
    from penstock.client.uniting import Uniting

ROUTES_MAX: Final = 100_000
"""Topics whose sequence numbers are remembered; the oldest is given up under a new epoch."""


class Route(Flights):
    """How far this publisher got in one topic."""

    __slots__ = ("epoch", "gathered", "id_start", "is_crowded", "sequences", "topic", "turn")

    def __init__(self, topic: str, epoch: int) -> None:
        super().__init__()
        self.topic = topic
        self.epoch = epoch
        self.is_crowded = False
        """The last batch of gathered messages had more than one."""
        self.gathered: Gathered | None = None
        self.id_start = ""
        """What the ids of this publisher's messages start with."""
        self.sequences: list[int] = [0]
        """The next sequence number of each partition."""
        self.turn = 0


class Publisher:
    """One client's publishing side. Belongs to one event loop."""

    def __init__(self, driver: Driver, loop: AbstractEventLoop, name: str | None) -> None:
        self.driver = driver
        self._partitions = driver.partitions
        self._loop = loop
        self._is_named = name is not None
        self.id = generated_id() if name is None else named_id(name)
        self._epoch = 0 if name is None else rising_epoch(self.id)
        # A broker in this process is asked at once, any other by `begin`.
        self._is_begun = name is None or isinstance(driver, EpochDriver)
        if name is not None and isinstance(driver, EpochDriver):
            self._epoch = driver.take_epoch(self.id, self._epoch)
        self._routes: dict[str, Route] = {}
        self._unit_epoch = self._epoch
        self._unit_sequence = 0
        self.uniting: Uniting | None = None
        """The units on their way, once there was one."""
        self.is_held = False
        """Units wait to be sent together; what comes later goes behind them."""

    async def begin(self) -> None:
        """Before the first publish: a named publisher gets an epoch above all others of its name.

        The broker knows them, whatever the clock says. Where it cannot be asked the clock decides.
        """
        if not self._is_begun:
            self._is_begun = True
            with suppress(Unsupported):
                self._epoch = await self.driver.ask(TakeEpoch(self.id, self._epoch))
                self._unit_epoch = self._epoch

    @property
    def loop(self) -> AbstractEventLoop:
        """The loop this publisher belongs to."""
        return self._loop

    def knows(self, topic: str) -> bool:
        """True when something was published to this topic before, so that its name is right."""
        return topic.__class__ is str and topic in self._routes

    def known(self, topic: str) -> Route:
        """The route of a topic that something was published to, as it stands."""
        return self._routes[topic]

    def route(self, topic: str) -> Route:
        """How far this publisher got in a topic. Raises InvalidName for what is no topic."""
        try:
            route = self._routes[topic]
        except (KeyError, TypeError):
            names.check_topic(topic)
            route = self._add_route(topic)
        partitions = self._partitions(topic)
        # Nothing goes out the new way before all that went the old way is answered.
        if len(route.sequences) != partitions and (
            route.is_quiet or partitions < len(route.sequences)
        ):
            self._fit(route, partitions)
        return route

    def _fit(self, route: Route, partitions: int) -> None:
        """The topic was met for the first time, was created again, or got more partitions."""
        if len(route.sequences) > partitions:
            self._start_again(route)
            del route.sequences[partitions:]
        route.sequences.extend([0] * (partitions - len(route.sequences)))

    async def adopt(self, route: Route, partitions: int, refused: StaleMap) -> None:
        """Learns the new partitions of a topic, once nothing sent the old way is under way."""
        await route.settle(self._loop)
        while len(route.sequences) == partitions and (route.flying or route.parcels):
            await route.settle(self._loop)
        self._learn(route, partitions, refused)

    def _learn(self, route: Route, partitions: int, refused: StaleMap) -> None:
        if len(route.sequences) == partitions:  # else somebody did so meanwhile
            now = self._partitions(route.topic)
            self._fit(route, refused.partitions if now == partitions else now)

    def choose(self, route: Route, key: bytes | str | None, id: str | None) -> int:
        """The partition of one message."""
        partitions = len(route.sequences)
        route.turn += 1
        return partition_of(key, id, partitions, route.turn % partitions)

    def _add_route(self, topic: str) -> Route:
        if len(self._routes) >= ROUTES_MAX:
            # A later return to that topic must not repeat numbers, hence the next epoch for all.
            self._routes.pop(next(iter(self._routes)))
            self._epoch += 1
        route = self._routes[topic] = Route(topic, self._epoch)
        route.id_start = render_id(self.id, route.epoch, 0)[:-1]
        return route

    def _start_again(self, route: Route) -> None:
        """Numbers from 0 under a new epoch, so that no id is ever used twice."""
        route.epoch = self._epoch = self._epoch + 1
        route.id_start = render_id(self.id, route.epoch, 0)[:-1]
        route.sequences = [0] * len(route.sequences)

    # -- one message -----------------------------------------------------------------------------

    async def publish_alone(
        self, route: Route, partition: int, batch: bytes, id: str | None,
        key: bytes | str | None = None,
    ) -> Receipt:  # fmt: skip
        """Sends a batch of one message and waits for the receipt."""
        future: Future[Any] = Future(loop=self._loop)
        partitions = len(route.sequences)
        answer = route.parcel(future.set_result)
        try:
            sequence = self.send(route, partition, batch, 1, answer, partitions)
            id_start = route.id_start
            route.parcels += 1
            route.flying += 1
            try:
                stored = await future
            finally:
                route.flying -= 1
                if route.callers is not None:
                    route.landed()
            if isinstance(stored, Exception):
                raise fresh(stored)
        except StaleMap as refused:
            await self.adopt(route, partitions, refused)
            return await self.publish_alone(route, self.choose(route, key, id), batch, id, key)
        offset, position, is_duplicate = spelled_place(stored, partition, 0)
        return Receipt(
            route.topic, home_of(stored, partition, 0), offset, position,
            id or f"{id_start}{sequence:x}", stored.durability, is_duplicate,
        )  # fmt: skip

    def gather(self, topic: str, body: bytes) -> "Future[Receipt] | None":
        """Sends a body together with others of this moment; None when it should go alone."""
        route = self._routes.get(topic) if topic.__class__ is str else None
        if route is None:
            return None
        gathered = route.gathered
        if gathered is None:
            if not (route.flying or route.is_crowded) or not self.driver.has_room():
                return None
            gathered = route.gathered = Gathered(topic)
            self._loop.call_soon(self._send_gathered, route, gathered)
        future: Future[Receipt] = Future(loop=self._loop)
        bodies = gathered.bodies
        bodies.append(body)
        gathered.futures.append(future)
        route.flying += 1
        if len(bodies) == GATHER_COUNT:
            self._send_gathered(route, gathered)
        return future

    def _send_gathered(self, route: Route, gathered: Gathered) -> None:
        if route.gathered is not gathered:
            return  # it became full, or something had to go behind it
        route.gathered = None
        route.is_crowded = len(gathered.bodies) > 1
        self._hand_over(route, gathered)

    def _hand_over(self, route: Route, gathered: Gathered) -> None:
        count = len(gathered.bodies)
        partitions = 0

        def answer(stored: Any) -> None:
            route.flying -= count
            if type(stored) is StaleMap:
                self._gather_anew(route, gathered, partitions, stored)
                return
            if route.callers is not None:
                route.landed()
            gathered.answer(stored)

        try:
            self.route(route.topic)  # the topic may have been created again meanwhile
            partitions = len(route.sequences)
            if partitions > 1:
                gathered.partition = self.choose(route, None, None)
            batch = encode_many(gathered.bodies)
            gathered.sequence = self.send(
                route, gathered.partition, batch, count, answer, partitions
            )
            gathered.id_start = route.id_start
        except PenstockError as error:
            answer(error)

    def _gather_anew(
        self, route: Route, gathered: Gathered, partitions: int, refused: StaleMap
    ) -> None:
        """Sends refused bodies the new way, once nothing sent the old way is under way."""

        def send() -> None:
            route.waiting -= 1
            try:
                self._learn(route, partitions, refused)
            except PenstockError as error:
                gathered.answer(error)
                return
            route.flying += len(gathered.bodies)
            self._hand_over(route, gathered)

        route.waiting += 1
        route.when_landed(send)

    # -- any batch -------------------------------------------------------------------------------

    def send(
        self, route: Route, partition: int, batch: bytes, count: int, answer: Answer,
        partitions: int,
    ) -> int:  # fmt: skip
        """Hands a batch, split for so many partitions, to the driver; returns its sequence number.

        An error raised here means that it was certainly not stored.
        """
        if self.is_held and self.uniting is not None:
            self.uniting.flush()  # they came first
        if route.gathered is not None:
            self._send_gathered(route, route.gathered)  # it came first
        if len(route.sequences) != partitions:
            raise StaleMap("the topic has other partitions now", partitions=len(route.sequences))
        sequence = route.sequences[partition]
        try:
            self.driver.publish(
                route.topic, partition, batch, count, self.id, route.epoch, sequence, answer,
                partitions,
            )  # fmt: skip
        except PublisherForgotten:
            # The topic is new, or this publisher was idle for days. Every batch is sent once
            # only, so nothing can be stored twice by beginning anew.
            if self._is_named:
                raise
            self._start_again(route)
            sequence = 0
            self.driver.publish(
                route.topic, partition, batch, count, self.id, route.epoch, 0, answer, partitions
            )
        route.sequences[partition] = sequence + count
        return sequence

    def commit(
        self, loads: list[tuple[Route, Parcel]], claims: list[tuple[Attachment, list[Claim]]],
        answer: Answer,
    ) -> list[Part]:  # fmt: skip
        """Hands a unit to the driver; returns its batches with their numbers.

        An error raised here means that nothing of it was stored. Raises StaleMap.
        """
        split = [len(route.sequences) for route, _ in loads]
        for route, _ in loads:
            if route.gathered is not None:
                self._send_gathered(route, route.gathered)  # it came first
        for (route, _), partitions in zip(loads, split, strict=True):
            if len(route.sequences) != partitions:
                raise StaleMap(
                    "the topic has other partitions now", partitions=len(route.sequences),
                    topic=route.topic,
                )  # fmt: skip
        try:
            return self._commit(loads, claims, answer)
        except PublisherForgotten:
            # As in `send`: every unit is sent once only.
            if self._is_named:
                raise
            for topic in {route.topic for route, _ in loads}:
                self._start_again(self._routes[topic])
            self._epoch += 1
            self._unit_epoch, self._unit_sequence = self._epoch, 0
            return self._commit(loads, claims, answer)

    def _commit(
        self, loads: list[tuple[Route, Parcel]], claims: list[tuple[Attachment, list[Claim]]],
        answer: Answer,
    ) -> list[Part]:  # fmt: skip
        ends: dict[tuple[str, int], int] = {}
        parts: list[Part] = []
        for route, (partition, batch, indexes) in loads:
            place = (route.topic, partition)
            sequence = ends.get(place, route.sequences[partition])
            ends[place] = sequence + len(indexes)
            parts.append(
                Part(
                    route.topic, partition, batch, len(indexes), route.epoch, sequence,
                    len(route.sequences),
                )
            )  # fmt: skip
        wish = UnitWish(self.id, self._unit_epoch, self._unit_sequence, parts)
        routes = {route.topic: route for route, _ in loads}.values()
        cast("UnitDriver", self.driver).commit_unit(wish, claims, landing(routes, answer))
        for route in routes:
            route.parcels += 1
        self._unit_sequence += 1
        for (topic, partition), end in ends.items():
            self._routes[topic].sequences[partition] = end
        return parts

    async def room(self) -> None:
        """Returns when the broker takes more. Raises StoreFailed."""
        while not self.driver.has_room():
            told: Future[Any] = self._loop.create_future()
            self.driver.when_room(told.set_result)
            answer = await told
            if isinstance(answer, Exception):
                raise answer

    async def send_all(self, route: Route, messages: Any, parcels: list[Parcel]) -> Receipts:
        """Sends batches one behind the other and waits for all. Raises PublishFailed."""
        fate = Fate()
        while parcels:
            partitions = len(route.sequences)
            await self._send_parcels(route, parcels, partitions, fate)
            parcels = []
            if fate.stale is not None and fate.failure is None:
                try:
                    await self.adopt(route, partitions, fate.stale)
                    parcels = repack(messages, fate.moved, len(route.sequences), route.turn)
                except PenstockError as error:
                    fate.failure = error
            if not parcels:
                fate.refused.extend(fate.moved)
            fate.stale, fate.moved = None, []
        if fate.failure is not None:
            raise fate.error() from fate.failure
        return Receipts(route.topic, messages, fate.sent)

    async def _send_parcels(
        self, route: Route, parcels: list[Parcel], partitions: int, fate: "Fate"
    ) -> None:
        waiting: list[tuple[Parcel, int, int, Future[Any]]] = []
        for parcel in parcels:
            if fate.failure is None and fate.stale is None:
                try:
                    await self.room()
                    future = self._loop.create_future()
                    number = self.send(
                        route, parcel.partition, parcel.batch, len(parcel.indexes),
                        route.parcel(future.set_result), partitions,
                    )  # fmt: skip
                    route.parcels += 1
                    waiting.append((parcel, route.epoch, number, future))
                    continue
                except PenstockError as error:
                    fate.note(error)
            (fate.refused if fate.failure else fate.moved).extend(parcel.indexes)
        for parcel, epoch, number, future in waiting:
            answer: Stored | Exception = await future
            if not isinstance(answer, Exception):
                fate.sent.append(Sent(parcel, self.id, epoch, number, answer))
            elif isinstance(answer, StaleMap):
                fate.note(answer)
                fate.moved.extend(parcel.indexes)
            else:
                fate.note(answer)
                # A store that failed half-way, a broker that fell silent and a client that was
                # closed before its server answered leave the fate of a batch open.
                is_open = isinstance(answer, StorageError | Unconfirmed | Closed)
                (fate.unknown if is_open else fate.refused).extend(parcel.indexes)


class Fate:
    """What became of the messages of a list, by their indexes."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.refused: list[int] = []
        self.unknown: list[int] = []
        self.moved: list[int] = []
        """Refused because the topic has other partitions now: to be split anew."""
        self.stale: StaleMap | None = None
        self.failure: Exception | None = None

    def note(self, error: Exception) -> None:
        """Remembers the first of each kind."""
        if isinstance(error, StaleMap):
            self.stale = self.stale or error
        else:
            self.failure = self.failure or error

    def error(self) -> PublishFailed:
        """What the caller is told."""
        confirmed = sorted(index for each in self.sent for index in each.parcel.indexes)
        return PublishFailed(
            f"{len(confirmed)} messages are confirmed, {len(self.refused)} were not stored, the "
            f"fate of {len(self.unknown)} is unknown: {self.failure}",
            confirmed=confirmed,
            refused=sorted(self.refused),
            unknown=sorted(self.unknown),
        )


# -- identity ------------------------------------------------------------------------------------


def generated_id() -> bytes:
    """A publisher id nobody else has; the low bit of its first byte is 0."""
    drawn = bytearray(os.urandom(16))
    drawn[0] &= 0xFE
    return bytes(drawn)


def named_id(name: str) -> bytes:
    """The publisher id of a name; the low bit of its first byte is 1. Raises InvalidArgument."""
    if not isinstance(name, str) or not 0 < len(name.encode()) <= ID_BYTES_MAX:
        raise InvalidArgument(
            f"publisher must be a name of 1 to {ID_BYTES_MAX} bytes, not {name!r:.80}"
        )
    drawn = bytearray(xxh3_128_digest(name.encode()))
    drawn[0] |= 1
    return bytes(drawn)


_epochs: Final[dict[bytes, int]] = {}
_epochs_lock: Final = Lock()


def rising_epoch(publisher: bytes) -> int:
    """Milliseconds now, and above every epoch this process gave the publisher before."""
    with _epochs_lock:
        epoch = max(time.time_ns() // 1_000_000, _epochs.get(publisher, 0) + 1)
        _epochs[publisher] = epoch
        return epoch
