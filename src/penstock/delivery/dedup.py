"""Which ids were given lately in one partition: packed arrays, asked a whole batch at a time.

An id is known by its 128-bit hash. The window is a row of pages, oldest first; ids are numbered
in the order of their arrival and so are their offsets, hence what is too old or too many is
always a beginning of that row, and a page that lies wholly in it is dropped at once. A page is a
hash table of buckets:

    low, high   u64 each   the two halves of each hash, in order of arrival
    places      i64 each   the offset of each message
    buckets     8 × u32    tag << 18 | number in the page; 0 = free
    fill        u8         ids that belong into each bucket, those that found no room included

At most 24 + 16.5 bytes an id when full, and about twice that just after it grew. Where there are
several pages, marks tell which of them need not be asked: 4 MB a window.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from xxhash import xxh3_128_digest

from penstock.delivery.marks import Marks
from penstock.vocabulary import limits

Numbers = np.ndarray[Any, np.dtype[Any]]

PAGE_BITS: Final = 18
PAGE_IDS: Final = 1 << PAGE_BITS
PAGE_IDS_MAX: Final = PAGE_IDS
PAGE_IDS_MIN: Final = 64
BUCKET: Final = 8
IDS_PER_BUCKET: Final = 2
"""Ids a bucket has room for on average when its page is full."""
FEW: Final = 4
"""So many ids are quicker looked up one by one."""
ROW_MS: Final = 1_000
"""Times are kept by the second: an id is remembered at most this much longer."""

_TEXT_8: Final = b"\xd9"
_SHORT_TEXTS: Final = {bytes((0xA0 | length,)): length for length in range(1, 32)}
"""First bytes of MessagePack texts: one whose length follows, and those that tell it."""

TAG: Final = (1 << 32) - PAGE_IDS
"""The bits of a slot that tell ids apart; the others are the number in the page."""
_POSITION: Final = PAGE_IDS - 1


class Hashes(NamedTuple):
    """The hashes of some ids, in two halves."""

    low: Numbers
    high: Numbers

    def pick(self, which: Numbers | slice) -> "Hashes":
        """Some of them."""
        return Hashes(self.low[which], self.high[which])


def hashes(ids: Sequence[str]) -> Hashes:
    """The hash of each id."""
    return _hashes(map(str.encode, ids))


def _hashes(texts: Iterable[bytes]) -> Hashes:
    pairs = np.frombuffer(b"".join(map(xxh3_128_digest, texts)), "<u8")
    return Hashes(pairs[::2].copy(), pairs[1::2].copy())


def hashes_of_all(ids: Sequence[str | None]) -> Hashes | None:
    """The hash of each id, or None when one of them is missing."""
    texts: Any = ids
    try:
        return hashes(texts)
    except TypeError:
        return None


def hashes_in(column: memoryview, count: int) -> Hashes | None:
    """The hash of each id in a column of MessagePack, which is not decoded for it.

    None unless it holds exactly `count` texts of ASCII, all of the same length below 256.
    """
    head = _array_head(count)
    if column[: len(head)] != head:
        return None
    lead = bytes(column[len(head) : len(head) + 2])
    if lead[:1] == _TEXT_8:
        length = lead[-1]
    else:
        lead = lead[:1]
        length = _SHORT_TEXTS.get(lead, 0)
    width = len(lead) + length
    if not length or len(column) != len(head) + count * width:
        return None
    rows = np.frombuffer(column, np.uint8, offset=len(head)).reshape(count, width)
    texts = rows[:, len(lead) :].tobytes()
    if not (rows[:, : len(lead)] == tuple(lead)).all() or not texts.isascii():
        return None
    return _hashes(np.frombuffer(texts, f"V{length}").tolist())


def _array_head(count: int) -> bytes:
    """What a MessagePack array of so many values begins with."""
    if count < 16:  # noqa: PLR2004 - as the format has it
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def are_different(keys: Hashes) -> bool:
    """True when certainly no two are equal."""
    low = np.sort(keys.low)
    return not bool((low[1:] == low[:-1]).any())


class Page:
    """A part of a window: ids that arrived one behind the other."""

    __slots__ = (
        "bit",
        "buckets",
        "count",
        "fill",
        "first",
        "high",
        "low",
        "mask",
        "places",
        "slots",
        "spilled",
    )

    def __init__(self, room: int, first: int) -> None:
        self.first = first
        """Number of its first id in the window."""
        self.count = 0
        self.low = np.empty(room, np.uint64)
        self.high = np.empty(room, np.uint64)
        self.places = np.empty(room, np.int64)
        self.buckets = np.zeros((room // IDS_PER_BUCKET, BUCKET), np.uint32)
        self.slots = self.buckets.reshape(-1)
        self.fill = np.zeros(room // IDS_PER_BUCKET, np.uint8)
        self.mask = room // IDS_PER_BUCKET - 1
        self.spilled: dict[tuple[int, int], int] = {}
        """The few ids whose bucket was full."""
        self.bit = 0
        """Which of the window's marks are its own; 0 = it has none."""

    @property
    def room(self) -> int:
        """Ids it can hold."""
        return len(self.low)

    def add(self, keys: Hashes, places: Numbers) -> None:
        """Puts ids in, of which there is room for."""
        start = self.count
        end = self.count = start + len(places)
        self.low[start:end], self.high[start:end] = keys
        self.places[start:end] = places
        if end - start <= FEW:
            for number in range(start, end):
                self._add_one(number, int(self.low[number]), int(self.high[number]))
            return
        buckets = (keys.low & np.uint64(self.mask)).astype(np.intp)
        values = _tags(keys.high) | np.arange(start, end, dtype=np.uint32)
        while len(values):
            # Of several ids for one bucket, one gets the next place and the others ask again.
            fill = self.fill.take(buckets)
            if fill.max() >= BUCKET:
                has_room = fill < BUCKET
                self._spill(buckets[~has_room], values[~has_room])
                buckets, values, fill = buckets[has_room], values[has_room], fill[has_room]
            slots = buckets * BUCKET + fill
            self.slots[slots] = values
            self.fill[buckets] = fill + np.uint8(1)
            has_lost = self.slots.take(slots) != values
            buckets, values = buckets[has_lost], values[has_lost]

    def _add_one(self, number: int, low: int, high: int) -> None:
        bucket = low & self.mask
        at = int(self.fill[bucket])
        if at >= BUCKET:
            self.spilled[low, high] = number
            self.fill[bucket] = BUCKET + 1
        else:
            self.buckets[bucket, at] = _tag(high) | number
            self.fill[bucket] = at + 1

    def _spill(self, buckets: Numbers, values: Numbers) -> None:
        for bucket, value in zip(buckets.tolist(), values.tolist(), strict=True):
            number = value & _POSITION
            self.spilled[int(self.low[number]), int(self.high[number])] = number
            self.fill[bucket] = BUCKET + 1

    def find(self, keys: Hashes, oldest: int, found: Numbers) -> None:
        """Writes the offset of each id that is here, numbered `oldest` or later, into `found`."""
        oldest = max(0, oldest - self.first)
        buckets = (keys.low & np.uint64(self.mask)).astype(np.intp)
        values = self.buckets.take(buckets, axis=0)
        values ^= _tags(keys.high)[:, None]
        near = np.flatnonzero((values <= _POSITION).ravel())  # those with the same tag
        if len(near):
            rows, numbers = near // BUCKET, values.ravel()[near]
            is_same = self.low[numbers] == keys.low[rows]
            is_same &= self.high[numbers] == keys.high[rows]
            is_same &= numbers >= oldest
            found[rows[is_same]] = self.places[numbers[is_same]]
        if self.spilled:
            for row in np.flatnonzero(self.fill.take(buckets) > BUCKET).tolist():
                number = self.spilled.get((int(keys.low[row]), int(keys.high[row])), -1)
                if number >= oldest:
                    found[row] = self.places[number]

    def find_one(self, low: int, high: int, oldest: int) -> int:
        """The offset of an id that is here, numbered `oldest` or later, or -1."""
        number = self.spilled.get((low, high), -1) if self.spilled else -1
        if number < 0:
            tag = _tag(high)
            for value in self.buckets[low & self.mask].tolist():
                at = value & _POSITION
                is_near = value ^ at == tag
                if is_near and int(self.low[at]) == low and int(self.high[at]) == high:
                    number = at  # the last one is the newest
        return -1 if number < max(0, oldest - self.first) else int(self.places[number])

    def part(self, start: int, end: int) -> tuple[Hashes, Numbers]:
        """The ids start…end and their offsets."""
        return Hashes(self.low[start:end], self.high[start:end]), self.places[start:end]


