"""Verify: what it says of a whole store, of each kind of damage, and of what does not matter."""

import json
from itertools import count, takewhile
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest

from penstock.batch import encode_one
from penstock.broker.broker import Broker
from penstock.broker.mailbox import DIRECT, Pending
from penstock.journal import group, salvage, superblock
from penstock.journal.disk import FolderDisk
from penstock.journal.memory import MemoryDisk
from penstock.journal.verify import FileReport, LostMessages, Verdict, VerifyReport, verify
from penstock.vocabulary.errors import NotAStore
from tests.crash.damage_store import SETTINGS, Bench, Files, Stage, StillClock, build


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    return {stage.name: stage for stage in build(6)}


@pytest.fixture
def image(stages: dict[str, Stage]) -> Files:
    return dict(stages["killed"].image)


def report_on(image: Files) -> VerifyReport:
    disk = MemoryDisk.from_image(image)
    report = verify(disk)
    assert disk.image() == image, "verify wrote"
    return report


def of(report: VerifyReport, name: str) -> FileReport:
    return next(each for each in report.files if each.name == name)


def flip(image: Files, name: str, at: int) -> None:
    data = bytearray(image[name])
    data[at] ^= 4
    image[name] = bytes(data)


def zero(image: Files, name: str, start: int, end: int) -> None:
    image[name] = image[name][:start] + bytes(end - start) + image[name][end:]


def segments(image: Files) -> dict[int, salvage.SegmentFile]:
    return salvage.survey(MemoryDisk.from_image(image)).places()


def busy(image: Files) -> tuple[str, list[salvage.Stretch]]:
    """The name and the groups of a sealed segment in which some group has several records."""
    for segment in segments(image).values():
        groups = [each for each in salvage.scan(segment) if each.group is not None]
        is_sealed = groups and groups[-1].group is not None and groups[-1].group.flags
        if is_sealed and any(len(each.rows) > 1 for each in groups):
            return segment.file.name, groups
    raise AssertionError("no such segment")


def last(image: Files) -> salvage.SegmentFile:
    return max(segments(image).values(), key=lambda each: each.sequence)


# -- what is whole ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["begun", "snapshot-1", "snapshot-3", "compacted", "closed"])
def test_a_whole_store_is_ok(stages: dict[str, Stage], name: str) -> None:
    report = report_on(stages[name].image)
    assert (report.verdict, report.lost_records, report.in_use) == (Verdict.OK, 0, None)
    assert report.records > 0
    assert {each.verdict for each in report.files} <= {Verdict.OK, Verdict.FREE}


def test_the_report_is_json_rows_and_text(image: Files) -> None:
    report = report_on(image)
    assert json.loads(msgspec.json.encode(report))["verdict"] == "ok"
    assert msgspec.convert(msgspec.to_builtins(report), VerifyReport) == report
    assert [row[0] for row in report.rows()] == [each.name for each in report.files]
    assert str(report).splitlines()[-1] == f"ok: {report.records} record(s) read, 0 lost"


def test_an_empty_folder_is_not_a_store() -> None:
    with pytest.raises(NotAStore):
        verify(MemoryDisk())


# -- damage in the log -----------------------------------------------------------------------------


def test_a_damaged_record_is_named_with_its_bytes_and_messages(image: Files) -> None:
    name, groups = busy(image)
    chosen = next(each for each in groups if each.rows and each.rows[0][1][4] == 1)
    start = (chosen.rows[0][0] & salvage.BYTE) + group.RECORD_OVERHEAD
    flip(image, name, start + 70)
    report = report_on(image)
    found = of(report, name)
    assert (report.verdict, report.lost_records) == (Verdict.DAMAGED, 1)
    assert [(d.start, d.end, d.lost_records) for d in found.damages] == [
        (chosen.start, chosen.end, 1)
    ]
    assert found.unreadable == [(chosen.start, chosen.end)]
    assert len(found.lost_messages) == 1
    assert isinstance(found.lost_messages[0], LostMessages)
    assert found.lost_messages[0].last >= found.lost_messages[0].first
    assert f"bytes {chosen.start}–{chosen.end}" in str(report)


