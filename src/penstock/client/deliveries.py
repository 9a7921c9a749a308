"""What a subscriber gets: messages awaited, iterated or in batches; acks flushed at the end."""

import logging
from asyncio import AbstractEventLoop, CancelledError, Future, TimerHandle, sleep
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Final, Self

from penstock.batch.frame import Slice
from penstock.client.batches import ReceivedBatch
from penstock.client.received import Hold, ReceivedMessage
from penstock.client.settling import RENEW_SHARE, Settling
from penstock.drivers.port import Attachment, Driver
from penstock.vocabulary.claims import Refusal, Revoked
from penstock.vocabulary.errors import Closed, InvalidArgument, PenstockError
from penstock.vocabulary.limits import CREDIT_MAX
from penstock.vocabulary.wishes import Wish

log = logging.getLogger("penstock.client")

RENEW_S_MIN: Final = 0.005
TURNS_MAX: Final = 8
"""Slices handed out without a pause before others on the loop get a turn."""


class Seat:
    """A place at the broker. Once left, nothing that still arrives there is handed out."""

    __slots__ = ("_whose", "is_left")

    def __init__(self, whose: "Deliveries") -> None:
        self._whose = whose
        self.is_left = False

    def on_slice(self, part: Slice) -> None:
        if not self.is_left:
            self._whose.on_slice(part)

    def on_refused(self, refusals: list[Refusal]) -> None:
        self._whose.on_refused(refusals)

    def on_closed(self, error: Exception) -> None:
        if not self.is_left:
            self._whose.on_closed(error)

    def on_revoked(self, news: Revoked) -> None:
        if not self.is_left:
            self._whose.on_revoked(news)


