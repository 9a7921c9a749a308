"""Units: Kafka's transactions. Messages are stored and offsets committed, all or nothing."""

from asyncio import Lock
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

from penstock.drivers.foreign.carrier import Feed, Placed
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.kafka.link import (
    STALE,
    Consumer,
    KafkaException,
    Link,
    Producer,
    Sending,
    code_of,
    sdk_log,
    translated,
)
from penstock.drivers.kafka.names import OWN, kafka_name
from penstock.drivers.kafka.records import Record, record_of
from penstock.drivers.kafka.settings import consumer_config, unit_config
from penstock.vocabulary.errors import AckRefused, Unavailable, Unconfirmed
from penstock.vocabulary.limits import BODY_BYTES_MAX, MIB
from penstock.vocabulary.units import UnitWish

if TYPE_CHECKING:
    from penstock.drivers.kafka.feed import KafkaFeed

TRY_S: Final = 15.0
COMMITS_MAX: Final = 5
Offsets = list[tuple[Any, list[Any]]]
"""(the group as its member sees it, what to commit)."""


class Doubt(Exception):
    """A transaction whose end nobody knows."""


def transact(
    producer: Any, parts: list[tuple[str, list[Record]]], offsets: Offsets, sending: Sending | None
) -> None:
    """One transaction, in a thread. Raises KafkaException: nothing of it happened; Doubt."""
    try:
        producer.begin_transaction()
        at = 0
        for topic, records in parts:
            for key, value, headers in records:
                assert sending is not None
                producer.produce(
                    topic, value, key, on_delivery=partial(sending.report, at), headers=headers
                )
                at += 1
        if parts:
            producer.flush(TRY_S)
        for group, places in offsets:
            producer.send_offsets_to_transaction(places, group, TRY_S)
    except (KafkaException, BufferError):
        with suppress(KafkaException):
            producer.abort_transaction(TRY_S)
        raise
    _commit(producer)


def _commit(producer: Any) -> None:
    for tries_left in reversed(range(COMMITS_MAX)):
        try:
            producer.commit_transaction(TRY_S)
        except KafkaException as error:
            inner = error.args[0]
            if inner.txn_requires_abort():
                producer.abort_transaction(TRY_S)
                raise
            if inner.retriable() and tries_left:
                continue
            raise Doubt(str(inner)) from error
        return


class KafkaUnits:
    """The part of a carrier that commits units."""

    link: Link

    def __init__(self) -> None:
        super().__init__()
        self._unit_lock = Lock()
        self._unit_producer: Any = None

    async def close_units(self) -> None:
        """Ends the producer of transactions."""
        producer, self._unit_producer = self._unit_producer, None
        await end_producer(self.link, producer)

    def check_bodies(self, topic: str, letters: list[Letter]) -> None:
        """Raises Unsupported for what a topic cannot store."""
        raise NotImplementedError

    def note_ended(self, topic: str, partition: int, end: int) -> None:
        """A unit of this client has ended; what it stored in this partition lies below `end`."""
        raise NotImplementedError

    async def commit(
        self, wish: UnitWish, parts: list[list[Letter]], acks: list[tuple[Feed, list[Letter]]]
    ) -> list[list[Placed]]:
        """Stores and finishes, all or nothing."""
        for part, letters in zip(wish.parts, parts, strict=True):
            self.check_bodies(part.topic, letters)
        records = [
            (kafka_name(part.topic), [record_of(each) for each in letters])
            for part, letters in zip(wish.parts, parts, strict=True)
        ]
        async with self._unit_lock, AsyncExitStack() as stack:
            by_feed: dict[KafkaFeed, list[Letter]] = {}
            for feed, letters in acks:
                by_feed.setdefault(cast("KafkaFeed", feed), []).extend(letters)
            for feed in by_feed:
                await stack.enter_async_context(feed.commit_lock)
            _check_held(acks)
            offsets = [await feed.offsets_without(letters) for feed, letters in by_feed.items()]
            total = sum(len(letters) for letters in parts)
            sending = Sending(total, self.link.loop) if total else None
            await self._transact(records, offsets, sending, acks)
            for feed, letters in by_feed.items():
                feed.note(letters)
        return _placed(parts, sending)

    async def _transact(
        self, records: list[tuple[str, list[Record]]], offsets: Offsets, sending: Sending | None,
        acks: list[tuple[Feed, list[Letter]]],
    ) -> None:  # fmt: skip
        producer = await self._ready()
        try:
            await self.link.loop.run_in_executor(
                self.link.pool, transact, producer, records, offsets, sending
            )
        except Doubt as error:
            await self.close_units()
            raise Unconfirmed(
                f"{self.link.where}: the unit may be committed or not: {error}"
            ) from error
        except (KafkaException, BufferError) as error:
            self._note(records, sending)
            if not isinstance(error, KafkaException) or error.args[0].fatal():
                await self.close_units()
            if code_of(error) in STALE:
                _check_held(acks)
                raise Unavailable(f"{self.link.where}: the group rebalances: {error}") from error
            raise translated(error, self.link.where) from error
        self._note(records, sending)

    def _note(self, records: list[tuple[str, list[Record]]], sending: Sending | None) -> None:
        """Committed or aborted: what was stored is hidden for a moment."""
        places = iter(sending.places if sending is not None else ())
        for topic, stored in records:
            for part, offset in islice(places, len(stored)):
                if offset >= 0:
                    self.note_ended(topic, part, offset + 1)

    async def _ready(self) -> Any:
        if self._unit_producer is None:
            self._unit_producer = await new_producer(self.link, f"{OWN}unit.{uuid4().hex}")
        return self._unit_producer

    async def commit_for(self, group: str, places: list[Any]) -> None:
        """Commits offsets for a group this client is no member of."""
        async with self._unit_lock:
            await self._transact([], [(await group_of(self.link, group), places)], None, [])


async def new_producer(link: Link, id: str) -> Any:
    """A producer of transactions under this id; whoever had it before is fenced."""
    config = link.config(unit_config(link.settings, BODY_BYTES_MAX + MIB, id))

    def make() -> Any:
        producer = Producer(config, logger=sdk_log)
        try:
            producer.init_transactions(TRY_S)
        except BaseException:
            with suppress(Exception):
                producer.close()
            raise
        return producer

    return await link.run(make)


async def end_producer(link: Link, producer: Any) -> None:
    """Ends a producer of transactions. Never raises."""
    if producer is not None:
        with suppress(Exception):
            await link.loop.run_in_executor(None, producer.close)


async def group_of(link: Link, group: str) -> Any:
    """A group as nobody in particular sees it."""

    def make() -> Any:
        consumer = Consumer(link.config(consumer_config(link.settings, group)), logger=sdk_log)
        try:
            return consumer.consumer_group_metadata()
        finally:
            consumer.close()

    return await link.run(make)


def _check_held(acks: list[tuple[Feed, list[Letter]]]) -> None:
    moved = [
        (number, at, "its partition went to another consumer")
        for number, (feed, letters) in enumerate(acks)
        for at in cast("KafkaFeed", feed).moved(letters)
    ]
    if moved:
        raise AckRefused("some acks of the unit came too late", refused=moved)


def _placed(parts: list[list[Letter]], sending: Sending | None) -> list[list[Placed]]:
    found: list[list[Placed]] = []
    at = 0
    for letters in parts:
        places = sending.places[at : at + len(letters)] if sending is not None else []
        found.append(
            [Placed(offset, f"{part}:{offset}", partition=part) for part, offset in places]
        )
        at += len(letters)
    return found
