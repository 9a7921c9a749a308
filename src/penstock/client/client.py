"""The API a program calls: connect, publish, subscribe, on_message, run.

A client is made unopened, so that decorators work at module level; `await client`,
`async with client` and `client.run()` open it. It belongs to the event loop it was opened on.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Awaitable, Callable, Generator, Iterable
from difflib import get_close_matches
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from msgspec import UNSET

from penstock import drivers
from penstock.batch import encode_one
from penstock.client import packing
from penstock.client.administration import Administration
from penstock.client.deliveries import Deliveries
from penstock.client.gathering import BODY_BYTES_CUT
from penstock.client.handlers import HANDLER_TIMEOUT_S_DEFAULT, Handler, Subscribing, register
from penstock.client.levels import check_level, satisfies, weaker
from penstock.client.needs import check_needs, opened
from penstock.client.publisher import Publisher
from penstock.client.reader import Readers
from penstock.client.receipts import Receipts
from penstock.client.service import DRAIN_S_DEFAULT, Service
from penstock.client.signals import stopping_on_signals
from penstock.client.subscribing import class_for, wish_of
from penstock.client.times import moment
from penstock.client.transaction import Transaction
from penstock.client.watchdog import Watchdog, Watching
from penstock.drivers.port import Capabilities, Driver
from penstock.vocabulary.errors import (
    Closed,
    InvalidArgument,
    PenstockError,
    UnknownTopic,
    Unsupported,
    UsageError,
)
from penstock.vocabulary.filters import is_pattern
from penstock.vocabulary.limits import CREDIT_BYTES_DEFAULT, CREDIT_DEFAULT
from penstock.vocabulary.message import Durability, Kind, Message, Receipt
from penstock.vocabulary.policy import Retry
from penstock.vocabulary.wishes import Wish

log = logging.getLogger("penstock.client")

F = TypeVar("F", bound=Callable[..., Any])
OPTIONS: Final = ("publisher", "needs", "stalled_s", "on_stalled")


def connect(url: str, **options: Any) -> "Client":
    """An unopened client of the broker the URL names: `file:DIR`, `memory:`, `penstock://HOST`.

    Options: `publisher="name"` publishes under a lasting identity; a later client of that name
    takes it over. `needs=("ids", "synced")` is checked when it opens. `stalled_s=60` is how long a
    subscription with a backlog may stand still before it is told to `on_stalled` and subscribed
    anew. Raises InvalidArgument, Unsupported.
    """
    drivers.check_url(url)
    check_options(options)
    return Client(url, lambda: drivers.open_driver(url), **options)


def check_options(options: dict[str, Any]) -> None:
    """Raises InvalidArgument for an option that does not exist."""
    for name in options:
        if name not in OPTIONS:
            close = get_close_matches(name, OPTIONS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(OPTIONS)}"
            raise InvalidArgument(f"connect has no option {name!r}; {hint}")


class Client(Readers, Administration, Watching):
    """A connection to a broker. `connect` makes one."""

    def __init__(
        self, url: str, open_driver: Callable[[], Awaitable[Driver]], *,
        publisher: str | None = None, needs: Any = (), **watching: Any,
    ) -> None:  # fmt: skip
        self.url = url
        self._open_driver = open_driver
        self._publisher_name = publisher
        self._needs = check_needs(needs)
        self._driver: Driver | None = None
        self._publisher: Publisher | None = None
        self._loop: AbstractEventLoop | None = None
        self._thread = 0
        self._opening = asyncio.Lock()
        self._streams: dict[Deliveries, None] = {}
        self._watchdog = Watchdog(open_driver, self._streams, **watching)
        self._handlers: list[Handler] = []
        self._service: Service | None = None
        self._is_closed = False

    # -- opening and closing ---------------------------------------------------------------------

    async def open(self) -> Self:
        """Opens the connection; nothing happens when it is open. Raises what the driver raises."""
        async with self._opening:
            if self._is_closed:
                raise self._not_open()
            if self._driver is None:
                self.attach_to(await opened(self._open_driver, self._needs), get_running_loop())
                await self._publishing().begin()
        self._opened()
        return self

    def attach_to(self, driver: Driver, loop: AbstractEventLoop) -> None:
        """Uses a driver that is open already."""
        self._publisher = Publisher(driver, loop, self._publisher_name)
        self._driver = driver
        self._loop = loop
        self._thread = get_ident()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes subscriptions and the connection. Doing so twice is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        self._publisher = None
        self.stop()
        if get_running_loop() is self._loop:
            await self._watchdog.stop()
            for stream in list(self._streams):
                try:
                    await stream.close()
                except PenstockError as error:
                    log.warning("%s", error)
            await self._watchdog.close()
        if self._driver is not None:
            # On another loop, since the client's own is gone, this is still possible: what its
            # consumers held is then delivered again.
            await self._driver.close()

    @property
    def is_closed(self) -> bool:
        """True once it was closed."""
        return self._is_closed

    @property
    def capabilities(self) -> Capabilities:
        """What this URL can do; known once the client is open."""
        if self._driver is None:
            raise self._not_open()
        return self._driver.capabilities

    def _opened(self) -> Driver:
        if self._driver is None or self._is_closed:
            raise self._not_open()
        if get_running_loop() is not self._loop:
            raise UsageError(
                "this client was opened on another event loop; open one client for each loop"
            )
        return self._driver

    def _not_open(self) -> Closed:
        if self._is_closed:
            return Closed("this client was closed; connect again to go on")
        return Closed("this client is not open yet: use 'async with client' or 'await client'")

    def catch_up(self) -> None:
        """Sends acks and renews leases now, not when their timers fire. Any thread; for tests."""
        loop = self._loop
        if self._driver is None or self._is_closed or loop is None or not loop.is_running():
            return
        if asyncio._get_running_loop() is loop:  # noqa: SLF001 - None outside of any loop
            self._catch_up()
            return

        async def there() -> None:
            self._catch_up()

        asyncio.run_coroutine_threadsafe(there(), loop).result()

    def _catch_up(self) -> None:
        assert self._driver is not None
        self._driver.deliver()
        for stream in list(self._streams):
            stream.catch_up()

    # -- publish ---------------------------------------------------------------------------------

    async def publish(  # noqa: PLR0913 - as wide as a message
        self, topic: str, body: bytes | str | None = None, *, json: Any = UNSET,
        key: bytes | str | None = None, id: str | None = None,
        headers: dict[str, str] | None = None, priority: int = 0, deliver_at: float | None = None,
        delay_s: float | None = None, expires_at: float | None = None, ttl_s: float | None = None,
        durability: Durability | str | None = None,
    ) -> Receipt:  # fmt: skip
        """Stores one message; returns when it is as safe as the receipt says.

        An `id` is stored once. A higher `priority` goes first. `deliver_at` (Unix seconds) or
        `delay_s`: not before then; `expires_at` or `ttl_s`: not after that.
        `durability` is a minimum: a URL or topic that cannot give it refuses. Raises TooLarge,
        InvalidArgument, Unsupported, DiskFull, StoreFailed.
        """
        publisher = self._publishing()
        if (
            body.__class__ is bytes
            and key is None
            and id is None
            and not headers
            and durability is None
            and json is UNSET
            and not priority
            and deliver_at is None
            and delay_s is None
            and expires_at is None
            and ttl_s is None
            and len(body) <= BODY_BYTES_CUT
        ):
            future = publisher.gather(topic, body)
            if future is not None:
                return await future
        if json is not UNSET:
            body = packing.json_body(body, json)
        due = ends = 0
        if priority or id is not None or not (deliver_at is delay_s is expires_at is ttl_s is None):
            driver = publisher.driver
            due = moment("deliver_at", deliver_at, "delay_s", delay_s, driver.wall)
            ends = moment("expires_at", expires_at, "ttl_s", ttl_s, driver.wall)
            packing.refuse_unsupported(driver.capabilities, priority, due or None, ends or None, id)
        route = publisher.route(topic)
        if durability is not None:
            await self._check_durability(topic, durability)
        if not publisher.driver.has_room():
            await publisher.room()
        try:
            batch = encode_one(body, key, id, headers, priority, due, ends)  # type: ignore[arg-type]  # takes text too
        except InvalidArgument as error:
            raise packing.with_hint(body, error) from error
        partition = 0
        if len(route.sequences) > 1:
            partition = publisher.choose(route, key, id)
        return await publisher.publish_alone(route, partition, batch, id, key)

    async def publish_many(
        self, topic: str, messages: Iterable[Message | bytes | str], *,
        durability: Durability | str | None = None,
    ) -> Receipts:  # fmt: skip
        """Stores many messages; checks all before it sends any.

        Raises what `publish` raises while nothing is sent; a failure after that is PublishFailed,
        which tells which messages are confirmed, refused and of unknown fate.
        """
        publisher = self._publishing()
        listed = packing.check_list(messages)
        route = publisher.route(topic)
        if durability is not None:
            await self._check_durability(topic, durability)
        if not listed:
            return Receipts(topic, (), [])
        route.turn += 1
        partitions = len(route.sequences)
        plain = packing.pack_plain(listed, route.turn % partitions)
        if plain is not None:
            return await publisher.send_all(route, listed, [plain])
        parcels = packing.pack_all(listed, partitions, route.turn, publisher.driver.capabilities)
        return await publisher.send_all(route, list(listed), parcels)

    def transaction(self) -> Transaction:
        """Publishes and acks as one: `async with client.transaction() as unit`.

        Durable, all of it, when the block is left; nothing of it when it is left by an exception.
        Raises Unsupported when the URL has no transactions.
        """
        publisher = self._publishing()
        can = publisher.driver.capabilities
        if not can.has_transactions:
            raise Unsupported(f"{can.scheme}: URLs have no transactions")
        return Transaction(publisher, self._publishing)

    def _publishing(self) -> Publisher:
        """The publisher, when this client is open on the running loop. Raises Closed, UsageError.

        Asking for the running loop costs a system call; this finds the same mistakes.
        """
        publisher, loop = self._publisher, self._loop
        if publisher is None or loop is None or get_ident() != self._thread:
            self._opened()
            raise self._not_open()
        if not loop.is_running():
            self._opened()
        return publisher

    async def _check_durability(self, topic: str, durability: Durability | str) -> None:
        wanted = check_level(durability)
        can = self._opened().capabilities
        if not satisfies(can.durability, wanted):
            raise Unsupported(
                f"durability {wanted.value!r} is more than {can.scheme}: URLs give: they confirm "
                f"at {can.durability.value!r}"
            )
        try:
            policy = (await self.describe_topic(topic))["policy"]
        except UnknownTopic:  # this publish creates it
            policy = {}
        given = weaker(can.durability, Durability(policy.get("durability", Durability.SYNCED)))
        if not satisfies(given, wanted):
            raise Unsupported(
                f"durability {wanted.value!r} is more than topic {topic!r} gives: its policy says "
                f"{given.value!r}; change it with alter_topic, or ask for less"
            )

    # -- subscribe -------------------------------------------------------------------------------

    def subscribe(
        self, topic: str, subscription: str | None = None, *, kind: Kind | str = Kind.SHARED,
        start: Any = None, qos: int = 1, credit: int = CREDIT_DEFAULT,
        credit_bytes: int = CREDIT_BYTES_DEFAULT, consumer: str | None = None, **policy: Any,
    ) -> Deliveries:  # fmt: skip
        """The messages of a subscription: `async with client.subscribe(…) as deliveries`.

        A named subscription is durable and created when missing; without a name it is ephemeral.
        `kind`: 'shared' (one consumer gets a message), 'key_shared' (one at a time for each key, in
        order), 'multicast' (every one). `qos`: 0 at most once, 1 at least once, 2 no stale acks.
        `start` is for a new one: 'earliest', 'latest', Unix seconds or a position such as '0:17'.
        `policy`: `lease_s`, `retry` and other fields of SubscriptionPolicy; what is given here also
        changes a subscription that exists. Raises InvalidArgument, InvalidName, Unsupported.
        """
        return self._subscribe(
            Subscribing(
                topic,
                subscription,
                {
                    "kind": kind, "start": start, "qos": qos, "credit": credit,
                    "credit_bytes": credit_bytes, "consumer": consumer, **policy,
                },
            )
        )  # fmt: skip

    def _subscribe(self, asked: Subscribing, *, is_push: bool = False) -> Deliveries:
        driver = self._opened()
        assert self._loop is not None
        wish, settings = wish_of(asked, driver.capabilities)

        async def change_existing() -> None:
            await self._change_existing(wish, settings)

        stream = class_for(wish)(
            driver, self._loop, wish, is_push=is_push,
            prepare=change_existing if settings and wish.subscription is not None else None,
        )  # fmt: skip
        self._streams[stream] = None
        self._watchdog.watch(stream, self._loop, asked.options.get("stalled_s", False))
        stream.on_ended = lambda: self._streams.pop(stream, None)
        return stream

    async def _change_existing(self, wish: Wish, settings: dict[str, Any]) -> None:
        if not is_pattern(wish.topic):
            try:
                await self.describe_topic(wish.topic)
            except UnknownTopic:
                return
        assert wish.policy is not None
        # Kind and QoS go along: if they are not those it has, nothing is changed.
        fixed = {"kind": wish.policy.kind, "qos": wish.policy.qos}
        for row in await self.subscriptions(wish.topic):
            is_of = row["topic"] == wish.topic or is_pattern(wish.topic)
            if is_of and row["subscription"] == wish.subscription:
                await self.alter_subscription(
                    row["topic"], row["subscription"], **fixed, **settings
                )

    # -- push ------------------------------------------------------------------------------------

    def on_message(  # noqa: PLR0913 - as wide as a subscription and its handler
        self, topic: str, subscription: str | None = None, *, kind: Kind | str = Kind.SHARED,
        start: Any = None, qos: int = 1, credit: int | None = None,
        credit_bytes: int = CREDIT_BYTES_DEFAULT, consumer: str | None = None,
        concurrency: int = 1, retry: Retry | None = None,
        handler_timeout_s: float = HANDLER_TIMEOUT_S_DEFAULT, **policy: Any,
    ) -> Callable[[F], F]:  # fmt: skip
        """Decorates a function that `run()` then calls with each message.

        `async def` runs on the loop, `def` in threads, at most `concurrency` at a time. Its
        parameter is decoded as annotated; it may return None or Ack, Nack or Reject; an exception
        is a nack. Credit is 2 × concurrency when not given. Kind `key_shared` runs one message
        of a key at a time; more credit helps when a few keys have most of the messages.
        """
        if retry is not None:
            policy["retry"] = retry
        if credit is None:
            credit = 2 * concurrency if isinstance(concurrency, int) else CREDIT_DEFAULT
        options = {
            "kind": kind, "start": start, "qos": qos, "credit": credit,
            "credit_bytes": credit_bytes, "consumer": consumer, **policy,
        }  # fmt: skip
        asked = Subscribing(topic, subscription, options)
        wish_of(asked, None)

        def decorate(function: F) -> F:
            if self._service is not None:
                raise UsageError("register handlers before run(), not while it serves")
            self._handlers.append(register(function, asked, concurrency, handler_timeout_s))
            return function

        return decorate

    async def run(self, *, drain_s: float = DRAIN_S_DEFAULT) -> None:
        """Calls the registered handlers until TERM, INT or `stop()`; then drains.

        Opens the client when it is not open, and closes it again at the end. Running handlers get
        `drain_s` to finish. Raises what ends a subscription, such as StoreFailed.
        """
        if not self._handlers:
            raise UsageError("there is nothing to run: register a handler with on_message first")
        if self._service is not None:
            raise UsageError("this client runs already")
        was_open = self._driver is not None
        await self.open()
        assert self._loop is not None
        for handler in self._handlers:  # all of them, before the first one begins
            wish_of(handler.subscribing, self.capabilities)
        self._service = Service(
            lambda handler: self._subscribe(handler.subscribing, is_push=True), self._loop
        )
        try:
            with stopping_on_signals(self.stop):
                await self._service.serve(self._handlers, drain_s)
        finally:
            self._service = None
            if not was_open:
                await self.close()

    def stop(self) -> None:
        """Ends `run()` after a drain; called again, without waiting for handlers. Any thread."""
        service, loop = self._service, self._loop
        if service is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(service.stop)
