"""A small HTTP server: whole requests in, whole answers out, one at a time on a connection.

It knows nothing of readings. Everything a peer may cost has a limit: the size of heads and bodies,
how long a request may take to arrive, how many connections there are.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import unquote

import httptools
import msgspec

HEAD_BYTES_MAX: Final = 32 * 1024
BODY_BYTES_MAX: Final = 32 * 1024 * 1024
CONNECTIONS_MAX: Final = 1_000
REQUEST_S: Final = 30.0
"""How long a request may take to arrive, and a connection may stay idle."""
LINGER_S: Final = 5.0
"""How long a peer that was refused may go on sending: closed at once, it would miss the answer."""
OFFER: Final = frozenset({"connection", "upgrade", "http2-settings"})
"""Headers with which a client offers to speak another protocol."""
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Request(msgspec.Struct):
    """A request that arrived whole."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


class Answer(msgspec.Struct):
    """What goes back: JSON."""

    status: int
    content: Any
    headers: dict[str, str] = {}

    def encoded(self, *, is_last: bool, has_body: bool = True) -> bytes:
        """The bytes of the answer; that to HEAD tells the length of its body, and has none."""
        body = msgspec.json.encode(self.content)
        lines = [
            f"HTTP/1.1 {self.status} {REASONS[self.status]}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            f"connection: {'close' if is_last else 'keep-alive'}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body if has_body else b"")


Handler = Callable[[Request], Awaitable[Answer]]


def problem(status: int, *details: dict[str, str]) -> Answer:
    """An answer that says what is wrong."""
    return Answer(
        status, {"status": str(status), "message": REASONS[status], "details": list(details)}
    )


class Connection(asyncio.Protocol):
    """One peer."""

    def __init__(self, handler: Handler, connections: set["Connection"]) -> None:
        self._handler = handler
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._requests: deque[tuple[Request, bool]] = deque()
        """Whole requests that wait for their turn, and whether each is the last one."""
        self._refusal: Answer | None = None
        """What is said after the answers that come before it."""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting = b""
        self._is_refused = False
        self._begin()

    def _begin(self) -> None:
        self._url = b""
        self._head_size = 0
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_size = 0

    # -- the connection -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._connections) >= CONNECTIONS_MAX:
            self._refuse(503, "too many connections; try again later")
            transport.close()
            return
        self._connections.add(self)
        self._restart_timer()

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._task is not None:
            self._waiting += data  # the next request; reading is paused, so this is little
            return
        self._feed(data)

    def close(self) -> None:
        """Closes the connection once the answer in hand is sent."""
        self._is_refused = True
        self._requests.clear()
        if self._task is None and self._transport is not None:
            self._transport.close()

    def _feed(self, data: bytes) -> None:
        while data:
            data = self._fed(data)

    def _fed(self, data: bytes) -> bytes:
        """Parses; returns what is to be parsed once more."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            return self._declined(data[offer.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(400, f"this is not HTTP: {error}")
        return b""

    def _declined(self, rest: bytes) -> bytes:
        """A request that offers another protocol, without that offer, and what comes after it.

        Many clients offer HTTP/2 and take no for an answer; the parser skips the body then.
        """
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(400, "this server is no proxy")
            return b""
        kept = [(name, text) for name, text in self._headers.items() if name not in OFFER]
        lines = [method + b" " + self._url + b" HTTP/1.1"]
        lines += [f"{name}: {text}".encode("latin-1") for name, text in kept]
        self._parser = httptools.HttpRequestParser(self)
        self._begin()
        return b"\r\n".join(lines) + b"\r\n\r\n" + rest

    # -- the request, as httptools tells it ------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        length = self._headers.get("content-length", "0")
        if length.isdigit() and int(length) > BODY_BYTES_MAX:
            self._refuse(413, f"a body has at most {BODY_BYTES_MAX} bytes; send it in parts")
            return
        if self._parser.should_upgrade():
            return
        is_asked = self._headers.get("expect", "").lower() == "100-continue"
        if is_asked and self._transport and self._task is None:  # else before the answer in hand
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._body_size += len(data)
        if self._body_size > BODY_BYTES_MAX:
            self._body.clear()
            self._refuse(413, f"a body has at most {BODY_BYTES_MAX} bytes; send it in parts")
            return
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self._is_refused or self._transport is None or self._parser.should_upgrade():
            return
        self._stop_timer()
        self._transport.pause_reading()
        path, _, query = self._url.decode("latin-1").partition("?")
        method = self._parser.get_method().decode("latin-1")
        request = Request(method, unquote(path), query, self._headers, b"".join(self._body))
        is_last = not self._parser.should_keep_alive()
        self._begin()
        self._requests.append((request, is_last))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._answer())

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > HEAD_BYTES_MAX:
            self._refuse(431, f"the head of a request has at most {HEAD_BYTES_MAX} bytes")

    # -- the answer -----------------------------------------------------------------------------

    async def _answer(self) -> None:
        """Answers what is whole, in the order in which it came, then reads on."""
        while self._requests:
            request, is_last = self._requests.popleft()
            answer = await self._handler(request)
            if self._transport is None:
                return
            is_last = is_last or (self._is_refused and not self._requests and self._refusal is None)
            has_body = request.method != "HEAD"
            self._transport.write(answer.encoded(is_last=is_last, has_body=has_body))
            if is_last:
                self._transport.close()
                return
        self._task = None
        if self._refusal is not None:
            self._end(self._refusal)
        elif self._transport is not None:
            self._restart_timer()
            self._transport.resume_reading()
            waiting, self._waiting = self._waiting, b""
            if waiting:
                self._feed(waiting)

    def _refuse(self, status: int, text: str) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        refusal = problem(status, {"message": text})
        if self._task is None:
            self._end(refusal)
        else:
            self._refusal = refusal

    def _end(self, refusal: Answer) -> None:
        """Says why no more is read; what the peer still sends is dropped meanwhile."""
        self._stop_timer()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(refusal.encoded(is_last=True))
        transport.write_eof()
        transport.resume_reading()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, transport.close)

    def _restart_timer(self) -> None:
        self._stop_timer()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REQUEST_S, self._too_slow)

    def _too_slow(self) -> None:
        if self._url:
            self._refuse(408, f"a request must arrive within {REQUEST_S:.0f} s")
        elif self._transport is not None:
            self._transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class HttpServer:
    """Listens and answers. `start`, then `close`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._handler, self._connections), host, port
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Takes no new requests, lets those in hand be answered, and ends."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.close()
        tasks = [each._task for each in self._connections if each._task is not None]  # noqa: SLF001
        if tasks:
            await asyncio.wait(tasks, timeout=REQUEST_S)
        await self._server.wait_closed()
        self._server = None
