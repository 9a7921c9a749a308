import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.cli.bench.http_link import Answer, HttpLink, head


def _with_server(
    answers: list[bytes], use: Callable[[HttpLink], Awaitable[list[Answer]]]
) -> tuple[list[Answer], bytes]:
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            got.extend(await reader.readuntil(b"body"))
            writer.write(answer)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def run() -> list[Answer]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            link = await HttpLink.open(*server.sockets[0].getsockname())
            try:
                return await asyncio.wait_for(use(link), 30)
            finally:
                link.close()
                await asyncio.sleep(0)

    return asyncio.run(run()), bytes(got)


def test_requests_may_follow_without_waiting() -> None:
    async def use(link: HttpLink) -> list[Answer]:
        futures = [link.request(head("POST", f"/{i}"), b"body") for i in range(2)]
        return list(await asyncio.gather(*futures))

    answers = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
    ]
    found, got = _with_server(answers, use)
    assert found == [(200, b"one"), (404, b"")]
    assert got.startswith(b"POST /0 HTTP/1.1\r\nhost: bench\r\n")
    assert b"content-length: 4\r\n\r\nbody" in got


def test_a_server_that_hangs_up_fails_what_waits() -> None:
    async def use(link: HttpLink) -> list[Answer]:
        first = link.request(head("POST", "/"), b"body")
        second = link.request(head("POST", "/"), b"never answered")
        await first
        with pytest.raises(ConnectionError):
            await second
        with pytest.raises(ConnectionError, match="closed the connection"):
            await link.request(head("POST", "/"), b"too late")
        return []

    _with_server([b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"], use)
