"""Readers over Redis: a number is made of both halves of an entry id; a group holds the place."""

from collections.abc import Sequence
from typing import Any, Final

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.redis import keeping, scripts
from penstock.drivers.redis.entries import OWN, opened, pair_of, paired, place_before, text
from penstock.vocabulary.errors import InvalidArgument

SEQUENCE_BITS: Final = 20
"""More than a million entries in one millisecond are not to be had."""
READER: Final = OWN + ":reader:"
"""Groups that hold the place of a reader, so that nothing above it is trimmed."""
PAGE: Final = 1_000


def number_of_id(id: str) -> int:
    """An entry id as one number."""
    milliseconds, sequence = pair_of(id)
    return milliseconds << SEQUENCE_BITS | sequence


def pair_of_number(number: int) -> tuple[int, int]:
    """The two halves of an entry id."""
    return number >> SEQUENCE_BITS, number & ((1 << SEQUENCE_BITS) - 1)


def id_of_number(number: int) -> str:
    """The entry id of a number."""
    return "{}-{}".format(*pair_of_number(number))


class RedisNotes:
    """The part of a carrier that serves readers."""

    redis: Any

    async def call(self, work: Any) -> Any:
        """See RedisCarrier."""
        raise NotImplementedError

    async def run(self, script: str, bodies: Sequence[bytes] = (), **arguments: Any) -> Any:
        """See RedisCarrier."""
        raise NotImplementedError

    async def read_note(self, topic: str, name: str) -> tuple[bytes | None, Any]:
        key = f"{OWN}:readers:{topic}"
        data = await self.call(lambda: self.redis.hget(key, name))
        return data, text(data or b"")

    async def write_note(
        self, topic: str, name: str, data: bytes | None, revision: Any, progress: int
    ) -> bool:
        below = place_before(pair_of_number(progress)) if progress else "0-0"
        done = await self.run(
            keeping.NOTE, key=f"{OWN}:readers:{topic}", name=name, before=revision,
            after=text(data or b""), stream=topic, group=READER + name, below=below,
        )  # fmt: skip
        return bool(done)

    async def number_of(self, topic: str, start: Any) -> int:
        if start == "earliest":
            rows = await self.call(lambda: self.redis.xrange(topic, "-", "+", count=1))
            return number_of_id(text(rows[0][0])) if rows else await self._end(topic)
        if start == "latest":
            return await self._end(topic)
        if isinstance(start, int | float) and not isinstance(start, bool):
            return int(start * 1000) << SEQUENCE_BITS
        milliseconds, mark, sequence = str(start).partition("-")
        if not (mark and milliseconds.isdecimal() and sequence.isdecimal()):
            raise InvalidArgument(f"start {start!r} is no position such as '1700000000000-0'")
        return number_of_id(str(start))

    async def _end(self, topic: str) -> int:
        if not await self.call(lambda: self.redis.exists(topic)):
            return 0
        info = await self.call(lambda: self.redis.xinfo_stream(topic))
        return number_of_id(text(info["last-generated-id"])) + 1

    async def end_of(
        self, topic: str, start: int, max_messages: int | None, max_bytes: int | None
    ) -> int:
        last = await self.run(
            scripts.LAST, stream=topic, start=id_of_number(start),
            messages=max_messages or 0, bytes=max_bytes or 0,
        )  # fmt: skip
        return number_of_id(text(last)) + 1 if last else start

    async def read_numbers(self, topic: str, start: int, end: int, bytes_max: int) -> list[Letter]:
        low, high = id_of_number(start), f"({id_of_number(end)}"
        rows = await self.call(lambda: self.redis.xrange(topic, low, high, count=PAGE))
        found: list[Letter] = []
        size = 0
        for id, fields in rows:
            if found and size > bytes_max:
                break
            letter = opened(text(id), paired(fields), 0)
            letter.sequence = number_of_id(letter.position)
            size += letter.size
            found.append(letter)
        return found
