"""The blocking twin: the same names without `await`, for scripts, notebooks and plain threads.

An ordinary client runs on an event loop in a thread of its own; each call here waits for it.
Messages are the same objects, whose settling is thread-safe anyway.
"""

import asyncio
import threading
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import UNSET

from penstock.client.administration import LOOK_DEFAULT
from penstock.client.batches import ReceivedBatch
from penstock.client.blocking_reader import BlockingReader
from penstock.client.client import Client, connect
from penstock.client.deliveries import Deliveries
from penstock.client.following import PatternDeliveries
from penstock.client.receipts import Receipts
from penstock.client.received import ReceivedMessage
from penstock.client.service import DRAIN_S_DEFAULT
from penstock.client.signals import stopping_on_signals
from penstock.client.stalls import Health
from penstock.client.transaction import Transaction
from penstock.drivers.port import Capabilities
from penstock.vocabulary.backups import Manifest
from penstock.vocabulary.errors import Closed, UsageError
from penstock.vocabulary.message import Message, Receipt

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def connect_blocking(url: str, **options: Any) -> "BlockingClient":
    """The blocking twin of `connect`; opened by `with` or by its first use."""
    return BlockingClient(connect(url, **options))


class LoopThread:
    """An event loop in a daemon thread; `call` runs a coroutine there and waits for it."""

    def __init__(self) -> None:
        self._loop: AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises. An interrupt here cancels it."""
        try:
            loop = self._started()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except CancelledError:
            raise Closed("this client was closed while the call was under way") from None
        except BaseException:
            future.cancel()
            raise

    def _started(self) -> AbstractEventLoop:
        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="penstock-loop", daemon=True
                )
                self._thread.start()
        if self._loop.is_closed():
            raise Closed("this client was closed; connect again to go on")
        if threading.current_thread() is self._thread:
            raise UsageError(
                "a blocking client was called on its own event loop, where it would wait for "
                "itself; use `def` handlers, or the client of `connect`"
            )
        return self._loop

    def stop(self) -> None:
        """Ends loop and thread. Doing so twice is harmless."""
        with self._guard:
            loop, thread = self._loop, self._thread
            if loop is None or thread is None or loop.is_closed():
                return
            asyncio.run_coroutine_threadsafe(_wind_up(loop), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _wind_up(loop: AbstractEventLoop) -> None:
    others = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


class BlockingClient:
    """A client whose calls wait. `connect_blocking` makes one. For any thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._thread = LoopThread()

    @property
    def url(self) -> str:
        """Where it is connected to."""
        return self._client.url

    def open(self) -> Self:
        """Opens the connection now instead of at the first use."""
        self._thread.call(self._client.open())
        return self

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes subscriptions, connection and thread. Doing so twice is harmless."""
        try:
            self._thread.call(self._client.close())
        except Closed:
            return
        self._thread.stop()

    @property
    def is_closed(self) -> bool:
        """True once it was closed."""
        return self._client.is_closed

    @property
    def capabilities(self) -> Capabilities:
        """What this URL can do."""

        async def look() -> Capabilities:
            return (await self._client.open()).capabilities

        return self._thread.call(look())

    def health(self) -> Health:
        """How the client's named subscriptions are."""

        async def look() -> Health:
            return self._client.health()

        return self._thread.call(look())

    def _do(self, name: str, *arguments: Any, **options: Any) -> Any:
        async def work() -> Any:
            await self._client.open()
            return await getattr(self._client, name)(*arguments, **options)

        return self._thread.call(work())

    # -- publish and subscribe -------------------------------------------------------------------

    def publish(
        self, topic: str, body: bytes | str | None = None, *, json: Any = UNSET, **options: Any
    ) -> Receipt:
        """Stores one message; see Client.publish."""
        receipt: Receipt = self._do("publish", topic, body, json=json, **options)
        return receipt

    def publish_many(
        self, topic: str, messages: Iterable[Message | bytes | str], **options: Any
    ) -> Receipts:
        """Stores many messages; see Client.publish_many."""
        receipts: Receipts = self._do("publish_many", topic, messages, **options)
        return receipts

    def transaction(self) -> "BlockingTransaction":
        """Publishes and acks as one: `with client.transaction() as unit`."""

        async def make() -> Transaction:
            return (await self._client.open()).transaction()

        return BlockingTransaction(self._thread.call(make()), self._thread)

    def subscribe(
        self, topic: str, subscription: str | None = None, **options: Any
    ) -> "BlockingDeliveries":
        """The messages of a subscription: `with client.subscribe(…) as deliveries`."""

        async def make() -> Deliveries:
            return (await self._client.open()).subscribe(topic, subscription, **options)

        return BlockingDeliveries(self._thread.call(make()), self._thread)

    def reader(self, topic: str, name: str, *, owner: str, start: Any = None) -> BlockingReader:
        """Opens a named reader; see Client.reader."""
        return BlockingReader(
            self._do("reader", topic, name, owner=owner, start=start), self._thread.call
        )

    def on_message(
        self, topic: str, subscription: str | None = None, **options: Any
    ) -> Callable[[F], F]:
        """Decorates a function that `run()` then calls; see Client.on_message."""
        return self._client.on_message(topic, subscription, **options)

    def run(self, *, drain_s: float = DRAIN_S_DEFAULT) -> None:
        """Calls the registered handlers until TERM, INT or `stop()`; see Client.run."""
        with stopping_on_signals(self.stop):
            self._do("run", drain_s=drain_s)

    def stop(self) -> None:
        """Ends `run()` after a drain. For any thread."""
        self._client.stop()

    # -- topics, subscriptions, looking ------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int = 1, **policy: Any) -> None:
        """See Client.create_topic."""
        self._do("create_topic", topic, partitions, **policy)

    def alter_topic(self, topic: str, **changes: Any) -> None:
        """See Client.alter_topic."""
        self._do("alter_topic", topic, **changes)

    def delete_topic(self, topic: str) -> None:
        """See Client.delete_topic."""
        self._do("delete_topic", topic)

    def topics(self) -> list[dict[str, Any]]:
        """See Client.topics."""
        rows: list[dict[str, Any]] = self._do("topics")
        return rows

    def describe_topic(self, topic: str) -> dict[str, Any]:
        """See Client.describe_topic."""
        row: dict[str, Any] = self._do("describe_topic", topic)
        return row

    def create_subscription(self, topic: str, subscription: str, **options: Any) -> None:
        """See Client.create_subscription."""
        self._do("create_subscription", topic, subscription, **options)

    def alter_subscription(self, topic: str, subscription: str, **policy: Any) -> None:
        """See Client.alter_subscription."""
        self._do("alter_subscription", topic, subscription, **policy)

    def delete_subscription(self, topic: str, subscription: str) -> None:
        """See Client.delete_subscription."""
        self._do("delete_subscription", topic, subscription)

    def seek(self, topic: str, subscription: str, to: float | str) -> None:
        """See Client.seek."""
        self._do("seek", topic, subscription, to)

    def subscriptions(self, topic: str | None = None) -> list[dict[str, Any]]:
        """See Client.subscriptions."""
        rows: list[dict[str, Any]] = self._do("subscriptions", topic)
        return rows

    def peek(self, topic: str, *arguments: Any, **options: Any) -> list[ReceivedMessage]:
        """See Client.peek."""
        found: list[ReceivedMessage] = self._do("peek", topic, *arguments, **options)
        return found

    def topic_log(self, topic: str, limit: int = LOOK_DEFAULT) -> dict[str, list[dict[str, Any]]]:
        """See Client.topic_log."""
        found: dict[str, list[dict[str, Any]]] = self._do("topic_log", topic, limit)
        return found

    def dead_letters(
        self, topic: str, subscription: str, *arguments: Any, **options: Any
    ) -> list[ReceivedMessage]:
        """See Client.dead_letters."""
        found: list[ReceivedMessage] = self._do(
            "dead_letters", topic, subscription, *arguments, **options
        )
        return found

    def redrive(self, topic: str, subscription: str, **options: Any) -> int:
        """See Client.redrive."""
        return int(self._do("redrive", topic, subscription, **options))

    def purge_dead(self, topic: str, subscription: str, **options: Any) -> int:
        """See Client.purge_dead."""
        return int(self._do("purge_dead", topic, subscription, **options))

    def explain(self, topic: str, **options: Any) -> dict[str, Any]:
        """See Client.explain."""
        found: dict[str, Any] = self._do("explain", topic, **options)
        return found

    def stats(self) -> dict[str, Any]:
        """See Client.stats."""
        numbers: dict[str, Any] = self._do("stats")
        return numbers

    def backup(self, out: str | Path, **options: Any) -> Manifest:
        """See Client.backup."""
        manifest: Manifest = self._do("backup", out, **options)
        return manifest

    def confirm_time(self) -> None:
        """See Client.confirm_time."""
        self._do("confirm_time")


