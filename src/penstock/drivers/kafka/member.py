"""The thread of one consumer: it polls, so that the consumer lives, and stocks what arrives.

Kafka's library must be polled all the time, also while nothing may be handed out: else the group
takes the consumer for dead. So the polling is a thread of its own. What it gets waits in a stock
that is filled to a limit; with a full stock for a while the partitions pause. The loop is woken
once for what arrived together.

The library takes one call at a time on a consumer, and a poll that waits keeps all others out. So
everything is done by this thread, between two polls, which are short while messages are out.

A program whose loop stands still is noticed: without a sign of life for `max_poll_s` the thread
stops polling, and the group gives the partitions to others.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from penstock.drivers.kafka.link import (
    Consumer,
    KafkaError,
    KafkaException,
    Link,
    TopicPartition,
    sdk_log,
    translated,
)
from penstock.drivers.kafka.settings import consumer_config
from penstock.vocabulary.errors import Unavailable

log = logging.getLogger("penstock.drivers")

STOCK_MAX: Final = 10_000
TOGETHER: Final = 2_000
POLL_S: Final = 0.05
BUSY_POLL_S: Final = 0.004
"""While messages are out, so that their commits do not wait long."""
BUSY_S: Final = 0.25
"""So long after messages arrived some count as out."""
FULL_S: Final = 0.5
"""After so long with a full stock the partitions pause."""
IDLE_S: Final = 2.0
"""After so long without a partition a consumer says that it is one too many."""
SIGN_S: Final = 1.0
"""How often the loop is asked for a sign of life."""
FINAL: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its own name
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)  # fmt: skip
"""Errors after which a consumer gets nothing more."""
GIVE_UP_S: Final = 3.0
"""How long the loop may take to let go of partitions that move."""


class Member:
    """One consumer of the library, and its thread.

    `assigned(partitions)` is called in this thread and returns where each begins; `revoked` is
    called in it too, with True when they were lost already.
    """

    def __init__(
        self, link: Link, topic: str, group: str, *,
        assigned: Callable[[list[int]], dict[int, int]],
        revoked: Callable[[list[int], bool], None], notify: Callable[[], None],
        is_busy: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._link = link
        self.topic = topic
        self._assigned = assigned
        self._revoked = revoked
        self._notify = notify
        self._is_busy = is_busy
        config = consumer_config(link.settings, group)
        self.consumer: Any = Consumer(
            link.config(config) | {"on_commit": self._on_commit}, logger=sdk_log
        )
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._commits: deque[Future[Any]] = deque()
        """Commits under way, oldest first."""
        self.stock: deque[Any] = deque()
        """What arrived and was not taken. Its left end belongs to the loop."""
        self.error: Exception | None = None
        """Why nothing more will arrive."""
        self._is_wanted = threading.Event()
        self._is_closed = False
        self._is_paused = False
        self._seen = time.monotonic()
        self._asked = 0.0
        self._busy_until = 0.0
        self._idle_since = 0.0
        self._owned: set[int] = set()
        self._thread = threading.Thread(
            target=self._run, name=f"penstock-kafka-{topic}", daemon=True
        )

    def join_group(self) -> None:
        """Becomes a member of the group: partitions come and go from now on."""
        self.consumer.subscribe(
            [self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )  # fmt: skip
        self._thread.start()

    def read_from(self, offsets: dict[int, int]) -> None:
        """Reads these partitions without any group."""
        self._owned = set(offsets)
        places = [TopicPartition(self.topic, part, at) for part, at in offsets.items()]
        self.consumer.assign(places)
        self._thread.start()

    def want(self) -> None:
        """The loop waits for messages."""
        self._is_wanted.set()

    async def call(self, work: Callable[[], Any]) -> Any:
        """Does something with the consumer, in its thread. Raises KafkaException, Unavailable."""
        answer: Future[Any] = Future()
        self._calls.append((work, answer))
        self._is_wanted.set()
        if self._is_closed:
            self._give_up()
        return await asyncio.wrap_future(answer)

    async def commit(self, places: list[Any]) -> None:
        """Commits offsets. Raises KafkaException, Unavailable."""
        answer: Future[Any] = Future()

        def begin() -> None:
            self._commits.append(answer)
            try:
                self.consumer.commit(offsets=places, asynchronous=True)
            except BaseException:
                self._commits.remove(answer)
                raise

        await self.call(begin)
        await asyncio.wrap_future(answer)

    def close(self) -> None:
        """Leaves the group; blocks for a moment."""
        self._is_closed = True
        self._is_wanted.set()
        self._thread.join()

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - the loop is told
            self._fail(error)
        finally:
            self._is_closed = True
            with suppress(Exception):
                if not self._owned:
                    self.consumer.unsubscribe()
                    self.consumer.poll(0)
                self.consumer.close()
            self._give_up()

    def _give_up(self) -> None:
        """Nobody waits for ever for a consumer that has ended."""
        gone = Unavailable(f"{self._link.where}: the consumer has ended")
        while self._calls:
            _fail(self._calls.popleft()[1], gone)
        while self._commits:
            _fail(self._commits.popleft(), gone)

    def _on_commit(self, error: Any, places: list[Any]) -> None:
        if not self._commits:
            return  # one that was waited for in place
        answer = self._commits.popleft()
        wrong = error or next((place.error for place in places if place.error), None)
        if wrong is None:
            _finish(answer, None)
        else:
            _fail(answer, KafkaException(wrong))

    def _do_calls(self) -> None:
        while self._calls:
            work, answer = self._calls.popleft()
            try:
                _finish(answer, work())
            except Exception as error:  # noqa: BLE001 - whoever asked is told
                _fail(answer, error)

    def _work(self) -> None:
        full_since = 0.0
        while not self._is_closed:
            self._do_calls()
            self._warn_if_idle()
            if not self._has_life():
                self._is_wanted.wait(POLL_S)
                continue
            self._is_wanted.clear()
            if len(self.stock) < STOCK_MAX:
                full_since = 0.0
                self._resume()
                is_busy = self._commits or self._is_busy() or time.monotonic() < self._busy_until
                self._take(self.consumer.poll(BUSY_POLL_S if is_busy else POLL_S))
                continue
            full_since = full_since or time.monotonic()
            if time.monotonic() - full_since > FULL_S or self._commits:
                self._pause()
                self._take(self.consumer.poll(0))
            self._is_wanted.wait(BUSY_POLL_S if self._commits else POLL_S)

    def _fail(self, error: Exception) -> None:
        if not self._is_closed:
            log.debug("topic %s: the consumer ends: %r", self.topic, error)
            is_known = isinstance(error, KafkaException)
            self.error = translated(error, self._link.where) if is_known else error
            self._notify()

    def _take(self, first: Any) -> None:
        """Stocks a message and whatever arrived behind it."""
        if first is None:
            return
        found = [first]
        if not self._is_paused:
            found += self.consumer.consume(TOGETHER, 0)
        good = [message for message in found if message.error() is None]
        for message in found:
            if message.error() is not None:
                self._complain(message.error())
        if good:
            self.stock.extend(good)
            self._busy_until = time.monotonic() + BUSY_S
            self._notify()

    def _complain(self, error: Any) -> None:
        if error.fatal() or error.code() in FINAL:
            raise KafkaException(error)
        log.debug("topic %s: %s", self.topic, error)

    def _has_life(self) -> bool:
        """False when the loop has not answered for too long. Asks it for a sign now and then."""
        now = time.monotonic()
        if now - self._asked > SIGN_S:
            self._asked = now
            with suppress(RuntimeError):
                self._link.loop.call_soon_threadsafe(self._sign)
        return now - self._seen < self._link.settings.max_poll_s

    def _sign(self) -> None:
        self._seen = time.monotonic()

    def _places(self) -> list[Any]:
        return [TopicPartition(self.topic, part) for part in self._owned]

    def _pause(self) -> None:
        if not self._is_paused and self._owned:
            self._is_paused = True
            self.consumer.pause(self._places())

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.consumer.resume(self._places())

    # -- partitions come and go, in the thread -----------------------------------------------------

    def _on_assign(self, consumer: Any, places: list[Any]) -> None:
        parts = [place.partition for place in places]
        begins = self._assigned(parts) if parts else {}
        self._owned |= set(parts)
        consumer.incremental_assign(
            [TopicPartition(self.topic, part, begins[part]) for part in parts]
        )
        if self._is_paused:  # what is new does not know
            self._is_paused = False
            self._pause()
        self._idle_since = 0.0 if self._owned else self._idle_since or time.monotonic()

    def _warn_if_idle(self) -> None:
        """A moment without partitions is a rebalance; a while is one consumer too many."""
        if self._idle_since and time.monotonic() - self._idle_since > IDLE_S:
            self._idle_since = 0.0
            log.warning(
                "topic %s: consumer %s got no partition: the group has more consumers than the "
                "topic has partitions; it waits for one of them to leave",
                self.topic, self.consumer.memberid(),
            )  # fmt: skip

    def _on_revoke(self, consumer: Any, places: list[Any]) -> None:
        self._drop(places, is_lost=False)
        consumer.incremental_unassign(places)

    def _on_lost(self, consumer: Any, places: list[Any]) -> None:
        self._drop(places, is_lost=True)
        consumer.incremental_unassign(places)

    def _drop(self, places: list[Any], *, is_lost: bool) -> None:
        parts = [place.partition for place in places]
        self._owned -= set(parts)
        if parts:
            self._revoked(parts, is_lost)


def _finish(answer: "Future[Any]", found: Any) -> None:
    if not answer.done():
        answer.set_result(found)


def _fail(answer: "Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
