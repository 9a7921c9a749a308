"""An application with a capability file: functions and a decorator that need no client.

`publish`, `receive`, `stream` and `register_message` use the broker that the file names. The file
is named by `penstock run --capabilities FILE`, by `use_capabilities(FILE)` or by the
variable PENSTOCK_CAPABILITIES. The application's name, that of its script, names its subscriptions:
all its processes share a queue, and each of them has its own copy of a topic's messages.

An event that was received is acked when the next one is asked for, or when the program ends in good
order; of a program that fails, the event in hand comes again.
"""

import atexit
import inspect
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.client.blocking import BlockingClient, BlockingDeliveries, connect_blocking
from penstock.client.capability_file import CapabilityFile, Config, read_capabilities
from penstock.client.client import Client, connect
from penstock.client.events import Event, event_of, fields_of
from penstock.client.received import ReceivedMessage
from penstock.drivers.mqtt import slots
from penstock.drivers.mqtt.topics import covers
from penstock.vocabulary.errors import (
    InvalidConfiguration,
    PenstockError,
    UsageError,
)
from penstock.vocabulary.filters import is_pattern, matches
from penstock.vocabulary.message import Kind, Receipt
from penstock.vocabulary.policy import Retry

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE: Final = "PENSTOCK_CAPABILITIES"
CREDIT: Final = 10
MQTT: Final = ("mqtt", "tcp")
BODIES_ONLY: Final = "version=3.1.1"
_guard: Final = threading.Lock()
_handlers: dict[str, Callable[..., Any]] = {}
_current: "Application | None" = None


class Application:
    """One program and its file."""

    def __init__(self, file: CapabilityFile, name: str) -> None:
        self.file = file
        self.name = _checked_name(name)
        self._url = _with_qos(file)
        """The broker, as this application opens it."""
        self._client: BlockingClient | None = None
        self._open: dict[Config, BlockingDeliveries] = {}
        self._pending: dict[str, ReceivedMessage] = {}
        """By topic: what was received and is not acked."""
        self._slots: dict[str, slots.Slot] = {}
        self._guard = threading.RLock()

    # -- the broker ------------------------------------------------------------------------------

    def client(self) -> BlockingClient:
        """The connection. Raises Unavailable and others, with file and table."""
        with self._guard:
            if self._client is None:
                client = connect_blocking(self._url)
                try:
                    client.open()
                except PenstockError as error:
                    client.close()
                    raise _placed(self.file.configs[0], "url", error) from error
                self._client = client
            return self._client

    def prepare(self) -> None:
        """Makes every subscription of the file, so that nothing is missed from now on.

        Raises what the broker cannot do, with file and table.
        """
        for config in self.file.configs:
            self._deliveries(config).close()

    def close(self, *, is_clean: bool = True) -> None:
        """Ends the connection; what was received last is acked if all went well."""
        with self._guard:
            pending, self._pending = self._pending, {}
            if is_clean:
                for message in pending.values():
                    message.ack()
            for deliveries in self._open.values():
                deliveries.close()
            self._open.clear()
            if self._client is not None:
                self._client.close()
                self._client = None
            for slot in self._slots.values():
                slot.free()
            self._slots.clear()

    def options_of(self, config: Config) -> dict[str, Any]:
        """How a subscription of a config is asked for, beside its topic."""
        options: dict[str, Any] = {"subscription": self.name, "qos": config.qos}
        if not self.client().capabilities.has_dead_letters:
            options["retry"] = Retry(max_attempts=None)
        if config.is_queue:
            return options
        consumer = self._consumer(config)
        if is_pattern(config.filter) and not self._is_mqtt:
            # Not every broker has multicasts over patterns: each process has a subscription.
            options["subscription"] = f"{self.name}.{consumer}"
            options["start"] = "latest"
        else:
            options["kind"] = Kind.MULTICAST
            options["consumer"] = consumer
        return options

    @property
    def _is_mqtt(self) -> bool:
        return self._url.partition(":")[0] in MQTT

    def _consumer(self, config: Config) -> str:
        """The lasting name of this process among those of the application on this host."""
        slot = self._slots.get(config.filter)
        for number in range(slots.SLOTS_MAX if slot is None else 0):
            slot = slots.take(self._url, f"{self.name}\0{config.filter}\0{number}", number)
            if slot is not None:
                break
        if slot is None:
            raise slots.in_use(self.name)
        self._slots[config.filter] = slot
        host = "".join(mark if mark.isalnum() or mark in "-_." else "-" for mark in _host())
        return f"{host}.{slot.number}"

    def _deliveries(self, config: Config) -> BlockingDeliveries:
        try:
            options = self.options_of(config)
            return self.client().subscribe(config.filter, credit=CREDIT, **options).open()
        except PenstockError as error:
            if config.where in error.text:
                raise
            raise _placed(config, "queue" if config.is_queue else "topic", error) from error

    # -- the functions ---------------------------------------------------------------------------

    def publish(self, topic: str, event: Event) -> Receipt:
        """Publishes an event."""
        client = self.client()
        fields = fields_of(
            event, has_ids=client.capabilities.has_dedup, has_headers=BODIES_ONLY not in self._url
        )
        return client.publish(topic, fields.pop("body"), **fields)

    def receive(self, topic: str, timeout_s: float | None) -> Event | None:
        """The next event of a topic; None when none came in time.

        Of the subscription that the file asks for, which may be over a pattern: events of its
        other topics wait for whoever asks for them.
        """
        with self._guard:
            config = self._pulled(topic)
            deliveries = self._open.get(config)
            if deliveries is None:
                deliveries = self._open[config] = self._deliveries(config)
            before = self._pending.pop(topic, None)
            if before is not None:
                before.ack()
        if topic == config.filter:
            message = deliveries.receive(timeout_s)
        else:
            message = deliveries.receive_of(lambda name: _is_covered(topic, name), timeout_s)
        if message is None:
            return None
        with self._guard:
            self._pending[topic] = message
        return event_of(message)

    def _pulled(self, topic: str) -> Config:
        pulled = [config for config in self.file.configs if config.handler is None]
        for config in pulled:
            if config.filter == topic:
                return config
        for config in pulled:
            if is_pattern(config.filter) and _is_covered(config.filter, topic):
                return config
        listed = ", ".join(repr(config.filter) for config in pulled) or "nothing"
        raise InvalidConfiguration(
            f"{self.file.path}: no [[capability.config]] with delivery = 'pull' covers topic "
            f"{topic!r}: it has {listed}"
        )

    # -- handlers --------------------------------------------------------------------------------

    @property
    def has_handlers(self) -> bool:
        """True when the file names handlers."""
        return any(config.handler is not None for config in self.file.configs)

    def serving(self, handlers: dict[str, Callable[..., Any]]) -> Client:
        """A client whose `run` calls the handlers of the file. Raises InvalidConfiguration."""
        client = connect(self._url)
        for config in self.file.configs:
            if config.handler is None:
                continue
            function = handlers.get(config.handler)
            if function is None:
                close = get_close_matches(config.handler, handlers, n=1)
                known = ", ".join(sorted(handlers)) or "none"
                hint = f"did you mean {close[0]!r}?" if close else f"registered: {known}"
                raise InvalidConfiguration(
                    f"{config.at('on_message')}: no handler {config.handler!r} is registered: "
                    f"decorate a function of this name with @register_message; {hint}"
                )
            options = self.options_of(config)
            try:
                client.on_message(config.filter, **options)(_with_event(function))
            except PenstockError as error:
                raise _placed(config, "on_message", error) from error
        return client


