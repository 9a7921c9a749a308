"""Readers on notes: compare and set, fences, limits. The contract suites read real brokers."""

import asyncio
from typing import Any

import pytest

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.foreign.readers import TRIES_MAX, Readers
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import (
    InvalidArgument,
    PositionNotHeld,
    Unavailable,
    UnknownSubscription,
)


class Shelf:
    """A topic of ten letters with gaps between their numbers, and the notes of its readers."""

    def __init__(self) -> None:
        self.numbers = [number * 10 for number in range(1, 11)]
        self.notes: dict[str, tuple[bytes, int]] = {}
        self.meddling = 0
        """So many writes meet somebody who was quicker."""

    async def read_note(self, topic: str, name: str) -> tuple[bytes | None, Any]:
        return self.notes.get(name, (None, 0))

    async def write_note(
        self, topic: str, name: str, data: bytes | None, revision: Any, progress: int
    ) -> bool:
        if self.meddling:
            self.meddling -= 1
            return False
        if self.notes.get(name, (None, 0))[1] != revision:
            return False
        if data is None:
            del self.notes[name]
        else:
            self.notes[name] = (data, revision + 1)
        return True

    async def number_of(self, topic: str, start: Any) -> int:
        return self.numbers[0] if start == "earliest" else self.numbers[-1] + 1

    async def end_of(
        self, topic: str, start: int, max_messages: int | None, max_bytes: int | None
    ) -> int:
        left = [number for number in self.numbers if number >= start][:max_messages]
        return left[-1] + 1 if left else start

    async def read_numbers(self, topic: str, start: int, end: int, bytes_max: int) -> list[Letter]:
        found = [number for number in self.numbers if start <= number < end][:3]
        return [Letter(body=b"%d" % n, id=str(n), position=f"p{n}", sequence=n) for n in found]


async def _ensure(topic: str) -> None: ...


def readers(shelf: Shelf) -> Readers:
    return Readers(shelf, _ensure)


def plan(max_messages: int | None = None, after: dict[int, int] | None = None) -> q.PlanRanges:
    return q.PlanRanges("orders", "tables", "run-1", max_messages, None, after)


OPEN = q.OpenReader("orders", "tables", "run-1", None)


def test_ranges_are_planned_read_in_pieces_and_planned_again_after_a_place() -> None:
    async def scenario() -> None:
        found = readers(Shelf())
        await found.answer(OPEN)
        [planned] = await found.answer(plan(5))
        assert tuple(planned) == (0, 10, 51)
        frames, at = await found.answer(
            q.ReadRange("orders", "tables", "run-1", 0, 10, 51, 1 << 20)
        )
        assert (list(frames[0].offsets), at) == ([10, 20, 30], 31)
        frames, at = await found.answer(
            q.ReadRange("orders", "tables", "run-1", 0, 51, 51, 1 << 20)
        )
        assert (frames, at) == ([], 51)
        [again] = await found.answer(plan(2, {0: 21}))
        assert tuple(again) == (0, 21, 41)
        with pytest.raises(PositionNotHeld):
            await found.answer(plan(2, {0: 999}))

    asyncio.run(scenario())


def test_a_note_somebody_else_changed_is_read_again() -> None:
    async def scenario() -> None:
        shelf = Shelf()
        found = readers(shelf)
        shelf.meddling = 3
        await found.answer(OPEN)
        shelf.meddling = 3
        assert len(await found.answer(plan())) == 1
        shelf.meddling = TRIES_MAX
        with pytest.raises(Unavailable, match="all the time"):
            await found.answer(q.CommitReader("orders", "tables", "run-1", {0: 20}))
        shelf.meddling = TRIES_MAX
        with pytest.raises(Unavailable, match="all the time"):
            await found.answer(q.OpenReader("orders", "tables", "run-2", None))

    asyncio.run(scenario())


def test_wrong_arguments_are_named() -> None:
    async def scenario() -> None:
        found = readers(Shelf())
        with pytest.raises(UnknownSubscription, match="no reader 'tables'"):
            await found.answer(q.DescribeReader("orders", "tables"))
        for owner in ("", "a\nb", 5, "x" * 1000):
            with pytest.raises(InvalidArgument, match="owner"):
                await found.answer(q.OpenReader("orders", "tables", owner, None))  # type: ignore[arg-type]
        await found.answer(OPEN)
        with pytest.raises(InvalidArgument, match="max_messages"):
            await found.answer(plan(0))

    asyncio.run(scenario())
