"""One consumer at a server, which survives the connection it was attached on.

It knows what the application holds and which of its decisions the server has not confirmed. When
the connection is lost it attaches again on the next one, names what it holds, and sends again what
was not confirmed.
"""

from collections import deque
from typing import Any, Final, NamedTuple, Protocol

from penstock.batch.frame import Slice
from penstock.drivers.port import Answer, Sink
from penstock.drivers.remote.leases import Leases, offsets_of
from penstock.drivers.remote.link import Link
from penstock.vocabulary.claims import Claim, Kept, Refusal, Renewal, Returning, Revoked
from penstock.vocabulary.errors import Closed, InvalidArgument, PenstockError
from penstock.vocabulary.limits import DELAY_S_MAX, LEASE_S_DEFAULT
from penstock.vocabulary.message import Kind
from penstock.vocabulary.records import Cause, Ranges
from penstock.vocabulary.wishes import Wish
from penstock.wire import frames, frames_claims
from penstock.wire.frames import MORE, Type
from penstock.wire.frames_claims import CLAIMS_MAX, Attached

HELD_MAX: Final = 8_192
"""Leases named on return; what is not named is delivered again."""
OLD_LEASES: Final = 20
"""A lease that was not renewed for so many times its length is forgotten."""
LOST: Final = "the connection was lost before the server confirmed it"


class Settled(NamedTuple):
    """A decision on its way to the server: an ack, or with `cause` a nack or reject."""

    attachment: "RemoteAttachment"
    claims: list[Claim]
    cause: Cause | None = None
    delay_s: float | None = None
    reason: str = ""


class Home(Protocol):
    """The driver, as its attachments see it."""

    @property
    def link(self) -> Link | None:
        """The connection, when there is one that works."""
        ...

    def time(self) -> float:
        """The loop's time."""
        ...

    def on_loop(self, call: Any, *arguments: Any) -> None:
        """Calls on the loop's thread: at once, or soon when this is another thread."""
        ...

    def flush(self, answer: Answer) -> None:
        """Answers None once everything sent so far is durable."""
        ...

    def detach(self, attachment: "RemoteAttachment", begun: bytes, answer: Answer) -> None:
        """Ends an attachment."""
        ...


