"""Sets and maps of offsets, because messages come and go in runs, and sometimes scattered.

A RangeSet is everything below a floor and what was added above it: whole blocks of 4,096 offsets
as ranges of blocks, the others as one integer each, a bit for an offset. A RangeMap gives offsets a
value: for each value the set of offsets that have it. Long runs cost a few words, scattered offsets
a bit each, and both are changed with a few operations however many messages they speak of.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Final

Run = tuple[int, int]

SHIFT: Final = 12
BLOCK: Final = 1 << SHIFT
FULL: Final = (1 << BLOCK) - 1
_LOW: Final = BLOCK - 1


def mask_runs(mask: int, base: int) -> Iterator[Run]:
    """The runs of ones in a mask, as offset ranges from `base`; found when they are asked for."""
    at = base
    while mask:
        low = (mask & -mask).bit_length() - 1
        mask >>= low
        length = (~mask & (mask + 1)).bit_length() - 1
        yield at + low, at + low + length
        mask >>= length
        at += low + length


class Blocks:
    """Offsets in blocks: whole ones as ranges of block numbers, the others as bits."""

    __slots__ = ("bits", "ends", "starts")

    def __init__(self) -> None:
        self.bits: dict[int, int] = {}
        """Block number → bits, neither none nor all of them."""
        self.starts: list[int] = []
        self.ends: list[int] = []
        """Whole blocks, as rising ranges of block numbers."""

    def __bool__(self) -> bool:
        return bool(self.bits or self.starts)

    def get(self, block: int) -> int:
        """The bits of a block."""
        found = self.bits.get(block)
        if found is not None:
            return found
        if self.starts:
            at = bisect_right(self.starts, block) - 1
            if at >= 0 and block < self.ends[at]:
                return FULL
        return 0

    def put(self, block: int, bits: int) -> None:
        """Gives a block these bits."""
        if bits == FULL:
            self.bits.pop(block, None)
            self.fill(block, block + 1)
            return
        if block not in self.bits and self.starts:
            self._break(block, block + 1)
        if bits:
            self.bits[block] = bits
        else:
            self.bits.pop(block, None)

    def fill(self, start: int, end: int) -> None:
        """Makes blocks whole."""
        if start >= end:
            return
        if self.bits:
            self._drop_bits(start, end)
        starts, ends = self.starts, self.ends
        low, high = bisect_left(ends, start), bisect_right(starts, end)
        if low < high:
            start, end = min(start, starts[low]), max(end, ends[high - 1])
        starts[low:high] = [start]
        ends[low:high] = [end]

    def empty(self, start: int, end: int) -> None:
        """Takes all offsets of these blocks out."""
        if start < end:
            self._break(start, end)
            if self.bits:
                self._drop_bits(start, end)

    def _drop_bits(self, start: int, end: int) -> None:
        if end - start <= len(self.bits):
            for block in range(start, end):
                self.bits.pop(block, None)
        else:
            for block in [b for b in self.bits if start <= b < end]:
                del self.bits[block]

    def _break(self, start: int, end: int) -> None:
        starts, ends = self.starts, self.ends
        low, high = bisect_right(ends, start), bisect_left(starts, end)
        if low >= high:
            return
        edges = [(starts[low], start), (end, ends[high - 1])]
        kept = [edge for edge in edges if edge[0] < edge[1]]
        starts[low:high] = [edge[0] for edge in kept]
        ends[low:high] = [edge[1] for edge in kept]

    def add(self, start: int, end: int) -> None:
        """Puts a range in."""
        self._edges(start, end, is_in=True)

    def remove(self, start: int, end: int) -> None:
        """Takes a range out."""
        self._edges(start, end, is_in=False)

    def _edges(self, start: int, end: int, *, is_in: bool) -> None:
        """Whole blocks at once, the two ends by their bits."""
        first, last = start >> SHIFT, (end - 1) >> SHIFT
        for block in (first,) if first == last else (first, last):
            base = block << SHIFT
            low, high = max(start - base, 0), min(end - base, BLOCK)
            bits = ((1 << (high - low)) - 1) << low
            found = self.get(block)
            self.put(block, found | bits if is_in else found & ~bits)
        if is_in:
            self.fill(first + 1, last)
        else:
            self.empty(first + 1, last)

    def window(self, base: int, size: int) -> int:
        """The bits of base…base + size, from `base` on."""
        first, last = base >> SHIFT, (base + size - 1) >> SHIFT
        found = 0
        for block in range(first, last + 1):
            bits = self.get(block)
            if bits:
                found |= bits << ((block - first) << SHIFT)
        return found >> (base & _LOW) & ((1 << size) - 1)

    def add_mask(self, base: int, mask: int) -> None:
        """Puts the offsets of these bits in, counted from `base`."""
        for block, bits in _split(base, mask):
            self.put(block, self.get(block) | bits)

    def remove_mask(self, base: int, mask: int) -> None:
        """Takes the offsets of these bits out."""
        for block, bits in _split(base, mask):
            found = self.get(block)
            if found & bits:
                self.put(block, found & ~bits)

    def runs(self, start: int, end: int) -> Iterator[Run]:
        """What is in, in start…end, as rising ranges that do not touch."""
        last: Run | None = None
        for low, high in self._pieces(start, end):
            low, high = max(low, start), min(high, end)  # noqa: PLW2901 - cut to what was asked
            if last is not None and last[1] == low:
                last = (last[0], high)
                continue
            if last is not None:
                yield last
            last = (low, high)
        if last is not None:
            yield last

    def _pieces(self, start: int, end: int) -> Iterator[Run]:
        """Runs by block, in order; the first and the last may reach over the edges."""
        first, last = start >> SHIFT, (end - 1) >> SHIFT
        if last - first < len(self.bits):
            numbers = [block for block in range(first, last + 1) if block in self.bits]
        else:
            numbers = sorted(block for block in self.bits if first <= block <= last)
        at = bisect_right(self.ends, first)
        for block in numbers:
            while at < len(self.starts) and self.starts[at] < block:
                yield self.starts[at] << SHIFT, self.ends[at] << SHIFT
                at += 1
            base = block << SHIFT
            low, high = max(start - base, 0), min(end - base, BLOCK)
            bits = self.bits[block] >> low & ((1 << (high - low)) - 1)
            yield from mask_runs(bits, base + low)
        while at < len(self.starts) and self.starts[at] <= last:
            yield self.starts[at] << SHIFT, self.ends[at] << SHIFT
            at += 1

    def has_any(self, start: int, end: int) -> bool:
        """True when something in start…end is in."""
        first = start >> SHIFT
        if first == (end - 1) >> SHIFT:  # as for most acks
            bits = self.get(first) >> (start & _LOW)
            return bool(bits & ((1 << (end - start)) - 1))
        return any(True for _ in self._pieces(start, end))

    def is_empty_from(self, offset: int) -> bool:
        """True when nothing at or above the offset is in."""
        block, place = offset >> SHIFT, offset & _LOW
        if self.ends and self.ends[-1] > block:
            return False
        return not any(
            number > block or (number == block and bits >> place)
            for number, bits in self.bits.items()
        )

    @property
    def end(self) -> int:
        """An offset above everything that is in."""
        return max(max(self.bits, default=-1) + 1, self.ends[-1] if self.ends else 0) << SHIFT


def _split(base: int, mask: int) -> Iterator[tuple[int, int]]:
    """A mask cut at the edges of blocks."""
    block = base >> SHIFT
    mask <<= base & _LOW
    while mask:
        bits = mask & FULL
        if bits:
            yield block, bits
        mask >>= BLOCK
        block += 1


class RangeSet:
    """Offsets below `floor` and what was added above it."""

    __slots__ = ("_above", "floor")

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self._above: Blocks | None = None

    def __contains__(self, offset: int) -> bool:
        if offset < self.floor:
            return True
        if self._above is None:
            return False
        return bool(self._above.get(offset >> SHIFT) >> (offset & _LOW) & 1)

    def add(self, start: int, end: int) -> list[Run]:
        """Puts start…end in; returns the parts that were not in before."""
        start = max(start, self.floor)
        if start >= end:
            return []
        if self._above is None:
            if start == self.floor:
                self.floor = end
            else:
                self._above = Blocks()
                self._above.add(start, end)
            return [(start, end)]
        fresh = list(self.gaps(start, end))
        if fresh:
            self._above.add(start, end)
            self._rise()
        return fresh

    def add_mask(self, base: int, mask: int) -> int:
        """Puts the offsets of these bits in, counted from `base`; returns those that were not."""
        if base < self.floor:
            cut = self.floor - base
            fresh = self.add_mask(self.floor, mask >> cut)
            return fresh << cut
        if not mask:
            return 0
        if self._above is None:
            self._above = Blocks()
        fresh = mask & ~self._above.window(base, mask.bit_length())
        if fresh:
            self._above.add_mask(base, fresh)
            self._rise()
        return fresh

    def within_mask(self, base: int, mask: int) -> int:
        """Those of these bits whose offsets are in."""
        if not mask:
            return 0
        found = 0 if self._above is None else self._above.window(base, mask.bit_length())
        if base < self.floor:
            found |= (1 << (self.floor - base)) - 1
        return mask & found

    def _rise(self) -> None:
        """Raises the floor over everything that follows it without a gap."""
        above = self._above
        assert above is not None
        floor = self.floor
        while True:
            block, place = floor >> SHIFT, floor & _LOW
            bits = above.get(block)
            if bits == FULL:
                floor = above.ends[bisect_right(above.starts, block) - 1] << SHIFT
                continue
            rest = bits >> place
            if not rest & 1:
                break
            floor += (~rest & (rest + 1)).bit_length() - 1
        if floor != self.floor:
            above.empty(self.floor >> SHIFT, floor >> SHIFT)
            self.floor = floor
            if above.is_empty_from(floor):
                self._above = None

    def remove(self, start: int, end: int) -> None:
        """Takes start…end out; what lies below the floor cannot be taken out."""
        start = max(start, self.floor)
        if self._above is not None and start < end:
            self._above.remove(start, min(end, max(start + 1, self._above.end)))
            if self._above.is_empty_from(self.floor):
                self._above = None

    def reopen(self, start: int, end: int) -> None:
        """Takes start…end out, below the floor too: the floor falls to `start` when it must."""
        if start >= end:
            return
        if start < self.floor:
            above, floor = self.ranges(), self.floor
            self.floor, self._above = start, None
            for low, high in [(end, floor), *above]:
                if low < high:
                    self.add(low, high)
        self.remove(start, end)

    def gaps(self, start: int, end: int) -> Iterator[Run]:
        """The parts of start…end that are not in."""
        start = max(start, self.floor)
        if start >= end:
            return
        if self._above is not None:
            for low, high in self._above.runs(start, end):
                if start < low:
                    yield start, low
                start = high
        if start < end:
            yield start, end

    def inside(self, start: int, end: int) -> Iterator[Run]:
        """The parts of start…end that are in."""
        at = start
        for low, high in self.gaps(start, end):
            if at < low:
                yield at, low
            at = high
        if at < end:
            yield at, end

    def missing(self, start: int, end: int) -> int:
        """How many of start…end are not in."""
        start = max(start, self.floor)
        if start >= end:
            return 0
        if self._above is None:
            return end - start
        return end - start - sum(high - low for low, high in self._above.runs(start, end))

    def ranges(self) -> list[Run]:
        """The ranges above the floor."""
        above = self._above
        if above is None or self.floor >= above.end:
            return []
        return list(above.runs(self.floor, above.end))

    def state(self) -> list[Any]:
        """For a snapshot."""
        ranges = self.ranges()
        if not ranges:
            return [self.floor]
        return [self.floor, [low for low, _ in ranges], [high for _, high in ranges]]

    @classmethod
    def restored(cls, state: list[Any]) -> "RangeSet":
        """From a snapshot."""
        fresh = cls(state[0])
        if len(state) > 1:
            for low, high in zip(state[1], state[2], strict=True):
                fresh.add(low, high)
        return fresh


class RangeMap:
    """Offsets with a value each; offsets without one have none."""

    __slots__ = ("_all", "_sets")

    def __init__(self) -> None:
        self._sets: dict[Any, Blocks] = {}
        self._all = Blocks()
        """Every offset that has a value."""

    def __len__(self) -> int:
        return len(self.items())

    def __bool__(self) -> bool:
        return bool(self._sets)

    def get(self, offset: int) -> Any:
        """The value at an offset, or None."""
        block, place = offset >> SHIFT, offset & _LOW
        if self._all.get(block) >> place & 1:
            for value, blocks in self._sets.items():
                if blocks.get(block) >> place & 1:
                    return value
        return None

    def runs(self, start: int, end: int) -> Iterator[tuple[int, int, Any]]:
        """start…end cut where the value changes; None where there is none."""
        if start >= end:
            return
        for low, high, value in self._runs(start, end):
            if start < low:
                yield start, low, None
            yield low, high, value
            start = high
        if start < end:
            yield start, end, None

    def _runs(self, start: int, end: int) -> list[tuple[int, int, Any]]:
        found = [
            (low, high, value)
            for value, blocks in self._sets.items()
            for low, high in blocks.runs(start, end)
        ]
        found.sort(key=_start)
        return found

    def clear(self, start: int, end: int) -> None:
        """Start…end have no value any more."""
        if start < end and self._all.has_any(start, end):
            self._all.remove(start, end)
            for value, blocks in list(self._sets.items()):
                if blocks.has_any(start, end):
                    blocks.remove(start, end)
                    if not blocks:
                        del self._sets[value]

    def set(self, start: int, end: int, value: Any) -> None:
        """Start…end have this value."""
        if start < end:
            self.clear(start, end)
            self._all.add(start, end)
            self._blocks(value).add(start, end)

    def clear_mask(self, base: int, mask: int) -> None:
        """The offsets of these bits, counted from `base`, have no value any more."""
        size = mask.bit_length()
        hit = mask and self._all.window(base, size) & mask
        if hit:
            self._all.remove_mask(base, hit)
            for value, blocks in list(self._sets.items()):
                part = blocks.window(base, size) & hit
                if part:
                    blocks.remove_mask(base, part)
                    if not blocks:
                        del self._sets[value]
                    hit &= ~part
                    if not hit:
                        return

    def set_mask(self, base: int, mask: int, value: Any) -> None:
        """The offsets of these bits have this value."""
        if mask:
            self.clear_mask(base, mask)
            self._all.add_mask(base, mask)
            self._blocks(value).add_mask(base, mask)

    def split_mask(self, base: int, mask: int) -> list[tuple[int, Any]]:
        """These bits by the value their offsets have; None for those that have none."""
        size = mask.bit_length()
        hit = mask and self._all.window(base, size) & mask
        found: list[tuple[int, Any]] = [(mask & ~hit, None)] if mask != hit else []
        for value, blocks in self._sets.items():
            if not hit:
                break
            part = blocks.window(base, size) & hit
            if part:
                found.append((part, value))
                hit &= ~part
        return found

    def _blocks(self, value: Any) -> Blocks:
        blocks = self._sets.get(value)
        if blocks is None:
            blocks = self._sets[value] = Blocks()
        return blocks

    def items(self) -> list[tuple[int, int, Any]]:
        """Every run."""
        return self._runs(0, self._all.end) if self._sets else []

    @classmethod
    def restored(cls, state: list[Any]) -> "RangeMap":
        """From the `items` in a snapshot."""
        fresh = cls()
        for start, end, value in state:
            fresh.set(start, end, tuple(value))
        return fresh


def _start(run: tuple[int, int, Any]) -> int:
    return run[0]
