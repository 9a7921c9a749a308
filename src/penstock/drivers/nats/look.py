"""Reading what a stream holds without taking anything.

A stream that allows direct reading tells many messages for one question, from server 2.11 on. Any
other is asked for one message at a time, with several questions under way.
"""

import asyncio
import base64
from asyncio import Event
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.nats.connection import (
    API,
    MESSAGE_NOT_FOUND,
    NO_RESPONDERS,
    Connection,
    Incoming,
)
from penstock.drivers.nats.feed import opened
from penstock.drivers.nats.streams import Stream
from penstock.drivers.nats.subjects import subject_of
from penstock.vocabulary.errors import InvalidArgument, PenstockError, StorageError, Unavailable

PAGE: Final = 500
WIDTH_MAX: Final = 32
"""Questions for single messages that are under way together."""
LOOK_S: Final = 5.0
BATCHES_SINCE: Final = (2, 11)
SEQUENCE: Final = "Nats-Sequence"
TIME: Final = "Nats-Time-Stamp"
SUBJECT: Final = "Nats-Subject"
PENDING: Final = "Nats-Num-Pending"
"""Set on each message of an answer of many; a server that knows none sends one without it."""


class Looking:
    """The part of a carrier that looks and removes."""

    connection: Connection

    async def home_of(self, topic: str) -> Stream:
        """The stream of a topic."""
        raise NotImplementedError

    async def stream_of(self, topic: str) -> str:
        """The name of the stream of a topic."""
        raise NotImplementedError

    async def look(self, topic: str, limit: int, after: int | str | None) -> list[Letter]:
        found: list[Letter] = []
        start = max(1, after or 1) if not isinstance(after, str) else _after(after)
        while len(found) < limit:
            page = await self._page(topic, start, min(PAGE, limit - len(found)))
            found += page
            if not page:
                break
            assert page[-1].offset is not None
            start = page[-1].offset + 1
        return found[:limit]

    async def _page(self, topic: str, start: int, count: int) -> list[Letter]:
        """Messages of a topic from a sequence number on; none = there are no more."""
        home = await self.home_of(topic)
        subject = subject_of(topic)
        if home.has_direct and self.connection.version >= BATCHES_SINCE:
            page = await self._batch(home.name, subject, start, count)
            if page is not None:
                return page
        return await self._singly(home.name, subject, start, count)

    async def _batch(
        self, stream: str, subject: str, start: int, count: int
    ) -> list[Letter] | None:
        """One answer of many messages; None when nobody answers: direct reading is off by now."""
        arrived: list[Incoming] = []
        ended = Event()

        def receive(message: Incoming) -> None:
            arrived.append(message)
            headers = message.headers or {}
            if SEQUENCE not in headers or PENDING not in headers:
                ended.set()

        inbox = self.connection.new_inbox()
        listening = await self.connection.subscribe(inbox, receive)
        try:
            question = {"seq": start, "batch": count, "next_by_subj": subject}
            await self.connection.publish(
                f"{API}DIRECT.GET.{stream}", msgspec.json.encode(question), inbox
            )
            async with asyncio.timeout(LOOK_S):
                await ended.wait()
        except TimeoutError as error:
            raise Unavailable(f"stream {stream!r} was not read in {LOOK_S:g} s") from error
        finally:
            await listening.end()
        messages = [each for each in arrived if each.headers and SEQUENCE in each.headers]
        status = arrived[-1].status
        if status == NO_RESPONDERS:
            return None
        if status not in ("204", "404") and not messages:
            raise StorageError(f"stream {stream!r} cannot be read: status {status}")
        return [_letter(message) for message in messages]

    async def _singly(self, stream: str, subject: str, start: int, count: int) -> list[Letter]:
        """Asks for what follows each of several numbers, of more while there are no gaps."""
        found: list[Letter] = []
        width = 1
        while len(found) < count:
            asked = range(start, start + min(width, count - len(found)))
            answers = await asyncio.gather(
                *(self._next(stream, subject, number) for number in asked)
            )
            before = len(found)
            for letter in answers:
                if letter is None:
                    return found
                assert letter.offset is not None
                if letter.offset >= start:
                    found.append(letter)
                    start = letter.offset + 1
            width = min(2 * width, WIDTH_MAX) if len(found) - before == len(asked) else 1
        return found

    async def _next(self, stream: str, subject: str, number: int) -> Letter | None:
        """The first message of a subject from a number on; None = there is none."""
        try:
            answer = await self.connection.api(
                f"STREAM.MSG.GET.{stream}", seq=number, next_by_subj=subject
            )
        except PenstockError as error:
            if error.details.get("err_code") == MESSAGE_NOT_FOUND:
                return None
            raise
        said = answer["message"]
        message = Incoming(
            said["subject"], "", base64.b64decode(said.get("data") or ""),
            headers_in(base64.b64decode(said.get("hdrs") or "")),
        )  # fmt: skip
        return opened(message, said["seq"], _milliseconds(said.get("time", "")))

    async def remove(self, topic: str, letters: Sequence[Letter]) -> None:
        stream = await self.stream_of(topic)
        for letter in letters:
            await self.connection.api(
                f"STREAM.MSG.DELETE.{stream}", seq=letter.offset, no_erase=True
            )


def headers_in(data: bytes) -> dict[str, str] | None:
    """Headers as they are stored: a line with the version, then `name: value` in each."""
    found: dict[str, str] = {}
    for line in data.decode(errors="replace").split("\r\n")[1:]:
        name, mark, value = line.partition(":")
        if mark:
            found.setdefault(name, value.strip())
    return found or None


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
