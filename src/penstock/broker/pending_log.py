"""The log of a topic: for each subscription, what it has not finished, in the order it comes."""

from collections.abc import Iterator
from typing import Any

from penstock.batch import Batch
from penstock.batch.frame import Frame
from penstock.batch.shown import value_of
from penstock.broker.looking import Looking
from penstock.delivery import admin
from penstock.delivery.state import Cursor, Partition, Subscription
from penstock.delivery.unfinished import Unfinished, with_queues
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.limits import OUT_BYTES_MAX, TOPIC_LOG_MAX

Log = dict[str, list[dict[str, Any]]]
Place = tuple[int, int]
"""Partition and offset."""
STEP = 256
"""So many messages are read before it is asked again whether there is room for more."""


def topic_log(broker: Looking, topic_name: str, limit: int) -> Log:
    """At most `limit` messages of each subscription, and not many more than OUT_BYTES_MAX in all.

    Raises UnknownTopic, InvalidArgument.
    """
    if not 1 <= limit <= TOPIC_LOG_MAX:
        raise InvalidArgument(f"limit must be 1…{TOPIC_LOG_MAX}, not {limit}")
    with broker.engine.lock:
        topic = admin.find_topic(broker.state, topic_name)
        subscriptions = with_queues(topic)
    shelf = _Shelf(broker, topic.partitions)
    return {
        each.name: list(shelf.events(_first_places(broker, each, limit))) for each in subscriptions
    }


def _first_places(
    broker: Looking, subscription: Subscription, limit: int
) -> list[tuple[int, Place]]:
    """(priority, place) of the first messages; of equal ones, the older of a partition first."""
    rows: list[tuple[int, int, int]] = []
    for cursor in list(subscription.cursors):
        rows += [
            (-level, offset, cursor.partition.index)
            for level, offset in _of_cursor(broker, cursor, limit)
        ]
    rows.sort()
    return [(-level, (partition, offset)) for level, offset, partition in rows[:limit]]


def _of_cursor(broker: Looking, cursor: Cursor, limit: int) -> list[tuple[int, int]]:
    unfinished = Unfinished(cursor, limit)
    while True:
        with broker.engine.lock:
            if not unfinished.look():
                return unfinished.rows()


class _Shelf:
    """Messages read once, however many subscriptions have them."""

    def __init__(self, broker: Looking, partitions: list[Partition]) -> None:
        self._broker = broker
        self._partitions = partitions
        self._read: dict[Place, dict[str, Any]] = {}
        self._left_bytes = OUT_BYTES_MAX

    def events(self, rows: list[tuple[int, Place]]) -> Iterator[dict[str, Any]]:
        """The messages at these places; what was finished meanwhile is left out."""
        for at in range(0, len(rows), STEP):
            part = rows[at : at + STEP]
            missing = sorted(place for _, place in part if place not in self._read)
            if missing and self._left_bytes <= 0:
                return
            for index, start, end in _runs(missing):
                frames, _ = self._broker.engine.read(self._partitions[index], start, end)
                for frame in frames:
                    self._keep(index, frame)
            for level, place in part:
                found = self._read.get(place)
                if found is not None:
                    yield {"timestamp": found["timestamp"], "priority": level, **found}

    def _keep(self, partition: int, frame: Frame) -> None:
        view = Batch(frame.batch, verify=False)
        for offset, index in zip(frame.offsets, frame.indexes, strict=True):
            body = view.bodies[index]
            self._left_bytes -= len(body or b"")
            self._read[partition, offset] = {
                "timestamp": frame.published_at_of(view, index),
                "msg": value_of(body),
                "id": frame.id_of(view, index),
            }


def _runs(places: list[Place]) -> Iterator[tuple[int, int, int]]:
    """(partition, start, end) of places that lie one behind the other."""
    run: tuple[int, int, int] | None = None
    for partition, offset in places:
        if run is not None and (partition, offset) == (run[0], run[2]):
            run = (*run[:2], offset + 1)
        else:
            if run is not None:
                yield run
            run = (partition, offset, offset + 1)
    if run is not None:
        yield run
