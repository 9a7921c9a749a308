"""Reading what a topic holds without taking anything: a consumer that belongs to no group."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.kafka.link import (
    Consumer,
    KafkaError,
    KafkaException,
    Link,
    TopicPartition,
    sdk_log,
)
from penstock.drivers.kafka.names import kafka_name
from penstock.drivers.kafka.records import is_removal, opened, removal_of
from penstock.drivers.kafka.settings import looking_config
from penstock.vocabulary import names
from penstock.vocabulary.errors import InvalidArgument, Unavailable

LOOK_S: Final = 20.0
POLL_S: Final = 0.1
TOGETHER: Final = 2_000
IDLE_MAX: Final = 2
GROUP: Final = "penstock.look"


class Span(NamedTuple):
    """Offsets of one partition; `end` is not read."""

    start: int
    end: int


class Looker:
    """Reads spans of partitions, in a thread. Consumers are kept for the next time."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._idle: list[Any] = []

    async def read(
        self, topic: str, spans: Mapping[int, Span], count_max: int, bytes_max: int
    ) -> dict[int, list[Any]]:
        """The first messages of each span: at most so many, and about so many bytes, of each."""
        wanted = {part: span for part, span in spans.items() if span.start < span.end}
        if not wanted:
            return {}
        found: dict[int, list[Any]] = await self._link.run(
            self._read, kafka_name(topic), wanted, count_max, bytes_max
        )
        return found

    async def close(self) -> None:
        """Ends the consumers that are kept."""
        for consumer in self._idle:
            with suppress(Exception):
                await self._link.loop.run_in_executor(None, consumer.close)
        self._idle.clear()

    def _read(
        self, topic: str, wanted: Mapping[int, Span], count_max: int, bytes_max: int
    ) -> dict[int, list[Any]]:
        consumer = self._idle.pop() if self._idle else self._made()
        reading = _Reading(wanted, count_max, bytes_max)
        ends = time.monotonic() + LOOK_S
        try:
            consumer.assign(
                [TopicPartition(topic, part, span.start) for part, span in wanted.items()]
            )
            while reading.left:
                first = consumer.poll(POLL_S)
                if first is not None:
                    reading.take(first)
                    for message in consumer.consume(TOGETHER, 0):
                        reading.take(message)
                if reading.left and time.monotonic() > ends:
                    raise Unavailable(f"topic {topic!r} was not read in {LOOK_S:g} s")  # noqa: TRY301
            consumer.unassign()
        except BaseException:
            consumer.close()
            raise
        if len(self._idle) < IDLE_MAX:
            self._idle.append(consumer)
        else:
            consumer.close()
        return reading.found

    def _made(self) -> Any:
        config = self._link.config(looking_config(self._link.settings, GROUP))
        return Consumer(config, logger=sdk_log)


class _Reading:
    """What was read so far."""

    def __init__(self, wanted: Mapping[int, Span], count_max: int, bytes_max: int) -> None:
        self._wanted = wanted
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._sizes = dict.fromkeys(wanted, 0)
        self.left = set(wanted)
        self.found: dict[int, list[Any]] = {part: [] for part in wanted}

    def take(self, message: Any) -> None:
        part, error = message.partition(), message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's own name
                self.left.discard(part)
            elif error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)
            return
        if part not in self.left:
            return
        if message.offset() < self._wanted[part].end:
            self.found[part].append(message)
            self._sizes[part] += len(message)
        is_last = message.offset() + 1 >= self._wanted[part].end
        is_full = (
            len(self.found[part]) >= self._count_max or self._sizes[part] >= self._bytes_max
        )  # fmt: skip
        if is_last or is_full:
            self.left.discard(part)


def letter_of(message: Any) -> Letter:
    """The letter in a message of the library."""
    return opened(
        message.key(), message.value(), message.headers(), message.partition(), message.offset(),
        message.timestamp()[1],
    )  # fmt: skip


class Looking:
    """The part of a carrier that looks and removes."""

    link: Link
    looker: Looker

    async def spans(self, topic: str) -> dict[int, Span]:
        """What each partition holds."""
        raise NotImplementedError

    async def settled(self, topic: str, partition: int) -> dict[int, Span]:
        """What a partition holds, once every transaction begun before now has ended."""
        raise NotImplementedError

    async def drop_records(self, topic: str, ends: Mapping[int, int]) -> None:
        """Removes everything below these offsets."""
        raise NotImplementedError

    async def look(self, topic: str, limit: int, after: int | str | None) -> list[Letter]:
        return await self._look(topic, await self.spans(topic), limit, after)

    async def look_in(
        self, topic: str, partition: int, limit: int, after: int | str | None
    ) -> list[Letter]:
        """Held letters of one partition, those of transactions under way awaited."""
        return await self._look(topic, await self.settled(topic, partition), limit, after)

    async def _look(
        self, topic: str, spans: dict[int, Span], limit: int, after: int | str | None
    ) -> list[Letter]:
        if isinstance(after, str):
            part, offset = place_of(after)
            if part in spans:
                spans = {part: Span(max(spans[part].start, offset + 1), spans[part].end)}
        elif after:
            spans = {part: Span(max(s.start, after), s.end) for part, s in spans.items()}
        is_dead = names.is_dead_topic(topic)
        found = await self.looker.read(topic, spans, 1 << 30 if is_dead else limit, 1 << 40)
        if is_dead:
            found = {part: _held(messages) for part, messages in found.items()}
        together = [message for messages in found.values() for message in messages]
        if len(found) > 1:
            together.sort(key=lambda each: (each.timestamp()[1], each.partition(), each.offset()))
        return [letter_of(message) for message in together[:limit]]

    async def remove(self, topic: str, letters: Sequence[Letter]) -> None:
        """A record without value removes a dead letter; with the last one all space is freed."""
        if not letters:
            return
        await self.link.produce(kafka_name(topic), [removal_of(each.token) for each in letters])
        if not await self.look(topic, 1, None):
            await self.drop_records(topic, {p: s.end for p, s in (await self.spans(topic)).items()})


def _held(messages: list[Any]) -> list[Any]:
    """The dead letters that were not removed; the last one of each key."""
    last: dict[bytes, Any] = {}
    for message in messages:
        key = message.key() or b""
        last.pop(key, None)
        if not is_removal(message.value(), message.headers()):
            last[key] = message
    return list(last.values())


def place_of(position: str) -> tuple[int, int]:
    """Partition and offset of a position such as '0:17'. Raises InvalidArgument."""
    part, mark, offset = str(position).partition(":")
    if not (mark and part.isdecimal() and offset.isdecimal()):
        raise InvalidArgument(
            f"{position!r} is neither 'earliest', 'latest', Unix seconds nor a position such as "
            "'0:17'"
        )
    return int(part), int(offset)
