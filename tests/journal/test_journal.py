"""The journal: groups in, records out, segments that come and go, and one failure that ends it."""

import errno
from collections.abc import Callable

import msgspec
import pytest

from penstock.journal import group, snapshot
from penstock.journal.journal import Journal, rescan
from penstock.journal.memory import MemoryDisk, Op, Verb
from penstock.journal.record import encode
from penstock.journal.segment import FIRST_GROUP, SEGMENT_PREFIX, decode_header
from penstock.vocabulary.errors import RecordDamaged, StoreFailed
from penstock.vocabulary.records import Copied, Outcome, Published, Record, Settled, Started, Unit
from tests.journal.store import KEY, SETTINGS, message, open_store, write

STARTED = Started(1, True, 0)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(record=True)


@pytest.fixture
def journal(disk: MemoryDisk) -> Journal:
    return open_store(disk)[0]


def read(journal: Journal, start: int, end: int) -> list[Published | Copied | None]:
    return [journal.fetch(place, KEY) for place in journal.index.locate(KEY, start, end)]


def without_cache(journal: Journal) -> Journal:
    journal._cache.clear()
    return journal


def append(journal: Journal, *records: Record) -> list[int]:
    places, upto = journal.append(list(records), [encode(record) for record in records], 0)
    assert upto == len(records)
    return places


def fill(journal: Journal, segments: int) -> int:
    """Publishes until so many segments are sealed; returns the next offset."""
    offset, last = 0, journal.last_sequence + segments
    while journal.last_sequence <= last:
        write(journal, message(offset, 1, 300))
        offset += 1
    return offset


# -- append and sync ---------------------------------------------------------------------------


def test_many_records_of_one_append_are_one_write_and_one_sync(
    disk: MemoryDisk, journal: Journal
) -> None:
    write(journal, STARTED)
    del disk.trace[:]
    append(journal, *(message(offset) for offset in range(10)))
    journal.sync()
    assert [op.verb for op in disk.trace] == [Verb.WRITE, Verb.SYNC]


def test_nothing_is_durable_before_the_sync(journal: Journal) -> None:
    write(journal, STARTED)
    before = journal.durable_upto
    append(journal, message(0))
    assert journal.durable_upto == before
    assert journal.log_end > before
    journal.sync()
    assert journal.durable_upto == journal.log_end


def test_a_group_may_be_written_first_and_synced_later(disk: MemoryDisk, journal: Journal) -> None:
    write(journal, STARTED)
    before = journal.durable_upto
    del disk.trace[:]
    append(journal, message(0))
    journal.write()
    journal.write()
    assert [op.verb for op in disk.trace] == [Verb.WRITE]
    assert journal.durable_upto == before
    journal.sync()
    assert [op.verb for op in disk.trace] == [Verb.WRITE, Verb.SYNC]
    assert journal.durable_upto == journal.log_end


def test_a_failed_early_write_stops_the_journal(disk: MemoryDisk, journal: Journal) -> None:
    write(journal, STARTED)
    append(journal, message(0))
    disk.on_operation = failing(Verb.WRITE)
    with pytest.raises(StoreFailed):
        journal.write()
    disk.on_operation = None
    with pytest.raises(StoreFailed):
        journal.write()


def test_positions_rise_and_records_are_counted(journal: Journal) -> None:
    first = append(journal, message(0), message(1))
    journal.sync()
    second = append(journal, message(2))
    assert first + second == sorted(first + second)
    assert journal.records == 3


def test_a_group_says_how_far_the_log_was_durable_before_it(
    disk: MemoryDisk, journal: Journal
) -> None:
    write(journal, message(0))
    before = journal.durable_upto
    (place,) = write(journal, message(1))
    segment = journal.index.segments[1]
    at = (place & 0xFFFFFFFF) - group.HEADER_BYTES
    found = group.parse(segment.file.pread(0, segment.size), at, 1, segment.salt)
    assert found is not None
    assert (found.durable_upto, found.first_record) == (before, 1)


def test_a_record_larger_than_a_segment_gets_a_segment_of_its_own_size(journal: Journal) -> None:
    write(journal, message(0), message(1, 1, 20_000), message(2))
    assert max(segment.size for segment in journal.index.segments.values()) > 20_000
    found = read(without_cache(journal), 0, 3)
    assert [record.base for record in found if isinstance(record, Published)] == [0, 1, 2]


