"""Publishing to a foreign broker: a lane for each topic, so that order holds and retries are safe.

A lane has one send under way. What arrives meanwhile goes together next, as one call. While the
broker cannot be reached the same call is repeated, for so long as the URL says.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop, Task
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from penstock.drivers.foreign.carrier import Carrier, LevelCarrier, Placed, Sender
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.port import Answer
from penstock.vocabulary.errors import (
    Closed,
    DiskFull,
    PenstockError,
    StorageError,
    Unavailable,
    Unconfirmed,
    UnknownTopic,
)
from penstock.vocabulary.limits import MIB
from penstock.vocabulary.message import Durability
from penstock.vocabulary.stored import Stored

log = logging.getLogger("penstock.drivers")

TOGETHER_MAX: Final = 1_000
PENDING_BYTES_MAX: Final = 16 * MIB
"""Publishers wait while more than this is on its way."""
PAUSE_S_FIRST: Final = 0.05
PAUSE_S_MAX: Final = 1.0


class Bundle(NamedTuple):
    """The letters of one batch, and who waits for its answer."""

    letters: list[Letter]
    size: int
    sender: Sender
    answer: Answer


class Lanes:
    """Everything one client has on its way to a broker. Belongs to one loop."""

    def __init__(
        self, carrier: Carrier, loop: AbstractEventLoop, patience_s: float,
        ensure_topic: Callable[[str], Awaitable[None]], forget_topic: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._carrier = carrier
        self._loop = loop
        self._patience_s = patience_s
        self._ensure_topic = ensure_topic
        self._forget_topic = forget_topic
        # Whether an object has the methods of a protocol takes longer to find out than to send.
        self._level_of: Callable[[str], Durability] | None = (
            carrier.level_of if isinstance(carrier, LevelCarrier) else None
        )
        self._lanes: dict[str, deque[Bundle]] = {}
        self._tasks: set[Task[None]] = set()
        self._pending_bytes = 0
        self._waiting: list[Answer] = []
        self._is_closed = False

    def has_room(self) -> bool:
        """True when publishes may go on."""
        return self._pending_bytes <= PENDING_BYTES_MAX

    def when_room(self, answer: Answer) -> None:
        """Answers None once there is room."""
        if self.has_room():
            self._loop.call_soon(answer, None)
        else:
            self._waiting.append(answer)

    def put(self, topic: str, bundle: Bundle) -> None:
        """Sends a batch behind all earlier ones to its topic."""
        if self._is_closed:
            raise Closed("this client was closed; connect again to go on")
        self._pending_bytes += bundle.size
        lane = self._lanes.get(topic)
        if lane is not None:
            lane.append(bundle)
            return
        self._lanes[topic] = deque([bundle])
        task = self._loop.create_task(self._run(topic), name=f"penstock-publish-{topic}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Gives up what is still on its way."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, topic: str) -> None:
        lane = self._lanes[topic]
        together: list[Bundle] = []
        left: Exception | None = None
        try:
            while lane:
                together = _take(lane)
                await self._send(topic, together)
                together = []
        except Exception as error:
            log.exception("topic %s: publishing failed", topic)
            left = StorageError(f"topic {topic!r}: publishing failed: {error!r}")
        finally:
            del self._lanes[topic]
            if together or lane:
                left = left or Unconfirmed("the client was closed before the broker answered")
                for bundle in [*together, *lane]:
                    self._answer(bundle, left)

    async def _send(self, topic: str, together: list[Bundle]) -> None:
        letters = together[0].letters
        if len(together) > 1:
            letters = [letter for bundle in together for letter in bundle.letters]
        try:
            placed = await self._try(topic, letters, together[0].sender)
        except PenstockError as error:
            if len(together) == 1 or isinstance(error, Unconfirmed | DiskFull):
                for bundle in together:
                    self._answer(bundle, error)
                return
            for bundle in together:  # one of them is wrong: the others must not suffer
                await self._send(topic, [bundle])
            return
        level = self._level(topic)
        at = 0
        for bundle in together:
            end = at + len(bundle.letters)
            self._answer(bundle, stored_of(bundle.letters, placed[at:end], level))
            at = end

    async def _try(self, topic: str, letters: list[Letter], sender: Sender) -> list[Placed]:
        deadline = self._loop.time() + self._patience_s
        pause = PAUSE_S_FIRST
        while True:
            try:
                await self._ensure_topic(topic)
                return await self._carrier.send(topic, letters, sender)
            except UnknownTopic as error:
                self._forget_topic(topic)
                reason: PenstockError = error
            except (DiskFull, Unconfirmed):
                raise
            except Unavailable as error:
                reason = error
            if self._loop.time() + pause > deadline:
                raise Unconfirmed(
                    f"topic {topic!r}: the broker did not confirm in {self._patience_s:g} s, so "
                    f"these messages may or may not be stored: {reason}"
                ) from reason
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_S_MAX)

    def _level(self, topic: str) -> Durability:
        if self._level_of is not None:
            return self._level_of(topic)
        return self._carrier.capabilities.durability

    def _answer(self, bundle: Bundle, answer: Any) -> None:
        self._pending_bytes -= bundle.size
        if self._waiting and self.has_room():
            waiting, self._waiting = self._waiting, []
            for told in waiting:
                self._loop.call_soon(told, None)
        bundle.answer(answer)


def _take(lane: "deque[Bundle]") -> list[Bundle]:
    """The first batches of a lane that one call may carry."""
    together = [lane.popleft()]
    count = len(together[0].letters)
    while lane and lane[0].sender == together[0].sender:
        count += len(lane[0].letters)
        if count > TOGETHER_MAX:
            break
        together.append(lane.popleft())
    return together


def stored_of(letters: list[Letter], placed: list[Placed], level: Durability) -> Stored:
    """What the client is told about a batch."""
    if len(placed) == 1:
        (place,) = placed
        known = place.is_duplicate and letters[0].is_given
        home = (place.partition,) if place.partition else None
        mark = (place.offset, place.position)
        return Stored(None, level, known, () if known else None, None, (mark,), home)
    # A made id comes twice only by a retry of this very publish, which is no second message.
    fresh = tuple(
        at
        for at, (letter, place) in enumerate(zip(letters, placed, strict=True))
        if not (place.is_duplicate and letter.is_given)
    )
    marks = tuple((place.offset, place.position) for place in placed)
    kept = None if len(fresh) == len(placed) else fresh
    homes = tuple(place.partition for place in placed) if any(p.partition for p in placed) else None
    return Stored(None, level, not fresh, kept, None, marks, homes)
