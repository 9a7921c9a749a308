"""Where copies come from: a reader where the broker has readers, else a shared subscription.

A reader goes on where it was and reads the same range again as often as asked. What comes from a
subscription is acked when it is safe in the target, and may come twice.
"""

import logging
import os
from asyncio import Event, wait_for
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import msgspec
from xxhash import xxh3_64_hexdigest

from penstock.batch.frame import gather
from penstock.client.bridging.done import Done
from penstock.client.bridging.portion import Portion, picked
from penstock.client.client import Client
from penstock.client.deliveries import Deliveries
from penstock.client.reader import Reader
from penstock.drivers.foreign.address import place_of
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import (
    AckRefused,
    SubscriptionConflict,
    UnknownSubscription,
    UnknownTopic,
)
from penstock.vocabulary.limits import MIB
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import Retry
from penstock.vocabulary.reading import PlannedRange

log = logging.getLogger("penstock.bridge")

OWNER: Final = "bridge-"
READ_BYTES: Final = 2 * MIB
PLANNED_BATCHES: Final = 10
"""Batches planned at a time; the source is told after each plan."""
PAUSE_S_FIRST: Final = 0.01
PAUSE_S_MAX: Final = 0.5
FLUSH_EVERY: Final = 20
"""Batches of a subscription between two waits for their acks."""


class Ending:
    """Whether to go on: told from outside, asked by whoever waits."""

    def __init__(self, *, follows: bool) -> None:
        self.follows = follows
        self._told = Event()

    def stop(self) -> None:
        """Ends after what is under way."""
        self._told.set()

    def was_told(self) -> bool:
        """True once `stop` was called."""
        return self._told.is_set()

    async def pause(self, seconds: float) -> None:
        """Waits, or returns at once when told to stop."""
        with suppress(TimeoutError):
            await wait_for(self._told.wait(), seconds)


class ReaderSource:
    """A named reader of the source's topic."""

    has_numbers: bool | None = True

    def __init__(self, client: Client, topic: str, name: str, batch: int) -> None:
        self._client = client
        self._topic = topic
        self._name = name
        self._batch = batch
        self._reader: Reader | None = None
        self._ends: dict[int, int] = {}

    async def open(self) -> str:
        """Takes the reader over; returns the identity of this copying, which lives as long as it.

        Raises UnknownTopic, SubscriptionConflict.
        """
        await self._client.describe_topic(self._topic)
        identity = await _identity(self._client, self._topic, self._name)
        owner = f"{OWNER}{identity}/{os.urandom(6).hex()}"
        self._reader = await self._client.reader(self._topic, self._name, owner=owner)
        return identity

    async def portions(self, done: Done, ending: Ending) -> AsyncIterator[Portion]:
        """What is to be copied, until the end or until told to stop."""
        assert self._reader is not None
        pause = PAUSE_S_FIRST
        ranges = await self._reader.planned()
        while not ending.was_told():
            if not ranges:
                ranges = await self._reader.plan(self._batch * PLANNED_BATCHES)
            for each in ranges:
                async for portion in self._read(each, done):
                    yield portion
                    if ending.was_told():
                        return
                self._ends[each.partition] = each.end
            await self._finish()
            if ranges:
                pause = PAUSE_S_FIRST
            elif not ending.follows:
                return
            else:
                await ending.pause(pause)
                pause = min(2 * pause, PAUSE_S_MAX)
            ranges = []

    async def _read(self, planned: PlannedRange, done: Done) -> AsyncIterator[Portion]:
        assert self._reader is not None
        partition, start, end = planned
        start = max(start, min(done.end_of(partition), end))
        if start == end:
            return
        async for batch in self._reader.batches(partition, start, end, max_bytes=READ_BYTES):
            numbers, columns = gather(batch.frames)
            whole = Portion(partition, columns, numbers)
            for low in range(0, len(numbers), self._batch):
                part = range(low, min(low + self._batch, len(numbers)))
                portion = whole if len(part) == len(numbers) else picked(whole, part)
                portion.start, portion.end = start, numbers[part[-1]] + 1
                start = portion.end
                yield portion

    async def safe(self, portion: Portion) -> None:
        """These are safe in the target."""
        self._ends[portion.partition] = portion.end

    async def _finish(self) -> None:
        assert self._reader is not None
        ends, self._ends = self._ends, {}
        if ends:
            await self._reader.commit(ends)

    async def close(self) -> None:
        """Notes how far it got; the reader stays, for the next time."""
        if self._reader is not None:
            await self._finish()


