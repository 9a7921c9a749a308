"""Carries out what `delivery.expiry` decides: before anything is handed out, and in time."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.delivery.expiry import decide_expiry, next_expiry
from penstock.delivery.state import Partition
from penstock.delivery.traits import NEVER
from penstock.vocabulary.records import Settled

if TYPE_CHECKING:
    from penstock.broker.engine import Engine


def expire(engine: "Engine", partitions: Iterable[Partition], wall: int) -> None:
    """Settles what has expired in these partitions. The caller holds the engine's lock."""
    if not engine.expiring:
        return
    time = engine.retaining.time
    time.now_wall()  # Whether the clock can be believed is to be known before anything ends by it.
    if time.is_paused:
        return
    for partition in partitions:
        if partition not in engine.expiring or partition.topic.is_removing:
            continue
        if partition.topic.id not in engine.state.topics or next_expiry(partition) == NEVER:
            del engine.expiring[partition]
            continue
        for record in decide_expiry(partition, wall):
            if isinstance(record, Settled) and _is_ephemeral(engine, record):
                engine.apply_now(record)
            else:
                engine.submit(record, None)


def expire_all(engine: "Engine", wall: int) -> int:
    """Settles everything that has expired; returns the wall time in ms of the next look."""
    expire(engine, list(engine.expiring), wall)
    if engine.retaining.time.is_paused:
        return NEVER  # It is looked at again when the time is confirmed.
    return min(map(next_expiry, engine.expiring), default=NEVER)


def _is_ephemeral(engine: "Engine", record: Settled) -> bool:
    return not engine.state.subscriptions[record.subscription_id].is_durable
