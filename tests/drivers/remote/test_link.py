"""One connection: frames in and out, gathered, and what ends it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.drivers.remote.link import Link, give
from penstock.vocabulary.errors import PenstockError, ProtocolError, Unavailable, Unsupported
from penstock.wire import frames
from penstock.wire.frames import Type
from penstock.wire.frames_errors import encode_error
from penstock.wire.frames_hello import Welcome, encode_welcome

WELCOME = frames.frame(
    Type.WELCOME, 0,
    encode_welcome(Welcome(version=1, server="t", store=bytes(16), generation=1, wall=0)),
)  # fmt: skip


class Owner:
    def __init__(self) -> None:
        self.frames: list[tuple[int, int]] = []
        self.lost: list[PenstockError] = []
        self.error: PenstockError | None = None

    def on_frame(self, kind: int, flags: int, number: int, payload: memoryview) -> None:
        self.frames.append((kind, number))
        if self.error is not None:
            raise self.error

    def on_lost(self, link: Link, error: PenstockError) -> None:
        self.lost.append(error)


class Transport(asyncio.Transport):
    def __init__(self, link: Link) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self._link = link

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.writes.append(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self._link.connection_lost(None)

    def close(self) -> None:
        self._link.connection_lost(None)


def made() -> tuple[Link, Owner, Transport]:
    owner = Owner()
    link = Link(asyncio.get_running_loop(), owner, "test")
    transport = Transport(link)
    link.connection_made(transport)
    return link, owner, transport


def arrive(link: Link, data: bytes) -> None:
    while data:
        room = link.get_buffer(-1)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        link.buffer_updated(count)


def run(scenario: Callable[[], Any]) -> None:
    asyncio.run(scenario())


def test_hello_goes_first_and_welcome_is_told() -> None:
    async def scenario() -> None:
        link, owner, transport = made()
        assert b"PENS" in transport.writes[0]
        arrive(link, WELCOME[:10])
        assert not link.welcomed.done()
        arrive(link, WELCOME[10:] + frames.frame(Type.DONE, 4))
        assert (await link.welcomed).generation == 1
        assert owner.frames == [(Type.DONE, 4)]
        assert (link.received, link.sent) == (2, 1)

    run(scenario)


def test_the_first_frame_goes_at_once_and_the_others_together() -> None:
    async def scenario() -> None:
        link, _, transport = made()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        transport.writes.clear()
        link.send(b"one")
        assert transport.writes == [b"one"]
        link.send(b"two")
        link.send_pieces([b"three", b"four"])
        assert transport.writes == [b"one"]
        await asyncio.sleep(0)
        assert transport.writes == [b"one", b"twothreefour"]
        link.send(b"five")
        link.flush()
        assert transport.writes[-1] == b"five"

    run(scenario)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (frames.frame(Type.ERROR, 0, encode_error(Unsupported("no")), frames.MORE), Unsupported),
        (frames.frame(Type.DONE, 0), ProtocolError),
        (b"220 hello from a mail server\r\n", ProtocolError),
    ],
)
def test_anything_but_a_welcome_ends_the_attempt(data: bytes, kind: type[Exception]) -> None:
    async def scenario() -> None:
        link, owner, _ = made()
        arrive(link, data)
        with pytest.raises(kind):
            await link.welcomed
        assert owner.lost == []

    run(scenario)


def test_a_loss_is_told_once_with_its_reason() -> None:
    async def scenario() -> None:
        link, owner, transport = made()
        arrive(link, WELCOME)
        owner.error = ProtocolError("odd")
        arrive(link, frames.frame(Type.DONE, 4) * 2)
        assert owner.lost == [owner.error]
        assert len(owner.frames) == 1
        count = len(transport.writes)
        link.send(b"nobody hears")
        link.flush()
        assert len(transport.writes) == count

    run(scenario)


def test_a_connection_that_breaks_is_unavailable() -> None:
    async def scenario() -> None:
        link, owner, _ = made()
        arrive(link, WELCOME)
        link.connection_lost(OSError("reset"))
        assert isinstance(owner.lost[0], Unavailable)
        assert "reset" in owner.lost[0].text

    run(scenario)


def test_an_answer_to_somebody_who_is_gone_or_fails_is_harmless(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        give(future.set_result, 1)

    run(scenario)
    give(lambda _: 1 / 0, 1)  # type: ignore[arg-type]
    assert "could not be handled" in caplog.text
