"""A whole server: one broker, its listeners, and how they start, change and stop together."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.broker.broker import Broker
from penstock.broker.inline import Inline
from penstock.broker.loop_mailbox import LoopMailbox
from penstock.server.frames import FramesListener
from penstock.server.http import HttpListener
from penstock.server.lines import LinesListener
from penstock.server.listening import Listener
from penstock.server.places import Place
from penstock.server.settings import FIXED, Settings, differences
from penstock.server.waiting import WaitingRoom
from penstock.wire.line import Language

log = logging.getLogger("penstock.server")

ROUNDS: Final = 3
"""An answer may be followed by one about what came meanwhile."""
LOOK_S: Final = 0.02
"""How often a drain looks whether everything is done."""


class Places(NamedTuple):
    """The addresses of a server; None where it does not listen."""

    frames: Place | None = None
    lines: Place | None = None
    http: Place | None = None

    def give_up(self) -> None:
        """Others may have them now."""
        for place in self:
            if place is not None:
                place.give_up()


class Server:
    """Everything that listens for one broker. All calls are made on one loop."""

    def __init__(
        self,
        settings: Settings,
        places: Places,
        *,
        version: str = "penstock",
        before_close: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_close` is called when nobody is connected any more and the store still open."""
        self.settings = settings
        self._before_close = before_close
        self.broker: Broker | None = None
        self.listeners: list[Listener] = []
        self._places = places
        self._version = version
        self._why: str | None = "the store is being recovered"
        """Why it is not ready."""
        self._waiting: WaitingRoom | None = None
        self._inline: Inline | None = None

    @property
    def addresses(self) -> dict[str, str]:
        """What is spoken, and where: `frames`, `lines`, `http` and `socket`."""
        return {
            "socket" if each.address.startswith("/") else each.name: each.address
            for each in self.listeners
        }

    @property
    def is_ready(self) -> bool:
        """True while it serves."""
        return self._why is None

    # -- start -----------------------------------------------------------------------------------

    async def open(self, open_broker: Callable[[], Broker]) -> Broker:
        """Recovers the store; meanwhile HTTP says so. Raises what opening a store raises."""
        loop = asyncio.get_running_loop()
        place = self._places.http
        if place is not None:
            self._waiting = WaitingRoom(place.host, place.port, self._why or "")
            await self._waiting.start()
        try:
            self.broker = await loop.run_in_executor(None, open_broker)
        except BaseException:
            await self._end_waiting()
            raise
        self.broker.auto_create_topics = self.settings.serve.auto_create_topics
        return self.broker

    async def start(self, unix: socket.socket | None = None, path: str = "") -> None:
        """Listens everywhere, also on a Unix socket bound to `path`. Raises OSError."""
        await self._end_waiting()
        self.listeners = []
        assert self.broker is not None
        self._inline = Inline(self.broker.engine, asyncio.get_running_loop())
        try:
            for listener in self._made(unix, path):
                await listener.start()
                self.listeners.append(listener)
                if isinstance(listener, FramesListener):
                    listener.heard = self._inline.heard
                    self._inline.mailboxes.append(listener.mailbox)
        except BaseException:
            for listener in self.listeners:
                await listener.stop()
            raise
        self._why = None

    def _made(self, unix: socket.socket | None, path: str) -> list[Listener]:
        broker, settings, places = self.broker, self.settings, self._places
        assert broker is not None
        found: list[Listener] = []
        if unix is not None:
            found.append(
                FramesListener(
                    broker, path=path, sock=unix, limits=settings.frames, server=self._version
                )
            )  # fmt: skip
        if places.frames is not None:
            found.append(
                FramesListener(
                    broker, places.frames.host, places.frames.port, limits=settings.frames,
                    server=self._version, where=self._where(),
                )
            )  # fmt: skip
        if places.lines is not None:
            found.append(
                LinesListener(broker, places.lines.host, places.lines.port, settings.lines)
            )
        if places.http is not None:
            found.append(
                HttpListener(
                    broker, places.http.host, places.http.port, settings.http,
                    is_ready=lambda: self._why,
                )
            )  # fmt: skip
        return found

    def _where(self) -> str:
        """What somebody is told who speaks another protocol to the port for frames."""
        lines, http = self._places.lines, self._places.http
        known = [
            *([f"for telnet use port {lines.port}"] if lines is not None else []),
            *([f"for HTTP port {http.port}"] if http is not None else []),
        ]
        return ", ".join(known) or "use a Penstock client"

    async def _end_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            await waiting.stop()

    # -- change ----------------------------------------------------------------------------------

    def change(self, fresh: Settings) -> tuple[list[str], list[str]]:
        """Uses new settings as far as possible: returns what changed, and what needs a restart."""
        names = differences(self.settings, fresh)
        changed = [name for name in names if name not in FIXED]
        for listener in self.listeners:
            if isinstance(listener, FramesListener):
                listener.limits = fresh.frames
            elif isinstance(listener, LinesListener):
                listener.settings = fresh.lines
                listener.language = Language(fresh.lines.commands)
            elif isinstance(listener, HttpListener):
                listener.settings = fresh.http
        if self.broker is not None:
            self.broker.auto_create_topics = fresh.serve.auto_create_topics
        self.settings = fresh
        return changed, [name for name in names if name in FIXED]

    # -- stop ------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Takes nothing new, tells everybody, and waits a while for what consumers have."""
        self._why = "the server is draining"
        await self._end_waiting()
        broker = self.broker
        if broker is None:
            return
        broker.drain()
        for listener in self.listeners:
            listener.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.serve.drain_s
        while self.leased() and loop.time() < deadline:  # noqa: ASYNC110 - other threads ack
            await asyncio.sleep(LOOK_S)
        await self._all_durable(broker)
        left = self.leased()
        if left:
            log.info("%d messages are still out after %g s; they will be delivered again unless "
                     "their consumers come back", left, self.settings.serve.drain_s)  # fmt: skip

    async def _all_durable(self, broker: Broker) -> None:
        """What was decided so far is on disk, and whoever waits for that has been answered."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        mailbox = LoopMailbox(loop, done.set)

        def on_durable(_answer: Any) -> None:
            done.set()

        for _ in range(ROUNDS):
            done.clear()
            broker.flush(mailbox, on_durable)
            await done.wait()
            await asyncio.sleep(0)

    def leased(self) -> int:
        """Messages consumers have and did not settle."""
        assert self.broker is not None
        with self.broker.engine.lock:
            return sum(each.outstanding for each in self.broker.engine.consumers.values())

    async def stop(self) -> None:
        """Ends every connection and closes the broker in good order. Raises StoreFailed."""
        await self._end_waiting()
        for listener in self.listeners:
            await listener.stop()
        self.listeners = []
        if self._inline is not None:
            self._inline.stop()
        broker, self.broker = self.broker, None
        if broker is not None:
            self._before_close()
            await asyncio.get_running_loop().run_in_executor(None, broker.close)
        self._places.give_up()
