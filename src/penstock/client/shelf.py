"""What waits in the client for kind `key_shared`: one line for each key, handed out in order.

A key stands still while a nack of it is under way, and in push while one of its messages is being
handled. Other keys go on meanwhile. While no key stands still, the order of all lines together is
that of arrival: a slice then stays whole, and its messages are put into lines only when they must.
All calls may come from any thread.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, islice
from threading import Lock
from typing import Final

from penstock.batch.frame import Slice
from penstock.client.received import Hold, ReceivedMessage, Settler, Sheet
from penstock.vocabulary.records import Ranges

Key = tuple[int, int, int]
"""Topic, partition and hash of the key; for a message without one, -1 and a number of its own."""
_ONE: Final = ord("1")


class KeyedHold(Hold):
    """The messages of one lease, which leave in any order: which did is kept in bits."""

    __slots__ = ("given", "home", "present")

    def __init__(self, settler: Settler, part: Slice, home: int = 0) -> None:
        super().__init__(settler, part)
        self.home = home
        """Which of the topics on one shelf it is of."""
        self.given = 0
        """Bits of the messages that were handed out, from `start` on."""
        self.present = 0
        """Bits of the messages that came with the slice."""
        if part.mask is not None:
            self.present = part.mask
            return
        for frame in part.frames:
            self.present |= _bits(frame.offsets, self.start)

    def all_bits(self) -> int:
        return self.present

    def take(self, count: int) -> list[tuple[Sheet, int, int]]:
        """Takes up to so many messages out as pieces (sheet, low, high), in their order."""
        low, high = self.taken, min(self.count, self.taken + count)
        self.taken = high
        pieces = self._pieces(low, high)
        if low == 0 and high == self.count:
            self.given = self.present
        else:
            for sheet, first, last in pieces:
                self.given |= _bits(sheet.frame.offsets[first:last], self.start)
        return pieces

    def bit(self, offset: int) -> int:
        """The bit of a message."""
        return 1 << (offset - self.start)

    def hashes(self) -> Iterator[int]:
        """The hash of each message's key, 0 = none."""
        for sheet, _, _ in self._pieces(0, self.count):
            column = sheet.view.key_hashes
            for index in sheet.frame.indexes:
                yield 0 if column is None else column[index]

    def drop(self, ranges: Ranges) -> int:
        """Settles what was not handed out of these messages; returns how many."""
        bits = 0
        for low, high in ranges:
            bits |= ((1 << (high - low)) - 1) << (low - self.start)
        bits &= self.present & ~self.given & ~self.done
        self.done |= bits
        return bits.bit_count()

    def handed_offsets(self) -> Iterator[int]:
        return (offset for low, high in self._ranges(self.given) for offset in range(low, high))

    def begun(self) -> Ranges:
        return self._ranges(self.given & ~self.done)

    @property
    def handed(self) -> int:
        return self.given.bit_count()

    @property
    def left_over(self) -> int:
        """How many messages were neither handed out nor taken back."""
        return (self.present & ~self.given & ~self.done).bit_count()

    @property
    def first_unhanded(self) -> int:
        return self._first(self.present & ~self.given & ~self.done)

    @property
    def first_unsettled(self) -> int:
        return self._first(self.present & ~self.done)

    def _first(self, bits: int) -> int:
        return self.start + (bits & -bits).bit_length() - 1 if bits else self.end

    def _ranges(self, bits: int) -> Ranges:
        return tuple(_runs(at + self.start for at in range(bits.bit_length()) if bits >> at & 1))


def _bits(offsets: Sequence[int], start: int) -> int:
    """A bit for each of these rising offsets, counted from `start`."""
    low, high = offsets[0], offsets[-1] + 1
    if high - low == len(offsets):
        return ((1 << (high - low)) - 1) << (low - start)
    digits = bytearray(b"0") * (high - low)
    for offset in offsets:
        digits[high - 1 - offset] = _ONE
    return int(digits, 2) << (low - start)


def _runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    return runs


class Row:
    """A message in its line."""

    __slots__ = ("hold", "message", "number")

    def __init__(self, number: int, hold: KeyedHold, message: ReceivedMessage) -> None:
        self.number = number
        self.hold = hold
        self.message = message

    @property
    def is_dropped(self) -> bool:
        """True when it was taken back before it was handed out."""
        return bool(self.hold.done & self.hold.bit(self.message.at))


