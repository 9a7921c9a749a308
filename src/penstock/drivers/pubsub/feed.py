"""One consumer of a Pub/Sub subscription: pulls, renews, settles, all in batches."""

import asyncio
import time
from asyncio import Event, Task, TimerHandle
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.drivers.foreign.carrier import Refused, Release, Seat
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.pubsub.holding import Hold, Lines, whole_seconds
from penstock.drivers.pubsub.records import opened, place
from penstock.drivers.pubsub.service import TRANSIENT, Pulled
from penstock.vocabulary.errors import PenstockError, Unavailable
from penstock.vocabulary.message import Kind

if TYPE_CHECKING:
    from penstock.drivers.pubsub.carrier import PubSubCarrier

DEADLINE_S_MIN: Final = 10
"""Pub/Sub has no shorter lease of its own: shorter ones are set after each pull."""
DEADLINE_S_MAX: Final = 600
PULL_S: Final = 20.0
"""How long one pull waits at Google."""
FETCH_S: Final = 1.0
POLL_S_FIRST: Final = 0.01
POLL_S_MAX: Final = 0.1
"""How often an emulator is asked: it does not answer a waiting pull when a message comes."""
LAST_PULL_S: Final = 0.5
"""How long leaving waits for what a pull that waits at the server may still bring."""
LAST_ANSWER_S: Final = 5.0
"""How long it waits for one that is answered at once: what it brings would rest for a lease."""
EXACT_S: Final = 30.0
"""A shorter delay of a nack is kept by the second it needs; a longer one by Pub/Sub alone."""
ON_ITS_WAY_S: Final = 0.5
"""How old a delivery may be when it arrives."""
LATE: Final = "its lease ended, so that it may have been handed out again"


