"""Ack tokens: opaque text that says which delivery is meant, and cannot be made up.

    +----+------------+--------------+----------+-------+-----------+--------+---------+-----+
    | u8 | u32        | u64          | u64      | u64   | u16       | u64    | u32     | 8 B |
    | 1  | generation | subscription | consumer | lease | partition | offset | attempt | seal|
    +----+------------+--------------+----------+-------+-----------+--------+---------+-----+

big endian, as unpadded URL-safe base64. The seal is a keyed BLAKE2b of all before it. Its key
belongs to the store, so that a token outlives a restart of the server.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple

from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import InvalidArgument

_LAYOUT: Final = Struct(">BIQQQHQI")
_VERSION: Final = 1
_SEAL_BYTES: Final = 8
_TEXT_BYTES: Final = -(-(_LAYOUT.size + _SEAL_BYTES) * 4 // 3)
_PADDING: Final = b"=" * (-_TEXT_BYTES % 4)


class Token(NamedTuple):
    """One delivery of one message."""

    generation: int
    """The start of the broker that delivered it."""
    subscription_id: int
    consumer_id: int
    lease_id: int
    partition: int
    offset: int
    attempt: int


def key_of(store_id: bytes) -> bytes:
    """The key that seals the tokens of a store."""
    return blake2b(store_id, digest_size=32, person=b"penstock-token").digest()


def write_token(token: Token, key: bytes) -> str:
    """The token as text."""
    data = _LAYOUT.pack(_VERSION, *token)
    data += blake2b(data, digest_size=_SEAL_BYTES, key=key).digest()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def read_token(text: str, key: bytes) -> Token:
    """The delivery a token means. Raises InvalidArgument for what is no token of this store."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + _PADDING)
    except ValueError:
        data = b""
    if len(text) != _TEXT_BYTES or len(data) != _LAYOUT.size + _SEAL_BYTES:
        raise InvalidArgument(f"{text!r:.100} is not an ack token: send it as the pull gave it")
    plain, seal = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
    if not compare_digest(seal, blake2b(plain, digest_size=_SEAL_BYTES, key=key).digest()):
        raise InvalidArgument(
            f"the ack token {text!r:.100} was not made by this store, or was changed on the way"
        )
    version, *fields = _LAYOUT.unpack(plain)
    if version != _VERSION:
        raise InvalidArgument(f"ack token of version {version}; this server reads {_VERSION}")
    return Token(*fields)


def claims_of(tokens: list[Token]) -> dict[int, list[Claim]]:
    """What the tokens claim: by consumer, one claim for each lease and attempt."""
    leases: dict[tuple[int, int, int, int], list[int]] = {}
    for token in tokens:
        place = (token.consumer_id, token.lease_id, token.partition, token.attempt)
        leases.setdefault(place, []).append(token.offset)
    found: dict[int, list[Claim]] = {}
    for (consumer, lease, partition, attempt), offsets in leases.items():
        claim = Claim(lease, partition, attempt, ranges_of(offsets))
        found.setdefault(consumer, []).append(claim)
    return found


def ranges_of(offsets: list[int]) -> tuple[tuple[int, int], ...]:
    """Offsets, in any order, as rising ranges."""
    runs: list[list[int]] = []
    for offset in sorted(set(offsets)):
        if runs and runs[-1][1] == offset:
            runs[-1][1] = offset + 1
        else:
            runs.append([offset, offset + 1])
    return tuple((low, high) for low, high in runs)
