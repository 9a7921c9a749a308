"""Snapshots: written whole or not at all, read back whole or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from penstock.journal import snapshot
from penstock.journal.memory import MemoryDisk, Verb
from penstock.journal.segment import FORMAT_MAJOR
from penstock.journal.snapshot import Meta, SegmentRow
from penstock.vocabulary.errors import StorageError, StoreTooNew

STORE = b"store-id-16-byte"
META = Meta(17, [SegmentRow(3, "segment-00000001", 5, 4096, 1024, 0, False)])


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(record=True)


def write(disk: MemoryDisk, pieces: list[bytes], generation: int = 4) -> int:
    return snapshot.write(disk, STORE, generation, 3 << 32 | 512, META, iter(pieces))


def content(disk: MemoryDisk, generation: int = 4) -> bytes:
    file = disk.open(snapshot.name_of(generation))
    return file.pread(0, file.size)


@given(st.lists(st.binary(max_size=50), max_size=6))
def test_a_snapshot_comes_back_as_it_was(pieces: list[bytes]) -> None:
    disk = MemoryDisk()
    size = write(disk, pieces)
    found = snapshot.read(disk, 4, STORE)
    assert (found.generation, found.start, found.meta) == (4, 3 << 32 | 512, META)
    assert found.pieces == pieces
    assert size == len(content(disk))


def test_a_large_snapshot_is_written_in_parts_and_comes_back(disk: MemoryDisk) -> None:
    pieces = [bytes([n]) * 200_000 for n in range(5)]
    write(disk, pieces)
    assert [op.verb for op in disk.trace].count(Verb.WRITE) > 2
    assert snapshot.read(disk, 4, STORE).pieces == pieces


def test_a_snapshot_is_whole_before_it_gets_its_name(disk: MemoryDisk) -> None:
    write(disk, [b"x"])
    verbs = [op.verb for op in disk.trace]
    assert verbs == [Verb.CREATE, Verb.WRITE, Verb.SYNC, Verb.RENAME, Verb.SYNC_NAMES]


def test_an_interrupted_snapshot_does_not_stand_in_the_way(disk: MemoryDisk) -> None:
    disk.create(snapshot.name_of(4) + ".tmp", 9)
    write(disk, [b"x"])
    assert snapshot.read(disk, 4, STORE).pieces == [b"x"]


def test_only_finished_snapshots_are_listed_newest_first(disk: MemoryDisk) -> None:
    for generation in (2, 11, 9):
        write(disk, [], generation)
    disk.create(snapshot.name_of(12) + ".tmp", 0)
    disk.create("snapshot-old", 0)
    assert snapshot.generations(disk) == [11, 9, 2]


@given(st.data())
def test_one_flipped_bit_anywhere_is_refused(data: st.DataObject) -> None:
    disk = MemoryDisk()
    write(disk, [b"first", b"second"])
    whole = bytearray(content(disk))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    with pytest.raises(StorageError):
        snapshot.parse(bytes(whole), 4, STORE)


def test_a_snapshot_cut_anywhere_is_refused(disk: MemoryDisk) -> None:
    write(disk, [b"first", b"second"])
    whole = content(disk)
    for length in range(len(whole)):
        with pytest.raises(StorageError):
            snapshot.parse(whole[:length], 4, STORE)


def test_a_snapshot_of_another_store_or_generation_is_refused(disk: MemoryDisk) -> None:
    write(disk, [])
    whole = content(disk)
    with pytest.raises(StorageError, match="another store"):
        snapshot.parse(whole, 4, b"x" * 16)
    with pytest.raises(StorageError, match="generation"):
        snapshot.parse(whole, 5, STORE)
    assert snapshot.parse(whole, 4, None).generation == 4


def test_a_newer_format_is_refused_by_name(disk: MemoryDisk) -> None:
    write(disk, [])
    body = bytearray(content(disk)[:-8])
    body[8:10] = (FORMAT_MAJOR + 1).to_bytes(2, "little")
    whole = bytes(body) + xxh3_64_intdigest(bytes(body)).to_bytes(8, "little")
    with pytest.raises(StoreTooNew):
        snapshot.parse(whole, 4, STORE)


def test_a_whole_snapshot_tells_its_store_and_a_broken_one_does_not(disk: MemoryDisk) -> None:
    write(disk, [b"x"])
    whole = content(disk)
    assert snapshot.owner(whole) == STORE
    assert snapshot.owner(whole[:-1]) is None
    assert snapshot.owner(b"") is None
