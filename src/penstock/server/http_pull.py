"""Pulling over HTTP: a consumer at the broker for each name that pulls, kept between its requests.

A seat is such a consumer. It is given room for as many messages as the pulls that wait at it ask
for, and none in between. What arrives goes to the pull that waits longest; what nobody waits for
any more goes back as if it had never been out.
"""

from asyncio import AbstractEventLoop, Future
from collections import deque
from typing import Any, Final

from penstock.batch.frame import Slice
from penstock.broker.broker import Broker, Sink
from penstock.broker.loop_mailbox import LoopMailbox
from penstock.broker.mailbox import DIRECT
from penstock.broker.pulling import (
    ask_for,
    attach_idle,
    extend_held,
    find,
    ids_of,
    is_finished_by,
    is_in_transit,
    same_room,
)
from penstock.vocabulary.claims import Claim, Refusal, Renewal
from penstock.vocabulary.errors import (
    AckRefused,
    Draining,
    NotLeased,
    PenstockError,
    Unavailable,
    UnknownSubscription,
)
from penstock.vocabulary.records import Cause, Ranges
from penstock.wire.rest_messages import Piece
from penstock.wire.rest_requests import Pull
from penstock.wire.rest_tokens import Token, claims_of, ranges_of, read_token, write_token

HELD_MAX: Final = 100_000
"""Most messages one consumer may hold unsettled."""
SEATS_MAX: Final = 10_000
GRACE_S: Final = 10.0
"""How long messages that are on their way are waited for when the time of a pull is over."""


class Waiting:
    """One pull that waits."""

    __slots__ = ("future", "is_told", "left", "pieces")

    def __init__(self, future: "Future[None]", count: int) -> None:
        self.future = future
        self.left = count
        self.pieces: list[Piece] = []
        self.is_told = False


