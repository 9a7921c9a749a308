"""One consumer of a foreign broker: carries out what its desk decides.

Three things run: a task that fetches while there is credit, a task that tells the broker what was
decided, in order and until it succeeds, and a timer for leases. All on the client's loop.
"""

import asyncio
import logging
import time
from asyncio import AbstractEventLoop, CancelledError, Event, Task, TimerHandle
from collections.abc import Awaitable, Callable
from functools import partial
from threading import get_ident
from typing import Any, Final

from penstock.drivers.foreign.carrier import Feed, MovingFeed, Refused, Release
from penstock.drivers.foreign.desk import Desk, Work
from penstock.drivers.foreign.keyed_desk import KeyedDesk
from penstock.drivers.port import Answer, Sink
from penstock.vocabulary import names
from penstock.vocabulary.claims import Claim, Refusal, Renewal, Revoked
from penstock.vocabulary.errors import (
    Closed,
    DeadLetterFull,
    PenstockError,
    Unavailable,
    UnknownSubscription,
)
from penstock.vocabulary.limits import ACK_DELAY_S_MAX
from penstock.vocabulary.message import Kind
from penstock.vocabulary.records import Cause, Ranges

log = logging.getLogger("penstock.drivers")

PAUSE_S_FIRST: Final = 0.05
PAUSE_S_MAX: Final = 1.0
TICK_SHARE: Final = 10
TICK_S_MAX: Final = 1.0
TICK_S_MIN: Final = 0.02
LET_GO_S: Final = 4 * ACK_DELAY_S_MAX
CLOSE_S_MAX: Final = 5.0
"""How long leaving in good order may take while the broker cannot be reached."""


