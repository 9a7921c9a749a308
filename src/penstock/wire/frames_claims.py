"""What consumers say about messages, and what the broker says back.

    ACK       claims one behind the other: u64 lease, u32 partition, u32 attempt, u32 bytes of the
              mask, u32 count of ranges, then pairs of u64, then the mask, little endian
    others    MessagePack

A claim means no more messages than one lease can have; whoever reads checks that, since a broker
looks at each message of a claim that comes late.
"""

from math import isfinite
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, Final, NamedTuple

import msgspec

from penstock.vocabulary.claims import Claim, Kept, Refusal, Renewal, Returning, Revoked
from penstock.vocabulary.errors import ProtocolError
from penstock.vocabulary.limits import SLICE_COUNT_MAX
from penstock.vocabulary.records import Cause, Ranges
from penstock.vocabulary.wishes import Wish

_CLAIM: Final = Struct("<QIIII")
_unpack_claim = _CLAIM.unpack_from
_RANGE: Final = Struct("<QQ")
CLAIMS_MAX: Final = 512
"""Most claims in one frame."""
MASK_BITS_MAX: Final = 1 << 14
"""Messages that lie further apart are told by their ranges."""
RENEWALS_MAX: Final = 1 << 16
SECONDS_MAX: Final = 400 * 24 * 3600.0
OFFSET_MAX: Final = 1 << 62
CAUSES: Final = (Cause.NACKED, Cause.REJECTED, Cause.UNSTARTED)

_encode = msgspec.msgpack.Encoder().encode


# -- claims --------------------------------------------------------------------------------------


def encode_claims(claims: list[Claim]) -> bytes:
    """The payload of ACK; at most CLAIMS_MAX of them."""
    if len(claims) == 1:
        return _packed(claims[0])
    return b"".join(map(_packed, claims))


