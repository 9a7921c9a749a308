"""Broker time: the wall clock as far as it can be believed.

Rules about the age of messages follow the wall clock. When it runs ahead of the monotonic clock
by more than an hour between two looks, those rules stand still until somebody confirms the new
time, or until the clock is back where it was expected. Back jumps need no care: what was removed
stays removed, and what is kept is kept longer.
"""

import logging
from typing import Any, Final

from penstock.broker.clock import Clock

JUMP_MS_MAX: Final = 3_600_000

log = logging.getLogger("penstock.broker")


class BrokerTime:
    """Looks at both clocks and tells what rules may believe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = clock.now()
        self._wall = clock.wall()
        self.jumped_ms = 0
        """How far the clock is ahead of what was expected, while that is not confirmed."""

    @property
    def is_paused(self) -> bool:
        """True while nothing may be removed or expire because of its age."""
        return self.jumped_ms > 0

    def now_wall(self) -> int:
        """Looks at the clocks; the wall time in ms. Ask `is_paused` before acting on it."""
        now, wall = self._clock.now(), self._clock.wall()
        ahead = wall - self._wall - (now - self._now)
        if ahead > JUMP_MS_MAX:
            if not self.is_paused:
                log.warning("%s", alert(ahead))
            self.jumped_ms = ahead
        else:
            self.jumped_ms = 0
            self._now, self._wall = now, wall
        return wall

    def confirm(self) -> None:
        """The wall clock is right: rules about age go on from what it says."""
        self._now, self._wall = self._clock.now(), self._clock.wall()
        self.jumped_ms = 0

    def state(self) -> dict[str, Any]:
        """For statistics."""
        return {"is_paused": self.is_paused, "jumped_s": self.jumped_ms / 1000}


def alert(jumped_ms: int) -> str:
    """What a person must know when time is not believed."""
    return (
        f"the wall clock jumped ahead by {jumped_ms / 3_600_000:.1f} hours: nothing expires and "
        "nothing is removed for its age until the clock is set right, or confirmed with "
        "client.confirm_time() or `penstock stats --confirm-time`"
    )