class Shelf:
    """The messages that wait, by key. `is_single`: one message of a key at a time."""

    def __init__(self, *, is_single: bool) -> None:
        self._is_single = is_single
        self._whole: deque[KeyedHold] = deque()
        """Slices that came after all that is in lines; none while a key stands still."""
        self._lines: dict[Key, deque[Row]] = {}
        self._heads: list[tuple[int, Key]] = []
        """Heap of the first of each line that may go; one that is out of date is skipped."""
        self._stopped: dict[Key, int] = {}
        """Keys of which nacks are under way, and how many."""
        self._running: dict[tuple[KeyedHold, int], Key] = {}
        """What is being handled, and its key."""
        self._busy: set[Key] = set()
        self._numbers = count()
        self._lock = Lock()

    def add(self, hold: KeyedHold) -> None:
        """Takes the messages of a slice in."""
        with self._lock:
            self._whole.append(hold)
            if self._is_single or self._stopped:
                self._line_up()

    def _line_up(self) -> None:
        """Puts all messages into their lines."""
        while self._whole:
            self._put(self._whole.popleft())

    def _put(self, hold: KeyedHold) -> None:
        hashes = islice(hold.hashes(), hold.taken, None)
        for message, hashed in zip(hold.messages(), hashes, strict=True):
            number = next(self._numbers)
            key = (hold.home, hold.partition, hashed) if hashed else (-1, 0, number)
            line = self._lines.setdefault(key, deque())
            line.append(Row(number, hold, message))
            if len(line) == 1:
                self._offer(key)

    def take(self) -> ReceivedMessage | None:
        """Takes the next message that may be handed out; None when there is none."""
        with self._lock:
            key = self._next()
            while key is None and self._whole:
                self._put(self._whole.popleft())
                key = self._next()
            if key is None:
                return None
            heappop(self._heads)
            row = self._lines[key].popleft()
            row.hold.given |= row.hold.bit(row.message.at)
            if self._is_single and key[0] >= 0:
                self._busy.add(key)
                self._running[row.hold, row.message.at] = key
            self._offer(key)
            return row.message

    def take_whole(self, count: int) -> tuple[KeyedHold, list[tuple[Sheet, int, int]]] | None:
        """Takes up to so many next messages of one slice; None when `take` must choose them."""
        with self._lock:
            if self._next() is not None or not self._whole:
                return None
            hold = self._whole[0]
            if hold.left_over != hold.count - hold.taken:
                return None  # some were taken back
            pieces = hold.take(count)
            if hold.taken == hold.count:
                self._whole.popleft()
            return hold, pieces

    def has_some(self) -> bool:
        """True when `take` would find a message."""
        with self._lock:
            return self._next() is not None or any(hold.left_over for hold in self._whole)

    def _next(self) -> Key | None:
        """The key of the next message in lines to go, whose head is then on top of the heap."""
        while self._heads:
            number, key = self._heads[0]
            line = self._lines.get(key)
            if line and line[0].number == number and self._may_go(key):
                if not line[0].is_dropped:
                    return key
                line.popleft()
                heappop(self._heads)
                self._offer(key)
            else:
                heappop(self._heads)
        return None

    def _may_go(self, key: Key) -> bool:
        return key not in self._stopped and key not in self._busy

    def _offer(self, key: Key) -> None:
        """Puts the first of a line among the heads, when it may go; forgets an empty line."""
        line = self._lines.get(key)
        if line:
            if self._may_go(key):
                heappush(self._heads, (line[0].number, key))
        elif line is not None:
            del self._lines[key]

    def finish(self, hold: KeyedHold, offset: int) -> None:
        """A message was handled: the next of its key may go."""
        with self._lock:
            key = self._running.pop((hold, offset), None)
            if key is not None:
                self._busy.discard(key)
                self._offer(key)

    def stop(self, keys: Iterable[Key]) -> None:
        """Hands out nothing of these keys until `go_on`."""
        with self._lock:
            self._line_up()
            for key in keys:
                self._stopped[key] = self._stopped.get(key, 0) + 1

    def go_on(self, keys: Iterable[Key]) -> None:
        """The nack that stopped these keys is decided."""
        with self._lock:
            for key in keys:
                left = self._stopped[key] - 1
                if left:
                    self._stopped[key] = left
                else:
                    del self._stopped[key]
                    self._offer(key)

    def drop(self, hold: KeyedHold, ranges: Ranges) -> int:
        """What waits of these messages is never handed out; returns how many that were."""
        with self._lock:
            return hold.drop(ranges)

    def clear(self) -> None:
        """Hands out nothing more."""
        with self._lock:
            self._whole.clear()
            self._lines.clear()
            self._heads.clear()