def _packed(claim: Claim) -> bytes:
    if claim.mask.bit_length() > MASK_BITS_MAX:
        claim = _by_ranges(claim)
    lease, partition, attempt, ranges, mask = claim
    bits = mask.to_bytes((mask.bit_length() + 7) // 8, "little") if mask else b""
    data = _CLAIM.pack(lease, partition, attempt, len(bits), len(ranges))
    for start, end in ranges:
        data += _RANGE.pack(start, end)
    return data + bits


def _by_ranges(claim: Claim) -> Claim:
    """The same claim without a mask."""
    at, bits, ranges = claim.ranges[0][0], claim.mask, []
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        size = (~bits & (bits + 1)).bit_length() - 1
        ranges.append((at + gap, at + gap + size))
        at += gap + size
        bits >>= size
    return claim._replace(ranges=tuple(ranges), mask=0)


def decode_claims(payload: memoryview) -> list[Claim]:
    """The claims of an ACK, each within its limits. Raises ProtocolError."""
    claims: list[Claim] = []
    at, size = 0, len(payload)
    try:
        while at < size:
            lease, partition, attempt, bits, count = _unpack_claim(payload, at)
            at += _CLAIM.size
            if count > SLICE_COUNT_MAX or at + count * _RANGE.size + bits > size:
                raise ProtocolError("a claim is longer than its frame or than a lease")
            ranges = tuple(_RANGE.unpack_from(payload, at + n * _RANGE.size) for n in range(count))
            at += count * _RANGE.size
            mask = int.from_bytes(payload[at : at + bits], "little") if bits else 0
            at += bits
            claims.append(check_claim(Claim(lease, partition, attempt, ranges, mask)))
    except StructError as error:
        raise ProtocolError(f"claims cannot be decoded: {error}") from error
    if len(claims) > CLAIMS_MAX:
        raise ProtocolError(f"an ack has {len(claims)} claims; allowed are {CLAIMS_MAX}")
    return claims


def check_claim(claim: Claim) -> Claim:
    """Returns a claim that a lease could have. Raises ProtocolError."""
    ranges, mask = claim.ranges, claim.mask
    count, last = 0, -1
    for start, end in ranges:
        if not last <= start < end < OFFSET_MAX:
            raise ProtocolError("the ranges of a claim are not rising offsets")
        count += end - start
        last = end
    if mask:
        if len(ranges) != 1 or mask < 0 or mask.bit_length() > ranges[0][1] - ranges[0][0]:
            raise ProtocolError("the mask of a claim does not fit its range")
        count = mask.bit_count()
    if not ranges or count > SLICE_COUNT_MAX:
        raise ProtocolError(f"a claim means {count} messages; a lease has {SLICE_COUNT_MAX}")
    if claim.lease_id >= OFFSET_MAX or min(claim.lease_id, claim.partition, claim.attempt) < 0:
        raise ProtocolError("a number of a claim is outside its limits")
    return claim


class PackedClaim(NamedTuple):
    """A claim inside MessagePack, whose numbers are too short for a mask."""

    lease_id: int
    partition: int
    attempt: int
    ranges: Ranges
    mask: bytes = b""


def pack_claim(claim: Claim) -> PackedClaim:
    """For a payload."""
    if claim.mask.bit_length() > MASK_BITS_MAX:
        claim = _by_ranges(claim)
    mask = claim.mask
    data = mask.to_bytes((mask.bit_length() + 7) // 8, "little") if mask else b""
    return PackedClaim(claim.lease_id, claim.partition, claim.attempt, claim.ranges, data)


def unpack_claim(packed: PackedClaim) -> Claim:
    """From a payload. Raises ProtocolError."""
    mask = int.from_bytes(packed.mask, "little")
    return check_claim(Claim(packed[0], packed[1], packed[2], packed.ranges, mask))


# -- nack, reject, extend ------------------------------------------------------------------------


class _GiveBack(NamedTuple):
    claim: PackedClaim
    cause: int
    delay_s: float | None
    reason: str


class GiveBack(NamedTuple):
    """Messages that come back."""

    claim: Claim
    cause: Cause
    delay_s: float | None
    reason: str


class Extend(NamedTuple):
    """Messages that need more time."""

    renewals: list[Renewal]
    seconds: float


_give_back: Final = msgspec.msgpack.Decoder(_GiveBack)
_extend: Final = msgspec.msgpack.Decoder(Extend)


def encode_give_back(given: GiveBack) -> bytes:
    """The payload of GIVE_BACK."""
    return _encode(
        _GiveBack(pack_claim(given.claim), int(given.cause), given.delay_s, given.reason)
    )


def decode_give_back(payload: Any) -> GiveBack:
    """Messages that come back. Raises ProtocolError."""
    packed, cause, delay_s, reason = _decoded(_give_back, payload, "a nack")
    if cause not in CAUSES:
        raise ProtocolError(f"a consumer cannot give messages back for cause {cause}")
    if delay_s is not None and not (isfinite(delay_s) and delay_s >= 0):
        raise ProtocolError("the delay of a nack is not a number of seconds")
    return GiveBack(unpack_claim(packed), Cause(cause), delay_s, reason)


def encode_extend(extend: Extend) -> bytes:
    """The payload of EXTEND."""
    return _encode(extend)


def decode_extend(payload: Any) -> Extend:
    """Messages that need more time. Raises ProtocolError."""
    found: Extend = _decoded(_extend, payload, "a renewal")
    if not 0 < found.seconds <= SECONDS_MAX or len(found.renewals) > RENEWALS_MAX:
        raise ProtocolError("a renewal asks for a time outside its limits")
    return found


# -- attach and detach ---------------------------------------------------------------------------


class Attached(NamedTuple):
    """A consumer joined; `kept` when it returned."""

    consumer_id: int
    lease_s: float
    kept: list[Kept]


class Joined(NamedTuple):
    """One more topic of a pattern has a consumer, on a channel the server chose."""

    topic: str
    channel: int
    attached: Attached


class FollowWish(NamedTuple):
    """A consumer of a pattern; `legs` is what it holds of each topic when it returns."""

    wish: Wish
    legs: dict[str, Returning]


_wish: Final = msgspec.msgpack.Decoder(Wish)
_follow: Final = msgspec.msgpack.Decoder(FollowWish)
_attached: Final = msgspec.msgpack.Decoder(Attached)
_joined: Final = msgspec.msgpack.Decoder(Joined)
_begun: Final = msgspec.msgpack.Decoder(dict[int, Ranges])


def encode_wish(wish: Wish) -> bytes:
    """The payload of ATTACH."""
    return _encode(wish)


def decode_wish(payload: Any) -> Wish:
    """What a consumer asks for. Raises ProtocolError."""
    wish: Wish = _decoded(_wish, payload, "an attach")
    if not is_place(wish.start):
        raise ProtocolError(f"{wish.start!r:.80} is no place to start at")
    return wish


def encode_follow(follow: FollowWish) -> bytes:
    """The payload of FOLLOW."""
    return _encode(follow)


def decode_follow(payload: Any) -> FollowWish:
    """What a consumer of a pattern asks for. Raises ProtocolError."""
    found: FollowWish = _decoded(_follow, payload, "a follow")
    if not is_place(found.wish.start):
        raise ProtocolError(f"{found.wish.start!r:.80} is no place to start at")
    return found


def is_place(start: Any) -> bool:
    """True for what may name a place in a topic: text, a time, or nothing."""
    if isinstance(start, float):
        return isfinite(start)
    if isinstance(start, int):
        return not isinstance(start, bool) and 0 <= start < OFFSET_MAX
    return start is None or isinstance(start, str)


def encode_attached(attached: Attached) -> bytes:
    """The payload of ATTACHED."""
    return _encode(attached)


def decode_attached(payload: Any) -> Attached:
    """A consumer joined. Raises ProtocolError."""
    found: Attached = _decoded(_attached, payload, "an attachment")
    return found


def encode_joined(joined: Joined) -> bytes:
    """The payload of JOINED."""
    return _encode(joined)


def decode_joined(payload: Any) -> Joined:
    """One more topic of a pattern. Raises ProtocolError."""
    found: Joined = _decoded(_joined, payload, "a joined topic")
    return found


def encode_begun(begun: dict[int, Ranges]) -> bytes:
    """The payload of DETACH."""
    return _encode(begun)


def decode_begun(payload: Any) -> dict[int, Ranges]:
    """What a leaving consumer had in hand, by lease. Raises ProtocolError."""
    found: dict[int, Ranges] = _decoded(_begun, payload, "a detach")
    for ranges in found.values():
        if any(not 0 <= start <= end < OFFSET_MAX for start, end in ranges):
            raise ProtocolError("a detach names offsets outside their limits")
    return found


# -- from the broker -----------------------------------------------------------------------------


class _Revoked(NamedTuple):
    claim: PackedClaim | None
    parts: tuple[tuple[int, Ranges], ...]


_revoked: Final = msgspec.msgpack.Decoder(_Revoked)
_refused: Final = msgspec.msgpack.Decoder(list[Refusal])
_count: Final = msgspec.msgpack.Decoder(int)


def encode_revoked(news: Revoked) -> bytes:
    """The payload of REVOKED."""
    return _encode(_Revoked(None if news.claim is None else pack_claim(news.claim), news.parts))


def decode_revoked(payload: Any) -> Revoked:
    """What was taken back. Raises ProtocolError."""
    claim, parts = _decoded(_revoked, payload, "a revocation")
    return Revoked(None if claim is None else unpack_claim(claim), parts)


def encode_refused(refusals: list[Refusal]) -> bytes:
    """The payload of REFUSED."""
    return _encode(refusals)


def decode_refused(payload: Any) -> list[Refusal]:
    """What was not accepted. Raises ProtocolError."""
    found: list[Refusal] = _decoded(_refused, payload, "a refusal")
    return found


def encode_count(count: int) -> bytes:
    """The payload of CONFIRMED and of times."""
    return _encode(count)


def decode_count(payload: Any) -> int:
    """A number. Raises ProtocolError."""
    found: int = _decoded(_count, payload, "a number")
    return found


def _decoded(decoder: Any, payload: Any, what: str) -> Any:
    try:
        return decoder.decode(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{what} cannot be decoded: {error}") from error
