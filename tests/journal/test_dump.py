"""Dump: every record as a row, whole or rescued, and what is unreadable between them."""

import json

import pytest

from penstock.journal import salvage
from penstock.journal.dump import Row, dump
from penstock.journal.memory import MemoryDisk
from penstock.vocabulary.errors import NotAStore
from tests.crash.damage_store import Files, Stage, build


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    return {stage.name: stage for stage in build(6)}


def rows(image: Files, *, bodies: bool = False) -> list[Row]:
    disk = MemoryDisk.from_image(image)
    found = list(dump(disk, bodies=bodies))
    assert disk.image() == image, "dump wrote"
    return found


def records(found: list[Row]) -> list[Row]:
    return [row for row in found if row["row"] == "record"]


def place(row: Row) -> tuple[int, int]:
    sequence, _, byte = row["position"].partition(":")
    return int(sequence), int(byte)


def test_every_row_is_json(stages: dict[str, Stage]) -> None:
    for stage in stages.values():
        for row in rows(stage.image, bodies=True):
            assert json.loads(json.dumps(row)).keys() == row.keys()


def test_every_record_comes_once_and_in_log_order(stages: dict[str, Stage]) -> None:
    found = records(rows(stages["killed"].image))
    assert [place(row) for row in found] == sorted({place(row) for row in found})
    numbers = [row["number"] for row in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert {row["checksum"] for row in found} == {"ok"}


def test_the_small_files_come_first(stages: dict[str, Stage]) -> None:
    found = [row["row"] for row in rows(stages["killed"].image)]
    assert found[:4] == ["superblock", "superblock", "snapshot", "snapshot"]
    assert found.index("record") > max(at for at, row in enumerate(found) if row == "segment")


def test_a_record_shows_what_it_says(stages: dict[str, Stage]) -> None:
    found = records(rows(stages["closed"].image))
    created = next(row for row in found if row["kind"] == "TopicCreated")
    assert created["name"] in {"late", "gone"}
    published = next(row for row in found if row["kind"] == "Published")
    assert {"topic_id", "partition", "base", "count", "sequence", "batch_bytes"} <= published.keys()
    assert "messages" not in published
    settled = next(row for row in found if row["kind"] == "Settled")
    assert settled["outcome"] == "acked"


def test_a_unit_shows_its_parts(stages: dict[str, Stage]) -> None:
    found = records(rows(stages["killed"].image))
    unit = next(row for row in found if row["kind"] == "Unit")
    assert [part["kind"] for part in unit["records"]] == ["TopicCreated", "Published", "Settled"]


def test_bodies_are_shown_when_asked_for(stages: dict[str, Stage]) -> None:
    found = records(rows(stages["killed"].image, bodies=True))
    late = next(row for row in found if row["kind"] == "Published" and row["count"] == 3)
    assert [message["body"] for message in late["messages"]] == ["one", "two", "three"]
    assert [message["offset"] for message in late["messages"]] == [0, 1, 2]
    copied = next(row for row in found if row["kind"] == "Copied")
    assert copied["count"] == len(copied["messages"]) == len(copied["offsets"])
    orders = next(m for row in found for m in row.get("messages", ()) if m["key"] == "k0")
    assert orders["body"].keys() == {"base64"}


def test_damage_is_a_row_of_its_own(stages: dict[str, Stage]) -> None:
    image = dict(stages["killed"].image)
    segment = next(iter(salvage.survey(MemoryDisk.from_image(image)).places().values()))
    stretch = next(iter(salvage.scan(segment)))
    data = bytearray(image[segment.file.name])
    data[stretch.start + 20] ^= 1
    image[segment.file.name] = bytes(data)
    found = rows(image)
    bad = [row for row in found if row["row"] == "unreadable"]
    assert [(row["position"], row["checksum"]) for row in bad] == [
        (f"{segment.sequence}:{stretch.start}", "bad")
    ]
    rescued = [row for row in records(found) if row["checksum"] == "rescued"]
    assert len(rescued) == len(stretch.rows) == bad[0]["rescued"]
    assert len(records(found)) == len(records(rows(stages["killed"].image)))


def test_unreadable_small_files_are_said_to_be(stages: dict[str, Stage]) -> None:
    image = dict(stages["killed"].image)
    name = next(name for name in image if name.startswith("snapshot-"))
    image[name] = image[name][:-1]
    image["superblock"] = bytes(4096) + image["superblock"][4096:]
    found = rows(image)
    states = {(row["row"], row.get("slot"), row.get("file")): row.get("state") for row in found}
    assert states["superblock", 0, None] == "unreadable"
    assert states["snapshot", None, name] == "unreadable"


def test_an_empty_folder_is_not_a_store() -> None:
    with pytest.raises(NotAStore):
        list(dump(MemoryDisk()))