def test_records_that_do_not_fit_go_into_the_next_segment(journal: Journal) -> None:
    records: list[Record] = [message(offset, 1, 500) for offset in range(12)]
    encoded = [encode(record) for record in records]
    _, upto = journal.append(records, encoded, 0)
    assert 0 < upto < 12
    journal.sync()
    _, second = journal.append(records, encoded, upto)
    assert upto < second
    assert journal.last_sequence == 2


def test_an_empty_journal_has_nothing_to_sync(journal: Journal) -> None:
    journal.sync()
    journal.seal()
    assert journal.log_end == 0


# -- fail-stop ---------------------------------------------------------------------------------


def failing(verb: Verb, code: int = errno.EIO) -> Callable[[Op], None]:
    def fail(op: Op) -> None:
        if op.verb is verb:
            raise OSError(code, "the disk is gone")

    return fail


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.SYNC])
def test_after_one_failure_nothing_more_is_written_until_the_store_is_opened_again(
    disk: MemoryDisk, journal: Journal, verb: Verb
) -> None:
    write(journal, message(0))
    disk.on_operation = failing(verb)
    with pytest.raises(StoreFailed, match="the disk is gone"):
        write(journal, message(1))
    disk.on_operation = None
    del disk.trace[:]
    with pytest.raises(StoreFailed):
        append(journal, message(2))
    with pytest.raises(StoreFailed):
        journal.sync()
    assert journal.free_segments() == 0
    assert disk.trace == []


def test_a_second_sync_that_would_succeed_proves_nothing(
    disk: MemoryDisk, journal: Journal
) -> None:
    write(journal, message(0))
    upto = journal.durable_upto
    append(journal, message(1))
    disk.drop_on_failed_sync = True
    disk.on_operation = failing(Verb.SYNC)
    with pytest.raises(StoreFailed):
        journal.sync()
    disk.on_operation = None
    with pytest.raises(StoreFailed):
        journal.sync()
    assert journal.durable_upto == upto


@pytest.mark.parametrize("verb", [Verb.CREATE, Verb.SYNC_NAMES])
def test_a_segment_that_cannot_be_made_stops_the_journal(
    disk: MemoryDisk, journal: Journal, verb: Verb
) -> None:
    write(journal, message(0))
    disk.on_operation = failing(verb, errno.ENOSPC)
    with pytest.raises(StoreFailed):
        fill(journal, 2)
    assert journal.failed is not None


def test_a_failed_superblock_write_stops_the_journal(disk: MemoryDisk, journal: Journal) -> None:
    write(journal, message(0))
    disk.on_operation = failing(Verb.WRITE)
    with pytest.raises(StoreFailed, match="superblock"):
        journal.mark()
    assert journal.failed is not None


def test_a_failed_snapshot_stops_the_journal(disk: MemoryDisk, journal: Journal) -> None:
    write(journal, message(0))
    draft = journal.begin_snapshot(journal.log_end, journal.records)
    disk.on_operation = failing(Verb.RENAME)
    with pytest.raises(StoreFailed, match="snapshot"):
        journal.finish_snapshot(draft, iter([b"piece"]))
    assert journal.snapshots == []


def test_the_error_says_that_what_was_confirmed_is_safe(disk: MemoryDisk, journal: Journal) -> None:
    write(journal, message(0))
    disk.on_operation = failing(Verb.SYNC)
    with pytest.raises(StoreFailed, match="everything confirmed before is safe"):
        write(journal, message(1))


# -- segments ----------------------------------------------------------------------------------


def test_a_sealed_segment_ends_with_its_footer(journal: Journal) -> None:
    fill(journal, 1)
    sealed = journal.index.segments[1]
    assert sealed.is_sealed
    data = sealed.file.pread(sealed.footer, sealed.end - sealed.footer)
    assert group.footer_payload(data, sealed.base | sealed.footer, sealed.salt) is not None
    assert sealed.end <= sealed.size


def test_a_new_segment_names_its_place_store_and_life(journal: Journal) -> None:
    fill(journal, 1)
    first, second = (journal.index.segments[number] for number in (1, 2))
    headers = [decode_header(segment.file.pread(0, 512)) for segment in (first, second)]
    assert [header.sequence for header in headers if header] == [1, 2]
    assert {header.store_id for header in headers if header} == {journal.store_id}
    assert first.salt != second.salt


