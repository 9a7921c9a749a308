"""One connection of the binary protocol: bytes in and out, its limits, and how it begins and ends.

What frames mean is the session's business. One read buffer, many frames for each wake-up; answers
are gathered and written together. Belongs to the listener's loop.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.server.frames_limits import WRITE_HIGH_BYTES
from penstock.server.frames_session import Session
from penstock.vocabulary.errors import PenstockError, ProtocolError, Unavailable
from penstock.vocabulary.limits import MIB
from penstock.wire import frames, frames_hello
from penstock.wire.frames import Malformed, Reader, Type
from penstock.wire.frames_claims import encode_count
from penstock.wire.frames_errors import encode_error

if TYPE_CHECKING:
    from penstock.server.frames import FramesListener

log = logging.getLogger("penstock.server")

FIRST_BYTES: Final = frames.HEADER_BYTES + len(frames_hello.MAGIC)


class Connection(asyncio.BufferedProtocol):
    """A client at the other end of a socket."""

    def __init__(self, listener: "FramesListener") -> None:
        self.listener = listener
        self.limits = listener.limits
        self.peer = "?"
        self.session: Session | None = None
        self.is_closed = False
        self.reader = Reader(frames.BEFORE_HELLO)
        self._transport: Any = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_full = False
        """The transport takes no more for now."""
        self._holds = 0
        """Reasons not to read."""
        self._is_backed_up = False
        self._made_at = 0.0
        self._heard_at = 0.0
        self._asked_at = 0.0
        self._begun = (-1, 0.0, 0)
        """Number of the frame that has begun, when that was first seen, and with how many bytes."""
        self._stuck: tuple[float, int] | None = None
        """Since when too little was taken, and how much waited then."""

    # -- the transport's calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._made_at = self._heard_at = self._asked_at = self.listener.time()
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a local process"
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if not self.listener.add(self):
            most = self.limits.connections_max
            error = Unavailable(
                f"the server has {most} connections, which is its limit: try again later"
            )
            self.refuse(error, f"there are {most} connections")

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - what asyncio calls
        return self.reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.reader.took(nbytes)
        self._heard_at = self.listener.time()
        self.read()
        self.listener.heard(self)
        self.flush()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_full = True
        self._stuck = (self.listener.time(), self._waiting)

    def resume_writing(self) -> None:
        self._is_full = False
        self._stuck = None
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as above
        self.is_closed = True
        self._out.clear()
        self.listener.remove(self)
        if self.session is not None:
            self.session.end()

    # -- in --------------------------------------------------------------------------------------

    def read(self) -> None:
        """Handles every whole frame, until something has to be waited for."""
        reader = self.reader
        while not self._holds and not self.is_closed:
            if self.session is None and not self._is_expected():
                return
            found = reader.next()
            if found is None:
                return
            if isinstance(found, Malformed):
                self.refuse(ProtocolError(found.text), found.text)
                return
            kind, flags, number, payload = found
            try:
                if self.session is None:
                    self._welcome(number, payload)
                else:
                    self.session.handle(kind, flags, number, payload)
            except PenstockError as error:
                self.refuse(error, error.text, number)
                return
            except Exception as error:
                log.exception("a frame of %s met a defect; the connection is closed", self.peer)
                self.refuse(error, "a defect")
                return
            if self._out_bytes > WRITE_HIGH_BYTES:
                self.flush()

    def _is_expected(self) -> bool:
        first = self.reader.first(FIRST_BYTES)
        if not frames_hello.is_foreign(first):
            return True
        self._refuse_foreign(first)
        return False

    def _refuse_foreign(self, first: bytes) -> None:
        text = f"{self.peer} does not speak the binary protocol: it was told so"
        self.listener.complaints.say(self.listener.time(), text, logging.INFO)
        self._transport.write(frames_hello.refuse_foreign(first, self.listener.where))
        self.close()

    def _welcome(self, number: int, payload: memoryview) -> None:
        hello = frames_hello.decode_hello(payload)
        version = frames_hello.choose_version(hello)
        welcome = self.listener.welcome(version)
        self.reader.allow(frames.FROM_CLIENT)
        self.session = Session(self, hello.client[: frames_hello.NAME_CHARACTERS_MAX])
        self.send(frames.frame(Type.WELCOME, number, frames_hello.encode_welcome(welcome)))

    def hold(self) -> None:
        """Reads nothing until `go_on`: something must be waited for."""
        self._holds += 1
        if self._holds == 1 and not self.is_closed:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """One reason less not to read."""
        self._holds -= 1
        if self._holds == 0 and not self.is_closed:
            self._begun = (-1, 0.0, 0)
            self.read()
            if self._holds == 0 and not self.is_closed:
                self._transport.resume_reading()
            self.flush()

    # -- out -------------------------------------------------------------------------------------

    @property
    def _waiting(self) -> int:
        """Bytes that the client has not taken."""
        return self._out_bytes + int(self._transport.get_write_buffer_size())

    def send(self, data: bytes) -> None:
        """Sends a frame with the next write."""
        self._out.append(data)
        self._out_bytes += len(data)
        self.listener.dirty[self] = None

    def send_pieces(self, pieces: list[bytes]) -> None:
        """Sends frames in pieces with the next write."""
        self._out += pieces
        self._out_bytes += sum(map(len, pieces))
        self.listener.dirty[self] = None

    def flush(self) -> None:
        """Writes what was gathered, as far as the transport takes it."""
        self.listener.dirty.pop(self, None)
        while self._out and not self._is_full and not self.is_closed:
            if self._out_bytes <= WRITE_HIGH_BYTES:
                out, self._out, self._out_bytes = self._out, [], 0
            else:
                out = self._take(WRITE_HIGH_BYTES)
            self._transport.writelines(out)
        if self._out_bytes > self.limits.pending_bytes_max and not self._is_backed_up:
            self._is_backed_up = True
            self.hold()
        elif self._is_backed_up and not self._out_bytes:
            self._is_backed_up = False
            self.go_on()

    def _take(self, bytes_max: int) -> list[bytes]:
        count = size = 0
        while size < bytes_max and count < len(self._out):
            size += len(self._out[count])
            count += 1
        out = self._out[:count]
        del self._out[:count]
        self._out_bytes -= size
        return out

    # -- time ------------------------------------------------------------------------------------

    def sweep(self, now: float) -> bool:
        """Looks whether the client keeps the limits of time; True when the connection was ended."""
        limits = self.limits
        if self.is_closed:
            return False
        if self.session is None:
            if now - self._made_at > limits.handshake_s:
                self._refuse_foreign(self.reader.first(FIRST_BYTES))
            return self.is_closed
        reason = self._slow_sender(now)
        if reason:
            self._drop_politely(reason)
            return True
        reason = self._slow_reader(now)
        if not reason and now - self._heard_at > limits.lost_s and not self._holds:
            reason = f"nothing came for {limits.lost_s:.0f} s"
        if reason:
            self.drop(reason)
        elif now - max(self._heard_at, self._asked_at) > limits.idle_s:
            self._asked_at = now
            self.reader.shrink()
            self.send(frames.frame(Type.PING, 0, encode_count(self.listener.wall())))
            self.flush()
        return bool(reason)

    def _slow_sender(self, now: float) -> str:
        reader, limits = self.reader, self.limits
        if not reader.has_begun or self._holds:
            self._begun = (-1, 0.0, 0)
            return ""
        number, since, before = self._begun
        if number != reader.frames:
            self._begun = (reader.frames, now, reader.held)
            return ""
        took = now - since
        if took > limits.frame_s * (1 + reader.wanted // MIB):
            return f"a frame took more than {took:.0f} s"
        if took > limits.handshake_s and reader.held - before < took * limits.rate_bytes_min:
            return f"a frame came with less than {limits.rate_bytes_min} bytes a second"
        return ""

    def _slow_reader(self, now: float) -> str:
        if self._stuck is None:
            return ""
        since, waited = self._stuck
        limits = self.limits
        if now - since <= limits.write_s:
            return ""
        taken = waited - self._waiting
        if taken < limits.rate_bytes_min * limits.write_s:
            return (
                f"it took no more than {max(0, taken)} bytes in {now - since:.0f} s while "
                f"{self._waiting} waited"
            )
        self._stuck = (now, self._waiting)
        return ""

    # -- the end ---------------------------------------------------------------------------------

    def refuse(self, error: Exception, reason: str, number: int = 0) -> None:
        """Tells the client why, and ends the connection."""
        text = f"{self.peer}: the connection is closed: {_safe(reason)}"
        self.listener.complaints.say(self.listener.time(), text)
        self.send(frames.frame(Type.ERROR, number, encode_error(error), frames.MORE))
        self.flush()
        self.close()

    def _drop_politely(self, reason: str) -> None:
        """Ends the connection of a client that may still read why."""
        text = f"{self.peer}: dropped: {_safe(reason)}"
        self.listener.complaints.say(self.listener.time(), text)
        error = ProtocolError(f"{reason}: the connection is closed")
        self.send(frames.frame(Type.ERROR, 0, encode_error(error), frames.MORE))
        self.flush()
        self.close()

    def drop(self, reason: str) -> None:
        """Ends the connection at once."""
        text = f"{self.peer}: dropped: {_safe(reason)}"
        self.listener.complaints.say(self.listener.time(), text)
        self.is_closed = True
        self._transport.abort()

    def close(self) -> None:
        """Ends the connection once what was written is out; a client that waits is dropped."""
        if not self.is_closed:
            self.is_closed = True
            self._transport.close()
            self.listener.call_later(self.limits.handshake_s, self._abort)

    def _abort(self) -> None:
        self._transport.abort()


def _safe(text: str) -> str:
    """One line without control characters, for the log."""
    return "".join(c if c.isprintable() else "?" for c in text[:256])
