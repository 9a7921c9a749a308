"""The socket in a store's folder, through which other processes use the store while it is open.

Whoever opened the store listens there. Binding costs next to nothing: what serves connections is
imported and started only when the first one comes. The folder is named by a descriptor, because
the path of a socket may have no more than about a hundred bytes.
"""

import asyncio
import logging
import os
import select
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Final

log = logging.getLogger("penstock.drivers")

SOCKET: Final = "socket"
BACKLOG: Final = 128
PATH_BYTES_MAX: Final = 100

Serve = Callable[[socket.socket, asyncio.Event], Awaitable[None]]
"""Serves the connections of a bound socket until the event is set; then ends them."""


@contextmanager
def socket_path(folder: Path) -> Iterator[str]:
    """A short path of the socket in a folder, for as long as the block lasts. Raises OSError."""
    if not os.path.isdir("/proc/self/fd"):  # noqa: PTH112 - a question, not a path to keep
        path = str(folder / SOCKET)
        if len(os.fsencode(path)) > PATH_BYTES_MAX:
            raise OSError(36, "File name too long", path)
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def bound(folder: Path) -> socket.socket:
    """A listening socket in a folder, for its owner only. Raises OSError.

    The caller has claimed the store, so that a socket which is there is one of a dead owner.
    """
    with socket_path(folder) as path:
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)  # noqa: PTH108 - a path through a descriptor
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Before it has a name, so that nobody else can ever connect.
            os.fchmod(found.fileno(), 0o600)
            found.bind(path)
            found.listen(BACKLOG)
            found.setblocking(False)  # noqa: FBT003 - its signature
        except BaseException:
            found.close()
            raise
    return found


def remove_socket(folder: Path) -> None:
    """Takes the name of the socket away; the caller still has the store."""
    with suppress(OSError):
        (folder / SOCKET).unlink()


class OwnerSocket:
    """Listens in a store's folder from construction to `close`. Any thread."""

    def __init__(self, folder: Path, serve: Serve) -> None:
        self._folder = folder
        self._serve = serve
        self._guard = Lock()
        # Only the number: a socket object that nobody closes would complain at the end.
        self._socket = bound(folder).detach()
        self._read, self._write = os.pipe2(os.O_CLOEXEC)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._is_closed = False
        self._thread = Thread(target=self._run, name="penstock-owner", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._read, select.POLLIN)
        poll.poll()
        if self._is_closed:
            return
        try:
            asyncio.run(self._main())
        except Exception:
            log.exception("other processes cannot use the store %s any more", self._folder)

    async def _main(self) -> None:
        with self._guard:
            if self._is_closed:
                return
            self._loop = asyncio.get_running_loop()
            self._stopped = asyncio.Event()
            listening = socket.socket(fileno=self._socket)
            self._socket = -1
        try:
            await self._serve(listening, self._stopped)
        finally:
            listening.close()

    def close(self) -> None:
        """Ends all connections and takes the socket away. Doing so twice is harmless."""
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
            loop, stopped = self._loop, self._stopped
        remove_socket(self._folder)
        if loop is not None and stopped is not None:
            with suppress(RuntimeError):  # its loop ended by itself
                loop.call_soon_threadsafe(stopped.set)
        os.write(self._write, b"x")
        self._thread.join()
        self.forget()

    def forget(self) -> None:
        """Closes the descriptors and nothing else: all a forked child may do."""
        self._is_closed = True
        for name in ("_socket", "_read", "_write"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                setattr(self, name, -1)
                with suppress(OSError):
                    os.close(descriptor)
