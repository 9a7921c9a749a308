"""What one line connection still has to say, in order: replies, and deliveries among them.

A reply takes its place when its command is read and is filled when its answer is there; a delivery
takes its place when it arrives and is written out only when its turn comes. So replies come in
the order of commands, and the first delivery behind the word that the subscription stands.
"""

from collections import deque
from typing import Final

from penstock.server.lines_publishing import Run
from penstock.server.lines_queue import Flying

CHUNK_BYTES: Final = 256 * 1024
"""About so much is handed to the socket at once."""


class Reply:
    """The place of one reply."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | None = None) -> None:
        self.data = data


class Outbox:
    """The places in order. Pure: the connection writes what `take` gives."""

    def __init__(self) -> None:
        self._places: deque[Reply | Run | Flying] = deque()
        self.flying_bytes = 0
        """Bodies of deliveries that were not written out yet."""
        self.runs = 0
        """Runs of `pub` that are not answered or not taken yet."""

    def __bool__(self) -> bool:
        return bool(self._places)

    def reply(self, data: bytes | None = None) -> Reply:
        """A place for the next reply, which is there already or comes later."""
        place = Reply(data)
        self._places.append(place)
        return place

    def run(self, run: Run) -> None:
        """A place for the replies of a run."""
        self.runs += 1
        self._places.append(run)

    def deliver(self, flying: Flying) -> None:
        """A place for a delivery."""
        self.flying_bytes += flying.bytes
        self._places.append(flying)

    def take(self) -> bytes:
        """What can be said now, about CHUNK_BYTES of it; empty when nothing can."""
        parts: list[bytes] = []
        size = 0
        places = self._places
        while places and size < CHUNK_BYTES:
            data = self._said(places[0])
            if data is None:
                break
            places.popleft()
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    def _said(self, place: Reply | Run | Flying) -> bytes | None:
        if isinstance(place, Reply):
            return place.data
        if isinstance(place, Run):
            if not place.is_done:
                return None
            self.runs -= 1
            return b"".join(place.lines)
        self.flying_bytes -= place.bytes
        return b"" if place.is_gone else place.line()
