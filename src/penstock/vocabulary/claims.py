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


class Refusal(NamedTuple):
    """A claim that was not accepted."""

    partition: int
    offset: int
    why: str
