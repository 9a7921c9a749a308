"""The listener: addresses, clients and strangers, draining and stopping."""

import asyncio
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import connect
from penstock.drivers.remote.address import UnixAddress
from penstock.drivers.remote.opening import open_address
from penstock.server.frames import FramesListener
from penstock.server.frames_limits import FramesLimits
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import Unavailable, Unsupported
from penstock.wire import frames, frames_hello
from penstock.wire.frames import Malformed, Reader, Type
from penstock.wire.frames_errors import decode_error
from penstock.wire.frames_hello import Hello, encode_hello
from tests.drivers.remote.rig import Served, until

HELLO = frames.frame(Type.HELLO, 0, encode_hello(Hello(client="raw")))


class Raw:
    """A client that sends whatever a test wants."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._reader = Reader(frames.FROM_SERVER)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def next(self) -> tuple[int, int, int, bytes] | None:
        """The next frame; None when the server ended the connection."""
        while True:
            found = self._reader.next()
            assert not isinstance(found, Malformed), found.text
            if found is not None:
                return (*found[:3], bytes(found[3]))
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._reader.feed(data)

    def rest(self) -> bytes:
        """Everything until the server ends the connection."""
        data = b""
        while True:
            try:
                part = self.socket.recv(65536)
            except ConnectionError:
                return data
            if not part:
                return data
            data += part

    def close(self) -> None:
        self.socket.close()


def test_it_tells_where_it_really_listens() -> None:
    with Served() as served:
        assert served.listener.name == "frames"
        assert served.listener.address == f"127.0.0.1:{served.port}"
        assert served.port


def test_an_ipv6_address_stands_in_brackets() -> None:
    listener = FramesListener(MemoryBroker().broker, "::1", 8001)
    assert listener.address == "[::1]:8001"


def test_an_address_that_is_taken_is_an_oserror() -> None:
    with Served() as served:
        other = FramesListener(served.broker, port=served.port)
        with pytest.raises(OSError, match="in use"):
            served.run(other.start())


def test_a_unix_socket_serves_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def scenario() -> None:
        with MemoryBroker() as memory:
            listener = FramesListener(memory.broker, path=path)
            await listener.start()
            assert listener.address == path
            loop = asyncio.get_running_loop()
            driver = await open_address(UnixAddress(path), loop, timeout_s=30, scheme="file")
            assert driver.capabilities.scheme == "file"
            assert driver.capabilities.has_transactions
            await driver.close()
            await listener.stop()
            await listener.stop()

    asyncio.run(scenario())


def test_welcome_says_who_and_what_and_when() -> None:
    with Served(reattach_s=0.5) as served:
        raw = Raw(served.port)
        raw.send(HELLO)
        found = raw.next()
        assert found is not None
        welcome = frames_hello.decode_welcome(found[3])
        assert found[0] == Type.WELCOME
        assert welcome.version == 1
        assert welcome.store == served.broker.journal.store_id
        assert welcome.generation == served.broker.generation
        assert welcome.reattach_s == 0.5
        assert welcome.abilities.has_patterns
        raw.close()


# -- strangers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first", [b"help\r\n", b"subscribe orders\r\n", b"\x16\x03\x01\x02\x00\x01"]
)
def test_a_stranger_gets_one_readable_line(first: bytes) -> None:
    with Served() as served:
        raw = Raw(served.port)
        raw.send(first)
        line = raw.rest().decode()
        assert line.endswith("\r\n")
        assert line.count("\n") == 1
        assert "8000" in line
        assert "8080" in line
        raw.close()


def test_curl_shows_what_is_wrong() -> None:
    with Served() as served:
        done = subprocess.run(
            ["curl", "-s", "-i", "--max-time", "20", f"http://127.0.0.1:{served.port}/"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0
        assert done.stdout.startswith("HTTP/1.1 400")
        assert "port 8080" in done.stdout


def test_a_client_of_another_version_gets_a_readable_refusal() -> None:
    with Served() as served:
        raw = Raw(served.port)
        raw.send(frames.frame(Type.HELLO, 0, encode_hello(Hello(low=7, high=9))))
        found = raw.next()
        assert found is not None
        error = decode_error(found[3])
        assert isinstance(error, Unsupported)
        assert "version 1" in error.text
        assert raw.next() is None
        raw.close()


def test_a_driver_meets_a_server_that_is_none() -> None:
    async def scenario(server: Any) -> None:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="tried for"):
            await connect(f"penstock://127.0.0.1:{port}?connect_timeout_s=0.1")

    async def main() -> None:
        async def talk(_reader: Any, writer: Any) -> None:
            writer.write(b"220 mail.example ready\r\n")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            await scenario(server)

    asyncio.run(main())


# -- many, draining, stopping --------------------------------------------------------------------


def test_more_connections_than_allowed_are_told_so() -> None:
    limits = FramesLimits(connections_max=2)

    async def scenario(served: Served) -> None:
        async with served.client(), served.client():
            with pytest.raises(Unavailable, match="which is its limit"):
                await connect(f"{served.url}?connect_timeout_s=0")
        async with served.client() as later:
            await later.publish("orders", b"x")

    with Served(limits=limits) as served:
        asyncio.run(scenario(served))


def test_a_drain_says_goodbye_and_takes_nobody_new() -> None:
    with Served() as served:
        raw = Raw(served.port)
        raw.send(HELLO)
        assert raw.next() is not None
        served.call(served.listener.drain)
        found = raw.next()
        assert found is not None
        assert found[0] == Type.GOODBYE
        with pytest.raises(ConnectionError):
            Raw(served.port)
        raw.close()


def test_publishes_during_a_drain_go_to_the_next_server() -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        async with served.client() as client:
            await client.publish("orders", b"0")
            served.broker.drain()
            waiting = asyncio.create_task(client.publish("orders", b"1"))
            attaching = asyncio.create_task(client.subscribe("orders", "all").open())
            driver: Any = client._driver
            await until(lambda: driver.link.is_stopping)
            assert not waiting.done()
            await loop.run_in_executor(None, served.stop)
            await loop.run_in_executor(None, served.start)
            assert (await waiting).offset == 1
            await attaching

    with Served() as served:
        asyncio.run(scenario(served))


def test_a_stop_leaves_no_connection_and_no_consumer() -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        client = await served.client()
        await client.subscribe("orders", "all")
        await loop.run_in_executor(None, lambda: served.run(served.listener.stop()))
        assert not served.listener.connections
        assert not served.broker.engine.consumers
        await client.close()

    with Served(reattach_s=0.0) as served:
        asyncio.run(scenario(served))


def test_two_loops_and_threads_have_their_own_connections() -> None:
    async def publish(served: Served, count: int) -> None:
        async with served.client() as client:
            for n in range(count):
                await client.publish("orders", b"%d" % n)

    async def scenario(served: Served) -> None:
        await asyncio.gather(
            *(asyncio.to_thread(asyncio.run, publish(served, 20)) for _ in range(3))
        )
        async with served.client() as client:
            assert (await client.describe_topic("orders"))["messages"] == 60

    with Served() as served:
        asyncio.run(scenario(served))
