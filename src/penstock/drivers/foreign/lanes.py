"""Publishing to a foreign broker: a lane for each topic, so that order holds and retries are safe.

A lane has one send under way; what arrives meanwhile goes together next, as one call. A broker that
keeps the order of several sends itself has them all under way. A send begins with a **post** where
the carrier has posts: a plain call, whose outcome comes by a call back. Whatever needs more, such
as a topic that must be made or a broker that cannot be reached, is done by a task, which repeats
the same call for so long as the URL says, one at a time.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop, Task
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from penstock.drivers.foreign.carrier import (
    Carrier,
    LevelCarrier,
    Outcome,
    Placed,
    PostCarrier,
    Sender,
)
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.foreign.plain import Homes, Marks, Places
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
IDLE_MAX: Final = 1_000
"""Lanes that are kept while nothing is in them."""


class Bundle(NamedTuple):
    """The letters of one batch, and who waits for its answer."""

    letters: Sequence[Letter]
    size: int
    sender: Sender
    answer: Answer


class Flight:
    """A post under way."""

    __slots__ = ("bundles", "outcome")

    def __init__(self, bundles: list[Bundle]) -> None:
        self.bundles = bundles
        self.outcome: Outcome | None = None

    @property
    def is_stored(self) -> bool:
        """True when the broker has it."""
        return self.outcome is not None and not isinstance(self.outcome, PenstockError)


class Lane:
    """What is on its way to one topic: posts under way, then what waits for its turn."""

    __slots__ = ("flights", "has_failed", "has_task", "queue", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.flights: deque[Flight] = deque()
        self.queue: deque[Bundle] = deque()
        self.has_failed = False
        """A post failed: nothing departs before all have landed."""
        self.has_task = False
        """A task sends what waits."""


class Lanes:
    """Everything one client has on its way to a broker. Belongs to one loop."""

    def __init__(
        self, carrier: Carrier, loop: AbstractEventLoop, patience_s: float,
        ensure_topic: Callable[[str], Awaitable[None]], forget_topic: Callable[[str], None],
        knows_topic: Callable[[str], bool],
    ) -> None:  # fmt: skip
        self._carrier = carrier
        self._loop = loop
        self._patience_s = patience_s
        self._ensure_topic = ensure_topic
        self._forget_topic = forget_topic
        self._knows_topic = knows_topic
        # Whether an object has the methods of a protocol takes longer to find out than to send.
        self._level_of: Callable[[str], Durability] | None = (
            carrier.level_of if isinstance(carrier, LevelCarrier) else None
        )
        self._post = carrier.post if isinstance(carrier, PostCarrier) else None
        self._is_ordered = carrier.traits.orders_posts
        self._lanes: dict[str, Lane] = {}
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
        if lane is None:
            lane = self._lanes[topic] = Lane(topic)
        elif (
            lane.queue or lane.has_task or lane.has_failed
            or (lane.flights and not self._is_ordered)
        ):  # fmt: skip
            lane.queue.append(bundle)
            return
        self._depart(lane, [bundle])

    async def close(self) -> None:
        """Gives up what is still on its way."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for lane in self._lanes.values():
            flights, lane.flights = lane.flights, deque()
            waiting = [bundle for flight in flights for bundle in flight.bundles]
            self._give_up([*waiting, *lane.queue], None)
            lane.queue.clear()

    def _give_up(self, bundles: list[Bundle], why: PenstockError | None) -> None:
        why = why or Unconfirmed("the client was closed before the broker answered")
        for bundle in bundles:
            self._answer(bundle, why)

    # -- by post ---------------------------------------------------------------------------------

    def _depart(self, lane: Lane, together: list[Bundle]) -> None:
        """Sends batches behind what is under way."""
        topic = lane.topic
        if self._post is not None and self._knows_topic(topic):
            flight = Flight(together)
            letters, sender = _letters(together), together[0].sender
            if self._post(topic, letters, sender, partial(self._landed, lane, flight)):
                lane.flights.append(flight)
                return
        lane.queue.extendleft(reversed(together))
        if not lane.flights:
            self._start(lane)

    def _landed(self, lane: Lane, flight: Flight, outcome: Outcome) -> None:
        """The broker's word about a post. Answers are given in the order of the posts."""
        flight.outcome = outcome
        flights = lane.flights
        if not flight.is_stored:
            lane.has_failed = True
        level = self._level(lane.topic)
        while flights and flights[0].is_stored:
            first = flights.popleft()
            self._answer_stored(first.bundles, cast("Sequence[Placed]", first.outcome), level)
        if flights:
            if lane.has_failed and all(each.outcome is not None for each in flights):
                self._mend(lane)
        elif lane.queue:
            self._go_on(lane)
        elif len(self._lanes) > IDLE_MAX:
            self._lanes.pop(lane.topic, None)

    def _go_on(self, lane: Lane) -> None:
        while lane.queue and not lane.has_task:
            self._depart(lane, _take(lane.queue))
            if not self._is_ordered:
                break

    def _mend(self, lane: Lane) -> None:
        """A post failed and nothing is under way any more: what must be sent again is.

        Nothing is sent again behind something later that is stored: its publisher is told.
        """
        flights, lane.flights = lane.flights, deque()
        lane.has_failed = False
        level = self._level(lane.topic)
        again: list[Bundle] = []
        while flights:
            flight = flights.popleft()
            outcome = flight.outcome
            assert outcome is not None
            if not isinstance(outcome, PenstockError):
                self._answer_stored(flight.bundles, outcome, level)
                continue
            is_overtaken = any(later.is_stored for later in flights)
            if _is_worth_a_try(outcome, len(flight.bundles)) and not is_overtaken:
                again += flight.bundles
            else:
                self._give_up(flight.bundles, _said(lane.topic, outcome))
        lane.queue.extendleft(reversed(again))
        if again:
            self._start(lane)
        else:
            self._go_on(lane)

    # -- by a task -------------------------------------------------------------------------------

    def _start(self, lane: Lane) -> None:
        if lane.has_task:
            return
        lane.has_task = True
        task = self._loop.create_task(self._run(lane), name=f"penstock-publish-{lane.topic}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, lane: Lane) -> None:
        together: list[Bundle] = []
        left: PenstockError | None = None
        is_done = False
        try:
            while lane.queue:
                together = _take(lane.queue)
                await self._send(lane.topic, together)
                together = []
            is_done = True
        except Exception as error:
            log.exception("topic %s: publishing failed", lane.topic)
            left = StorageError(f"topic {lane.topic!r}: publishing failed: {error!r}")
        finally:
            lane.has_task = False
            if not is_done:
                waiting = [*together, *lane.queue]
                lane.queue.clear()
                self._give_up(waiting, left)
            if len(self._lanes) > IDLE_MAX:
                self._lanes.pop(lane.topic, None)

    async def _send(self, topic: str, together: list[Bundle]) -> None:
        try:
            placed = await self._try(topic, _letters(together), together[0].sender)
        except PenstockError as error:
            if len(together) == 1 or isinstance(error, Unconfirmed | DiskFull):
                for bundle in together:
                    self._answer(bundle, error)
                return
            for bundle in together:  # one of them is wrong: the others must not suffer
                await self._send(topic, [bundle])
            return
        self._answer_stored(together, placed, self._level(topic))

    async def _try(self, topic: str, letters: Sequence[Letter], sender: Sender) -> list[Placed]:
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

    # -- answers ---------------------------------------------------------------------------------

    def _level(self, topic: str) -> Durability:
        if self._level_of is not None:
            return self._level_of(topic)
        return self._carrier.capabilities.durability

    def _answer_stored(
        self, bundles: list[Bundle], placed: Sequence[Placed], level: Durability
    ) -> None:
        if len(bundles) == 1:
            self._answer(bundles[0], stored_of(bundles[0].letters, placed, level))
            return
        at = 0
        for bundle in bundles:
            end = at + len(bundle.letters)
            self._answer(bundle, stored_of(bundle.letters, placed[at:end], level))
            at = end

    def _answer(self, bundle: Bundle, answer: Any) -> None:
        self._pending_bytes -= bundle.size
        if self._waiting and self.has_room():
            waiting, self._waiting = self._waiting, []
            for told in waiting:
                self._loop.call_soon(told, None)
        bundle.answer(answer)


def _is_worth_a_try(error: PenstockError, count: int) -> bool:
    """True when a post that failed goes better by a task: later, or batch by batch."""
    if isinstance(error, DiskFull | Unconfirmed):
        return False
    return count > 1 or isinstance(error, Unavailable | UnknownTopic)


def _said(topic: str, error: PenstockError) -> PenstockError:
    """What a publisher is told whose batch is not sent again."""
    if isinstance(error, Unavailable) and not isinstance(error, DiskFull | Unconfirmed):
        return Unconfirmed(
            f"topic {topic!r}: these messages may or may not be stored, and later ones are: {error}"
        )
    return error


def _letters(together: list[Bundle]) -> Sequence[Letter]:
    if len(together) == 1:
        return together[0].letters
    return [letter for bundle in together for letter in bundle.letters]


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


def stored_of(letters: Sequence[Letter], placed: Sequence[Placed], level: Durability) -> Stored:
    """What the client is told about a batch."""
    if isinstance(placed, Places):
        is_known, places = False, placed.places
        return Stored(None, level, is_known, None, None, Marks(places), Homes(places))
    if len(placed) == 1:
        (place,) = placed
        known = place.is_duplicate and letters[0].is_given
        home = (place.partition,) if place.partition else None
        mark = (place.offset, place.position)
        return Stored(None, level, known, () if known else None, None, (mark,), home)
    marks = tuple([(place.offset, place.position) for place in placed])
    homes = tuple([place.partition for place in placed])
    kept: tuple[int, ...] | None = None
    if any([place.is_duplicate for place in placed]):  # noqa: C419 - a list is faster
        # A made id comes twice only by a retry of this very publish, which is no second message.
        fresh = tuple(
            at
            for at, (letter, place) in enumerate(zip(letters, placed, strict=True))
            if not (place.is_duplicate and letter.is_given)
        )
        kept = None if len(fresh) == len(placed) else fresh
    is_known = kept is not None and not kept
    return Stored(None, level, is_known, kept, None, marks, homes if any(homes) else None)
