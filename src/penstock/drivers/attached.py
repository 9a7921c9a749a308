"""`file:` on a store that another process has open: attaches to that process.

When the owner goes, the next one to notice opens the store itself and listens in its place. Whoever
attached connects to the socket again, be it its own: so that publishes under way, acks and
consumers go on as after a restart of a server.
"""

import asyncio
import logging
import os
from asyncio import AbstractEventLoop, BaseProtocol, BaseTransport, Future
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from penstock.drivers.owner import socket_path
from penstock.drivers.remote.driver import RemoteDriver
from penstock.drivers.remote.opening import open_address
from penstock.vocabulary.errors import StorageError, StoreInUse, Unavailable

log = logging.getLogger("penstock.drivers")

ATTACH_S_MAX: Final = 5.0
"""How long an owner that starts or stops is waited for."""


class Part(Protocol):
    """A part in a broker of this process."""

    def release(self) -> None:
        """Gives it up; waits until the broker is closed, if it was the last."""
        ...


class OwnerAddress:
    """The socket in a folder, whoever listens there; at worst this process."""

    def __init__(self, folder: Path, take_over: Callable[[], Part]) -> None:
        self._folder = folder
        self._take_over = take_over
        self._taking: Future[Part] | None = None
        self._part: Part | None = None
        self._is_closed = False

    @property
    def text(self) -> str:
        """How people name it."""
        return f"the owner of the store {self._folder}"

    async def open(
        self, loop: AbstractEventLoop, factory: Callable[[], BaseProtocol]
    ) -> tuple[BaseTransport, Any]:
        """Connects to the owner; when there is none, becomes it first. Raises OSError."""
        try:
            return await self._connect(loop, factory)
        except (FileNotFoundError, ConnectionRefusedError):
            await self._own(loop)
            return await self._connect(loop, factory)

    async def _connect(
        self, loop: AbstractEventLoop, factory: Callable[[], BaseProtocol]
    ) -> tuple[BaseTransport, Any]:
        with socket_path(self._folder) as path:
            return await loop.create_unix_connection(factory, path)

    async def _own(self, loop: AbstractEventLoop) -> None:
        """Opens the store in this process. Raises OSError when another one has it."""
        if self._part is not None or self._is_closed:
            raise ConnectionRefusedError(111, "Connection refused")
        if self._taking is None:
            self._taking = loop.run_in_executor(None, self._take_over)
        try:
            # An attempt to connect may end before a long recovery does; the next one finds it.
            part = await asyncio.shield(self._taking)
        except asyncio.CancelledError:
            raise
        except StoreInUse as error:
            self._taking = None
            raise ConnectionRefusedError(111, str(error)) from error
        except StorageError as error:
            self._taking = None
            raise OSError(5, str(error)) from error
        self._taking, self._part = None, part
        log.info("process %d has taken over the store %s", os.getpid(), self._folder)

    async def release(self) -> None:
        """The client is closed: what it has of the store is given up."""
        self._is_closed = True
        taking, self._taking = self._taking, None
        if taking is not None:
            (found,) = await asyncio.gather(taking, return_exceptions=True)
            self._part = found if not isinstance(found, BaseException) else None
        part, self._part = self._part, None
        if part is not None:
            await asyncio.get_running_loop().run_in_executor(None, part.release)


async def open_attached(
    folder: Path, loop: AbstractEventLoop, take_over: Callable[[], Part], in_use: StoreInUse
) -> RemoteDriver:
    """A connection to whoever has the store open. Raises StoreInUse when nobody answers."""
    address = OwnerAddress(folder, take_over)
    try:
        driver = await open_address(address, loop, timeout_s=ATTACH_S_MAX, scheme="file")
    except Unavailable as error:
        await address.release()
        raise StoreInUse(
            f"{in_use.text} (it was asked through {folder / 'socket'} for {ATTACH_S_MAX:g} s and "
            "did not answer)"
        ) from error
    except BaseException:
        await address.release()
        raise
    plain = driver.close

    async def close() -> None:
        await plain()
        await address.release()

    driver.close = close  # type: ignore[method-assign]  # and what it took over
    return driver
