"""Opening a store: what a crash, a fault or a person may have left, and what becomes of it."""

import errno
from pathlib import Path

import msgspec
import pytest

from penstock.journal import group, snapshot, superblock
from penstock.journal.disk import FolderDisk
from penstock.journal.journal import Journal
from penstock.journal.memory import Crashed, Image, MemoryDisk, Op, Verb
from penstock.journal.record import encode
from penstock.journal.segment import FIRST_GROUP, FORMAT_MAJOR, SEGMENT_PREFIX, decode_header
from penstock.vocabulary.errors import (
    NotAStore,
    StoreDamaged,
    StoreFailed,
    StoreInUse,
    StoreTooNew,
)
from penstock.vocabulary.records import Published, Record
from tests.journal.store import KEY, SETTINGS, message, open_store, write
from tests.journal.versions import with_version

SIZE = 8192
WIDE = msgspec.structs.replace(SETTINGS, segment_bytes_min=SIZE, segment_bytes_max=SIZE)

FIRST = f"{SEGMENT_PREFIX}00000001"


def bases(records: list[Record]) -> list[int]:
    return [record.base for record in records if isinstance(record, Published)]


def made(*groups: int, is_marked: bool = True) -> MemoryDisk:
    """A store with groups of so many records each, 300 bytes a record; then a plain kill."""
    disk = MemoryDisk()
    journal, _ = open_store(disk, WIDE)
    offset = 0
    for count in groups:
        write(journal, *(message(offset + n, 1, 300) for n in range(count)))
        offset += count
    if is_marked and offset:
        journal.mark()
    return disk


def reopened(image: Image) -> tuple[Journal, list[Record], MemoryDisk]:
    disk = MemoryDisk.from_image(image, record=True)
    journal, scribe = open_store(disk, WIDE)
    return journal, scribe.records, disk


def changed(image: Image, name: str, at: int, data: bytes) -> Image:
    content = image[name]
    return {**image, name: content[:at] + data + content[at + len(data) :]}


def flipped(image: Image, name: str, at: int) -> Image:
    return changed(image, name, at, bytes([image[name][at] ^ 0x55]))


def segments(image: Image) -> list[str]:
    return sorted(name for name in image if name.startswith(SEGMENT_PREFIX))


def group_starts(image: Image, name: str) -> list[int]:
    """Where the groups of a segment start, its footer included."""
    header = decode_header(image[name])
    assert header is not None
    starts, at = [], FIRST_GROUP
    while (found := group.parse(image[name], at, header.sequence, header.salt)) is not None:
        starts.append(at)
        at = found.end
    return starts


# -- an ordinary store -------------------------------------------------------------------------


def test_an_empty_folder_becomes_a_store() -> None:
    disk = MemoryDisk()
    journal, scribe = open_store(disk)
    assert disk.names() == [superblock.NAME]
    assert (scribe.pieces, scribe.records, journal.records) == ([], [], 0)


def test_everything_durable_is_found_again_in_order() -> None:
    journal, records, _ = reopened(made(1, 5, 2).image())
    assert bases(records) == list(range(8))
    assert journal.records == 8
    assert (journal.report.groups, journal.report.records) == (3, 8)
    assert not journal.report.is_damaged


def test_records_have_the_positions_they_were_written_at() -> None:
    disk = MemoryDisk()
    journal, _ = open_store(disk)
    places = write(journal, message(0), message(1))
    _, scribe = open_store(MemoryDisk.from_image(disk.image()))
    assert [position for position, _ in scribe.rows] == places


def test_the_log_goes_on_where_it_ended() -> None:
    journal, _, disk = reopened(made(2).image())
    write(journal, message(2, 1, 300))
    again, records, _ = reopened(disk.image())
    assert bases(records) == [0, 1, 2]
    assert again.last_sequence == 1


def test_a_log_of_many_segments_is_read_through() -> None:
    journal, records, _ = reopened(made(*[4] * 10).image())
    assert bases(records) == list(range(40))
    assert journal.last_sequence > 3


