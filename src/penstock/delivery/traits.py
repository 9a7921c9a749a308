"""What the broker knows of held messages besides their offsets: key, priority, and two times.

Kept in packed columns, a few bytes a message, for batches that have such columns at all; they are
part of snapshots, so that nothing has to be read again after a restart.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.batch import Batch
from penstock.delivery.ranges import RangeSet
from penstock.vocabulary.records import Published

if TYPE_CHECKING:
    from penstock.delivery.state import Partition

CHUNK_COUNT_MAX: Final = 4_096
NEVER: Final = 1 << 62

Offsets = NDArray[np.int64]
Numbers = NDArray[Any]

_LETTERS: Final = {"hashes": "Q", "levels": "h", "due": "q", "expiry": "q"}
NAMES: Final = tuple(_LETTERS)
"""hashes: of the key, 0 = none. levels: the priority. due: deliver_at. expiry: expires_at."""


class Chunk:
    """The traits of consecutive messages; a column is None where all have the default."""

    __slots__ = ("base", "columns", "count", "live", "soonest")

    def __init__(self, base: int) -> None:
        self.base = base
        self.count = 0
        self.live = 0
        """Messages that are still held."""
        self.columns: dict[str, array[int]] = {}
        self.soonest = NEVER
        """No message of this chunk that may expire does so earlier."""

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.base + self.count

    def extend(self, count: int, fresh: dict[str, "array[int]"]) -> None:
        """Adds the traits of more messages."""
        for name in self.columns.keys() | fresh.keys():
            column = self.columns.get(name)
            if column is None:
                column = self.columns[name] = _zeros(name, self.count)
            column.extend(fresh.get(name) or _zeros(name, count))
        self.count += count
        self.live += count
        if "expiry" in fresh:
            self.soonest = min(self.soonest, _soonest(fresh["expiry"]))

    def part(self, name: str, low: int, high: int) -> Numbers:
        """A column of the offsets low…high, as a copy."""
        column = self.columns.get(name)
        if column is None:
            return np.zeros(high - low, dtype=_LETTERS[name])
        return np.array(column[low - self.base : high - self.base], dtype=_LETTERS[name])


def _zeros(name: str, count: int) -> "array[int]":
    letter = _LETTERS[name]
    return array(letter, bytes(array(letter).itemsize * count))


def _soonest(values: Sequence[int]) -> int:
    return min((value for value in values if value), default=NEVER)


class Traits:
    """The traits of a partition's held messages, in chunks. Messages without a chunk have none."""

    __slots__ = ("_starts", "chunks", "counts")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self._starts: list[int] = []
        self.counts = dict.fromkeys(NAMES, 0)
        """How many chunks have each column."""

    @property
    def has_order(self) -> bool:
        """True when messages may not simply be handed out as they came."""
        return bool(self.counts["levels"] or self.counts["due"])

    def add(self, base: int, count: int, fresh: dict[str, "array[int]"]) -> None:
        """Notes the traits of new messages at `base`; an offset below what is known was noted."""
        last = self.chunks[-1] if self.chunks else None
        if last is not None and base < last.end:
            return
        if last is None or last.end != base or last.count + count > CHUNK_COUNT_MAX:
            last = Chunk(base)
            self.chunks.append(last)
            self._starts.append(base)
        known = set(last.columns)
        last.extend(count, fresh)
        for name in last.columns.keys() - known:
            self.counts[name] += 1

    def parts(self, start: int, end: int) -> Iterator[tuple[int, int, Chunk | None]]:
        """start…end cut at the edges of chunks; None where there is none."""
        at = max(bisect_right(self._starts, start) - 1, 0)
        while start < end:
            chunk = self.chunks[at] if at < len(self.chunks) else None
            if chunk is not None and chunk.end <= start:
                at += 1
                continue
            if chunk is None or chunk.base >= end:
                yield start, end, None
                return
            if start < chunk.base:
                yield start, chunk.base, None
                start = chunk.base
            upto = min(end, chunk.end)
            yield start, upto, chunk
            start = upto
            at += 1

    def column(self, name: str, start: int, end: int) -> Numbers:
        """One trait of each offset in start…end."""
        pieces = [
            np.zeros(high - low, dtype=_LETTERS[name])
            if chunk is None
            else chunk.part(name, low, high)
            for low, high, chunk in self.parts(start, end)
        ]
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=_LETTERS[name])

    def of(self, name: str, offsets: Offsets) -> Numbers:
        """One trait of these rising offsets."""
        if not len(offsets):
            return np.zeros(0, dtype=_LETTERS[name])
        first = int(offsets[0])
        return self.column(name, first, int(offsets[-1]) + 1)[offsets - first]

    def hash_of(self, offset: int) -> int:
        """The key of one message, as its hash; 0 = none."""
        return int(self.column("hashes", offset, offset + 1)[0])

    def touch(self, start: int, end: int) -> None:
        """These messages wait again: the next look at what expires must see them."""
        if self.counts["expiry"]:
            for low, high, chunk in self.parts(start, end):
                if chunk is not None and "expiry" in chunk.columns:
                    chunk.soonest = min(
                        chunk.soonest, _soonest(chunk.part("expiry", low, high).tolist())
                    )

    def release(self, start: int, end: int) -> bool:
        """These messages are not held any more; False when nothing is known of any message now."""
        is_empty = False
        for low, high, chunk in self.parts(start, end):
            if chunk is not None:
                chunk.live -= high - low
                is_empty |= chunk.live <= 0
        return self._drop_empty() if is_empty else True

    def release_mask(self, base: int, mask: int) -> bool:
        """The same for the offsets of these bits, counted from `base`."""
        is_empty = False
        for low, high, chunk in self.parts(base, base + mask.bit_length()):
            if chunk is not None:
                part = mask >> (low - base) & ((1 << (high - low)) - 1)
                chunk.live -= part.bit_count()
                is_empty |= chunk.live <= 0
        return self._drop_empty() if is_empty else True

    def _drop_empty(self) -> bool:
        for chunk in self.chunks:
            if chunk.live <= 0:
                for name in chunk.columns:
                    self.counts[name] -= 1
        self.chunks = [chunk for chunk in self.chunks if chunk.live > 0]
        self._starts = [chunk.base for chunk in self.chunks]
        return bool(self.chunks)

    def count_live(self, released: RangeSet) -> None:
        """After a restart: how many messages of each chunk are held."""
        for chunk in self.chunks:
            chunk.live = released.missing(chunk.base, chunk.end)

    def dump(self) -> list[Any]:
        """For a snapshot."""
        return [
            [c.base, c.count, {name: column.tobytes() for name, column in c.columns.items()}]
            for c in self.chunks
        ]

    @classmethod
    def restored(cls, state: list[Any]) -> "Traits":
        """From a snapshot."""
        fresh = cls()
        for base, count, columns in state:
            fresh.add(base, count, {n: array(_LETTERS[n], data) for n, data in columns.items()})
        return fresh