class ForeignAttachment:
    """A consumer, seen by the client. `start` begins the deliveries."""

    def __init__(
        self, desk: Desk, feed: Feed, loop: AbstractEventLoop,
        on_detached: Callable[["ForeignAttachment"], object],
    ) -> None:  # fmt: skip
        self.desk = desk
        self.feed = feed
        self._loop = loop
        self._thread = get_ident()
        self._on_detached = on_detached
        self._sink: Sink | None = None
        self._has_credit = Event()
        self._has_orders = Event()
        self._orders = Work()
        self._given = 0
        """How many times orders were given; flushes wait for a number."""
        self._done = 0
        self._failure: Exception | None = None
        """Why nothing more is told to the broker."""
        self._flushes: list[tuple[int, Answer]] = []
        self._tasks: list[Task[None]] = []
        self._timer: TimerHandle | None = None
        self._is_stopping = False
        self._is_closed = False
        self._is_ended = False
        if isinstance(feed, MovingFeed):
            feed.listen(self._let_go)

    @property
    def lease_s(self) -> float:
        return self.desk.policy.lease_s

    def start(self, sink: Sink) -> None:
        """Deliveries go to this sink from now on."""
        self._sink = sink
        name = f"{self.desk.topic}/{self.desk.subscription or self.desk.consumer}"
        self._tasks = [
            self._loop.create_task(self._fetch(), name=f"penstock-fetch-{name}"),
            self._loop.create_task(self._obey(), name=f"penstock-settle-{name}"),
        ]
        self._tick_later()

    # -- what the client decides -----------------------------------------------------------------

    def ack(self, claims: list[Claim]) -> None:
        self._here(lambda: self._do(self.desk.ack(claims)))

    def finish(self, claims: list[Claim]) -> None:
        """Messages were acked by a unit that is committed. On the loop."""
        self.desk.ack(claims)  # whose orders were carried out with the unit
        self._do(Work())

    def give_back(self, claim: Claim, cause: Cause, delay_s: float | None, reason: str) -> None:
        def decide() -> None:
            now, wall = self._loop.time(), wall_ms()
            self._do(self.desk.give_back(claim, cause, delay_s, reason, now, wall))
            is_keyed = self.desk.policy.kind is Kind.KEY_SHARED
            if cause is Cause.NACKED and is_keyed and not isinstance(self.desk, KeyedDesk):
                assert self._sink is not None
                self._sink.on_revoked(Revoked(claim, ()))  # one of a key is out at a time
            self._tick_later()

        self._here(decide)

    def extend(self, renewals: list[Renewal], seconds: float) -> None:
        self._here(lambda: self._do(self.desk.extend(renewals, seconds, self._loop.time())))

    def flush(self, answer: Answer) -> None:
        self._flushes.append((self._given, answer))
        self._loop.call_soon(self._answer_flushes)

    def detach(self, begun: dict[int, Ranges], answer: Answer) -> None:
        task = self._loop.create_task(self._detach(begun), name="penstock-detach")
        task.add_done_callback(lambda _: answer(None))

    def _here(self, call: Callable[[], None]) -> None:
        if get_ident() == self._thread:
            call()
            return
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            raise Closed("the event loop of this client is closed") from None

    def _do(self, work: Work) -> None:
        if self._is_closed:
            return
        assert self._sink is not None
        if work.refusals:
            self._sink.on_refused(work.refusals)
        if work.has_orders():
            self._orders.add(work)
            self._given += 1
            self._has_orders.set()
        for part in work.slices:
            self._sink.on_slice(part)
        for news in work.revoked:
            self._sink.on_revoked(news)
        if self.desk.room()[0]:
            self._has_credit.set()

    def _let_go(self, partitions: set[int], done: Callable[[], None]) -> None:
        """Partitions move to another consumer: what was decided goes first."""
        if self._is_closed or self._sink is None:
            done()
            return
        self._do(self.desk.let_go(partitions))
        feed = self.feed

        def note() -> None:
            if isinstance(feed, MovingFeed):
                feed.note(self._orders.settle)
            done()

        self._loop.call_later(LET_GO_S, note)  # the client sends its newest acks within this time

    # -- fetching --------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        pause, silent_since = PAUSE_S_FIRST, 0.0
        try:
            while not self._is_stopping:  # an SDK may swallow a cancellation
                count, size = self.desk.room()
                if not count:
                    self._has_credit.clear()
                    await self._has_credit.wait()
                    continue
                try:
                    letters = await self.feed.fetch(count, size)
                except Unavailable as error:
                    silent_since = silent_since or self._loop.time()
                    waited = self._loop.time() - silent_since
                    log.warning("topic %s: no messages for %.1f s: %s; trying again in %.2f s",
                                self.desk.topic, waited, error, pause)  # fmt: skip
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, PAUSE_S_MAX)
                    continue
                pause, silent_since = PAUSE_S_FIRST, 0.0
                if letters:
                    self._do(self.desk.arrived(letters, self._loop.time(), wall_ms()))
                    self._tick_later()
        except PenstockError as error:
            self._fail(error)
        except Exception as error:
            log.exception("topic %s: fetching failed", self.desk.topic)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._sink is not None and not self._is_closed:
            self._sink.on_closed(error)

    # -- telling the broker ----------------------------------------------------------------------

    async def _obey(self) -> None:
        try:
            while not self._is_ended:
                await self._has_orders.wait()
                self._has_orders.clear()
                upto, orders = self._given, self._orders
                self._orders = Work()
                await self._carry_out(orders)
                self._done = upto
                self._answer_flushes()
        except Exception as error:
            log.exception("topic %s: settling failed", self.desk.topic)
            self._failure = error
            self._fail(error)
            self._answer_flushes()

    async def _carry_out(self, orders: Work) -> None:
        if orders.renew:
            await self._until_done(lambda: self._renew(orders))
        if orders.settle:
            await self._until_done(lambda: self.feed.settle(orders.settle))
        if orders.bury:
            await self._bury(orders)
        if orders.release:
            await self._until_done(lambda: self.feed.release(orders.release))

    async def _renew(self, orders: Work) -> list[Refused]:
        await self.feed.renew(orders.renew)
        return []

    async def _bury(self, orders: Work) -> None:
        subscription = self.desk.subscription
        assert subscription is not None
        dead = names.dead_topic(self.desk.topic, subscription)
        try:
            await self._until_done(lambda: self.feed.bury(dead, orders.bury))
        except DeadLetterFull as error:
            log.error("topic %s: %s", self.desk.topic, error)  # noqa: TRY400 - the text says it all
            delay = self.desk.policy.retry.max_s
            waiting = [Release(letter, delay, is_unstarted=True) for letter in orders.bury]
            await self._until_done(lambda: self.feed.release(waiting))

    async def _until_done(self, call: Callable[[], Awaitable[list[Refused]]]) -> None:
        """Repeats a call until the broker answered; tells the client what it refused."""
        pause = PAUSE_S_FIRST
        while True:
            try:
                refused = await call()
                break
            except DeadLetterFull:
                raise
            except Unavailable as error:
                log.warning("topic %s: not settled yet: %s", self.desk.topic, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_S_MAX)
            except UnknownSubscription as error:
                log.warning("topic %s: %s", self.desk.topic, error)
                return
        if refused and self._sink is not None:
            self._sink.on_refused([_refusal(each) for each in refused])

    def _answer_flushes(self) -> None:
        while self._flushes and (self._failure or self._flushes[0][0] <= self._done):
            self._flushes.pop(0)[1](self._failure)

    # -- time ------------------------------------------------------------------------------------

    def _tick_later(self) -> None:
        if self._is_closed:
            return
        now = self._loop.time()
        due = now + min(max(TICK_S_MIN, self.lease_s / TICK_SHARE), TICK_S_MAX)
        resting = self.desk.next_due()
        if resting is not None:
            due = min(due, max(resting, now))
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._do(self.desk.tick(self._loop.time(), wall_ms()))
        self._tick_later()

    # -- the end ---------------------------------------------------------------------------------

    async def _detach(self, begun: dict[int, Ranges]) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        await self._stop(self._tasks[:1])
        self._do(self.desk.detach(begun, self._loop.time()))
        self._is_closed = True
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                settled: asyncio.Future[Any] = self._loop.create_future()
                self.flush(partial(_set_if_waited, settled))
                await settled
        except TimeoutError:
            log.warning("topic %s: the broker cannot be reached: what was held comes again when "
                        "its lease ends", self.desk.topic)  # fmt: skip
        await self._end()

    async def lose(self) -> None:
        """Leaves without order: what was held comes again when its lease ends."""
        if not self._is_stopping:
            self._is_stopping = self._is_closed = True
            await self._stop(self._tasks[:1])
            await self._end()

    async def _end(self) -> None:
        self._is_ended = True
        if self._timer is not None:
            self._timer.cancel()
        await self._stop(self._tasks)
        self._on_detached(self)
        await self.feed.close()
        self._done = self._given
        self._answer_flushes()

    async def _stop(self, tasks: "list[Task[None]]") -> None:
        for task in tasks:
            task.cancel()
        for task in tasks:
            try:
                await task
            except CancelledError:
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    raise


def _set_if_waited(future: "asyncio.Future[Any]", found: Any) -> None:
    if not future.done():
        future.set_result(found)


def _refusal(refused: Refused) -> Refusal:
    letter, why = refused
    if letter.offset is None:
        return Refusal(letter.partition, -1, f"{letter.position}: {why}")
    return Refusal(letter.partition, letter.offset, why)


def wall_ms() -> int:
    """Unix milliseconds now."""
    return time.time_ns() // 1_000_000
