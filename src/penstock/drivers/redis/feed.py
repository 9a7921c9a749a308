"""One consumer of a Redis group: reads, takes over, settles."""

import time
from collections.abc import Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from penstock.drivers.foreign.carrier import Refused, Release, Seat
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.redis import scripts
from penstock.drivers.redis.entries import (
    OWN,
    bodies_of,
    flat,
    letters_read,
    opened,
    subscriptions_key,
    text,
    why_of,
)
from penstock.vocabulary.errors import PenstockError, Unavailable
from penstock.vocabulary.limits import DEAD_BYTES_MAX_DEFAULT, LEASE_S_DEFAULT

if TYPE_CHECKING:
    from penstock.drivers.redis.carrier import RedisCarrier

NOBODY: Final = OWN + ":nobody"
"""The consumer that has what was given back."""
POLL_S_MAX: Final = 0.25
POLL_S_MIN: Final = 0.02


class RedisFeed:
    """One consumer of a group."""

    def __init__(self, carrier: "RedisCarrier", seat: Seat, group: str, consumer: str) -> None:
        self._carrier = carrier
        self._seat = seat
        self._policy = seat.policy
        self._lease_ms = max(1, int(seat.policy.lease_s * 1000))
        self._is_once = seat.policy.qos == 0
        self._redis = carrier.client()
        self._redis.set_response_callback("XREADGROUP", _as_it_came)
        self._where: dict[str, Any] = {"stream": seat.topic, "group": group, "consumer": consumer}
        self._lease: dict[str, Any] = {
            "policies": subscriptions_key(seat.topic), "usual": LEASE_S_DEFAULT,
            "here": seat.policy.lease_s,
        }  # fmt: skip
        """The lease as scripts find it: what the policy says now, not when this consumer came."""
        self._group = group
        self._consumer = consumer
        self._poll_s = min(max(seat.policy.lease_s / 10, POLL_S_MIN), POLL_S_MAX)
        self._claim_at = 0.0
        self._dues: list[float] = []
        """When what this consumer gave back is free again."""
        self._tried: set[str] = set()
        """Deliveries that were settled without an answer: gone then means done."""

    @property
    def where(self) -> dict[str, Any]:
        """Stream, group and consumer."""
        return self._where

    async def fetch(self, count: int, _bytes_max: int) -> list[Letter]:
        now = time.monotonic()
        if now >= self._claim_at or (self._dues and self._dues[0] <= now):
            while self._dues and self._dues[0] <= now:
                heappop(self._dues)
            self._claim_at = now + self._poll_s
            rows = await self._carrier.run(
                scripts.CLAIM, **self._where, **self._lease, count=min(count, 1000)
            )
            if rows:
                return [opened(text(id), fields, tried) for id, tried, fields in rows]
        until = min(self._claim_at, self._dues[0]) if self._dues else self._claim_at
        wait_ms = max(1, int((until - time.monotonic()) * 1000))
        answer = await self._carrier.call(
            lambda: self._redis.execute_command(
                "XREADGROUP", "GROUP", self._group, self._consumer, "COUNT", min(count, 1000),
                "BLOCK", wait_ms, *(["NOACK"] if self._is_once else []), "STREAMS",
                self._seat.topic, ">",
            )
        )  # fmt: skip
        return letters_read(answer)

    async def settle(self, letters: Sequence[Letter]) -> list[Refused]:
        listed = [(letter.position, letter.attempt) for letter in letters]
        refused = await self._decide(scripts.SETTLE, letters, letters=listed)
        await self._carrier.trim(self._seat.topic)
        return refused

    async def release(self, releases: Sequence[Release]) -> list[Refused]:
        now = time.monotonic()
        rows: list[tuple[str, int, int, int]] = []
        for letter, delay_s, is_unstarted in releases:
            delay_ms = min(int(delay_s * 1000), self._lease_ms)
            count = letter.attempt - 1 if is_unstarted else letter.attempt
            rows.append((letter.position, letter.attempt, delay_ms, count))
            heappush(self._dues, now + delay_ms / 1000 + 0.001)
        letters = [release.letter for release in releases]
        return await self._decide(
            scripts.RELEASE, letters, letters=rows, nobody=NOBODY, **self._lease
        )

    async def renew(self, letters: Sequence[Letter]) -> None:
        listed = [(letter.position, letter.attempt) for letter in letters]
        await self._carrier.run(scripts.RENEW, **self._where, letters=listed)

    async def bury(self, dead_topic: str, letters: Sequence[Letter]) -> list[Refused]:
        rows = [
            {"id": each.position, "attempt": each.attempt, "fields": flat(each)} for each in letters
        ]
        return await self._decide(
            scripts.BURY, letters, bodies=bodies_of(letters), letters=rows, dead=dead_topic,
            policies=self._lease["policies"], usual=DEAD_BYTES_MAX_DEFAULT,
            here=self._policy.dead_bytes_max,
        )  # fmt: skip

    async def _decide(
        self, script: str, meant: Sequence[Letter], **arguments: Any
    ) -> list[Refused]:
        try:
            answer = await self._carrier.run(script, **self._where, **arguments)
        except Unavailable:
            self._tried.update(letter.position for letter in meant)
            raise
        refused = [
            Refused(meant[at], why_of(text(why)))
            for at, why in answer
            if not (text(why) == "gone" and meant[at].position in self._tried)
        ]
        if self._tried:
            self._tried.difference_update(letter.position for letter in meant)
        return refused

    async def close(self) -> None:
        with suppress(Exception):
            await self._redis.aclose()
        with suppress(PenstockError):
            await self._carrier.run(
                scripts.LEAVE, **self._where, **self._lease, nobody=NOBODY,
                is_ephemeral=self._seat.subscription is None,
            )  # fmt: skip
            await self._carrier.trim(self._seat.topic, is_due=True)


def _as_it_came(answer: Any, **_options: Any) -> Any:
    """In place of what the SDK makes of an answer: a dict for each entry."""
    return answer
