"""Reading what a stream holds without taking anything: many messages with one question."""

import asyncio
from asyncio import Event
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.nats.connection import API, Connection, Incoming
from penstock.drivers.nats.feed import opened
from penstock.drivers.nats.subjects import subject_of
from penstock.vocabulary.errors import InvalidArgument, StorageError, Unavailable

PAGE: Final = 500
LOOK_S: Final = 5.0
SEQUENCE: Final = "Nats-Sequence"
TIME: Final = "Nats-Time-Stamp"
SUBJECT: Final = "Nats-Subject"


class Looking:
    """The part of a carrier that looks and removes."""

    connection: Connection

    async def stream_of(self, topic: str) -> str:
        """The stream of a topic."""
        raise NotImplementedError

    async def look(self, topic: str, limit: int, after: int | str | None) -> list[Letter]:
        stream = await self.stream_of(topic)
        found: list[Letter] = []
        start = max(1, after or 1) if not isinstance(after, str) else _after(after)
        while len(found) < limit:
            page = await self._page(stream, topic, start, min(PAGE, limit - len(found)))
            found += page
            if not page:
                break
            assert page[-1].offset is not None
            start = page[-1].offset + 1
        return found[:limit]

    async def _page(self, stream: str, topic: str, start: int, count: int) -> list[Letter]:
        """Messages from a sequence number on, as one answer of many messages."""
        arrived: list[Incoming] = []
        ended = Event()

        def receive(message: Incoming) -> None:
            if message.headers and SEQUENCE in message.headers:
                arrived.append(message)
            else:
                arrived.append(message)
                ended.set()

        inbox = self.connection.new_inbox()
        listening = await self.connection.subscribe(inbox, receive)
        try:
            question = {"seq": start, "batch": count, "next_by_subj": subject_of(topic)}
            await self.connection.publish(
                f"{API}DIRECT.GET.{stream}", msgspec.json.encode(question), inbox
            )
            async with asyncio.timeout(LOOK_S):
                await ended.wait()
        except TimeoutError as error:
            raise Unavailable(f"stream {stream!r} was not read in {LOOK_S:g} s") from error
        finally:
            await listening.end()
        *messages, last = arrived
        if last.status not in ("204", "404"):
            raise StorageError(f"stream {stream!r} cannot be read: status {last.status}")
        return [_letter(message) for message in messages]

    async def remove(self, topic: str, letters: Sequence[Letter]) -> None:
        stream = await self.stream_of(topic)
        for letter in letters:
            await self.connection.api(
                f"STREAM.MSG.DELETE.{stream}", seq=letter.offset, no_erase=True
            )


def _after(position: str) -> int:
    number = position.rpartition(":")[2]
    if not number.isdecimal():
        raise InvalidArgument(f"{position!r} is no position of a NATS topic, such as '0:17'")
    return int(number) + 1


def _letter(message: Incoming) -> Letter:
    headers: dict[str, Any] = message.headers or {}
    record = message._replace(subject=headers.get(SUBJECT, message.subject))
    return opened(record, int(headers[SEQUENCE]), _milliseconds(headers.get(TIME, "")))


def _milliseconds(text: str) -> int:
    whole, _, rest = text.rstrip("Z").partition(".")
    if not whole:
        return 0
    seconds = int(datetime.fromisoformat(whole + "+00:00").timestamp())
    return seconds * 1000 + int((rest + "000")[:3])
