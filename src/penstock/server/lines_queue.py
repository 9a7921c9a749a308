"""One client's queue of one topic: what is in flight, and what `ack` and `nack` mean by an id."""

from collections.abc import Callable
from typing import Any, Final

from penstock.batch import Batch
from penstock.batch.frame import Frame, Slice
from penstock.batch.shown import json_text
from penstock.broker.broker import Broker, Sink
from penstock.broker.first_use import join_existing
from penstock.broker.mailbox import DIRECT, Mailbox
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.limits import MIB
from penstock.vocabulary.records import Cause, Ranges
from penstock.wire.line_reply import delivery, shown_id

BEGINNING: Final = "line."
"""What the names of the subscriptions of line clients begin with."""
RENEWALS_PER_LEASE: Final = 3
ANONYMOUS: Final = "~"
"""What the id of a client that gave none begins with."""


class Flying:
    """An event that was handed to a client and is not settled."""

    __slots__ = (
        "_frame", "_index", "attempt", "bytes", "id", "is_begun", "is_gone", "lease_id", "offset",
        "partition", "queue",
    )  # fmt: skip

    def __init__(self, queue: "LineQueue", part: Slice, frame: Frame, at: int) -> None:
        self.queue = queue
        self.lease_id = part.lease_id
        self.partition = part.partition
        self.attempt = part.attempt
        self.offset = frame.offsets[at]
        self._frame: Frame | None = frame
        self._index = frame.indexes[at]
        view = queue.views.of(frame)
        self.id = frame.id_of(view, self._index)
        self.bytes = len(view.bodies[self._index] or b"")
        self.is_begun = False
        """It was written to the client."""
        self.is_gone = False
        """It is not this client's any more."""

    def line(self) -> bytes:
        """The delivery, once; from now on the client has it, and its bytes are let go here."""
        self.is_begun = True
        frame, self._frame = self._frame, None
        assert frame is not None, "an event is written once"
        view, index = self.queue.views.of(frame), self._index
        priority = 0 if view.priorities is None else view.priorities[index]
        return delivery(self.queue.topic_json, self.id, priority, view.bodies[index])


class Views:
    """The batches looked at lately: one event at a time is taken out of each."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, Batch]] = {}

    def of(self, frame: Frame) -> Batch:
        """The batch of a frame, opened."""
        number = id(frame.batch)
        known = self._known.get(number)
        if known is None or known[0] is not frame.batch:
            if len(frame.batch) > VIEW_BYTES_MAX:
                return Batch(frame.batch, verify=False)
            if len(self._known) >= VIEWS_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[number] = (frame.batch, Batch(frame.batch, verify=False))
        return known[1]


VIEWS_MAX: Final = 16
VIEW_BYTES_MAX: Final = 1 * MIB


class LineQueue:
    """One subscription of a line client, joined. Used on the listener's loop only."""

    def __init__(
        self, broker: Broker, mailbox: Mailbox, topic: str, client_id: str, credit: int,
        views: Views,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.topic_json = json_text(topic)
        self.subscription = BEGINNING + client_id
        self.views = views
        self.on_event: Callable[[Flying], None] = _nobody
        self.on_closed: Callable[[LineQueue, Exception], None] = _nobody
        self._broker = broker
        self._mailbox = mailbox
        self._client_id = client_id
        self._credit = credit
        self._renew_at = 0.0
        self._consumer: Any = None
        self._flying: dict[tuple[int, int], Flying] = {}

    @property
    def in_flight(self) -> int:
        """Events that are with the client."""
        return len(self._flying)

    def join(self) -> None:
        """Begins. Raises UnknownTopic, and what `Broker.attach` raises."""
        sink = Sink(self._mailbox, self._arrived, self._closed)
        self._consumer = join_existing(
            self._broker, self.topic, self.subscription, "latest", self._credit, self._client_id,
            sink,
        )  # fmt: skip

    def held_ids(self) -> dict[str, str]:
        """Position and id of each event that is with the client."""
        return {f"{partition}:{at}": each.id for (partition, at), each in self._flying.items()}

    # -- settling --------------------------------------------------------------------------------

    def find(self, id: str) -> Flying | None:
        """The event in flight with this id, as it is or as a delivery shows it."""
        for flying in self._flying.values():
            known = flying.id
            if id == known or ("\\" in id and id == shown_id(known)):
                return flying
        return None

    def take(self, id: str) -> Flying | None:
        """The same, to be settled next: from now on nobody finds it."""
        flying = self.find(id)
        if flying is not None:
            self._forget(flying)
        return flying

    def ack(self, taken: list[Flying]) -> list[str]:
        """Finishes events; says of each why not, or nothing. Durable with the next flush."""
        refused = self._broker.ack(self._consumer, [self._claim(flying) for flying in taken])
        if not refused:
            return [""] * len(taken)
        why = {(each.partition, each.offset): each.why for each in refused}
        return [why.get((flying.partition, flying.offset), "") for flying in taken]

    def nack(self, taken: Flying) -> str:
        """Lets an event come again later; returns why not, or nothing."""
        claim = self._claim(taken)
        refused = self._broker.give_back(self._consumer, claim, Cause.NACKED, None, "nack")
        return refused[0].why if refused else ""

    def renew(self, now: float) -> None:
        """What the client holds stays with it: people think longer than a lease."""
        if self._flying and now >= self._renew_at:
            lease_s = self._consumer.subscription.policy.lease_s
            self._renew_at = now + lease_s / RENEWALS_PER_LEASE
            leases = {flying.lease_id for flying in self._flying.values()}
            self._broker.extend(self._consumer, [(lease, 0, None) for lease in leases], None)

    def leave(self, *, is_clean: bool) -> None:
        """Ends; an event in flight comes again to whoever joins next.

        `is_clean`: the client ended it in good order, which is no attempt that failed.
        """
        begun: dict[int, Ranges] = {}
        for flying in self._flying.values():
            flying.is_gone = True
            if flying.is_begun:
                place = (flying.offset, flying.offset + 1)
                begun[flying.lease_id] = (*begun.get(flying.lease_id, ()), place)
        self._flying.clear()
        self.on_event = self.on_closed = _nobody
        self._broker.detach(self._consumer, begun, DIRECT, _nobody, is_clean=is_clean)

    def _claim(self, flying: Flying) -> Claim:
        place = ((flying.offset, flying.offset + 1),)
        return Claim(flying.lease_id, flying.partition, flying.attempt, place)

    def _forget(self, flying: Flying) -> None:
        flying.is_gone = True
        self._flying.pop((flying.partition, flying.offset), None)

    # -- what the broker says --------------------------------------------------------------------

    def _arrived(self, part: Slice) -> None:
        if not part.frames:  # The lease is void: the subscription was moved.
            for flying in [f for f in self._flying.values() if f.lease_id == part.lease_id]:
                self._forget(flying)
            return
        for frame in part.frames:
            for at, offset in enumerate(frame.offsets):
                flying = Flying(self, part, frame, at)
                older = self._flying.get((part.partition, offset))
                if older is not None:
                    older.is_gone = True
                self._flying[part.partition, offset] = flying
                self.on_event(flying)

    def _closed(self, error: Exception) -> None:
        self.on_closed(self, error)


def _nobody(*_: Any) -> None:
    """Nobody listens any more."""