class Seat:
    """A consumer of one subscription, and the pulls that wait at it."""

    def __init__(self, seats: "Seats", topic: str, name: str, consumer: str | None) -> None:
        self.place = (topic, name, consumer)
        self._seats = seats
        self._broker = seats.broker
        self._waiting: deque[Waiting] = deque()
        self.used_at = 0.0
        self.closed: Exception | None = None
        subscription = find(self._broker, topic, name)
        sink = Sink(seats.mailbox, self._on_slice, self._on_closed)
        self.consumer = attach_idle(self._broker, subscription, consumer, sink)
        self.subscription_id = self.consumer.subscription.id

    @property
    def is_waited_at(self) -> bool:
        """True while a pull waits."""
        return bool(self._waiting)

    def wait(self, waiting: Waiting) -> None:
        """Lets a pull wait here."""
        self._waiting.append(waiting)
        self._ask()

    def leave(self, waiting: Waiting) -> bool:
        """The pull does not wait any more; True when messages may still be on their way to it."""
        if waiting not in self._waiting:
            return False
        if not waiting.pieces and is_in_transit(self._broker, self.consumer):
            return True
        self._ask(waiting)
        # What was given until now lies in the mailbox; after this nothing more is.
        self._seats.mailbox.deliver()
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        return False

    def abandon(self, waiting: Waiting) -> None:
        """The pull is gone: what is on its way to it goes to others that wait, or back."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            self._ask()
        self.give_back(waiting.pieces)

    def _ask(self, leaving: Waiting | None = None) -> None:
        count = sum(each.left for each in self._waiting if each is not leaving)
        ask_for(self._broker, self.consumer, count)

    def _on_slice(self, part: Slice) -> None:
        for frame in part.frames:
            low, high = 0, len(frame.offsets)
            while low < high:
                while self._waiting and not self._waiting[0].left:
                    self._waiting.popleft()
                if not self._waiting:
                    self.give_back(
                        [Piece(part.partition, frame, low, high, part.attempt, part.lease_id)]
                    )
                    break
                waiting = self._waiting[0]
                upto = min(high, low + waiting.left)
                waiting.left -= upto - low
                waiting.pieces.append(
                    Piece(part.partition, frame, low, upto, part.attempt, part.lease_id)
                )
                low = upto
                if not waiting.is_told:
                    # At the end of this round of the loop: more slices may be in the same post.
                    waiting.is_told = True
                    self._seats.loop.call_soon(_tell, waiting.future)

    def _on_closed(self, error: Exception) -> None:
        self.closed = error
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(error)
        self._seats.forget(self)

    def give_back(self, pieces: list[Piece]) -> None:
        """Messages nobody was told of go back; no attempt is counted."""
        for piece in pieces:
            ranges = ranges_of(list(piece.offsets))
            claim = Claim(piece.lease_id, piece.partition, piece.attempt, ranges)
            try:
                with same_room(self._broker, self.consumer):
                    self._broker.give_back(self.consumer, claim, Cause.UNSTARTED, 0.0, "")
            except PenstockError:
                return  # the store failed or is closed: they come back when it is opened again

    def detach(self) -> None:
        """Leaves the subscription; what is held and not settled is delivered again."""
        begun: dict[int, Ranges] = {
            lease.id: ((lease.start, lease.end),) for lease in self._leases()
        }
        self._broker.detach(self.consumer, begun, DIRECT, _nothing)

    def _leases(self) -> list[Any]:
        with self._broker.engine.lock:
            return list(self.consumer.leases.values())


class Seats:
    """Every consumer of one listener."""

    def __init__(
        self, broker: Broker, mailbox: LoopMailbox, loop: AbstractEventLoop, key: bytes
    ) -> None:
        self.broker = broker
        self.mailbox = mailbox
        self.loop = loop
        self._key = key
        self._seats: dict[tuple[str, str, str | None], Seat] = {}
        self._by_id: dict[int, Seat] = {}
        self._is_draining = False
        self._wakers: set[Future[None]] = set()

    # -- pull ------------------------------------------------------------------------------------

    async def pull(self, topic: str, name: str, wish: Pull) -> tuple[Seat, list[Piece]]:
        """Messages for one pull; none when its time is over. Raises PenstockError."""
        if self._is_draining:
            raise Draining("the server is stopping and hands out no more messages")
        seat = self._seat(topic, name, wish.consumer)
        if seat.consumer.outstanding + wish.max > HELD_MAX:
            raise Unavailable(
                f"the consumer holds {seat.consumer.outstanding} messages that are not settled: "
                "ack or nack some of them first"
            )
        waiting = Waiting(self.loop.create_future(), wish.max)
        seat.wait(waiting)
        timer = self.loop.call_later(wish.wait_s, self._time_out, seat, waiting, GRACE_S)
        self._wakers.add(waiting.future)
        try:
            await waiting.future
        except BaseException:
            seat.abandon(waiting)
            raise
        finally:
            self._wakers.discard(waiting.future)
            timer.cancel()
        seat.leave(waiting)
        seat.used_at = self.loop.time()
        return seat, waiting.pieces

    def _time_out(self, seat: Seat, waiting: Waiting, grace_s: float) -> None:
        if waiting.future.done():
            return
        if grace_s > 0 and seat.leave(waiting):
            self.loop.call_later(0.005, self._time_out, seat, waiting, grace_s - 0.005)
        elif not waiting.future.done():
            seat.leave(waiting)
            _tell(waiting.future)

    def _seat(self, topic: str, name: str, consumer: str | None) -> Seat:
        found = self._seats.get((topic, name, consumer))
        if found is None:
            if len(self._seats) >= SEATS_MAX:
                raise Unavailable(f"{SEATS_MAX} consumers pull over HTTP already; try again later")
            found = Seat(self, topic, name, consumer)
            self._seats[found.place] = found
            self._by_id[found.consumer.id] = found
        found.used_at = self.loop.time()
        return found

    def token(self, seat: Seat, piece: Piece, offset: int) -> str:
        """The token of one delivery."""
        generation = self.broker.state.generation
        return write_token(
            Token(
                generation, seat.subscription_id, seat.consumer.id, piece.lease_id,
                piece.partition, offset, piece.attempt,
            ),
            self._key,
        )  # fmt: skip

    # -- settle ----------------------------------------------------------------------------------

    async def ack(self, topic: str, name: str, texts: list[str]) -> int:
        """Finishes deliveries and returns how many, once that is durable. Raises AckRefused."""
        refused: list[Refusal] = []
        tokens = self._tokens(topic, name, texts, refused)
        for seat, claims in self._claims(topic, name, tokens):
            with same_room(self.broker, seat.consumer):
                refused += self.broker.ack(seat.consumer, claims)
        return await self._settled(topic, len(texts), refused)

    async def give_back(
        self, topic: str, name: str, texts: list[str], cause: Cause, delay_s: float | None,
        reason: str,
    ) -> int:  # fmt: skip
        """Sends deliveries back and returns how many, once that is durable. Raises AckRefused."""
        refused: list[Refusal] = []
        tokens = self._tokens(topic, name, texts, refused)
        for seat, claims in self._claims(topic, name, tokens):
            with same_room(self.broker, seat.consumer):
                for claim in claims:
                    refused += self.broker.give_back(seat.consumer, claim, cause, delay_s, reason)
        return await self._settled(topic, len(texts), refused)

    def extend(self, topic: str, name: str, texts: list[str], seconds: float) -> int:
        """Gives deliveries more time and returns how many. Raises NotLeased."""
        refused: list[Refusal] = []
        tokens = self._tokens(topic, name, texts, refused, may_repeat=False)
        for seat, claims in self._claims(topic, name, tokens):
            for claim in claims:
                renewals = [Renewal(claim.lease_id, low, high) for low, high in claim.ranges]
                late = extend_held(self.broker, seat.consumer, renewals, seconds)
                refused += [
                    Refusal(claim.partition, offset, "its lease is over")
                    for each in late
                    for offset in range(each.start, each.end or each.start + 1)
                ]
        if refused:
            raise NotLeased(
                f"{len(refused)} of {len(texts)} deliveries have no lease to extend any more; the "
                "others were extended",
                refused=[_row(topic, each) for each in refused],
            )
        return len(texts)

    async def _settled(self, topic: str, count: int, refused: list[Refusal]) -> int:
        durable: Future[Any] = self.loop.create_future()
        self.broker.flush(self.mailbox, durable.set_result)
        answer = await durable
        if isinstance(answer, Exception):
            raise answer
        if refused:
            raise AckRefused(
                f"{len(refused)} of {count} tokens were refused, {count - len(refused)} accepted: "
                f"{refused[0].partition}:{refused[0].offset}: {refused[0].why}",
                refused=[_row(topic, each) for each in refused],
                accepted=count - len(refused),
            )
        return count

    def _tokens(
        self, topic: str, name: str, texts: list[str], refused: list[Refusal], *,
        may_repeat: bool = True,
    ) -> list[Token]:  # fmt: skip
        """The tokens that mean this subscription. All are read before anything is done.

        One from before the broker's start is good for one thing: to hear again that it is done.
        """
        tokens = [read_token(text, self._key) for text in texts]
        subscription = find(self.broker, topic, name)
        allowed = ids_of(self.broker, subscription)
        generation = self.broker.state.generation
        found: list[Token] = []
        for token in tokens:
            why = ""
            if token.subscription_id not in allowed:
                why = "the token is of another subscription"
            elif token.generation == generation:
                found.append(token)
            elif not (may_repeat and self._is_done(token)):
                why = "the broker was started again since: it is delivered again"
            if why:
                refused.append(Refusal(token.partition, token.offset, why))
        return found

    def _is_done(self, token: Token) -> bool:
        place = (token.subscription_id, token.partition, token.offset)
        return is_finished_by(self.broker, *place, token.attempt)

    def _claims(self, topic: str, name: str, tokens: list[Token]) -> list[tuple[Seat, list[Claim]]]:
        """Claims by the seat that can settle them.

        The token of a consumer that left is late: it is good as long as its message was not
        handed out again, and any consumer of the subscription can settle it.
        """
        timely = [token for token in tokens if token.consumer_id in self._by_id]
        late = [token for token in tokens if token.consumer_id not in self._by_id]
        found = [(self._by_id[number], claims) for number, claims in claims_of(timely).items()]
        by_subscription: dict[int, list[Token]] = {}
        for token in late:
            by_subscription.setdefault(token.subscription_id, []).append(token)
        for number, group in by_subscription.items():
            seat = self._any_seat(topic, name, number)
            found += [(seat, claims) for claims in claims_of(group).values()]
        return found

    def _any_seat(self, topic: str, name: str, subscription_id: int) -> Seat:
        for seat in self._seats.values():
            if seat.subscription_id == subscription_id:
                return seat
        subscription = self.broker.state.subscriptions.get(subscription_id)
        if subscription is None:
            raise UnknownSubscription(f"topic {topic!r} has no subscription {name!r} any more")
        consumer = subscription.name.partition("@")[2] or "http"
        return self._seat(topic, name, consumer)

    # -- the end ---------------------------------------------------------------------------------

    def evict(self, topic: str, name: str | None = None) -> None:
        """Consumers nobody waits at leave, so that their subscription can be deleted."""
        for seat in list(self._seats.values()):
            if seat.place[0] == topic and name in {None, seat.place[1]} and not seat.is_waited_at:
                self.forget(seat)
                seat.detach()

    def sweep(self, now: float, idle_s: float) -> None:
        """Consumers that hold nothing and were not used for long leave."""
        for seat in list(self._seats.values()):
            is_idle = not seat.is_waited_at and now - seat.used_at > idle_s
            if is_idle and not seat.consumer.outstanding:
                self.forget(seat)
                seat.detach()

    def wake(self) -> None:
        """The listener drains: no pull waits any longer."""
        self._is_draining = True
        for future in list(self._wakers):
            _tell(future)

    def forget(self, seat: Seat) -> None:
        """The seat is used no more."""
        if self._seats.get(seat.place) is seat:
            del self._seats[seat.place]
        self._by_id.pop(seat.consumer.id, None)

    async def close(self) -> None:
        """Every consumer leaves in good order."""
        for seat in list(self._seats.values()):
            self.forget(seat)
            seat.detach()

    def lose(self) -> None:
        """The loop died: consumers must not swallow messages."""
        for seat in list(self._seats.values()):
            self.forget(seat)
            self.broker.detach(seat.consumer, {}, DIRECT, _nothing, is_clean=False)


def _row(topic: str, refusal: Refusal) -> dict[str, Any]:
    return {
        "topic": topic,
        "position": f"{refusal.partition}:{refusal.offset}",
        "why": refusal.why,
    }


def _tell(future: "Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _nothing(_answer: Any) -> None:
    """Nobody waits for this."""
