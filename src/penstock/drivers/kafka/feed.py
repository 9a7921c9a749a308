"""One consumer of a Kafka topic: what it holds in each partition, and the commits that tell it.

Commits are made by one task, one behind the other: whatever was decided while one is under way goes
with the next. Settling waits for its commit; what was handed out is noted by a commit nobody waits
for, unless it was handed out before, or the consumer before this one died.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.drivers.foreign.carrier import Refused, Release, Seat
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.kafka.link import KafkaException, TopicPartition
from penstock.drivers.kafka.member import GIVE_UP_S, Member
from penstock.drivers.kafka.names import kafka_name
from penstock.drivers.kafka.progress import Progress, remembered
from penstock.drivers.kafka.records import dead_record_of, is_removal, opened
from penstock.vocabulary.errors import Unavailable

if TYPE_CHECKING:
    from penstock.drivers.kafka.carrier import KafkaCarrier

log = logging.getLogger("penstock.drivers")

FETCH_S: Final = 1.0
COMMIT_S: Final = 10.0
MOVED: Final = "its partition went to another consumer, where it is handed out again"

Revoking = Callable[[set[int], Callable[[], None]], None]


class KafkaFeed:
    """One consumer. Without a subscription it keeps nothing: it begins somewhere and ends."""

    def __init__(self, carrier: "KafkaCarrier", seat: Seat) -> None:
        self._carrier = carrier
        self._link = carrier.link
        self._seat = seat
        self._is_durable = seat.subscription is not None
        self._is_once = seat.policy.qos == 0
        self._policy: dict[str, Any] = msgspec.to_builtins(seat.policy)
        self._topic = kafka_name(seat.topic)
        self.parts: dict[int, Progress] = {}
        """The partitions this consumer has. Changed by its thread only while the loop waits."""
        self._guard = threading.Lock()
        self._back: list[tuple[float, int, Letter]] = []
        """Heap of what was given back: (due, number, letter)."""
        self._numbers = count()
        self._arrival = asyncio.Event()
        self._is_dirty = asyncio.Event()
        self._asked = 0
        """Commits asked for; waiters wait for a number."""
        self._committed = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.commit_lock = asyncio.Lock()
        self._committing: asyncio.Task[None] | None = None
        self._revoking: Revoking | None = None
        group = seat.subscription or f"group.{seat.topic}"
        self.member = Member(
            self._link, self._topic, group, assigned=self._assigned, revoked=self._revoked,
            notify=self._notify, is_busy=self._is_busy,
        )  # fmt: skip

    def listen(self, revoking: Revoking) -> None:
        """Whom to ask to let go of partitions that move to another consumer."""
        self._revoking = revoking

    async def open(self) -> None:
        """Joins the group, or begins where an ephemeral consumer shall begin."""
        if self._is_durable:
            self.member.join_group()
            self._committing = self._link.loop.create_task(self._commit_all())
            return
        begins = await self._carrier.offsets_at(self._seat.topic, self._seat.start)
        self.parts = {part: Progress(remembered(at, None)) for part, at in begins.items()}
        self.member.read_from(begins)

    # -- in the thread of the member ---------------------------------------------------------------

    def _notify(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._link.loop.call_soon_threadsafe(self._arrival.set)

    def _is_busy(self) -> bool:
        return self._is_durable and any(each.outstanding for each in list(self.parts.values()))

    def _assigned(self, parts: list[int]) -> dict[int, int]:
        """Where each partition goes on."""
        asked = [TopicPartition(self._topic, part) for part in parts]
        told = self.member.consumer.committed(asked, timeout=COMMIT_S)
        begins: dict[int, int] = {}
        for place in told:
            if place.error is not None:
                raise KafkaException(place.error)
            # A partition nobody ever committed came later: all of it is new.
            progress = Progress(remembered(max(place.offset, 0), place.metadata))
            progress.policy = self._policy
            begins[place.partition] = progress.floor
            with self._guard:
                self.parts[place.partition] = progress
        return begins

    def _revoked(self, parts: list[int], is_lost: bool) -> None:  # noqa: FBT001 - a callback
        """Lets the client finish what it decided, then tells the group how far it is."""
        if not is_lost and self._revoking is not None:
            done = threading.Event()
            with suppress(RuntimeError):
                self._link.loop.call_soon_threadsafe(self._revoking, set(parts), done.set)
                done.wait(GIVE_UP_S)
        with self._guard:
            gone = {part: self.parts.pop(part) for part in parts if part in self.parts}
        if is_lost:
            for progress in gone.values():
                progress.is_lost = True
            return
        try:
            places = _places(self._topic, gone, is_clean=True)
            if places and self._is_durable:
                self.member.consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            log.warning("topic %s: what was finished last comes again: %s", self._topic, error)
            for progress in gone.values():
                progress.is_lost = True

    # -- fetching ----------------------------------------------------------------------------------

    async def fetch(self, count: int, bytes_max: int) -> list[Letter]:
        loop = self._link.loop
        ends = loop.time() + FETCH_S
        while True:
            with self._guard:
                letters = self._due(count)
                if len(letters) < count and not any(p.is_crowded() for p in self.parts.values()):
                    self._take(letters, count, bytes_max)
            self.member.want()
            if letters:
                await self._note(letters)
                return letters
            if self.member.error is not None:
                raise self.member.error
            left = ends - loop.time()
            if self._back:
                left = min(left, self._back[0][0] - loop.time())
            if left <= 0:
                if loop.time() >= ends:
                    return []
                continue
            self._arrival.clear()
            if self.member.stock:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._arrival.wait()

    def _due(self, count: int) -> list[Letter]:
        """What was given back and is due."""
        found: list[Letter] = []
        now = self._link.loop.time()
        while self._back and self._back[0][0] <= now and len(found) < count:
            _, _, letter = heappop(self._back)
            progress = self.parts.get(letter.partition)
            assert letter.offset is not None
            if progress is letter.token and progress.is_out(letter.offset):
                attempt = progress.hand_again(letter.offset)
                found.append(msgspec.structs.replace(letter, attempt=attempt))
        return found

    def _take(self, found: list[Letter], count: int, bytes_max: int) -> None:
        stock = self.member.stock
        size = 0
        while stock and len(found) < count and size < bytes_max:
            message = stock.popleft()
            part, offset = message.partition(), message.offset()
            progress = self.parts.get(part)
            if progress is None:  # the partition moved
                continue
            attempt = progress.take(offset)
            if not attempt:
                continue
            value, headers = message.value(), message.headers()
            if value is None and is_removal(value, headers):
                progress.finish(offset)
                continue
            letter = opened(message.key(), value, headers, part, offset, message.timestamp()[1])
            letter.token, letter.attempt = progress, attempt
            size += letter.size
            found.append(letter)

    async def _note(self, letters: list[Letter]) -> None:
        """Has the group know what is handed out, before it is where that matters."""
        if not self._is_durable:
            return
        parts = {letter.partition: letter.token for letter in letters}
        is_risky = any(letter.attempt > 1 for letter in letters)
        if not (self._is_once or is_risky or any(each.is_doubtful for each in parts.values())):
            self._ask_commit()
            return
        if self._is_once:
            self._finished(letters)
        try:
            await self._noted()
        except BaseException:
            if not self._is_once:  # nobody had them
                now = self._link.loop.time()
                for letter in letters:
                    letter.token.spare(letter.offset)
                    heappush(self._back, (now, next(self._numbers), letter))
            raise
        for progress in parts.values():
            progress.is_doubtful = False

    # -- settling ----------------------------------------------------------------------------------

    async def settle(self, letters: Sequence[Letter]) -> list[Refused]:
        refused = self._finished(letters)
        await self._noted()
        told = {id(each.letter) for each in refused}
        refused += [
            Refused(letter, MOVED)
            for letter in letters
            if letter.token.is_lost and id(letter) not in told
        ]
        return refused

    def _finished(self, letters: Sequence[Letter]) -> list[Refused]:
        refused: list[Refused] = []
        with self._guard:
            for letter in letters:
                progress: Progress = letter.token
                assert letter.offset is not None
                if self.parts.get(letter.partition) is progress:
                    progress.finish(letter.offset)
                elif progress.is_lost or progress.is_out(letter.offset):
                    refused.append(Refused(letter, MOVED))
        return refused

    def moved(self, letters: Sequence[Letter]) -> list[int]:
        """Indexes of the letters whose partitions this consumer has no more."""
        return [
            at
            for at, letter in enumerate(letters)
            if self.parts.get(letter.partition) is not letter.token
        ]

    async def offsets_without(self, letters: Sequence[Letter]) -> tuple[Any, list[Any]]:
        """The group, and what to commit when these letters are finished by a unit."""
        group = await self.member.call(self.member.consumer.consumer_group_metadata)
        done: dict[int, set[int]] = {}
        for letter in letters:
            assert letter.offset is not None
            done.setdefault(letter.partition, set()).add(letter.offset)
        places: list[Any] = []
        with self._guard:
            for part, offsets in done.items():
                at, metadata = self.parts[part].commit(without=offsets)
                places.append(TopicPartition(self._topic, part, at, metadata=metadata))
        return group, places

    def note(self, letters: Sequence[Letter]) -> None:
        """These letters are finished, whoever commits that."""
        self._finished(letters)

    async def release(self, releases: Sequence[Release]) -> list[Refused]:
        now = self._link.loop.time()
        with self._guard:
            for letter, delay_s, is_unstarted in releases:
                progress: Progress = letter.token
                if self.parts.get(letter.partition) is not progress:
                    continue  # whoever has the partition delivers it
                assert letter.offset is not None
                if is_unstarted:
                    progress.spare(letter.offset)
                heappush(self._back, (now + delay_s, next(self._numbers), letter))
        self._arrival.set()
        await self._noted()
        return []

    async def renew(self, letters: Sequence[Letter]) -> None:
        """There are no leases: a consumer that is polled keeps its partitions."""

    async def bury(self, dead_topic: str, letters: Sequence[Letter]) -> list[Refused]:
        await self._carrier.ensure_dead(dead_topic)
        records = [dead_record_of(letter) for letter in letters]
        try:
            await self._link.produce(kafka_name(dead_topic), records)
        except Unavailable as error:
            # Twice under one key is once: the topic is compacted, and looking takes the last.
            raise Unavailable(str(error)) from error
        return await self.settle(letters)

    async def close(self) -> None:
        if self._committing is not None:
            self._committing.cancel()
            with suppress(asyncio.CancelledError):
                await self._committing
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(Unavailable("the consumer was closed"))
        self._revoking = None
        await self._link.loop.run_in_executor(None, self.member.close)

    # -- commits -----------------------------------------------------------------------------------

    def _ask_commit(self) -> int:
        self._asked += 1
        self._is_dirty.set()
        return self._asked

    async def _noted(self) -> None:
        """Returns when everything decided so far is committed. Raises Unavailable."""
        if not self._is_durable:
            return
        number = self._ask_commit()
        waiter: asyncio.Future[None] = self._link.loop.create_future()
        self._waiters.append((number, waiter))
        await waiter

    async def _commit_all(self) -> None:
        while True:
            await self._is_dirty.wait()
            self._is_dirty.clear()
            async with self.commit_lock:
                asked = self._asked
                with self._guard:
                    places = _places(self._topic, self.parts)
                error: Exception | None = None
                if places:
                    error = await self._try(places)
                if error is None:
                    self._committed = asked
                self._answer(asked, error)

    async def _try(self, places: list[Any]) -> Exception | None:
        try:
            await self.member.commit(places)
        except KafkaException as error:
            # Also in the midst of a rebalance: when partitions are lost the member is told so.
            return Unavailable(f"{self._link.where}: the commit failed: {error}")
        except Unavailable as error:
            return error
        return None

    def _answer(self, upto: int, error: Exception | None) -> None:
        while self._waiters and self._waiters[0][0] <= upto:
            _, waiter = self._waiters.popleft()
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)


def _places(topic: str, parts: dict[int, Progress], *, is_clean: bool = False) -> list[Any]:
    found: list[Any] = []
    for part, progress in parts.items():
        offset, metadata = progress.commit(is_clean=is_clean)
        found.append(TopicPartition(topic, part, offset, metadata=metadata))
    return found
