"""Publishing for clients that keep no state: the listener is their publisher.

It numbers what it sends as any publisher does, so that nothing of its own is stored twice. A client
that repeats a request after a failure gives its messages ids.
"""

import os
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.loop_mailbox import LoopMailbox
from penstock.vocabulary import names
from penstock.vocabulary.errors import PenstockError, PublisherForgotten, StaleMap, Unavailable
from penstock.vocabulary.limits import MIB, PENDING_BYTES_MAX
from penstock.wire.rest_fields import Fields
from penstock.wire.rest_lines import Bulk, Parcel, bulk, pack
from penstock.wire.rest_messages import bulk_receipt, receipts

TOPICS_MAX: Final = 100_000
"""Topics whose numbers are remembered; the oldest is given up under a new epoch."""
RETRIES_MAX: Final = 5
GATHER_COUNT: Final = 1_000
GATHER_BYTES: Final = 1 * MIB
"""Messages that go together are at most about so many."""

Answer = Callable[[Any], None]


class Route:
    """How far this publisher got in one topic."""

    __slots__ = ("epoch", "sequences", "turn")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.sequences: list[int] = [0]
        self.turn = 0


class Gathered:
    """Messages for one topic that came in the same round of the loop: they go together."""

    __slots__ = ("messages", "replies", "size")

    def __init__(self) -> None:
        self.messages: list[Fields] = []
        self.replies: list[Answer] = []
        self.size = 0


