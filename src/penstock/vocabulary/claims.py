"""What a consumer says it holds when it settles messages, and the broker's refusal."""

from typing import NamedTuple

from penstock.vocabulary.records import Ranges


class Claim(NamedTuple):
    """What a consumer says it holds: messages of one lease."""

    lease_id: int
    partition: int
    attempt: int
    ranges: Ranges
    mask: int = 0
    """Bits of the messages that are meant, from the start of the only range on; 0 = all."""


class Revoked(NamedTuple):
    """Messages that were taken from a consumer, so that those of a key come again in order.

    Slices before this news may hold them, slices after it do not.
    """

    claim: Claim | None
    """The nack this answers; None when leases ran out."""
    parts: tuple[tuple[int, Ranges], ...]
    """(lease id, what was taken of it)."""


class Refusal(NamedTuple):
    """A claim that was not accepted."""

    partition: int
    offset: int
    why: str
