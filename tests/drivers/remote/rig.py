"""A served broker whose connections a test can cut, and which it can stop and start again."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.broker.broker import Broker
from penstock.client.client import Client, connect
from penstock.journal.memory import MemoryDisk
from penstock.server.frames import FramesListener
from penstock.server.frames_limits import FramesLimits
from penstock.vocabulary.message import Durability

T = TypeVar("T")
WAIT_S_MAX = 30.0


class Served:
    """A broker in memory behind a server on a loop of its own."""

    def __init__(self, *, reattach_s: float = 5.0, limits: FramesLimits | None = None) -> None:
        self.disk = MemoryDisk()
        self._reattach_s = reattach_s
        self._limits = limits
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.broker = self._open()
        self.listener = FramesListener(self.broker, port=0, limits=limits)
        self.run(self.listener.start())
        self.port = int(self.listener.address.rpartition(":")[2])

    def _open(self) -> Broker:
        return Broker.open(
            self.disk, durability=Durability.MEMORY, reattach_s=self._reattach_s
        )

    @property
    def url(self) -> str:
        return f"penstock://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> Client:
        return connect(self.url, **options)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S_MAX)

    def call(self, function: Callable[[], T]) -> T:
        async def there() -> T:
            return function()

        return self.run(there())

    def cut(self) -> None:
        """Every connection breaks."""

        def drop() -> None:
            for connection in list(self.listener.connections):
                connection.drop("the test cuts it")

        self.call(drop)

    def stop(self) -> None:
        """The server stops in good order."""
        self.call(self.listener.drain)
        self.run(self.listener.stop())
        self.broker.close()

    def kill(self) -> None:
        """The server dies: what was not durable is lost."""
        self.cut()
        self.run(self.listener.stop())
        self.broker.abandon()

    def start(self) -> None:
        """The server comes back, on the same port, with what its disk has."""
        self.broker = self._open()
        self.listener = FramesListener(self.broker, port=self.port, limits=self._limits)
        self.run(self.listener.start())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self.listener.stop())
        self.broker.close()
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def until(is_true: Callable[[], bool], timeout_s: float = WAIT_S_MAX) -> None:
    """Returns when something is true."""
    async with asyncio.timeout(timeout_s):
        while not is_true():
            await asyncio.sleep(0.002)
