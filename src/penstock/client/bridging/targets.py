"""Where copies go: in units with the position where the target has transactions, else by number.

A unit stores messages and, in a topic of its own, which numbers of the source they have: after any
stop the target itself says where to go on, so that every message is there once. Without
transactions the same message may be sent again; it carries the same number, and a broker that
remembers numbers for a while stores it once while it does.
"""

from asyncio import Future, get_running_loop
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from penstock.batch import encode_columns, encode_one
from penstock.batch.frame import Frame
from penstock.batch.view import Batch
from penstock.client.bridging.done import Done
from penstock.client.bridging.portion import Portion, picked_columns
from penstock.client.client import Client
from penstock.client.packing import partition_of
from penstock.client.publisher import Publisher, Route, named_id
from penstock.client.receipts import Parcel
from penstock.drivers.port import Capabilities
from penstock.vocabulary import names
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import (
    PenstockError,
    StaleMap,
    TooLarge,
    TopicExists,
    UnknownTopic,
    Unsupported,
)
from penstock.vocabulary.message import Message

POSITIONS: Final = "$bridge.positions"
"""The topic in the target that says how far each copying got."""
RETAIN_S: Final = 3600.0
PUBLISHED_AT: Final = "bridge-published-at"
"""Header of a message from a source without numbers: Unix milliseconds of its first publish."""
PAGE: Final = 1_000
TRIES_MAX: Final = 10
"""How often a unit is split anew while the topic gets more partitions."""


class UnitTarget:
    """A target with transactions: exactly once."""

    def __init__(self, client: Client, topic: str) -> None:
        names.check_topic(topic)
        self._client = client
        self._topic = topic
        self._identity = ""
        self.done = Done()

    async def open(self, identity: str) -> None:
        """Fences whoever copied before, then learns how far that got."""
        self._identity = identity
        await _create_positions(self._client)
        note = Message(key=f"{identity}/opened", body=b"")
        publisher = self._client._publishing()  # noqa: SLF001 - a part of the client
        await _committed(publisher, [self._load(publisher, POSITIONS, note)])
        async for _, frame in held(self._client, POSITIONS):
            for each in _notes(frame, identity):
                self.done = each

    async def store(self, portion: Portion) -> int:
        """Stores all of it and its position as one; returns how many were new."""
        if is_by_id(portion, self._client.capabilities):
            return await publish_by_id(self._client, self._topic, portion)
        if not portion.count:
            return 0
        done = self.done.copy()
        if portion.end:
            done.add(portion.partition, portion.start, portion.end)
        for number in portion.numbers if portion.numbers and not portion.end else ():
            done.add(portion.partition, number, number + 1)
        publisher = self._client._publishing()  # noqa: SLF001
        for _ in range(TRIES_MAX):
            route = publisher.route(self._topic)
            loads = [(route, parcel) for parcel in _parcels(portion, route)]
            if portion.numbers is not None:
                note = Message(key=self._identity, body=done.encoded())
                loads.append(self._load(publisher, POSITIONS, note))
            try:
                await publisher.room()
                await _committed(publisher, loads)
                self.done = done
                return portion.count
            except StaleMap:
                continue  # nothing of it was stored: the topic has more partitions now
            except TooLarge:
                if portion.count == 1:
                    raise
                first, second = portion.halves()
                return await self.store(first) + await self.store(second)
        raise StaleMap(f"topic {self._topic!r} gets more partitions all the time")

    @staticmethod
    def _load(publisher: Publisher, topic: str, message: Message) -> tuple[Route, Parcel]:
        route = publisher.route(topic)
        partition = 0
        if len(route.sequences) > 1:
            partition = publisher.choose(route, message.key, None)
        body = message.body if isinstance(message.body, bytes) else b""
        return route, Parcel(partition, encode_one(body, message.key), range(1))


class NumberTarget:
    """A target without transactions: at least once."""

    def __init__(self, client: Client, topic: str) -> None:
        names.check_topic(topic)
        self._client = client
        self._topic = topic
        self._identity = ""
        self._sent = 0
        """Messages of a source without numbers so far, which get numbers here."""
        self.done = Done()

    async def open(self, identity: str) -> None:
        """Nothing is known about earlier copying."""
        self._identity = identity

    async def store(self, portion: Portion) -> int:
        """Stores all of it; returns how many were new, as far as the target can tell."""
        if is_by_id(portion, self._client.capabilities):
            return await publish_by_id(self._client, self._topic, portion)
        if portion.numbers is None:
            portion = self._numbered(portion)
        assert portion.numbers is not None
        publisher = self._client._publishing()  # noqa: SLF001 - a part of the client
        id = named_id(f"bridge/{self._identity}/{portion.partition}")
        flying: list[tuple[int, Future[Any]]] = []
        failure: Exception | None = None
        try:
            for partition, part in _pieces(portion, publisher.route(self._topic)):
                await publisher.room()
                future: Future[Any] = get_running_loop().create_future()
                batch = encode_columns(picked_columns(portion.columns, part))
                number = portion.numbers[part[0]]
                publisher.driver.publish(
                    self._topic, partition, batch, len(part), id, 0, number, future.set_result
                )
                flying.append((len(part), future))
        except PenstockError as error:
            failure = type(error)(f"near {portion.name(part[0])}: {error.text}", **error.details)
        new = 0
        for count, future in flying:
            answer = await future
            if isinstance(answer, Exception):
                failure = failure or answer
            elif not answer.is_duplicate:
                new += count if answer.kept is None else len(answer.kept)
        if failure is not None:
            raise failure
        return new

    def _numbered(self, portion: Portion) -> Portion:
        """A broker that knows no ids knows no numbers either: any will do."""
        numbers = list(range(self._sent, self._sent + portion.count))
        self._sent += portion.count
        return msgspec.structs.replace(portion, numbers=numbers)


