"""Publishing under numbers that mean something: exact for ever, however often it is repeated.

A pipeline numbers what it publishes by the offset it came from. A message whose number is not
above the last one its publisher stored in a partition is known: publishing it again changes
nothing, days and restarts later too. On brokers that keep no numbers it is at least once.

`publish` sends each message on its own, since its numbers may have gaps. `publish_run` numbers
messages one after the other and sends them in batches.
"""

from asyncio import Future, get_running_loop
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.batch import encode_many
from penstock.client.client import Client
from penstock.client.publisher import named_id
from penstock.drivers.port import Driver
from penstock.vocabulary import names
from penstock.vocabulary.errors import InvalidArgument, Unsupported
from penstock.vocabulary.message import Message
from penstock.vocabulary.requests import TakeEpoch

FLYING_MAX: Final = 1_000
"""Batches on their way at a time."""
RUN_MESSAGES: Final = 1_000
RUN_BYTES: Final = 1024 * 1024
"""A run is cut into batches of so much. It is repeated whole, and must then be cut the same: a
change of these numbers may repeat or lose messages of a run that was interrupted before it."""
HEADERS_BYTES: Final = 6 * 1024 * 1024
"""The same for headers, few bytes as a rule: bodies, headers and keys have to fit a batch."""


class Numbered:
    """One publisher of one topic and partition, whose numbers rise and may have gaps."""

    def __init__(
        self, client: Client, topic: str, partition: int, *, publisher: str, epoch: int
    ) -> None:
        names.check_topic(topic)
        self._client = client
        self._topic = topic
        self._partition = partition
        self._id = named_id(publisher)
        self._epoch = epoch

    async def publish(self, messages: Iterable[tuple[int, Message]]) -> int:
        """Stores each (number, message), numbers rising; returns how many were new.

        Returns when all are durable. Raises what publishing raises; then it may be repeated whole.
        """
        driver = self._client._opened()  # noqa: SLF001 - a part of the client
        partition = self._partition % driver.partitions(self._topic)
        flying: list[tuple[Future[Any], int]] = []
        last = -1
        new = 0
        for number, message in messages:
            if number <= last:
                raise InvalidArgument(f"numbers must rise: {number} comes after {last}")
            last = number
            while not driver.has_room():
                await self._room(driver)
            flying.append((self._send(driver, partition, number, [message]), 1))
            if len(flying) >= FLYING_MAX:
                new += await _landed(flying)
        return new + await _landed(flying)

    async def publish_run(self, first: int, messages: Sequence[Message]) -> int:
        """Stores messages in batches, numbered `first` and on; returns how many were new.

        `first` is above every number before it, and what is repeated is the whole run, unchanged.
        Returns when all are durable. Raises what publishing raises; then it may be repeated.
        """
        driver = self._client._opened()  # noqa: SLF001 - a part of the client
        partition = self._partition % driver.partitions(self._topic)
        flying: list[tuple[Future[Any], int]] = []
        new = 0
        for start, end in _cut(messages):
            while not driver.has_room():
                await self._room(driver)
            part = messages[start:end]
            flying.append((self._send(driver, partition, first + start, part), len(part)))
            if len(flying) >= FLYING_MAX:
                new += await _landed(flying)
        return new + await _landed(flying)

    def _send(
        self, driver: Driver, partition: int, number: int, messages: Sequence[Message]
    ) -> "Future[Any]":
        future: Future[Any] = get_running_loop().create_future()
        driver.publish(
            self._topic, partition, encode_many(messages), len(messages), self._id, self._epoch,
            number, lambda answer: None if future.done() else future.set_result(answer),
        )  # fmt: skip
        return future

    async def _room(self, driver: Driver) -> None:
        told: Future[Any] = get_running_loop().create_future()
        driver.when_room(told.set_result)
        answer = await told
        if isinstance(answer, Exception):
            raise answer


async def unused_epoch(client: Client, publishers: Iterable[str], at_least: int = 1) -> int:
    """An epoch that none of these publishers has used; `at_least` where none are kept."""
    driver = client._opened()  # noqa: SLF001 - a part of the client
    found = at_least
    with suppress(Unsupported):
        for name in publishers:
            found = max(found, await driver.ask(TakeEpoch(named_id(name), at_least)))
    return found


def _cut(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Where each batch of a run starts and ends: the same, whenever it is asked."""
    start = size = told = 0
    for at, message in enumerate(messages):
        own = len(message.body or b"")
        headers = sum(_size(name) + _size(text) for name, text in (message.headers or {}).items())
        is_full = size + own > RUN_BYTES or told + headers > HEADERS_BYTES
        if at > start and (at - start >= RUN_MESSAGES or is_full):
            yield start, at
            start, size, told = at, 0, 0
        size += own
        told += headers
    if start < len(messages):
        yield start, len(messages)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


async def _landed(flying: list[tuple["Future[Any]", int]]) -> int:
    """Waits for all; returns how many messages were new. Raises the first failure."""
    new = 0
    failure: Exception | None = None
    for future, count in flying:
        answer = await future
        if isinstance(answer, Exception):
            failure = failure or answer
        elif not answer.is_duplicate:
            new += count
    flying.clear()
    if failure is not None:
        raise failure
    return new
