"""One connection to a server: bytes in and out. Its driver decides what they mean.

The first frame of a moment goes out at once, so that a lone publish waits for nothing; what
follows before the loop comes round is gathered and written together.
"""

import asyncio
import logging
import os
from asyncio import AbstractEventLoop, Future, InvalidStateError
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.vocabulary.errors import PenstockError, ProtocolError, Unavailable
from penstock.wire import frames, frames_hello
from penstock.wire.frames import Malformed, Reader, Type
from penstock.wire.frames_errors import decode_error
from penstock.wire.frames_hello import Welcome

log = logging.getLogger("penstock.drivers")

READS_MAX: Final = 64
"""Reads of one `poll`."""


HEAD_BYTES: Final = 64
"""What a server says first tells what kind of server it is."""
_HEADS: Final = {
    b"HTTP/": "HTTP",
    b"INFO {": "the protocol of NATS",
    b"-ERR": "the protocol of Redis",
    b"SSH-": "SSH",
}


def spoken(head: bytes) -> str:
    """What a server that is no Penstock server seems to speak, by its first bytes."""
    found = next((name for start, name in _HEADS.items() if head.startswith(start)), "")
    if not found and all(each in _TEXT for each in head):
        found = "a protocol of text lines"
    if not found:
        return "it speaks another protocol"
    return f"it speaks {found}; penstock:// URLs need the port of frames, usually 8001"


_TEXT: Final = frozenset(b"\t\r\n") | frozenset(range(0x20, 0x7F))


def give(answer: Callable[[Any], None], found: Any) -> None:
    """Answers whoever waits, who may have been cancelled meanwhile."""
    try:
        answer(found)
    except InvalidStateError:
        return
    except Exception:
        log.exception("an answer from the server could not be handled")


class Owner(Protocol):
    """Who a link works for."""

    def on_frame(self, kind: int, flags: int, number: int, payload: memoryview) -> None:
        """A frame came. Raises PenstockError when the server does not keep the protocol."""
        ...

    def on_lost(self, link: "Link", error: PenstockError) -> None:
        """The connection is gone. Not called for one that was never welcomed."""
        ...


class Link(asyncio.BufferedProtocol):
    """A connection, from its HELLO to its end."""

    def __init__(self, loop: AbstractEventLoop, owner: Owner, client: str) -> None:
        self.welcome: Welcome | None = None
        self.welcomed: Future[Welcome] = loop.create_future()
        self.is_stopping = False
        """The server takes no new work: what it refuses waits for the next one."""
        self.is_closed = False
        self.refusals = 0
        """Refused publishes and units that came back on this connection."""
        self.unconfirmed: deque[Any] = deque()
        """Acks and nacks that are not known to be durable, in the order they went out."""
        self.confirmed = 0
        self.heard_at = loop.time()
        self.sent = 0
        """Frames that went out."""
        self._client = client
        self._loop = loop
        self._owner = owner
        self._reader = Reader(frames.FROM_SERVER)
        self._transport: Any = None
        self._out: list[bytes] = []
        self._is_gathering = False
        self._error: PenstockError | None = None

    @property
    def received(self) -> int:
        """Frames that came."""
        return self._reader.frames

    # -- the transport's calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        hello = frames_hello.encode_hello(frames_hello.Hello(client=self._client))
        self.send(frames.frame(Type.HELLO, 0, hello))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - what asyncio calls
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.took(nbytes)
        self.heard_at = self._loop.time()
        self._read()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._out.clear()
        reason = f": {exc}" if exc is not None else ""
        error = self._error or Unavailable(f"the connection to the server was lost{reason}")
        if self.welcome is not None:
            self._owner.on_lost(self, error)
        elif not self.welcomed.done():
            self.welcomed.set_exception(error)

    # -- in --------------------------------------------------------------------------------------

    def _read(self) -> None:
        reader = self._reader
        while not self.is_closed:
            found = reader.next()
            if found is None:
                return
            if isinstance(found, Malformed):
                said = f"the server does not keep the protocol: {found.text}"
                if self.welcome is None:
                    said = spoken(reader.first(HEAD_BYTES))
                self.fail(ProtocolError(said))
                return
            kind, flags, number, payload = found
            try:
                if self.welcome is None:
                    self._on_first(kind, payload)
                else:
                    self._owner.on_frame(kind, flags, number, payload)
            except PenstockError as error:
                self.fail(error)
                return

    def _on_first(self, kind: int, payload: memoryview) -> None:
        if kind == Type.ERROR:
            raise decode_error(payload)
        if kind != Type.WELCOME:
            raise ProtocolError("the server does not answer as a Penstock server does")
        self.welcome = frames_hello.decode_welcome(payload)
        if not self.welcomed.done():
            self.welcomed.set_result(self.welcome)

    def poll(self) -> None:
        """Reads what has arrived, without waiting for the loop to come round."""
        self.flush()
        transport = self._transport
        for _ in range(READS_MAX):
            if self.is_closed or transport is None or transport.is_closing():
                return
            try:
                found = os.readv(transport.get_extra_info("socket").fileno(), [self._reader.room()])
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return  # the loop meets the same, and tells
            if not found:
                return
            self.buffer_updated(found)

    # -- out -------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Sends a frame."""
        self.sent += 1
        if self._is_gathering:
            self._out.append(data)
        elif not self.is_closed:
            self._transport.write(data)
            self._gather()

    def send_pieces(self, pieces: list[bytes]) -> None:
        """Sends one frame in pieces."""
        self.sent += 1
        if self._is_gathering:
            self._out += pieces
        elif not self.is_closed:
            self._transport.writelines(pieces)
            self._gather()

    def _gather(self) -> None:
        self._is_gathering = True
        self._loop.call_soon(self._written)

    def _written(self) -> None:
        if self._out:
            self.flush()
            self._loop.call_soon(self._written)
        else:
            self._is_gathering = False

    def flush(self) -> None:
        """Writes what was gathered."""
        out, self._out = self._out, []
        if out and not self.is_closed:
            self._transport.writelines(out)

    @property
    def waiting(self) -> int:
        """Bytes that the system has not taken."""
        return int(self._transport.get_write_buffer_size()) if self._transport else 0

    # -- the end ---------------------------------------------------------------------------------

    def fail(self, error: PenstockError) -> None:
        """Ends the connection because of an error."""
        self._error = error
        self.abort()

    def abort(self) -> None:
        """Ends the connection at once; `connection_lost` follows."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Ends the connection when what was sent is out."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
