"""A client for a measurement: on the broker of the plan, or on one with tiny segments."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from penstock.cli.bench.plan import TOPIC, Plan
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.limits import KIB, MIB

BUSY: Final = JournalSettings(
    segment_bytes_min=256 * KIB, segment_bytes_max=256 * KIB, snapshot_bytes=1 * MIB
)
"""Rolls, snapshots and compaction every moment, instead of every few minutes."""


@asynccontextmanager
async def opened(plan: Plan, settings: JournalSettings | None = None) -> AsyncIterator[Any]:
    """A client on an open broker, whose topic has the durability of the plan."""
    import penstock

    release = _open_with(plan.path, settings) if settings is not None else None
    try:
        async with penstock.connect(plan.url) as client:
            if plan.durability == "written":
                await client.create_topic(TOPIC, durability=plan.durability)
            yield client
    finally:
        if release is not None:
            release()


def _open_with(folder: Path, settings: JournalSettings) -> Any:
    """Opens the broker first, so that the client, which takes no settings, shares it."""
    from penstock.broker.broker import Broker
    from penstock.drivers.embedded import _registry
    from penstock.journal.disk import FolderDisk

    key = f"file:{folder.resolve()}"
    _registry.acquire(key, lambda: Broker.open(FolderDisk(folder), settings))
    return lambda: _registry.release(key)
