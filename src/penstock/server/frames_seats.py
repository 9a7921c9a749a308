"""Consumers of one connection: where their slices go, and how they join, leave and are lost."""

import logging
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from penstock.batch.frame import Slice
from penstock.broker.broker import Broker, Sink
from penstock.broker.following import Follower, Wanted
from penstock.broker.following import Seat as BrokerSeat
from penstock.broker.mailbox import DIRECT
from penstock.vocabulary.claims import Claim, Refusal, Renewal, Returning, Revoked
from penstock.vocabulary.errors import Closed, Draining, PenstockError, Unavailable
from penstock.vocabulary.records import Cause, Ranges
from penstock.vocabulary.wishes import Wish
from penstock.wire import frames, frames_claims
from penstock.wire.frames import Type
from penstock.wire.frames_errors import encode_error
from penstock.wire.frames_slices import slice_frames

if TYPE_CHECKING:
    from penstock.server.frames_session import Session

log = logging.getLogger("penstock.server")

LEG_CHANNELS: Final = 1 << 31
"""Channels that the server chose, for the topics of patterns, begin here."""


class Seat:
    """One consumer. Slices wait until the client knows about it."""

    def __init__(self, session: "Session", channel: int, wish: Wish) -> None:
        self.channel = channel
        self.consumer: Any = None
        self._session = session
        self._wish = wish
        self._early: list[Callable[[], None]] | None = []
        self._is_left = False
        self.granted = 0
        """Bytes it may have unsettled."""

    # -- joining ---------------------------------------------------------------------------------

    def sink(self) -> Sink:
        """Where the broker puts messages and news."""
        mailbox = self._session.mailbox
        return Sink(mailbox, self._on_slice, self._on_closed, self._on_revoked)

    def join(self, broker: Broker) -> Any:
        """Attaches; returns the consumer. In a thread that may wait."""
        return join(broker, self._wish, self.granted, self.sink())

    def joined(self, found: Any) -> None:
        """The broker's answer. On the loop."""
        session = self._session
        if isinstance(found, BaseException):
            session.forget(self)
            session.fail(self.channel, found)
            return
        self.consumer = found
        if self._is_left or session.is_ended:
            session.forget(self)
            self._leave({}, is_clean=self._is_left)
            return
        attached = frames_claims.encode_attached(self.attached())
        session.send(frames.frame(Type.ATTACHED, self.channel, attached))
        self.announce()

    def attached(self) -> frames_claims.Attached:
        """What the client is told about it."""
        consumer = self.consumer
        lease_s = float(consumer.subscription.policy.lease_s)
        return frames_claims.Attached(consumer.id, lease_s, consumer.kept or [])

    def announce(self) -> None:
        """The client knows: what waited goes out."""
        early, self._early = self._early, None
        for call in early or ():
            call()

    # -- from the broker, on the loop ------------------------------------------------------------

    def _on_slice(self, part: Slice) -> None:
        if self._early is not None:
            self._early.append(lambda: self._on_slice(part))
            return
        self._session.send_pieces(slice_frames(Type.SLICE, self.channel, part))

    def _on_revoked(self, news: Revoked) -> None:
        if self._early is not None:
            self._early.append(lambda: self._on_revoked(news))
            return
        self._session.send(
            frames.frame(Type.REVOKED, self.channel, frames_claims.encode_revoked(news))
        )

    def _on_closed(self, error: Any) -> None:
        if self._early is not None:
            self._early.append(lambda: self._on_closed(error))
            return
        if isinstance(error, Closed | Draining) and self._session.is_draining:
            return  # The server stops; its clients come back by themselves.
        self._session.send(frames.frame(Type.CLOSED, self.channel, encode_error(error)))

    # -- from the client -------------------------------------------------------------------------

    def ack(self, claims: list[Claim]) -> None:
        """Finishes messages."""
        self._settle(claims, lambda: self._session.broker.ack(self.consumer, claims))

    def give_back(self, claim: Claim, cause: Cause, delay_s: float | None, reason: str) -> None:
        """Brings messages back."""
        broker = self._session.broker
        is_done = self._settle(
            [claim], lambda: broker.give_back(self.consumer, claim, cause, delay_s, reason)
        )
        if not is_done and cause is Cause.NACKED:
            self._on_revoked(Revoked(claim, ()))  # a key may stand still for it

    def _settle(self, claims: list[Claim], settle: Callable[[], list[Refusal]]) -> bool:
        partitions = len(self.consumer.subscription.cursors)
        is_done = False
        try:
            if max(claim.partition for claim in claims) >= partitions:
                raise Unavailable("the topic was created again with fewer partitions")
            refused = settle()
            is_done = True
        except PenstockError as error:
            refused = [
                Refusal(claim.partition, start, error.text)
                for claim in claims
                for start, _ in claim.ranges
            ]
        if refused:
            self._session.send_pieces(
                frames.frame_of(Type.REFUSED, self.channel, [frames_claims.encode_refused(refused)])
            )
        return is_done

    def extend(self, renewals: list[Renewal], seconds: float) -> None:
        """Gives messages more time."""
        self._session.broker.extend(self.consumer, renewals, seconds)

    def detach(self, begun: dict[int, Ranges]) -> None:
        """The client leaves in good order; DONE when that is durable."""
        self._is_left = True
        if self.consumer is None:
            # Still joining: it was cancelled.
            self._session.done(self.channel, None)
            return
        self._session.forget(self)
        session, channel = self._session, self.channel
        session.broker.detach(
            self.consumer, begun, session.mailbox, lambda answer: session.done(channel, answer)
        )

    def _leave(self, begun: dict[int, Ranges], *, is_clean: bool) -> None:
        self._session.broker.detach(self.consumer, begun, DIRECT, _nothing, is_clean=is_clean)

    def lose(self, *, is_final: bool) -> None:
        """The connection ended; `is_final`: nobody will return."""
        if self.consumer is None:
            return
        if is_final:
            self._leave({}, is_clean=False)
        else:
            self._session.broker.lose(self.consumer)


