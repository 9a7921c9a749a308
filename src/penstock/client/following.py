"""Deliveries over many topics: one consumer of a pattern.

Each topic is a leg: an attachment with its own settling and the whole credit. All legs put what
arrives into one queue, so messages of all topics are handed out in the order of their arrival.
"""

from asyncio import AbstractEventLoop, Future, timeout_at
from collections.abc import Awaitable, Callable
from typing import Any, cast

from penstock.batch.frame import Slice
from penstock.client.deliveries import Deliveries
from penstock.client.received import Hold, ReceivedMessage
from penstock.client.settling import Settling
from penstock.drivers.port import Answer, Attachment, Driver, Following, PatternDriver, Sink
from penstock.vocabulary.claims import Claim, Refusal, Renewal, Revoked
from penstock.vocabulary.errors import AckRefused
from penstock.vocabulary.limits import LEASE_S_DEFAULT
from penstock.vocabulary.records import Cause, Ranges
from penstock.vocabulary.wishes import Wish


class PatternDeliveries(Deliveries):
    """The messages of every topic that matches a pattern, now or later."""

    def __init__(
        self, driver: Driver, loop: AbstractEventLoop, wish: Wish, *,
        prepare: Callable[[], Awaitable[None]] | None = None, is_push: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(driver, loop, wish, prepare=prepare, is_push=is_push)
        self._is_push = is_push
        self._legs: list[Leg] = []
        self._choosers: list[Future[None]] = []
        """Who waits for messages of some topics only."""
        is_once = self.settling.is_once
        self.settling = Settlings(self._legs, wish, loop)
        self.settling.is_once = is_once

    async def open(self) -> None:
        """Attaches to every topic that matches."""
        if self._prepare is not None and self._attachment is None:
            await self._prepare()
        if self._is_closed:
            raise self._closed()
        if self._attachment is None:
            following = await cast("PatternDriver", self._driver).follow(self._wish, self)
            if self._was_closed():  # meanwhile: topics that join from now on are detached at once
                following.leave()
                raise self._closed()
            self._attachment = Legs(self._legs, following, self._loop)
            self._driver.deliver()  # the legs of the topics that exist

    async def attach_anew(self, driver: Driver) -> None:
        """As for one topic: every leg is left, and every topic that matches joined again."""
        if self._attachment is not None:
            self._attachment.detach({}, _ignore)
        self._legs.clear()
        following = await cast("PatternDriver", driver).follow(self._wish, self)
        if self._was_closed():
            following.leave()
            return
        self._driver = driver
        self._attachment = Legs(self._legs, following, self._loop)
        driver.deliver()

    def _has_holds(self) -> bool:
        return any(leg.settling.holds for leg in self._legs)

    def on_joined(self, topic: str, attachment: Attachment) -> Sink:
        """One more topic matches."""
        settling = self._settling(topic)
        settling.attachment = attachment
        settling.is_once = self.settling.is_once
        leg = Leg(self, settling, attachment)
        if self._is_closed:
            leg.is_closed = True
            attachment.detach({}, _ignore)
        else:
            self._legs.append(leg)
        return leg

    def _settling(self, topic: str) -> Settling:
        return Settling(topic, self._loop, self._wish.credit, renews_handed=self._is_push)

    def revoked(self, settling: Settling, news: Revoked) -> None:
        """Only kind `key_shared` is told; see KeyedPatternDeliveries."""

    def _renew(self) -> None:
        self._renewing = None
        if not self._is_closed and any(leg.settling.holds for leg in self._legs):
            self.settling.renew()
            self._renew_later()

    def arrived(self, hold: Hold) -> None:
        """Messages of a leg arrived."""
        self._arrived.append(hold)
        self._wake(hold.count)
        if self._renewing is None:
            self._renew_later()

    # -- some of the topics ----------------------------------------------------------------------

    async def receive_of(
        self, is_wanted: Callable[[str], bool], timeout_s: float | None = None
    ) -> ReceivedMessage | None:
        """The next message of the topics that are wanted; None when none came in time.

        Messages of the other topics stay in the client, with their leases renewed, for whoever
        asks for them.
        """
        deadline = None if timeout_s is None else self._loop.time() + timeout_s
        while not self._is_stopping:
            if self._attachment is None or self._is_closed:
                raise self._closed()
            if self._error is not None:
                raise self._error
            message = self._chosen(is_wanted)
            if message is not None:
                return message
            if not await self._news(deadline):
                break
        return None

    def _chosen(self, is_wanted: Callable[[str], bool]) -> ReceivedMessage | None:
        for hold in [self._hold, *self._arrived]:
            if hold is None or not is_wanted(hold.settler.topic):
                continue
            message = next(hold.messages(), None)
            if hold is not self._hold and hold.handed == hold.count:
                self._arrived.remove(hold)
                if self.settling.is_once:
                    self.settling.ack_many(hold, list(hold.offsets(0, hold.count)))
            if message is not None:
                return message
        return None

    async def _news(self, deadline: float | None) -> bool:
        """Waits until something arrived or ended; False at the deadline."""
        waiter: Future[None] = self._loop.create_future()
        self._choosers.append(waiter)
        try:
            async with timeout_at(deadline):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._choosers.remove(waiter)
        return True

    def _wake(self, count: int) -> None:
        super()._wake(count)
        for waiter in self._choosers:
            if not waiter.done():
                waiter.set_result(None)


class Leg:
    """One topic of the pattern: where its messages come in."""

    def __init__(
        self, whole: PatternDeliveries, settling: Settling, attachment: Attachment
    ) -> None:
        self.settling = settling
        self.attachment = attachment
        self._whole = whole
        self.is_closed = False

    def on_slice(self, part: Slice) -> None:
        if self.is_closed:
            return
        if part.frames:
            self._whole.arrived(self.settling.hold(part))
        else:
            self.settling.void(part.lease_id)

    def on_refused(self, refusals: list[Refusal]) -> None:
        self.settling.on_refused(refusals)

    def on_closed(self, error: Exception) -> None:
        self._whole.on_closed(error)

    def on_revoked(self, news: Revoked) -> None:
        self._whole.revoked(self.settling, news)


class Settlings(Settling):
    """The settlings of all legs as one; each message settles at that of its own topic."""

    def __init__(self, legs: list[Leg], wish: Wish, loop: AbstractEventLoop) -> None:
        super().__init__(wish.topic, loop, wish.credit, renews_handed=False)
        self._legs = legs

    def hold(self, part: Slice) -> Hold:
        """Never called: slices arrive at the legs."""
        raise AssertionError(part)

    def send(self) -> None:
        for leg in self._legs:
            leg.settling.send()

    def renew(self) -> None:
        for leg in self._legs:
            leg.settling.renew()

    def ack_many(self, hold: Hold, offsets: list[int]) -> None:
        own = hold.settler
        assert isinstance(own, Settling)
        own.ack_many(hold, offsets)

    def give_back_many(
        self, hold: Hold, offsets: list[int], delay_s: float | None, reason: str
    ) -> None:
        own = hold.settler
        assert isinstance(own, Settling)
        own.give_back_many(hold, offsets, delay_s, reason)

    def check_failure(self) -> None:
        for leg in self._legs:
            leg.settling.check_failure()

    def check_refused(self) -> None:
        """Raises AckRefused with what was refused on every topic."""
        errors: list[AckRefused] = []
        for leg in self._legs:
            try:
                leg.settling.check_refused()
            except AckRefused as error:
                errors.append(error)
        if errors:
            raise AckRefused(
                "; ".join(error.text for error in errors),
                refused=[row for error in errors for row in error.refused],
            )

    def begun(self) -> dict[int, Ranges]:
        """Nothing: a lease id means something on its own leg only, which `Legs.detach` asks."""
        return {}

    def close(self) -> None:
        for leg in self._legs:
            leg.settling.close()


class Legs:
    """The attachments of all legs as one."""

    def __init__(self, legs: list[Leg], following: Following, loop: AbstractEventLoop) -> None:
        self._legs = legs
        self._following = following
        self._loop = loop

    @property
    def lease_s(self) -> float:
        return min((leg.attachment.lease_s for leg in self._legs), default=LEASE_S_DEFAULT)

    def flush(self, answer: Answer) -> None:
        self._all(answer, lambda leg, done: leg.attachment.flush(done))

    def detach(self, begun: dict[int, Ranges], answer: Answer) -> None:  # noqa: ARG002 - see begun
        self._following.leave()

        def leave(leg: Leg, done: Answer) -> None:
            leg.is_closed = True
            leg.attachment.detach(leg.settling.begun(), done)
            leg.settling.holds.clear()

        self._all(answer, leave)

    def _all(self, answer: Answer, do: Callable[[Leg, Answer], None]) -> None:
        """Answers once every leg has: with the first error, if there was one."""
        left = len(self._legs)
        first: Any = None

        def done(found: Any) -> None:
            nonlocal left, first
            left -= 1
            first = first if isinstance(first, Exception) else found
            if not left:
                answer(first)

        if not left:
            self._loop.call_soon(answer, None)
        for leg in list(self._legs):
            do(leg, done)

    def ack(self, claims: list[Claim]) -> None:
        """Never called: each message settles at its own leg."""
        raise AssertionError(claims)

    def give_back(self, claim: Claim, cause: Cause, delay_s: float | None, reason: str) -> None:
        """Never called: see `ack`."""
        raise AssertionError(claim, cause, delay_s, reason)

    def extend(self, renewals: list[Renewal], seconds: float) -> None:
        """Never called: see `ack`."""
        raise AssertionError(renewals, seconds)


def _ignore(_answer: Any) -> None:
    """Nobody waits for this."""
