"""One MQTT connection, which is one session. The only module that knows the SDK (paho).

The SDK reads and writes on a thread of its own and reconnects by itself; what happens there is told
to the event loop in the order in which it happened. Acks are held back until `ack` is called.
"""

import asyncio
import logging
import socket
from asyncio import Future, get_running_loop
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from penstock.drivers.foreign.address import Address
from penstock.drivers.foreign.carrier import missing
from penstock.drivers.foreign.reaching import silent
from penstock.drivers.mqtt.parcels import FIVE, Incoming, Packet
from penstock.drivers.reasons import reason_of
from penstock.vocabulary.errors import AccessRefused, InvalidArgument, PenstockError, Unavailable

try:
    from paho.mqtt import client as paho
    from paho.mqtt.enums import CallbackAPIVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
    from paho.mqtt.subscribeoptions import SubscribeOptions
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise missing("mqtt", "paho-mqtt") from error

log = logging.getLogger("penstock.drivers")

SESSION_S_DEFAULT: Final = 7 * 86_400.0
KEEPALIVE_S_DEFAULT: Final = 30.0
RECONNECT_S: Final = (0.1, 2.0)
ANSWER_S: Final = 10.0
"""How long the broker may take to answer a question."""
RECEIVE_MAX: Final = 1_000
"""Unacked messages the broker may send ahead; it may choose fewer."""
WINDOW_MAX: Final = 1_000
NOWHERE: Final = "$penstock/none"
"""Nobody subscribes to this: asking to end it is a question the broker answers in order."""
NOT_HEARD: Final = 0x10
FAILURE: Final = 0x80
NOT_AUTHORISED: Final = (0x86, 0x87, 0x8C)
QUOTA: Final = 0x97
CONTENT_TYPE: Final = "content-type"
RESPONSE_TOPIC: Final = "mqtt-response-topic"
CORRELATION: Final = "mqtt-correlation-data"


class Nature(NamedTuple):
    """What kind of session a connection asks for."""

    client_id: str
    is_lasting: bool = False
    """The broker keeps the session while its consumer is away."""
    will_topic: str | None = None
    """This retained message is cleared when the connection ends without a word."""


class Patient(paho.Client):
    """The SDK's client, with a held-back answer at QoS 2 too.

    By itself it answers a QoS 2 message (PUBREC) when it arrives, which makes the message ours
    alone: it would be lost with the process. Here the message is handed on at once, and answered
    when it is finished; until then the broker sends it again after every reconnect.
    """

    failure = "not connected yet"
    """Why the newest attempt failed; the SDK tells nobody."""

    def reconnect(self) -> Any:
        """One attempt. Raises OSError, ValueError."""
        try:
            return super().reconnect()
        except OSError as error:
            self.failure = reason_of(error)
            raise

    def _handle_publish(self) -> Any:
        code = super()._handle_publish()
        with self._in_message_mutex:
            arrived = list(self._in_messages.values())
            self._in_messages.clear()
        for message in arrived:
            self._handle_on_message(message)
        return code

    def _send_pubrec(self, mid: int) -> Any:  # noqa: ARG002 - the answer waits for `ack`
        return paho.MQTT_ERR_SUCCESS

    def _handle_pubrel(self) -> Any:
        packet: Any = self._in_packet["packet"]
        return self._send_pubcomp(int.from_bytes(packet[:2], "big"))

    def ack(self, mid: int, qos: int) -> Any:
        """Finishes a message."""
        return super()._send_pubrec(mid) if qos > 1 else super().ack(mid, qos)