def test_opening_twice_gives_the_same() -> None:
    _, first, disk = reopened(made(1, 2, 3).image())
    _, second, _ = reopened(disk.image())
    assert first == second


def test_what_recovery_found_is_synced_before_anyone_is_served() -> None:
    _, _, disk = reopened(made(2).image())
    verbs = [(op.verb, op.file) for op in disk.trace]
    assert (Verb.SYNC, FIRST) in verbs
    assert verbs[-1][0] is Verb.SYNC_NAMES


def test_recovery_deletes_nothing() -> None:
    image = made(*[4] * 10).image()
    _, _, disk = reopened(image)
    assert not [op for op in disk.trace if op.verb in (Verb.UNLINK, Verb.RENAME)]
    assert set(disk.names()) >= set(image)


# -- snapshots ---------------------------------------------------------------------------------


def with_snapshots(count: int = 1) -> MemoryDisk:
    disk = MemoryDisk()
    journal, _ = open_store(disk)
    for number in range(count):
        write(journal, message(2 * number), message(2 * number + 1))
        draft = journal.begin_snapshot(journal.log_end, journal.records)
        journal.finish_snapshot(draft, iter([b"state %d" % number]))
    write(journal, message(2 * count))
    return disk


def test_only_what_follows_the_newest_snapshot_is_replayed() -> None:
    disk = MemoryDisk.from_image(with_snapshots(2).image())
    journal, scribe = open_store(disk)
    assert scribe.pieces == [b"state 1"]
    assert bases(scribe.records) == [4]
    assert (journal.records, journal.report.snapshot) == (5, 2)


def test_a_damaged_snapshot_is_passed_over_for_the_one_before() -> None:
    image = flipped(with_snapshots(2).image(), snapshot.name_of(2), 60)
    journal, scribe = open_store(MemoryDisk.from_image(image))
    assert scribe.pieces == [b"state 0"]
    assert bases(scribe.records) == [2, 3, 4]
    assert any("the one before it is used" in note for note in journal.report.notes)


def test_without_any_readable_snapshot_the_whole_log_is_replayed() -> None:
    image = with_snapshots(2).image()
    for generation in (1, 2):
        image = flipped(image, snapshot.name_of(generation), 60)
    _, scribe = open_store(MemoryDisk.from_image(image))
    assert scribe.pieces == []
    assert bases(scribe.records) == [0, 1, 2, 3, 4]


def test_a_missing_snapshot_file_changes_nothing() -> None:
    image = dict(with_snapshots(2).image())
    del image[snapshot.name_of(2)]
    _, scribe = open_store(MemoryDisk.from_image(image))
    assert bases(scribe.records) == [2, 3, 4]


def test_without_snapshots_a_log_that_no_longer_begins_is_refused() -> None:
    disk = MemoryDisk()
    journal, _ = open_store(disk)
    offset = 0
    while journal.last_sequence < 6:
        write(journal, message(offset, 1, 300))
        offset += 1
    journal.index.release(KEY, 0, offset)
    for _ in range(2):
        draft = journal.begin_snapshot(journal.log_end, journal.records)
        journal.finish_snapshot(draft, iter([b"state"]))
    assert journal.free_segments() > 2
    image = {n: d for n, d in disk.image().items() if not n.startswith(snapshot.PREFIX)}
    with pytest.raises(StoreDamaged, match="penstock salvage"):
        open_store(MemoryDisk.from_image(image))


def test_a_number_is_never_used_twice_for_a_snapshot_or_a_segment_file() -> None:
    image = {**with_snapshots(2).image(), f"{SEGMENT_PREFIX}00000077": bytes(4096)}
    journal, _ = open_store(MemoryDisk.from_image(image))
    assert journal.next_snapshot == 3
    assert journal.spares.next_number == 78


# -- torn tails --------------------------------------------------------------------------------


def torn(cut: int) -> tuple[Image, int]:
    """A store whose last group was never synced and is cut after so many bytes."""
    disk = MemoryDisk.from_image(made(2).image())
    journal, _ = open_store(disk, WIDE)
    records: list[Record] = [message(2, 1, 300), message(3, 1, 300)]
    start = journal.log_end & 0xFFFFFFFF
    journal.append(records, [encode(record) for record in records], 0)
    journal.write()
    image = disk.image()
    size = len(image[FIRST])
    return {**image, FIRST: image[FIRST][: start + cut].ljust(size, b"\0")}, start


