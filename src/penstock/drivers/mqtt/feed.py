"""One consumer: a session of its own, whose messages are acked when the application is done."""

import asyncio
import logging
import time
from asyncio import Event, Task
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.drivers.foreign.carrier import Refused, Release, Seat
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.mqtt.link import FAILURE, Link
from penstock.drivers.mqtt.parcels import Incoming, opened
from penstock.drivers.mqtt.slots import Slot
from penstock.vocabulary.errors import AccessRefused, PenstockError, Unavailable

if TYPE_CHECKING:
    from penstock.drivers.mqtt.carrier import MqttCarrier

log = logging.getLogger("penstock.drivers")

FETCH_S: Final = 1.0
UNACKED_MAX: Final = 10_000
"""QoS 0 has no answers that could slow the broker down: of what the application does not fetch in
time, the oldest is dropped."""


class Token(NamedTuple):
    """Where a letter came from."""

    life: int
    """Which life of the session: a broker that forgot it knows no older numbers."""
    mid: int
    qos: int
    topic: str


class MqttFeed:
    """A consumer of a topic or a pattern."""

    def __init__(self, carrier: "MqttCarrier", seat: Seat, filter_: str, slot: Slot | None) -> None:
        self.carrier = carrier
        self.seat = seat
        self.slot = slot
        self.dropped = 0
        self.link: Link | None = None
        self.wants_retained = False
        """What the broker had kept when the subscription came is delivered."""
        self._filter = filter_
        self._arrived: deque[Letter] = deque()
        self._has_some = Event()
        self._life = 0
        self._held: set[int] = set()
        """Numbers of messages that came and are not acked."""
        self._acked: set[int] = set()
        """Numbers that were acked without knowing yet that the broker saw it."""
        self._failure: PenstockError | None = None
        self._task: Task[None] | None = None
        self._is_closed = False

    @property
    def _link(self) -> Link:
        assert self.link is not None
        return self.link

    async def subscribe(self, *, is_new: bool) -> None:
        """Asks the broker for the messages. Raises AccessRefused, Unavailable.

        A server that was stopped may know a session and not its subscription, so that every
        connection asks again; only the first asks for retained messages.
        """
        reason = await self._link.subscribe(
            self._filter, self.seat.policy.qos, wants_retained=is_new and self.wants_retained
        )
        if reason >= FAILURE:
            raise AccessRefused(
                f"{self.carrier.text} refused the subscription to {self._filter!r} (reason "
                f"0x{reason:02X}): give this user the right, or choose another topic"
            )

    # -- from the link ---------------------------------------------------------------------------

    def on_messages(self, messages: list[Incoming]) -> None:
        """Messages arrived."""
        wall = time.time_ns() // 1_000_000
        for message in messages:
            mid, qos = message.mid, message.qos
            if qos and message.is_dup and mid in self._held:
                continue  # it is here already; a reconnect brought it again
            is_again = qos and message.is_dup and mid in self._acked
            if is_again or (message.is_retained and not self.wants_retained):
                with suppress(Unavailable):
                    self._link.ack(mid, qos)
                continue
            letter = opened(message, wall)
            letter.token = Token(self._life, mid, qos, message.topic)
            if qos:
                self._held.add(mid)
                self._acked.discard(mid)
            self._arrived.append(letter)
        if not self.seat.policy.qos:
            self._drop_oldest()
        self._has_some.set()

    def _drop_oldest(self) -> None:
        while len(self._arrived) > UNACKED_MAX:
            self._arrived.popleft()
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:
                log.warning("topic %s: %d messages of QoS 0 dropped: the consumer is too slow",
                            self.seat.topic, self.dropped)  # fmt: skip

    def on_up(self, is_present: bool) -> None:  # noqa: FBT001 - a callback
        """The connection is back."""
        if not is_present:
            if self.seat.subscription is not None:
                log.warning("topic %s: the broker forgot the session of subscription %s: what it "
                            "held is lost", self.seat.topic, self.seat.subscription)  # fmt: skip
            self._life += 1
            self._held.clear()
            self._acked.clear()
        self._task = asyncio.get_running_loop().create_task(self._resume())

    async def _resume(self) -> None:
        try:
            self.wants_retained = False
            await self.subscribe(is_new=False)
            await self.carrier.announce(self)
        except Unavailable as error:
            log.warning("topic %s: %s", self.seat.topic, error)  # the next reconnect does it
        except PenstockError as error:
            self._failure = error
            self._has_some.set()

    # -- the port --------------------------------------------------------------------------------

    async def fetch(self, count: int, bytes_max: int) -> list[Letter]:
        if not self._arrived:
            if self._failure is not None:
                raise self._failure
            if not self._link.is_up:
                raise Unavailable(f"{self.carrier.text} is not connected: {self._link.why_down}")
            self._has_some.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(FETCH_S):
                    await self._has_some.wait()
        found: list[Letter] = []
        size = 0
        while self._arrived and len(found) < count and (not found or size < bytes_max):
            letter = self._arrived.popleft()
            size += letter.size
            found.append(letter)
        return found

    async def settle(self, letters: Sequence[Letter]) -> list[Refused]:
        tokens: list[Token] = [letter.token for letter in letters]
        for life, mid, qos, _ in tokens:
            if life == self._life and mid in self._held:
                self._link.ack(mid, qos)
                self._held.discard(mid)
                self._acked.add(mid)
        if any(token.qos for token in tokens):
            await self._link.round_trip()
        for token in tokens:
            if token.life == self._life:
                self._acked.discard(token.mid)
        return []

    async def release(self, releases: Sequence[Release]) -> list[Refused]:
        """MQTT takes nothing back: it stays in the session, and comes when it is opened again."""
        del releases
        return []

    async def renew(self, letters: Sequence[Letter]) -> None:
        """There are no leases."""

    async def bury(self, dead_topic: str, letters: Sequence[Letter]) -> list[Refused]:
        store = self.carrier.dead
        if store is not None:
            await store.put(dead_topic, letters, self.seat.policy.dead_bytes_max)
        else:
            for letter in letters:
                log.error("topic %s: message %s was rejected and is dropped: without dead=file:DIR "
                          "in its URL there is no place for dead letters",
                          self.seat.topic, letter.id)  # fmt: skip
        return await self.settle(letters)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        ends = self.seat.subscription is None
        with suppress(PenstockError):
            if self.slot is not None and self.slot.number and self._link.is_up:
                # Only the first of a host holds messages while nobody is there.
                await self._link.unsubscribe(self._filter)
                ends = not self._held
        await self.carrier.leave(self, ends_session=ends)
        await self._link.close(ends_session=ends)
        if self.slot is not None:
            self.slot.free()
