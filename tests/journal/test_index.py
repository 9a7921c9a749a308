"""Where each held message lies, against a plain table of every message and its places."""

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.journal.footer import Footer
from penstock.journal.index import Index, Place
from penstock.journal.memory import MemoryDisk
from penstock.journal.segment import Segment
from penstock.vocabulary.records import (
    Copied,
    Outcome,
    Published,
    Record,
    Settled,
    Unit,
    partition_key,
)

KEYS = [partition_key(1, 0), partition_key(1, 1), partition_key(2, 0)]
PICK = st.integers(0, 1 << 16)


class Shelf:
    """An index with its segments; footers are kept beside it, as files would keep them."""

    def __init__(self) -> None:
        self.footers: dict[int, bytes] = {}
        self.contents: dict[tuple[int, int], Record] = {}
        self.index = Index(self._load, self._copy_holds)
        self.loaded: list[int] = []
        self.active = self.begin()

    def begin(self) -> Segment:
        number = max(self.index.segments, default=0) + 1
        file = MemoryDisk().create(f"segment-{number}", 0)
        self.active = self.index.segments[number] = Segment(file, number, 1, 1 << 20)
        return self.active

    def seal(self) -> Segment:
        sealed = self.active
        self.footers[sealed.sequence] = self.index.encode_footer(sealed.sequence)
        assert len(self.footers[sealed.sequence]) == self.index.footer_bytes(sealed.sequence)
        sealed.footer = sealed.end
        self.index.sealed(sealed)
        return sealed

    def write(self, *records: Record) -> int:
        """Puts records into the active segment; returns the byte of the first."""
        first = byte = self.active.end
        places, lengths = [], []
        for record in records:
            places.append(self.active.base | byte)
            lengths.append(100)
            self.contents[self.active.sequence, byte] = record
            byte += 100
        self.index.note_group(list(records), self.active.sequence, places, lengths)
        self.active.end = self.index.log_end = byte
        return first

    def publish(self, key: int, base: int, count: int) -> int:
        byte = self.write(Published(key >> 16, key & 0xFFFF, base, count, b"", 0, 0, 0, b""))
        self.index.hold(key, base, base + count - 1, self.active.sequence)
        return byte

    def copy(self, key: int, offsets: list[int]) -> int:
        byte = self.write(Copied(key >> 16, key & 0xFFFF, tuple(offsets), b""))
        self.index.hold_copies(key, offsets, self.active.sequence)
        return byte

    def _load(self, segment: Segment) -> Footer:
        self.loaded.append(segment.sequence)
        return Footer(self.footers[segment.sequence])

    def _copy_holds(self, place: Place, offset: int) -> bool:
        record = self.contents[place.sequence, place.byte]
        return isinstance(record, Copied) and offset in record.offsets

    def places(self, key: int, start: int, end: int) -> list[tuple[int, int, int, int]]:
        return [(p.first, p.last, p.sequence, p.byte) for p in self.index.locate(key, start, end)]


class IndexMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf()
        self.next_offset = dict.fromkeys(KEYS, 0)
        self.held: dict[int, dict[int, set[tuple[int, int]]]] = {key: {} for key in KEYS}
        """partition → offset → (segment, byte) of every record that holds it."""

    @rule(pick=PICK, count=st.integers(1, 5))
    def publish(self, pick: int, count: int) -> None:
        key = KEYS[pick % len(KEYS)]
        base = self.next_offset[key]
        byte = self.shelf.publish(key, base, count)
        self.next_offset[key] += count
        for offset in range(base, base + count):
            self.held[key][offset] = {(self.shelf.active.sequence, byte)}

    @rule(pick=PICK, start=PICK, size=st.integers(1, 6))
    def release(self, pick: int, start: int, size: int) -> None:
        key = KEYS[pick % len(KEYS)]
        start %= self.next_offset[key] + 1
        # What is released is released once, as the broker promises.
        for offset in range(start, start + size):
            if self.held[key].pop(offset, None) is not None:
                self.shelf.index.release(key, offset, offset + 1)

    @rule()
    def roll(self) -> None:
        self.shelf.seal()
        self.shelf.begin()

    @rule(pick=PICK)
    def compact(self, pick: int) -> None:
        sealed = [s for s in self.shelf.index.segments.values() if s.is_sealed and s.live]
        if sealed:
            segment = sealed[pick % len(sealed)]
            for key, ranges in self.shelf.index.spans_in(segment.sequence):
                offsets = sorted({o for low, high in ranges for o in range(low, high)})
                offsets = [o for o in offsets if o in self.held[key]]
                if offsets:
                    byte = self.shelf.copy(key, offsets)
                    for offset in offsets:
                        self.held[key][offset].add((self.shelf.active.sequence, byte))
            self.shelf.index.drain(segment.sequence)
            for pages in self.held.values():
                for places in pages.values():
                    places -= {p for p in places if p[0] == segment.sequence}
            assert segment.live == 0
            assert segment.empty_at is not None

    @rule(pick=PICK)
    def forget(self, pick: int) -> None:
        if pick % 5 == 0:
            key = KEYS[pick % len(KEYS)]
            self.shelf.index.forget(key)
            self.held[key] = {}

    @rule()
    def store_and_restore(self) -> None:
        old = self.shelf.index
        states = {key: msgspec.msgpack.encode(old.state(key)) for key in KEYS}
        fresh = Index(self.shelf._load, self.shelf._copy_holds)
        for segment in old.segments.values():
            segment.live = segment.stored = 0
        fresh.segments, fresh.log_end = old.segments, old.log_end
        fresh._open, fresh._open_bytes = old._open, old._open_bytes
        for key, data in states.items():
            fresh.restore(key, msgspec.msgpack.decode(data))
        self.shelf.index = fresh

    @rule(pick=PICK, start=PICK, size=st.integers(1, 30))
    def look(self, pick: int, start: int, size: int) -> None:
        key = KEYS[pick % len(KEYS)]
        start %= self.next_offset[key] + 1
        found = self.shelf.places(key, start, start + size)
        lasts = [start - 1]
        for first, last, sequence, byte in found:
            assert lasts[-1] < last
            lasts.append(last)
            record = self.shelf.contents[sequence, byte]
            assert isinstance(record, Published | Copied)
            holds = record.offsets if isinstance(record, Copied) else range(record.base, record.end)
            assert first in holds
            assert last in holds
        for offset in range(start, start + size):
            if offset in self.held[key]:
                here = [(s, b) for first, last, s, b in found if first <= offset <= last]
                assert len(here) == 1
                assert here[0] in self.held[key][offset]

    @invariant()
    def segments_count_what_they_hold(self) -> None:
        live = dict.fromkeys(self.shelf.index.segments, 0)
        for pages in self.held.values():
            for places in pages.values():
                for sequence, _ in places:
                    live[sequence] += 1
        assert {s.sequence: s.live for s in self.shelf.index.segments.values()} == live


TestAgainstAPlainTable = IndexMachine.TestCase
TestAgainstAPlainTable.settings = settings(
    stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)


# -- single claims -----------------------------------------------------------------------------

KEY = KEYS[0]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def test_a_record_is_found_by_any_of_its_offsets(shelf: Shelf) -> None:
    first, second = shelf.publish(KEY, 0, 3), shelf.publish(KEY, 3, 2)
    assert shelf.places(KEY, 1, 2) == [(0, 2, 1, first)]
    assert shelf.places(KEY, 2, 4) == [(0, 2, 1, first), (3, 4, 1, second)]
    assert shelf.places(KEY, 5, 9) == []


def test_a_place_knows_its_position_in_the_log(shelf: Shelf) -> None:
    byte = shelf.publish(KEY, 0, 1)
    (place,) = shelf.index.locate(KEY, 0, 1)
    assert place.position == 1 << 32 | byte
    assert (place.length, place.segment) == (100, shelf.active)


def test_a_partition_that_holds_nothing_has_no_places(shelf: Shelf) -> None:
    assert shelf.places(KEY, 0, 1 << 20) == []


def test_a_sealed_segment_is_found_through_its_footer(shelf: Shelf) -> None:
    byte = shelf.publish(KEY, 0, 3)
    shelf.seal()
    shelf.begin()
    shelf.publish(KEY, 3, 1)
    assert shelf.places(KEY, 0, 3) == [(0, 2, 1, byte)]
    assert shelf.loaded == [1]


def test_a_footer_in_memory_is_not_loaded_again(shelf: Shelf) -> None:
    shelf.publish(KEY, 0, 3)
    shelf.seal()
    shelf.begin()
    shelf.places(KEY, 0, 1)
    shelf.places(KEY, 1, 2)
    assert shelf.loaded == [1]


def test_only_a_few_footers_stay_in_memory(shelf: Shelf) -> None:
    for number in range(8):
        shelf.publish(KEY, number, 1)
        shelf.seal()
        shelf.begin()
    shelf.places(KEY, 0, 8)
    shelf.places(KEY, 0, 1)
    assert shelf.loaded == [1, 2, 3, 4, 5, 6, 7, 8, 1]


def test_a_sealed_segment_is_empty_from_the_moment_its_last_message_went(shelf: Shelf) -> None:
    shelf.publish(KEY, 0, 2)
    sealed = shelf.seal()
    shelf.begin()
    shelf.publish(KEY, 2, 1)
    found = []
    for offset in (0, 1):
        shelf.index.log_end = 700 + offset
        shelf.index.release(KEY, offset, offset + 1)
        found.append((sealed.live, sealed.empty_at))
    assert found == [(1, None), (0, 701)]


def test_a_segment_sealed_empty_is_empty_at_once(shelf: Shelf) -> None:
    shelf.index.log_end = 55
    assert shelf.seal().empty_at == 55


