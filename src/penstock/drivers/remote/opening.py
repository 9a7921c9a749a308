"""Making connections: the first one, and each one after a loss, for as long as it takes."""

import asyncio
import logging
import random
from asyncio import AbstractEventLoop, Task
from typing import Final

from penstock.drivers.reasons import GIVES_UP, reason_of
from penstock.drivers.remote.address import Address, parse
from penstock.drivers.remote.driver import RemoteDriver
from penstock.drivers.remote.link import Link
from penstock.vocabulary.errors import PenstockError, ProtocolError, Unavailable, Unsupported
from penstock.wire.frames_hello import Welcome

log = logging.getLogger("penstock.drivers")

BACKOFF_S_FIRST: Final = 0.05
BACKOFF_S_MAX: Final = 2.0
ATTEMPT_S_MAX: Final = 5.0
"""How long one attempt may take, from the first packet to the WELCOME."""
STEADY_S: Final = 1.0
"""A connection that held so long was a good one: the next attempt comes soon again."""
SILENT_S_MAX: Final = 45.0
"""A server that says nothing for so long, although it asks idle clients, is given up."""
WATCH_S: Final = 5.0


async def open_remote(url: str, loop: AbstractEventLoop) -> RemoteDriver:
    """A connection of this loop to the server of a `penstock:` URL.

    Raises InvalidArgument, Unavailable, Unsupported.
    """
    address, timeout_s = parse(url)
    return await open_address(address, loop, timeout_s=timeout_s)


async def open_address(
    address: Address, loop: AbstractEventLoop, *, timeout_s: float, scheme: str = "penstock"
) -> RemoteDriver:
    """A connection to a server at an address; tried for so long. Raises Unavailable."""
    connecting = Connecting(address, loop, scheme)
    try:
        await connecting.first(timeout_s)
    except BaseException:
        await connecting.driver.close()
        raise
    return connecting.driver


class Connecting:
    """Keeps a driver connected."""

    def __init__(self, address: Address, loop: AbstractEventLoop, scheme: str) -> None:
        self.driver = RemoteDriver(loop, scheme, self._lost)
        self._address = address
        self._loop = loop
        self._task: Task[None] | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._backoff_s = BACKOFF_S_FIRST
        self._used_at = 0.0

    async def first(self, timeout_s: float) -> None:
        """Connects for the first time. Raises Unavailable, Unsupported."""
        began = self._loop.time()
        while True:
            try:
                await self._connect(min(timeout_s or ATTEMPT_S_MAX, ATTEMPT_S_MAX))
                return
            except (OSError, Unavailable, ProtocolError) as error:
                tried = self._loop.time() - began
                # A server of another kind stays one.
                is_other = isinstance(error, ProtocolError)
                if is_other or tried + self._backoff_s > timeout_s:
                    hint = "" if is_other else "; is it running?"
                    raise Unavailable(
                        f"no Penstock server at {self._address.text}, tried for {tried:.1f} s: "
                        f"{reason_of(error)}{hint} ({GIVES_UP})"
                    ) from error
            await self._pause()

    async def _connect(self, patience_s: float) -> None:
        """One attempt. Raises OSError, PenstockError."""
        link: Link | None = None

        def make() -> Link:
            nonlocal link
            link = Link(self._loop, self.driver, "penstock-python")
            return link

        try:
            async with asyncio.timeout(patience_s):
                await self._address.open(self._loop, make)
                assert link is not None
                welcome = await link.welcomed
        except TimeoutError as error:
            raise Unavailable("it did not answer in time") from error
        finally:
            if link is not None and link.welcome is None:
                link.welcomed.cancel()
                link.abort()
        self._use(link, welcome)

    def _use(self, link: Link, welcome: Welcome) -> None:
        if self.driver.is_closed or link.is_closed:
            link.abort()
            if not self.driver.is_closed:
                raise Unavailable("the connection was lost at once")
            return
        self._used_at = self._loop.time()
        self.driver.use(link, welcome)
        self._watch()

    async def _pause(self) -> None:
        await asyncio.sleep(self._backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_S_MAX)

    def _lost(self, driver: RemoteDriver) -> None:
        """The connection is gone, or the driver was closed."""
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if driver.is_closed:
            if self._task is not None:
                self._task.cancel()
            return
        if self._loop.time() - self._used_at > STEADY_S:
            self._backoff_s = BACKOFF_S_FIRST
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._again())

    async def _again(self) -> None:
        while not self.driver.is_closed:
            await self._pause()
            try:
                await self._connect(ATTEMPT_S_MAX)
                return
            except Unsupported as error:
                self.driver.fail(error)
                return
            except (OSError, PenstockError) as error:
                log.debug("%s: %s", self._address.text, reason_of(error))

    def _watch(self) -> None:
        link = self.driver.link
        if link is None:
            return
        if self._loop.time() - link.heard_at > SILENT_S_MAX:
            link.fail(Unavailable(f"the server was silent for {SILENT_S_MAX:.0f} s"))
            return
        self._watching = self._loop.call_later(WATCH_S, self._watch)
