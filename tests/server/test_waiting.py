import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.server import waiting
from penstock.server.places import Place
from penstock.server.waiting import HEAD_BYTES_MAX, WaitingRoom


def in_room(scenario: Callable[[Place], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        place = Place.keep("127.0.0.1", 0, "http", "--http-port")
        room = WaitingRoom(place.host, place.port, "the store is being recovered")
        await room.start()
        try:
            assert room.address == f"{place.host}:{place.port}"
            await scenario(place)
        finally:
            await room.stop()
            await room.stop()
            place.give_up()

    asyncio.run(asyncio.wait_for(main(), 60))


async def ask(place: Place, head: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(place.host, place.port)
    writer.write(head)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def test_everything_is_answered_with_not_ready() -> None:
    async def scenario(place: Place) -> None:
        for head in (
            b"GET /readyz HTTP/1.1\r\n\r\n",
            b"POST /v1/topics/x HTTP/1.1\r\na: b\r\n\r\n",
        ):
            found, _, body = (await ask(place, head)).partition(b"\r\n\r\n")
            assert found.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in found
            assert b"application/problem+json" in found
            assert json.loads(body)["code"] == "not-ready"

    in_room(scenario)


def test_it_is_alive() -> None:
    async def scenario(place: Place) -> None:
        found, _, body = (await ask(place, b"GET /healthz HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 200 ")
        assert json.loads(body)["status"] == "starting"

    in_room(scenario)


def test_a_head_has_no_body() -> None:
    async def scenario(place: Place) -> None:
        answer = await ask(place, b"HEAD /readyz HTTP/1.1\r\n\r\n")
        assert answer.endswith(b"\r\n\r\n")

    in_room(scenario)


@pytest.mark.parametrize("head", [b"\r\n\r\n", b"x" * (2 * HEAD_BYTES_MAX) + b"\r\n\r\n"])
def test_what_is_no_request_does_no_harm(head: bytes) -> None:
    async def scenario(place: Place) -> None:
        await ask(place, head)
        assert b" 503 " in await ask(place, b"GET / HTTP/1.1\r\n\r\n")

    in_room(scenario)


def test_a_slow_client_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "HEAD_S", 0.05)

    async def scenario(place: Place) -> None:
        assert await ask(place, b"GET / HT") == b""

    in_room(scenario)


def test_whoever_waits_is_let_go_when_the_real_one_comes() -> None:
    async def scenario(place: Place) -> None:
        _, writer = await asyncio.open_connection(place.host, place.port)
        await asyncio.sleep(0.05)
        writer.close()

    in_room(scenario)