def test_a_damaged_group_header_loses_nothing(image: Files) -> None:
    name, groups = busy(image)
    chosen = next(each for each in groups if len(each.rows) > 1)
    flip(image, name, chosen.start + 20)
    report = report_on(image)
    damage = of(report, name).damages[0]
    assert (report.verdict, report.lost_records) == (Verdict.DAMAGED, 0)
    assert (damage.lost_records, damage.rescued_records) == (0, len(chosen.rows))
    assert report.rescued_records == len(chosen.rows)
    assert of(report, name).unreadable[0] == (chosen.start, chosen.start + group.HEADER_BYTES)


def test_one_of_several_records_in_a_group_is_lost(image: Files) -> None:
    name, groups = busy(image)
    chosen = next(each for each in groups if len(each.rows) > 1)
    second = chosen.rows[1][0] & salvage.BYTE
    flip(image, name, second + 12)
    found = of(report_on(image), name)
    assert (found.damages[0].lost_records, found.damages[0].rescued_records) == (
        1,
        len(chosen.rows) - 1,
    )
    assert any(start <= second < end for start, end in found.unreadable)


def test_a_damaged_footer_loses_no_record(image: Files) -> None:
    name, groups = busy(image)
    flip(image, name, groups[-1].start + group.HEADER_BYTES + 3)
    report = report_on(image)
    assert (report.verdict, report.lost_records) == (Verdict.DAMAGED, 0)


def test_a_damaged_header_is_told_from_the_groups(image: Files) -> None:
    name, _ = busy(image)
    flip(image, name, 44)
    report = report_on(image)
    assert (of(report, name).verdict, report.lost_records) == (Verdict.DAMAGED, 0)
    assert any(name in note for note in report.notes)


def test_a_header_from_an_earlier_life_is_not_believed(stages: dict[str, Stage]) -> None:
    image, old = dict(stages["killed"].image), stages["begun"].image
    name = next(n for n in old if n.startswith("segment-") and n in image and old[n] != image[n])
    image[name] = old[name][:512] + image[name][512:]
    report = report_on(image)
    assert (of(report, name).verdict, report.lost_records) == (Verdict.DAMAGED, 0)


def test_a_missing_segment_is_missing(image: Files) -> None:
    name, _ = busy(image)
    del image[name]
    report = report_on(image)
    assert (report.verdict, report.lost_records) == (Verdict.DAMAGED, None)
    assert any(each.verdict is Verdict.MISSING for each in report.files)


def test_two_files_for_one_place_are_damage(image: Files) -> None:
    name, _ = busy(image)
    image["segment-00000099"] = image[name]
    report = report_on(image)
    assert report.verdict is Verdict.DAMAGED
    assert "another file holds" in str(report)


# -- the end of the log ----------------------------------------------------------------------------


def test_a_group_half_written_at_the_end_is_torn() -> None:
    disk = MemoryDisk()
    bench = Bench(disk)
    bench.publish("orders", 0, [b"confirmed"])
    segment = bench.broker.journal.active
    assert segment is not None
    start = segment.end
    bench.publish("orders", 0, [b"never confirmed"])
    torn = dict(disk.image())
    flip(torn, segment.file.name, start + group.HEADER_BYTES + 30)
    report = report_on(torn)
    assert report.verdict is Verdict.TORN
    assert of(report, segment.file.name).note == f"a torn tail from byte {start} on"


def test_a_vanished_end_is_damage_when_the_superblock_knows_it(image: Files) -> None:
    segment = last(image)
    end = max(each.end for each in salvage.scan(segment))
    start = max(each.start for each in salvage.scan(segment))
    zero(image, segment.file.name, start, end)
    report = report_on(image)
    found = of(report, segment.file.name)
    assert report.verdict is Verdict.DAMAGED
    assert [(d.start, d.end) for d in found.damages] == [(start, end)]
    assert report.lost_records is None, "nothing after the hole tells how many there were"


def test_a_cut_end_is_damage_when_the_superblock_knows_it(image: Files) -> None:
    segment = last(image)
    image[segment.file.name] = image[segment.file.name][:512]
    assert report_on(image).verdict is Verdict.DAMAGED


# -- the small files -------------------------------------------------------------------------------


def test_one_copy_of_the_superblock_is_enough(image: Files) -> None:
    flip(image, superblock.NAME, 50)
    report = report_on(image)
    assert (report.verdict, of(report, superblock.NAME).verdict) == (Verdict.TORN, Verdict.TORN)
    assert of(report, superblock.NAME).unreadable == [(0, 80)]