class PubSubFeed:
    """One consumer of a subscription."""

    def __init__(
        self, carrier: "PubSubCarrier", seat: Seat, path: str, *,
        is_exact: bool, counts: bool,
    ) -> None:  # fmt: skip
        self._carrier = carrier
        self._service = carrier.service
        self._seat = seat
        self._path = path
        self._is_exact = is_exact
        """The subscription has exactly-once delivery: a late ack is refused."""
        self._counts = counts
        """Pub/Sub counts attempts for this subscription."""
        self._lease_s = whole_seconds(seat.policy.lease_s)
        self._lines = Lines() if seat.policy.kind is Kind.KEY_SHARED else None
        self._has_ready = Event()
        self._tried: Counter[str] = Counter()
        """Deliveries of each message, where Pub/Sub does not count."""
        self._pulling: Task[list[Pulled]] | None = None
        self._resting: list[tuple[float, int, Hold]] = []
        """Nacked ones that go back when they are due: (due, number, delivery)."""
        self._numbers = count()
        self._timer: TimerHandle | None = None
        self._tasks: set[Task[Any]] = set()

    @property
    def seat(self) -> Seat:
        """What the consumer asked for."""
        return self._seat

    # -- fetching --------------------------------------------------------------------------------

    async def fetch(self, count: int, _bytes_max: int) -> list[Letter]:
        if self._lines is not None:
            ready = await self._next_in_line(self._lines)
            if ready:
                return ready
        ends = time.monotonic() + FETCH_S
        pause = POLL_S_FIRST
        while True:
            pulled = await self._pull(count, ends)
            if pulled:
                letters = await self._leased(pulled)
                return letters if self._lines is None else self._lines.admit(letters)
            if time.monotonic() >= ends or self._has_ready.is_set():
                return []
            if self._service.is_emulator:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._has_ready.wait()
                pause = min(2 * pause, POLL_S_MAX)

    async def _pull(self, count: int, ends: float) -> list[Pulled]:
        """What one pull brings; it goes on when nobody waits for it, so nothing of it is lost."""
        if self._pulling is None:
            is_waiting = self._carrier.has_waiting_pulls
            self._pulling = asyncio.get_running_loop().create_task(
                self._service.pull(self._path, count, PULL_S, is_waiting=is_waiting)
            )
        waiting: set[Task[Any]] = {self._pulling}
        if self._lines is not None:
            waiting.add(asyncio.get_running_loop().create_task(self._has_ready.wait()))
        try:
            await asyncio.wait(
                waiting, timeout=max(0.0, ends - time.monotonic()),
                return_when=asyncio.FIRST_COMPLETED,
            )  # fmt: skip
        finally:
            for task in waiting - {self._pulling}:
                task.cancel()
        if not self._pulling.done():
            return []
        task, self._pulling = self._pulling, None
        return task.result()

    async def _leased(self, pulled: Sequence[Pulled]) -> list[Letter]:
        """Letters, each with its lease from now on."""
        until = time.monotonic() - ON_ITS_WAY_S + max(self._lease_s, DEADLINE_S_MIN)
        letters = [self._letter(each, until) for each in pulled]
        letters.sort(key=place)  # they come in no order
        if self._lease_s < DEADLINE_S_MIN:
            with suppress(Unavailable):  # the longer lease is a lease too
                await self._set_deadlines(letters, self._lease_s)
        return letters

    def _letter(self, pulled: Pulled, until: float) -> Letter:
        letter = opened(pulled.message_id, pulled.data, pulled.attributes, pulled.published_ns)
        letter.token = Hold(pulled.ack_id, pulled.ordering_key, until)
        letter.attempt = pulled.attempt
        if not self._counts:
            self._tried[pulled.message_id] += 1
            letter.attempt = self._tried[pulled.message_id]
        spared = self._carrier.spared.get((self._path, pulled.message_id), 0)
        letter.attempt = max(1, letter.attempt - spared)
        return letter

    async def _next_in_line(self, lines: Lines) -> list[Letter]:
        self._has_ready.clear()
        good, late = lines.take(time.monotonic())
        if late:
            await self._give_back(late)
        if good:
            await self.renew(good)
        return good

    # -- settling --------------------------------------------------------------------------------

    async def settle(self, letters: Sequence[Letter]) -> list[Refused]:
        refused = await self._finish(letters)
        if self._lines is not None and self._lines.finished(letters):
            self._has_ready.set()
        return refused

    async def _finish(self, letters: Sequence[Letter]) -> list[Refused]:
        """Acks; raises Unavailable when some must be told again."""
        now = time.monotonic()
        late: list[Letter] = []
        good: list[Letter] = []
        for letter in letters:
            if self._is_exact and not letter.token.is_done and _is_late(letter.token, now):
                late.append(letter)
            elif not letter.token.is_done:
                good.append(letter)
        failed = await self._service.acknowledge(
            self._path, [each.token.ack_id for each in good]
        )  # fmt: skip
        again = 0
        for letter in good:
            why = failed.get(letter.token.ack_id, "")
            if why.startswith(TRANSIENT):
                again += 1
                continue
            letter.token.is_done = True
            self._tried.pop(letter.position, None)
            self._carrier.spared.pop((self._path, letter.position), None)
            if why:
                late.append(letter)
        if again:
            raise Unavailable(f"{self._path}: {again} acks must be repeated")
        return [Refused(letter, LATE) for letter in late]

    async def release(self, releases: Sequence[Release]) -> list[Refused]:
        now = time.monotonic()
        by_delay: dict[int, list[Letter]] = {}
        for letter, delay_s, is_unstarted in releases:
            if letter.token.is_done or (self._is_exact and _is_late(letter.token, now)):
                continue  # it is on its way already
            # The rest of its key waits as long, and comes again behind it.
            behind = [] if self._lines is None else self._lines.returned([letter])
            for each in [letter, *behind] if is_unstarted else behind:
                self._spare(each)
            seconds = 0
            if delay_s > 0:
                # The message stays ours until a little after it is due, and goes back on time; if
                # this consumer dies before, Pub/Sub gives it back.
                is_exact = delay_s <= EXACT_S
                seconds = min(whole_seconds(delay_s) + int(is_exact), DEADLINE_S_MAX)
                for each in [letter, *behind] if is_exact else ():
                    heappush(self._resting, (now + delay_s, next(self._numbers), each.token))
            by_delay.setdefault(seconds, []).extend([letter, *behind])
        for seconds, letters in by_delay.items():
            await self._set_deadlines(letters, seconds)
        self._wake_later()
        return []

    def _spare(self, letter: Letter) -> None:
        if self._counts:
            self._carrier.spare(self._path, letter.position)
        else:
            self._tried[letter.position] -= 1

    async def _give_back(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            self._spare(letter)
        if letters:
            await self._set_deadlines(letters, 0)

    async def renew(self, letters: Sequence[Letter]) -> None:
        now = time.monotonic()
        ours = [each for each in letters if not _is_late(each.token, now)]
        if ours:
            await self._set_deadlines(ours, self._lease_s)

    async def bury(self, dead_topic: str, letters: Sequence[Letter]) -> list[Refused]:
        now = time.monotonic()
        if self._is_exact:  # about what is late somebody else decides
            letters = [each for each in letters if not _is_late(each.token, now)]
        for letter in letters:
            if letter.token.copy is None:
                letter.token.copy = msgspec.structs.replace(letter, token=None)
        if letters:
            await self._carrier.store_dead(dead_topic, [each.token.copy for each in letters])
        return await self.settle(letters)

    async def _set_deadlines(self, letters: Iterable[Letter], seconds: int) -> None:
        holds = [letter.token for letter in letters if not letter.token.is_done]
        until = time.monotonic() + seconds
        if holds:
            await self._service.set_deadline(
                self._path, [hold.ack_id for hold in holds], seconds
            )  # fmt: skip
        for hold in holds:
            hold.until = until

    # -- what was nacked with a delay ------------------------------------------------------------

    def _wake_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._resting:
            loop = asyncio.get_running_loop()
            wait = max(0.0, self._resting[0][0] - time.monotonic())
            self._timer = loop.call_later(wait, self._wake)

    def _wake(self) -> None:
        now = time.monotonic()
        due: list[Hold] = []
        while self._resting and self._resting[0][0] <= now:
            due.append(heappop(self._resting)[2])
        if due:
            task = asyncio.get_running_loop().create_task(self._let_go(due))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._wake_later()

    async def _let_go(self, holds: Sequence[Hold]) -> None:
        with suppress(PenstockError):  # else Pub/Sub gives them back by itself, a second later
            await self._service.set_deadline(self._path, [each.ack_id for each in holds], 0)

    # -- the end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with suppress(PenstockError):
            await self._return_the_rest()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_PULL_S)
        await self._carrier.leave(self, self._path)

    async def _return_the_rest(self) -> None:
        """What a pull still brings, and what waits in lines, goes back at once."""
        rest = [] if self._lines is None else self._lines.clear()
        task, self._pulling = self._pulling, None
        if task is not None:
            is_waiting = self._carrier.has_waiting_pulls
            await asyncio.wait({task}, timeout=LAST_PULL_S if is_waiting else LAST_ANSWER_S)
            if task.done():
                rest += [self._letter(each, 0.0) for each in task.result()]
            else:
                task.cancel()
                with suppress(asyncio.CancelledError, PenstockError):
                    await task
        await self._give_back(rest)


def _is_late(hold: Hold, now: float) -> bool:
    return hold.until <= now