class Publishing:
    """One listener's publishing side. Belongs to its loop."""

    def __init__(self, broker: Broker, mailbox: LoopMailbox, loop: AbstractEventLoop) -> None:
        drawn = os.urandom(16)
        self.id = bytes((drawn[0] & 0xFE,)) + drawn[1:]
        """Even: drawn at random, not made from a name."""
        self._broker = broker
        self._mailbox = mailbox
        self._epoch = 0
        self._routes: dict[str, Route] = {}
        self._loop = loop
        self._gathered: dict[str, Gathered] = {}

    def publish(self, topic: str, fields: Fields, reply: Answer) -> None:
        """Stores one checked message; `reply` gets its receipt as JSON, or an error.

        It waits for others until the end of this round of the loop.
        """
        gathered = self._gathered.get(topic)
        if gathered is None:
            gathered = self._gathered[topic] = Gathered()
            self._loop.call_soon(self._send_gathered, topic)
        gathered.messages.append(fields)
        gathered.replies.append(reply)
        if fields.body is not None:
            gathered.size += len(fields.body)
        if len(gathered.messages) >= GATHER_COUNT or gathered.size >= GATHER_BYTES:
            self._send_gathered(topic)

    def _send_gathered(self, topic: str) -> None:
        gathered = self._gathered.pop(topic, None)
        if gathered is None:
            return  # it was full, or something had to go behind it
        messages, replies = gathered.messages, gathered.replies
        go = partial(self._publish_gathered, topic, messages, replies, 0)
        self._when_room(partial(_answer_all, replies), go)

    def _publish_gathered(
        self, topic: str, messages: list[Fields], replies: list[Answer], tries: int
    ) -> None:
        try:
            route, partitions = self._route(topic)
            route.turn += 1
            size = sum(len(each.body) for each in messages if each.body is not None)
            parcels = pack(bulk(messages, size), partitions, route.turn)
        except PenstockError as error:
            _answer_all(replies, error)
            return
        for parcel in parcels:
            self._publish_parcel(topic, route, parcel, (messages, replies), tries)

    def _publish_parcel(
        self, topic: str, route: Route, parcel: Parcel,
        whole: tuple[list[Fields], list[Answer]], tries: int,
    ) -> None:  # fmt: skip
        messages, replies = whole
        if len(parcel.indexes) < len(messages):
            messages = [messages[index] for index in parcel.indexes]
            replies = [replies[index] for index in parcel.indexes]
        source: list[int] = []

        def answer(stored: Any) -> None:
            if isinstance(stored, StaleMap) and tries < RETRIES_MAX:
                self._publish_gathered(topic, messages, replies, tries + 1)
            elif isinstance(stored, Exception):
                _answer_all(replies, stored)
            else:
                place = (self.id, source[0], source[1])
                ids = [each.id for each in messages]
                made = receipts(topic, parcel.partition, stored, ids, place)
                for reply, said in zip(replies, made, strict=True):
                    reply(said)

        try:
            source.extend(self._send(topic, route, parcel, answer))
        except PenstockError as error:
            answer(error)

    async def publish_many(self, topic: str, found: Bulk, loop: AbstractEventLoop) -> bytes:
        """Stores many messages; returns their receipt as JSON.

        Raises what went wrong; its details tell what was stored nevertheless.
        """
        if topic in self._gathered:
            self._send_gathered(topic)
        ready: Future[Any] = loop.create_future()
        self._when_room(ready.set_result, lambda: ready.set_result(None))
        _raise(await ready)
        route, partitions = self._route(topic)
        route.turn += 1
        parcels = pack(found, partitions, route.turn)
        flying: list[tuple[Parcel, Future[Any]]] = []
        for parcel in parcels:
            future: Future[Any] = loop.create_future()
            flying.append((parcel, future))
            try:
                self._send(topic, route, parcel, _settle(future))
            except PenstockError as error:
                future.set_result(error)
                break
        sent = [(parcel, await future) for parcel, future in flying]
        stored = [pair for pair in sent if not isinstance(pair[1], Exception)]
        failed = next((pair[1] for pair in sent if isinstance(pair[1], Exception)), None)
        if failed is not None:
            raise _partly(failed, stored)
        return bulk_receipt(topic, stored)

    def _route(self, topic: str) -> tuple[Route, int]:
        """How far it got in a topic, which is created when missing, and its partitions."""
        route = self._routes.get(topic)
        if route is None:
            names.check_topic(topic)
        partitions = self._broker.partitions(topic)
        if route is None:
            if len(self._routes) >= TOPICS_MAX:
                self._routes.pop(next(iter(self._routes)))
                self._epoch += 1
            route = self._routes[topic] = Route(self._epoch)
        if len(route.sequences) > partitions:
            self._start_again(route)
        missing = partitions - len(route.sequences)
        if missing:
            route.sequences.extend([0] * missing)
        return route, partitions

    def _start_again(self, route: Route) -> None:
        """Numbers from 0 under a new epoch, so that no id is ever used twice."""
        route.epoch = self._epoch = self._epoch + 1
        route.sequences = [0]

    def _send(self, topic: str, route: Route, parcel: Parcel, answer: Answer) -> tuple[int, int]:
        """Hands a batch to the broker; returns its epoch and number."""
        for _ in range(RETRIES_MAX):
            partitions = len(route.sequences)
            sequence = route.sequences[parcel.partition]
            try:
                self._broker.publish(
                    topic, parcel.partition, parcel.batch, len(parcel.indexes), self.id,
                    route.epoch, sequence, self._mailbox, answer, partitions,
                )  # fmt: skip
            except PublisherForgotten:
                # The topic was made anew, or nothing was published there for days.
                self._start_again(route)
                route.sequences = [0] * partitions
                continue
            except IndexError:
                break
            route.sequences[parcel.partition] = sequence + len(parcel.indexes)
            return route.epoch, sequence
        raise Unavailable(f"topic {topic!r} was created again at this moment; publish once more")

    def _when_room(self, reply: Answer, go: Callable[[], None]) -> None:
        def told(answer: Any) -> None:
            if isinstance(answer, Exception):
                reply(answer)
            else:
                _try(reply, go)

        # Reading a number needs no lock: publishers may be late by one batch each.
        if self._broker.engine.pending_bytes <= PENDING_BYTES_MAX or self._broker.when_room(
            (self._mailbox, told, None)
        ):
            go()


def _try(reply: Answer, go: Callable[[], None]) -> None:
    try:
        go()
    except PenstockError as error:
        reply(error)


def _answer_all(replies: list[Answer], answer: Any) -> None:
    for reply in replies:
        reply(answer)


def _settle(future: "Future[Any]") -> Answer:
    def settle(answer: Any) -> None:
        if not future.done():
            future.set_result(answer)

    return settle


def _raise(answer: Any) -> None:
    if isinstance(answer, Exception):
        raise answer


def _partly(failed: Exception, stored: list[tuple[Parcel, Any]]) -> Exception:
    """The error, with the places of what was stored before it."""
    if not stored or not isinstance(failed, PenstockError):
        return failed
    ranges = [
        [parcel.partition, answer.base, answer.base + len(parcel.indexes) - 1]
        for parcel, answer in stored
        if answer.base is not None
    ]
    count = sum(len(parcel.indexes) for parcel, _ in stored)
    text = f"{failed.text}; {count} of the messages are stored all the same"
    return type(failed)(text, **{**failed.details, "stored": ranges})
