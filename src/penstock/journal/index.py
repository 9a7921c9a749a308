"""Where each held message lies: spans tell which segments, entries tell which byte.

A span says that a partition has `live` held messages between two offsets in one segment; spans
are part of snapshots. Entries give the records of one segment: in memory while the segment is
open, in its footer once sealed. Entries can always be rebuilt from the log.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any, Final, NamedTuple

from penstock.journal.footer import (
    COPY_BIT,
    EMPTY_BYTES,
    ENTRY_BYTES,
    PARTITION_BYTES,
    Footer,
    Rows,
    encode_footer,
)
from penstock.journal.segment import Segment
from penstock.vocabulary.records import Copied, Published, Record, Unit, partition_key

_FOOTERS_CACHED: Final = 4

Entries = dict[int, "array[int]"]
"""The entries of a segment that is still open, by partition key."""


class Place(NamedTuple):
    """Where the record holding some offsets lies."""

    segment: Segment
    sequence: int
    byte: int
    length: int
    first: int
    last: int

    @property
    def position(self) -> int:
        """The record's position in the log."""
        return self.sequence << 32 | self.byte


class Span:
    """Held messages of one partition in one segment; `offsets` lists them when they have gaps."""

    __slots__ = ("first", "last", "live", "offsets", "segment")

    def __init__(self, segment: int, first: int, last: int, live: int) -> None:
        self.segment = segment
        self.first = first
        self.last = last
        self.live = live
        self.offsets: array[int] | None = None


def _first(span: Span) -> int:
    return span.first


