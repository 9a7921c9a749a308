"""What consumers say on the wire, held to the limits of a lease."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.claims import Claim, Held, Kept, Refusal, Renewal, Returning, Revoked
from penstock.vocabulary.errors import ProtocolError
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Cause
from penstock.vocabulary.wishes import Wish
from penstock.wire import frames_claims as wire
from penstock.wire.frames_claims import Attached, Extend, FollowWish, GiveBack, Joined

CLAIM = Claim(7, 1, 2, ((10, 20),))
WISH = Wish(
    "orders", "billing", SubscriptionPolicy(lease_s=5.0), "0:17", 100, 1 << 20, "me",
    is_named=True, returning=Returning(3, 9, [Held(4, 0, 1, ((1, 2), (5, 9)))]),
)  # fmt: skip


def test_claims_arrive_as_they_were() -> None:
    claims = [CLAIM, Claim(8, 0, 1, ((0, 3), (7, 9))), Claim(9, 0, 1, ((100, 140),), 0b1011 << 20)]
    assert wire.decode_claims(memoryview(wire.encode_claims(claims))) == claims
    assert wire.decode_claims(memoryview(wire.encode_claims(claims[:1]))) == claims[:1]


def test_messages_far_apart_go_as_ranges() -> None:
    start, bits = 5, 1 | 0b111 << 100_000
    claim = Claim(3, 0, 1, ((start, start + 100_010),), bits)
    (got,) = wire.decode_claims(memoryview(wire.encode_claims([claim])))
    assert got == Claim(3, 0, 1, ((5, 6), (100_005, 100_008)))
    assert wire.unpack_claim(wire.pack_claim(claim)) == got


@pytest.mark.parametrize(
    "claim",
    [
        Claim(1, 0, 1, ()),
        Claim(1, 0, 1, ((5, 5),)),
        Claim(1, 0, 1, ((5, 4),)),
        Claim(1, 0, 1, ((5, 9), (8, 10))),
        Claim(1, 0, 1, ((0, 1 << 61),)),
        Claim(1, 0, 1, ((0, 1_001),)),
        Claim(1, 0, 1, ((0, 1 << 63),)),
        Claim(1, 0, 1, ((0, 4),), 0b10000),
        Claim(1, 0, 1, ((0, 2), (4, 6)), 0b1),
        Claim(1 << 62, 0, 1, ((0, 1),)),
    ],
)
def test_claims_that_no_lease_has_are_refused(claim: Claim) -> None:
    with pytest.raises(ProtocolError):
        wire.decode_claims(memoryview(wire.encode_claims([claim])))
    with pytest.raises(ProtocolError):
        wire.unpack_claim(wire.pack_claim(claim))


def test_more_claims_than_a_frame_has_are_refused() -> None:
    data = wire.encode_claims([CLAIM] * (wire.CLAIMS_MAX + 1))
    with pytest.raises(ProtocolError):
        wire.decode_claims(memoryview(data))
    with pytest.raises(ProtocolError):
        wire.decode_claims(memoryview(data[:-1]))


def test_everything_else_arrives_as_it_was() -> None:
    given = GiveBack(CLAIM, Cause.NACKED, 1.5, "not now")
    assert wire.decode_give_back(wire.encode_give_back(given)) == given
    extend = Extend([Renewal(1, 5, None), Renewal(2, 7, 8)], 33.0)
    assert wire.decode_extend(wire.encode_extend(extend)) == extend
    assert wire.decode_wish(wire.encode_wish(WISH)) == WISH
    follow = FollowWish(WISH, {"orders.a": Returning(1, 2, [])})
    assert wire.decode_follow(wire.encode_follow(follow)) == follow
    attached = Attached(4, 30.0, [Kept(1, 2, ((3, 4),))])
    assert wire.decode_attached(wire.encode_attached(attached)) == attached
    joined = Joined("orders.a", 1 << 31, attached)
    assert wire.decode_joined(wire.encode_joined(joined)) == joined
    begun = {1: ((2, 3), (5, 9)), 2: ()}
    assert wire.decode_begun(wire.encode_begun(begun)) == begun
    for news in (Revoked(CLAIM, ((1, ((2, 3),)),)), Revoked(None, ())):
        assert wire.decode_revoked(wire.encode_revoked(news)) == news
    refusals = [Refusal(0, 17, "why")]
    assert wire.decode_refused(wire.encode_refused(refusals)) == refusals
    assert wire.decode_count(wire.encode_count(1 << 40)) == 1 << 40


def test_values_outside_their_limits_are_refused() -> None:
    encode = msgspec.msgpack.encode
    packed = wire.pack_claim(CLAIM)
    wrong: list[tuple[Callable[[Any], Any], Any]] = [
        (wire.decode_give_back, encode((packed, int(Cause.LOST), None, ""))),
        (wire.decode_give_back, encode((packed, int(Cause.NACKED), -1.0, ""))),
        (wire.decode_give_back, encode((packed, int(Cause.NACKED), float("nan"), ""))),
        (wire.decode_extend, encode(([], 0.0))),
        (wire.decode_extend, encode(([], float("nan")))),
        (wire.decode_extend, encode(([], 1e12))),
        (wire.decode_begun, encode({1: ((5, 2),)})),
        (wire.decode_begun, encode({1: ((-5, 2),)})),
        (wire.decode_wish, wire.encode_wish(WISH._replace(start=[1]))),
        (wire.decode_wish, wire.encode_wish(WISH._replace(start=float("inf")))),
        (wire.decode_wish, wire.encode_wish(WISH._replace(start=True))),
        (wire.decode_follow, wire.encode_follow(FollowWish(WISH._replace(start={}), {}))),
    ]
    for decode, payload in wrong:
        with pytest.raises(ProtocolError):
            decode(payload)


DECODERS: list[Callable[[Any], Any]] = [
    lambda data: wire.decode_claims(memoryview(data)), wire.decode_give_back, wire.decode_extend,
    wire.decode_wish, wire.decode_follow, wire.decode_attached, wire.decode_joined,
    wire.decode_begun, wire.decode_revoked, wire.decode_refused, wire.decode_count,
]  # fmt: skip


@given(st.binary(max_size=300))
def test_invented_payloads_are_refused_or_read_and_nothing_else(data: bytes) -> None:
    for decode in DECODERS:
        try:
            decode(data)
        except ProtocolError:
            continue


@pytest.mark.parametrize("decode", DECODERS[1:])
def test_deep_nesting_is_refused(decode: Callable[[Any], Any]) -> None:
    with pytest.raises(ProtocolError):
        decode(b"\x91" * 60_000)
