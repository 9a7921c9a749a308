"""Clients no server wants: each runs in a process of its own beside good clients.

An offender says `ready` when it is at work, and goes on until its standard input ends; then it says
how many connections it made, and how many of them the server ended.
"""

import asyncio
import os
import struct
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
import uvloop

import penstock
from penstock.cli.bench.plan import Plan
from penstock.vocabulary.errors import PenstockError
from penstock.wire import frames, frames_hello

MANY: Final = 2_000
QUICK: Final = 60
HUGE: Final = 2 << 30
"""A frame, a body and a line that no server should wait for."""
STUCK_TOPICS: Final = tuple(f"stuck-{number}" for number in range(8))
STUCK_BYTES: Final = 64_000
STUCK_TOTAL: Final = 64_000_000
CREDIT_BYTES: Final = 8_000_000
GARBAGE_S: Final = 0.05
"""Between two connections that send garbage."""
CHUNK: Final = 64 * 1024


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and how many clients misbehave."""

    frames: int
    lines: int
    http: int
    many: int = MANY
    seconds: float = 10.0

    @property
    def ports(self) -> tuple[int, int, int]:
        """One for each protocol."""
        return self.frames, self.lines, self.http


class Gang:
    """Connections of one offender, and what became of them."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.opened = 0
        self.ended = 0
        """Those the server closed or refused."""

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection, or None when it is refused."""
        try:
            found = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            self.opened += 1
            self.ended += 1
            return None
        self.opened += 1
        return found

    async def watch(self, reader: asyncio.StreamReader) -> None:
        """Reads what the server says until it hangs up."""
        try:
            while await reader.read(CHUNK):
                pass
        except OSError:
            pass
        self.ended += 1


Behaviour = Callable[[Gang, int, int], Coroutine[Any, Any, None]]


async def slow(gang: Gang, port: int, _number: int) -> None:
    """Sends one byte a second of something that would be right."""
    found = await gang.connect(port)
    if found is None:
        return
    reader, writer = found
    watching = asyncio.create_task(gang.watch(reader))
    try:
        for byte in _right(gang, port):
            writer.write(bytes((byte,)))
            await asyncio.wait([watching], timeout=1.0)
            if watching.done():
                return
    finally:
        writer.close()


async def idle(gang: Gang, port: int, _number: int) -> None:
    """Says nothing at all."""
    found = await gang.connect(port)
    if found is not None:
        try:
            await gang.watch(found[0])
        finally:
            found[1].close()


async def huge(gang: Gang, port: int, _number: int) -> None:
    """Declares two gigabytes, and sends what the server takes of them."""
    found = await gang.connect(port)
    if found is None:
        return
    reader, writer = found
    watching = asyncio.create_task(gang.watch(reader))
    try:
        writer.write(_declared(gang, port))
        while not watching.done():
            writer.write(bytes(CHUNK))
            await asyncio.wait_for(writer.drain(), gang.order.seconds)
            await asyncio.sleep(GARBAGE_S)
    except (OSError, TimeoutError):
        pass
    finally:
        writer.close()
        await asyncio.wait([watching], timeout=gang.order.seconds)


async def garbage(gang: Gang, port: int, _number: int) -> None:
    """Sends bytes without sense, again and again on new connections."""
    while True:
        found = await gang.connect(port)
        if found is not None:
            reader, writer = found
            try:
                writer.write(os.urandom(CHUNK // 16))
                writer.write_eof()
                await asyncio.wait_for(gang.watch(reader), 1.0)
            except (OSError, TimeoutError):
                pass
            finally:
                writer.close()
        await asyncio.sleep(GARBAGE_S)


async def half_open(gang: Gang, port: int, number: int) -> None:
    """Begins something right and never ends it; every other one closes its own side first."""
    found = await gang.connect(port)
    if found is None:
        return
    reader, writer = found
    try:
        right = _right(gang, port)
        writer.write(right[: len(right) // 2])
        await writer.drain()
        if number % 2:
            writer.write_eof()
        await gang.watch(reader)
    except OSError:
        gang.ended += 1
    finally:
        writer.close()


def _right(gang: Gang, port: int) -> bytes:
    """What a good client would begin with."""
    if port == gang.order.frames:
        return _hello()
    if port == gang.order.lines:
        return b'pub topic {"id":"1","priority":1,"msg":"' + b"x" * 500
    return b"GET /v1/topics HTTP/1.1\r\nhost: here\r\nx-padding: " + b"x" * 500


def _hello() -> bytes:
    hello = frames_hello.encode_hello(frames_hello.Hello(client="offender"))
    return bytes(frames.frame(frames.Type.HELLO, 0, hello))


def _declared(gang: Gang, port: int) -> bytes:
    """The beginning of something with two gigabytes."""
    if port == gang.order.frames:
        head = struct.pack("<IBBHIQ", HUGE, frames.Type.PUBLISH, 0, 0, 1, 0)
        return _hello() + head
    if port == gang.order.lines:
        return b'pub topic {"id":"'
    return (
        b"POST /v1/topics/huge/messages HTTP/1.1\r\nhost: here\r\n"
        b"content-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n" % HUGE
    )


BEHAVIOURS: Final[dict[str, tuple[Behaviour, int | None]]] = {
    "slow": (slow, None),
    "huge": (huge, 3),
    "idle": (idle, None),
    "garbage": (garbage, 6),
    "half-open": (half_open, None),
}
"""What a client does, and how many do it; None = as many as were ordered."""


async def misbehave(name: str, order: Order) -> dict[str, int]:
    """Behaves so until standard input ends."""
    behaviour, most = BEHAVIOURS[name]
    gang = Gang(order)
    count = order.many if most is None else min(most, order.many)
    tasks = [
        asyncio.create_task(behaviour(gang, order.ports[i % len(order.ports)], i))
        for i in range(count)
    ]
    print("ready", flush=True)
    await _ended()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"opened": gang.opened, "ended": gang.ended}


async def stuck(order: Order) -> dict[str, int]:
    """Consumers that wait for messages; the process is then stopped, so that it reads no more."""
    async with AsyncExitStack() as stack:
        url = f"penstock://127.0.0.1:{order.frames}"
        client = await stack.enter_async_context(penstock.connect(url))
        for topic in STUCK_TOPICS:
            name = f"stuck-{os.getpid()}"  # a new one, which has nothing to read before it stops
            stream = client.subscribe(topic, name, start="latest", credit_bytes=CREDIT_BYTES)
            await stack.enter_async_context(stream)
        print("ready", flush=True)
        await _ended()
    return {"opened": 1, "ended": 0}


def feed(plan: Plan) -> dict[str, Any]:
    """Publishes for the consumers that do not read, more than the system's own buffers take."""

    async def publish() -> None:
        bodies = [os.urandom(STUCK_BYTES)] * (STUCK_TOTAL // STUCK_BYTES // len(STUCK_TOPICS))
        async with penstock.connect(plan.server) as client:
            for topic in STUCK_TOPICS:
                await client.publish_many(topic, bodies)

    uvloop.run(publish())
    return {"bytes": STUCK_TOTAL}


async def _ended() -> None:
    """Standard input has ended."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


def main(name: str, order: Order) -> dict[str, Any]:
    """Runs one offender in this process."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return uvloop.run(stuck(order) if name == "stuck" else misbehave(name, order))


if __name__ == "__main__":
    try:
        told = main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Order))
    except PenstockError as error:
        raise SystemExit(str(error)) from error
    print(msgspec.json.encode(told).decode(), flush=True)
