"""`pub` lines on their way to the broker: gathered into batches, numbered, answered in order.

All connections of a listener publish as one publisher: a line client never sends a batch twice,
so that the broker needs to know only how far the listener got in each topic.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from penstock.batch import Columns, encode_columns
from penstock.batch.encode import key_hashes
from penstock.broker.broker import Broker
from penstock.broker.first_use import topic_to_publish
from penstock.broker.mailbox import Mailbox
from penstock.vocabulary.errors import PenstockError, PublisherForgotten, StaleMap
from penstock.vocabulary.policy import OnDuplicate, TopicPolicy
from penstock.wire.line_event import Event
from penstock.wire.line_reply import error_line

ROUTES_MAX: Final = 100_000
"""Topics whose numbers are remembered; all are given up under a new epoch when there are more."""
POLICY: Final = TopicPolicy(on_duplicate=OnDuplicate.REPLACE)
"""Of topics that a line makes."""
TRIES_MAX: Final = 10
"""A topic that grows again and again while something is published to it is given up."""


class Run:
    """`pub` lines that came one behind the other: the replies to all of them, in order."""

    __slots__ = ("_waiting", "lines", "on_done")

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        """What is said when all goes well, and what was refused at once."""
        self.on_done: Callable[[], None] = _nobody
        self._waiting = 0

    @property
    def is_done(self) -> bool:
        """True when nothing of it is under way."""
        return not self._waiting

    def begin(self) -> None:
        """One more batch is under way."""
        self._waiting += 1

    def end(self) -> None:
        """A batch is answered."""
        self._waiting -= 1
        if not self._waiting:
            self.on_done()


class Load(NamedTuple):
    """Events of one topic: each with the place of its reply in the run."""

    places: list[int]
    events: list[Event]


class _Route:
    """How far the listener got in one topic."""

    __slots__ = ("epoch", "sequences")

    def __init__(self, epoch: int, partitions: int) -> None:
        self.epoch = epoch
        self.sequences = [0] * partitions


class LinePublisher:
    """The publisher of a listener. Used on its loop only."""

    def __init__(self, broker: Broker, mailbox: Mailbox) -> None:
        self._broker = broker
        self._mailbox = mailbox
        drawn = bytearray(os.urandom(16))
        drawn[0] &= 0xFE  # a generated id, which the broker forgets some day
        self._id = bytes(drawn)
        self._epoch = 0
        self._routes: dict[str, _Route] = {}
        self.published = 0

    def publish(self, run: Run, topic: str, load: Load, tries: int = TRIES_MAX) -> None:
        """Stores events; the run is told. Nothing is raised: errors become replies."""
        run.begin()
        try:
            partitions = topic_to_publish(self._broker, topic, POLICY)
            for partition, part in _split(load, partitions):
                self._send(run, topic, part, partition, partitions, tries)
        except PenstockError as error:
            _refuse(run, topic, load, error)
        run.end()

    def _send(
        self, run: Run, topic: str, load: Load, partition: int, partitions: int, tries: int
    ) -> None:
        def answer(stored: Any) -> None:
            if isinstance(stored, StaleMap) and tries:
                self.publish(run, topic, load, tries - 1)
            elif isinstance(stored, PenstockError):
                _refuse(run, topic, load, stored)
            else:
                self.published += len(load.events)
            run.end()

        ids, priorities, bodies = zip(*load.events, strict=True)
        batch = encode_columns(
            Columns(bodies=list(bodies), ids=list(ids), priorities=list(priorities))
        )
        run.begin()
        try:
            self._number(topic, partition, partitions, batch, len(ids), answer)
        except PenstockError as error:
            answer(error)

    def _number(
        self, topic: str, partition: int, partitions: int, batch: bytes, count: int,
        answer: Callable[[Any], None],
    ) -> None:  # fmt: skip
        route = self._route(topic, partitions)
        publish = self._broker.publish
        try:
            sequence = route.sequences[partition]
            publish(
                topic, partition, batch, count, self._id, route.epoch, sequence, self._mailbox,
                answer, partitions,
            )  # fmt: skip
        except PublisherForgotten:
            # The topic was made again, or nothing came for days. Each batch is sent once only, so
            # that nothing can be stored twice by beginning anew.
            self._epoch += 1
            route = self._routes[topic] = _Route(self._epoch, partitions)
            sequence = 0
            publish(
                topic, partition, batch, count, self._id, route.epoch, 0, self._mailbox, answer,
                partitions,
            )  # fmt: skip
        route.sequences[partition] = sequence + count

    def _route(self, topic: str, partitions: int) -> _Route:
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= ROUTES_MAX:
                # A later return to these topics must not repeat numbers.
                self._routes.clear()
                self._epoch += 1
            route = self._routes[topic] = _Route(self._epoch, partitions)
        elif len(route.sequences) < partitions:
            route.sequences += [0] * (partitions - len(route.sequences))
        return route


def _split(load: Load, partitions: int) -> Sequence[tuple[int, Load]]:
    """The events by partition, which their ids choose."""
    if partitions == 1:
        return [(0, load)]
    parts: dict[int, Load] = {}
    hashes = key_hashes([event.id for event in load.events])
    for place, event, number in zip(load.places, load.events, hashes, strict=True):
        part = parts.setdefault(number % partitions, Load([], []))
        part.places.append(place)
        part.events.append(event)
    return list(parts.items())


def _refuse(run: Run, topic: str, load: Load, error: PenstockError) -> None:
    line = error_line(error, topic)
    for place in load.places:
        run.lines[place] = line


def _nobody() -> None:
    """Nobody waits for this run yet."""