def join(broker: Broker, wish: Wish, credit_bytes: int, sink: Sink) -> Any:
    """Attaches a consumer, which may have been attached before."""
    return broker.attach(
        wish.topic, wish.subscription, wish.policy, wish.start, wish.credit, credit_bytes,
        wish.consumer, sink, is_named=wish.is_named, returning=wish.returning,
    )  # fmt: skip


# -- patterns ------------------------------------------------------------------------------------


class Pattern:
    """One consumer of a pattern: a seat for each topic, on channels the server chooses."""

    def __init__(
        self, session: "Session", number: int, wish: Wish, legs: dict[str, Returning]
    ) -> None:
        self.number = number
        self._session = session
        self._wish = wish
        self._legs = legs
        self._follower: Follower | None = None
        self._is_left = False
        self._channels = count()

    def join(self, broker: Broker) -> Follower:
        """Follows the pattern. In a thread that may wait."""
        wish = self._wish
        granted = self._session.leg_bytes(wish.credit_bytes)
        wanted = Wanted(
            wish.topic, wish.subscription, wish.policy, wish.start, wish.credit, granted,
            wish.consumer, self._legs, wish.is_named,
        )  # fmt: skip
        return broker.follow(wanted, self._seat, self._session.mailbox, self._on_closed)

    def _seat(self, topic: str) -> BrokerSeat:
        """Called under the broker's lock, in any thread."""
        session = self._session
        seat = Seat(session, session.leg_channel(), self._wish._replace(topic=topic))

        def joined(consumer: Any) -> None:
            seat.consumer = consumer
            session.mailbox.post([(self._on_joined, (topic, seat))])

        return BrokerSeat(seat.sink(), joined)

    def _on_joined(self, found: tuple[str, Seat]) -> None:
        topic, seat = found
        session = self._session
        if session.is_ended or self._is_left:
            seat.lose(is_final=True)
            return
        session.seats[seat.channel] = seat
        joined = frames_claims.Joined(topic, seat.channel, seat.attached())
        payload = frames_claims.encode_joined(joined)
        session.send(frames.frame(Type.JOINED, self.number, payload))
        seat.announce()

    def joined(self, found: Any) -> None:
        """The broker's answer. On the loop."""
        session = self._session
        if isinstance(found, BaseException):
            session.patterns.pop(self.number, None)
            session.fail(self.number, found)
            return
        self._follower = found
        if self._is_left or session.is_ended:
            self.leave()
            return
        session.send(frames.frame(Type.FOLLOWED, self.number))

    def _on_closed(self, error: Any) -> None:
        if isinstance(error, Closed | Draining) and self._session.is_draining:
            return
        self._session.send(frames.frame(Type.CLOSED, self.number, encode_error(error)))

    def leave(self) -> None:
        """No more topics join."""
        self._is_left = True
        self._session.patterns.pop(self.number, None)
        if self._follower is not None:
            self._follower.leave()


def _nothing(_answer: Any = None) -> None:
    """Nobody waits for this."""
