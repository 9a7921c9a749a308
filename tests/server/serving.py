"""A whole server in a thread of the test, on free ports of this machine."""

import asyncio
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self

from penstock.drivers.embedded import open_folder
from penstock.drivers.owner import bound, remove_socket
from penstock.server.places import Place
from penstock.server.server import Places, Server
from penstock.server.settings import ServeSettings, Settings


def any_places() -> Places:
    """Three free ports."""
    names = ("frames", "lines", "http")
    return Places(*(Place.keep("127.0.0.1", 0, name, "--port") for name in names))


class Served:
    """Serves a folder while the block lasts; stops it in good order at its end."""

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.folder = folder
        self.settings = settings or Settings(serve=ServeSettings(drain_s=0.2, reattach_s=0.2))
        self.addresses: dict[str, str] = {}
        self._ready = Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = Thread(target=self._run, name="served", daemon=True)
        self._error: BaseException | None = None

    @property
    def url(self) -> str:
        return f"penstock://{self.addresses['frames']}"

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except BaseException as error:  # noqa: BLE001 - told to the test
            self._error = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self._ready.set()

    async def _main(self) -> None:
        server = Server(
            self.settings, any_places(), before_close=lambda: remove_socket(self.folder)
        )
        try:
            reattach_s = self.settings.serve.reattach_s
            await server.open(lambda: open_folder(self.folder, reattach_s))
            await server.start(bound(self.folder), str(self.folder / "socket"))
            self.addresses = server.addresses
            self._ready.set()
            await self._stop.wait()
            await server.drain()
        finally:
            await server.stop()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._error is not None and error is None:
            raise self._error
