"""The line protocol on a TCP port: a listener for people with `telnet`, and for their scripts."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.first_use import abandoned_queues, end_queue
from penstock.broker.loop_mailbox import LoopMailbox
from penstock.server.lines_connection import LineConnection
from penstock.server.lines_publishing import LinePublisher
from penstock.server.lines_queue import ANONYMOUS, BEGINNING, LineQueue, Views
from penstock.server.lines_settings import LinesSettings
from penstock.server.places import shown_address
from penstock.server.rounds import Complaints, Rounds
from penstock.vocabulary.limits import OUT_BYTES_MAX
from penstock.wire import line_reply as say
from penstock.wire.line import Language
from penstock.wire.line_help import greeting

log = logging.getLogger("penstock.server")

PORT_DEFAULT: Final = 8000
TICK_S: Final = 0.5
FULL_STALL_S: Final = 1.0
"""A client for which more than OUT_BYTES_MAX waits must have read something for so long."""
THREADS: Final = 4
"""Commands that read the disk, at the same time, of all clients."""
STOP_S: Final = 5.0
"""At the end, so long is waited for clients to read what is said to them."""
LINGER_S: Final = 2.0
"""So long a connection waits for its client to hang up too: closing it while something that the
client sent is unread would take from it what was said last."""
STOPPING: Final = say.text_line("stopping: the broker is stopping; ack or nack what you have")
CLOSING: Final = say.text_line(
    "closing: the broker is stopping; what was answered ok is safe, connect again in a moment"
)


class LinesListener:
    """A Listener that speaks lines."""

    name = "lines"

    def __init__(
        self, broker: Broker, host: str = "127.0.0.1", port: int = PORT_DEFAULT,
        settings: LinesSettings | None = None,
    ) -> None:  # fmt: skip
        self.broker = broker
        self.settings = settings or LinesSettings()
        self.language = Language(self.settings.commands)
        self.mailbox: LoopMailbox
        self.publisher: LinePublisher
        self.linger_s = LINGER_S
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="penstock-lines")
        self._views = Views()
        self._connections: dict[LineConnection, None] = {}
        self._named: dict[str, LineConnection] = {}
        self._watched: dict[LineConnection, tuple[float, int]] = {}
        """Clients that do not read: since when, and how much the socket had not taken then."""
        self._begun: dict[LineConnection, None] = {}
        """Clients that have begun a line and not ended it."""
        self._rounds: Rounds | None = None
        self._complaints = Complaints(log)
        self._threads: set[asyncio.Future[Any]] = set()
        """What is done in threads just now."""
        self._gone = asyncio.Event()
        """Set when it drains and no connection is left."""
        self._tick: asyncio.TimerHandle | None = None
        self._is_draining = False
        self._accepted = 0
        self.dropped_events = 0
        """What waited in queues that clients gave up, or left behind without a name."""
        self._let_go = 0

    @property
    def address(self) -> str:
        """Where it listens."""
        if self._server is not None and self._server.sockets:
            host, port = self._server.sockets[0].getsockname()[:2]
        else:
            host, port = self._host, self._port
        return shown_address(host, port)

    @property
    def greeting(self) -> bytes:
        """The first line of every connection."""
        return say.text_line(greeting(self.language))

    # -- the life of a listener ------------------------------------------------------------------

    async def start(self) -> None:
        """Listens from now on; queues that anonymous clients left behind in a crash are ended."""
        self._loop = asyncio.get_running_loop()
        self.mailbox = LoopMailbox(self._loop, _loop_died)
        self.publisher = LinePublisher(self.broker, self.mailbox)
        await self.in_thread(self._end_abandoned)
        self._server = await self._loop.create_server(
            lambda: LineConnection(self), self._host, self._port, backlog=1024
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self._tick = self._loop.call_later(TICK_S, self._on_tick)
        self._rounds = Rounds(self._loop, TICK_S, lambda: self._begun, self._end_slow)

    def drain(self) -> None:
        """Takes no new connections; each client is told, and ends once it holds nothing."""
        if self._is_draining:
            return
        self._is_draining = True
        if self._server is not None:
            self._server.close()
        self._note_gone()
        for connection in list(self._connections):
            connection.finish(STOPPING, CLOSING)

    async def stop(self) -> None:
        """Ends every connection, in good order while clients read, and by force after that."""
        self.drain()
        if self._server is None:
            self._pool.shutdown(wait=False)
            return
        if self._tick is not None:
            self._tick.cancel()
        if self._rounds is not None:
            self._rounds.stop()
        for connection in list(self._connections):
            connection.end(CLOSING)
        await self._all_gone(STOP_S)
        for connection in list(self._connections):
            connection.abort()
        await self._all_gone(STOP_S)
        if self._threads:
            await asyncio.wait(self._threads)
        server, self._server = self._server, None
        await server.wait_closed()
        self._pool.shutdown(wait=False)

    async def _all_gone(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._gone.wait()

    def _end_abandoned(self) -> None:
        for topic, subscription in abandoned_queues(self.broker, BEGINNING + ANONYMOUS):
            left = end_queue(self.broker, topic, subscription)
            self.dropped_events += left
            log.info("ended %s of topic %s, whose client is gone: %d events", subscription, topic,
                     left)  # fmt: skip

    # -- connections -----------------------------------------------------------------------------

    def admit(self, connection: LineConnection) -> bytes:
        """Counts a new connection; returns why it cannot stay, or nothing."""
        self._connections[connection] = None
        self._accepted += 1
        most = self.settings.connections_max
        if len(self._connections) > most:
            text = f"line client at {connection.peer} is refused: there are {most} already"
            self._complaints.say(self._loop.time(), text)
            return say.text_line(f"closing: there are {most} connections already; try later")
        if self._is_draining:
            return say.text_line("closing: the broker is stopping; connect again in a moment")
        return b""

    def forget(self, connection: LineConnection) -> None:
        """A connection is gone."""
        self._connections.pop(connection, None)
        self._watched.pop(connection, None)
        self._begun.pop(connection, None)
        if self._named.get(connection.client_id) is connection:
            del self._named[connection.client_id]
        self._note_gone()

    def _note_gone(self) -> None:
        if self._is_draining and not self._connections:
            self._gone.set()

    def rename(self, connection: LineConnection, name: str) -> None:
        """A client says who it is; an older connection of that name ends."""
        other = self._named.get(name)
        if other is not None:
            del self._named[name]
            other.end(
                say.text_line(f"closing: {name} is connected from elsewhere; its queues are there")
            )
        if self._named.get(connection.client_id) is connection:
            del self._named[connection.client_id]
        self._named[name] = connection
        connection.client_id = name

    def counts(self) -> dict[str, int]:
        """This listener in numbers."""
        return {
            "connections": len(self._connections),
            "accepted": self._accepted,
            "let_go": self._let_go,
            "published": self.publisher.published,
            "dropped_events": self.dropped_events,
        }

    @staticmethod
    def new_client_id() -> str:
        """Who a client is that does not say so."""
        return ANONYMOUS + secrets.token_hex(6)

    # -- queues ----------------------------------------------------------------------------------

    def new_queue(self, topic: str, client_id: str) -> LineQueue:
        """A queue that is not joined yet."""
        return LineQueue(
            self.broker, self.mailbox, topic, client_id, self.settings.credit, self._views
        )

    def left(self, connection: LineConnection, queue: LineQueue) -> None:
        """A client is gone from its queue: an anonymous one's queue ends with it."""
        if connection.client_id.startswith(ANONYMOUS):
            ending = self.in_thread(end_queue, self.broker, queue.topic, queue.subscription)
            ending.add_done_callback(self._ended)

    def _ended(self, ending: "asyncio.Future[Any]") -> None:
        error = ending.exception()
        if error is None:
            self.dropped_events += ending.result()
        else:
            log.warning("the queue of a client that is gone could not be ended: %s", error)

    def in_thread(self, function: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        """Does something that may wait for the disk."""
        future = self._loop.run_in_executor(self._pool, function, *arguments)
        self._threads.add(future)
        future.add_done_callback(self._threads.discard)
        return future

    # -- time ------------------------------------------------------------------------------------

    def later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Calls a function in a while."""
        return self._loop.call_later(seconds, function)

    def watch(self, connection: LineConnection) -> None:
        """A client does not read."""
        self._watched[connection] = (self._loop.time(), connection.unread_bytes)

    def unwatch(self, connection: LineConnection) -> None:
        """It reads again."""
        self._watched.pop(connection, None)

    def begun(self, connection: LineConnection) -> float:
        """A client began a line; returns when."""
        self._begun[connection] = None
        return self._loop.time()

    def finished(self, connection: LineConnection) -> None:
        """It has ended every line it began."""
        self._begun.pop(connection, None)

    def _end_slow(self, connection: LineConnection, now: float) -> bool:
        line_s = self.settings.line_s
        if connection not in self._begun or now - connection.begun_at < line_s:
            return False
        del self._begun[connection]
        self._let_go += 1
        connection.end_slow(line_s)
        return True

    def complain(self, connection: LineConnection, why: str) -> None:
        """Logs why a client was let go."""
        text = f"line client {connection.client_id} at {connection.peer} is let go: {why}"
        self._complaints.say(self._loop.time(), text)

    def _on_tick(self) -> None:
        now = self._loop.time()
        self._complaints.sum_up(now)
        for connection, (since, unread) in list(self._watched.items()):
            left = connection.unread_bytes
            if left < unread:
                self._watched[connection] = (now, left)
                continue
            waiting = left + connection.outbox.flying_bytes
            allowed = self.settings.write_stall_s
            if waiting > OUT_BYTES_MAX:
                allowed = min(allowed, FULL_STALL_S)
            if now - since >= allowed:
                self._let_go += 1
                connection.drop(f"it read nothing for {now - since:.1f} s; {waiting} bytes wait")
        for connection in self._connections:
            for queue in connection.queues.values():
                queue.renew(now)
        self._tick = self._loop.call_later(TICK_S, self._on_tick)


def _loop_died() -> None:
    log.error("the loop of a lines listener ended without stopping it")