@pytest.mark.parametrize("cut", [8, 100, 512, 600, 700])
def test_a_torn_tail_is_cut_off_and_kept_aside(cut: int) -> None:
    image, start = torn(cut)
    journal, records, disk = reopened(image)
    assert bases(records) == [0, 1]
    assert not journal.report.is_damaged
    assert journal.log_end & 0xFFFFFFFF == start
    if journal.report.torn_file is not None:
        aside = disk.open(journal.report.torn_file)
        assert aside.pread(0, aside.size) == image[FIRST][start : start + cut].rstrip(b"\0")
        assert journal.report.torn_bytes == aside.size
        assert disk.image()[FIRST][start:] == bytes(SIZE - start)
    else:
        assert cut <= 8


def test_a_torn_tail_is_copied_durably_before_it_is_zeroed() -> None:
    _, _, disk = reopened(torn(600)[0])
    steps = [(op.verb, op.file.split("-")[0]) for op in disk.trace]
    zeroed = steps.index((Verb.WRITE, "segment"))
    assert steps[:zeroed] == [
        (Verb.CREATE, "torn"),
        (Verb.WRITE, "torn"),
        (Verb.SYNC, "torn"),
        (Verb.SYNC_NAMES, ""),
    ]


def test_a_torn_tail_once_cut_off_never_comes_back() -> None:
    _, _, disk = reopened(torn(600)[0])
    journal, records, _ = reopened(disk.image())
    assert bases(records) == [0, 1]
    assert journal.report.torn_file is None


def test_two_torn_tails_are_both_kept() -> None:
    image, _ = torn(600)
    _, _, disk = reopened(image)
    first = [name for name in disk.names() if name.startswith("torn-")]
    again = {**image, **{name: disk.image()[name] for name in first}}
    _, _, second = reopened(again)
    assert len([name for name in second.names() if name.startswith("torn-")]) == 2


def test_a_whole_group_that_was_never_synced_but_survived_is_kept() -> None:
    image, _ = torn(SIZE)
    journal, records, _ = reopened(image)
    assert bases(records) == [0, 1, 2, 3]
    assert journal.report.torn_file is None


def test_an_interrupted_clean_up_of_a_torn_tail_is_begun_again() -> None:
    image, _ = torn(600)
    for point in ("tail-saved", "tail-zeroed"):
        disk = MemoryDisk.from_image(image, record=True)
        disk.crash_at = point
        with pytest.raises(Crashed, match=point):
            open_store(disk)
        _, records, _ = reopened(disk.image())
        assert bases(records) == [0, 1]


# -- damage ------------------------------------------------------------------------------------


def test_damage_in_the_middle_keeps_every_record_it_did_not_touch() -> None:
    image = made(3, 3, 3).image()
    start = group_starts(image, FIRST)[1]
    hurt = flipped(image, FIRST, start + group.HEADER_BYTES + 50)
    journal, records, disk = reopened(hurt)
    assert bases(records) == [0, 1, 2, 4, 5, 6, 7, 8]
    (damage,) = journal.report.damages
    assert (damage.file, damage.start, damage.lost_records, damage.rescued_records) == (
        FIRST, start, 1, 2,
    )  # fmt: skip
    assert disk.image()[FIRST] == hurt[FIRST]


def test_damage_to_a_group_header_costs_no_record() -> None:
    image = made(3, 3, 3).image()
    hurt = flipped(image, FIRST, group_starts(image, FIRST)[1] + 20)
    journal, records, _ = reopened(hurt)
    assert bases(records) == list(range(9))
    assert [damage.lost_records for damage in journal.report.damages] == [0]


def test_damage_to_the_last_group_is_damage_when_the_superblock_knows_it_was_durable() -> None:
    image = made(2, 2).image()
    start = group_starts(image, FIRST)[1]
    journal, records, _ = reopened(flipped(image, FIRST, start + 70))
    assert journal.report.is_damaged
    assert bases(records) == [0, 1, 3]
    assert journal.report.torn_file is None


