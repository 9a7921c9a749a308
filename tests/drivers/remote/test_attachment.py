"""One consumer over several connections: what is kept, sent again, dropped and refused."""

from typing import Any

import msgspec
import pytest

from penstock.batch.frame import Frame, Slice
from penstock.drivers.remote.attachment import RemoteAttachment, closed
from penstock.vocabulary.claims import Claim, Kept, Refusal, Renewal, Returning, Revoked
from penstock.vocabulary.errors import Closed, InvalidArgument
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Cause
from penstock.vocabulary.wishes import Wish
from penstock.wire import frames, frames_claims
from penstock.wire.frames import MORE, Type
from penstock.wire.frames_claims import CLAIMS_MAX, Attached


class Home:
    """A driver with a connection that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, Any]] = []
        self.link: Any = self
        self.unconfirmed: list[Any] = []
        self.detached: list[bytes] = []
        self.wall = 5_000

    def time(self) -> float:
        return 0.0

    def on_loop(self, call: Any, *arguments: Any) -> None:
        call(*arguments)

    def flush(self, answer: Any) -> None:
        answer(None)

    def detach(self, attachment: RemoteAttachment, begun: bytes, answer: Any) -> None:
        self.detached.append(begun)

    def send(self, data: bytes) -> None:
        _, kind, _, _, number, _ = frames.HEADER.unpack_from(data)
        payload = memoryview(data)[frames.HEADER_BYTES :]
        decode: Any = {
            Type.ACK: frames_claims.decode_claims,
            Type.GIVE_BACK: frames_claims.decode_give_back,
            Type.EXTEND: frames_claims.decode_extend,
        }[kind]
        self.sent.append((kind, number, decode(payload)))


class Events:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_slice(self, part: Slice) -> None:
        self.told.append(part)

    def on_refused(self, refusals: list[Refusal]) -> None:
        self.told.append(refusals)

    def on_closed(self, error: Exception) -> None:
        self.told.append(error)

    def on_revoked(self, news: Revoked) -> None:
        self.told.append(news)


def wish(kind: Kind = Kind.SHARED, qos: int = 1) -> Wish:
    return Wish("t", "s", SubscriptionPolicy(kind=kind, qos=qos), None, 10, 10, "me")


def part(lease_id: int, start: int, end: int) -> Slice:
    frame = Frame(b"", range(start, end), range(end - start), 0, bytes(16), 0, 0)
    return Slice(lease_id, 0, start, end, 1, [frame])


def joined(**changes: Any) -> tuple[RemoteAttachment, Home, Events]:
    home, events = Home(), Events()
    attachment = RemoteAttachment(home, wish(**changes), 5)
    assert attachment.returning() is None
    attachment.attached(Attached(41, 12.0, []), 3)
    attachment.begin(events)
    return attachment, home, events


def claim(own: int, start: int, end: int) -> Claim:
    return Claim(own, 0, 1, ((start, end),))


def test_slices_wait_until_the_sink_may_be_used() -> None:
    home, events = Home(), Events()
    attachment = RemoteAttachment(home, wish(), 5)
    attachment.attached(Attached(41, 12.0, []), 3)
    attachment.on_slice(0, part(9, 0, 3))
    attachment.on_revoked(Revoked(None, ()))
    assert events.told == []
    attachment.begin(events)
    assert [type(each) for each in events.told] == [Slice, Revoked]
    assert attachment.lease_s == 12.0


def test_parts_of_a_slice_come_as_one() -> None:
    attachment, _, events = joined()
    attachment.on_slice(MORE, part(9, 0, 2))
    assert events.told == []
    attachment.on_slice(0, part(9, 2, 4))
    (got,) = events.told
    assert [list(frame.offsets) for frame in got.frames] == [[0, 1], [2, 3]]


def test_claims_go_out_in_the_numbers_of_the_server_and_in_frames_of_a_size() -> None:
    attachment, home, events = joined()
    attachment.on_slice(0, part(900, 0, 3))
    own = events.told[0].lease_id
    attachment.ack([claim(own, 0, 1)] * (CLAIMS_MAX + 1))
    assert [len(found) for _, _, found in home.sent] == [CLAIMS_MAX, 1]
    assert home.sent[0][2][0].lease_id == 900
    attachment.extend([Renewal(own, 0, None), Renewal(77, 0, None)], 5.0)
    assert home.sent[-1][2] == ([Renewal(900, 0, None)], 5.0)
    attachment.detach({own: ((0, 1),), 77: ()}, print)
    assert frames_claims.decode_begun(home.detached[0]) == {900: ((0, 1),)}


def test_a_return_names_what_is_held_and_sends_again_what_was_not_confirmed() -> None:
    attachment, home, events = joined()
    attachment.on_slice(0, part(900, 0, 4))
    own = events.told[0].lease_id
    attachment.ack([claim(own, 0, 1)])
    attachment.confirmed(home.unconfirmed.pop())
    attachment.ack([claim(own, 1, 2)])
    attachment.lost_connection(home.unconfirmed)
    attachment.ack([claim(own, 2, 3)])
    assert attachment.has_unsent
    again = attachment.returning()
    assert again is not None
    assert (again.generation, again.consumer_id) == (3, 41)
    assert again.held[0].ranges == ((1, 4),)
    home.sent.clear()
    attachment.attached(Attached(42, 12.0, [Kept(900, 7, ((1, 4),))]), 4)
    assert [found[0].lease_id for _, _, found in home.sent] == [7, 7]
    assert [found[0].ranges for _, _, found in home.sent] == [((1, 2),), ((2, 3),)]
    renamed = [again.held[0]._replace(lease_id=7)]
    assert attachment.returning() == Returning(4, 42, renamed)


def test_what_is_not_kept_is_dropped_and_its_acks_are_judged_by_the_server() -> None:
    attachment, home, events = joined()
    attachment.on_slice(0, part(900, 0, 4))
    own = events.told.pop().lease_id
    attachment.lost_connection([])
    attachment.ack([claim(own, 0, 1)])
    attachment.give_back(claim(own, 1, 2), Cause.REJECTED, None, "")
    attachment.attached(Attached(42, 12.0, []), 4)
    assert events.told == [Slice(own, 0, 0, 0, 0, [])]
    assert [(kind, found[0].lease_id) for kind, _, found in home.sent] == [(Type.ACK, 900)]


def test_a_void_slice_and_one_of_nobody() -> None:
    attachment, _, events = joined()
    attachment.on_slice(0, part(900, 0, 4))
    own = events.told.pop().lease_id
    attachment.on_slice(0, Slice(900, 0, 0, 4, 1, []))
    assert events.told == [Slice(own, 0, 0, 4, 1, [])]
    attachment.on_slice(0, Slice(900, 0, 0, 4, 1, []))
    assert len(events.told) == 1


def test_nacks_of_keys_are_answered_in_order_also_when_their_message_is_gone() -> None:
    attachment, home, events = joined(kind=Kind.KEY_SHARED)
    attachment.on_slice(0, part(900, 0, 4))
    own = events.told.pop().lease_id
    one, two = claim(own, 0, 1), claim(own, 1, 2)
    attachment.give_back(one, Cause.NACKED, None, "")
    attachment.give_back(two, Cause.NACKED, None, "")
    attachment.on_revoked(Revoked(claim(900, 0, 1), ((900, ((3, 4),)),)))
    assert events.told.pop() == Revoked(one, ((own, ((3, 4),)),))
    attachment.lost_connection(home.unconfirmed[1:])
    attachment.attached(Attached(42, 12.0, []), 4)
    assert Revoked(two, ()) in events.told
    attachment.on_revoked(Revoked(claim(900, 1, 2), ()))  # late, and harmless
    assert events.told.count(Revoked(two, ())) == 1


def test_messages_kept_in_part_are_revoked_where_keys_have_an_order() -> None:
    attachment, _, events = joined(kind=Kind.KEY_SHARED)
    attachment.on_slice(0, part(900, 0, 4))
    own = events.told.pop().lease_id
    attachment.lost_connection([])
    attachment.attached(Attached(42, 12.0, [Kept(900, 7, ((0, 2),))]), 4)
    assert events.told == [Revoked(None, ((own, ((2, 4),)),))]


def test_without_a_name_it_goes_on_with_the_last_message_that_came() -> None:
    home, events = Home(), Events()
    attachment = RemoteAttachment(home, wish()._replace(subscription=None, start="earliest"), 5)
    assert attachment.start() == "earliest"
    attachment.attached(Attached(41, 12.0, []), 3)
    attachment.begin(events)
    assert attachment.start() == 5.0
    frame = Frame(b"", range(1), range(1), 9_000, bytes(16), 0, 0)
    attachment.on_slice(0, Slice(1, 0, 0, 1, 1, [frame]))
    older = msgspec.structs.replace(frame, published_at=8_000)
    attachment.on_slice(0, Slice(2, 1, 0, 1, 1, [older]))
    assert attachment.start() == 8.0
    named, _, _ = joined()
    assert named.start() is None


def test_qos_0_holds_nothing() -> None:
    attachment, _, _ = joined(qos=0)
    attachment.on_slice(0, part(900, 0, 4))
    assert attachment.returning() == Returning(3, 41, [])


def test_giving_up_refuses_the_acks_that_were_not_confirmed() -> None:
    attachment, _, events = joined()
    attachment.on_slice(0, part(900, 0, 4))
    own = events.told.pop().lease_id
    attachment.lost_connection([])
    attachment.ack([claim(own, 0, 2)])
    attachment.give_up()
    (refusals,) = events.told
    assert [each.offset for each in refusals] == [0, 1]
    assert not attachment.has_unsent


def test_a_delay_that_cannot_be_is_refused_at_once() -> None:
    attachment, _, _ = joined()
    with pytest.raises(InvalidArgument):
        attachment.give_back(claim(1, 0, 1), Cause.NACKED, 1e12, "")
    assert isinstance(closed(), Closed)