Target = UnitTarget | NumberTarget


def is_by_id(portion: Portion, can: Capabilities) -> bool:
    """True when the target tells by their ids what it has: the source numbers nothing."""
    return portion.numbers is None and can.has_dedup


def with_times_in_headers(portion: Portion) -> Portion:
    """The messages as `publish_by_id` stores them: a header says when each was first published."""
    columns = portion.columns
    times = columns.published_at or [0] * portion.count
    headers: list[Any] = [
        {PUBLISHED_AT: str(times[at]), **((columns.headers[at] if columns.headers else None) or {})}
        for at in range(portion.count)
    ]
    told = msgspec.structs.replace(columns, headers=headers, published_at=None)
    return msgspec.structs.replace(portion, columns=told)


async def publish_by_id(client: Client, topic: str, portion: Portion) -> int:
    """Stores messages of a source without numbers: the target knows their ids for a while."""
    columns = with_times_in_headers(portion).columns
    ids, headers = columns.ids or (), columns.headers or ()
    messages: list[Message] = []
    for at, body in enumerate(columns.bodies):
        messages.append(
            Message(
                body=body, key=columns.keys[at] if columns.keys else None, headers=headers[at],
                id=ids[at],
                priority=columns.priorities[at] if columns.priorities else 0,
                deliver_at=_seconds(columns.deliver_at, at),
                expires_at=_seconds(columns.expires_at, at),
            )
        )  # fmt: skip
    receipts = await client.publish_many(topic, messages)
    return portion.count - len(receipts.duplicates)


async def held(client: Client, topic: str) -> AsyncIterator[tuple[int, Frame]]:
    """Everything a topic holds, partition by partition; looking takes nothing from anybody."""
    try:
        partitions = int((await client.describe_topic(topic))["partitions"])
    except UnknownTopic:
        return
    ask = client._opened().ask  # noqa: SLF001 - a part of the client
    for partition in range(partitions):
        after: int | str = 0
        while True:
            frames = await ask(q.Peek(topic, PAGE, partition, after))
            for number, frame in frames:
                yield number, frame
            if not frames:
                break
            after = _after(frames[-1][1])


def _after(frame: Frame) -> int | str:
    if frame.marks is None:
        return frame.offsets[-1] + 1
    offset, position = frame.marks[frame.indexes[-1]]
    return position if offset is None else offset + 1


def _seconds(column: list[int] | None, at: int) -> float | None:
    return column[at] / 1000 if column and column[at] else None


def _parcels(portion: Portion, route: Route) -> Iterator[Parcel]:
    for partition, indexes in _places(portion, route):
        columns = portion.columns
        if len(indexes) < portion.count:
            columns = picked_columns(columns, indexes)
        yield Parcel(partition, encode_columns(columns), indexes)


def _pieces(portion: Portion, route: Route) -> Iterator[tuple[int, Sequence[int]]]:
    """Messages that go together: of one partition, with numbers that rise one by one."""
    assert portion.numbers is not None
    for partition, indexes in _places(portion, route):
        for low, high in _runs([portion.numbers[at] for at in indexes]):
            yield partition, indexes[low:high]


def _places(portion: Portion, route: Route) -> Iterator[tuple[int, Sequence[int]]]:
    """The messages for each partition; of a partition of the source those without key together."""
    partitions = len(route.sequences)
    every = range(portion.count)
    if partitions == 1:
        yield 0, every
        return
    places: dict[int, list[int]] = {}
    keys = portion.columns.keys or [None] * portion.count
    spread = portion.partition % partitions
    for at in every:
        places.setdefault(partition_of(keys[at], None, partitions, spread), []).append(at)
    yield from places.items()


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Where the numbers rise one by one: a batch numbers its messages so."""
    low = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield low, at
            low = at


async def _committed(publisher: Publisher, loads: list[tuple[Route, Parcel]]) -> None:
    future: Future[Any] = get_running_loop().create_future()
    publisher.commit(loads, [], future.set_result)
    answer = await future
    if isinstance(answer, Exception):
        raise answer


async def _create_positions(client: Client) -> None:
    """Only the newest note of each copying is kept, where the broker can do so."""
    with suppress(TopicExists):
        try:
            await client.create_topic(POSITIONS, keep_last=1, retain_s=RETAIN_S)
        except Unsupported:
            await client.create_topic(POSITIONS)


def _notes(frame: Frame, identity: str) -> Iterator[Done]:
    view = Batch(frame.batch)
    for index in frame.indexes:
        if view.keys is not None and view.keys[index] == identity:
            yield Done.decoded(view.bodies[index])
