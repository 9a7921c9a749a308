"""Readers on a foreign broker: what is kept of one is a small note that its owners replace in turn.

A reader plans, reads and commits ranges of numbers, as on our own broker. The numbers are the
broker's, or made from its ids, so that they rise but have gaps. A note is written only over the
one that was read (compare and set), so that of two owners one loses and finds itself fenced.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from penstock.batch import encode_columns
from penstock.batch.frame import Frame
from penstock.drivers.foreign.envelope import Letter, columns_of
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import (
    InvalidArgument,
    NotPlanned,
    PositionNotHeld,
    ReaderFenced,
    SubscriptionInUse,
    Unavailable,
    UnknownSubscription,
)
from penstock.vocabulary.limits import READER_OWNER_BYTES_MAX, READER_OWNERS_MAX
from penstock.vocabulary.message import Kind
from penstock.vocabulary.reading import PlannedRange, ReaderState

TRIES_MAX: Final = 20
"""Owners of one run that write at the same moment; one of them wins each time."""


class Note(msgspec.Struct):
    """What is kept of a reader."""

    owner: str
    """Empty: nobody has opened it yet."""
    progress: int
    planned: int
    retired: list[str] = msgspec.field(default_factory=list)


class Seen(NamedTuple):
    """A note as it was read; its revision is needed to replace it."""

    note: Note | None
    revision: Any


class ReaderCarrier(Protocol):
    """The rest of a carrier whose capabilities say `has_readers`."""

    async def read_note(self, topic: str, name: str) -> tuple[bytes | None, Any]:
        """The note of a reader, None when there is none, and its revision."""
        ...

    async def write_note(
        self, topic: str, name: str, data: bytes | None, revision: Any, progress: int
    ) -> bool:
        """Replaces a note, or removes it; False when it is not of this revision any more.

        What lies at `progress` and above is held for the reader, where the broker can.
        """
        ...

    async def number_of(self, topic: str, start: Any) -> int:
        """The number of 'earliest', 'latest', a time or a position. Raises PositionNotHeld."""
        ...

    async def end_of(
        self, topic: str, start: int, max_messages: int | None, max_bytes: int | None
    ) -> int:
        """The number after the messages to plan from `start` on: at least one, if there is any."""
        ...

    async def read_numbers(self, topic: str, start: int, end: int, bytes_max: int) -> list[Letter]:
        """The first letters of a range, each with its number as `sequence`; none = no more."""
        ...


class Readers:
    """The readers of one client."""

    def __init__(self, carrier: ReaderCarrier, ensure_topic: Callable[[str], Any]) -> None:
        self._carrier = carrier
        self._ensure_topic = ensure_topic

    async def end(self, topic: str) -> int:
        """The number that the next message of a topic will have, or one below it."""
        return await self._carrier.number_of(topic, "latest")

    async def answer(self, request: Any) -> Any:
        """Does what a request about a reader asks."""
        return await _HANDLERS[type(request)](self, request)

    async def _seen(self, topic: str, name: str) -> Seen:
        data, revision = await self._carrier.read_note(topic, name)
        return Seen(msgspec.json.decode(data, type=Note) if data else None, revision)

    async def _found(self, topic: str, name: str, owner: str | None) -> tuple[Note, Any]:
        note, revision = await self._seen(topic, name)
        if note is None:
            raise UnknownSubscription(f"topic {topic!r} has no reader {name!r}")
        if owner is not None and owner != note.owner:
            raise fenced(topic, name)
        return note, revision

    async def _change(
        self, topic: str, name: str, owner: str, change: Callable[[Note], Note | None]
    ) -> Note | None:
        """Replaces the note by what `change` makes of it, whoever else writes meanwhile."""
        for _ in range(TRIES_MAX):
            note, revision = await self._found(topic, name, owner)
            made = change(note)
            data = None if made is None else msgspec.json.encode(made)
            progress = note.progress if made is None else made.progress
            if await self._carrier.write_note(topic, name, data, revision, progress):
                return made
        raise Unavailable(f"reader {name!r} of topic {topic!r} is changed by others all the time")

    # -- requests --------------------------------------------------------------------------------

    async def _open(self, request: q.OpenReader) -> ReaderState:
        topic, name, owner = request.topic, request.reader, check_owner(request.owner)
        await self._ensure_topic(topic)
        for _ in range(TRIES_MAX):
            note, revision = await self._seen(topic, name)
            if note is None:
                start = "earliest" if request.start is None else request.start
                number = await self._carrier.number_of(topic, start)
                note = Note(owner, number, number)
            elif note.owner == owner:
                return _state(note)
            elif owner in note.retired:
                raise fenced(topic, name)
            else:
                retired = [note.owner] if note.owner else []
                note.retired = [*note.retired, *retired][-READER_OWNERS_MAX:]
                note.owner = owner
            data = msgspec.json.encode(note)
            if await self._carrier.write_note(topic, name, data, revision, note.progress):
                return _state(note)
        raise Unavailable(f"reader {name!r} of topic {topic!r} is opened by others all the time")

    async def _create(self, request: q.CreateSubscription) -> None:
        """A reader that nobody owns; one that is there is left as it is."""
        topic, name = request.topic, request.subscription
        await self._ensure_topic(topic)
        note, revision = await self._seen(topic, name)
        if note is None:
            start = "earliest" if request.start is None else request.start
            number = await self._carrier.number_of(topic, start)
            data = msgspec.json.encode(Note("", number, number))
            await self._carrier.write_note(topic, name, data, revision, number)

    async def _describe(self, request: q.DescribeReader) -> ReaderState:
        note, _ = await self._found(request.topic, request.reader, None)
        return _state(note)

    async def _plan(self, request: q.PlanRanges) -> list[PlannedRange]:
        for what in ("max_messages", "max_bytes"):
            limit = getattr(request, what)
            if limit is not None and (isinstance(limit, bool) or limit < 1):
                raise InvalidArgument(f"{what} must be a whole number from 1 on, not {limit!r}")
        topic, name = request.topic, request.reader
        while True:
            note, _ = await self._found(topic, name, request.owner)
            start = (request.after or {}).get(0, note.planned)
            if not note.progress <= start <= note.planned:
                raise _not_held(topic, name, note)
            lowest = await self._carrier.number_of(topic, "earliest")
            start = max(start, lowest)
            end = await self._carrier.end_of(topic, start, request.max_messages, request.max_bytes)
            if end <= start:
                return []
            seen = note.planned
            is_first = True

            def extend(now: Note, seen: int = seen, end: int = end) -> Note:
                nonlocal is_first
                is_first = now.planned == seen
                return (
                    msgspec.structs.replace(now, planned=max(now.planned, end)) if is_first else now
                )

            await self._change(topic, name, request.owner, extend)
            if is_first:
                return [PlannedRange(0, start, end)]

    async def _read(self, request: q.ReadRange) -> tuple[list[Frame], int]:
        topic, name = request.topic, request.reader
        note, _ = await self._found(topic, name, request.owner)
        if not note.progress <= request.start <= request.end <= note.planned:
            raise _not_held(topic, name, note)
        if request.start == request.end:
            return [], request.end
        letters = await self._carrier.read_numbers(
            topic, request.start, request.end, request.bytes_max
        )
        if not letters:
            return [], request.end
        numbers = [letter.sequence for letter in letters]
        frame = Frame(
            encode_columns(columns_of(letters)), numbers, range(len(letters)), 0, bytes(16), 0, 0,
            [(letter.offset, letter.position) for letter in letters],
        )  # fmt: skip
        return [frame], numbers[-1] + 1

    async def _commit(self, request: q.CommitReader) -> None:
        def finish(note: Note) -> Note:
            end = request.ends.get(0, note.progress)
            if not note.progress <= end <= note.planned or set(request.ends) - {0}:
                raise NotPlanned(
                    f"reader {request.reader!r} of topic {request.topic!r} has planned "
                    f"{note.progress}…{note.planned}; {request.ends} lies outside"
                )
            return msgspec.structs.replace(note, progress=end)

        await self._change(request.topic, request.reader, request.owner, finish)

    async def _release(self, request: q.ReleaseReader) -> None:
        def remove(note: Note) -> None:
            if note.progress < note.planned and not request.is_forced:
                raise SubscriptionInUse(
                    f"reader {request.reader!r} of topic {request.topic!r} has a planned range "
                    "that it has not committed; commit it, or give it up with "
                    "'await reader.release(force=True)'"
                )

        await self._change(request.topic, request.reader, request.owner, remove)


def _state(note: Note) -> ReaderState:
    return ReaderState(note.owner, (note.progress,), (note.planned,))


def check_owner(owner: Any) -> str:
    """The token when it may name an owner. Raises InvalidArgument."""
    if not isinstance(owner, str) or not owner or not owner.isprintable():
        raise InvalidArgument(
            f"owner must be printable text that all processes of one run share, not {owner!r}"
        )
    if len(owner.encode(errors="replace")) > READER_OWNER_BYTES_MAX:
        raise InvalidArgument(f"owner is over the limit of {READER_OWNER_BYTES_MAX} bytes")
    return owner


def fenced(topic: str, name: str) -> ReaderFenced:
    """The error for an owner whose reader another one has taken."""
    return ReaderFenced(
        f"reader {name!r} of topic {topic!r} was opened by another owner since; stop this run, or "
        "open the reader with a new owner token to take it over"
    )


def _not_held(topic: str, name: str, note: Note) -> PositionNotHeld:
    return PositionNotHeld(
        f"reader {name!r} of topic {topic!r} holds {note.progress}…{note.planned}: plan first, and "
        "read inside the planned range",
        lowest=f"0:{note.progress}",
    )


_HANDLERS: Final[dict[type, Callable[[Readers, Any], Any]]] = {
    q.CreateSubscription: Readers._create,  # noqa: SLF001 - the table is part of the class
    q.OpenReader: Readers._open,  # noqa: SLF001
    q.DescribeReader: Readers._describe,  # noqa: SLF001
    q.PlanRanges: Readers._plan,  # noqa: SLF001
    q.ReadRange: Readers._read,  # noqa: SLF001
    q.CommitReader: Readers._commit,  # noqa: SLF001
    q.ReleaseReader: Readers._release,  # noqa: SLF001
}


def is_about_reader(request: Any) -> bool:
    """True for what readers answer."""
    if isinstance(request, q.CreateSubscription):
        return request.policy.kind is Kind.READER
    return type(request) in _HANDLERS
