import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.gateway import http
from penstock.gateway.http import Answer, HttpServer, Request, problem

PATIENCE_S = 60


async def echo(request: Request) -> Answer:
    return Answer(
        200,
        {
            "method": request.method, "path": request.path, "query": request.query,
            "size": len(request.body), "kind": request.headers.get("content-type", ""),
        },
    )  # fmt: skip


def talk(
    steps: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]],
    handler: Callable[[Request], Awaitable[Answer]] = echo,
    *,
    begun: bytes = b"",
) -> Any:
    """Steps on a connection; what is begun lies there before the server takes it."""

    async def main() -> Any:
        server = HttpServer(handler)
        port = await server.start("127.0.0.1", 0)
        opened = socket.create_connection(("127.0.0.1", port))
        opened.sendall(begun)
        reader, writer = await asyncio.open_connection(sock=opened)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await steps(reader, writer)
        finally:
            writer.close()
            await server.close()
            await server.close()

    return asyncio.run(main())


async def answer(reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), head, await reader.readexactly(length)


async def ask(reader: Any, writer: Any, data: bytes) -> tuple[int, bytes]:
    writer.write(data)
    status, _, body = await answer(reader)
    return status, body


def test_a_request_is_answered_whole_and_the_connection_stays() -> None:
    async def steps(reader: Any, writer: Any) -> None:
        for _ in range(3):
            status, body = await ask(
                reader, writer,
                b"POST /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nContent-Type: text/csv\r\n"
                b"Content-Length: 3\r\n\r\nabc",
            )  # fmt: skip
            assert status == 200
            assert (
                body == b'{"method":"POST","path":"/a b","query":"x=1","size":3,"kind":"text/csv"}'
            )

    talk(steps)


def test_a_request_may_come_byte_by_byte_chunked_or_with_the_next_one() -> None:
    async def steps(reader: Any, writer: Any) -> None:
        data = (
            b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
        )
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
        assert b'"size":2' in (await answer(reader))[2]
        writer.write(b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b'"path":"/1"' in (await answer(reader))[2]
        assert b'"path":"/2"' in (await answer(reader))[2]

    talk(steps)


def get(path: bytes, more: bytes = b"", method: bytes = b"GET") -> bytes:
    return method + b" " + path + b" HTTP/1.1\r\nHost: h\r\n" + more + b"\r\n"


@pytest.mark.parametrize(
    ("behind", "statuses"),
    [
        (get(b"/2") + get(b"/3"), [200, 200, 200]),
        (b"hello\r\n\r\n", [200, 400]),
        (get(b"/2") + get(b"/3", b"Content-Length: 99999999999\r\n"), [200, 200, 413]),
        (get(b"/2", b"Connection: close\r\n") + get(b"/3"), [200, 200]),
    ],
)
def test_requests_that_come_together_are_answered_in_their_order(
    behind: bytes, statuses: list[int]
) -> None:
    at_once: list[str] = []

    async def slow_at_first(request: Request) -> Answer:
        at_once.append(request.path)
        await asyncio.sleep(0.02 if request.path == "/1" else 0)
        assert at_once == [request.path]
        at_once.clear()
        return await echo(request)

    async def steps(reader: Any, writer: Any) -> None:
        writer.write(get(b"/1") + behind)
        for number, wanted in enumerate(statuses, 1):
            status, _, body = await answer(reader)
            assert status == wanted
            assert status != 200 or b'"path":"/%d"' % number in body
        writer.write_eof()
        assert await reader.read() == b""

    talk(steps, slow_at_first)


def test_head_is_answered_without_a_body() -> None:
    async def steps(reader: Any, writer: Any) -> None:
        writer.write(get(b"/1", method=b"HEAD") + get(b"/2"))
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        assert b'"path":"/2"' in (await answer(reader))[2]

    talk(steps)


@pytest.mark.parametrize("is_apart", [False, True])
def test_a_client_that_offers_another_protocol_is_answered_in_this_one(is_apart: bool) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"

    async def steps(reader: Any, writer: Any) -> None:
        head = get(b"/1?x=y", offer + b"Content-Type: a/b\r\nContent-Length: 2\r\n", b"POST")
        writer.write(head if is_apart else head + b"ab" + get(b"/2", offer))
        if is_apart:
            await asyncio.sleep(0.01)
            writer.write(b"ab" + get(b"/2", offer))
        told = b'{"method":"POST","path":"/1","query":"x=y","size":2,"kind":"a/b"}'
        assert (await answer(reader))[2] == told
        assert b'"path":"/2"' in (await answer(reader))[2]

    talk(steps)


def test_who_is_refused_may_finish_sending_and_then_reads_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "LINGER_S", PATIENCE_S)

    async def steps(reader: Any, writer: Any) -> None:
        writer.write(get(b"/", b"Content-Length: 40000000\r\n", b"POST"))
        for _ in range(40):
            writer.write(b"x" * 1_000_000)
            await writer.drain()
        assert (await answer(reader))[0] == 413
        assert await reader.read() == b""

    talk(steps)


def test_a_client_that_asks_to_go_on_is_told_to() -> None:
    async def steps(reader: Any, writer: Any) -> None:
        writer.write(
            b"POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"x")
        assert (await answer(reader))[0] == 200

    talk(steps)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n", 413),
    ],
)
def test_what_is_no_request_or_too_large_is_refused_and_the_connection_ends(
    data: bytes, status: int
) -> None:
    async def steps(reader: Any, writer: Any) -> None:
        assert (await ask(reader, writer, data))[0] == status
        assert await reader.read() == b""

    talk(steps)


def test_a_chunked_body_has_its_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_BYTES_MAX", 10)

    async def steps(reader: Any, writer: Any) -> None:
        data = (
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"4\r\nabcd\r\n" * 3
        )
        assert (await ask(reader, writer, data))[0] == 413

    talk(steps)


def test_a_slow_request_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.1)

    async def steps(reader: Any, writer: Any) -> None:
        assert (await answer(reader))[0] == 408

    async def silent(reader: Any, writer: Any) -> None:
        assert await reader.read() == b""

    talk(steps, begun=b"GET /slow HTTP/1.1\r\nHost")
    talk(silent)


def test_there_are_only_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 0)

    async def steps(reader: Any, writer: Any) -> None:
        assert (await answer(reader))[0] == 503

    talk(steps)


def test_the_answer_in_hand_is_sent_before_the_server_ends() -> None:
    async def main() -> None:
        started, free = asyncio.Event(), asyncio.Event()

        async def slow(request: Request) -> Answer:
            started.set()
            await free.wait()
            return Answer(200, {})

        server = HttpServer(slow)
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            await started.wait()
            closing = asyncio.create_task(server.close())
            await asyncio.sleep(0)
            free.set()
            status, head, _ = await answer(reader)
            assert (status, "connection: close" in head) == (200, True)
            await closing
        writer.close()

    asyncio.run(main())


def test_a_problem_says_its_status_twice() -> None:
    assert problem(404, {"message": "no"}).content == {
        "status": "404", "message": "Not Found", "details": [{"message": "no"}],
    }  # fmt: skip
