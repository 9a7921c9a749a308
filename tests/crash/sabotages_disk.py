"""Planted bugs in what becomes durable when, and in what a failing disk leads to."""

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from penstock.broker import engine as engine_module
from penstock.broker.administration import Administration
from penstock.broker.engine import Engine
from penstock.journal.disk import RealFile
from penstock.journal.journal import Journal
from penstock.journal.memory import MemoryDisk
from penstock.vocabulary.records import Published
from tests.crash import stages
from tests.crash import workload_keeping as keeping
from tests.crash import workload_publishing as publishing
from tests.crash import workload_settling as settling
from tests.crash.sabotage import Planting, patch, sabotage, without_sync_in

# -- durability -----------------------------------------------------------------------------------


@sabotage("M01", "answers before the sync", stages.crash(publishing.first_publishes))
def answer_before_sync() -> Planting:
    commit_once, sync = Engine.commit_once, Journal.sync

    def early(self: Engine) -> bool:
        late: list[Journal] = []

        def pretend(journal: Journal) -> None:
            if journal._staged is None or journal.active is None:
                sync(journal)
                return
            journal.write()
            journal.durable_upto = journal.index.log_end = journal.log_end
            late.append(journal)

        with patch(Journal, "sync", pretend):
            done = commit_once(self)
        for journal in late:
            assert journal.active is not None
            journal.active.file.sync()
        return done

    return patch(Engine, "commit_once", early)


@sabotage("M01b", "no sync ever reaches the disk", stages.crash(publishing.first_publishes))
def no_sync_at_all() -> Planting:
    return patch(MemoryDisk, "sync", lambda *_: None)


@sabotage("M02", "a segment is sealed without a sync", stages.crash(keeping.rolls))
def seal_unsynced() -> Planting:
    return without_sync_in("journal.seal")


@sabotage("M03", "a failed sync is tried again", stages.refuse(publishing.first_publishes))
def sync_again() -> Planting:
    original = MemoryDisk.sync

    def stubborn(self: MemoryDisk, *arguments: Any) -> None:
        try:
            original(self, *arguments)
        except OSError:
            original(self, *arguments)

    return patch(MemoryDisk, "sync", stubborn)


@sabotage("M04", "a snapshot is renamed unsynced", stages.crash(keeping.snapshots_free_segments))
def snapshot_unsynced() -> Planting:
    return without_sync_in("snapshot.write")


@sabotage("M05", "names are never synced", stages.crash(keeping.rolls))
def names_unsynced() -> Planting:
    return patch(MemoryDisk, "sync_names", lambda _: None)


@sabotage(
    "M07",
    "a new segment's header is not synced",
    stages.crash(keeping.rolls, keeping.recycled_segment),
)
def header_unsynced() -> Planting:
    return without_sync_in("journal._begin_segment")


@sabotage("M16", "messages are handed out before they are durable", stages.crash(keeping.rolls))
def deliver_early() -> Planting:
    def every_publish(_state: Any, records: Any, at: int, upto: int) -> set[int]:
        return {i for i in range(at, upto) if type(records[i]) is Published}

    return patch(engine_module, "early_publishes", every_publish)


@sabotage("M28", "an administrative change is answered before it is durable",
          stages.crash(publishing.several_publishers))  # fmt: skip
def change_unconfirmed() -> Planting:
    def hasty(self: Any, decide: Callable[[], Any]) -> None:
        with self.engine.lock:
            record = decide()
            if record is not None:
                self.engine.submit(record, None)

    return patch(Administration, "_run", hasty)


# -- failures of the disk -------------------------------------------------------------------------


@sabotage("M35", "a short write is taken for a whole one", stages.short_writes)
def short_write() -> Planting:
    def once(self: RealFile, offset: int, data: bytes) -> None:
        os.pwrite(self._descriptor, data, offset)
        self.size = max(self.size, offset + len(data))

    stack = ExitStack()
    stack.enter_context(patch(RealFile, "pwrite", once))
    stack.enter_context(patch(RealFile, "pwrite_synced", once))
    return stack


@sabotage("M36", "a write the disk refused is answered", stages.refuse(publishing.first_publishes))
def refused_write() -> Planting:
    original = MemoryDisk.write

    def careless(self: MemoryDisk, *arguments: Any) -> None:
        with suppress(OSError):
            original(self, *arguments)

    return patch(MemoryDisk, "write", careless)


@sabotage("M36b", "waiters of a failed group are told all is well", stages.refuse(keeping.rolls))
def failure_hidden() -> Planting:
    original = Engine._fail

    def smooth(self: Engine, waiters: Any, error: Any, letters: Any) -> None:
        for waiter in [each for each in waiters if each is not None]:
            letters.setdefault(waiter[0], []).append((waiter[1], waiter[2]))
        original(self, [], error, letters)

    return patch(Engine, "_fail", smooth)


@sabotage("M36c", "a flush after the failure succeeds", stages.refuse(settling.acks_in_any_order))
def flush_after_failure() -> Planting:
    original = Engine.commit_once

    def forgetful(self: Engine) -> bool:
        failed, self.journal.failed = self.journal.failed, None
        done = original(self)
        self.journal.failed = self.journal.failed or failed
        return done

    return patch(Engine, "commit_once", forgetful)
