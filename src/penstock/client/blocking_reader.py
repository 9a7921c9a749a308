"""A reader whose calls wait, for scripts and for the workers of a cluster."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any

from penstock.client.reader import MESSAGES_DEFAULT, ReadBatch, Reader
from penstock.client.received import ReceivedMessage
from penstock.vocabulary.limits import READ_BYTES_DEFAULT
from penstock.vocabulary.reading import PlannedRange

Call = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine on the client's loop and waits for it."""


class BlockingReader:
    """The same names as Reader without `await`. `BlockingClient.reader` opens one."""

    def __init__(self, reader: Reader, call: Call) -> None:
        self._reader = reader
        self._call = call

    @property
    def topic(self) -> str:
        """The topic."""
        return self._reader.topic

    @property
    def name(self) -> str:
        """The name of the reader."""
        return self._reader.name

    @property
    def owner(self) -> str:
        """The token of this run."""
        return self._reader.owner

    def plan(
        self, max_messages: int | None = MESSAGES_DEFAULT, max_bytes: int | None = None, *,
        after: Mapping[int, int] | None = None,
    ) -> list[PlannedRange]:  # fmt: skip
        """What to read next; see Reader.plan."""
        found: list[PlannedRange] = self._call(
            self._reader.plan(max_messages, max_bytes, after=after)
        )
        return found

    def planned(self) -> list[PlannedRange]:
        """What is planned and not committed."""
        found: list[PlannedRange] = self._call(self._reader.planned())
        return found

    def progress(self) -> dict[int, int]:
        """How far each partition is committed."""
        found: dict[int, int] = self._call(self._reader.progress())
        return found

    def read(self, partition: int, start: int, end: int) -> Iterator[ReceivedMessage]:
        """Each message of the range; see Reader.read."""
        for batch in self.batches(partition, start, end):
            yield from batch

    def batches(
        self, partition: int, start: int, end: int, *, max_bytes: int = READ_BYTES_DEFAULT
    ) -> Iterator[ReadBatch]:
        """The same in batches of about so many bytes."""
        batches = self._reader.batches(partition, start, end, max_bytes=max_bytes)
        while (batch := self._call(_next(batches))) is not None:
            yield batch

    def commit(self, ends: Mapping[int, int]) -> None:
        """Finishes everything below these ends; see Reader.commit."""
        self._call(self._reader.commit(ends))

    def release(self, *, force: bool = False) -> None:
        """Removes the reader; see Reader.release."""
        self._call(self._reader.release(force=force))


async def _next(batches: AsyncIterator[ReadBatch]) -> ReadBatch | None:
    return await anext(batches, None)