class Link:
    """A connection. `open` makes one; everything else is called on its loop."""

    def __init__(
        self, address: Address, nature: Nature, version: int,
        on_messages: Callable[[list[Incoming]], None] | None = None,
        on_up: Callable[[bool], None] | None = None,
    ) -> None:  # fmt: skip
        self.address = address
        self.nature = nature
        self.version = version
        self.is_up = False
        self.was_present = False
        """The broker knew the session when it was opened."""
        self.packet_max: int | None = None
        self.why_down = "not connected yet"
        self._on_messages = on_messages
        self._on_up = on_up
        self._loop = get_running_loop()
        self._news: deque[tuple[Any, ...]] = deque()
        self._is_telling = False
        self._waiting: dict[int, Future[int]] = {}
        """Publishes without an answer; the SDK repeats them after a reconnect."""
        self._asked: dict[int, Future[int]] = {}
        """Questions without an answer; they end with the connection."""
        self._window = asyncio.Semaphore(WINDOW_MAX)
        self._first: Future[bool] = self._loop.create_future()
        self._is_closed = False
        self._client = self._made(nature)

    def _made(self, nature: Nature) -> Patient:
        address = self.address
        options: dict[str, Any] = {"protocol": paho.MQTTv5}
        if self.version < FIVE:
            options = {"protocol": paho.MQTTv311, "clean_session": not nature.is_lasting}
        client = Patient(
            CallbackAPIVersion.VERSION2, client_id=nature.client_id, manual_ack=True, **options
        )
        client.max_inflight_messages_set(0)
        client.reconnect_delay_set(*RECONNECT_S)  # type: ignore[arg-type]  # parts of seconds work
        if address.user is not None:
            client.username_pw_set(address.user, address.password)
        if address.has_tls:
            try:
                client.tls_set(
                    address.options.get("tls_ca"), address.options.get("tls_cert"),
                    address.options.get("tls_key"),
                )  # fmt: skip
            except (OSError, ValueError) as error:
                raise InvalidArgument(f"{address.text}: TLS files: {error}") from error
        if nature.will_topic is not None:
            client.will_set(nature.will_topic, b"", qos=1, retain=True)
        client.on_socket_open = _send_at_once
        client.on_connect = lambda _c, _u, flags, reason, properties: self._tell(
            self._connected, flags.session_present, reason.value, str(reason), properties
        )
        client.on_connect_fail = lambda _c, _u: self._tell(self._failed)
        client.on_disconnect = lambda _c, _u, _f, reason, _p: self._tell(self._lost, str(reason))
        client.on_publish = lambda _c, _u, mid, reason, _p: self._tell(
            self._answered, self._waiting, mid, reason.value
        )
        client.on_subscribe = lambda _c, _u, mid, reasons, _p: self._tell(
            self._answered, self._asked, mid, reasons[0].value
        )
        client.on_unsubscribe = lambda _c, _u, mid, _r, _p: self._tell(
            self._answered, self._asked, mid, 0
        )
        client.on_message = lambda _c, _u, message: self._tell(self._incoming, _opened(message))
        return client

    # -- opening and closing ---------------------------------------------------------------------

    async def open(self, *, clean: bool = False) -> bool:
        """Connects; True when the broker knew the session. Raises Unavailable, AccessRefused."""
        host, port = self.address.hosts[0]
        options: dict[str, Any] = {}
        if self.version >= FIVE:
            properties = _properties(PacketTypes.CONNECT)
            properties.ReceiveMaximum = RECEIVE_MAX
            if self.nature.is_lasting:
                wanted = self.address.options.get("session_s", SESSION_S_DEFAULT)
                properties.SessionExpiryInterval = max(1, int(wanted))
            options = {"clean_start": clean or not self.nature.is_lasting, "properties": properties}
        keepalive = int(max(1, self.address.options.get("keepalive_s", KEEPALIVE_S_DEFAULT)))
        patience_s = min(ANSWER_S, self.address.connect_s)
        try:
            self._client.connect_timeout = max(0.5, min(5.0, 0.9 * patience_s))
            self._client.connect_async(host, port, keepalive=keepalive, **options)
            self._client.loop_start()
            async with asyncio.timeout(patience_s):
                return await self._first
        except TimeoutError as error:
            raise silent(self.address, patience_s) from error
        except ValueError as error:
            raise Unavailable(f"{self.address.text}: {error}") from error

    async def close(self, *, ends_session: bool = False) -> None:
        """Ends the connection in good order, and its session if that is asked. Never raises."""
        if self._is_closed:
            return
        self._is_closed = True
        properties = None
        if ends_session and self.version >= FIVE:
            properties = _properties(PacketTypes.DISCONNECT)
            properties.SessionExpiryInterval = 0
        with suppress(Exception):
            self._client.disconnect(properties=properties)
        with suppress(Exception):
            await asyncio.to_thread(self._client.loop_stop)
        self._drain()
        self._lost("closed")
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Unavailable(f"{self.address.text}: the client was closed"))
                future.exception()
        self._waiting.clear()
        if not self._first.done():
            self._first.cancel()

    # -- from the SDK's thread -------------------------------------------------------------------

    def _tell(self, *news: Any) -> None:
        self._news.append(news)
        if not self._is_telling:
            self._is_telling = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._is_telling = False
        messages: list[Incoming] = []
        while self._news:
            told, *values = self._news.popleft()
            if told == self._incoming:
                messages += values
                continue
            if messages:
                self._incoming(messages)
                messages = []
            told(*values)
        if messages:
            self._incoming(messages)

    def _connected(self, is_present: bool, reason: int, said: str, properties: Any) -> None:  # noqa: FBT001 - as told
        if reason:
            kind = AccessRefused if reason in NOT_AUTHORISED else Unavailable
            text = f"{self.address.text} refused the connection: {said}"
            self._fail_first(kind(text))
            self.why_down = said
            return
        self.is_up = True
        self.packet_max = getattr(properties, "MaximumPacketSize", None)
        if not self._first.done():
            window = min(getattr(properties, "ReceiveMaximum", WINDOW_MAX), WINDOW_MAX)
            self._window = asyncio.Semaphore(window)
            self.was_present = is_present
            self._first.set_result(is_present)
        elif self._on_up is not None:
            self._on_up(is_present)

    def _failed(self) -> None:
        self.why_down = self._client.failure
        self._fail_first(Unavailable(f"{self.address.text}: {self.why_down}"))

    def _fail_first(self, error: PenstockError) -> None:
        if not self._first.done():
            self._first.set_exception(error)

    def _lost(self, said: str) -> None:
        self.is_up = False
        self.why_down = said
        self._fail_first(Unavailable(f"{self.address.text} ended the connection: {said}"))
        asked, self._asked = self._asked, {}
        for future in asked.values():
            if not future.done():
                future.set_exception(self._down())

    def _answered(self, waiting: dict[int, "Future[int]"], mid: int, reason: int) -> None:
        future = waiting.pop(mid, None)
        if future is not None and not future.done():
            future.set_result(reason)

    def _incoming(self, messages: list[Incoming]) -> None:
        if self._on_messages is not None:
            self._on_messages(messages)
            return
        for message in messages:
            self.ack(message.mid, message.qos)

    def _down(self) -> Unavailable:
        return Unavailable(f"{self.address.text} is not connected: {self.why_down}")

    # -- calls -----------------------------------------------------------------------------------

    async def publish(self, packets: Sequence[Packet], patience_s: float) -> list[int]:
        """Sends; the broker's reason codes. Raises Unavailable: some may have got through."""
        answers: list[Future[int]] = []
        try:
            async with asyncio.timeout(patience_s):
                for packet in packets:
                    await self._window.acquire()
                    answers.append(self._publish(packet))
                return [await each for each in answers]
        except TimeoutError as error:
            raise Unavailable(
                f"{self.address.text} did not confirm in {patience_s:g} s: "
                f"{'it is slow' if self.is_up else self.why_down}"
            ) from error
        finally:
            for each in answers:
                each.cancel()

    def _publish(self, packet: Packet) -> "Future[int]":
        future: Future[int] = self._loop.create_future()
        window = self._window
        future.add_done_callback(lambda _: window.release())
        try:
            info = self._client.publish(
                packet.topic, packet.body, packet.qos, packet.is_retained, self._properties(packet)
            )
        except ValueError as error:
            future.cancel()
            raise InvalidArgument(f"topic {packet.topic!r}: {error}") from error
        if not packet.qos:
            is_sent = info.rc == paho.MQTT_ERR_SUCCESS
            if is_sent:
                future.set_result(0)
            else:
                future.set_exception(self._down())
            return future
        if info.rc == paho.MQTT_ERR_QUEUE_SIZE:
            future.set_exception(Unavailable(f"{self.address.text}: too much is on its way"))
            return future
        self._waiting[info.mid] = future
        return future

    def _properties(self, packet: Packet) -> Any:
        if self.version < FIVE or not (packet.headers or packet.expires_s):
            return None
        properties = _properties(PacketTypes.PUBLISH)
        if packet.expires_s:
            properties.MessageExpiryInterval = packet.expires_s
        if packet.headers:
            properties.UserProperty = list(packet.headers.items())
            if CONTENT_TYPE in packet.headers:
                properties.ContentType = packet.headers[CONTENT_TYPE]
        return properties

    async def subscribe(
        self, filter_: str, qos: int, *, wants_retained: bool, is_for_others: bool = False
    ) -> int:
        """Asks for messages, of others only if so said; the reason code. Raises Unavailable."""
        if self.version >= FIVE:
            handling = 0 if wants_retained else 2
            options = SubscribeOptions(qos, noLocal=is_for_others, retainHandling=handling)
            return await self._ask(lambda: self._client.subscribe(filter_, options=options))
        return await self._ask(lambda: self._client.subscribe(filter_, qos))

    async def unsubscribe(self, filter_: str) -> None:
        """Asks for no more. Raises Unavailable."""
        await self._ask(lambda: self._client.unsubscribe(filter_))

    async def round_trip(self) -> None:
        """Returns when the broker has seen everything sent so far. Raises Unavailable."""
        await self.unsubscribe(NOWHERE)

    async def _ask(self, call: Callable[[], tuple[Any, int | None]]) -> int:
        if not self.is_up:
            raise self._down()
        code, mid = call()
        if code != paho.MQTT_ERR_SUCCESS or mid is None:
            raise self._down()
        future: Future[int] = self._loop.create_future()
        self._asked[mid] = future
        try:
            async with asyncio.timeout(ANSWER_S):
                return await future
        except TimeoutError as error:
            raise Unavailable(
                f"{self.address.text} did not answer in {ANSWER_S:g} s"
            ) from error  # fmt: skip

    def ack(self, mid: int, qos: int) -> None:
        """The message is finished. Raises Unavailable."""
        if qos and self._client.ack(mid, qos) != paho.MQTT_ERR_SUCCESS:
            raise self._down()


def _properties(kind: int) -> Any:
    made: Any = Properties
    return made(kind)


def _send_at_once(_client: Any, _userdata: Any, opened: Any) -> None:
    """Small packets do not wait for each other."""
    with suppress(OSError, AttributeError):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def host_name() -> str:
    """This host, for client ids."""
    return socket.gethostname()


def _opened(message: Any) -> Incoming:
    headers: dict[str, str] = {}
    properties = message.properties
    if properties is not None:
        for name, value in getattr(properties, "UserProperty", None) or ():
            told, number = name, 1
            while told in headers:  # a header may be there once
                number += 1
                told = f"{name}#{number}"
            headers[told] = value
        content_type = getattr(properties, "ContentType", None)
        if content_type:
            headers.setdefault(CONTENT_TYPE, content_type)
        if getattr(properties, "ResponseTopic", None):
            headers[RESPONSE_TOPIC] = properties.ResponseTopic
        if getattr(properties, "CorrelationData", None):
            headers[CORRELATION] = b64encode(properties.CorrelationData).decode()
    try:
        topic = message.topic
    except UnicodeDecodeError:
        topic = ""
    return Incoming(
        topic, bytes(message.payload), message.qos, message.mid, message.dup, message.retain,
        headers,
    )  # fmt: skip