class Deliveries:
    """The messages of one subscription, as one consumer gets them. Belongs to one event loop.

    `async with` attaches on entry; on leaving, acks are flushed and the rest is handed back.
    """

    def __init__(
        self, driver: Driver, loop: AbstractEventLoop, wish: Wish, *,
        prepare: Callable[[], Awaitable[None]] | None = None, is_push: bool = False,
    ) -> None:  # fmt: skip
        self.topic = wish.topic
        self.subscription = wish.subscription
        self.consumer = wish.consumer
        self.current: Iterator[ReceivedMessage] = iter(())
        """Messages ready to be handed out; whoever takes the next one has it."""
        self.settling = Settling(wish.topic, loop, wish.credit, renews_handed=is_push)
        self.on_ended: Callable[[], object] | None = None
        self._driver = driver
        self._seat = Seat(self)
        self._loop = loop
        self._wish = wish
        self._prepare = prepare
        self._hold: Hold | None = None
        self._arrived: deque[Hold] = deque()
        self._waiters: deque[Future[bool]] = deque()
        self._turns = 0
        self._renewing: TimerHandle | None = None
        self._attachment: Attachment | None = None
        self._error: Exception | None = None
        self._is_closed = False
        self._is_stopping = False
        self.settling.is_once = wish.policy is not None and wish.policy.qos == 0

    # -- opening and closing ---------------------------------------------------------------------

    async def open(self) -> None:
        """Attaches to the subscription: messages arrive from now on."""
        if self._prepare is not None and self._attachment is None:
            await self._prepare()
        if self._is_closed:
            raise self._closed()
        if self._attachment is None:
            attachment = await self._driver.attach(self._wish, self._seat)
            if self._was_closed():  # meanwhile
                attachment.detach({}, _ignore)
                raise self._closed()
            self._attachment = self.settling.attachment = attachment

    async def attach_anew(self, driver: Driver) -> None:
        """Leaves its place at the broker and takes another one, over this connection.

        For a consumer that holds nothing; what is on its way to the old place comes again.
        """
        self._seat.is_left = True
        self._seat = Seat(self)
        if self._attachment is not None:
            self._attachment.detach({}, _ignore)
        attachment = await driver.attach(self._wish, self._seat)
        if self._was_closed():
            attachment.detach({}, _ignore)
            return
        self._driver = driver
        self._attachment = self.settling.attachment = attachment

    @property
    def driver(self) -> Driver:
        """The connection it gets messages over."""
        return self._driver

    @property
    def wish(self) -> Wish:
        """What it asked for."""
        return self._wish

    @property
    def is_waiting(self) -> bool:
        """True when it could take messages and has none in hand."""
        is_open = self._attachment is not None and not self._is_closed and self._error is None
        return is_open and not self._is_stopping and not self._has_holds()

    def _has_holds(self) -> bool:
        return bool(self.settling.holds)

    def _was_closed(self) -> bool:
        return self._is_closed

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except PenstockError as late:
            if kind is None:
                raise
            log.warning("%s", late)  # the error that ends the block matters more

    async def close(self) -> None:
        """Flushes acks and detaches; what was not settled is delivered again.

        Raises AckRefused. Doing so twice is harmless.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._renewing is not None:
            self._renewing.cancel()
        self._wake(len(self._waiters))
        try:
            if self._attachment is not None:
                self.settling.close()
                done: Future[Any] = self._loop.create_future()
                self._attachment.detach(self.settling.begun(), done.set_result)
                await done
        finally:
            self._arrived.clear()
            self.settling.holds.clear()
            if self.on_ended is not None:
                self.on_ended()
        self.settling.check_failure()
        self.settling.check_refused()

    async def flush(self) -> None:
        """Returns once everything settled so far is durable. Raises AckRefused."""
        if self._attachment is None or self._is_closed:
            raise self._closed()
        self.settling.send()
        done: Future[Any] = self._loop.create_future()
        self._attachment.flush(done.set_result)
        answer = await done
        if isinstance(answer, Exception):
            raise answer
        self.settling.check_failure()
        self.settling.check_refused()

    def stop(self) -> None:
        """Hands out nothing more; what is settled is still sent. For a drain."""
        self._is_stopping = True
        self._wake(len(self._waiters))

    def _closed(self) -> Closed:
        if self._attachment is None and not self._is_closed:
            return Closed(
                f"the subscription to {self.topic!r} is not open yet: use 'async with' or 'await'"
            )
        return Closed(f"the subscription to {self.topic!r} was closed")

    # -- messages --------------------------------------------------------------------------------

    async def receive(self, timeout_s: float | None = None) -> ReceivedMessage | None:
        """The next message, or None when none came in time."""
        if not self._is_stopping:
            for message in self.current:
                return message
        deadline = None
        if timeout_s is not None:
            deadline = self._loop.time() + timeout_s
            if timeout_s <= 0:
                await sleep(0)  # so that asking again and again does not stop the loop
        while await self.ready(deadline):
            for message in self.current:
                return message
        if self._is_closed:
            raise self._closed()
        return None

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[ReceivedMessage]:
        while True:
            for message in self.current:
                yield message
            if not await self.ready():
                return

    async def batches(self, max_messages: int = 1000) -> AsyncIterator[ReceivedBatch]:
        """Whatever waits, up to so many messages at a time, as lists that ack with one call."""
        while await self.stocked():
            batch = self.take(max_messages)
            if batch:  # else somebody else was quicker
                yield batch

    def take(self, max_messages: int) -> ReceivedBatch:
        """The messages that are there, up to so many."""
        check_size(max_messages)
        batch = ReceivedBatch(self.settling)
        while len(batch) < max_messages and self._find():
            assert self._hold is not None
            batch.add(self._hold, self._hold.take(max_messages - len(batch)))
        return batch

    async def ready(self, deadline: float | None = None) -> bool:
        """True when `current` has messages; False at the deadline, and once this is closed."""
        if not await self.stocked(deadline):
            return False
        assert self._hold is not None
        self.current = self._hold.messages()
        return True

    async def stocked(self, deadline: float | None = None) -> bool:
        """True when there are messages; False at the deadline, and once this is closed."""
        if self._attachment is None:
            raise self._closed()
        while not self._is_closed and not self._is_stopping:
            if self._error is not None:
                raise self._error
            if self._find():
                self._turns += 1
                if self._turns == TURNS_MAX:
                    self._turns = 0
                    await sleep(0)
                return True
            self._turns = 0
            if not await self._wait(deadline):
                return False
        return False

    def _find(self) -> bool:
        while self._hold is None or self._hold.handed == self._hold.count:
            if self.settling.is_once and self._hold is not None:
                # QoS 0: what the application was given takes no credit any more.
                hold, self._hold = self._hold, None
                self.settling.ack_many(hold, list(hold.offsets(0, hold.count)))
            if not self._arrived:
                return False
            self._hold = self._arrived.popleft()
        return True

    # -- waiting ---------------------------------------------------------------------------------

    async def _wait(self, deadline: float | None) -> bool:
        waiter: Future[bool] = self._loop.create_future()
        timer: TimerHandle | None = None
        if deadline is not None:
            if deadline <= self._loop.time():
                return False
            timer = self._loop.call_at(deadline, _time_out, waiter)
        self._waiters.append(waiter)
        try:
            return await waiter
        except CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake(1)  # somebody else may have the message it was woken for
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self, count: int) -> None:
        while count and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(True)
                count -= 1

    def on_slice(self, part: Slice) -> None:
        """Messages arrived, or a lease is void."""
        if self._is_closed:
            return
        if not part.frames:
            self.settling.void(part.lease_id)
            return
        hold = self.settling.hold(part)
        self._arrived.append(hold)
        self._wake(hold.count)
        if self._renewing is None:
            self._renew_later()

    def on_refused(self, refusals: list[Refusal]) -> None:
        """The broker did not accept these."""
        self.settling.on_refused(refusals)

    def on_revoked(self, news: Revoked) -> None:
        """Only kind `key_shared` is told; see KeyedDeliveries."""

    def on_closed(self, error: Exception) -> None:
        """Nothing more will come."""
        self._error = error
        self._wake(len(self._waiters))

    def catch_up(self) -> None:
        """Sends acks and renews leases now. On the loop's thread."""
        if self._attachment is not None and not self._is_closed:
            self.settling.send()
            self.settling.renew()

    def _renew_later(self) -> None:
        assert self._attachment is not None
        delay = max(RENEW_S_MIN, self._attachment.lease_s / RENEW_SHARE)
        self._renewing = self._loop.call_later(delay, self._renew)

    def _renew(self) -> None:
        self._renewing = None
        if self.settling.holds and not self._is_closed:
            self.settling.renew()
            self._renew_later()


def check_size(max_messages: int) -> None:
    """Raises InvalidArgument when a batch cannot have so many messages."""
    if not 1 <= max_messages <= CREDIT_MAX:
        raise InvalidArgument(f"max_messages must be 1…{CREDIT_MAX}, not {max_messages!r}")


def _ignore(_answer: Any) -> None:
    """Nobody waits for this."""


def _time_out(waiter: "Future[bool]") -> None:
    if not waiter.done():
        waiter.set_result(False)
