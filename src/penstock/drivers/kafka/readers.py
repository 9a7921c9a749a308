"""Readers over Kafka: progress is a group's committed offsets, the rest is in their metadata.

A note is written by a transaction of a producer whose id belongs to the reader, and Kafka lets only
the newest producer of an id commit. So whoever still can write has seen what was written last: of
two owners one loses and finds itself fenced.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

import msgspec

from penstock.batch import encode_columns
from penstock.batch.frame import Frame
from penstock.drivers.foreign.envelope import columns_of
from penstock.drivers.foreign.readers import check_owner, fenced
from penstock.drivers.kafka.askers import Askers
from penstock.drivers.kafka.link import KafkaException, Link, TopicPartition, translated
from penstock.drivers.kafka.look import Looker, Span, letter_of
from penstock.drivers.kafka.names import OWN, READER, kafka_name
from penstock.drivers.kafka.progress import METADATA_BYTES_MAX
from penstock.drivers.kafka.settings import SETTLED_S_MAX
from penstock.drivers.kafka.units import Doubt, end_producer, group_of, new_producer, transact
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import (
    InvalidArgument,
    NotPlanned,
    PositionNotHeld,
    SubscriptionInUse,
    Unavailable,
    UnknownSubscription,
)
from penstock.vocabulary.reading import PlannedRange, ReaderState

TRIES_MAX: Final = 20
PAUSE_S: Final = 0.05
PAGE: Final = 10_000
ALL: Final = 1 << 62


class Note(msgspec.Struct, kw_only=True):
    """What is kept of a reader. Its progress is the committed offset of each partition."""

    owner: str
    planned: list[int]
    retired: list[str] = []
    """Owners that were fenced, each by a few letters of its digest."""
    progress: list[int] = []
    is_gone: bool = False

    def add_partitions(self, begins: dict[int, int]) -> None:
        """The topic grew: new partitions begin where they are."""
        for part in range(len(self.progress), len(begins)):
            self.progress.append(begins[part])
            self.planned.append(begins[part])


class Holder:
    """The right to write a reader's note: as long as nobody else took it."""

    def __init__(self, producer: Any, group: Any, note: Note | None) -> None:
        self.producer = producer
        self.group = group
        self.note = note


