"""The superblock: a small second opinion, outside the log, on how far the log was durable.

One file, two slots at 0 and 4096, written in turn, never both:

    0  8s magic "PENSUPER"   8 u16 major   10 u16 minor   12 u32 required features
    16 u32 flags (1 = clean stop)  20 u32 reserved   24 16s store id
    40 u64 generation of this slot  48 u64 durable_upto
    56 u64 snapshot generation      64 u64 broker generation
    72 u64 checksum over the bytes before it
"""

from struct import Struct
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from penstock.journal.disk import Disk, File
from penstock.journal.segment import FORMAT_MAJOR, FORMAT_MINOR, check_version
from penstock.vocabulary.errors import StoreDamaged

NAME: Final = "superblock"
SLOT_BYTES: Final = 4096
_MAGIC: Final = b"PENSUPER"
_LAYOUT: Final = Struct("<8sHHIII16sQQQQ")
_SUM: Final = Struct("<Q")


class State(msgspec.Struct, frozen=True):
    """What the superblock says."""

    store_id: bytes
    slot_generation: int = 0
    durable_upto: int = 0
    snapshot_generation: int = 0
    broker_generation: int = 0
    is_clean: bool = False


class Superblock:
    """The open superblock file; `write` alternates the slots."""

    def __init__(self, file: File, state: State) -> None:
        self._file = file
        self.state = state

    @classmethod
    def create(cls, disk: Disk, store_id: bytes) -> "Superblock":
        """Begins a store: after this returns the folder is one."""
        temporary = NAME + ".tmp"
        if temporary in disk.names():
            file = disk.open(temporary)
        else:
            file = disk.create(temporary, 2 * SLOT_BYTES)
        block = cls(file, State(store_id))
        block.write(State(store_id))
        disk.rename(temporary, NAME)
        disk.sync_names()
        return block

    @classmethod
    def open(cls, disk: Disk) -> "Superblock":
        """The newest valid slot. Raises StoreDamaged, StoreTooNew."""
        file = disk.open(NAME)
        found = decode_slots(file.pread(0, 2 * SLOT_BYTES))
        valid = [slot for slot in found if slot is not None]
        if not valid:
            raise StoreDamaged(
                "both copies in the file 'superblock' are unreadable; the messages are still "
                "there: `penstock salvage DIR OUT` copies them to a new store"
            )
        return cls(file, max(valid, key=lambda slot: slot.slot_generation))

    def write(self, state: State) -> None:
        """Makes `state` the superblock; its slot generation is chosen here."""
        generation = self.state.slot_generation + 1
        state = msgspec.structs.replace(state, slot_generation=generation)
        self._file.pwrite(generation % 2 * SLOT_BYTES, encode_slot(state))
        self._file.sync()
        self.state = state

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def encode_slot(state: State) -> bytes:
    """One copy of the superblock."""
    head = _LAYOUT.pack(
        _MAGIC, FORMAT_MAJOR, FORMAT_MINOR, 0, int(state.is_clean), 0, state.store_id,
        state.slot_generation, state.durable_upto, state.snapshot_generation,
        state.broker_generation,
    )  # fmt: skip
    return (head + _SUM.pack(xxh3_64_intdigest(head))).ljust(512, b"\0")


def decode_slots(data: bytes) -> list[State | None]:
    """Both copies in the bytes of the file, None where one is unreadable. Raises StoreTooNew."""
    return [_decode(data[at : at + SLOT_BYTES]) for at in (0, SLOT_BYTES)]


def _decode(data: bytes) -> State | None:
    if len(data) < _LAYOUT.size + _SUM.size:
        return None
    magic, major, _, required, flags, _, *rest = _LAYOUT.unpack_from(data)
    if magic != _MAGIC:
        return None
    if _SUM.unpack_from(data, _LAYOUT.size)[0] != xxh3_64_intdigest(data[: _LAYOUT.size]):
        return None
    check_version(major, required)
    store_id, generation, durable_upto, snapshot_generation, broker_generation = rest
    return State(
        store_id, generation, durable_upto, snapshot_generation, broker_generation, bool(flags & 1)
    )