def test_a_new_segment_is_durable_with_its_name_before_anything_is_written_into_it(
    disk: MemoryDisk, journal: Journal
) -> None:
    write(journal, message(0))
    name = f"{SEGMENT_PREFIX}00000001"
    mine = [op.verb for op in disk.trace if op.file == name or op.verb is Verb.SYNC_NAMES]
    created = mine.index(Verb.CREATE)
    assert mine[created : created + 6] == [
        Verb.CREATE,
        Verb.SYNC,
        Verb.SYNC_NAMES,
        Verb.WRITE,
        Verb.SYNC,
        Verb.WRITE,
    ]


def test_a_roll_is_written_into_the_superblock(journal: Journal) -> None:
    fill(journal, 2)
    assert journal.block.state.durable_upto >> 32 == journal.last_sequence


def test_segments_grow_from_the_smallest_to_the_largest(disk: MemoryDisk) -> None:
    settings = msgspec.structs.replace(SETTINGS, segment_bytes_max=32768)
    journal, _ = open_store(disk, settings)
    fill(journal, 5)
    sizes = [segment.size for segment in journal.index.segments.values()]
    assert sizes == [4096, 8192, 16384, 32768, 32768, 32768]


def test_a_prepared_segment_is_used_for_the_next_roll(disk: MemoryDisk, journal: Journal) -> None:
    write(journal, message(0))
    journal.prepare_spare()
    assert len(journal.spares.files) == 1
    name = journal.spares.files[0].name
    fill(journal, 1)
    assert journal.index.segments[2].file.name == name
    assert journal.spares.files == []


def test_one_prepared_segment_is_enough(journal: Journal) -> None:
    journal.prepare_spare()
    journal.prepare_spare()
    assert len(journal.spares.files) == 1


def test_as_many_segments_are_prepared_as_are_asked_for(journal: Journal) -> None:
    for _ in range(4):
        journal.prepare_spare(2)
    assert len(journal.spares.files) == 2


def test_with_little_space_left_no_segment_is_prepared(disk: MemoryDisk, journal: Journal) -> None:
    disk.free = SETTINGS.reserve_bytes + SETTINGS.segment_bytes_min - 1
    journal.prepare_spare()
    assert journal.spares.files == []


def test_a_prepared_segment_is_written_full_of_zeros(disk: MemoryDisk) -> None:
    journal, _ = open_store(disk, msgspec.structs.replace(SETTINGS, is_zeroing=True))
    journal.prepare_spare()
    file = journal.spares.files[0]
    written = [op.length for op in disk.trace if op.verb is Verb.WRITE and op.file == file.name]
    assert sum(written) == file.size


def take_snapshot(journal: Journal, *pieces: bytes) -> None:
    draft = journal.begin_snapshot(journal.log_end, journal.records)
    journal.finish_snapshot(draft, iter(pieces))


def test_an_empty_segment_is_given_back_only_when_two_snapshots_know_it_is_empty(
    journal: Journal,
) -> None:
    end = fill(journal, 3)
    journal.index.release(KEY, 0, end)
    assert journal.free_segments() == 0
    take_snapshot(journal)
    assert journal.free_segments() == 0
    take_snapshot(journal)
    assert journal.free_segments() == 3
    assert list(journal.index.segments) == [4]


def test_a_segment_with_one_held_message_is_kept(journal: Journal) -> None:
    end = fill(journal, 3)
    journal.index.release(KEY, 1, end)
    take_snapshot(journal)
    take_snapshot(journal)
    journal.free_segments()
    assert list(journal.index.segments) == [1, 4]
    assert read(without_cache(journal), 0, 1) == [message(0, 1, 300)]


def test_a_damaged_segment_is_never_given_back(journal: Journal) -> None:
    end = fill(journal, 1)
    journal.index.release(KEY, 0, end)
    journal.index.segments[1].is_damaged = True
    take_snapshot(journal)
    take_snapshot(journal)
    assert journal.free_segments() == 0


def test_given_back_segments_become_spares_up_to_a_number_and_are_removed_beyond(
    disk: MemoryDisk, journal: Journal
) -> None:
    end = fill(journal, 4)
    journal.index.release(KEY, 0, end)
    take_snapshot(journal)
    take_snapshot(journal)
    assert journal.free_segments() == 4
    assert len(journal.spares.files) == SETTINGS.spare_count == 2
    files = [name for name in disk.names() if name.startswith(SEGMENT_PREFIX)]
    assert len(files) == 3