def _tags(high: Numbers) -> Numbers:
    """A few bits of each hash, never 0, in the place of the tag."""
    return (high >> np.uint64(32)).astype(np.uint32) & np.uint32(TAG) | np.uint32(PAGE_IDS)


def _tag(high: int) -> int:
    return high >> 32 & TAG | PAGE_IDS


class Window:
    """The ids given lately in one partition, and the offsets of their messages."""

    __slots__ = ("_ids_max", "_marks", "_starts", "_times", "decided", "oldest", "pages", "total")

    def __init__(self) -> None:
        self._ids_max = limits.DEDUP_IDS_MAX
        self.pages: list[Page] = []
        self._marks: Marks | None = None
        """Kept while there is more than one page."""
        self.total = 0
        """Ids so far, the forgotten ones included: the number the next one gets."""
        self.oldest = 0
        """Number of the oldest id that is remembered."""
        self._starts: list[int] = []
        """Numbers from which on the ids arrived at `_times`, in ms; both rise."""
        self._times: list[int] = []
        # volatile
        self.decided = 0
        """Messages below this offset are in here since they were decided."""

    def __len__(self) -> int:
        return self.total - self.oldest

    def find(self, keys: Hashes, now_wall: int) -> Numbers:
        """The offset of each id, -1 where it is not remembered."""
        self.forget(now_wall)
        found = np.full(len(keys.low), -1, np.int64)
        if len(found) > FEW:
            if self._marks is not None:
                self._find_marked(self._marks, keys, found)
                return found
            for page in self.pages:
                page.find(keys, self.oldest, found)
            return found
        for at, (low, high) in enumerate(zip(keys.low.tolist(), keys.high.tolist(), strict=True)):
            for page in self.pages:
                place = page.find_one(low, high, self.oldest)
                if place >= 0:
                    found[at] = place
        return found

    def _find_marked(self, marks: Marks, keys: Hashes, found: Numbers) -> None:
        """The same where there are several pages: what is marked is looked at together.

        Nearly all of it is marked for the sake of another id, and its bucket shows that.
        """
        marked = [page for page in self.pages if page.bit]
        rows, ends = marks.look(keys.low, [page.bit for page in marked])
        low, values = keys.low[rows], np.empty((len(rows), BUCKET), np.uint32)
        start = 0
        for page, end in zip(marked, ends, strict=True):
            buckets = (low[start:end] & np.uint64(page.mask)).astype(np.intp)
            page.buckets.take(buckets, 0, values[start:end], "clip")
            start = end
        is_likely = values[:, -1] != 0  # of a full bucket, some found no room
        values ^= _tags(keys.high[rows])[:, None]
        is_likely[np.flatnonzero(values <= _POSITION) // BUCKET] = True  # those with the same tag
        likely = np.flatnonzero(is_likely)
        asked = np.split(rows[likely], np.searchsorted(likely, ends[:-1])) if len(likely) else ()
        for page, some in zip(marked, asked, strict=False):
            if len(some):
                places = found[some]
                page.find(keys.pick(some), self.oldest, places)
                found[some] = places
        for page in self.pages:
            if not page.bit:
                page.find(keys, self.oldest, found)

    def add(self, keys: Hashes, places: Numbers, at: int) -> None:
        """Remembers ids that are not remembered; offsets rise from call to call."""
        count = len(places)
        if not count:
            return
        if not self._times or at // ROW_MS > self._times[-1] // ROW_MS:
            self._starts.append(self.total)
            self._times.append(at)
        else:
            self._times[-1] = max(self._times[-1], at)
        page = self._page_for(count)
        page.add(keys, places)
        if self._marks is not None:
            self._marks.add(keys.low, page.bit)
        self.total += count
        self.forget(at)

    def _page_for(self, count: int) -> Page:
        """The page for the next ids: the last one, one grown from it, or a fresh one."""
        if not self.pages:
            self.pages.append(Page(_room(count), self.total))
        page = self.pages[-1]
        if page.count + count <= page.room:
            return page
        gone = max(0, self.oldest - page.first)
        living = page.count - gone
        if living + count > PAGE_IDS_MAX:
            return self._next_page(count)
        grown = Page(_room(living + count), page.first + gone)
        grown.bit = page.bit
        grown.add(*page.part(gone, page.count))
        self.pages[-1] = grown
        return grown

    def _next_page(self, count: int) -> Page:
        """A page behind a full one: as large, since the ids come fast."""
        if self._marks is None:
            self._marks = Marks()
            for page in self.pages:
                page.bit = self._marks.begin()
                self._marks.add(page.low[: page.count], page.bit)
        page = Page(max(_room(count), PAGE_IDS_MAX), self.total)
        page.bit = self._marks.begin()
        self.pages.append(page)
        return page

    def forget(self, now_wall: int) -> None:
        """Lets go of ids that are too old or too many."""
        limit = now_wall - int(limits.DEDUP_S * 1000)
        old = bisect_right(self._times, limit)
        if old:
            self.oldest = max(
                self.oldest, self._starts[old] if old < len(self._starts) else self.total
            )
        self.oldest = max(self.oldest, self.total - self._ids_max)
        rows = bisect_right(self._starts, self.oldest) - 1
        if self.oldest == self.total:
            rows = len(self._starts)
        if rows > 0:
            del self._starts[:rows], self._times[:rows]
        while self.pages and self.pages[0].first + self.pages[0].count <= self.oldest:
            self._drop_page()

    def _drop_page(self) -> None:
        page = self.pages.pop(0)
        if self._marks is None:
            return
        if len(self.pages) > 1:
            self._marks.end(page.bit)
        else:
            self._marks = None
            for left in self.pages:
                left.bit = 0

    def state(self, next_offset: int) -> list[Any] | None:
        """What is durable of it, for a snapshot: hashes, offsets, and when they arrived."""
        lows: list[bytes] = []
        highs: list[bytes] = []
        places: list[bytes] = []
        count = 0
        for page in self.pages:
            start = max(0, self.oldest - page.first)
            end = int(np.searchsorted(page.places[: page.count], next_offset))
            if start < end:
                count += end - start
                (low, high), offsets = page.part(start, end)
                lows.append(low.astype("<u8").tobytes())
                highs.append(high.astype("<u8").tobytes())
                places.append(offsets.astype("<i8").tobytes())
        if not count:
            return None
        rows = [
            (max(0, start - self.oldest), at)
            for start, at in zip(self._starts, self._times, strict=True)
            if start < self.oldest + count
        ]
        return [b"".join(lows), b"".join(highs), b"".join(places), rows]

    @classmethod
    def restored(cls, state: list[Any]) -> "Window":
        """From a snapshot."""
        low, high, places = (
            np.frombuffer(data, kind).astype(kind[1:])
            for data, kind in zip(state, ("<u8", "<u8", "<i8"), strict=False)
        )
        window = cls()
        ends = [start for start, _ in state[3][1:]] + [len(places)]
        for (start, at), end in zip(state[3], ends, strict=True):
            for first in range(start, end, PAGE_IDS_MAX):
                part = slice(first, min(end, first + PAGE_IDS_MAX))
                window.add(Hashes(low[part], high[part]), places[part], at)
        return window


def _room(count: int) -> int:
    return max(PAGE_IDS_MIN, 1 << (count - 1).bit_length())