def _placed(config: Config, key: str, error: PenstockError) -> PenstockError:
    return type(error)(f"{config.at(key)}: {error.text}", **error.details)


def _with_event(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a handler of messages: it is called with an Event if it asks for one."""
    try:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    except (NameError, AttributeError, TypeError, ValueError):
        return function  # whoever registers it says what is wrong
    kind = parameters[0].annotation if len(parameters) == 1 else None
    if kind not in (Event, inspect.Parameter.empty):
        return function  # it wants the body, or the message, as any handler does
    if inspect.iscoroutinefunction(function):

        async def handle_later(message: ReceivedMessage) -> Any:
            return await function(event_of(message))

        handle_later.__qualname__ = function.__qualname__
        return handle_later

    def handle(message: ReceivedMessage) -> Any:
        return function(event_of(message))

    handle.__qualname__ = function.__qualname__
    return handle


def _with_qos(file: CapabilityFile) -> str:
    """The URL; over MQTT what is published travels with the QoS of the file too."""
    url, highest = file.url, max(config.qos for config in file.configs)
    if url.partition(":")[0] not in MQTT or "qos=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}qos={highest}"


def _is_covered(pattern: str, topic: str) -> bool:
    return topic == pattern or matches(pattern, topic) or covers(pattern, topic)


def _checked_name(name: str) -> str:
    made = "".join(mark if mark.isalnum() or mark in "-_" else "-" for mark in name).strip("-")
    return made or "application"


def _host() -> str:
    return socket.gethostname()


# -- what programs call ------------------------------------------------------------------------


def use_capabilities(
    path: str | Path, *, name: str | None = None, url: str | None = None
) -> Application:
    """Uses a capability file from now on; `url` is used in place of the one it names.

    `name` is the application's; without it that of the script. Raises InvalidConfiguration.
    """
    global _current
    made = Application(read_capabilities(path, url), name or Path(sys.argv[0]).stem)
    with _guard:
        before, _current = _current, made
    if before is None:
        atexit.register(_at_exit)
    else:
        before.close()
    return made


def _at_exit() -> None:
    if _current is not None:
        has_failed = getattr(sys, "last_value", None) is not None
        with suppress(Exception):
            _current.close(is_clean=not has_failed)


def _application() -> Application:
    if _current is None:
        path = os.environ.get(VARIABLE)
        if not path:
            raise UsageError(
                "no capability file is in use: start the program with `penstock run APP "
                f"--capabilities FILE`, set {VARIABLE}, or call use_capabilities(FILE)"
            )
        use_capabilities(path)
    assert _current is not None
    return _current


def publish(topic: str, event: Event) -> Receipt:
    """Publishes an event; returns when the broker has it. Waits: not for `async def`."""
    return _application().publish(topic, event)


def receive(topic: str, timeout_s: float | None = None) -> Event | None:
    """The next event of a topic the file says is pulled; None when none came in time.

    The event is acked when the next one is asked for, or when the program ends in good order.
    """
    return _application().receive(topic, timeout_s)


def stream(topic: str) -> Iterator[Event]:
    """The events of a topic, without end; each is acked when the next one is asked for."""
    while True:
        event = receive(topic)
        if event is not None:
            yield event


def register_message(function: F) -> F:
    """Decorates a handler, which the file names as `on_message`; called with an Event.

    Returning acks; raising brings the event again later; Ack, Nack or Reject may be returned.
    """
    _handlers[function.__name__] = function
    return function


def registered() -> dict[str, Callable[..., Any]]:
    """The handlers of this process."""
    return _handlers
