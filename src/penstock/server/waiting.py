"""What HTTP answers while the store is still being recovered: not ready, come again."""

import asyncio
import json
import logging
from contextlib import suppress
from typing import Final

log = logging.getLogger("penstock.server")

HEAD_BYTES_MAX: Final = 16 * 1024
HEAD_S: Final = 2.0
CONNECTIONS_MAX: Final = 1_000


class WaitingRoom:
    """A listener that answers every request with 503, and is closed when the real one comes."""

    name = "http"

    def __init__(self, host: str, port: int, why: str) -> None:
        self._host, self._port = host, port
        self._why = why
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self._host}:{self._port}"

    async def start(self) -> None:
        """Listens from now on. Raises OSError."""
        self._server = await asyncio.start_server(
            self._serve, self._host, self._port, limit=HEAD_BYTES_MAX, backlog=128
        )

    def drain(self) -> None:
        """Takes no new connections."""
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        """Ends every connection. Doing so twice is harmless."""
        self.drain()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= CONNECTIONS_MAX:
                await self._answer(reader, writer)
        except asyncio.CancelledError:
            return  # the real listener takes over
        except (OSError, EOFError, TimeoutError, ValueError):
            return  # whoever asked did not finish
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return
        is_alive = head.split(b" ", 2)[1:2] == [b"/healthz"]
        status = b"200 OK" if is_alive else b"503 Service Unavailable"
        row = {"type": "about:blank", "title": "not ready", "status": 503, "code": "not-ready"}
        found = {"status": "starting", "reasons": [self._why]} if is_alive else row
        body = json.dumps({**found, "detail": self._why}).encode()
        kind = b"application/json" if is_alive else b"application/problem+json"
        writer.write(
            b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nretry-after: 1\r\n"
            b"connection: close\r\n\r\n" % (status, kind, len(body))
        )
        if not head.startswith(b"HEAD "):
            writer.write(body)
        await writer.drain()
