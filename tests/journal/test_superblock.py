"""The superblock: two slots in turn, the newest valid one counts."""

import msgspec
import pytest

from penstock.journal.memory import MemoryDisk, Verb
from penstock.journal.segment import FORMAT_MAJOR
from penstock.journal.superblock import NAME, SLOT_BYTES, State, Superblock, decode_slots
from penstock.vocabulary.errors import StoreDamaged, StoreTooNew
from tests.journal.versions import with_version

STORE = b"store-id-16-byte"
FULL = State(STORE, 0, 123 << 32 | 512, 7, 5, True)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(record=True)


def spoil(disk: MemoryDisk, slot: int) -> None:
    file = disk.open(NAME)
    at = slot * SLOT_BYTES + 50
    file.pwrite(at, bytes([file.pread(at, 1)[0] ^ 1]))


def test_a_new_store_has_a_superblock_under_its_final_name_only(disk: MemoryDisk) -> None:
    block = Superblock.create(disk, STORE)
    assert disk.names() == [NAME]
    assert block.state.store_id == STORE


def test_a_new_superblock_is_whole_before_it_gets_its_name(disk: MemoryDisk) -> None:
    Superblock.create(disk, STORE)
    verbs = [op.verb for op in disk.trace]
    assert verbs[-4:] == [Verb.WRITE, Verb.SYNC, Verb.RENAME, Verb.SYNC_NAMES]


def test_an_interrupted_beginning_can_be_begun_again(disk: MemoryDisk) -> None:
    disk.create(NAME + ".tmp", 10).pwrite(0, b"rubbish")
    Superblock.create(disk, STORE)
    assert Superblock.open(disk).state.store_id == STORE


def test_everything_comes_back(disk: MemoryDisk) -> None:
    Superblock.create(disk, STORE).write(FULL)
    found = Superblock.open(disk).state
    assert msgspec.structs.replace(found, slot_generation=0) == FULL


def test_slots_are_written_in_turn_and_never_both(disk: MemoryDisk) -> None:
    block = Superblock.create(disk, STORE)
    del disk.trace[:]
    for number in range(4):
        block.write(State(STORE, durable_upto=number))
    writes = [op.offset for op in disk.trace if op.verb is Verb.WRITE]
    assert writes == [0, SLOT_BYTES, 0, SLOT_BYTES]
    assert [op.verb for op in disk.trace] == [Verb.WRITE, Verb.SYNC] * 4


def test_the_newest_slot_counts(disk: MemoryDisk) -> None:
    block = Superblock.create(disk, STORE)
    for number in range(1, 6):
        block.write(State(STORE, durable_upto=number))
        assert Superblock.open(disk).state.durable_upto == number


def test_the_turn_goes_on_after_opening(disk: MemoryDisk) -> None:
    block = Superblock.create(disk, STORE)
    block.write(State(STORE, durable_upto=1))
    again = Superblock.open(disk)
    again.write(State(STORE, durable_upto=2))
    slots = decode_slots(disk.open(NAME).pread(0, 2 * SLOT_BYTES))
    assert [slot.durable_upto for slot in slots if slot is not None] == [1, 2]


def test_a_damaged_slot_leaves_the_one_before(disk: MemoryDisk) -> None:
    block = Superblock.create(disk, STORE)
    block.write(State(STORE, durable_upto=1))
    block.write(State(STORE, durable_upto=2))
    spoil(disk, block.state.slot_generation % 2)
    assert Superblock.open(disk).state.durable_upto == 1


def test_a_damaged_older_slot_does_not_matter(disk: MemoryDisk) -> None:
    block = Superblock.create(disk, STORE)
    block.write(State(STORE, durable_upto=1))
    block.write(State(STORE, durable_upto=2))
    spoil(disk, (block.state.slot_generation + 1) % 2)
    assert Superblock.open(disk).state.durable_upto == 2


def test_two_damaged_slots_are_refused_with_the_way_out(disk: MemoryDisk) -> None:
    block = Superblock.create(disk, STORE)
    block.write(State(STORE))
    spoil(disk, 0)
    spoil(disk, 1)
    with pytest.raises(StoreDamaged, match="penstock salvage"):
        Superblock.open(disk)


def test_an_empty_file_is_refused(disk: MemoryDisk) -> None:
    disk.create(NAME, 0)
    with pytest.raises(StoreDamaged):
        Superblock.open(disk)


def test_a_newer_format_is_refused_even_beside_an_older_slot(disk: MemoryDisk) -> None:
    block = Superblock.create(disk, STORE)
    block.write(State(STORE))
    file = disk.open(NAME)
    slot = with_version(file.pread(0, SLOT_BYTES), major=FORMAT_MAJOR + 1, sum_at=72)
    file.pwrite(0, slot)
    with pytest.raises(StoreTooNew):
        Superblock.open(disk)


def test_a_write_that_fails_does_not_change_what_is_known(disk: MemoryDisk) -> None:
    block = Superblock.create(disk, STORE)

    def fail(_op: object) -> None:
        raise OSError(5, "no")

    disk.on_operation = fail
    with pytest.raises(OSError, match="no"):
        block.write(State(STORE, durable_upto=9))
    assert block.state.durable_upto == 0
