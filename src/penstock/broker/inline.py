"""A commit on the event loop itself, when one message waits alone and the disk is quick.

To hand a record to the commit thread and its answer back costs two wake-ups of a sleeping thread.
A server that has nothing else to do can just as well write and sync where it is. So that this never
costs anybody anything, it is done only after a row of commits of one record each, for a record of
one message that nobody joined in the same round of the loop, on a disk that was quick lately.
"""

import logging
from asyncio import AbstractEventLoop
from threading import get_ident
from time import monotonic
from typing import Final

from penstock.broker.engine import Engine
from penstock.broker.loop_mailbox import LoopMailbox
from penstock.vocabulary.limits import KIB
from penstock.vocabulary.records import Published

ROW: Final = 16
"""Commits of few records in a row before the loop commits by itself."""
FEW: Final = 2
"""A record, and one that rides along."""
SLOW_S: Final = 0.003
"""A commit that took longer was too slow for a loop that others wait for."""
REST: Final = 20
"""After a slow one the loop leaves commits to the thread for so many times as long."""
ROOM_BYTES: Final = 64 * KIB
"""With less room in the segment, the next one may have to be begun, which takes longer."""

log = logging.getLogger("penstock.broker")


class Inline:
    """Decides who commits: the loop, or the thread. Made on the loop, for one engine."""

    def __init__(self, engine: Engine, loop: AbstractEventLoop) -> None:
        self.commits = 0
        """How many commits the loop has made."""
        self.mailboxes: list[LoopMailbox] = []
        """Those of this loop: what a commit of the loop posts there arrives at once."""
        self._engine = engine
        self._loop = loop
        self._owner = get_ident()
        self._ring = engine.wake_commit
        self._seen = engine.applied_records
        self._row = 0
        self._rests_until = 0.0
        self._is_scheduled = False
        self._speaker: object = None
        self._speeches = 0
        engine.wake_commit = self._wake

    def stop(self) -> None:
        """Leaves every commit to the thread again."""
        self._engine.wake_commit = self._ring
        self._ring()

    def heard(self, speaker: object) -> None:
        """A connection has done what it was asked to; one that speaks alone need not wait."""
        if speaker is not self._speaker:
            self._speaker, self._speeches = speaker, 0
        elif self._speeches < ROW:
            self._speeches += 1
        elif self._is_scheduled:
            self._decide()

    def _wake(self) -> None:
        """Somebody submitted a record; the caller may hold the engine's lock."""
        if get_ident() != self._owner:
            self._row = 0
            self._ring()
            return
        if self._is_scheduled:
            return
        applied = self._engine.applied_records
        self._row = self._row + 1 if applied - self._seen <= FEW else 0
        self._seen = applied
        if self._row < ROW:
            self._ring()
            return
        self._is_scheduled = True
        self._loop.call_soon(self._decide)

    def _decide(self) -> None:
        """The round is over: whoever wanted to join has done so."""
        if not self._is_scheduled:
            return
        self._is_scheduled = False
        engine = self._engine
        began = monotonic()
        is_fit = began >= self._rests_until and has_one_message(engine)
        if not is_fit or not engine.committing.acquire(blocking=False):
            self._ring()
            return
        try:
            engine.commit_once()
        except Exception:
            log.exception("a commit on the loop met a defect; the broker goes on")
        finally:
            engine.committing.release()
        self.commits += 1
        for mailbox in self.mailboxes:
            mailbox.deliver()
        ended = monotonic()
        if ended - began > SLOW_S:
            self._rests_until = ended + (ended - began) * REST


def has_one_message(engine: Engine) -> bool:
    """True when a message waits alone, and nothing more is to be done than to write it."""
    records, active = engine.waiting, engine.journal.active
    if not 0 < len(records) <= FEW or active is None or engine.state.written_topics:
        return False
    last = records[-1]
    is_one = type(last) is Published and last.count == 1
    return is_one and active.size - active.end > engine.pending_bytes + ROOM_BYTES
