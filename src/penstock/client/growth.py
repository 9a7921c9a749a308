"""A topic that gets more partitions while this client publishes to it.

The broker refuses a batch that was split for fewer partitions, and says how many there are now.
What it refused was not stored and is split anew. Before anything goes out the new way, everything
sent the old way must be answered: else a message could overtake an older one of its key.
"""

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.client.packing import has_fields, pack
from penstock.client.receipts import Parcel


class Flights:
    """What one route has under way, and who waits until nothing is."""

    __slots__ = ("callers", "flying", "parcels", "waiting")

    def __init__(self) -> None:
        self.flying = 0
        """Publishes of single messages that are not answered yet."""
        self.parcels = 0
        """Batches of lists, and single messages nobody waits for any more."""
        self.waiting = 0
        """Those that were refused and wait to go out the new way."""
        self.callers: list[Callable[[], None]] | None = None
        """To be told when everything under way is answered."""

    @property
    def is_quiet(self) -> bool:
        """True when nothing is under way, and nobody is about to send what was refused."""
        return not (self.flying or self.parcels or self.waiting)

    def landed(self) -> None:
        """An answer came: if it was the last one, whoever waits goes on."""
        if self.callers is not None and not (self.flying or self.parcels):
            callers, self.callers = self.callers, None
            for call in callers:
                call()

    def when_landed(self, call: Callable[[], None]) -> None:
        """Calls once everything under way is answered; at once when nothing is."""
        self.callers = [*(self.callers or ()), call]
        self.landed()

    async def settle(self, loop: AbstractEventLoop) -> None:
        """Returns once everything under way is answered, to whoever asked first first."""
        if self.is_quiet:
            return
        told: Future[None] = loop.create_future()

        def tell() -> None:
            if not told.done():
                told.set_result(None)

        if self.flying or self.parcels:
            self.when_landed(tell)
        else:  # behind those that were told and did not go on yet
            loop.call_soon(tell)
        self.waiting += 1
        try:
            await told
        finally:
            self.waiting -= 1

    def parcel(self, answer: Callable[[Any], None]) -> Callable[[Any], None]:
        """The answer to a batch that counts in `parcels`, whether or not anybody waits for it."""

        def landed(stored: Any) -> None:
            self.parcels -= 1
            if self.callers is not None:
                self.landed()
            answer(stored)

        return landed


def landing(routes: Iterable[Flights], answer: Callable[[Any], None]) -> Callable[[Any], None]:
    """The answer to a unit, which counts in `parcels` of every topic it publishes to."""

    def landed(stored: Any) -> None:
        for route in routes:
            route.parcels -= 1
            if route.callers is not None:
                route.landed()
        answer(stored)

    return landed


def repack(
    messages: Sequence[Any], indexes: Sequence[int], partitions: int, turn: int
) -> list[Parcel]:
    """Batches for the messages of a list that were refused, split for the new partitions."""
    chosen = sorted(indexes)
    left = [messages[index] for index in chosen]
    return [
        Parcel(part.partition, part.batch, [chosen[at] for at in part.indexes])
        for part in pack(left, partitions, turn, is_plain=not has_fields(left))
    ]
