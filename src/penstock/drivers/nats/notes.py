"""Readers over NATS: numbers are those of the stream, notes are kept in a stream of their own."""

import base64
from typing import Any, Final

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.nats.consumers import full_name, plain_name
from penstock.drivers.nats.look import PAGE, Looking
from penstock.drivers.nats.subjects import safe_name, subject_of
from penstock.vocabulary.errors import InvalidArgument, PenstockError, PositionNotHeld, UnknownTopic

NOTES: Final = "$penstock.readers"
NOTES_STREAM: Final = "penstock-readers"
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
WRONG_SEQUENCE: Final = (10071, 10164)
NO_MESSAGE: Final = 10037
NANO: Final = 1_000_000_000


class NatsNotes(Looking):
    """The part of a carrier that serves readers."""

    replicas = 1

    async def _subject(self, topic: str, name: str) -> str:
        """The note of a reader; in a stream of several topics it is named with its topic."""
        home = await self.home_of(topic)
        is_own = home.name == safe_name(topic) or home.is_only(subject_of(topic))
        return f"{NOTES}.{home.name}.{plain_name(name) if is_own else full_name(topic, name)}"

    async def read_note(self, topic: str, name: str) -> tuple[bytes | None, Any]:
        subject = await self._subject(topic, name)
        try:
            found = await self.connection.api(
                f"STREAM.MSG.GET.{NOTES_STREAM}", last_by_subj=subject
            )
        except UnknownTopic:
            config = {
                "name": NOTES_STREAM, "subjects": [f"{NOTES}.>"], "storage": "file",
                "retention": "limits", "max_msgs_per_subject": 1, "num_replicas": self.replicas,
            }  # fmt: skip
            await self.connection.api(f"STREAM.CREATE.{NOTES_STREAM}", **config)
            return None, 0
        except PenstockError as error:
            if error.details.get("err_code") == NO_MESSAGE:
                return None, 0
            raise
        message = found["message"]
        return base64.b64decode(message.get("data", "")) or None, message["seq"]

    async def write_note(
        self, topic: str, name: str, data: bytes | None, revision: Any, progress: int
    ) -> bool:
        """Nothing is held for the reader: a stream keeps its messages until its limits."""
        del progress
        subject = await self._subject(topic, name)
        try:
            await self.connection.store(subject, [(data or b"", {EXPECTED: str(revision)})])
        except PenstockError as error:
            if error.details.get("err_code") in WRONG_SEQUENCE:
                return False
            raise
        return True

    async def _state(self, topic: str) -> dict[str, Any]:
        info = await self.connection.api(f"STREAM.INFO.{await self.stream_of(topic)}")
        state: dict[str, Any] = info["state"]
        return state

    async def number_of(self, topic: str, start: Any) -> int:
        state = await self._state(topic)
        first, end = max(1, int(state["first_seq"])), int(state["last_seq"]) + 1
        if start == "earliest":
            return first
        if start == "latest":
            return end
        if isinstance(start, int | float) and not isinstance(start, bool):
            return await self._first_since(topic, first, end, int(start * 1000))
        number = str(start).rpartition(":")[2]
        if not number.isdecimal():
            raise InvalidArgument(f"start {start!r} is no position such as '0:17'")
        if not first <= int(number) <= end:
            raise PositionNotHeld(
                f"topic {topic!r} does not hold position {start!r}; the lowest is '0:{first}'",
                lowest=f"0:{first}",
            )
        return int(number)

    async def _first_since(self, topic: str, first: int, end: int, at_ms: int) -> int:
        """The first number that was stored at or after a time, found by halving."""
        while first < end:
            middle = (first + end) // 2
            page = await self._page(topic, middle, 1)
            if not page or page[0].published_at >= at_ms:
                end = middle
            else:
                assert page[0].offset is not None
                first = page[0].offset + 1
        return first

    async def end_of(
        self, topic: str, start: int, max_messages: int | None, max_bytes: int | None
    ) -> int:
        state = await self._state(topic)
        end = int(state["last_seq"]) + 1
        if not (await self.home_of(topic)).is_only(subject_of(topic)):
            # Numbers of other topics lie between: the range begins where this one goes on.
            page = await self._page(topic, start, 1)
            if not page:
                return start
            assert page[0].offset is not None
            start = page[0].offset
        if max_messages is not None:
            end = min(end, start + max_messages)
        if max_bytes is not None and state["messages"]:
            mean = max(1, state["bytes"] // state["messages"])
            end = min(end, start + max(1, max_bytes // mean))
        return end

    async def read_numbers(self, topic: str, start: int, end: int, bytes_max: int) -> list[Letter]:
        state = await self._state(topic)
        if state["first_seq"] > start and state["messages"]:
            lowest = f"0:{state['first_seq']}"
            raise PositionNotHeld(
                f"the limits of topic {topic!r} removed what was planned from '0:{start}' on; the "
                f"lowest position is {lowest!r}",
                lowest=lowest,
            )
        found: list[Letter] = []
        size = 0
        for letter in await self._page(topic, start, min(PAGE, end - start)):
            assert letter.offset is not None
            if letter.offset >= end or (found and size > bytes_max):
                break
            letter.sequence = letter.offset
            size += letter.size
            found.append(letter)
        return found
