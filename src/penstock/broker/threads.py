"""The broker's threads: thin loops around the engine, the keeper and the timer.

commit   writes, syncs, applies, answers       worker   reads the disk for slow consumers
timer    leases, back-off, retention           keeper   snapshots, compaction
spares   zeroes segments ahead of use
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic
from typing import Final

from penstock.broker.engine import Engine
from penstock.broker.keeper import Keeper
from penstock.vocabulary.errors import PenstockError
from penstock.vocabulary.limits import ACK_DELAY_S_MAX

IDLE_MARK_S: Final = 0.05
"""The superblock is written after this much idleness."""
KEEPER_S: Final = 0.25
SPARE_S: Final = 0.05
SPARE_FAST_ROUNDS: Final = 20
"""Rounds after a roll in which two spare segments are kept ready."""

log = logging.getLogger("penstock.broker")


class Bell:
    """Wakes one sleeping thread; rings while nobody sleeps are kept, once."""

    __slots__ = ("_lock", "_rung")

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()
        self._rung = False

    def ring(self) -> None:
        """Wakes the sleeper."""
        if not self._rung:
            self._rung = True
            with suppress(RuntimeError):
                self._lock.release()

    def sleep(self, timeout_s: float) -> bool:
        """Waits for a ring; False at time-out."""
        rung = self._lock.acquire(timeout=timeout_s)
        self._rung = False
        return rung


class Threads:
    """Starts and stops the loops."""

    def __init__(self, engine: Engine, keeper: Keeper, tick: Callable[[], int] | None) -> None:
        self._engine = engine
        self._keeper = keeper
        self._tick = tick
        self._is_stopping = False
        self._is_last = False
        """Only the commit loop is left."""
        self._commit_bell, self._worker_bell = Bell(), Bell()
        self._timer_bell, self._keeper_bell = Bell(), Bell()
        self._spare_bell = Bell()
        self._bells = (
            self._commit_bell,
            self._worker_bell,
            self._timer_bell,
            self._keeper_bell,
            self._spare_bell,
        )
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Begins serving."""
        engine = self._engine
        engine.wake_commit = self._commit_bell.ring
        engine.wake_worker = self._worker_bell.ring
        engine.wake_timer = self._timer_bell.ring
        engine.is_threaded = True
        loops: list[tuple[str, Callable[[], None]]] = [
            ("commit", self._commit),
            ("worker", self._work),
            ("keeper", self._keep),
            ("spares", self._spare),
        ]
        if self._tick is not None:
            loops.append(("timer", self._time))
        for name, loop in loops:
            thread = Thread(target=loop, name=f"penstock-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Ends the loops; the commit loop goes last, because the others may wait for it."""
        self._is_stopping = True
        for thread in reversed(self._threads):
            self._is_last = thread is self._threads[0]
            for bell in self._bells:
                bell.ring()
            thread.join()

    def _commit(self) -> None:
        engine, journal = self._engine, self._engine.journal
        while True:
            if not engine.has_pending:
                if self._is_last:
                    return
                if not self._commit_bell.sleep(IDLE_MARK_S) and not journal.is_marked:
                    with engine.committing:
                        self._guard(journal.mark)
                if not engine.has_pending:
                    continue
            if not engine.is_urgent:
                self._linger()
            with engine.committing:
                self._guard(engine.commit_once)

    def _linger(self) -> None:
        """Acks wait a little for company, unless something urgent comes."""
        until = monotonic() + ACK_DELAY_S_MAX
        while not self._engine.is_urgent and not self._is_stopping:
            left = until - monotonic()
            if left <= 0:
                return
            self._commit_bell.sleep(left)

    def _work(self) -> None:
        engine = self._engine
        while not self._is_stopping:
            if not self._guard(engine.run_jobs) and not (
                engine.doomed and self._guard(self._keeper.move_doomed)
            ):
                self._worker_bell.sleep(1.0)

    def _time(self) -> None:
        assert self._tick is not None
        while not self._is_stopping:
            wait_ms = self._guard(self._tick)
            self._timer_bell.sleep((wait_ms or 1000) / 1000)

    def _keep(self) -> None:
        keeper, journal = self._keeper, self._engine.journal
        while not self._is_stopping:
            if journal.failed is None:
                self._guard(self._compact)
                if keeper.is_snapshot_due():
                    self._guard(keeper.snapshot)
                self._guard(journal.free_segments)
            self._keeper_bell.sleep(KEEPER_S)

    def _spare(self) -> None:
        """Keeps zeroed segments ready: one when the active one fills, two while it goes fast."""
        journal = self._engine.journal
        seen, fast_rounds = journal.last_sequence, 0
        while not self._is_stopping:
            if journal.last_sequence != seen:
                seen, fast_rounds = journal.last_sequence, SPARE_FAST_ROUNDS
            active = journal.active
            if journal.failed is None and active is not None and active.end > active.size // 4:
                self._guard(lambda: journal.prepare_spare(1))
            if journal.failed is None and fast_rounds > 0:
                fast_rounds -= 1
                self._guard(lambda: journal.prepare_spare(2))
            self._spare_bell.sleep(SPARE_S)

    def _compact(self) -> None:
        segment = self._keeper.sparse_segment()
        while segment is not None and not self._is_stopping:
            self._keeper.compact(segment)
            segment = self._keeper.sparse_segment()

    def _guard(self, action: Callable[[], object]) -> int:
        """Runs a duty; a failure is logged and the loop goes on."""
        try:
            return int(action() or 0)  # type: ignore[call-overload, no-any-return]
        except PenstockError as error:
            if not self._is_stopping:
                log.warning("%s: %s", error.code, error)
        except Exception:
            log.exception("a broker thread met a defect; the broker goes on")
        return 0
