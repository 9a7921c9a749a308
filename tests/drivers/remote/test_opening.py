"""Making connections: the first one in time, the later ones for as long as it takes."""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest

from penstock.client.client import connect
from penstock.drivers.remote import opening
from penstock.drivers.remote.opening import open_remote
from penstock.vocabulary.errors import Unavailable, Unsupported
from penstock.wire import frames
from penstock.wire.frames import Type
from penstock.wire.frames_errors import encode_error
from tests.drivers.remote.rig import Served, until


def test_a_server_that_comes_a_little_later_is_found() -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, served.stop)
        opened = asyncio.create_task(connect(f"{served.url}?connect_timeout_s=20").open())
        await asyncio.sleep(0.1)
        await loop.run_in_executor(None, served.start)
        client = await opened
        await client.publish("orders", b"x")
        await client.close()

    with Served() as served:
        asyncio.run(scenario(served))


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "ATTEMPT_S_MAX", 0.1)

    async def scenario() -> None:
        ended: list[None] = []

        async def silent(reader: Any, writer: Any) -> None:
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            ended.append(None)

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            loop = asyncio.get_running_loop()
            with pytest.raises(Unavailable, match="did not answer in time"):
                await open_remote(f"penstock://127.0.0.1:{port}?connect_timeout_s=0.15", loop)
            await until(lambda: bool(ended))

    asyncio.run(scenario())


def test_a_server_of_another_version_ends_the_client_readably() -> None:
    refusal = frames.frame(Type.ERROR, 0, encode_error(Unsupported("too new")), frames.MORE)

    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        async with served.client() as client:
            deliveries = await client.subscribe("orders", "all")
            waiting = asyncio.create_task(deliveries.receive())
            await loop.run_in_executor(None, served.stop)

            async def refuse(_reader: Any, writer: Any) -> None:
                writer.write(refusal)
                writer.close()
                try:
                    await writer.wait_closed()
                except ConnectionError:
                    return

            async with await asyncio.start_server(refuse, "127.0.0.1", served.port):
                with pytest.raises(Unsupported, match="too new"):
                    await waiting
                with pytest.raises(Unsupported, match="too new"):
                    await client.publish("orders", b"x")
        await loop.run_in_executor(None, served.start)

    with Served() as served:
        asyncio.run(scenario(served))


def test_a_silent_server_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "SILENT_S_MAX", 0.05)
    monkeypatch.setattr(opening, "WATCH_S", 0.02)

    async def scenario(served: Served) -> None:
        async with served.client() as client:
            driver: Any = client._driver
            first = driver.link
            await until(lambda: driver.link is not None and driver.link is not first)
            monkeypatch.setattr(opening, "SILENT_S_MAX", 45.0)
            await client.publish("orders", b"x")

    with Served() as served:
        asyncio.run(scenario(served))


def test_a_client_that_is_cancelled_while_it_connects_leaves_nothing() -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, served.stop)
        task = asyncio.create_task(connect(served.url).open())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await loop.run_in_executor(None, served.start)

    with Served() as served:
        asyncio.run(scenario(served))
        assert not served.listener.connections


@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP"),
        (b"ERROR unknown command\r\n", "it speaks a protocol of text lines"),
        (b'INFO {"server_id":"x"}\r\n', "it speaks the protocol of NATS"),
        (b"\xff\x00\xfe\x01" * 8, "it speaks another protocol"),
    ],
)
def test_a_server_of_another_kind_is_named_and_not_tried_again(greeting: bytes, said: str) -> None:
    visits: list[None] = []

    async def scenario() -> None:
        async def greet(_reader: Any, writer: Any) -> None:
            visits.append(None)
            writer.write(greeting)
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(Unavailable, match=said):
                await open_remote(f"penstock://127.0.0.1:{port}", asyncio.get_running_loop())

    asyncio.run(scenario())
    assert len(visits) == 1


def test_nobody_there_is_said_in_words() -> None:
    async def scenario() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"penstock://127.0.0.1:{unused.getsockname()[1]}?connect_timeout_s=0.1"
            with pytest.raises(Unavailable, match=r"connection refused; .* gives up") as raised:
                await open_remote(url, asyncio.get_running_loop())
        assert "('127" not in str(raised.value)

    asyncio.run(scenario())
