"""Backups of a running broker: what is copied stays as it is while somebody reads it.

A backup holds everything that was confirmed before it began. While one is being read no segment is
used again and no snapshot removed; whoever does not read for a minute has given it up.
"""

import os
from collections.abc import Callable
from threading import Lock
from typing import Final

from penstock.broker.engine import Engine
from penstock.broker.mailbox import DIRECT, Pending
from penstock.journal import copying
from penstock.vocabulary.backups import PIECE_BYTES, BackupFile, BackupPlan
from penstock.vocabulary.errors import Closed, InvalidArgument, StorageError, Unavailable

IDLE_MS: Final = 60_000
BEGIN_MS_MAX: Final = 3_600_000
"""The snapshot a backup begins with may take so long."""
BACKUPS_MAX: Final = 4
"""Read at the same time."""


class _Backup:
    """One copy being made."""

    __slots__ = ("deadline", "sources")

    def __init__(self, deadline: int) -> None:
        self.deadline = deadline
        self.sources: dict[str, copying.Source] = {}


class Backups:
    """The backups of one broker. Any thread."""

    def __init__(self, engine: Engine, snapshot: Callable[[], None]) -> None:
        self._engine = engine
        self._journal = engine.journal
        self._snapshot = snapshot
        self._guard = Lock()
        self._live: dict[str, _Backup] = {}
        engine.journal.is_pinned = self.is_any

    def is_any(self) -> bool:
        """True while a copy is being read."""
        if not self._live:
            return False
        with self._guard:
            self._forget_idle()
            return bool(self._live)

    def begin(self) -> BackupPlan:
        """Chooses what to copy: everything confirmed so far. Raises Unavailable, StorageError."""
        engine, journal = self._engine, self._journal
        name = os.urandom(8).hex()
        self._add(name)
        started_at = engine.clock.wall() / 1000
        try:
            if journal.failed is None:
                # Confirmed means durable, but for topics of a lower level: those too, from here on.
                pending = Pending()
                engine.check_alive()
                engine.after_pending((DIRECT, pending, None))
                engine.settle_down(pending)
                self._snapshot()
            copy = copying.plan(journal)
        except OSError as error:
            self.end(name)
            raise _failed(error) from error
        except BaseException:
            self.end(name)
            raise
        with self._guard:
            found = self._find(name)
            found.sources = {source.name: source for source in copy.sources}
        files = [BackupFile(each.name, each.size, each.used) for each in copy.sources]
        return BackupPlan(name, copy.store_id.hex(), copy.position, started_at, files)

    def read(self, name: str, file: str, start: int, bytes_max: int) -> bytes:
        """Bytes of a file of the plan. Raises InvalidArgument, Unavailable, StorageError."""
        with self._guard:
            source = self._find(name).sources.get(file)
        if source is None or not 0 <= start <= source.used or not 0 < bytes_max <= PIECE_BYTES:
            raise InvalidArgument(
                f"backup {name} has no {bytes_max} bytes at {start} of {file!r}; its plan says "
                f"what there is, in pieces of at most {PIECE_BYTES} bytes"
            )
        if self._engine.is_closed:
            raise Closed("the broker was closed; begin the backup again when it is open")
        try:
            data = copying.read(self._journal, source, start, bytes_max)
        except OSError as error:
            raise _failed(error) from error
        if len(data) < min(bytes_max, source.used - start):
            raise StorageError(f"{file} became shorter while it was copied; begin the backup again")
        return data

    def end(self, name: str) -> None:
        """The copy is made, or given up. Doing so twice is harmless."""
        with self._guard:
            self._live.pop(name, None)

    def _add(self, name: str) -> None:
        with self._guard:
            self._forget_idle()
            if len(self._live) >= BACKUPS_MAX:
                raise Unavailable(
                    f"{BACKUPS_MAX} backups of this broker are being made already; try again when "
                    "one is done"
                )
            self._live[name] = _Backup(self._engine.clock.now() + BEGIN_MS_MAX)

    def _find(self, name: str) -> _Backup:
        self._forget_idle()
        found = self._live.get(name)
        if found is None:
            raise Unavailable(
                f"there is no backup {name[:32]!r} under way: it ended, was not read for "
                f"{IDLE_MS // 1000} s, or the broker was started again since; begin a new one"
            )
        found.deadline = self._engine.clock.now() + IDLE_MS
        return found

    def _forget_idle(self) -> None:
        now = self._engine.clock.now()
        for name in [name for name, each in self._live.items() if each.deadline < now]:
            del self._live[name]


def _failed(error: OSError) -> StorageError:
    return StorageError(f"the store cannot be read for a backup: {error.strerror or error}")
