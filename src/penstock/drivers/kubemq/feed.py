"""One consumer of a KubeMQ queue.

Each take has a hand of its own: KubeMQ answers the requests of one stream one after the other, so
that a take that waits would hold up the acks behind it. The server knows no leases; this consumer
gives back what was held too long, and the server what a broken connection held.
"""

import asyncio
import time
from asyncio import Task
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.drivers.foreign.carrier import Refused, Release, Seat
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.kubemq.channels import opened
from penstock.drivers.kubemq.service import Hand
from penstock.vocabulary.errors import PenstockError

if TYPE_CHECKING:
    from penstock.drivers.kubemq.carrier import KubeMqCarrier

WAIT_S: Final = 1.0
GUARD_SHARE: Final = 5
GUARD_S_MAX: Final = 0.5
TAKE_MAX: Final = 1_000


class Hold:
    """One delivery: the hand that holds it, and until when."""

    __slots__ = ("copy", "hand", "number", "until")

    def __init__(self, hand: Hand, number: int, until: float) -> None:
        self.hand = hand
        self.number = number
        self.until = until
        self.copy: Letter | None = None
        """The letter as it goes to the dead letters, the same for every try."""


class KubeMqFeed:
    """One consumer of a queue."""

    def __init__(self, carrier: "KubeMqCarrier", seat: Seat, channel: str) -> None:
        self._carrier = carrier
        self._service = carrier.service
        self.seat = seat
        self._channel = channel
        self._lease_s = seat.policy.lease_s
        self._free: list[Hand] = []
        self._out: dict[int, Hold] = {}
        """By their number in the queue."""
        self._taking: Hand | None = None
        self._guard: Task[None] | None = None

    async def fetch(self, count: int, _bytes_max: int) -> list[Letter]:
        if self._guard is None:
            self._guard = asyncio.get_running_loop().create_task(self._watch())
        hand = self._free.pop() if self._free else Hand(self._service)
        self._taking = hand
        try:
            messages = await hand.take(self._channel, min(count, TAKE_MAX), WAIT_S)
        except BaseException:
            hand.close()
            raise
        finally:
            self._taking = None
        if not messages:
            self._free.append(hand)
            return []
        until = time.monotonic() + self._lease_s
        letters = [opened(each) for each in messages]
        for letter in letters:
            letter.token = self._out[letter.sequence] = Hold(hand, letter.sequence, until)
            spared = self._carrier.spared.get((self._channel, letter.position), 0)
            letter.attempt = max(1, letter.attempt - spared)
        return letters

    async def _watch(self) -> None:
        """Gives back what was held longer than its lease."""
        while True:
            await asyncio.sleep(min(self._lease_s / GUARD_SHARE, GUARD_S_MAX))
            now = time.monotonic()
            late = [hold for hold in self._out.values() if hold.until <= now]
            if late:
                with suppress(PenstockError):
                    await self._tell(late, is_done=False)

    async def _tell(self, holds: Iterable[Hold], *, is_done: bool) -> dict[int, str]:
        """Acks or gives back; number → why it was refused."""
        by_hand: dict[Hand, list[int]] = {}
        for hold in holds:
            if self._out.pop(hold.number, None) is hold:
                by_hand.setdefault(hold.hand, []).append(hold.number)
        refused: dict[int, str] = {}
        for hand, numbers in by_hand.items():
            try:
                why = await (hand.finish if is_done else hand.give_back)(numbers)
            except PenstockError:
                hand.close()  # the connection is gone, and the server gives all of it back
                continue
            refused |= dict.fromkeys(numbers, why) if why else {}
            if not hand.held:
                self._free.append(hand)
        return refused

    async def settle(self, letters: Sequence[Letter]) -> list[Refused]:
        refused = await self._tell([each.token for each in letters], is_done=True)
        return [
            Refused(each, refused[each.sequence]) for each in letters if each.sequence in refused
        ]

    async def release(self, releases: Sequence[Release]) -> list[Refused]:
        """At once: the desk keeps what has a delay until it is due."""
        for letter, _, is_unstarted in releases:
            if is_unstarted:
                self._carrier.spare(self._channel, letter.position)
        await self._tell([each.letter.token for each in releases], is_done=False)
        return []

    async def renew(self, letters: Sequence[Letter]) -> None:
        until = time.monotonic() + self._lease_s
        for letter in letters:
            letter.token.until = until

    async def bury(self, dead_topic: str, letters: Sequence[Letter]) -> list[Refused]:
        for letter in letters:
            if letter.token.copy is None:
                letter.token.copy = msgspec.structs.replace(letter, token=None)
        await self._carrier.send(dead_topic, [each.token.copy for each in letters], None)
        return await self.settle(letters)

    async def close(self) -> None:
        if self._guard is not None:
            self._guard.cancel()
        for hand in {*self._free, *(hold.hand for hold in self._out.values())}:
            hand.close()
        if self._taking is not None:
            self._taking.close()
        await self._carrier.leave(self, self._channel)
