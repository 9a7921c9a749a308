"""Long lists that are mostly not looked at: letters of plain bodies, and places. Pure.

A batch of bodies and nothing else is sent without an object for each message where a carrier can,
and where the broker put each message is spelled when somebody asks for its receipt.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, overload

from penstock.batch.view import plain_bodies
from penstock.drivers.foreign.carrier import Placed
from penstock.drivers.foreign.envelope import Letter, letters_of
from penstock.vocabulary.message import render_id

Place = tuple[int, int]
"""Partition and offset."""


class PlainLetters(Sequence[Letter]):
    """Bodies whose ids are made of their publisher and number; a letter is made when looked at."""

    __slots__ = ("bodies", "id_start", "sequence")

    def __init__(self, bodies: list[bytes], id_start: str, sequence: int) -> None:
        self.bodies = bodies
        self.id_start = id_start
        """What every id begins with; its number in base 16 follows."""
        self.sequence = sequence

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, index: int) -> Letter: ...
    @overload
    def __getitem__(self, index: slice) -> list[Letter]: ...
    def __getitem__(self, index: int | slice) -> Letter | list[Letter]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        id = f"{self.id_start}{self.sequence + at:x}"
        body = self.bodies[at]
        return Letter(body=body, id=id, dedup=id, sequence=self.sequence + at, is_plain=True)


def batch_letters(batch: bytes, publisher: bytes, epoch: int, sequence: int) -> Sequence[Letter]:
    """The messages of a batch that is being published."""
    bodies = plain_bodies(batch)
    if bodies is None or None in bodies:
        return letters_of(batch, publisher, epoch, sequence)
    start = render_id(publisher, epoch, 0)[:-1]
    return PlainLetters(bodies, start, sequence)  # type: ignore[arg-type]  # none is None


class Spelled(Sequence[Any]):
    """What is made of each place when it is looked at."""

    __slots__ = ("places",)

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Any:
        found = self.places[index]
        if isinstance(index, slice):
            return type(self)(found)
        return self.spell(found)

    @abstractmethod
    def spell(self, place: Any) -> Any:
        """One of them."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


class Places(Spelled):
    """As a carrier tells them: Placed."""

    def spell(self, place: Any) -> Placed:
        part, offset = place
        return Placed(offset, f"{part}:{offset}", partition=part)


class Marks(Spelled):
    """As a receipt needs them: offset and position."""

    def spell(self, place: Any) -> tuple[int, str]:
        part, offset = place
        return offset, f"{part}:{offset}"


class Homes(Spelled):
    """Partitions."""

    def spell(self, place: Any) -> int:
        return int(place[0])