def test_both_copies_of_the_superblock_are_not_there_for_nothing(image: Files) -> None:
    flip(image, superblock.NAME, 50)
    flip(image, superblock.NAME, superblock.SLOT_BYTES + 50)
    assert of(report_on(image), superblock.NAME).verdict is Verdict.DAMAGED


def test_a_missing_superblock_is_missing(image: Files) -> None:
    del image[superblock.NAME]
    report = report_on(image)
    assert report.verdict is Verdict.DAMAGED
    assert of(report, superblock.NAME).verdict is Verdict.MISSING


def test_a_superblock_cut_short_is_damage(image: Files) -> None:
    image[superblock.NAME] = image[superblock.NAME][:4096]
    assert report_on(image).verdict is Verdict.DAMAGED


def test_a_damaged_snapshot_is_damage(image: Files) -> None:
    name = max(name for name in image if name.startswith("snapshot-"))
    flip(image, name, 60)
    found = of(report_on(image), name)
    assert (found.verdict, found.unreadable) == (Verdict.DAMAGED, [(0, len(image[name]))])


def test_the_snapshot_the_superblock_names_is_missed(image: Files) -> None:
    name = max(name for name in image if name.startswith("snapshot-"))
    del image[name]
    assert of(report_on(image), name).verdict is Verdict.MISSING


# -- what does not matter --------------------------------------------------------------------------


def test_a_free_segment_may_hold_anything(stages: dict[str, Stage]) -> None:
    image = dict(stages["compacted"].image)
    free = [each.name for each in report_on(image).files if each.verdict is Verdict.FREE]
    assert free
    for name in free:
        image[name] = bytes(len(image[name]))[:512] + b"\xff" * (len(image[name]) - 512)
    assert report_on(image).verdict is Verdict.OK


def test_padding_and_the_unused_end_may_hold_anything(image: Files) -> None:
    segment = last(image)
    data = image[segment.file.name]
    image[segment.file.name] = data[:-100] + b"\xff" * 100
    assert report_on(image).verdict is Verdict.OK


def test_a_segment_of_another_store_is_left_out(image: Files, stages: dict[str, Stage]) -> None:
    other = build(6, seed=2)[-1].image
    image["segment-00000099"] = other[busy(other)[0]]
    report = report_on(image)
    assert (report.verdict, of(report, "segment-00000099").verdict) == (Verdict.OK, Verdict.FREE)


def test_foreign_files_are_listed_and_ignored(image: Files) -> None:
    image["torn-00000003-00001024-0001"] = b"tail"
    image["segment-00000001.bak"] = b"?"
    report = report_on(image)
    assert report.verdict is Verdict.OK
    assert "put aside" in of(report, "torn-00000003-00001024-0001").note


# -- beside a running broker -----------------------------------------------------------------------


def test_a_store_is_read_while_a_broker_writes_to_it(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(SETTINGS, segment_bytes_max=8192, cache_bytes=1 << 20)
    broker = Broker.open(FolderDisk(tmp_path), settings)
    is_over = Event()

    def publish() -> None:
        batch = encode_one(b"x" * 300)
        for sequence in takewhile(lambda _: not is_over.is_set(), count()):
            pending = Pending()
            broker.publish("orders", 0, batch, 1, b"\1" * 16, 1, sequence, DIRECT, pending)
            pending.wait()

    worker = Thread(target=publish)
    worker.start()
    disk = FolderDisk(tmp_path, is_read_only=True)
    try:
        verdicts = {verify(disk).verdict for _ in range(30)}
    finally:
        is_over.set()
        worker.join()
        broker.close()
    assert verdicts <= {Verdict.OK, Verdict.TORN}
    assert verify(disk).verdict is Verdict.OK
    disk.close()


def test_a_store_in_use_is_read_and_said_to_be_in_use(tmp_path: Path) -> None:
    broker = Broker.open(FolderDisk(tmp_path), SETTINGS, StillClock(), threads=False)
    disk = FolderDisk(tmp_path, is_read_only=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    report = verify(disk)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert report.in_use is not None
    assert "in use" in str(report)
    broker.close()
    assert verify(disk).in_use is None
    disk.close()
