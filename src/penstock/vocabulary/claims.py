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


class Renewal(NamedTuple):
    """Messages of one lease that need more time; `end` None = to the end of the lease."""

    lease_id: int
    start: int
    end: int | None


class Held(NamedTuple):
    """Messages of one lease that a consumer still had when its connection ended."""

    lease_id: int
    partition: int
    attempt: int
    ranges: Ranges


class Returning(NamedTuple):
    """Who a consumer was before its connection ended, and what it still holds."""

    generation: int
    """The start of the broker that attached it."""
    consumer_id: int
    held: list[Held]


class Kept(NamedTuple):
    """What a consumer that returned still holds, under a new lease."""

    old_lease_id: int
    lease_id: int
    ranges: Ranges
