"""The HTTP listener: REST under /v1, health, metrics and the pages people look at.

Decides which connections and which origins are welcome; what a request means is said by the
routes in `http_routes`. Belongs to one event loop, the one it was started on.
"""

import asyncio
import logging
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, Final

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.loop_mailbox import LoopMailbox
from penstock.server import http_origins
from penstock.server.http_connection import Connection
from penstock.server.http_exchange import Exchange
from penstock.server.http_heads import Heads
from penstock.server.http_publish import Publishing
from penstock.server.http_pull import Seats
from penstock.server.http_routes import Routes
from penstock.server.places import is_loopback, shown_address
from penstock.server.rounds import Complaints, Rounds
from penstock.wire.rest_tokens import key_of

SWEEP_S: Final = 0.25
IDLE_SWEEP_S: Final = 5.0
"""How often idle connections are looked for."""
ANSWER_S: Final = 1.0
"""At the end, so long is waited for answers that are under way."""

log = logging.getLogger("penstock.server")


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How patient the listener is, and whom it lets in."""

    head_s: float = 2.0
    """A request head must be whole this long after its first byte."""
    body_rate: int = 1024
    """Bytes a second a body must come at, at least, after its first `head_s`."""
    write_s: float = 10.0
    """A client that takes nothing for so long is dropped."""
    idle_s: float = 75.0
    """A connection without a request is closed after this long."""
    consumer_idle_s: float = 15.0
    """A consumer that holds nothing and has not pulled for so long leaves its subscription."""
    heartbeat_s: float = 15.0
    """How often a stream says that it is alive."""
    pull_wait_s_max: float = 60.0
    """No pull waits longer, whatever it asks for: proxies have limits of their own."""
    connections_max: int = 20_000
    origins: tuple[str, ...] = ()
    """Sites whose pages may use this server besides its own: `https://example.org`, or `*`."""


class HttpListener:
    """One HTTP address of a server."""

    name = "http"

    def __init__(
        self, broker: Broker, host: str, port: int, settings: HttpSettings | None = None, *,
        is_ready: Callable[[], str | None] | None = None, ssl: Any = None, name: str = "",
    ) -> None:  # fmt: skip
        """`is_ready` returns None, or why the server is not ready; `name` is one of the host."""
        self.broker = broker
        self.settings = settings or HttpSettings()
        self.is_draining = False
        self.is_stopping = False
        self.is_ready = is_ready or _always_ready
        self.connections: dict[Connection, None] = {}
        self.heads = Heads()
        self.refused_connections = 0
        self.requests = 0
        self._host, self._port, self._ssl = host, port, ssl
        self._own_names = frozenset({host.lower(), name.lower()} - {""})
        self._is_local = is_loopback(host)
        self._server: asyncio.Server | None = None
        self._watched: dict[Connection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rounds: list[Rounds] = []
        self.complaints = Complaints(log)
        self._is_empty: asyncio.Future[None] | None = None
        """Done when the last connection is gone."""
        self._date: tuple[int, bytes] = (-1, b"")
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- listening -------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where it really listens."""
        if self._server is None or not self._server.sockets:
            return shown_address(self._host, self._port)
        return shown_address(*self._server.sockets[0].getsockname()[:2])

    @property
    def port(self) -> int:
        """The port it really has."""
        return int(self.address.rpartition(":")[2])

    async def start(self) -> None:
        """Listens from now on. Raises OSError when the address cannot be had."""
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self.mailbox = LoopMailbox(self.loop, self._abandon)
        self.publishing = Publishing(self.broker, self.mailbox, self.loop)
        key = key_of(self.broker.journal.store_id)
        self.seats = Seats(self.broker, self.mailbox, self.loop, key)
        self._routes = Routes(self)
        self._server = await self.loop.create_server(
            lambda: Connection(self), self._host, self._port, ssl=self._ssl, backlog=1024
        )
        self._timer = self.loop.call_later(SWEEP_S, self._sweep)
        self._rounds = [
            Rounds(self.loop, SWEEP_S, lambda: self._watched, self._check),
            Rounds(self.loop, IDLE_SWEEP_S, lambda: self.connections, self._end_idle),
        ]

    def drain(self) -> None:
        """Hands out and takes in nothing new; what was pulled can still be settled.

        New connections are taken, too: a client that holds messages may have none open, and
        whoever asks for health must get an answer. Streams end; every answer is the last of its
        connection.
        """
        if self.is_draining or self._server is None:
            return
        self.is_draining = True
        self.seats.wake()
        for connection in list(self.connections):
            if connection.is_streaming:
                connection.end()

    async def stop(self) -> None:
        """Ends every connection, after its answers if they come soon. Twice is harmless."""
        self.drain()
        if self.is_stopping or self._server is None:
            return
        self.is_stopping = True
        self._server.close()
        if self._timer is not None:
            self._timer.cancel()
        for rounds in self._rounds:
            rounds.stop()
        for connection in list(self.connections):
            if connection.is_streaming:
                connection.end()
            else:
                connection.end_after_answers()
        await self._all_gone(ANSWER_S)
        for connection in list(self.connections):
            connection.abort()
        await self._all_gone(None)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.seats.close()
        await self._server.wait_closed()

    async def _all_gone(self, seconds: float | None) -> None:
        if self.connections:
            self._is_empty = self.loop.create_future()
            await asyncio.wait([self._is_empty], timeout=seconds)

    def _abandon(self) -> None:
        self.seats.lose()

    # -- connections -----------------------------------------------------------------------------

    def joined(self, connection: Connection) -> None:
        """A connection was made; one too many is turned away."""
        self.connections[connection] = None
        if len(self.connections) > self.settings.connections_max:
            self.refused_connections += 1
            if self.refused_connections == 1:
                log.warning("more than %d connections", self.settings.connections_max)
            connection.turn_away()

    def left(self, connection: Connection) -> None:
        """A connection is gone."""
        self.connections.pop(connection, None)
        if self._is_empty is not None and not self.connections and not self._is_empty.done():
            self._is_empty.set_result(None)
        self._watched.pop(connection, None)

    def watch(self, connection: Connection) -> None:
        """The connection has something to do within a time."""
        self._watched[connection] = None

    def _sweep(self) -> None:
        self._timer = self.loop.call_later(SWEEP_S, self._sweep)
        now = self.now()
        self.complaints.sum_up(now)
        self.seats.sweep(now, self.settings.consumer_idle_s)

    def _check(self, connection: Connection, now: float) -> bool:
        """True when patience with a connection was lost."""
        was_ending = connection.is_ending
        if not connection.check(now):
            self._watched.pop(connection, None)
        return connection.is_ending and not was_ending

    def _end_idle(self, connection: Connection, now: float) -> bool:
        is_idle = not connection.waiting and not connection.reading_since
        if not is_idle or now - connection.idle_since <= self.settings.idle_s:
            return False
        connection.end()
        return True

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Keeps a task until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def change(self, settings: HttpSettings) -> None:
        """Uses new settings; who was let in under the old ones is asked again."""
        self.settings = settings
        self.heads = Heads()

    # -- requests --------------------------------------------------------------------------------

    def route(self, exchange: Exchange) -> None:
        """Finds who handles a request, and how large its body may be. Raises Refused."""
        self.requests += 1
        exchange.origin = http_origins.check(
            exchange.headers, self.settings.origins, self._own_names, is_local=self._is_local
        )
        self._routes.find(exchange)

    def date(self) -> bytes:
        """The date line of an answer."""
        second = int(self.now())
        if self._date[0] != second:
            self._date = (second, b"date: %b\r\n" % formatdate(usegmt=True).encode())
        return self._date[1]


def _always_ready() -> str | None:
    return None
