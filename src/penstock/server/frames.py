"""The binary protocol on a TCP port or a Unix socket.

    listener = FramesListener(broker, "127.0.0.1", 8001)
    await listener.start()

All connections share one mailbox: what the broker answers at one time is written with one write
for each connection. Calls that wait for the disk run in a few threads of the listener's own.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.loop_mailbox import LoopMailbox
from penstock.server.frames_connection import Connection
from penstock.server.frames_limits import EXECUTOR_THREADS, SWEEP_S, FramesLimits
from penstock.server.rounds import Complaints, Rounds
from penstock.wire import frames
from penstock.wire.frames import Type
from penstock.wire.frames_claims import encode_count
from penstock.wire.frames_hello import UNIT_MAPS, Abilities, Welcome

log = logging.getLogger("penstock.server")

WHERE: Final = "for telnet use port 8000, for HTTP port 8080"
STOP_S_MAX: Final = 2.0
"""How long a stop waits for what was written to be taken."""
BACKLOG: Final = 1_024


class FramesListener:
    """Listens on `host` and `port`, or on a Unix socket when `path` is given.

    `where` is what somebody is told who speaks another protocol. A `path` is made by binding it,
    so nothing may be there; its permissions are the caller's business. A `sock` is bound already;
    its `path` is then only a name.
    """

    name = "frames"

    def __init__(  # noqa: PLR0913 - an address, and what holds there
        self, broker: Broker, host: str = "127.0.0.1", port: int = frames.PORT, *,
        path: str | None = None, sock: socket.socket | None = None,
        limits: FramesLimits | None = None, where: str = WHERE,
        reattach_s: float = 0.0, server: str = "penstock",
    ) -> None:  # fmt: skip
        self.broker = broker
        self.limits = limits or FramesLimits()
        self.where = where
        self.dirty: dict[Connection, None] = {}
        """Connections with something to write."""
        self.is_draining = False
        self.connections: set[Connection] = set()
        self._host, self._port, self._path, self._sock = host, port, path, sock
        self._reattach_s = reattach_s
        self._server_name = server
        self._server: asyncio.AbstractServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._rounds: Rounds | None = None
        self.complaints = Complaints(log)
        self._empty: asyncio.Event | None = None
        self.mailbox: Any = None
        self.heard: Callable[[Connection], None] = _nothing
        """Told when a connection has handled what came."""
        self.time: Callable[[], float] = float

    @property
    def address(self) -> str:
        """Where it listens."""
        if self._path is not None:
            return self._path
        return f"{self._host}:{self._port}"

    async def start(self) -> None:
        """Listens from now on. Raises OSError."""
        loop = self._loop = asyncio.get_running_loop()
        self.time = loop.time
        self.mailbox = GatheringMailbox(loop, self.dirty)
        self._executor = ThreadPoolExecutor(EXECUTOR_THREADS, "penstock-frames")
        self._empty = asyncio.Event()
        try:
            if self._sock is not None:
                self._server = await loop.create_unix_server(
                    self._connection, sock=self._sock, backlog=BACKLOG
                )
            elif self._path is not None:
                self._server = await loop.create_unix_server(
                    self._connection, self._path, backlog=BACKLOG
                )
            else:
                self._server = await loop.create_server(
                    self._connection, self._host, self._port, backlog=BACKLOG
                )
                self._port = self._server.sockets[0].getsockname()[1]
        except BaseException:
            self._executor.shutdown(wait=False)
            raise
        self._rounds = Rounds(loop, SWEEP_S, self._to_look_at, Connection.sweep)

    def _connection(self) -> Connection:
        return Connection(self)

    def drain(self) -> None:
        """Takes no new connections; the clients are told, and go on where the server comes back."""
        self.is_draining = True
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            if connection.session is not None:
                connection.send(frames.frame(Type.GOODBYE, 0))
                connection.flush()

    async def stop(self) -> None:
        """Ends every connection. Doing so twice is harmless."""
        loop, server, executor = self._loop, self._server, self._executor
        if loop is None or server is None or executor is None:
            return
        self._server = None
        self.is_draining = True
        server.close()
        if self._rounds is not None:
            self._rounds.stop()
        self.mailbox.deliver()
        for connection in list(self.connections):
            connection.flush()
            connection.close()
        await self._until_empty()
        for connection in list(self.connections):
            connection.drop("the server stops")
        await self._until_empty()
        await loop.run_in_executor(None, executor.shutdown)
        self.mailbox.deliver()

    async def _until_empty(self) -> None:
        assert self._empty is not None
        if self.connections:
            self._empty.clear()
            try:
                await asyncio.wait_for(self._empty.wait(), STOP_S_MAX)
            except TimeoutError:
                return

    # -- for its connections ---------------------------------------------------------------------

    def add(self, connection: Connection) -> bool:
        """A connection came; False when there are too many."""
        self.connections.add(connection)
        return len(self.connections) <= self.limits.connections_max

    def remove(self, connection: Connection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        if not self.connections and self._empty is not None:
            self._empty.set()

    def wall(self) -> int:
        """The broker's time in Unix milliseconds."""
        return self.broker.engine.clock.wall()

    def welcome(self, version: int) -> Welcome:
        """What a client is told first."""
        broker, can = self.broker, self.limits
        return Welcome(
            version=version,
            server=self._server_name,
            store=broker.journal.store_id,
            generation=broker.generation,
            wall=self.wall(),
            reattach_s=self._reattach_s or broker.reattach_ms / 1000,
            abilities=Abilities(durability=broker.durability),
            limits={"attachments_max": can.attachments_max, "asks_max": can.asks_max},
            features=[UNIT_MAPS],
        )

    def tell_time(self) -> None:
        """Tells every client the broker's time. For tests, whose time does not flow."""
        for connection in list(self.connections):
            if connection.session is not None and not connection.is_closed:
                connection.send(frames.frame(Type.PONG, 0, encode_count(self.wall())))
                connection.flush()

    def run(self, work: Callable[[], Any], target: Callable[[Any], None]) -> None:
        """Does work that may wait in a thread; the target gets the result, or the exception."""
        assert self._executor is not None
        mailbox = self.mailbox

        def do() -> None:
            try:
                found = work()
            except Exception as error:  # noqa: BLE001 - the client gets whatever went wrong
                found = error
            mailbox.post([(target, found)])

        self._executor.submit(do)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Calls on the loop."""
        assert self._loop is not None
        self._loop.call_later(delay_s, call)

    def _to_look_at(self) -> set[Connection]:
        self.complaints.sum_up(self.time())
        return self.connections


class GatheringMailbox(LoopMailbox):
    """Writes what came of all letters of one delivery together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dirty: dict[Connection, None]) -> None:
        super().__init__(loop, _nothing)
        self._dirty = dirty

    def deliver(self) -> None:
        super().deliver()
        dirty = self._dirty
        while dirty:
            dirty.popitem()[0].flush()


def _nothing(_connection: Any = None) -> None:
    """Nobody is told; or the loop is closed, and its connections went with it."""
