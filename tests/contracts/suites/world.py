"""A URL under test, and the small words its tests are written in. Time is real: waits are short."""

import asyncio
import re
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import wraps
from threading import Event as ThreadEvent
from threading import Thread
from typing import Any, Self, TypeVar
from uuid import uuid4

import pytest

import penstock
from penstock.client.client import Client
from penstock.client.deliveries import Deliveries
from penstock.client.received import ReceivedMessage
from penstock.drivers.capabilities import MATRIX, Cell, Support
from penstock.vocabulary.errors import Unsupported

T = TypeVar("T")

PATIENCE_S = 30.0
"""How long a condition may take on a loaded machine."""
TEST_S = 60.0
QUIET_S = 0.6
"""Silence that counts as: nothing comes."""


class World:
    """One broker, by its URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.scheme = url.partition(":")[0]

    def client(self, **options: Any) -> Client:
        """A client of it, to be opened."""
        return penstock.connect(self.url, **options)

    def blocking(self) -> Any:
        """A client that is open while the test runs: a broker in memory lives as long."""
        return penstock.connect_blocking(self.url)

    def can(self, row: str) -> bool:
        """Whether the matrix says that this broker does it."""
        return self._column[row].support is not Support.REFUSED

    def is_native(self, row: str) -> bool:
        """Whether the matrix says that this broker does it itself."""
        return self._column[row].support is Support.NATIVE

    @property
    def _column(self) -> dict[str, Cell]:
        return MATRIX["penstock" if self.scheme in {"file", "memory"} else self.scheme]


async def refused(world: World, row: str) -> None:
    """A program that needs this cell is refused when it starts, by name."""
    wanted = f"this program needs {row}, which {world.scheme}: URLs do not have"
    with pytest.raises(Unsupported, match=wanted):
        await world.client(needs=(row,)).open()


Test = Callable[[Any, World, str], None]


def scenario(function: Callable[[Any, World, str], Coroutine[Any, Any, None]]) -> Test:
    """A test written as a coroutine of (self, world, topic)."""

    @wraps(function)
    def test(self: Any, world: World, topic: str) -> None:
        asyncio.run(asyncio.wait_for(function(self, world, topic), TEST_S))

    return test


def given(client: Client, id: str) -> dict[str, Any]:
    """An id for a publish, where the broker takes one."""
    return {"id": id} if client.capabilities.has_dedup else {}


def unique(name: str) -> str:
    """A name no other test uses."""
    return f"{name}-{uuid4().hex[:12]}"


class Elsewhere:
    """A client on a loop of its own, which can stand still as a hanging process does."""

    def __init__(self, world: World) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._going = ThreadEvent()
        self.client = world.client()

    async def __aenter__(self) -> Self:
        self._thread.start()
        await self.do(self.client.open())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.go_on()
        await self.do(self.client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs something there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def subscribe(self, topic: str, name: str, **options: Any) -> Deliveries:
        """A subscription there."""

        async def attach() -> Deliveries:
            return await self.client.subscribe(topic, name, **options)

        return await self.do(attach())

    async def last(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs something there, and at once nothing happens there any more."""
        done: Future[T] = Future()

        async def there() -> None:
            try:
                done.set_result(await work)
            except BaseException as error:
                done.set_exception(error)
                raise
            self._going.wait()

        self._going.clear()
        asyncio.run_coroutine_threadsafe(there(), self._loop)
        return await asyncio.wrap_future(done)

    def freeze(self) -> None:
        """Nothing happens there from now on."""
        self._going.clear()
        self._loop.call_soon_threadsafe(self._going.wait)

    def go_on(self) -> None:
        """It goes on."""
        self._going.set()


@contextmanager
def nobody() -> Iterator[int]:
    """A port where nobody listens, which is nobody else's meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def seconds_told(text: str) -> float:
    """For how long it was tried, as an error says."""
    found = re.search(r"could not be reached in (\d+(?:\.\d)?) s[:;]", text)
    assert found is not None, text
    return float(found[1])


async def first(deliveries: Deliveries) -> ReceivedMessage:
    """The next message, which must come."""
    message = await deliveries.receive(timeout_s=PATIENCE_S)
    assert message is not None, "no message came"
    return message


async def several(deliveries: Deliveries, count: int) -> list[ReceivedMessage]:
    """The next messages, which must come."""
    return [await first(deliveries) for _ in range(count)]


async def nothing(deliveries: Deliveries) -> None:
    """Nothing comes for a while."""
    message = await deliveries.receive(timeout_s=QUIET_S)
    assert message is None, f"{message} came"


async def until(
    condition: Callable[[], Awaitable[Any]], what: str, patience_s: float = PATIENCE_S
) -> Any:
    """Returns what the condition gives, once that is true."""
    ends = time.monotonic() + patience_s
    while True:
        found = await condition()
        if found:
            return found
        assert time.monotonic() < ends, f"{what} did not happen in {patience_s:g} s"
        await asyncio.sleep(0.02)
