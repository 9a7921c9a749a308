"""A broker with a clock the test moves, behind a server on a loop of its own; clients over TCP.

Tests that run on it are the same as on any other broker: moving the time waits until what clients
have sent is done, and what the broker has sent can be read.
"""

import asyncio
import threading
import time
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from penstock.client.blocking import BlockingClient
from penstock.client.client import Client, check_options
from penstock.drivers.remote.address import parse
from penstock.drivers.remote.driver import RemoteDriver
from penstock.drivers.port import Driver
from penstock.drivers.remote.opening import Connecting, open_remote
from penstock.server.frames import FramesListener
from penstock.server.frames_limits import FramesLimits
from penstock.testing import MemoryBroker

T = TypeVar("T")
WAIT_S_MAX = 20.0


class ServerLoop:
    """An event loop in a thread, for a server."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="server", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S_MAX)

    def call(self, function: Callable[[], T]) -> T:
        async def there() -> T:
            return function()

        return self.run(there())

    def stop(self) -> None:
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class RemoteBroker(MemoryBroker):
    """The same broker at the other end of a connection."""

    def __init__(self, limits: FramesLimits | None = None) -> None:
        super().__init__()
        self._drivers: list[RemoteDriver] = []
        self.server = ServerLoop()
        self.listener = FramesListener(self.broker, port=0, limits=limits)
        self.server.run(self.listener.start())

    @property
    def url(self) -> str:
        return f"penstock://{self.listener.address}"

    def client(self, **options: Any) -> Client:
        check_options(options)
        client = EagerClient(self.url, self._open_remote, **options)
        client.world = self
        self._clients.append(client)
        return client

    def client_blocking(self, **options: Any) -> BlockingClient:
        client = Client(self.url, self._open_remote, **options)
        self._clients.append(client)
        return BlockingClient(client)

    async def _open_remote(self) -> RemoteDriver:
        return self._known(await open_remote(self.url, get_running_loop()))

    def connect_soon(self, loop: AbstractEventLoop) -> RemoteDriver:
        """A driver that is not connected yet."""
        connecting = Connecting(parse(self.url)[0], loop, "penstock")
        connecting.driver.capabilities = self.capabilities
        connecting._lost(connecting.driver)
        return self._known(connecting.driver)

    def _known(self, driver: RemoteDriver) -> RemoteDriver:
        driver.time = lambda: 0.0  # the broker's time stands still between moves
        driver.wall_base = (driver.wall_base[0], 0.0)
        self._drivers.append(driver)
        return driver

    # -- moving the time -------------------------------------------------------------------------

    def settle(self) -> None:
        self._until_heard()
        super().settle()
        self.server.call(lambda: None)  # what the broker posted has been written
        self._until_heard()
        super().settle()

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self.server.call(self.listener.tell_time)
        for client in self._clients:
            client.catch_up()

    def _until_heard(self) -> None:
        """Waits until the server has handled every frame that was sent."""
        deadline = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < deadline:
            for driver in self._drivers:
                if driver.link is not None and driver._thread == threading.get_ident():
                    driver.link.flush()
            sent = sum(d.link.sent for d in self._drivers if d.link is not None)
            if self.server.call(self._heard) >= sent:
                return
            time.sleep(0.0005)

    def _heard(self) -> int:
        return sum(connection.reader.frames for connection in self.listener.connections)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self.server.run(self.listener.stop())
        self.server.stop()


class EagerClient(Client):
    """Can be used before it is opened, as a client of a broker in this process can."""

    world: RemoteBroker

    def _opened(self) -> Driver:
        if self._driver is None and not self._is_closed:
            loop = get_running_loop()
            self.attach_to(self.world.connect_soon(loop), loop)
        return super()._opened()
