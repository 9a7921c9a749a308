"""Spare segments: made ahead, taken, given back, dropped when they are too small."""

import msgspec
import pytest

from penstock.journal.memory import MemoryDisk
from penstock.journal.segment import SEGMENT_PREFIX
from penstock.journal.spares import Spares
from tests.journal.store import SETTINGS

GROWING = msgspec.structs.replace(SETTINGS, segment_bytes_max=4 * SETTINGS.segment_bytes_min)
SMALL = SETTINGS.segment_bytes_min


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def spares(disk: MemoryDisk) -> Spares:
    return Spares(disk, GROWING)


def names(disk: MemoryDisk) -> list[str]:
    return sorted(name for name in disk.names() if name.startswith(SEGMENT_PREFIX))


def test_a_spare_is_taken_when_it_is_large_enough_and_a_file_is_made_otherwise(
    spares: Spares,
) -> None:
    spares.prepare(1)
    (ready,) = spares.files
    assert spares.take(2 * SMALL) is not ready
    assert spares.take(SMALL) is ready
    assert spares.files == []


def test_segments_grow_up_to_the_limit_and_go_on_where_they_were(spares: Spares) -> None:
    for wanted in (2, 4, 4):
        spares.grow()
        assert spares.size == wanted * SMALL
    spares.resume(SMALL)
    assert spares.size == 4 * SMALL
    spares.resume(100 * SMALL)
    assert spares.size == 4 * SMALL


def test_spares_made_before_segments_grew_are_removed(disk: MemoryDisk, spares: Spares) -> None:
    spares.prepare(2)
    spares.prepare(2)
    assert (spares.bytes, len(names(disk))) == (2 * SMALL, 2)
    spares.grow()
    spares.prepare(1)
    assert [file.size for file in spares.files] == [2 * SMALL]
    assert names(disk) == [spares.files[0].name]


def test_a_file_given_back_takes_the_place_of_one_that_is_too_small(
    disk: MemoryDisk, spares: Spares
) -> None:
    spares.prepare(2)
    spares.prepare(2)
    large = spares.take(2 * SMALL)
    spares.grow()
    assert spares.give(large)
    assert spares.files == [large]
    assert names(disk) == [large.name]


def test_a_file_too_many_or_too_small_is_removed(disk: MemoryDisk, spares: Spares) -> None:
    taken = [spares.take(SMALL) for _ in range(3)]
    assert [spares.give(file) for file in taken] == [True, True, False]
    assert names(disk) == sorted(file.name for file in taken[:2])
    small = spares.take(SMALL)
    spares.grow()
    assert not spares.give(small)
    assert small.name not in names(disk)