class BlockingDeliveries:
    """Deliveries whose calls wait; iterate with `for`."""

    def __init__(self, deliveries: Deliveries, thread: LoopThread) -> None:
        self._deliveries = deliveries
        self._thread = thread

    @property
    def topic(self) -> str:
        """The topic."""
        return self._deliveries.topic

    @property
    def subscription(self) -> str | None:
        """The subscription; None when it is ephemeral."""
        return self._deliveries.subscription

    @property
    def consumer(self) -> str:
        """The name of this consumer."""
        return self._deliveries.consumer

    def open(self) -> Self:
        """Attaches to the subscription: messages arrive from now on."""
        self._thread.call(self._deliveries.open())
        return self

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.call(self._deliveries.__aexit__(kind, error, trace))

    def receive(self, timeout_s: float | None = None) -> ReceivedMessage | None:
        """The next message, or None when none came in time."""
        return self._thread.call(self._deliveries.receive(timeout_s))

    def receive_of(
        self, is_wanted: Callable[[str], bool], timeout_s: float | None = None
    ) -> ReceivedMessage | None:
        """The next message of some of the topics of a pattern; those of others wait."""
        deliveries = self._deliveries
        if not isinstance(deliveries, PatternDeliveries):
            raise UsageError(f"the subscription to {self.topic!r} is of one topic: use receive")
        return self._thread.call(deliveries.receive_of(is_wanted, timeout_s))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        # Only waiting needs the other thread; what is there is taken from the shared iterator.
        while True:
            yield from self._deliveries.current
            if not self._thread.call(self._deliveries.ready()):
                return

    def batches(self, max_messages: int = 1000) -> Iterator[ReceivedBatch]:
        """Whatever waits, up to so many messages at a time."""
        batches: AsyncIterator[ReceivedBatch] = self._deliveries.batches(max_messages)
        while (batch := self._thread.call(_next(batches))) is not None:
            yield batch

    def flush(self) -> None:
        """Returns once everything settled so far is durable. Raises AckRefused."""
        self._thread.call(self._deliveries.flush())

    def close(self) -> None:
        """Flushes acks and detaches. Raises AckRefused."""
        self._thread.call(self._deliveries.close())


class BlockingTransaction:
    """A unit whose commit waits; see Transaction."""

    def __init__(self, unit: Transaction, thread: LoopThread) -> None:
        self._unit = unit
        self._thread = thread
        self.publish = unit.publish
        self.ack = unit.ack

    @property
    def receipts(self) -> list[Receipt]:
        """One receipt for each publish, in their order, once the unit is committed."""
        return self._unit.receipts

    def __enter__(self) -> Self:
        self._thread.call(self._unit.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.call(self._unit.__aexit__(kind, error, trace))


async def _next(batches: AsyncIterator[ReceivedBatch]) -> ReceivedBatch | None:
    return await anext(batches, None)