def test_the_same_without_a_superblock_that_knows_is_a_torn_tail() -> None:
    image = made(2, 2, is_marked=False).image()
    start = group_starts(image, FIRST)[1]
    journal, records, _ = reopened(flipped(image, FIRST, start + 70))
    assert not journal.report.is_damaged
    assert bases(records) == [0, 1]
    assert journal.report.torn_file is not None


def test_damage_is_damage_when_a_later_group_knows_it_was_durable() -> None:
    image = made(3, 3, 3, is_marked=False).image()
    start = group_starts(image, FIRST)[1]
    journal, records, _ = reopened(flipped(image, FIRST, start + group.HEADER_BYTES + 50))
    assert [damage.start for damage in journal.report.damages] == [start]
    assert bases(records) == [0, 1, 2, 4, 5, 6, 7, 8]
    assert journal.report.torn_file is None


def test_a_log_cut_exactly_between_two_groups_is_noticed() -> None:
    image = made(2, 2, 2).image()
    start = group_starts(image, FIRST)[2]
    cut = changed(image, FIRST, start, bytes(SIZE - start))
    journal, records, _ = reopened(cut)
    assert journal.report.is_damaged
    assert bases(records) == [0, 1, 2, 3]


def test_after_damage_nothing_is_written_into_the_damaged_segment() -> None:
    image = made(3, 3, 3).image()
    hurt = flipped(image, FIRST, group_starts(image, FIRST)[1] + 100)
    journal, _, disk = reopened(hurt)
    assert journal.index.segments[1].is_damaged
    write(journal, message(9))
    assert journal.last_sequence == 2
    start = group_starts(image, FIRST)[2]
    assert disk.image()[FIRST][:start] == hurt[FIRST][:start]


def test_damage_in_a_sealed_segment_costs_only_what_it_touches() -> None:
    image = made(*[4] * 12).image()
    second = segments(image)[1]
    start = group_starts(image, second)[0]
    journal, records, _ = reopened(flipped(image, second, start + group.HEADER_BYTES + 40))
    lost = set(range(48)) - set(bases(records))
    assert len(lost) == 1
    assert [damage.file for damage in journal.report.damages] == [second]


def test_a_damaged_footer_costs_nothing() -> None:
    image = made(*[4] * 12).image()
    first = segments(image)[0]
    journal, records, _ = reopened(flipped(image, first, group_starts(image, first)[-1] + 60))
    assert bases(records) == list(range(48))
    assert journal.report.is_damaged


def test_a_damaged_segment_header_costs_nothing() -> None:
    image = made(*[4] * 12).image()
    for name in segments(image)[:2]:
        journal, records, _ = reopened(flipped(image, name, 30))
        assert bases(records) == list(range(48)), name
        assert any("header" in note for note in journal.report.notes)


def test_evidence_of_damage_outlives_the_snapshots_taken_after_it() -> None:
    image = flipped(with_snapshots(2).image(), snapshot.name_of(2), 60)
    disk = MemoryDisk.from_image(image)
    journal, _ = open_store(disk)
    for _ in range(3):
        draft = journal.begin_snapshot(journal.log_end, journal.records)
        journal.finish_snapshot(draft, iter([b"later"]))
    assert snapshot.name_of(2) in disk.names()


@pytest.mark.parametrize("edge", range(FIRST_GROUP, SIZE, 512))
def test_a_zeroed_sector_anywhere_costs_only_the_records_in_it(edge: int) -> None:
    image = made(2, 2, 2).image()
    whole = image[FIRST]
    journal, records, _ = reopened(changed(image, FIRST, edge, bytes(512)))
    header = decode_header(whole)
    assert header is not None
    touched = set()
    for start in group_starts(image, FIRST):
        found = group.parse(whole, start, 1, header.salt)
        assert found is not None
        for offset, (position, record) in enumerate(group.records(whole, found)):
            at = position & 0xFFFFFFFF
            if at < edge + 512 and edge < at + 8 + len(record):
                touched.add(found.first_record + offset)
    assert set(bases(records)) == set(range(6)) - touched
    assert journal.report.is_damaged == any(whole[edge : edge + 512])