def test_an_open_segment_is_never_called_empty(shelf: Shelf) -> None:
    shelf.publish(KEY, 0, 1)
    shelf.index.release(KEY, 0, 1)
    assert (shelf.active.live, shelf.active.empty_at) == (0, None)


def test_a_copy_is_found_offset_by_offset(shelf: Shelf) -> None:
    shelf.publish(KEY, 0, 6)
    shelf.seal()
    shelf.begin()
    byte = shelf.copy(KEY, [1, 4])
    shelf.index.drain(1)
    assert shelf.places(KEY, 0, 6) == [(1, 1, 2, byte), (4, 4, 2, byte)]


def test_a_run_ends_with_its_segment_and_a_copy_stands_alone(shelf: Shelf) -> None:
    shelf.publish(KEY, 0, 2)
    shelf.publish(KEY, 2, 3)
    shelf.seal()
    shelf.begin()
    shelf.publish(KEY, 5, 2)
    places, is_copy = shelf.index.run(KEY, 1, 7)
    assert [(place.first, place.last) for place in places] == [(0, 1), (2, 4)]
    assert not is_copy
    assert [place.first for place in shelf.index.run(KEY, 5, 7)[0]] == [5]
    assert shelf.index.run(KEY, 7, 9) == ([], False)
    byte = shelf.copy(KEY, [1, 4])
    shelf.index.drain(1)
    (place,), is_copy = shelf.index.run(KEY, 4, 7)
    assert (place.first, place.last, place.byte, is_copy) == (4, 4, byte, True)
    assert shelf.index.run(KEY, 2, 7) == ([], False)


def test_of_two_copies_in_one_segment_the_one_that_holds_the_offset_is_found(shelf: Shelf) -> None:
    shelf.publish(KEY, 0, 6)
    shelf.seal()
    shelf.begin()
    first, second = shelf.copy(KEY, [0, 5]), shelf.copy(KEY, [2, 3])
    shelf.index.drain(1)
    assert shelf.places(KEY, 2, 3) == [(2, 2, 2, second)]
    assert shelf.places(KEY, 5, 6) == [(5, 5, 2, first)]


def test_releasing_a_copied_message_releases_its_copy(shelf: Shelf) -> None:
    shelf.publish(KEY, 0, 3)
    shelf.seal()
    shelf.begin()
    shelf.copy(KEY, [0, 1, 2])
    shelf.index.drain(1)
    shelf.index.release(KEY, 1, 2)
    assert shelf.active.live == 2
    assert [first for first, *_ in shelf.places(KEY, 0, 3)] == [0, 2]


def test_a_copy_of_nothing_holds_nothing(shelf: Shelf) -> None:
    shelf.index.hold_copies(KEY, [], 1)
    assert shelf.active.live == 0
    assert shelf.index.state(KEY) == []


def test_a_unit_is_found_by_each_of_its_partitions(shelf: Shelf) -> None:
    parts = (
        Published(1, 0, 0, 1, b"", 0, 0, 0, b""),
        Settled(1, 0, 1, Outcome.ACKED, ()),
        Published(2, 0, 0, 2, b"", 0, 0, 0, b""),
    )
    byte = shelf.write(Unit(parts))
    shelf.index.hold(KEYS[0], 0, 0, 1)
    shelf.index.hold_runs([[KEYS[2], 0, 1, 1]])
    assert shelf.places(KEYS[0], 0, 1) == [(0, 0, 1, byte)]
    assert shelf.places(KEYS[2], 0, 2) == [(0, 1, 1, byte)]


def test_a_record_without_messages_leaves_no_entry(shelf: Shelf) -> None:
    before = shelf.index.footer_bytes(1)
    shelf.write(Settled(1, 0, 1, Outcome.ACKED, ((0, 1),)))
    assert shelf.index.footer_bytes(1) == before


def test_spans_of_a_segment_are_what_compaction_looks_at(shelf: Shelf) -> None:
    shelf.publish(KEYS[0], 0, 4)
    shelf.publish(KEYS[1], 0, 1)
    shelf.seal()
    shelf.begin()
    shelf.publish(KEYS[0], 4, 2)
    shelf.copy(KEYS[1], [0])
    assert sorted(shelf.index.spans_in(1)) == [(KEYS[0], [(0, 4)]), (KEYS[1], [(0, 1)])]
    assert sorted(shelf.index.spans_in(2)) == [(KEYS[0], [(4, 6)]), (KEYS[1], [(0, 1)])]


def test_a_deleted_partition_leaves_its_segments(shelf: Shelf) -> None:
    shelf.publish(KEYS[0], 0, 4)
    shelf.publish(KEYS[1], 0, 1)
    shelf.index.forget(KEYS[0])
    assert shelf.active.live == 1
    assert shelf.places(KEYS[0], 0, 4) == []