class RemoteAttachment:
    """One consumer at a server."""

    def __init__(self, home: Home, wish: Wish, channel: int) -> None:
        self.wish = wish
        self.channel = channel
        self.is_joined = False
        """The server knows it on the present connection."""
        self.was_joined = False
        self.is_leaving = False
        self.leases = Leases()
        self.lease_s = LEASE_S_DEFAULT
        self._home = home
        self._sink: Sink | None = None
        self._early: list[Any] | None = []
        """What came before the sink may be used."""
        self._parts: Slice | None = None
        self._generation = 0
        self._consumer_id = 0
        self._unsent: list[Settled] = []
        """Decisions to send as soon as the server knows this consumer."""
        self._nacks: deque[Claim] = deque()
        """Kind `key_shared`: nacks that the server has not answered."""
        policy = wish.policy
        self._is_keyed = policy is not None and policy.kind is Kind.KEY_SHARED
        self._is_once = policy is not None and policy.qos == 0

    # -- joining ---------------------------------------------------------------------------------

    def returning(self) -> Returning | None:
        """What to name when it attaches again; None the first time."""
        if not self.was_joined:
            return None
        held = [] if self._is_once else self.leases.held(HELD_MAX)
        return Returning(self._generation, self._consumer_id, held)

    def attached(self, found: Attached, generation: int) -> None:
        """The server knows this consumer."""
        is_return = self.was_joined
        self.is_joined = self.was_joined = True
        self.lease_s = found.lease_s
        self._generation, self._consumer_id = generation, found.consumer_id
        if is_return:
            self._take_over(found.kept)
        self._resume()

    def begin(self, sink: Sink) -> None:
        """From now on messages and news go to the sink. On the loop."""
        self._sink = sink
        early, self._early = self._early, None
        for call, argument in early or ():
            call(argument)

    def _take_over(self, kept: list[Kept]) -> None:
        lost, partly = self.leases.keep(kept)
        for own in lost:
            self._give(Slice(own, 0, 0, 0, 0, []))
        if partly and self._is_keyed:
            self._tell(Revoked(None, tuple(partly)))

    def lost_connection(self, unconfirmed: list[Settled]) -> None:
        """The connection is gone: decisions that were under way go again on the next one."""
        self.is_joined = False
        self._parts = None
        self._unsent = unconfirmed + self._unsent

    def _resume(self) -> None:
        unsent, self._unsent = self._unsent, []
        for each in unsent:
            if each.cause is None or self._is_known(each):
                self._send(each)
            elif self._nacks:
                # The message went back by itself; the key it stopped goes on.
                self._on_nack_answered()

    def _is_known(self, settled: Settled) -> bool:
        return all(self.leases.number_of(claim.lease_id) for claim in settled.claims)

    # -- from the server -------------------------------------------------------------------------

    def on_slice(self, flags: int, part: Slice) -> None:
        """Messages, or a part of them."""
        if self._parts is not None:
            part.frames[:0] = self._parts.frames
            self._parts = None
        if flags & MORE:
            self._parts = part
            return
        if part.frames:
            now = self._home.time()
            own = self.leases.add(part, now)
            self.leases.prune(now - OLD_LEASES * self.lease_s)
        else:
            own = self.leases.own_number(part.lease_id)
            self.leases.drop(own)
            if not own:
                return
        self._give(Slice(own, part.partition, part.start, part.end, part.attempt, part.frames))

    def _give(self, part: Slice) -> None:
        if self._early is not None or self._sink is None:
            assert self._early is not None
            self._early.append((self._give, part))
            return
        self._sink.on_slice(part)

    def on_revoked(self, news: Revoked) -> None:
        """The server took messages back, or answers a nack."""
        parts = self.leases.revoke(news)
        claim = None
        if news.claim is not None:
            if not self._nacks:
                return
            claim = self._nacks.popleft()
        self._tell(Revoked(claim, parts))

    def _on_nack_answered(self) -> None:
        self._tell(Revoked(self._nacks.popleft(), ()))

    def _tell(self, news: Revoked) -> None:
        if self._early is not None or self._sink is None:
            assert self._early is not None
            self._early.append((self._tell, news))
            return
        self._sink.on_revoked(news)

    def on_refused(self, refusals: list[Refusal]) -> None:
        """The server did not accept these."""
        if self._sink is not None:
            self._sink.on_refused(refusals)

    def on_closed(self, error: PenstockError) -> None:
        """Nothing more will come."""
        if self._early is not None or self._sink is None:
            assert self._early is not None
            self._early.append((self.on_closed, error))
            return
        self._sink.on_closed(error)

    def confirmed(self, settled: Settled) -> None:
        """The server has made a decision durable."""
        for claim in settled.claims:
            self.leases.confirm(claim)

    # -- from the client -------------------------------------------------------------------------

    def ack(self, claims: list[Claim]) -> None:
        self._home.on_loop(self._settle, Settled(self, claims))

    def give_back(self, claim: Claim, cause: Cause, delay_s: float | None, reason: str) -> None:
        if delay_s is not None and not delay_s <= DELAY_S_MAX:
            raise InvalidArgument(
                f"a message may come back within {DELAY_S_MAX} seconds, not in {delay_s}"
            )
        self._home.on_loop(self._settle, Settled(self, [claim], cause, delay_s, reason))

    def _settle(self, settled: Settled) -> None:
        if self._is_keyed and settled.cause is Cause.NACKED:
            self._nacks.append(settled.claims[0])
        if self.is_joined:
            self._send(settled)
        else:
            self._unsent.append(settled)

    def _send(self, settled: Settled) -> None:
        link = self._home.link
        assert link is not None
        claims, translate = settled.claims, self.leases.translate
        if settled.cause is not None:
            given = frames_claims.GiveBack(
                translate(claims[0]), settled.cause, settled.delay_s, settled.reason
            )
            payload = frames_claims.encode_give_back(given)
            link.unconfirmed.append(settled)
            link.send(frames.frame(Type.GIVE_BACK, self.channel, payload))
            return
        for start in range(0, len(claims), CLAIMS_MAX):
            part = claims[start : start + CLAIMS_MAX]
            payload = frames_claims.encode_claims([translate(claim) for claim in part])
            link.unconfirmed.append(settled._replace(claims=part))
            link.send(frames.frame(Type.ACK, self.channel, payload))

    def extend(self, renewals: list[Renewal], seconds: float) -> None:
        self._home.on_loop(self._extend, renewals, seconds)

    def _extend(self, renewals: list[Renewal], seconds: float) -> None:
        now, link = self._home.time(), self._home.link
        rows: list[Renewal] = []
        for own, start, end in renewals:
            number = self.leases.number_of(own)
            if number:
                self.leases.touch(own, now)
                rows.append(Renewal(number, start, end))
        if rows and link is not None and self.is_joined:
            payload = frames_claims.encode_extend(frames_claims.Extend(rows, seconds))
            link.send(frames.frame(Type.EXTEND, self.channel, payload))

    def flush(self, answer: Answer) -> None:
        self._home.flush(answer)

    def detach(self, begun: dict[int, Ranges], answer: Answer) -> None:
        self.is_leaving = True
        named = {self.leases.number_of(own): ranges for own, ranges in begun.items()}
        named.pop(0, None)
        self._home.detach(self, frames_claims.encode_begun(named), answer)

    # -- without a connection --------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        """True when decisions wait for a connection."""
        return bool(self._unsent)

    def give_up(self) -> None:
        """Decisions that were not confirmed are told to be refused; the keys they stopped go on."""
        unsent, self._unsent = self._unsent, []
        refusals = [
            Refusal(claim.partition, offset, LOST)
            for each in unsent
            if each.cause is None
            for claim in each.claims
            for offset in offsets_of(claim)
        ]
        if refusals:
            self.on_refused(refusals)
        while self._nacks:
            self._on_nack_answered()


def closed() -> Closed:
    """What whoever waits is told when the client is closed."""
    return Closed("this client was closed; connect again to go on")
