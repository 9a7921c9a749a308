"""A proxy that can fall silent: it goes on to take what is sent, and passes nothing on."""

import asyncio
from types import TracebackType
from typing import Self


class Swallowing:
    """Between a client and its broker. New connections are passed on, also after `swallow`."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._lines: list[Line] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for line in self._lines:
            await line.close()

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    @property
    def connections(self) -> int:
        """How many there were."""
        return len(self._lines)

    def swallow(self) -> None:
        """Nothing passes any more on the connections there are."""
        for line in self._lines:
            line.is_silent = True

    def cut(self) -> None:
        """Ends the connections there are."""
        for line in self._lines:
            line.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._lines.append(Line(reader, writer, far_reader, far_writer))


class Line:
    """One connection, passed on in both directions."""

    def __init__(
        self,
        near: asyncio.StreamReader,
        near_writer: asyncio.StreamWriter,
        far: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        self.is_silent = False
        self._writers = (near_writer, far_writer)
        self._tasks = [
            asyncio.create_task(self._pass(near, far_writer)),
            asyncio.create_task(self._pass(far, near_writer)),
        ]

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                if not self.is_silent:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