class KafkaReaders:
    """The part of a carrier that serves readers."""

    link: Link
    looker: Looker
    askers: Askers

    def __init__(self) -> None:
        super().__init__()
        self._holders: dict[tuple[str, str], Holder] = {}

    async def answer_reader(self, request: Any) -> Any:
        return await _HANDLERS[type(request)](self, request)

    async def close_readers(self) -> None:
        """Ends the producers of notes."""
        while self._holders:
            _, holder = self._holders.popitem()
            await end_producer(self.link, holder.producer)

    async def spans(self, topic: str) -> dict[int, Span]:
        """What each partition holds."""
        raise NotImplementedError

    async def offsets_at(self, topic: str, start: Any) -> dict[int, int]:
        """Where each partition begins."""
        raise NotImplementedError

    async def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has."""
        raise NotImplementedError

    # -- notes -------------------------------------------------------------------------------------

    async def _read(self, topic: str, name: str) -> Note | None:
        kafka = kafka_name(topic)
        asked = [TopicPartition(kafka, part) for part in range(await self.partitions_of(topic))]
        group = READER + name
        until = self.link.loop.time() + SETTLED_S_MAX
        while True:
            answer = await self.askers.committed(group, asked, is_stable=True)
            told = {each.partition: each for each in answer}
            if all(each.error is None for each in told.values()):
                break
            if self.link.loop.time() > until:
                raise Unavailable(
                    f"{self.link.where}: the progress of reader {name!r} is not known: "
                    f"a transaction on it has not ended for {SETTLED_S_MAX:.0f} s"
                )
            await asyncio.sleep(PAUSE_S)  # its process may have been killed in the middle of it
        if told[0].offset < 0 or not told[0].metadata:
            return None
        note = msgspec.json.decode(told[0].metadata, type=Note)
        if note.is_gone:
            return None
        note.progress = [told[p].offset for p in range(len(told)) if told[p].offset >= 0]
        return note

    async def _hold(self, topic: str, name: str) -> Holder:
        """The right to write, with what was written last."""
        holder = self._holders.get((topic, name))
        if holder is None:
            id = f"{OWN}reader.{kafka_name(topic)}.{name}"
            producer = await new_producer(self.link, id)
            group = await group_of(self.link, READER + name)
            holder = Holder(producer, group, await self._read(topic, name))
            self._holders[topic, name] = holder
        return holder

    async def _drop(self, topic: str, name: str) -> None:
        holder = self._holders.pop((topic, name), None)
        if holder is not None:
            await end_producer(self.link, holder.producer)

    async def _change(self, topic: str, name: str, change: Callable[[Note | None], Note]) -> Note:
        """Replaces the note by what `change` makes of it, whoever else writes meanwhile."""
        for _ in range(TRIES_MAX):
            holder = await self._hold(topic, name)
            made = change(msgspec.structs.replace(holder.note) if holder.note else None)
            if made == holder.note:
                return made
            try:
                await self.link.loop.run_in_executor(
                    self.link.pool, transact, holder.producer, [],
                    [(holder.group, _places(kafka_name(topic), made))], None,
                )  # fmt: skip
            except (KafkaException, Doubt) as error:
                await self._drop(topic, name)  # the next try sees what became of it
                if isinstance(error, Doubt) or _is_fenced(error):
                    continue
                found = translated(error, self.link.where)
                if not isinstance(found, Unavailable):
                    raise found from error
                continue
            holder.note = None if made.is_gone else made
            return made
        raise Unavailable(f"reader {name!r} of topic {topic!r} is changed by others all the time")

    async def _found(self, topic: str, name: str, owner: str | None) -> Note:
        note = await self._read(topic, name)
        return _checked(note, topic, name, owner)

    # -- requests ----------------------------------------------------------------------------------

    async def _open(self, request: q.OpenReader) -> ReaderState:
        topic, name, owner = request.topic, request.reader, check_owner(request.owner)
        note = await self._read(topic, name)
        begins = await self.offsets_at(topic, "earliest")
        if note is None:
            start = "earliest" if request.start is None else request.start
            begins = await self.offsets_at(topic, start)
        elif note.owner == owner:
            note.add_partitions(begins)
            return _state(note)

        def take(now: Note | None) -> Note:
            if now is None:
                offsets = [begins[part] for part in sorted(begins)]
                return Note(owner=owner, planned=offsets, progress=list(offsets))
            if now.owner == owner:
                return now
            if _digest(owner) in now.retired:
                raise fenced(topic, name)
            return _shortened(now, owner)

        return _state(await self._change(topic, name, take))

    async def _create(self, request: q.CreateSubscription) -> None:
        """A reader that nobody owns; one that is there is left as it is."""
        topic, name = request.topic, request.subscription
        if await self._read(topic, name) is not None:
            return
        start = "earliest" if request.start is None else request.start
        begins = await self.offsets_at(topic, start)
        offsets = [begins[part] for part in sorted(begins)]
        made = Note(owner="", planned=offsets, progress=list(offsets))
        await self._change(topic, name, lambda now: now or made)
        await self._drop(topic, name)  # whoever opens it writes next

    async def _describe(self, request: q.DescribeReader) -> ReaderState:
        note = await self._found(request.topic, request.reader, None)
        note.add_partitions(await self.offsets_at(request.topic, "earliest"))
        return _state(note)

    async def _plan(self, request: q.PlanRanges) -> list[PlannedRange]:
        for what in ("max_messages", "max_bytes"):
            limit = getattr(request, what)
            if limit is not None and (isinstance(limit, bool) or limit < 1):
                raise InvalidArgument(f"{what} must be a whole number from 1 on, not {limit!r}")
        topic, name = request.topic, request.reader
        spans = await self.spans(topic)
        begins = {part: span.start for part, span in spans.items()}
        while True:
            note = await self._found(topic, name, request.owner)
            note.add_partitions(begins)
            found = await self._ranges(request, note, spans)
            if not found:
                return []
            seen, is_first = list(note.planned), True

            def extend(
                now: Note | None, seen: list[int] = seen, found: list[PlannedRange] = found
            ) -> Note:
                nonlocal is_first
                kept = _checked(now, topic, name, request.owner)
                kept = msgspec.structs.replace(
                    kept, planned=list(kept.planned), progress=list(kept.progress)
                )
                kept.add_partitions(begins)
                is_first = kept.planned == seen
                if is_first:
                    for part, _, end in found:
                        kept.planned[part] = max(kept.planned[part], end)
                return kept

            await self._change(topic, name, extend)
            if is_first:
                return found

    async def _ranges(
        self, request: q.PlanRanges, note: Note, spans: dict[int, Span]
    ) -> list[PlannedRange]:
        """The next range of each partition, within the limits of all together."""
        count_left = ALL if request.max_messages is None else request.max_messages
        bytes_left = ALL if request.max_bytes is None else request.max_bytes
        found: list[PlannedRange] = []
        for part, span in sorted(spans.items()):
            start = (request.after or {}).get(part, note.planned[part])
            if not note.progress[part] <= start <= note.planned[part]:
                raise _not_held(request.topic, request.reader, part, note)
            start = max(start, span.start)
            end = min(span.end, start + count_left)
            if end <= start or bytes_left <= 0:
                continue
            if request.max_bytes is not None:
                end, bytes_left = await self._cut(request.topic, part, Span(start, end), bytes_left)
            count_left -= end - start
            found.append(PlannedRange(part, start, end))
        return found

    async def _cut(self, topic: str, part: int, span: Span, bytes_max: int) -> tuple[int, int]:
        """The end of the messages that so many bytes take, and the bytes that are left."""
        read = await self.looker.read(topic, {part: span}, PAGE, bytes_max)
        left, end = bytes_max, span.start
        for message in read.get(part, ()):
            left -= len(message)
            if left < 0 and end > span.start:
                return end, 0
            end = message.offset() + 1
        return (span.end if len(read.get(part, ())) < PAGE and left > 0 else end), left

    async def _range(self, request: q.ReadRange) -> tuple[list[Frame], int]:
        topic, name, part = request.topic, request.reader, request.partition
        note = await self._found(topic, name, request.owner)
        is_known = part < len(note.progress)
        if not is_known or not (
            note.progress[part] <= request.start <= request.end <= note.planned[part]
        ):
            raise _not_held(topic, name, part, note)
        lowest = (await self.spans(topic))[part].start
        if lowest > request.start:
            raise PositionNotHeld(
                f"the limits of topic {topic!r} removed what was planned from '{part}:"
                f"{request.start}' on; the lowest position is '{part}:{lowest}'",
                lowest=f"{part}:{lowest}",
            )
        span = Span(request.start, request.end)
        read = await self.looker.read(topic, {part: span}, PAGE, request.bytes_max)
        letters = [letter_of(message) for message in read.get(part, ())]
        if not letters:
            return [], request.end
        offsets = [message.offset() for message in read[part]]
        frame = Frame(
            encode_columns(columns_of(letters)), offsets, range(len(letters)), 0, bytes(16), 0, 0,
            [(letter.offset, letter.position) for letter in letters],
        )  # fmt: skip
        return [frame], offsets[-1] + 1

    async def _commit(self, request: q.CommitReader) -> None:
        topic, name = request.topic, request.reader

        def finish(now: Note | None) -> Note:
            note = _checked(now, topic, name, request.owner)
            progress = list(note.progress)
            for part, end in request.ends.items():
                if part >= len(progress) or not progress[part] <= end <= note.planned[part]:
                    raise NotPlanned(
                        f"reader {name!r} of topic {topic!r} has planned "
                        f"{list(zip(progress, note.planned, strict=True))}; {request.ends} lies "
                        "outside"
                    )
                progress[part] = end
            return msgspec.structs.replace(note, progress=progress)

        await self._change(topic, name, finish)

    async def _release(self, request: q.ReleaseReader) -> None:
        topic, name = request.topic, request.reader

        def remove(now: Note | None) -> Note:
            note = _checked(now, topic, name, request.owner)
            if note.progress != note.planned and not request.is_forced:
                raise SubscriptionInUse(
                    f"reader {name!r} of topic {topic!r} has a planned range that it has not "
                    "committed; commit it, or give it up with 'await reader.release(force=True)'"
                )
            return msgspec.structs.replace(note, is_gone=True)

        await self._change(topic, name, remove)
        await self._drop(topic, name)


def _places(topic: str, note: Note) -> list[Any]:
    said = msgspec.json.encode(msgspec.structs.replace(note, progress=[])).decode()
    return [
        TopicPartition(topic, part, at, metadata="" if part else said)
        for part, at in enumerate(note.progress)
    ]


def _digest(owner: str) -> str:
    return b64encode(sha256(owner.encode()).digest()[:6]).decode()


def _shortened(note: Note, owner: str) -> Note:
    """The note with a new owner; the oldest fenced ones are forgotten when it gets too long."""
    made = msgspec.structs.replace(note, owner=owner, retired=[*note.retired, _digest(note.owner)])
    while made.retired and len(msgspec.json.encode(made)) > METADATA_BYTES_MAX:
        made.retired = made.retired[1:]
    return made


def _checked(note: Note | None, topic: str, name: str, owner: str | None) -> Note:
    if note is None:
        raise UnknownSubscription(f"topic {topic!r} has no reader {name!r}")
    if owner is not None and owner != note.owner:
        raise fenced(topic, name)
    return note


def _state(note: Note) -> ReaderState:
    return ReaderState(note.owner, tuple(note.progress), tuple(note.planned))


def _not_held(topic: str, name: str, part: int, note: Note) -> PositionNotHeld:
    lowest = note.progress[part] if part < len(note.progress) else 0
    planned = note.planned[part] if part < len(note.planned) else 0
    return PositionNotHeld(
        f"reader {name!r} of topic {topic!r} holds {lowest}…{planned} of partition {part}: plan "
        "first, and read inside the planned range",
        lowest=f"{part}:{lowest}",
    )


def _is_fenced(error: Any) -> bool:
    return bool(error.args[0].fatal() or error.args[0].txn_requires_abort())


_HANDLERS: Final[dict[type, Callable[[KafkaReaders, Any], Any]]] = {
    q.CreateSubscription: KafkaReaders._create,  # noqa: SLF001 - the table is part of the class
    q.OpenReader: KafkaReaders._open,  # noqa: SLF001
    q.DescribeReader: KafkaReaders._describe,  # noqa: SLF001
    q.PlanRanges: KafkaReaders._plan,  # noqa: SLF001
    q.ReadRange: KafkaReaders._range,  # noqa: SLF001
    q.CommitReader: KafkaReaders._commit,  # noqa: SLF001
    q.ReleaseReader: KafkaReaders._release,  # noqa: SLF001
}
