"""Survey and scan: who is who among broken files, and which records they still prove."""

import pytest
from xxhash import xxh3_64_intdigest

from penstock.journal import group, salvage, snapshot, superblock
from penstock.journal.memory import MemoryDisk
from penstock.journal.salvage import SegmentFile, Survey, scan, survey
from penstock.journal.segment import Header, encode_header
from penstock.vocabulary.errors import StoreTooNew
from tests.crash.damage_store import Files, Stage, build


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    return {stage.name: stage for stage in build(6)}


@pytest.fixture
def image(stages: dict[str, Stage]) -> Files:
    return dict(stages["killed"].image)


def look(image: Files) -> Survey:
    return survey(MemoryDisk.from_image(image))


def rows(image: Files) -> dict[int, bytes]:
    """Every record that can be proven, by its position."""
    return {
        position: rec
        for segment in look(image).places().values()
        for stretch in scan(segment)
        for position, rec in stretch.rows
    }


def named(found: Survey, name: str) -> SegmentFile:
    return next(each for each in found.segments if each.file.name == name)


def one_of(image: Files) -> SegmentFile:
    """A segment in the middle of the log."""
    places = list(look(image).places().values())
    return places[len(places) // 2]


def blank(image: Files, name: str, start: int, end: int) -> None:
    image[name] = image[name][:start] + bytes(end - start) + image[name][end:]


# -- who is who ------------------------------------------------------------------------------------


def test_a_whole_store_is_read_whole(image: Files) -> None:
    found = look(image)
    assert found.block is not None
    assert found.store_id == found.block.store_id
    assert [each.found is not None for each in found.snapshots] == [True, True]
    assert found.snapshots[0].generation > found.snapshots[1].generation
    assert {each.named_by for each in found.segments} == {"header"}
    assert not found.notes


def test_without_a_superblock_the_other_files_tell_whose_store_it_is(image: Files) -> None:
    whole = look(image).store_id
    del image[superblock.NAME]
    found = look(image)
    assert (found.block, found.store_id) == (None, whole)
    assert found.valid_snapshots


def test_without_superblock_and_headers_the_snapshots_tell(image: Files) -> None:
    whole = look(image).store_id
    del image[superblock.NAME]
    for name in image:
        if name.startswith("segment-"):
            blank(image, name, 0, 72)
    assert look(image).store_id == whole


def test_with_nothing_left_nobody_knows() -> None:
    assert look({"segment-00000001": bytes(4096)}).store_id is None


def test_a_segment_without_its_header_is_named_by_its_groups(image: Files) -> None:
    segment = one_of(image)
    before = rows(image)
    blank(image, segment.file.name, 0, 512)
    found = named(look(image), segment.file.name)
    assert (found.sequence, found.salt, found.named_by) == (
        segment.sequence, segment.salt, "groups",
    )  # fmt: skip
    assert rows(image) == before


def test_a_segment_without_header_and_whole_groups_is_named_by_the_snapshot(image: Files) -> None:
    found = look(image)
    row = found.valid_snapshots[0].meta.segments[0]
    data = bytearray(image[row.name])
    data[:72] = bytes(72)
    for at in range(512, len(data), 512):
        data[at + 4] ^= 1  # The record count of every group header.
    image[row.name] = bytes(data)
    segment = named(look(image), row.name)
    assert (segment.sequence, segment.named_by) == (row.sequence, "snapshot")
    assert any(stretch.rows for stretch in scan(segment))


def test_a_segment_known_to_no_snapshot_is_named_by_what_its_records_prove(image: Files) -> None:
    segment = max(look(image).places().values(), key=lambda each: each.sequence)
    data = bytearray(image[segment.file.name])
    data[:72] = bytes(72)
    for at in range(512, len(data), 512):
        data[at + 4] ^= 1
    image[segment.file.name] = bytes(data)
    found = named(look(image), segment.file.name)
    assert (found.sequence, found.named_by) == (segment.sequence, "groups")


def test_a_header_from_an_earlier_life_yields_to_the_groups(stages: dict[str, Stage]) -> None:
    image, old = dict(stages["killed"].image), stages["begun"].image
    before = rows(image)
    name = next(n for n in old if n.startswith("segment-") and n in image and old[n] != image[n])
    image[name] = old[name][:512] + image[name][512:]
    assert named(look(image), name).named_by == "groups"
    assert rows(image) == before


def test_a_header_of_a_new_life_is_believed_over_old_groups(image: Files) -> None:
    """A segment just taken into use still holds the groups of its last life."""
    segment = one_of(image)
    header = segment.header
    assert header is not None
    fresh = Header(header.store_id, header.sequence + 100, 77, header.size)
    data = image[segment.file.name]
    image[segment.file.name] = encode_header(fresh) + data[512:]
    found = named(look(image), segment.file.name)
    assert (found.sequence, found.named_by) == (header.sequence + 100, "header")
    assert not list(scan(found))


def test_a_segment_of_another_store_is_foreign(image: Files) -> None:
    other = dict(build(6, seed=3)[-1].image)
    image["segment-00000099"] = other[one_of(other).file.name]
    found = look(image)
    assert named(found, "segment-00000099").is_foreign
    assert all(not each.is_foreign for each in found.places().values())


def test_a_blank_segment_is_a_spare(image: Files) -> None:
    image["segment-00000099"] = bytes(4096)
    found = named(look(image), "segment-00000099")
    assert (found.is_blank, found.sequence) == (True, 0)


def test_names_that_are_not_ours_are_no_segments(image: Files) -> None:
    image["segment-copy"] = b"x"
    assert "segment-copy" not in {each.file.name for each in look(image).segments}


def test_a_store_of_a_newer_version_is_refused(image: Files) -> None:
    name = next(name for name in image if name.startswith("snapshot-"))
    data = bytearray(image[name][:-8])
    data[8] = 9
    image[name] = bytes(data) + xxh3_64_intdigest(bytes(data)).to_bytes(8, "little")
    with pytest.raises(StoreTooNew):
        look(image)


def test_an_unreadable_snapshot_says_what_is_wrong(image: Files) -> None:
    name = max(name for name in image if name.startswith(snapshot.PREFIX))
    image[name] = image[name][:-3]
    found = look(image).snapshots[0]
    assert (found.found, found.name) == (None, name)
    assert "checksum" in found.problem


# -- one segment -----------------------------------------------------------------------------------


def test_holes_and_groups_follow_each_other_without_a_gap(image: Files) -> None:
    segment = one_of(image)
    groups = list(scan(segment))
    blank(image, segment.file.name, groups[1].start, groups[1].end)
    found = list(scan(named(look(image), segment.file.name)))
    assert [(each.start, each.end) for each in found] == [(e.start, e.end) for e in groups]
    assert [each.group is None for each in found] == [at == 1 for at in range(len(groups))]


def test_a_hole_gives_what_its_records_prove(image: Files) -> None:
    segment = one_of(image)
    chosen = next(each for each in scan(segment) if each.rows)
    data = bytearray(image[segment.file.name])
    data[chosen.start + 40] ^= 1
    image[segment.file.name] = bytes(data)
    found = next(e for e in scan(named(look(image), segment.file.name)) if e.group is None)
    assert found.rows == chosen.rows


def test_a_cut_segment_is_read_up_to_the_cut(image: Files) -> None:
    segment = one_of(image)
    groups = list(scan(segment))
    image[segment.file.name] = image[segment.file.name][: groups[2].start + 40]
    found = list(scan(named(look(image), segment.file.name)))
    assert [e.group is not None for e in found[:2]] == [True, True]
    assert not any(each.rows for each in found[2:])


def test_a_record_is_read_again_by_its_position(image: Files) -> None:
    segment = one_of(image)
    position, rec = next(each for each in scan(segment) if each.rows).rows[0]
    assert salvage.read_row(segment, position, len(rec)) == rec
    assert salvage.read_row(segment, position + 8, len(rec)) is None


@pytest.mark.parametrize("size", [0, 1, 71, 511, 512, 513, 4095])
def test_a_segment_of_any_size_is_looked_at(image: Files, size: int) -> None:
    name = one_of(image).file.name
    image[name] = image[name][:size]
    found = look(image)
    for segment in found.places().values():
        assert all(each.end <= segment.file.size + group.EDGE for each in scan(segment))
    found.close()


def test_stray_groups_of_another_place_do_not_rename_a_segment(image: Files) -> None:
    before = look(image)
    places = before.places()
    low, high = places[min(places)], places[max(places)]
    data = bytearray(image[low.file.name])
    stray = image[high.file.name]
    data[512:1024] = stray[512:1024]
    image[low.file.name] = bytes(data)
    after = look(image)
    assert {n: s.file.name for n, s in after.places().items()} == {
        n: s.file.name for n, s in places.items()
    }
    assert named(after, low.file.name).sequence == low.sequence


def test_segments_whose_first_groups_changed_places_keep_their_own(image: Files) -> None:
    places = look(image).places()
    one, two = (places[number].file.name for number in sorted(places)[:2])
    before = {name: image[name] for name in (one, two)}
    for name, other in ((one, two), (two, one)):
        image[name] = before[name][:512] + before[other][512:1024] + before[name][1024:]
    after = look(image).places()
    assert {n: s.file.name for n, s in after.items()} == {n: s.file.name for n, s in places.items()}
    rows = [
        row for name in (one, two) for each in scan(named(look(image), name)) for row in each.rows
    ]
    assert rows
