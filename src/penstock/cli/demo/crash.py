"""Lets the child work, kills it in the middle, and compares its promises with what is found."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.cli.demo.child import AUDIT, BILLING, TOPIC
from penstock.vocabulary.errors import PenstockError

CONFIRMED_MIN: Final = 200
ACKED_MIN: Final = 80
SHIPPED_MIN: Final = 30
QUIET_S: Final = 0.5
PATIENCE_S: Final = 10.0
"""How long what was promised is waited for; it may be slow to come on a busy machine."""


class ChildFailed(PenstockError):
    """The process that should have been killed ended by itself."""

    code = "demo-failed"


class Promises(msgspec.Struct):
    """What the broker had confirmed when its process died."""

    confirmed: set[str]
    acked: set[str]
    acking: set[str]
    """Acknowledged by the program; for those not in `acked`, nothing was promised yet."""
    shipped: set[str] = msgspec.field(default_factory=set)
    """Acked together with the publish of a parcel, in one transaction."""

    @property
    def are_enough(self) -> bool:
        """True when there is something to compare."""
        return (
            len(self.confirmed) >= CONFIRMED_MIN
            and len(self.acked) >= ACKED_MIN
            and len(self.shipped) >= SHIPPED_MIN
        )


class Found(msgspec.Struct):
    """What was there afterwards, compared with the promises."""

    stored: int
    lost: set[str]
    """Confirmed and not there."""
    unfinished: int
    """Not acked before, and delivered now."""
    missing: set[str]
    """Confirmed, not even being acked, and not delivered."""
    returned: set[str]
    """Acked for certain, and delivered again all the same."""
    is_clean: bool
    recovery: dict[str, Any]

    @property
    def is_whole(self) -> bool:
        """True when every promise was kept."""
        return not (self.lost or self.missing or self.returned)


def work_and_kill(folder: Path, tell: Callable[[str, str, int], None]) -> Promises:
    """Starts the child, listens to its promises, and kills it without warning."""
    promises = Promises(set(), set(), set())
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "penstock.cli.demo.child", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        for line in process.stdout:
            what, _, name = line.strip().partition(" ")
            kept: set[str] = getattr(promises, what)
            kept.add(name)
            tell(what, name, len(kept))
            if promises.are_enough:
                process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        code = process.wait()
        words = process.stderr.read().strip().splitlines()
        process.stdout.close()
        process.stderr.close()
    if code != -signal.SIGKILL or not promises.are_enough:
        raise ChildFailed(f"the demonstration's process ended early: {(words or ['no word'])[-1]}")
    return promises


async def compare(client: Any, promises: Promises) -> Found:
    """Drains both subscriptions and holds them against the promises."""
    report = (await client.stats())["recovery"]
    stored = await _drain(client, AUDIT, promises.confirmed)
    delivered = await _drain(client, BILLING, promises.confirmed - promises.acking)
    return Found(
        stored=len(stored),
        lost=promises.confirmed - stored,
        unfinished=len(delivered),
        missing=promises.confirmed - promises.acking - delivered,
        returned=promises.acked & delivered,
        is_clean=report["is_clean"],
        recovery=report,
    )


async def _drain(client: Any, subscription: str, promised: set[str]) -> set[str]:
    found: set[str] = set()
    left = set(promised)
    async with client.subscribe(TOPIC, subscription) as deliveries:
        while message := await deliveries.receive(timeout_s=PATIENCE_S if left else QUIET_S):
            found.add(message.id)
            left.discard(message.id)
            message.ack()
    return found
