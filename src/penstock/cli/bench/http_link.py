"""A small HTTP client for measurements: one connection, requests one behind the other."""

import asyncio
from collections import deque
from typing import Any, Self

import httptools

Answer = tuple[int, bytes]


class HttpLink(asyncio.Protocol):
    """One connection, kept alive. Answers come in the order of the requests."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: deque[asyncio.Future[Answer]] = deque()
        self._parts: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """A connected link."""
        _, link = await asyncio.get_running_loop().create_connection(cls, host, port)
        return link

    def close(self) -> None:
        """Ends the connection."""
        self._transport.close()

    def request(self, head: bytes, body: bytes = b"") -> "asyncio.Future[Answer]":
        """Sends a request; the future gets status and body. `head` has no length and no end."""
        return self.requests(head, body, 1)[0]

    def requests(self, head: bytes, body: bytes, count: int) -> "list[asyncio.Future[Answer]]":
        """Sends the same request so many times, in one piece."""
        futures = [self._loop.create_future() for _ in range(count)]
        if self._transport.is_closing():
            for future in futures:
                future.set_exception(ConnectionError("the server closed the connection"))
            return futures
        self._waiting.extend(futures)
        one = b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)
        self._transport.write(one * count)
        return futures

    # -- the transport's and the parser's side ---------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Keeps the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Feeds the parser."""
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        """A part of an answer's body."""
        self._parts.append(data)

    def on_message_complete(self) -> None:
        """An answer is whole."""
        answer = (self._parser.get_status_code(), b"".join(self._parts))
        self._parts.clear()
        future = self._waiting.popleft()
        if not future.done():
            future.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing that waits will be answered."""
        for future in self._waiting:
            if not future.done():
                future.set_exception(error or ConnectionError("the server closed the connection"))
        self._waiting.clear()


def head(method: str, path: str, content: str = "application/octet-stream") -> bytes:
    """The head of a request, up to its length."""
    lines = (f"{method} {path} HTTP/1.1", "host: bench", f"content-type: {content}", "")
    return "\r\n".join(lines).encode()
