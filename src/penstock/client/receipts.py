"""Receipts for many messages: what the broker said about each batch, spelled out when asked for."""

from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from penstock.vocabulary.message import Message, Receipt, render_id
from penstock.vocabulary.stored import Stored


class Parcel(NamedTuple):
    """One batch of a publish and which messages of the list are in it."""

    partition: int
    batch: bytes
    indexes: Sequence[int]
    """Rising; message `indexes[i]` of the list is number i of the batch."""


class Sent(NamedTuple):
    """A parcel that was handed to the broker, and its answer."""

    parcel: Parcel
    publisher: bytes
    epoch: int
    sequence: int
    stored: Stored


def place_of(stored: Stored, at: int) -> tuple[int | None, bool]:
    """The offset of a batch's message, if it is known, and whether it was stored before."""
    base, kept, places = stored.base, stored.kept, stored.places
    if places is not None and at in places:
        return places[at], True
    if kept is None or base is None:
        return (None if base is None else base + at), stored.is_duplicate
    return (base + kept.index(at), False) if at in kept else (None, True)


def spelled_place(stored: Stored, partition: int, at: int) -> tuple[int | None, str, bool]:
    """Offset and position of a batch's message, and whether it was stored before."""
    offset, is_duplicate = place_of(stored, at)
    if stored.marks is not None:
        offset, position = stored.marks[at]
        return offset, position, is_duplicate or (stored.kept is not None and at not in stored.kept)
    return offset, "" if offset is None else f"{partition}:{offset}", is_duplicate


def home_of(stored: Stored, partition: int, at: int) -> int:
    """The partition of a batch's message: where it was sent to, if the broker chose no other."""
    return partition if stored.homes is None else stored.homes[at]


class Receipts(Sequence[Receipt]):
    """One receipt for each message, in the order of the list; made when looked at."""

    def __init__(self, topic: str, messages: Sequence[Any], sent: list[Sent]) -> None:
        self._topic = topic
        self._messages = messages
        self._sent = sent
        self._where: list[tuple[Sent, int]] | None = None

    @property
    def duplicates(self) -> list[int]:
        """Indexes of the messages that were stored before."""
        found: list[int] = []
        for sent in self._sent:
            indexes, kept = sent.parcel.indexes, sent.stored.kept
            if sent.stored.is_duplicate:
                found.extend(indexes)
            elif kept is not None:
                stored = set(kept)
                found.extend(each for at, each in enumerate(indexes) if at not in stored)
        return sorted(found)

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self._receipt(each) for each in range(len(self))[index]]
        return self._receipt(range(len(self))[index])

    def __repr__(self) -> str:
        return f"<Receipts for {len(self)} messages to {self._topic}>"

    def _receipt(self, index: int) -> Receipt:
        sent, at = self._place(index)
        stored, partition = sent.stored, sent.parcel.partition
        offset, position, is_duplicate = spelled_place(stored, partition, at)
        message = self._messages[index]
        given = message.id if isinstance(message, Message) else None
        return Receipt(
            self._topic,
            home_of(stored, partition, at),
            offset,
            position,
            given or render_id(sent.publisher, sent.epoch, sent.sequence + at),
            stored.durability,
            is_duplicate,
        )

    def _place(self, index: int) -> tuple[Sent, int]:
        if len(self._sent) == 1:
            return self._sent[0], index
        if self._where is None:
            where: list[Any] = [None] * len(self)
            for sent in self._sent:
                for at, each in enumerate(sent.parcel.indexes):
                    where[each] = (sent, at)
            self._where = where
        return self._where[index]
