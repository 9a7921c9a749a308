"""What the frames of one connection mean: each type of frame is one call of the broker.

Calls that wait for the disk run in the listener's threads; all others run on its loop. Answers come
back through the listener's mailbox, in the order the broker gave them.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.batch.untrusted import check_untrusted
from penstock.broker.asking import answer_request
from penstock.broker.introducing import introduce, introduce_unit
from penstock.server.frames_limits import BEHIND_MAX
from penstock.server.frames_seats import LEG_CHANNELS, Pattern, Seat
from penstock.vocabulary import limits
from penstock.vocabulary import requests as q
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import (
    AckRefused,
    PenstockError,
    ProtocolError,
    PublisherForgotten,
    Unavailable,
)
from penstock.wire import frames, frames_asks, frames_claims, frames_publish
from penstock.wire.frames import RECENT, Type
from penstock.wire.frames_errors import encode_error
from penstock.wire.frames_publish import Publish, UnitFrame

if TYPE_CHECKING:
    from penstock.server.frames_connection import Connection

log = logging.getLogger("penstock.server")

Handler = Callable[["Session", int, int, memoryview], None]
Place = tuple[str, int, bytes]
"""Topic, partition and publisher."""


class Session:
    """A client that said HELLO."""

    def __init__(self, connection: "Connection", name: str) -> None:
        listener = connection.listener
        self.name = name
        self.broker = listener.broker
        self.mailbox = listener.mailbox
        self.send = connection.send
        self.send_pieces = connection.send_pieces
        self.seats: dict[int, Seat] = {}
        self.patterns: dict[int, Pattern] = {}
        self.is_ended = False
        self._is_final = False
        self._connection = connection
        self._listener = listener
        self._attachments = 0
        self._granted = 0
        self._asks = 0
        self._refusals = 0
        self._behind: dict[Place, int] = {}
        """Where something was refused, and the number of that refusal."""
        self._settled = 0
        self._is_confirming = False
        self._leg_channels = LEG_CHANNELS

    @property
    def is_draining(self) -> bool:
        """True while the server stops."""
        return self._listener.is_draining

    def handle(self, kind: int, flags: int, number: int, payload: memoryview) -> None:
        """One frame. Raises ProtocolError and what ends the connection."""
        HANDLERS[kind](self, flags, number, payload)

    # -- answers ---------------------------------------------------------------------------------

    def fail(self, number: int, error: BaseException) -> None:
        """Answers a request with an error."""
        if not isinstance(error, PenstockError):
            log.error("a request of %s met a defect", self._connection.peer, exc_info=error)
        self.send(frames.frame(Type.ERROR, number, encode_error(error)))

    def done(self, number: int, answer: Any) -> None:
        """Answers a flush or a detach."""
        if isinstance(answer, BaseException):
            self.fail(number, answer)
        else:
            self.send(frames.frame(Type.DONE, number))

    # -- publish ---------------------------------------------------------------------------------

    def publish(self, flags: int, number: int, payload: memoryview) -> None:
        """PUBLISH: answered STORED, ERROR or BEHIND."""
        found = frames_publish.read_publish(payload)
        place = (found.topic, found.partition, found.publisher)
        if self._behind and self._is_behind((place,), found.refusals):
            self.send(frames.frame(Type.BEHIND, number))
            return
        target = partial(self._stored, number, place)
        try:
            check_untrusted(found.batch, found.messages)
            try:
                self._publish(found, target)
            except PublisherForgotten:
                if not flags & RECENT:
                    raise
                introduce(self.broker, *place, found.epoch)
                self._publish(found, target)
        except Exception as error:  # noqa: BLE001 - the client gets whatever went wrong
            self._refuse(number, (place,), error)
        if self.broker.engine.pending_bytes > limits.PENDING_BYTES_MAX:
            self._wait_for_room()

    def _publish(self, found: Publish, target: Callable[[Any], None]) -> None:
        topic, partition, batch, count, publisher, epoch, sequence, partitions, _ = found
        try:
            self.broker.publish(
                topic, partition, batch, count, publisher, epoch, sequence, self.mailbox, target,
                partitions,
            )  # fmt: skip
        except IndexError:
            raise Unavailable(
                f"topic {topic!r} has no partition {partition}; publish once more"
            ) from None

    def _stored(self, number: int, place: Place, answer: Any) -> None:
        if isinstance(answer, BaseException):
            self._refuse(number, (place,), answer)
        else:
            self.send(frames.frame(Type.STORED, number, frames_publish.encode_stored(answer)))

    def _is_behind(self, places: tuple[Place, ...], known: int) -> bool:
        """True when something before it was refused and its sender could not know."""
        if len(self._behind) > BEHIND_MAX:
            self._behind = {p: n for p, n in self._behind.items() if n > known}
        if any(self._behind.get(place, 0) > known for place in places):
            return True
        for place in places:
            self._behind.pop(place, None)
        return False

    def _refuse(self, number: int, places: tuple[Place, ...], error: BaseException) -> None:
        self._refusals += 1
        for place in places:
            self._behind[place] = self._refusals
        self.fail(number, error)

    def _wait_for_room(self) -> None:
        connection = self._connection
        connection.hold()
        if self.broker.when_room((self.mailbox, self._has_room, None)):
            connection.go_on()

    def _has_room(self, _answer: Any) -> None:
        self._connection.go_on()

    def unit(self, flags: int, number: int, payload: memoryview) -> None:
        """UNIT: answered COMMITTED, ERROR or BEHIND."""
        found = frames_publish.decode_unit(payload)
        wish = found.wish
        places = tuple((p.topic, p.partition, wish.publisher) for p in wish.parts)
        if self._behind and self._is_behind(places, found.refusals):
            self.send(frames.frame(Type.BEHIND, number))
            return
        try:
            for part in wish.parts:
                check_untrusted(part.batch, part.count)
            claims = self._claims(found)
            target = partial(self._committed, number, places)
            try:
                self.broker.commit_unit(wish, claims, self.mailbox, target)
            except PublisherForgotten:
                if not flags & RECENT:
                    raise
                introduce_unit(self.broker, wish)
                self.broker.commit_unit(wish, claims, self.mailbox, target)
        except Exception as error:  # noqa: BLE001 - the client gets whatever went wrong
            self._refuse(number, places, error)
        if self.broker.engine.pending_bytes > limits.PENDING_BYTES_MAX:
            self._wait_for_room()

    def _claims(self, found: UnitFrame) -> list[tuple[Any, list[Claim]]]:
        claims: list[tuple[Any, list[Claim]]] = []
        for channel, listed in found.claims:
            seat = self.seats.get(channel)
            if seat is None or seat.consumer is None:
                raise AckRefused(
                    "nothing of the unit was stored: a message of it came from a subscription "
                    "that is closed here; it is delivered again",
                    refused=[
                        ("", c.partition, start, "its consumer is gone")
                        for c in listed
                        for start, _ in c.ranges
                    ],
                )
            claims.append((seat.consumer, listed))
        return claims

    def _committed(self, number: int, places: tuple[Place, ...], answer: Any) -> None:
        if isinstance(answer, BaseException):
            self._refuse(number, places, answer)
            return
        payload = frames_publish.encode_committed(answer)
        self.send(frames.frame(Type.COMMITTED, number, payload))

    def map(self, _flags: int, number: int, payload: memoryview) -> None:
        """MAP: a topic is about to be published to."""
        topic = frames_publish.decode_map(payload).topic
        try:
            found = frames_publish.TopicMap(topic, self.broker.partitions(topic))
        except PenstockError as error:
            self.fail(number, error)
            return
        self.send(frames.frame(Type.MAP, number, frames_publish.encode_map(found)))

    # -- consume ---------------------------------------------------------------------------------

    def grant(self, asked: int, *, is_leg: bool = False) -> int:
        """How many unsettled bytes one more consumer may have."""
        can = self._listener.limits
        most = min(asked, can.credit_bytes_max // 8 if is_leg else can.credit_bytes_max)
        left = can.credit_bytes_total - self._granted
        given = max(1, min(most, max(left, can.credit_bytes_min)))
        self._granted += given
        return given

    def leg_channel(self) -> int:
        """A channel for one more topic of a pattern. In any thread, under the broker's lock."""
        used = self._leg_channels - LEG_CHANNELS
        if used >= self._listener.limits.legs_max:
            raise Unavailable(
                f"the patterns of one connection match at most {used} topics; use another one"
            )
        self._leg_channels += 1
        return self._leg_channels

    def attach(self, _flags: int, number: int, payload: memoryview) -> None:
        """ATTACH: answered ATTACHED or ERROR; messages follow as SLICE."""
        wish = frames_claims.decode_wish(payload)
        most = self._listener.limits.attachments_max
        if number in self.seats or number >= LEG_CHANNELS:
            raise ProtocolError(f"channel {number} is taken")
        if self._attachments >= most:
            self.fail(number, Unavailable(f"a connection has at most {most} consumers"))
            return
        self._attachments += 1
        seat = self.seats[number] = Seat(self, number, wish)
        self._listener.run(partial(seat.join, self.broker), seat.joined)

    def forget(self, seat: Seat) -> None:
        """A consumer is not here any more."""
        if self.seats.pop(seat.channel, None) is not None and seat.channel < LEG_CHANNELS:
            self._attachments -= 1
        self._granted -= seat.granted
        seat.granted = 0

    def ack(self, _flags: int, number: int, payload: memoryview) -> None:
        """ACK: what is refused comes back as REFUSED, the rest counts in CONFIRMED."""
        claims = frames_claims.decode_claims(payload)
        seat = self.seats.get(number)
        if seat is not None and seat.consumer is not None and claims:
            seat.ack(claims)
        self._confirm()

    def give_back(self, _flags: int, number: int, payload: memoryview) -> None:
        """GIVE_BACK: as ACK; kind `key_shared` also gets REVOKED."""
        given = frames_claims.decode_give_back(payload)
        seat = self.seats.get(number)
        if seat is not None and seat.consumer is not None:
            seat.give_back(*given)
        self._confirm()

    def _confirm(self) -> None:
        """Every ack and nack counts; how many are durable is told without hurrying the disk."""
        self._settled += 1
        if not self._is_confirming:
            self._is_confirming = True
            waiter = (self.mailbox, self._confirmed, self._settled)
            self.broker.engine.after_pending(waiter, urgent=False)

    def _confirmed(self, answer: Any) -> None:
        self._is_confirming = False
        if isinstance(answer, BaseException):
            return
        self.send(frames.frame(Type.CONFIRMED, 0, frames_claims.encode_count(answer)))
        if answer < self._settled and not self.is_ended:
            self._is_confirming = True
            waiter = (self.mailbox, self._confirmed, self._settled)
            self.broker.engine.after_pending(waiter, urgent=False)

    def extend(self, _flags: int, number: int, payload: memoryview) -> None:
        """EXTEND: not answered."""
        renewals, seconds = frames_claims.decode_extend(payload)
        seat = self.seats.get(number)
        if seat is not None and seat.consumer is not None:
            seat.extend(renewals, seconds)

    def flush(self, _flags: int, number: int, _payload: memoryview) -> None:
        """FLUSH: DONE when all that came before is durable."""
        self.broker.flush(self.mailbox, partial(self.done, number))

    def detach(self, _flags: int, number: int, payload: memoryview) -> None:
        """DETACH: DONE when that is durable."""
        begun = frames_claims.decode_begun(payload)
        seat = self.seats.get(number)
        if seat is None:
            self.done(number, None)
        else:
            seat.detach(begun)

    def follow(self, _flags: int, number: int, payload: memoryview) -> None:
        """FOLLOW: JOINED for each topic, then FOLLOWED; more JOINED as topics come."""
        wish, legs = frames_claims.decode_follow(payload)
        if number in self.patterns or number >= LEG_CHANNELS:
            raise ProtocolError(f"channel {number} is taken")
        if len(self.patterns) >= self._listener.limits.attachments_max:
            self.fail(number, Unavailable("a connection cannot follow more patterns"))
            return
        pattern = self.patterns[number] = Pattern(self, number, wish, legs)
        self._listener.run(partial(pattern.join, self.broker), pattern.joined)

    def leave(self, _flags: int, number: int, _payload: memoryview) -> None:
        """LEAVE: no more topics join."""
        pattern = self.patterns.get(number)
        if pattern is not None:
            pattern.leave()

    # -- ask and the rest ------------------------------------------------------------------------

    def ask(self, _flags: int, number: int, payload: memoryview) -> None:
        """ASK: ANSWER or ERROR."""
        try:
            request = frames_asks.decode_question(payload)
        except PenstockError as error:
            if isinstance(error, ProtocolError):
                raise
            self.fail(number, error)
            return
        self._asks += 1
        if self._asks == self._listener.limits.asks_max:
            self._connection.hold()
        self._listener.run(
            partial(_look, self.broker, number, request), partial(self._answered, number)
        )

    def _answered(self, number: int, found: Any) -> None:
        if self._asks == self._listener.limits.asks_max:
            self._connection.go_on()
        self._asks -= 1
        if isinstance(found, BaseException):
            self.fail(number, found)
        else:
            self.send_pieces(found)

    def ping(self, _flags: int, number: int, _payload: memoryview) -> None:
        """PING: PONG with the broker's time."""
        wall = frames_claims.encode_count(self._listener.wall())
        self.send(frames.frame(Type.PONG, number, wall))

    def pong(self, _flags: int, _number: int, _payload: memoryview) -> None:
        """PONG: it is there."""

    def goodbye(self, _flags: int, _number: int, _payload: memoryview) -> None:
        """GOODBYE: the client leaves for good; nobody will return for what it holds."""
        self._is_final = True
        self._connection.close()

    def end(self) -> None:
        """The connection is gone."""
        self.is_ended = True
        for pattern in list(self.patterns.values()):
            pattern.leave()
        for seat in list(self.seats.values()):
            seat.lose(is_final=self._is_final)
        self.seats.clear()


def _look(broker: Any, number: int, request: q.Request) -> list[bytes]:
    if isinstance(request, q.ReadRange) and request.bytes_max > limits.READ_BYTES_DEFAULT:
        request = msgspec.structs.replace(request, bytes_max=limits.READ_BYTES_DEFAULT)
    return frames_asks.encode_answer(number, request, answer_request(broker, request))


HANDLERS: Final[dict[int, Handler]] = {
    Type.PUBLISH: Session.publish,
    Type.UNIT: Session.unit,
    Type.MAP: Session.map,
    Type.ATTACH: Session.attach,
    Type.ACK: Session.ack,
    Type.GIVE_BACK: Session.give_back,
    Type.EXTEND: Session.extend,
    Type.FLUSH: Session.flush,
    Type.DETACH: Session.detach,
    Type.FOLLOW: Session.follow,
    Type.LEAVE: Session.leave,
    Type.ASK: Session.ask,
    Type.PING: Session.ping,
    Type.PONG: Session.pong,
    Type.GOODBYE: Session.goodbye,
    Type.HELLO: lambda *_: _twice(),
}


def _twice() -> None:
    raise ProtocolError("HELLO came twice")