def test_a_segment_used_again_shows_nothing_of_its_earlier_life(journal: Journal) -> None:
    end = fill(journal, 2)
    journal.index.release(KEY, 0, end)
    take_snapshot(journal)
    take_snapshot(journal)
    journal.free_segments()
    used = {file.name for file in journal.spares.files}
    offset = end
    while journal.last_sequence < 5:
        write(journal, message(offset, 1, 300))
        offset += 1
    again = [s for s in journal.index.segments.values() if s.file.name in used]
    assert again
    for segment in again:
        data = segment.file.pread(0, segment.size)
        rows = group.rescue(data, FIRST_GROUP, len(data), segment.sequence, segment.salt)
        assert all(b"%06d" % n not in row for _, row in rows for n in range(end))


def test_disk_bytes_count_segments_and_spares(journal: Journal) -> None:
    fill(journal, 2)
    journal.prepare_spare()
    assert journal.disk_bytes == 4 * 4096


def test_waiting_segments_are_the_empty_sealed_ones(journal: Journal) -> None:
    end = fill(journal, 2)
    assert journal.waiting_segments() == 0
    journal.index.release(KEY, 0, end)
    assert journal.waiting_segments() == 2


def test_after_damage_the_journal_goes_on_in_a_new_segment(journal: Journal) -> None:
    write(journal, message(0))
    journal.must_roll = True
    write(journal, message(1))
    assert journal.last_sequence == 2
    write(journal, message(2))
    assert journal.last_sequence == 2


# -- snapshots and superblock ------------------------------------------------------------------


def test_a_snapshot_counts_only_after_it_was_read_back(
    disk: MemoryDisk, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(journal, message(0))
    seen: list[int] = []
    real = snapshot.read

    def reading(*arguments: object) -> snapshot.Snapshot:
        seen.append(len(journal.snapshots))
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot, "read", reading)
    take_snapshot(journal, b"piece")
    assert seen == [0]
    assert journal.snapshots[0][1] == journal.log_end
    assert journal.block.state.snapshot_generation == journal.snapshots[0][0]


def test_the_last_two_snapshots_are_kept(disk: MemoryDisk, journal: Journal) -> None:
    write(journal, message(0))
    for _ in range(4):
        take_snapshot(journal)
    assert snapshot.generations(disk) == [4, 3]
    assert [generation for generation, _ in journal.snapshots] == [4, 3]


def test_a_snapshot_lists_the_segments_it_relies_on(journal: Journal) -> None:
    end = fill(journal, 2)
    journal.index.release(KEY, 0, end - 1)
    draft = journal.begin_snapshot(journal.log_end, journal.records)
    assert [row.sequence for row in draft.meta.segments] == [3]
    assert draft.meta.records == journal.records
    assert journal.bytes_since_snapshot == 0


def test_the_superblock_remembers_what_is_durable_and_how_it_ended(
    disk: MemoryDisk, journal: Journal
) -> None:
    write(journal, message(0))
    before = journal.is_marked
    journal.mark(broker_generation=7)
    assert (before, journal.is_marked) == (False, True)
    assert journal.block.state.broker_generation == 7
    journal.mark(is_clean=True)
    state = journal.block.state
    assert (state.is_clean, state.broker_generation) == (True, 7)
    assert state.durable_upto == journal.durable_upto


# -- reading -----------------------------------------------------------------------------------


def test_a_record_is_read_from_memory_and_from_disk_alike(journal: Journal) -> None:
    records = [message(0, 3), message(3, 2)]
    write(journal, *records)
    assert read(journal, 0, 5) == records
    assert read(without_cache(journal), 0, 5) == records


def test_the_newest_groups_stay_in_memory_and_the_oldest_go(disk: MemoryDisk) -> None:
    settings = msgspec.structs.replace(SETTINGS, cache_bytes=6000)
    journal, _ = open_store(disk, settings)
    for offset in range(10):
        write(journal, message(offset))
    cached = [
        journal.cached(place) is not None
        for offset in range(10)
        for place in journal.index.locate(KEY, offset, offset + 1)
    ]
    assert cached == sorted(cached)
    assert cached[-1]
    assert not cached[0]


