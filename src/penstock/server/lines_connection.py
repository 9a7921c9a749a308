"""One connection of the line protocol: what is read, in which order it is done, what is written.

What each command does is in `lines_commands`. A connection reads no further while its client does
not read, while the broker has no room, and while a command is under way that later ones wait for.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.server.lines_commands import do
from penstock.server.lines_outbox import Outbox, Reply
from penstock.server.lines_publishing import Load, Run
from penstock.server.lines_queue import Flying, LineQueue
from penstock.vocabulary import limits
from penstock.vocabulary.errors import InvalidArgument, PenstockError
from penstock.wire import line_reply as say
from penstock.wire.line import Verb, is_http
from penstock.wire.line_event import parse_event
from penstock.wire.line_splitter import LineSplitter, TooLong

if TYPE_CHECKING:
    from penstock.server.lines import LinesListener

log = logging.getLogger("penstock.server")

WRITE_HIGH_BYTES: Final = limits.OUT_BYTES_MAX // 8
"""Above this nothing more is written, nor read, until the client has read."""
HELD_BYTES_MAX: Final = limits.OUT_BYTES_MAX * 8
"""Events that wait for one client to read; one that has more at once is let go."""
RUN_LINES_MAX: Final = 10_000
RUN_BYTES_MAX: Final = limits.BATCH_BYTES_MAX // 4


class LineConnection(asyncio.Protocol):
    """One connection. Everything happens on the listener's loop."""

    def __init__(self, listener: "LinesListener") -> None:
        self.listener = listener
        self.client_id = listener.new_client_id()
        self.queues: dict[str, LineQueue] = {}
        self.outbox = Outbox()
        self.peer = ""
        self.begun_at = 0.0
        """When the line began whose end has not come; 0 = none has."""
        self._splitter = LineSplitter(listener.settings.line_bytes_max)
        self._lines: deque[bytes | TooLong | None] = deque()
        """What was read and not done; None = the client says nothing more."""
        self._promised: list[tuple[Reply, bytes]] = []
        """What is said as soon as all that is decided is durable."""
        self._acking: dict[LineQueue, list[tuple[Flying, Reply, str]]] = {}
        """Acks that were read one behind the other, and go to the broker together."""
        self._transport: asyncio.Transport | None = None
        self._is_busy = False
        """A command is under way that later ones wait for."""
        self._is_paused = False
        """The client does not read what is written."""
        self._is_full = False
        """The broker has no room for more messages just now."""
        self._is_reading = True
        self._is_ending = False
        self._last = b""
        """What is said last once the client holds nothing; empty = it may go on."""
        self._is_deaf = False
        """The client says nothing more."""
        self._is_hung_up = False
        """The client was told that nothing more is said."""
        self._lingering: asyncio.TimerHandle | None = None

    # -- the socket ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = _prepare(self._transport)
        refusal = self.listener.admit(self)
        if refusal:
            self.end(refusal)
        else:
            self.outbox.reply(self.listener.greeting)
            self.write()

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        splitter = self._splitter
        lines = splitter.feed(data)
        if splitter.has_begun:
            if lines or not self.begun_at:
                self.begun_at = self.listener.begun(self)
        elif self.begun_at:
            self.begun_at = 0.0
            self.listener.finished(self)
        answers = splitter.answers()
        if answers and self._transport is not None:
            self._transport.write(answers)
        if lines:  # a piece of a line changes nothing
            self._lines.extend(lines)
            self.work()

    def eof_received(self) -> bool:
        """The client says nothing more: what it said is done, then the connection ends."""
        self._is_deaf = True
        self._lines.append(None)
        self.work()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._is_ending = True
        self._lines.clear()
        self._leave(is_clean=error is None)
        if error is not None:
            log.info("line client %s at %s is lost: %s", self.client_id, self.peer, error)
        self.listener.forget(self)
        self._transport = None
        if self._lingering is not None:
            self._lingering.cancel()

    def pause_writing(self) -> None:
        self._is_paused = True
        self.listener.watch(self)

    def resume_writing(self) -> None:
        self._is_paused = False
        self.listener.unwatch(self)
        self.work()

    @property
    def unread_bytes(self) -> int:
        """What the socket has not taken yet; it shrinks while the client reads."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def drop(self, why: str) -> None:
        """Ends a connection that would harm others; the log says why."""
        self.listener.complain(self, why)
        if self._transport is not None:
            self._transport.abort()

    def end_slow(self, seconds: float) -> None:
        """Ends a connection whose line does not end."""
        why = f"its line did not end within {seconds:g} s"
        self.listener.complain(self, why)
        self.end(say.refused(f"the line did not end within {seconds:g} s; closing"))

    def abort(self) -> None:
        """Ends at once, whatever there is to say."""
        if self._transport is not None:
            self._transport.abort()

    def finish(self, notice: bytes, last: bytes) -> None:
        """Ends as soon as the client holds nothing; one that does is told so."""
        self._last = last
        if self._holds:
            self.outbox.reply(notice)
        self.work()

    @property
    def _holds(self) -> bool:
        return any(queue.in_flight for queue in self.queues.values())

    def end(self, last: bytes = b"") -> None:
        """Takes no more commands; closes as soon as everything is said."""
        if self._is_ending:
            return
        self._is_ending = True
        self._lines.clear()
        self._send_acks()
        self._leave(is_clean=True)
        if last:
            self.outbox.reply(last)
        self.write()
        self._read_or_wait()

    def _leave(self, *, is_clean: bool) -> None:
        queues, self.queues = self.queues, {}
        for queue in queues.values():
            queue.leave(is_clean=is_clean)
            self.listener.left(self, queue)

    # -- commands --------------------------------------------------------------------------------

    def work(self) -> None:
        """Does what was read, as far as it can be done now, and says what came of it."""
        while self._lines and self._can_work():
            if not self._publish():
                self._next()
        if self._acking:
            self._send_acks()
        if self._promised:
            self._keep_promises()
        if self._last and not (self._lines or self._is_busy or self._holds):
            self.end(self._last)
        self.write()
        self._read_or_wait()

    def _can_work(self) -> bool:
        if self._is_busy or self._is_paused or self._is_full or self._is_ending:
            return False
        return self.outbox.runs < limits.LINE_RUNS_MAX

    def _next(self) -> None:
        line = self._lines.popleft()
        if line is None:
            self.end()
        elif isinstance(line, TooLong):
            most = self.listener.settings.line_bytes_max
            self.outbox.reply(say.refused(f"the line is longer than {most} bytes; it was skipped"))
        elif line:
            self._command(line)

    def _command(self, line: bytes) -> None:
        topic = ""
        try:
            command = self.listener.language.parse(line)
            topic = command.first
            if self._acking and command.verb is not Verb.ACK:
                self._send_acks()
            do(self, command)
        except InvalidArgument as error:
            if not topic and is_http(line):
                self._refuse_http()
            else:
                self.outbox.reply(say.refused(error.text))
        except PenstockError as error:
            self.outbox.reply(say.error_line(error, topic))

    def _refuse_http(self) -> None:
        """A page that makes its visitor's browser send commands here must not get to the next."""
        self.listener.complain(self, "it speaks HTTP, not lines")
        text = "this port speaks lines, not HTTP, which has a port of its own; closing"
        self.end(say.refused(text))

    def _publish(self) -> bool:
        """Takes all `pub` lines that stand one behind the other; False when there is none."""
        run = Run()
        loads: dict[str, Load] = {}
        replies, lines, words = run.lines, self._lines, self.listener.language.publish_words
        size = 0
        while lines and len(replies) < RUN_LINES_MAX and size < RUN_BYTES_MAX:
            line = lines[0]
            if not isinstance(line, bytes):
                break
            parts = line.split(b" ", 2)
            if parts[0] not in words:
                break
            lines.popleft()
            size += len(line)
            try:
                if len(parts) < 3 or not parts[1]:  # noqa: PLR2004 - a word, a topic, an event
                    self.listener.language.parse(line)  # says how it is written
                event = parse_event(parts[2])
                topic = parts[1].decode()
            except PenstockError as error:
                replies.append(say.refused(error.text))
            except UnicodeDecodeError:
                replies.append(say.refused("the topic is not UTF-8 text"))
            else:
                load = loads.get(topic)
                if load is None:
                    load = loads[topic] = Load([], [])
                load.places.append(len(replies))
                load.events.append(event)
                replies.append(say.ok(event.id))
        if not replies:
            return False
        self._send(run, loads)
        return True

    def _send(self, run: Run, loads: dict[str, Load]) -> None:
        self.outbox.run(run)
        for topic, load in loads.items():
            self.listener.publisher.publish(run, topic, load)
        run.on_done = self.work
        self._is_full = not self.listener.broker.when_room(
            (self.listener.mailbox, self._has_room, None)
        )

    def ack(self, queue: LineQueue, flying: Flying, id: str) -> None:
        """Finishes an event, together with others that are acked now."""
        self._acking.setdefault(queue, []).append((flying, self.outbox.reply(), id))

    def _send_acks(self) -> None:
        acking, self._acking = self._acking, {}
        for queue, rows in acking.items():
            try:
                refused = queue.ack([flying for flying, _, _ in rows])
            except PenstockError as error:
                for _, place, _ in rows:
                    place.data = say.error_line(error)
                continue
            for (_, place, id), why in zip(rows, refused, strict=True):
                if why:
                    place.data = say.not_settled(id, why)
                else:
                    self._promised.append((place, say.ok(id)))

    def _has_room(self, _answer: Any) -> None:
        # Also told when the store failed: the next publish says so.
        self._is_full = False
        self.work()

    def wait_for(self, then: Callable[[Any], bytes], function: Any, *arguments: Any) -> None:
        """Does something that may take long in a thread; later commands wait for it."""
        is_alone = not self.outbox
        place = self.outbox.reply()
        self._is_busy = True

        def done(future: "asyncio.Future[Any]") -> None:
            self._is_busy = False
            place.data = _outcome(future, then, arguments)
            self.work()

        def begin(_answer: Any = None) -> None:
            self.listener.in_thread(function, *arguments).add_done_callback(done)

        if is_alone:
            begin()
        else:  # It must see what the commands before it did.
            self.listener.broker.flush(self.listener.mailbox, begin)

    # -- answers ---------------------------------------------------------------------------------

    def promise(self, data: bytes) -> None:
        """Says this in its turn, once everything decided so far is durable."""
        self._promised.append((self.outbox.reply(), data))

    def _keep_promises(self) -> None:
        promised, self._promised = self._promised, []

        def durable(answer: Any) -> None:
            for place, data in promised:
                is_wrong = isinstance(answer, PenstockError)
                place.data = say.error_line(answer) if is_wrong else data
            self.work()

        self.listener.broker.flush(self.listener.mailbox, durable)

    def deliver(self, flying: Flying) -> None:
        """An event arrived for this client."""
        self.outbox.deliver(flying)
        if self._is_paused and self.outbox.flying_bytes > HELD_BYTES_MAX:
            self.drop(f"{self.outbox.flying_bytes} bytes of events wait for it")
        else:
            self.write()

    def closed(self, queue: LineQueue, error: Exception) -> None:
        """The broker ended a subscription."""
        if self.queues.get(queue.topic) is queue:
            del self.queues[queue.topic]
            queue.leave(is_clean=True)
            topic = say.printable(queue.topic)
            self.outbox.reply(say.text_line(f"closed: topic {topic}: {error}"))
            self.write()

    def write(self) -> None:
        """Says what can be said."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        while not self._is_paused and (data := self.outbox.take()):
            transport.write(data)
        if self._is_ending and not self.outbox:
            self._hang_up(transport)

    def _hang_up(self, transport: asyncio.Transport) -> None:
        if self._lingering is None:
            self._lingering = self.listener.later(self.listener.linger_s, self.abort)
        if self._is_deaf:
            transport.close()
        elif transport.get_write_buffer_size():
            transport.set_write_buffer_limits(high=0)  # told again when all is written
        elif not self._is_hung_up:
            self._is_hung_up = True
            try:
                transport.write_eof()
            except OSError:  # the client hung up, which is not read yet
                transport.abort()

    def _read_or_wait(self) -> None:
        transport, is_wanted = self._transport, not self._lines or self._is_ending
        if transport is None or transport.is_closing() or is_wanted == self._is_reading:
            return
        self._is_reading = is_wanted
        if is_wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()


def _outcome(
    future: "asyncio.Future[Any]", then: Callable[[Any], bytes], arguments: tuple[Any, ...]
) -> bytes:
    """The reply that a thread's work leads to."""
    if future.cancelled():
        return say.refused("the broker is stopping")
    error = future.exception()
    if error is None:
        return then(future.result())
    if isinstance(error, InvalidArgument):
        return say.refused(error.text)
    if isinstance(error, PenstockError):
        named = next((each for each in arguments if isinstance(each, str)), "")
        return say.error_line(error, named)
    log.error("a line command failed", exc_info=error)
    return say.refused("the broker could not do it; its log says why")


def _prepare(transport: asyncio.Transport) -> str:
    """Sets the socket up; returns the address of the client."""
    transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
    plain = transport.get_extra_info("socket")
    if plain is not None and plain.family in {socket.AF_INET, socket.AF_INET6}:
        for option, value in _KEEP_ALIVE:
            plain.setsockopt(*option, value)
    address = transport.get_extra_info("peername")
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "a socket"


_KEEP_ALIVE: Final = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 60),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 15),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 4),
)
"""A client may be silent for ever; one whose machine is gone is found within two minutes."""
