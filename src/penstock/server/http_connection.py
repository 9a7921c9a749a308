"""One HTTP connection: bytes into requests, answers into bytes, and patience with a limit.

httptools reads the bytes. Requests may come one behind the other without waiting; their handlers
start at once, their answers leave in order. Everything a client may make us keep has a limit.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import httptools

from penstock.server.http_exchange import Exchange
from penstock.vocabulary.errors import PenstockError
from penstock.vocabulary.limits import KIB, MIB
from penstock.wire.rest import Refused

if TYPE_CHECKING:
    from penstock.server.http import HttpListener

HEAD_BYTES_MAX: Final = 32 * KIB
HEAD_COUNT_MAX: Final = 128
TARGET_BYTES_MAX: Final = 8 * KIB
WAITING_MAX: Final = 64
"""Requests of one connection that are not answered yet, before no more are read."""
OUT_BYTES_HIGH: Final = 1 * MIB
LINGER_S: Final = 1.0
"""How long a refused client may go on sending before it is cut off."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

log = logging.getLogger("penstock.server")


class Connection(asyncio.Protocol):
    """The server's end of one connection. Everything happens on the listener's loop."""

    def __init__(self, listener: "HttpListener") -> None:
        self.listener = listener
        self.waiting: deque[Exchange] = deque()
        """Requests that are not answered, in order."""
        self.reading_since = 0.0
        """When the first byte of the request that is being read came; 0 = none is."""
        self.body_since = 0.0
        self.blocked_since = 0.0
        """When the client stopped taking what is sent; 0 = it takes it."""
        self.idle_since = listener.now()
        self._transport: Any = None
        self._parser = httptools.HttpRequestParser(self)
        self._exchange: Exchange | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._received = 0
        """Bytes of the body that is being read, discarded ones included."""
        self._head: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._target = b""
        self._first: Exchange | None = None
        self._begun = 0
        """The first request that began with the bytes that came last, if it is whole, and how
        many began."""
        self._is_in_body = False
        self._is_refused = False
        self.is_ending = False
        self._is_reading = True
        self._is_flushing = False
        self._room: asyncio.Future[None] | None = None

    @property
    def peer(self) -> str:
        """Who is at the other end."""
        found = self._transport.get_extra_info("peername") if self._transport else None
        return f"{found[0]}:{found[1]}" if isinstance(found, tuple) else "a local client"

    # -- the transport's side --------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Somebody connected."""
        self._transport = transport
        transport.set_write_buffer_limits(high=OUT_BYTES_HIGH)
        self.listener.joined(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """The connection is gone: nothing that waits can be answered."""
        self.listener.left(self)
        self.is_ending = True
        waiting, self.waiting = self.waiting, deque()
        for exchange in [*waiting, *([self._exchange] if self._exchange else [])]:
            _lose(exchange)
        self._exchange = None
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self.is_ending:
            return
        is_start = self._exchange is None
        if is_start:
            known = self._take_known(data)
            if known == len(data):
                self._pause_when_full()
                return
            data = data[known:] if known else data
        self._head_bytes += 0 if self._is_in_body else len(data)
        self._first, self._begun = None, 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.end_after_answers()
        except httptools.HttpParserError as error:
            self._refuse(Refused(400, "bad-request", f"this is not a request: {_text(error)}"))
        if not self._is_in_body and self._exchange is not None:
            if self._head_bytes > HEAD_BYTES_MAX + len(data):
                self._refuse(_head_too_large())
        elif self._exchange is None:
            self._head_bytes = 0
        if is_start:
            self._learn(data)
        self._pause_when_full()

    def _take_known(self, data: bytes) -> int:
        """Takes the first requests whose heads are known; returns how far they reach."""
        at, listener = 0, self.listener
        while at < len(data) and not self.is_ending:
            found = listener.heads.find(data, at)
            if found is None:
                break
            known, start = found
            at = start + known.length
            exchange = Exchange.again(self, known, data[start:at])
            listener.requests += 1
            self.waiting.append(exchange)
            self._handle(exchange)
        return at

    def _learn(self, data: bytes) -> None:
        if self._first is not None:
            self.listener.heads.learn(data, self._first)

    def _pause_when_full(self) -> None:
        if self._is_reading and len(self.waiting) >= WAITING_MAX:
            self._is_reading = False
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The client says no more. What it asked is still answered, but nobody waits for it."""
        if any(exchange.is_patient for exchange in self.waiting):
            self.abort()
        self.end_after_answers()
        return bool(self.waiting) and not self._is_gone

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        self.blocked_since = self.listener.now()
        self.listener.watch(self)
        if self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client takes what is sent again."""
        self.blocked_since = 0.0
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)
        self._read_on()

    # -- the parser's side -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._begun += 1
        if self._is_refused or self.is_ending:
            return
        self._exchange = Exchange(self)
        self.reading_since = self.listener.now()
        self.listener.watch(self)
        self._head, self._target = [], b""
        self._parts, self._size, self._received = [], 0, 0
        self._is_in_body = False

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._target += url
        if len(self._target) > TARGET_BYTES_MAX:
            self._refuse(
                Refused(414, "headers-too-large", "the address is over its limit of 8 KiB")
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; behind the body it is a trailer, which says nothing here."""
        if self._is_in_body or self._is_refused:
            return
        self._head.append((name, value))
        if len(self._head) > HEAD_COUNT_MAX:
            self._refuse(_head_too_large())

    def on_headers_complete(self) -> None:
        """The head is whole: it says who is meant, and whether the body may come."""
        exchange = self._exchange
        if exchange is None or self._is_refused:
            return
        self._head_bytes = 0
        self._is_in_body = True
        self.body_since = self.listener.now()
        exchange.method = self._parser.get_method().decode("ascii", "replace")
        exchange.is_head = exchange.method == "HEAD"
        exchange.is_old = self._parser.get_http_version() == "1.0"
        exchange.is_close = not self._parser.should_keep_alive()
        try:
            if sum(len(n) + len(v) + 4 for n, v in self._head) > HEAD_BYTES_MAX:
                raise _head_too_large()
            self._admit(exchange)
        except (Refused, PenstockError) as error:
            self._answer_early(exchange, error)

    def _admit(self, exchange: Exchange) -> None:
        exchange.headers = headers = _headers(self._head)
        exchange.aim(self._target)
        self.listener.route(exchange)
        length = headers.get("content-length")
        if length is not None and int(length) > exchange.limit:
            raise _too_large(exchange.limit)
        expects = headers.get("expect")
        if expects is not None:
            if expects.lower() != "100-continue":
                raise Refused(417, "expectation-failed", f"{expects!r:.80} cannot be met")
            if not exchange.is_old and not self.waiting:
                self._transport.write(CONTINUE)

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        self._received += len(data)
        exchange = self._exchange
        if exchange is None or exchange.data is not None or self._is_refused:
            return
        self._size += len(data)
        if self._size > exchange.limit:
            self._parts = []
            self._answer_early(exchange, _too_large(exchange.limit))
            return
        self._parts.append(data)

    def on_message_complete(self) -> None:
        """The request is whole."""
        exchange, self._exchange = self._exchange, None
        self._is_in_body = False
        self._head_bytes = 0
        self.reading_since = self.body_since = 0.0
        if exchange is None or self._is_refused:
            return
        parts, self._parts = self._parts, []
        if exchange.data is not None:
            return  # it was answered before its body came
        exchange.body = parts[0] if len(parts) == 1 else b"".join(parts)
        if self._begun == 1:
            self._first = exchange
        self.waiting.append(exchange)
        self._handle(exchange)

    # -- requests and answers --------------------------------------------------------------------

    def _handle(self, exchange: Exchange) -> None:
        handler = exchange.handler
        assert handler is not None
        try:
            work = handler(exchange)
        except (Refused, PenstockError) as error:
            exchange.fail(error)
            return
        except Exception as error:
            log.exception("a request could not be handled")
            exchange.fail(error)
            return
        if work is not None:
            exchange.task = self.listener.loop.create_task(_run(exchange, work))
            self.listener.keep(exchange.task)

    def _answer_early(self, exchange: Exchange, error: Exception) -> None:
        """Answers before the body came; a large one is not waited for."""
        if exchange.data is not None:
            return
        self.waiting.append(exchange)
        length = exchange.headers.get("content-length", "0")
        is_long = "transfer-encoding" in exchange.headers or int(length or 0) > HEAD_BYTES_MAX
        if is_long:
            exchange.is_close = True
        exchange.fail(error)
        if is_long or exchange.is_close:
            self._stop_reading()

    def _refuse(self, refused: Refused) -> None:
        """The bytes make no sense: says so, and ends the connection."""
        if self._is_refused:
            return
        self._is_refused = True
        exchange = self._exchange or Exchange(self)
        self._exchange = None
        if exchange.data is None:
            exchange.is_close = True
            self.waiting.append(exchange)
            exchange.fail(refused)
        self._stop_reading()

    @property
    def is_streaming(self) -> bool:
        """True while an answer without an end is under way."""
        return any(each.is_streaming for each in self.waiting)

    def ends_with(self, exchange: Exchange) -> bool:
        """Takes no more requests if this is the last one that came; False when there are more."""
        is_another_begun = self._exchange is not None and self._exchange is not exchange
        if is_another_begun or (self.waiting and self.waiting[-1] is not exchange):
            return False
        self.is_ending = True
        return True

    def answered(self) -> None:
        """An answer is ready; all that are ready in this round of the loop go out together."""
        if not self._is_flushing:
            self._is_flushing = True
            self.listener.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Sends every answer whose turn it is."""
        self._is_flushing = False
        if self._is_gone:
            return  # whoever waits is told so when the connection is lost
        waiting = self.waiting
        ready: list[bytes] = []
        is_last = False
        while waiting and waiting[0].data is not None and not is_last:
            exchange = waiting[0]
            ready.append(exchange.data or b"")
            exchange.on_lost = None
            if exchange.is_streaming:
                break
            waiting.popleft()
            is_last = exchange.is_close
        if ready:
            self._transport.write(b"".join(ready) if len(ready) > 1 else ready[0])
        if is_last:
            self.end()
        elif not waiting:
            self.idle_since = self.listener.now()
            if self.is_ending:
                self.end()
        self._read_on()

    def write(self, data: bytes) -> None:
        """Sends more of an answer that streams."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Returns when the client takes what is sent, or is gone."""
        if self.blocked_since and not self._is_gone:
            if self._room is None:
                self._room = self.listener.loop.create_future()
            await asyncio.shield(self._room)

    @property
    def _is_gone(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _read_on(self) -> None:
        may_read = not (self.is_ending or self.blocked_since or len(self.waiting) >= WAITING_MAX)
        if not self._is_reading and may_read and not self._is_gone:
            self._is_reading = True
            self._transport.resume_reading()

    # -- the end ---------------------------------------------------------------------------------

    def end_after_answers(self) -> None:
        """No more requests; the connection ends when those that came are answered."""
        self.is_ending = True
        if not self.waiting:
            self.end()

    def _stop_reading(self) -> None:
        """What follows is thrown away, for a while, so that the client reads our answer."""
        self.is_ending = True

    def end(self) -> None:
        """Sends what is written and ends the connection."""
        self.is_ending = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not self._is_reading:
            self._is_reading = True
            transport.resume_reading()
        if transport.can_write_eof() and not self.listener.is_stopping:
            # A client that is still sending would be cut off before it reads the answer.
            transport.write_eof()
            self.listener.loop.call_later(LINGER_S, transport.close)
        else:
            transport.close()

    def turn_away(self) -> None:
        """There are too many connections: says so, and ends this one."""
        text = f"the server takes {self.listener.settings.connections_max} connections"
        self._refuse(Refused(503, "too-many-connections", text, retry_after="1"))

    def abort(self) -> None:
        """Ends the connection at once."""
        self.is_ending = True
        if self._transport is not None:
            self._transport.abort()

    def check(self, now: float) -> bool:
        """Loses patience where it is due; False when there is nothing to watch any more."""
        limits = self.listener.settings
        if self.blocked_since and now - self.blocked_since > limits.write_s:
            self._complain(f"takes nothing for {limits.write_s:g} s and is dropped")
            self.abort()
            return False
        if self.is_ending or not self.reading_since:
            return bool(self.blocked_since)
        if not self._is_in_body:
            if now - self.reading_since > limits.head_s:
                self._time_out(f"the head of a request must come within {limits.head_s:g} s")
        elif self._received < limits.body_rate * (now - self.body_since - limits.head_s):
            self._time_out(f"a body must come at {limits.body_rate} bytes a second or faster")
        return True

    def _time_out(self, text: str) -> None:
        self._complain(f"is too slow and is dropped: {text}")
        if self.waiting:
            self.abort()
        else:
            self._refuse(Refused(408, "request-timeout", text))

    def _complain(self, text: str) -> None:
        self.listener.complaints.say(self.listener.now(), f"{self.peer} {text}")


async def _run(exchange: Exchange, work: Any) -> None:
    try:
        await work
    except (Refused, PenstockError) as error:
        if exchange.data is None:
            exchange.fail(error)
    except Exception as error:
        log.exception("a request could not be handled")
        if exchange.data is None:
            exchange.fail(error)
    else:
        assert exchange.data is not None, "a handler answers"


def _lose(exchange: Exchange) -> None:
    on_lost, exchange.on_lost = exchange.on_lost, None
    if on_lost is not None:
        on_lost()
    if exchange.task is not None:
        exchange.task.cancel()


def _headers(pairs: list[tuple[bytes, bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name in found:
            if name.startswith(("penstock-", "ce-", "content-", "last-event")) or name == "host":
                raise Refused(400, "bad-request", f"the header {name!r:.80} came twice")
            value = f"{found[name]}, {value}"
        found[name] = value.strip(" \t")
    return found


def _head_too_large() -> Refused:
    text = f"a request head has at most {HEAD_COUNT_MAX} headers and {HEAD_BYTES_MAX} bytes"
    return Refused(431, "headers-too-large", text)


def _too_large(limit: int) -> Refused:
    text = f"the body is over the limit of {limit} bytes of this address"
    return Refused(413, "content-too-large", text)


def _text(error: Exception) -> str:
    return str(error.args[0])[:200] if error.args else type(error).__name__
