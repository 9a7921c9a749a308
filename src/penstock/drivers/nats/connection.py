"""A connection to NATS that reconnects by itself, and JetStream's requests over it.

The only module that imports the SDK. Its errors become ours here, and only here.
"""

import asyncio
import logging
import ssl
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec

from penstock.drivers.foreign.address import Address
from penstock.drivers.foreign.carrier import missing
from penstock.drivers.foreign.reaching import silent
from penstock.drivers.reasons import reason_of
from penstock.vocabulary.errors import (
    AccessRefused,
    DeadLetterFull,
    DiskFull,
    InvalidArgument,
    InvalidName,
    PenstockError,
    StorageError,
    Unavailable,
    UnknownSubscription,
    UnknownTopic,
    Unsupported,
)

try:
    from nats import errors as problems
    from nats.aio.client import Client as SdkClient
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise missing("nats", "nats-py") from error

log = logging.getLogger("penstock.drivers")

API: Final = "$JS.API."
REQUEST_S: Final = 5.0
CONNECT_S: Final = 2.0
PING_S: Final = 5
RECONNECT_S: Final = 0.1
LOOK_S: Final = 0.02
"""How often it is looked whether a lost connection is back."""
TURNS_MAX: Final = 100_000
"""Turns of the loop in which what arrived is handed over."""
NO_RESPONDERS: Final = "503"
VERSION_LEAST: Final = (2, 10)
"""The first that keeps metadata of streams and consumers, and updates a consumer on demand."""
TURN_ON: Final = (
    "start it with 'nats-server -js -sd FOLDER', or with a block 'jetstream { store_dir: FOLDER }' "
    "in its configuration"
)
STATUS: Final = "Status"

STREAM_NOT_FOUND: Final = 10059
CONSUMER_NOT_FOUND: Final = 10014
MESSAGE_NOT_FOUND: Final = 10037
_KINDS: Final[dict[int, type[PenstockError]]] = {
    STREAM_NOT_FOUND: UnknownTopic,
    CONSUMER_NOT_FOUND: UnknownSubscription,
    10047: DiskFull,  # insufficient storage resources
    10023: DiskFull,  # insufficient resources
    10077: DeadLetterFull,  # maximum bytes exceeded: only dead-letter streams refuse so
    10039: Unsupported,  # JetStream is not enabled for this account
    10076: Unsupported,  # JetStream is not enabled
    10065: InvalidName,  # subjects overlap with those of another stream
    10008: Unavailable,  # JetStream is temporarily unavailable
    10009: Unavailable,  # no leader
}


def check_version(found: tuple[int, int], text: str) -> None:
    """Raises Unsupported for a server that cannot keep what is asked of it."""
    if found < VERSION_LEAST:
        raise Unsupported(
            f"{text} is nats-server {found[0]}.{found[1]}; {VERSION_LEAST[0]}.{VERSION_LEAST[1]} "
            "or newer is needed: older ones forget the settings of topics and subscriptions"
        )


class Incoming(NamedTuple):
    """A message of NATS, with nothing of the SDK left."""

    subject: str
    reply: str
    data: bytes
    headers: dict[str, str] | None

    @property
    def status(self) -> str | None:
        """Set on messages of the server itself, such as 408."""
        return self.headers.get(STATUS) if self.headers and not self.data else None


