"""What an offender sends is what its name says; what a server does about it is in test_hostile."""

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.cli.bench import offenders
from penstock.cli.bench.offenders import Gang, Order
from penstock.wire import frames

PATIENCE_S = 30.0


def _seen(
    use: Callable[[int], Coroutine[Any, Any, None]], enough: int | None = 0, *,
    hangs_up: bool = False,
) -> bytes:  # fmt: skip
    """What a listener gets from an offender that is stopped a moment after it sent enough.

    None waits until it ends by itself.
    """
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if enough == 0:
            came.set()
        while data := await reader.read(4096):
            got.extend(data)
            if enough is not None and len(got) >= enough:
                came.set()
            if hangs_up and len(got) > 100:
                break
        writer.close()
        await writer.wait_closed()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            task = asyncio.create_task(use(server.sockets[0].getsockname()[1]))
            coming = asyncio.create_task(came.wait())
            await asyncio.wait([task, coming], timeout=PATIENCE_S, return_when=FIRST_COMPLETED)
            await asyncio.sleep(0.2)  # what comes although it should not comes now
            task.cancel()
            coming.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0.05)

    came = asyncio.Event()
    asyncio.run(run())
    return bytes(got)


def _order(port: int, protocol: str) -> Order:
    ports = {"frames": 1, "lines": 2, "http": 3} | {protocol: port}
    return Order(**ports, many=3, seconds=1.0)


class Longer:
    """asyncio, whose pauses are longer than a machine stands still."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def wait(self, tasks: list[Any], *, timeout: float) -> Any:  # noqa: ASYNC109
        return await asyncio.wait(tasks, timeout=timeout * 60)


@pytest.mark.parametrize("protocol", ["frames", "lines", "http"])
def test_slow_sends_its_first_byte_and_waits(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offenders, "asyncio", Longer())

    def use(port: int) -> Coroutine[Any, Any, None]:
        return offenders.slow(Gang(_order(port, protocol)), port, 0)

    assert len(_seen(use, 1)) == 1


def test_idle_says_nothing() -> None:
    assert _seen(lambda port: offenders.idle(Gang(_order(port, "http")), port, 0)) == b""


def test_huge_declares_two_gigabytes_and_notices_the_end() -> None:
    gangs: list[Gang] = []

    def use(port: int) -> Coroutine[Any, Any, None]:
        gangs.append(Gang(_order(port, "frames")))
        return offenders.huge(gangs[0], port, 0)

    seen = _seen(use, None, hangs_up=True)
    hello = offenders._hello()
    assert seen.startswith(hello)
    assert frames.HEADER.unpack_from(seen, len(hello))[0] == 2 << 30
    assert (gangs[0].opened, gangs[0].ended) == (1, 1)


def test_half_open_sends_half() -> None:
    whole = offenders._right(Gang(_order(9, "http")), 9)
    half = whole[: len(whole) // 2]
    seen = _seen(lambda port: offenders.half_open(Gang(_order(port, "http")), port, 0), len(half))
    assert seen == half


def test_garbage_comes_again_and_again() -> None:
    gangs: list[Gang] = []

    def use(port: int) -> Coroutine[Any, Any, None]:
        gangs.append(Gang(_order(port, "lines")))
        return offenders.garbage(gangs[0], port, 0)

    assert len(_seen(use, 2 * 4096)) >= 2 * 4096
    assert gangs[0].opened >= 2


def test_a_refused_connection_counts_as_ended() -> None:
    gang = Gang(_order(1, "http"))
    assert asyncio.run(gang.connect(1)) is None
    assert (gang.opened, gang.ended) == (1, 1)


def test_every_offender_has_a_name() -> None:
    assert set(offenders.BEHAVIOURS) == {"slow", "huge", "idle", "garbage", "half-open"}