class SubscriptionSource:
    """A shared subscription, of a broker that has no readers."""

    def __init__(self, client: Client, topic: str, name: str, batch: int, idle_s: float) -> None:
        self.has_numbers: bool | None = None
        """Known once the first messages came."""
        self._client = client
        self._topic = topic
        self._name = name
        self._batch = batch
        self._idle_s = idle_s
        self._deliveries: Deliveries | None = None
        self._acked = 0

    async def open(self) -> str:
        """Joins the subscription; returns the identity of this copying."""
        # A message that cannot be copied yet is never a dead letter, which MQTT has no place for.
        self._deliveries = await self._client.subscribe(
            self._topic, self._name, kind=Kind.SHARED, credit=2 * self._batch,
            retry=Retry(max_attempts=None),
        )  # fmt: skip
        url = place_of(self._client.url)
        return xxh3_64_hexdigest(f"{url} {self._topic} {self._name}".encode())

    async def portions(self, done: Done, ending: Ending) -> AsyncIterator[Portion]:
        """What arrives; without `follows`, until nothing came for a while."""
        deliveries = self._deliveries
        assert deliveries is not None
        clock = deliveries._loop.time  # noqa: SLF001 - a part of the client
        heard = clock()
        while not ending.was_told():
            if not await deliveries.stocked(clock() + PAUSE_S_MAX):
                if not ending.follows and clock() - heard >= self._idle_s:
                    return
                continue
            heard = clock()
            batch = deliveries.take(self._batch)
            for portion in self._portions(batch, done):
                yield portion
            batch.ack()
            self._acked += 1
            if self._acked % FLUSH_EVERY == 0:
                await self._flush()

    def _portions(self, batch: Any, done: Done) -> list[Portion]:
        found: list[Portion] = []
        for sheet, low, high in batch._pieces():  # noqa: SLF001 - as above
            frame = msgspec.structs.replace(
                sheet.frame, offsets=sheet.frame.offsets[low:high],
                indexes=sheet.frame.indexes[low:high],
            )  # fmt: skip
            offsets, columns = gather([frame])
            if frame.marks is not None:
                offsets = [frame.marks[index][0] for index in frame.indexes]
            partition = sheet.hold.partition
            portion = Portion(partition, columns, None if None in offsets else offsets)
            self.has_numbers = portion.numbers is not None
            if portion.numbers is not None:
                new = [at for at, each in enumerate(offsets) if not done.has(partition, each)]
                portion = picked(portion, new)
            if portion.count:
                found.append(portion)
        return found

    async def safe(self, portion: Portion) -> None:
        """Acked with the whole batch."""

    async def _flush(self) -> None:
        assert self._deliveries is not None
        try:
            await self._deliveries.flush()
        except AckRefused as error:
            log.warning("%s; they are copied once, as far as the target can tell", error)

    async def close(self) -> None:
        """Waits for the acks; the subscription stays, for the next time."""
        if self._deliveries is not None:
            await self._flush()
            await self._deliveries.close()


Source = ReaderSource | SubscriptionSource


async def _identity(client: Client, topic: str, name: str) -> str:
    """Of the reader that is there, or a new one. Raises SubscriptionConflict."""
    try:
        state = await client._opened().ask(q.DescribeReader(topic, name))  # noqa: SLF001
    except (UnknownSubscription, UnknownTopic):
        return os.urandom(8).hex()
    owner: str = state.owner
    if not owner.startswith(OWNER) or "/" not in owner:
        raise SubscriptionConflict(
            f"reader {name!r} of topic {topic!r} belongs to another program ({owner!r:.60}): "
            "choose another name with --subscription"
        )
    return owner.removeprefix(OWNER).partition("/")[0]