# -- refusals ----------------------------------------------------------------------------------


def test_a_missing_segment_in_the_middle_is_refused_and_nothing_is_touched() -> None:
    image = dict(made(*[4] * 16).image())
    missing = segments(image)[1]
    del image[missing]
    disk = MemoryDisk.from_image(image, record=True)
    with pytest.raises(StoreDamaged, match="penstock salvage"):
        open_store(disk)
    assert disk.image() == image


def test_a_missing_last_segment_that_was_durable_is_refused() -> None:
    image = dict(made(*[4] * 12).image())
    del image[segments(image)[-1]]
    with pytest.raises(StoreDamaged, match="missing"):
        open_store(MemoryDisk.from_image(image))


def test_a_segment_a_snapshot_relies_on_must_be_there() -> None:
    disk = MemoryDisk()
    journal, _ = open_store(disk)
    offset = 0
    while journal.last_sequence < 4:
        write(journal, message(offset, 1, 300))
        offset += 1
    draft = journal.begin_snapshot(journal.log_end, journal.records)
    journal.finish_snapshot(draft, iter([b"state"]))
    image = dict(disk.image())
    del image[f"{SEGMENT_PREFIX}00000002"]
    with pytest.raises(StoreDamaged, match="00000002"):
        open_store(MemoryDisk.from_image(image))


def test_a_copy_of_a_segment_is_refused_by_name() -> None:
    image = dict(made(2).image())
    image[f"{SEGMENT_PREFIX}00000009"] = image[FIRST]
    with pytest.raises(StoreDamaged, match="both claim place 1"):
        open_store(MemoryDisk.from_image(image))


def test_a_segment_of_another_store_is_left_alone() -> None:
    image = dict(made(2).image())
    name = f"{SEGMENT_PREFIX}00000009"
    image[name] = made(3).image()[FIRST]
    journal, records, disk = reopened(image)
    assert bases(records) == [0, 1]
    assert disk.image()[name] == image[name]
    assert any("another store" in note for note in journal.report.notes)


def test_a_group_copied_from_another_place_is_not_taken_for_one() -> None:
    image = made(2, 2, is_marked=False).image()
    first, second = group_starts(image, FIRST)
    part = image[FIRST][first:second]
    end = second + (second - first)
    _, records, _ = reopened(changed(image, FIRST, end, part))
    assert bases(records) == [0, 1, 2, 3]


def test_records_that_do_not_follow_each_other_are_refused() -> None:
    disk = MemoryDisk()
    journal, _ = open_store(disk)
    write(journal, message(0))
    journal.records = 5
    write(journal, message(1))
    with pytest.raises(StoreDamaged, match="record 1 should come next"):
        open_store(MemoryDisk.from_image(disk.image()))


@pytest.mark.parametrize("what", ["superblock", "segment", "features"])
def test_a_store_of_a_newer_format_is_refused_and_unchanged(what: str) -> None:
    image = dict(made(2).image())
    if what == "superblock":
        for at in (0, superblock.SLOT_BYTES):
            slot = image[superblock.NAME][at : at + superblock.SLOT_BYTES]
            newer = with_version(slot, major=FORMAT_MAJOR + 1, sum_at=72)
            image = dict(changed(image, superblock.NAME, at, newer))
    elif what == "segment":
        newer = with_version(image[FIRST][:512], major=FORMAT_MAJOR + 1, sum_at=64)
        image = dict(changed(image, FIRST, 0, newer))
    else:
        newer = with_version(image[FIRST][:512], features=1, sum_at=64)
        image = dict(changed(image, FIRST, 0, newer))
    disk = MemoryDisk.from_image(image)
    with pytest.raises(StoreTooNew):
        open_store(disk)
    assert disk.image() == image
    assert disk.owner() is None


