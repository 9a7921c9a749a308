"""What a damaged store may still say, worked out from the whole one.

A record is hurt when a byte of it changed. Only what hurt records told may be lost, all of it
must be reported, and nothing may differ when no record is hurt.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.batch import Batch
from penstock.batch.frame import Frame, frame_of
from penstock.broker.broker import Broker
from penstock.delivery import counts
from penstock.delivery.state import Partition
from penstock.journal import group, salvage
from penstock.journal.memory import MemoryDisk
from penstock.journal.record import decode
from penstock.vocabulary.records import (
    Copied,
    Lost,
    Published,
    Record,
    Removed,
    Returned,
    Settled,
    SubscriptionCreated,
    SubscriptionDeleted,
    TopicCreated,
    TopicDeleted,
    Unit,
)
from tests.crash.damage_cases import Case
from tests.crash.damage_store import Files, Stage

Spot = tuple[int, int, int]
"""Topic id, partition, offset."""
Content = tuple[Any, ...]


class Placed(NamedTuple):
    """A record and the bytes it takes in its file."""

    name: str
    start: int
    end: int
    parts: tuple[Record, ...]


class Cursors(NamedTuple):
    """One subscription, as far as damage may change it."""

    unfinished: frozenset[tuple[int, int]]
    """(partition, offset) not finished yet."""
    counted: dict[str, int]


class Picture(NamedTuple):
    """Everything a broker can tell."""

    messages: dict[Spot, Content]
    subscriptions: dict[tuple[int, int], Cursors]
    topics: dict[int, str]
    missing: frozenset[Spot]
    """Held, as far as the broker knows, and not readable."""


def picture(broker: Broker) -> Picture:
    """What this broker can tell, read through its own doors."""
    messages: dict[Spot, Content] = {}
    missing: set[Spot] = set()
    for topic in broker.state.topics.values():
        for partition in topic.partitions:
            messages.update(_read(broker, partition, missing))
    subscriptions = {
        (s.topic.id, s.id): Cursors(
            frozenset(
                (c.partition.index, offset)
                for c in s.cursors
                for low, high in c.done.gaps(c.done.floor, c.partition.next_offset)
                for offset in range(low, high)
            ),
            _counted(counts.count(s)),
        )
        for s in broker.state.subscriptions.values()
    }
    topics = {topic.id: topic.name for topic in broker.state.topics.values()}
    return Picture(messages, subscriptions, topics, frozenset(missing))


def _counted(found: counts.Counts) -> dict[str, int]:
    names = ("attached", "acked", "waiting", "delayed", "dead", "dropped")
    return {name: getattr(found, name) for name in names}


def _read(
    broker: Broker, partition: Partition, missing: set[Spot]
) -> Iterator[tuple[Spot, Content]]:
    number, index = partition.topic.id, partition.index
    for low, high in list(partition.released.gaps(0, partition.next_offset)):
        frames, lost = broker.engine.read(partition, low, high)
        missing |= {(number, index, offset) for a, b in lost for offset in range(a, b)}
        for frame in frames:
            yield from contents(frame, number, index)


def contents(frame: Frame, topic_id: int, partition: int) -> Iterator[tuple[Spot, Content]]:
    """Each message of a frame: where it is, and everything it says."""
    view = Batch(frame.batch)
    for offset, at in zip(frame.offsets, frame.indexes, strict=True):
        content = (
            view.bodies[at],
            view.keys[at] if view.keys is not None else None,
            frame.id_of(view, at),
            view.headers[at] if view.headers is not None else None,
            frame.published_at_of(view, at),
        )
        yield (topic_id, partition, offset), content


class Truth:
    """The whole store, and what may follow from breaking it."""

    def __init__(self, stages: list[Stage], chosen: Stage, whole: Picture) -> None:
        self.image = chosen.image
        self.whole = whole
        self.placed = list(_placed(chosen.image))
        self.ever = dict(whole.messages)
        """Every message ever published, also those finished since."""
        for stage in stages:
            for each in _placed(stage.image):
                for part in each.parts:
                    if isinstance(part, Published | Copied):
                        frame = frame_of(part, 0, 1 << 60)
                        for spot, content in contents(frame, part.topic_id, part.partition):
                            self.ever.setdefault(spot, content)

    def hurt(self, case: Case) -> list[Placed]:
        """The records of which a byte changed."""
        found: list[Placed] = []
        for name, fresh in case.changes.items():
            old = self.image[name]
            mine = [each for each in self.placed if each.name == name]
            if fresh is None:
                found += mine
                continue
            found += [e for e in mine if old[e.start : e.end] != fresh[e.start : e.end]]
        return found

    def intact(self, hurt: list[Placed]) -> set[Spot]:
        """Held messages of which at least one record is whole."""
        gone = set(map(id, hurt))
        whole = [each for each in self.placed if id(each) not in gone]
        spots = {spot for each in whole for part in each.parts for spot in _holds(part)}
        return spots & self.whole.messages.keys()

    def resurrected(self, found: Picture, hurt: list[Placed]) -> Iterator[str]:
        """Messages a subscription had finished and has to do again without a reason."""
        parts = [part for each in hurt for part in each.parts]
        for key, before in self.whole.subscriptions.items():
            after = found.subscriptions.get(key)
            for partition, offset in after.unfinished - before.unfinished if after else ():
                spot = (key[0], partition, offset)
                if not any(_finishes(part, spot) for part in parts):
                    yield f"subscription {key} has to do {spot} again"

    def problems(self, now: Picture, hurt: list[Placed]) -> Iterator[str]:
        """What this picture says that it may not, after these records were hurt."""
        parts = [part for each in hurt for part in each.parts]
        yield from self._messages(now, parts)
        yield from self._subscriptions(now, parts)
        if set(self.whole.topics) - set(now.topics) - _created(parts, TopicCreated):
            yield f"topics {self.whole.topics} became {now.topics}"
        if now != self.whole and not hurt:
            yield "something differs although no record is hurt"

    def _messages(self, now: Picture, parts: list[Record]) -> Iterator[str]:
        may_lose = {spot for part in parts for spot in _holds(part)}
        for spot, content in self.whole.messages.items():
            if spot not in now.messages and spot not in may_lose:
                yield f"collateral: message {spot} is gone and none of its records is hurt"
            elif now.messages.get(spot, content) != content:
                yield f"wrong: message {spot} is {now.messages[spot]}, should be {content}"
        for spot in now.messages.keys() - self.whole.messages.keys():
            if self.ever.get(spot) != now.messages[spot]:
                yield f"wrong: message {spot} is {now.messages[spot]} and never was"
            elif not any(_finishes(part, spot) for part in parts):
                yield f"message {spot} is back although nothing that finished it is hurt"

    def _subscriptions(self, now: Picture, parts: list[Record]) -> Iterator[str]:
        gone = {spot for part in parts for spot in _holds(part)}
        for key, before in self.whole.subscriptions.items():
            after = now.subscriptions.get(key)
            if after is None:
                if key[1] not in _created(parts, SubscriptionCreated):
                    yield f"subscription {key} is gone"
                continue
            for partition, offset in before.unfinished ^ after.unfinished:
                spot = (key[0], partition, offset)
                if spot not in gone and not any(_finishes(part, spot) for part in parts):
                    yield f"subscription {key} changed its mind about {spot}"


def unexplained(broker: Broker) -> int:
    """Messages no count explains, over all subscriptions."""
    found = broker.state.subscriptions.values()
    return sum(abs(counts.unexplained(counts.count(each))) for each in found)


def _placed(image: Files) -> Iterator[Placed]:
    found = salvage.survey(MemoryDisk.from_image(image))
    for segment in found.places().values():
        for stretch in salvage.scan(segment):
            for position, rec in stretch.rows:
                start = position & salvage.BYTE
                record = decode(rec)
                parts = record.records if isinstance(record, Unit) else (record,)
                end = start + group.RECORD_OVERHEAD + len(rec)
                yield Placed(segment.file.name, start, end, parts)


def _holds(part: Record) -> list[Spot]:
    if isinstance(part, Published):
        return [(part.topic_id, part.partition, o) for o in range(part.base, part.end)]
    if isinstance(part, Copied):
        return [(part.topic_id, part.partition, o) for o in part.offsets]
    return []


def _finishes(part: Record, spot: Spot) -> bool:
    if isinstance(part, TopicDeleted | SubscriptionDeleted):
        return part.topic_id == spot[0]
    if not isinstance(part, Settled | Removed | Lost | Returned):
        return False
    is_here = (part.topic_id, part.partition) == spot[:2]
    return is_here and any(low <= spot[2] < high for low, high in part.ranges)


def _created(parts: list[Record], kind: Any) -> set[int]:
    return {
        part.subscription_id if kind is SubscriptionCreated else part.topic_id
        for part in parts
        if isinstance(part, kind)
    }