def is_plain(batch: bytes) -> bool:
    """True for a batch that has nothing but bodies; told by its header, without decoding."""
    return not batch or (batch[2:4] == b"\1\0" and batch[12:13] == b"\1")


def traits_of(record: Published, *, is_timed: bool) -> dict[str, "array[int]"]:
    """The columns of a record's messages that are of interest; without times unless `is_timed`."""
    batch = Batch(record.batch, verify=False)
    found: dict[str, array[int]] = {}
    for name, column in (
        ("hashes", batch.key_hashes),
        ("levels", batch.priorities),
        ("due", batch.deliver_at if is_timed else None),
        ("expiry", batch.expires_at if is_timed else None),
    ):
        if column is not None:
            values = array(_LETTERS[name])
            if column.format == values.typecode:
                values.frombytes(column.cast("B"))  # at once, not number by number
            else:
                values.extend(column)
            if record.kept is not None:
                values = array(_LETTERS[name], [values[index] for index in record.kept])
            found[name] = values
    return found


def dump_traits(partition: "Partition") -> list[Any] | None:
    """For a snapshot."""
    return None if partition.traits is None else partition.traits.dump()


def load_traits(partition: "Partition", found: list[Any]) -> None:
    """From a snapshot."""
    partition.traits = Traits.restored(found)
    partition.traits.count_live(partition.released)
