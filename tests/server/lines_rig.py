"""A lines listener on a free port, and a client that speaks to it over a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from penstock.broker.broker import Broker
from penstock.journal.disk import FolderDisk
from penstock.journal.memory import MemoryDisk
from penstock.server.lines import LinesListener
from penstock.server.lines_settings import LinesSettings

PATIENCE_S = 30.0
"""How long anything is waited for that must come."""


class Talker:
    """A person at a terminal."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, listener: LinesListener, name: str = "") -> "Talker":
        """Connects and hears the greeting; with a name, also says who it is."""
        host, _, port = listener.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
        talker = cls(reader, writer)
        assert (await talker.line()).startswith("welcome to penstock")
        if name:
            assert await talker.ask(f"id {name}") == f"ok {name}"
        return talker

    def say(self, text: str | bytes) -> None:
        """Types a line."""
        self.writer.write((text.encode() if isinstance(text, str) else text) + b"\r\n")

    async def line(self) -> str:
        """The next line, which ends with CRLF; '' at the end of the connection."""
        async with asyncio.timeout(PATIENCE_S):
            data = await self.reader.readline()
        assert not data or data.endswith(b"\r\n"), data
        return data[:-2].decode()

    async def event(self) -> dict[str, Any]:
        """The next line, which must be a delivery."""
        line = await self.line()
        assert line.startswith("{"), line
        found: dict[str, Any] = json.loads(line)
        assert list(found) == ["topic", "id", "priority", "msg"]
        return found

    async def ask(self, text: str | bytes) -> str:
        """Types a line and reads one."""
        self.say(text)
        return await self.line()

    async def listed(self, text: str) -> list[str]:
        """Types a command whose reply has several lines."""
        word, _, count = (await self.ask(text)).partition(" ")
        assert word == "ok"
        lines = [await self.line() for _ in range(int(count))]
        assert all(line.startswith("  ") for line in lines)
        return [line[2:] for line in lines]

    async def pub(self, topic: str, id: str, priority: int = 0, msg: Any = "hi") -> None:
        """Publishes an event and hears that it is safe."""
        event = json.dumps({"id": id, "priority": priority, "msg": msg})
        assert await self.ask(f"pub {topic} {event}") == f"ok {id}"

    async def sub(self, topic: str) -> None:
        """Subscribes."""
        assert await self.ask(f"sub {topic}") == f"successfully subscribed to topic {topic}"

    async def silence(self) -> None:
        """Nothing was said but the answer to this: no event is on its way."""
        assert await self.ask("id") != ""

    async def close(self) -> None:
        """Hangs up."""
        self.writer.close()
        await self.writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def memory_broker() -> Broker:
    """A broker that keeps everything in memory."""
    return Broker.open(MemoryDisk())


def folder_broker(folder: Any) -> Broker:
    """A broker on a folder."""
    return Broker.open(FolderDisk(folder))


@asynccontextmanager
async def listening(
    broker: Broker | None = None, settings: LinesSettings | None = None
) -> AsyncIterator[LinesListener]:
    """A listener; a broker of its own is closed with it."""
    own = broker or memory_broker()
    listener = LinesListener(own, "127.0.0.1", 0, settings)
    try:
        await listener.start()
        yield listener
    finally:
        await listener.stop()
        if broker is None:
            await asyncio.get_running_loop().run_in_executor(None, own.close)


async def until(is_true: Callable[[], bool]) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_true():  # noqa: ASYNC110 - a condition of the broker, which tells nobody
            await asyncio.sleep(0.005)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Runs a scenario to its end."""

    async def whole() -> None:
        await scenario()

    asyncio.run(whole())
