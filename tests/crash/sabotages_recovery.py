"""Planted bugs in recovery, segments and snapshots."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import xxhash

from penstock.broker import engine as engine_module
from penstock.broker import rebuild
from penstock.broker.broker import Broker
from penstock.broker.keeper import Keeper
from penstock.broker.rebuild import Rebuild
from penstock.journal import group
from penstock.journal.index import Index
from penstock.journal.journal import Journal
from penstock.journal.memory import MemoryDisk, MemoryFile
from penstock.journal.recovery import _Recovery
from penstock.vocabulary.records import Unit
from tests.crash import stages
from tests.crash import workload_changing as changing
from tests.crash import workload_keeping as keeping
from tests.crash import workload_publishing as publishing
from tests.crash import workload_settling as settling
from tests.crash import workload_snapshots as snapshots
from tests.crash.sabotage import Planting, after, patch, sabotage, without_sync_in

# -- recovery -------------------------------------------------------------------------------------


@sabotage("M06", "damage is taken for a torn tail", stages.damage)
def cut_at_damage() -> Planting:
    return patch(_Recovery, "_durable_after", lambda *_: 0)


@sabotage("M06b", "a torn tail is taken for damage, its late records are applied",
          stages.crash(publishing.only_a_later_record_survives))  # fmt: skip
def late_records() -> Planting:
    return patch(_Recovery, "_durable_after", lambda *_: 1 << 62)


@sabotage("M06c", "a torn tail is left in place", stages.torn_then_damaged)
def tail_left() -> Planting:
    def lazy(self: _Recovery, segment: Any, _data: bytes, at: int) -> None:
        segment.end = at
        self.journal.index.log_end = segment.base | at

    return patch(_Recovery, "_cut_tail", lazy)


@sabotage("M08", "a record's checksum does not know its place", stages.spliced)
@contextmanager
def placeless_checksum() -> Iterator[None]:
    build, digest = group.build, xxhash.xxh3_64_intdigest

    def placeless(
        room: Any, records: Any, position: int, durable: int, salt: int, first: int
    ) -> Any:
        data, places = build(room, records, position, durable, salt, first)
        buffer = bytearray(data)
        for record, place in zip(records, places, strict=True):
            at = place - position
            whole = record if isinstance(record, bytes) else b"".join(record)
            buffer[at : at + 8] = digest(whole, salt).to_bytes(8, "little")
        length = int.from_bytes(buffer[8:12], "little")
        seed = digest(bytes(buffer[:48]), salt)
        buffer[48:56] = digest(bytes(buffer[56:length]), seed).to_bytes(8, "little")
        return memoryview(buffer), places

    def read(data: Any, at: int, _position: int, salt: int) -> bytes | None:
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        record = bytes(data[at + 8 : at + 8 + length])
        known = int.from_bytes(data[at : at + 8], "little")
        return record if length >= 12 and digest(record, salt) == known else None

    with patch(group, "build", placeless), patch(group, "read_record", read):
        yield


@sabotage("M09", "a group's checksum does not cover its header", stages.miscounted)
def headless_checksum() -> Planting:
    digest = xxhash.xxh3_64_intdigest

    def headless(data: Any, seed: int = 0) -> int:
        return seed if len(data) == group._HEAD.size else digest(data, seed)

    return patch(group, "xxh3_64_intdigest", headless)


@sabotage("M18", "the mark of a clean stop is never removed", stages.crash(changing.written_topic))
def clean_for_ever() -> Planting:
    mark = Journal.mark

    def sticky(self: Journal, *, is_clean: bool = False, **options: Any) -> None:
        mark(self, is_clean=is_clean or self.block.state.is_clean, **options)

    def believe(_: None, self: _Recovery) -> None:
        self.report.is_clean = self.state.is_clean

    stack = ExitStack()
    stack.enter_context(patch(Journal, "mark", sticky))
    stack.enter_context(after(_Recovery, "_finish", believe))
    return stack


@sabotage("M19", "recovery removes files it does not need", stages.crash(keeping.recycled_segment))
def tidy_recovery() -> Planting:
    def remove(_: None, self: _Recovery) -> None:
        for file in self.journal.spares.files:
            self.journal.disk.unlink(file.name)
        self.journal.spares.files.clear()

    return after(_Recovery, "_finish", remove)


@sabotage("M37", "what recovery found is served before it is synced",
          stages.crash(settling.acks_in_any_order))  # fmt: skip
def recovery_unsynced() -> Planting:
    return without_sync_in("recovery._finish")


@sabotage("M38", "the superblock has one slot", stages.crash(keeping.rolls))
def one_slot() -> Planting:
    original = MemoryFile.pwrite

    def first_slot(self: MemoryFile, offset: int, data: bytes) -> None:
        original(self, 0 if self.name.startswith("superblock") else offset, data)

    return patch(MemoryFile, "pwrite", first_slot)


@sabotage("M39", "a second broker may open the store", stages.opened_twice)
def unlocked() -> Planting:
    stack = ExitStack()
    stack.enter_context(patch(MemoryDisk, "lock", lambda _: None))
    stack.enter_context(patch(fcntl, "flock", lambda *_: None))
    return stack


@sabotage("M41", "of a unit only the first record is replayed", stages.crash(settling.dead_twice))
def half_units() -> Planting:
    original = Rebuild.apply

    def first_only(self: Rebuild, record: Any, position: int) -> None:
        original(self, record.records[0] if isinstance(record, Unit) else record, position)

    return patch(Rebuild, "apply", first_only)


# -- segments and snapshots -----------------------------------------------------------------------


@sabotage(
    "M15", "offsets are used again after a tail was lost", stages.crash(changing.written_topic)
)
def offsets_again() -> Planting:
    return patch(Broker, "_skips", lambda *_: [])


@sabotage(
    "M17", "a snapshot starts at the end of the log", stages.crash(snapshots.snapshot_before_apply)
)
def snapshot_too_late() -> Planting:
    original = Journal.begin_snapshot

    def late(self: Journal, _start: int, _records: int) -> Any:
        return original(self, self.log_end, self.records)

    return patch(Journal, "begin_snapshot", late)


@sabotage("M17b", "a snapshot does not wait for what is not synced",
          stages.crash(snapshots.snapshot_inside_a_commit))  # fmt: skip
def snapshot_too_early() -> Planting:
    class Open(nullcontext[None]):
        def locked(self) -> bool:
            return False

    return patch(engine_module, "Lock", Open)


@sabotage(
    "M17c", "a topic forgets how far a snapshot has seen it", stages.crash(snapshots.fuzzy_snapshot)
)
def seen_forgotten() -> Planting:
    def forget(topic: Any, *_: Any) -> Any:
        topic.applied = 0
        return topic

    return after(rebuild, "restore_topic", forget)


@sabotage(
    "M24", "a segment is used again after one snapshot", stages.crash(keeping.freed_step_by_step)
)
def free_too_early() -> Planting:
    original = Journal.free_segments

    def eager(self: Journal) -> int:
        snapshots, self.snapshots = self.snapshots, [*self.snapshots[:1], *self.snapshots[:1]]
        try:
            return original(self)
        finally:
            self.snapshots = snapshots

    return patch(Journal, "free_segments", eager)


@sabotage("M29", "a snapshot leaves out where messages lie",
          stages.crash(keeping.snapshots_free_segments))  # fmt: skip
def spans_dropped() -> Planting:
    return patch(Index, "state", lambda *_: [])


@sabotage("M30", "a recycled segment keeps its salt", stages.crash(keeping.recycled_segment))
def same_salt() -> Planting:
    original = Journal._begin_segment

    def salted(self: Journal, need: int) -> Any:
        with patch(os, "urandom", lambda length: b"\x07" * length):
            return original(self, need)

    return patch(Journal, "_begin_segment", salted)


@sabotage("M33", "compaction drops what it should copy", stages.crash(keeping.compaction))
def copies_dropped() -> Planting:
    return patch(Keeper, "_write_copy", lambda *_: None)