class Index:
    """Spans and entries of every partition. Thread-safe."""

    def __init__(
        self,
        load_footer: Callable[[Segment], Footer],
        copy_holds: Callable[[Place, int], bool],
    ) -> None:
        self.segments: dict[int, Segment] = {}
        self.log_end = 0
        self._load_footer = load_footer
        self._copy_holds = copy_holds
        self._dense: dict[int, list[Span]] = {}
        self._copies: dict[int, list[Span]] = {}
        self._open: dict[int, Entries] = {}
        self._open_bytes: dict[int, int] = {}
        self._footers: OrderedDict[int, Footer] = OrderedDict()
        self._lock = RLock()

    # -- entries ---------------------------------------------------------------------------------

    def note_group(
        self, records: list[Record], sequence: int, places: list[int], lengths: list[int]
    ) -> None:
        """Remembers the places of the records of one group."""
        with self._lock:
            for record, place, length in zip(records, places, lengths, strict=True):
                if type(record) is Published:
                    self._add_entry(
                        sequence,
                        record.topic_id << 16 | record.partition,
                        record.base,
                        record.base + record.count - 1,
                        (place & 0xFFFFFFFF) << 32 | length,
                    )
                else:
                    self.note(record, sequence, place & 0xFFFFFFFF, length)

    def note(self, record: Record, sequence: int, byte: int, length: int) -> None:
        """Remembers the place of a record that holds messages."""
        if isinstance(record, Published):
            key = partition_key(record.topic_id, record.partition)
            with self._lock:
                self._add_entry(sequence, key, record.base, record.end - 1, byte << 32 | length)
        elif isinstance(record, Copied):
            key = partition_key(record.topic_id, record.partition) | COPY_BIT
            first, last = record.offsets[0], record.offsets[-1]
            with self._lock:
                self._add_entry(sequence, key, first, last, byte << 32 | length)
        elif isinstance(record, Unit):
            for part in record.records:
                self.note(part, sequence, byte, length)

    def _add_entry(self, sequence: int, key: int, first: int, last: int, place: int) -> None:
        entries = self._open.get(sequence)
        if entries is None:
            entries = self._open[sequence] = {}
            self._open_bytes[sequence] = EMPTY_BYTES
        rows = entries.get(key)
        if rows is None:
            entries[key] = array("Q", (first, last, place))
            self._open_bytes[sequence] += ENTRY_BYTES + PARTITION_BYTES
        else:
            rows.extend((first, last, place))
            self._open_bytes[sequence] += ENTRY_BYTES

    def footer_bytes(self, sequence: int) -> int:
        """Size of the footer payload this segment would have now."""
        return self._open_bytes.get(sequence, EMPTY_BYTES)

    def encode_footer(self, sequence: int) -> bytes:
        """The footer payload of a segment."""
        return encode_footer(self._open.get(sequence, {}))

    def sealed(self, segment: Segment) -> None:
        """The segment has its footer: its entries need not stay in memory."""
        with self._lock:
            self._open.pop(segment.sequence, None)
            self._open_bytes.pop(segment.sequence, None)
            if segment.live == 0:
                segment.empty_at = self.log_end

    def _entries(self, segment: Segment) -> Entries | Footer:
        entries = self._open.get(segment.sequence)
        if entries is not None:
            return entries
        footer = self._footers.get(segment.sequence)
        if footer is None:
            if not segment.is_sealed:
                return {}
            footer = self._footers[segment.sequence] = self._load_footer(segment)
            while len(self._footers) > _FOOTERS_CACHED:
                self._footers.popitem(last=False)
        else:
            self._footers.move_to_end(segment.sequence)
        return footer

    # -- spans -----------------------------------------------------------------------------------

    def hold(self, key: int, first: int, last: int, sequence: int) -> None:
        """Messages first…last of a partition are in this segment and held."""
        with self._lock:
            count = last - first + 1
            spans = self._dense.setdefault(key, [])
            if spans and spans[-1].segment == sequence and spans[-1].last + 1 == first:
                spans[-1].last = last
                spans[-1].live += count
            else:
                spans.append(Span(sequence, first, last, count))
            segment = self.segments[sequence]
            segment.live += count
            segment.stored += count

    def hold_runs(self, runs: list[list[int]]) -> None:
        """Several [key, first, last, segment] at once."""
        with self._lock:
            for key, first, last, sequence in runs:
                self.hold(key, first, last, sequence)

    def hold_copies(self, key: int, offsets: Iterable[int], sequence: int) -> None:
        """These messages of a partition have a copy in this segment."""
        with self._lock:
            fresh = array("Q", offsets)
            if not fresh:
                return
            span = Span(sequence, fresh[0], fresh[-1], len(fresh))
            span.offsets = fresh
            self._copies.setdefault(key, []).append(span)
            segment = self.segments[sequence]
            segment.live += len(fresh)
            segment.stored += len(fresh)

    def release(self, key: int, start: int, end: int) -> None:
        """Nothing holds start…end of a partition any more."""
        with self._lock:
            spans = self._dense.get(key)
            if spans:
                self._release_dense(key, spans, start, end)
            copies = self._copies.get(key)
            if copies:
                self._release_copies(key, copies, start, end)

    def release_mask(self, key: int, base: int, mask: int) -> None:
        """Nothing holds the offsets of these bits any more, counted from `base`."""
        with self._lock:
            spans = self._dense.get(key)
            if key in self._copies or not spans:
                for place in range(mask.bit_length()):
                    if mask >> place & 1:
                        self.release(key, base + place, base + place + 1)
                return
            end = base + mask.bit_length()
            at = max(bisect_right(spans, base, key=_first) - 1, 0)
            while at < len(spans) and spans[at].first < end:
                span = spans[at]
                low, high = max(base, span.first), min(end, span.last + 1)
                part = mask >> (low - base) & ((1 << (high - low)) - 1) if low < high else 0
                if part:
                    self._lower(span, part.bit_count())
                if span.live <= 0:
                    del spans[at]
                else:
                    at += 1
            if not spans:
                del self._dense[key]

    def _release_dense(self, key: int, spans: list[Span], start: int, end: int) -> None:
        at = max(bisect_right(spans, start, key=_first) - 1, 0)
        while at < len(spans) and spans[at].first < end:
            span = spans[at]
            count = min(end, span.last + 1) - max(start, span.first)
            if count > 0:
                self._lower(span, count)
            if span.live <= 0:
                del spans[at]
            else:
                at += 1
        if not spans:
            del self._dense[key]

    def _release_copies(self, key: int, spans: list[Span], start: int, end: int) -> None:
        for span in list(spans):
            assert span.offsets is not None
            low, high = bisect_left(span.offsets, start), bisect_left(span.offsets, end)
            if high > low:
                del span.offsets[low:high]
                self._lower(span, high - low)
                if not span.offsets:
                    spans.remove(span)
                else:
                    span.first, span.last = span.offsets[0], span.offsets[-1]
        if not spans:
            del self._copies[key]

    def _lower(self, span: Span, count: int) -> None:
        span.live -= count
        segment = self.segments[span.segment]
        segment.live -= count
        assert segment.live >= 0, f"segment {segment.sequence} released twice"
        if segment.live == 0 and segment.is_sealed:
            segment.empty_at = self.log_end

    def forget(self, key: int) -> None:
        """The partition is gone with everything in it."""
        with self._lock:
            for table in (self._dense, self._copies):
                for span in table.pop(key, ()):
                    self._lower(span, span.live)

    def spans_in(self, sequence: int) -> list[tuple[int, list[tuple[int, int]]]]:
        """(partition key, rising offset ranges that may be held) of a segment, for compaction."""
        with self._lock:
            found: dict[int, list[tuple[int, int]]] = {}
            for key in self._keys_in(sequence):
                for span in self._dense.get(key, ()):
                    if span.segment == sequence:
                        found.setdefault(key, []).append((span.first, span.last + 1))
                for span in self._copies.get(key, ()):
                    if span.segment == sequence and span.offsets is not None:
                        singles = ((offset, offset + 1) for offset in span.offsets)
                        found.setdefault(key, []).extend(singles)
            return [(key, sorted(ranges)) for key, ranges in found.items()]

    def _keys_in(self, sequence: int) -> set[int]:
        return {key & ~COPY_BIT for key in self._entries(self.segments[sequence])}

    def drain(self, sequence: int) -> None:
        """Everything held in this segment has a durable copy elsewhere."""
        with self._lock:
            for key in self._keys_in(sequence):
                for table in (self._dense, self._copies):
                    spans = table.get(key)
                    if spans is None:
                        continue
                    for span in [span for span in spans if span.segment == sequence]:
                        self._lower(span, span.live)
                        spans.remove(span)
                    if not spans:
                        del table[key]

    # -- finding ---------------------------------------------------------------------------------

    def locate(self, key: int, start: int, end: int) -> list[Place]:
        """Places of the records that hold start…end, in offset order; gaps are left out."""
        with self._lock:
            places: list[Place] = []
            offset = start
            while offset < end:
                if self._locate_dense(key, offset, end, places):
                    offset = places[-1].last + 1
                    continue
                place = self._locate_copy(key, offset)
                if place is not None:
                    places.append(place)
                elif key not in self._dense and key not in self._copies:
                    break
                offset += 1
            return places

    def run(self, key: int, offset: int, end: int) -> tuple[list[Place], bool]:
        """Places of the records from `offset` on as far as one segment holds them, or one copy.

        The first place holds `offset`; there is none when nothing does. True for a copy.
        """
        with self._lock:
            places: list[Place] = []
            if self._locate_dense(key, offset, end, places):
                return places, False
            place = self._locate_copy(key, offset)
            return ([], False) if place is None else ([place], True)

    def _locate_dense(self, key: int, offset: int, end: int, places: list[Place]) -> bool:
        """Adds the places of the records from `offset` on that follow without a gap."""
        spans = self._dense.get(key)
        if not spans:
            return False
        at = bisect_right(spans, offset, key=_first) - 1
        if at < 0 or spans[at].last < offset:
            return False
        segment = self.segments[spans[at].segment]
        rows = self._entries(segment).get(key)
        if rows is None:
            return False
        row = _row_of(rows, offset)
        if row < 0:
            return False
        while 3 * row < len(rows) and rows[3 * row] <= offset < end:
            places.append(_place(segment, rows, row))
            offset = rows[3 * row + 1] + 1
            row += 1
        return True

    def _locate_copy(self, key: int, offset: int) -> Place | None:
        for span in self._copies.get(key, ()):
            if not span.first <= offset <= span.last or span.offsets is None:
                continue
            at = bisect_left(span.offsets, offset)
            if at == len(span.offsets) or span.offsets[at] != offset:
                continue
            segment = self.segments[span.segment]
            rows = self._entries(segment).get(key | COPY_BIT)
            if rows is None:
                continue
            for row in range(len(rows) // 3):
                if rows[3 * row] <= offset <= rows[3 * row + 1]:
                    place = _place(segment, rows, row)._replace(first=offset, last=offset)
                    if self._copy_holds(place, offset):
                        return place
        return None

    # -- snapshots -------------------------------------------------------------------------------

    def state(self, key: int) -> list[Any]:
        """The spans of a partition, for a snapshot."""
        with self._lock:
            dense = [(s.segment, s.first, s.last, s.live) for s in self._dense.get(key, ())]
            copies = [
                (s.segment, s.offsets.tobytes())
                for s in self._copies.get(key, ())
                if s.offsets is not None
            ]
            return [dense, copies] if dense or copies else []

    def restore(self, key: int, state: list[Any]) -> None:
        """The spans of a partition, from a snapshot."""
        if not state:
            return
        dense, copies = state
        with self._lock:
            for sequence, first, last, live in dense:
                self._dense.setdefault(key, []).append(Span(sequence, first, last, live))
                self.segments[sequence].live += live
                self.segments[sequence].stored += last - first + 1
            for sequence, data in copies:
                self.hold_copies(key, array("Q", data), sequence)


def _row_of(rows: Rows, offset: int) -> int:
    """The row whose record holds the offset, or -1."""
    low, high = 0, len(rows) // 3
    while low < high:
        middle = (low + high) // 2
        if rows[3 * middle] <= offset:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low and rows[3 * low - 2] >= offset else -1


def _place(segment: Segment, rows: Rows, row: int) -> Place:
    first, last, packed = rows[3 * row : 3 * row + 3]
    return Place(segment, segment.sequence, packed >> 32, packed & 0xFFFFFFFF, first, last)
