"""An attachment that remembers what it is asked for, instead of a broker."""

from collections.abc import Callable
from typing import Any

from penstock.delivery.state import bit_ranges
from penstock.vocabulary.claims import Claim, Renewal
from penstock.vocabulary.records import Cause, Ranges


class Recorder:
    """Notes every call; `failure` is raised by the next ack."""

    lease_s = 30.0

    def __init__(self) -> None:
        self.acked: list[tuple[int, Ranges]] = []
        self.given_back: list[tuple[int, Ranges, Cause, float | None, str]] = []
        self.renewals: list[tuple[list[Renewal], float]] = []
        self.failure: Exception | None = None

    def ack(self, claims: list[Claim]) -> None:
        if self.failure is not None:
            raise self.failure
        for claim in claims:
            ranges = claim.ranges
            if claim.mask:
                ranges = tuple(bit_ranges(claim.mask, ranges[0][0]))
            self.acked.append((claim.lease_id, ranges))

    def give_back(self, claim: Claim, cause: Cause, delay_s: float | None, reason: str) -> None:
        self.given_back.append((claim.lease_id, claim.ranges, cause, delay_s, reason))

    def extend(self, renewals: list[Renewal], seconds: float) -> None:
        self.renewals.append((renewals, seconds))

    def flush(self, answer: Callable[[Any], None]) -> None:
        answer(None)

    def detach(self, begun: dict[int, Ranges], answer: Callable[[Any], None]) -> None:
        answer(None)