def test_the_newest_group_is_in_memory_however_large(disk: MemoryDisk) -> None:
    journal, _ = open_store(disk, msgspec.structs.replace(SETTINGS, cache_bytes=0))
    write(journal, message(0))
    (place,) = journal.index.locate(KEY, 0, 1)
    assert journal.cached(place) == message(0)


def test_only_the_part_of_a_unit_that_was_asked_for_is_returned(journal: Journal) -> None:
    mine, other = message(0), message(0, topic_id=2)
    settled = Settled(1, 0, 1, Outcome.ACKED, ())
    write(journal, Unit((other, settled, mine)))
    assert read(journal, 0, 1) == [mine]
    assert read(without_cache(journal), 0, 1) == [mine]


def test_a_copied_message_is_read_from_its_copy(journal: Journal) -> None:
    end = fill(journal, 1)
    copied = Copied(1, 0, (0, 1), message(0, 2).batch)
    write(journal, copied)
    journal.index.release(KEY, 2, end)
    journal.index.drain(1)
    assert read(without_cache(journal), 0, 2) == [copied, copied]


def spoil(journal: Journal, offset: int) -> None:
    """Changes one byte of the record that holds this offset."""
    without_cache(journal)
    (place,) = journal.index.locate(KEY, offset, offset + 1)
    at = place.byte + 8 + place.length // 2
    byte = place.segment.file.pread(at, 1)[0]
    place.segment.file.pwrite(at, bytes([byte ^ 1]))


def test_a_changed_record_is_refused_by_name_never_handed_out(journal: Journal) -> None:
    write(journal, message(0, 3), message(3))
    spoil(journal, 1)
    with pytest.raises(RecordDamaged, match="0–2") as caught:
        read(journal, 0, 3)
    assert caught.value.details == {"first": 0, "last": 2}
    assert read(journal, 3, 4) == [message(3)]


def test_a_record_whose_segment_was_used_again_is_simply_gone(journal: Journal) -> None:
    write(journal, message(0))
    (place,) = journal.index.locate(KEY, 0, 1)
    spoil(journal, 0)
    del journal.index.segments[1]
    assert journal.fetch(place, KEY) is None


def test_a_file_that_cannot_be_read_is_damage(journal: Journal) -> None:
    write(journal, message(0))
    (place,) = journal.index.locate(KEY, 0, 1)
    without_cache(journal)
    place.segment.file.close()
    with pytest.raises(RecordDamaged, match="cannot be read"):
        journal.fetch(place, KEY)


def test_a_damaged_footer_is_rebuilt_from_the_records(journal: Journal) -> None:
    fill(journal, 1)
    sealed = journal.index.segments[1]
    whole = {key: list(rescan(sealed).get(key) or ()) for key in rescan(sealed)}
    before = read(without_cache(journal), 0, 3)
    sealed.file.pwrite(sealed.footer + 60, b"\xff")
    journal.index._footers.clear()
    assert read(without_cache(journal), 0, 3) == before
    assert whole == {key: list(rescan(sealed).get(key) or ()) for key in rescan(sealed)}


def test_a_damaged_copy_is_passed_over_and_its_segment_marked(journal: Journal) -> None:
    end = fill(journal, 1)
    write(journal, Copied(1, 0, (0,), message(0).batch))
    journal.index.release(KEY, 1, end)
    journal.index.drain(1)
    spoil(journal, 0)
    assert journal.index.locate(KEY, 0, 1) == []
    assert journal.index.segments[2].is_damaged


def test_closing_frees_the_store(disk: MemoryDisk, journal: Journal) -> None:
    write(journal, message(0))
    journal.close()
    again, scribe = open_store(disk)
    assert scribe.records == [message(0)]
    again.close()


def test_named_points_of_the_path_are_announced(disk: MemoryDisk) -> None:
    names: list[str] = []
    disk.point = names.append  # type: ignore[method-assign, assignment]
    journal, _ = open_store(disk)
    end = fill(journal, 1)
    append(journal, STARTED)
    journal.write()
    journal.sync()
    journal.index.release(KEY, 0, end)
    take_snapshot(journal)
    take_snapshot(journal)
    journal.free_segments()
    assert set(names) >= {
        "segment-opened",
        "group-written",
        "group-synced",
        "segment-sealed",
        "superblock-written",
        "snapshot-written",
        "snapshot-counts",
        "segment-recycled",
    }