class _Failure(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: _Failure | None = None


_decode_ack: Final = msgspec.json.Decoder(_PubAck).decode


class Ack(NamedTuple):
    """What the server said about one message that was stored."""

    seq: int
    is_duplicate: bool


Row = tuple[bytes, dict[str, str]]
"""Data and headers of a message."""


class Connection:
    """One connection, shared by a carrier and its feeds."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._nats: Any = SdkClient()
        self._tokens = count()
        self._inbox = ""
        self._waiting: dict[str, Callable[[Incoming | None], None]] = {}
        """Replies that are expected; they get None when the connection breaks."""
        self._last_error: Exception | None = None

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of the server."""
        found = self._nats.connected_server_version
        return found.major, found.minor

    @property
    def text(self) -> str:
        """The URL without credentials."""
        return self._address.text

    @property
    def payload_max(self) -> int:
        """Largest message, headers included."""
        return int(self._nats.max_payload)

    @property
    def is_up(self) -> bool:
        """True while the server can be reached."""
        return bool(self._nats.is_connected)

    async def open(self) -> None:
        """Connects. Raises Unavailable, AccessRefused."""
        options: dict[str, Any] = {}
        if self._address.user is not None:
            options["user"] = self._address.user
            options["password"] = self._address.password or ""
        if self._address.has_tls:
            options["tls"] = _tls(self._address)
        patience_s = self._address.connect_s
        servers = [f"nats://{host}:{port}" for host, port in self._address.hosts]
        try:
            async with asyncio.timeout(min(CONNECT_S + 1, patience_s)):
                await self._nats.connect(
                    servers=servers, max_reconnect_attempts=1,
                    connect_timeout=min(CONNECT_S, patience_s),
                    reconnect_time_wait=RECONNECT_S, ping_interval=PING_S, max_outstanding_pings=2,
                    error_cb=self._on_error, disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected, pending_size=64 * 1024 * 1024, **options,
                )  # fmt: skip
        except (problems.Error, OSError, TimeoutError) as error:
            await self.close()
            if isinstance(error, TimeoutError) and self._last_error is None:
                raise silent(self._address, patience_s) from error
            # After a refusal the SDK says that there is no server; the reason it told before.
            raise self._translated(self._last_error or error) from error
        self._nats.options["max_reconnect_attempts"] = -1  # from now on it never gives up
        self._inbox = self._nats.new_inbox()
        await self.subscribe(f"{self._inbox}.*", self._on_reply)

    async def close(self) -> None:
        """Ends the connection. Never raises."""
        with suppress(Exception):
            await self._nats.close()

    async def _on_error(self, error: Exception) -> None:
        self._last_error = error
        log.debug("%s: %s", self._address.text, error)
        if self._nats.is_connecting:
            # The SDK forgets the socket of a server that it could not greet.
            self._nats._transport.close()  # noqa: SLF001

    async def _on_disconnected(self) -> None:
        if not self._nats.is_closed:
            log.warning("%s: disconnected; trying to reconnect", self._address.text)
        for told in list(self._waiting.values()):
            told(None)
        self._waiting.clear()

    async def _on_reconnected(self) -> None:
        log.info("%s: connected again", self._address.text)

    def _translated(self, error: Exception) -> PenstockError:
        said = str(error) if not isinstance(error, OSError) else reason_of(error)
        if isinstance(error, problems.AuthorizationError) or "uthorization" in said:
            return AccessRefused(f"{self._address.text} refused user and password")
        if isinstance(error, problems.MaxPayloadError | problems.BadHeaderError):
            return InvalidArgument(f"{self._address.text}: {said}")
        return Unavailable(f"{self._address.text}: {said or reason_of(error)}")

    # -- messages --------------------------------------------------------------------------------

    async def subscribe(self, subject: str, receive: Callable[[Incoming], None]) -> "Listening":
        """Calls with each message to a subject."""

        async def on_message(found: Any) -> None:
            receive(Incoming(found.subject, found.reply, found.data, found.headers))

        made = await self._do(
            self._nats.subscribe(
                subject, cb=on_message, pending_msgs_limit=0, pending_bytes_limit=0
            )
        )

        return Listening(self, made)

    async def publish(
        self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Sends a message and does not wait. Raises Unavailable."""
        if not self._nats.is_connected:
            raise Unavailable(f"{self._address.text} cannot be reached just now")
        try:
            await self._nats.publish(subject, data, reply, headers)
        except (problems.Error, OSError) as error:
            raise self._translated(error) from error

    async def stop_sending(self, number: int) -> None:
        """The server sends no more to a subscription; what is on its way still arrives."""
        await self._do(self._nats._send_unsubscribe(number))  # noqa: SLF001 - the SDK would forget

    async def _do(self, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except (problems.Error, OSError, TimeoutError) as error:
            raise self._translated(error) from error

    def new_inbox(self) -> str:
        """A subject nobody else uses."""
        return str(self._nats.new_inbox())

    async def round_trip(self) -> None:
        """Returns when everything the server sent before has arrived. Raises Unavailable."""
        await self._do(self._nats.flush(timeout=REQUEST_S))

    def expect(self, told: Callable[[Incoming | None], None]) -> str:
        """A reply subject; `told` is called once, with None when the connection breaks."""
        token = format(next(self._tokens), "x")
        self._waiting[token] = told
        return f"{self._inbox}.{token}"

    def forget(self, reply: str) -> None:
        """The reply is not expected any more."""
        self._waiting.pop(reply.rpartition(".")[2], None)

    def _on_reply(self, message: Incoming) -> None:
        told = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if told is not None:
            told(message)

    async def request(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None
    ) -> Incoming:
        """One message and its answer. Raises Unavailable."""
        future: Future[Incoming | None] = asyncio.get_running_loop().create_future()
        reply = self.expect(lambda found: None if future.done() else future.set_result(found))
        try:
            await self.publish(subject, data, reply, headers)
            async with asyncio.timeout(REQUEST_S):
                answer = await future
        except TimeoutError as error:
            raise Unavailable(
                f"{self._address.text} did not answer {subject} in {REQUEST_S:g} s"
            ) from error
        finally:
            self.forget(reply)
        if answer is None or answer.status == NO_RESPONDERS:
            raise Unavailable(f"{self._address.text}: nobody answers {subject}")
        return answer

    async def _back(self) -> None:
        """Returns once a lost connection is back, or after a while without one.

        While a server is greeted the SDK is connecting: that may come to nothing yet.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(REQUEST_S):
                while self._nats.is_reconnecting or self._nats.is_connecting:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S)

    # -- JetStream -------------------------------------------------------------------------------

    async def check_jetstream(self) -> None:
        """Raises Unsupported when there is no JetStream, Unavailable when it may come yet."""
        try:
            await self.api("INFO")
        except Unsupported as error:
            raise Unsupported(
                f"{error}: it is off for this account; add 'jetstream: enabled' to the account in "
                "the configuration of the server"
            ) from error
        except Unavailable as error:
            said = self._nats._server_info  # noqa: SLF001 - has no other name
            if said.get("jetstream"):
                raise
            if said.get("cluster"):
                raise Unavailable(
                    f"{self.text}: JetStream is off on this server, and no other one of its "
                    f"cluster answers for it; {TURN_ON}"
                ) from error
            raise Unsupported(f"{self.text}: JetStream is off on this server; {TURN_ON}") from error

    async def api(self, name: str, /, **question: Any) -> dict[str, Any]:
        """Asks JetStream, after a lost connection once it is back.

        Raises UnknownTopic, UnknownSubscription, Unavailable and others.
        """
        await self._back()
        data = msgspec.json.encode(question) if question else b""
        answer: dict[str, Any] = msgspec.json.decode((await self.request(API + name, data)).data)
        if "error" in answer:
            raise self.failure(msgspec.convert(answer["error"], _Failure))
        return answer

    def failure(self, said: _Failure) -> PenstockError:
        """An error of JetStream in our words."""
        kind = _KINDS.get(said.err_code)
        if kind is None:
            kind = Unavailable if said.code in (408, 503) else StorageError
        return kind(
            f"{self._address.text}: {said.description} (code {said.err_code})",
            err_code=said.err_code,
        )

    async def store(self, subject: str, rows: Sequence[Row]) -> list[Ack]:
        """Stores messages in their order; returns when all are confirmed.

        Raises Unavailable (some may be stored), UnknownTopic.
        """
        done: Future[None] = asyncio.get_running_loop().create_future()
        awaited = _Round(len(rows), partial(_set_if_waited, done))
        replies: list[str] = []
        try:
            for at, (data, headers) in enumerate(rows):
                reply = self.expect(partial(awaited.note, at))
                replies.append(reply)
                await self.publish(subject, data, reply, headers)
            async with asyncio.timeout(REQUEST_S):
                await done
        except TimeoutError as error:
            raise Unavailable(f"{self._address.text} did not confirm in {REQUEST_S:g} s") from error
        finally:
            for reply in replies:
                self.forget(reply)
        return self._acks(subject, awaited.answers)

    def post(
        self, subject: str, rows: Sequence[Row], told: Callable[[list[Ack] | PenstockError], None]
    ) -> None:
        """Begins to store messages; what `store` would return or raise is told, later."""
        loop = asyncio.get_running_loop()

        def finish(problem: PenstockError | None = None) -> None:
            timer.cancel()
            try:
                if problem is not None:
                    raise problem
                outcome: list[Ack] | PenstockError = self._acks(subject, awaited.answers)
            except PenstockError as error:
                for reply in replies:
                    self.forget(reply)
                outcome = error
            told(outcome)

        late = Unavailable(f"{self._address.text} did not confirm in {REQUEST_S:g} s")
        timer = loop.call_later(REQUEST_S, finish, late)
        awaited = _Round(len(rows), finish)
        replies: list[str] = []
        try:
            for at, (data, headers) in enumerate(rows):
                reply = self.expect(partial(awaited.note, at))
                replies.append(reply)
                self._publish_at_once(subject, data, reply, headers)
        except PenstockError as error:
            for reply in replies:
                self.forget(reply)
            timer.cancel()
            loop.call_soon(finish, error)

    def _publish_at_once(
        self, subject: str, data: bytes, reply: str, headers: dict[str, str]
    ) -> None:
        """`publish`, which waits for nothing unless too much is on its way. Raises Unavailable."""
        running = self.publish(subject, data, reply, headers)
        try:
            running.send(None)
        except StopIteration:
            return
        running.close()
        raise Unavailable(f"{self._address.text}: too much is on its way")

    def _acks(self, subject: str, answers: "list[Incoming | None]") -> list[Ack]:
        found: list[Ack] = []
        for answer in answers:
            if answer is None:
                raise Unavailable(f"{self._address.text}: the connection broke before the answer")
            if answer.status == NO_RESPONDERS:
                raise UnknownTopic(f"{self._address.text}: no stream has the subject {subject!r}")
            ack = _decode_ack(answer.data)
            if ack.error is not None:
                raise self.failure(ack.error)
            found.append(Ack(ack.seq, ack.duplicate))
        return found


class Listening:
    """A subject that is listened to."""

    def __init__(self, connection: Connection, made: Any) -> None:
        self._connection = connection
        self._made = made

    async def end(self) -> None:
        """Ends it; everything the server sent has arrived then. Raises Unavailable."""
        try:
            await self._connection.stop_sending(self._made._id)  # noqa: SLF001 - has no other name
            await self._connection.round_trip()
            for _ in range(TURNS_MAX):
                if not self._made.pending_msgs:
                    break
                await asyncio.sleep(0)
        finally:
            with suppress(Exception):
                await self._made.unsubscribe()


class _Round:
    """The answers to several messages; `told` is called once, when all are there."""

    def __init__(self, size: int, told: Callable[[], None]) -> None:
        self.answers: list[Incoming | None] = [None] * size
        self._told = told
        self._left = size

    def note(self, at: int, answer: Incoming | None) -> None:
        self.answers[at] = answer
        self._left -= 1
        if not self._left:
            self._told()


def _set_if_waited(future: "Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _tls(address: Address) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=address.options.get("tls_ca"))
    if "tls_cert" in address.options:
        context.load_cert_chain(address.options["tls_cert"], address.options.get("tls_key"))
    return context