def test_a_missing_superblock_beside_segments_is_refused_never_begun_anew() -> None:
    image = dict(made(2).image())
    del image[superblock.NAME]
    disk = MemoryDisk.from_image(image)
    with pytest.raises(StoreDamaged, match="superblock"):
        open_store(disk)
    assert disk.image() == image


def test_a_folder_with_other_files_is_refused_and_unchanged() -> None:
    disk = MemoryDisk.from_image({"holiday.jpg": b"x"})
    with pytest.raises(NotAStore, match="holiday"):
        open_store(disk)
    assert disk.image() == {"holiday.jpg": b"x"}


def test_a_folder_whose_store_was_never_finished_begins_anew() -> None:
    disk = MemoryDisk.from_image({superblock.NAME + ".tmp": b"rubbish"})
    _, scribe = open_store(disk)
    assert scribe.records == []


def test_the_second_opener_is_refused() -> None:
    disk = made(1)
    assert disk.owner() is not None
    with pytest.raises(StoreInUse):
        open_store(disk)


def test_the_second_opener_of_a_folder_is_refused(tmp_path: Path) -> None:
    first, second = FolderDisk(tmp_path), FolderDisk(tmp_path)
    journal, _ = open_store(first)
    with pytest.raises(StoreInUse):
        open_store(second)
    journal.close()


def test_a_foreign_folder_gets_no_lock_file(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(NotAStore):
        open_store(FolderDisk(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_disk_that_fails_while_opening_gives_nothing_up() -> None:
    image = torn(600)[0]
    disk = MemoryDisk.from_image(image, record=True)

    def fail(op: Op) -> None:
        if op.verb is Verb.SYNC:
            raise OSError(errno.EIO, "no")

    disk.on_operation = fail
    with pytest.raises(StoreFailed, match="nothing in it was given up"):
        open_store(disk)
    disk.on_operation = None
    _, records, _ = reopened(disk.image())
    assert bases(records) == [0, 1]


# -- files nobody needs ------------------------------------------------------------------------


def test_an_unused_file_of_zeros_is_a_spare() -> None:
    image = dict(made(2).image())
    image[f"{SEGMENT_PREFIX}00000009"] = bytes(4096)
    journal, _, _ = reopened(image)
    assert [file.name for file in journal.spares.files] == [f"{SEGMENT_PREFIX}00000009"]


def test_a_file_with_an_unknown_content_is_left_alone() -> None:
    image = dict(made(2).image())
    name = f"{SEGMENT_PREFIX}00000009"
    image[name] = b"\x99" * 4096
    journal, _, disk = reopened(image)
    assert journal.spares.files == []
    assert disk.image()[name] == image[name]
    assert any(name in note for note in journal.report.notes)


def test_a_strange_name_is_left_alone() -> None:
    image = {**made(2).image(), f"{SEGMENT_PREFIX}backup": b"x"}
    journal, records, _ = reopened(image)
    assert bases(records) == [0, 1]
    assert any("left alone" in note for note in journal.report.notes)


def test_segments_keep_their_size_after_opening() -> None:
    settings = msgspec.structs.replace(SETTINGS, segment_bytes_max=32768)
    disk = MemoryDisk()
    journal, _ = open_store(disk, settings)
    offset = 0
    while journal.last_sequence < 4:
        write(journal, message(offset, 1, 300))
        offset += 1
    again, _ = open_store(MemoryDisk.from_image(disk.image()), settings)
    while again.last_sequence < 5:
        write(again, message(offset, 1, 300))
        offset += 1
    assert again.index.segments[5].size == 32768


def test_a_stop_is_clean_only_when_it_said_so_and_nothing_was_written_since() -> None:
    disk = MemoryDisk()
    journal, _ = open_store(disk)
    write(journal, message(0))
    journal.seal()
    draft = journal.begin_snapshot(journal.log_end, journal.records)
    journal.finish_snapshot(draft, iter([]))
    journal.mark(is_clean=True)
    journal.close()
    clean, _, again = reopened(disk.image())
    assert clean.report.is_clean
    write(clean, message(1))
    dirty, _, _ = reopened(again.image())
    assert not dirty.report.is_clean
