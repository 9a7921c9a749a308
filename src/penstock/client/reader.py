"""Readers: ranges of offsets planned, read as often as needed, and committed. No leases.

    reader = await client.reader("orders", "analytics", owner=run_id)
    for partition, start, end in await reader.plan(max_messages=100_000):
        async for batch in reader.batches(partition, start, end):
            store(batch.bodies)
        await reader.commit({partition: end})

A planned range is held until it is committed, whatever the limits of the topic say. After a
restart `planned()` gives what was planned and not committed; reading it gives the same messages.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

from penstock.batch.frame import Frame, Slice
from penstock.client.administration import Shown
from penstock.client.received import Hold, ReceivedMessage, Sheet
from penstock.drivers.port import Driver
from penstock.vocabulary import names
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import InvalidArgument, SubscriptionConflict, Unsupported
from penstock.vocabulary.limits import READ_BYTES_DEFAULT
from penstock.vocabulary.message import Kind
from penstock.vocabulary.places import check_place
from penstock.vocabulary.reading import PlannedRange, ReaderState

MESSAGES_DEFAULT: Final = 100_000
"""Messages planned when no limit is given."""


class Readers:
    """The part of a Client that opens readers."""

    def _opened(self) -> Driver:
        raise NotImplementedError

    async def reader(self, topic: str, name: str, *, owner: str, start: Any = None) -> "Reader":
        """Opens a named reader, which is created when missing, and fences owners before this one.

        `owner` is a token that all processes of one run share; a new run has a new one. `start` is
        for a new reader: 'earliest' (default), 'latest', Unix seconds or a position such as '0:17'.
        Raises ReaderFenced, SubscriptionConflict, Unsupported.
        """
        names.check_topic(topic, reserved=True)
        names.check_subscription(name)
        driver = self._opened()
        if start is not None:
            check_place("start", start, has_own_positions=driver.capabilities.has_own_positions)
        if not driver.capabilities.has_readers:
            raise Unsupported(f"readers are not available on {driver.capabilities.scheme}: URLs")
        await driver.ask(q.OpenReader(topic, name, owner, start))
        return Reader(self._opened, topic, name, owner)


class Reader:
    """A named reader in the hands of one owner. `client.reader` opens one."""

    def __init__(self, opened: Any, topic: str, name: str, owner: str) -> None:
        self._opened = opened
        self.topic = topic
        self.name = name
        self.owner = owner

    async def plan(
        self, max_messages: int | None = MESSAGES_DEFAULT, max_bytes: int | None = None, *,
        after: Mapping[int, int] | None = None,
    ) -> list[PlannedRange]:  # fmt: skip
        """What to read next: (partition, start, end) of each partition that has something new.

        It goes on where the last plan ended, or after the offsets given; the limits count over
        all partitions, None = all there is. It is held when this returns: at least one message,
        when there is any. Raises ReaderFenced, PositionNotHeld.
        """
        given = None if after is None else _offsets("after", after)
        question = q.PlanRanges(self.topic, self.name, self.owner, max_messages, max_bytes, given)
        found: list[PlannedRange] = await self._ask(question)
        return found

    async def planned(self) -> list[PlannedRange]:
        """What is planned and not committed: after a restart, what to read again."""
        return (await self._state()).ranges()

    async def progress(self) -> dict[int, int]:
        """How far each partition is committed."""
        return dict(enumerate((await self._state()).progress))

    async def read(self, partition: int, start: int, end: int) -> AsyncIterator[ReceivedMessage]:
        """Each message of the range, delayed and expired ones too; the same as often as asked.

        Raises ReaderFenced, PositionNotHeld when the range is not held by this reader.
        """
        async for batch in self.batches(partition, start, end):
            for message in batch:
                yield message

    async def batches(
        self, partition: int, start: int, end: int, *, max_bytes: int = READ_BYTES_DEFAULT
    ) -> "AsyncIterator[ReadBatch]":
        """The same in batches of about so many bytes, without an object for each message."""
        _check_number("max_bytes", max_bytes, 1)
        frames, at = await self._ask(self._question(partition, start, end, max_bytes))
        while at < end:
            # The next ones are under way while these are worked on.
            ahead = asyncio.ensure_future(self._ask(self._question(partition, at, end, max_bytes)))
            ahead.add_done_callback(_seen)
            try:
                if frames:
                    yield ReadBatch(self.topic, partition, frames)
                frames, at = await ahead
            finally:
                ahead.cancel()
        if frames:
            yield ReadBatch(self.topic, partition, frames)

    async def commit(self, ends: Mapping[int, int]) -> None:
        """Finishes everything below these ends (partition → offset); durable when it returns.

        Raises ReaderFenced, NotPlanned for an end behind the progress or beyond the plan.
        """
        given = _offsets("ends", ends)
        await self._ask(q.CommitReader(self.topic, self.name, self.owner, given))

    async def release(self, *, force: bool = False) -> None:
        """Removes the reader; what only it held is released.

        With a planned range that is not committed it needs `force=True`, which gives that up.
        Raises ReaderFenced, SubscriptionInUse.
        """
        await self._ask(q.ReleaseReader(self.topic, self.name, self.owner, bool(force)))

    def __repr__(self) -> str:
        return f"<Reader {self.name} of {self.topic}>"

    async def _state(self) -> ReaderState:
        found: ReaderState = await self._ask(q.DescribeReader(self.topic, self.name))
        return found

    def _question(self, partition: int, start: int, end: int, max_bytes: int) -> q.ReadRange:
        for name, value in (("partition", partition), ("start", start), ("end", end)):
            _check_number(name, value, 0)
        return q.ReadRange(self.topic, self.name, self.owner, partition, start, end, max_bytes)

    async def _ask(self, question: q.Request) -> Any:
        return await self._opened().ask(question)


def _seen(asked: "asyncio.Future[Any]") -> None:
    """Nobody may want the answer any more, nor hear why there is none."""
    if not asked.cancelled():
        asked.exception()


class ReadBatch:
    """Messages of one partition as they are stored, in order."""

    def __init__(self, topic: str, partition: int, frames: list[Frame]) -> None:
        self.topic = topic
        self.partition = partition
        self.frames = frames

    @property
    def bodies(self) -> list[bytes | None]:
        """Every body, without making a message for each."""
        parts = [sheet.bodies() for sheet in self._sheets()]
        return parts[0] if len(parts) == 1 else [body for part in parts for body in part]

    @property
    def offsets(self) -> list[int]:
        """Every offset."""
        return [offset for frame in self.frames for offset in frame.offsets]

    def __len__(self) -> int:
        return sum(len(frame.offsets) for frame in self.frames)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        shown = Shown(self.topic)
        for frame in self.frames:
            yield from shown.messages(self.partition, frame)

    def __repr__(self) -> str:
        return f"<ReadBatch of {len(self)} messages of {self.topic}>"

    def _sheets(self) -> Iterator[Sheet]:
        shown = Shown(self.topic)
        for frame in self.frames:
            start, end = frame.offsets[0], frame.offsets[-1] + 1
            yield Sheet(Hold(shown, Slice(0, self.partition, start, end, 0, [frame])), frame)


def refuse_reader(kind: Kind) -> None:
    """Raises SubscriptionConflict: consumers cannot join a reader."""
    if kind is Kind.READER:
        raise SubscriptionConflict(
            "a reader has no consumers: open it with client.reader(topic, name, owner=…)"
        )


def _offsets(name: str, given: Any) -> dict[int, int]:
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"{name} must give offsets by partition, as {{0: 17}}, not {given!r}")
    for partition, offset in given.items():
        _check_number(f"a partition in {name}", partition, 0)
        _check_number(f"an offset in {name}", offset, 0)
    return dict(given)


def _check_number(name: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InvalidArgument(f"{name} must be a whole number from {low} on, not {value!r}")
