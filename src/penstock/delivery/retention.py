"""When messages that no durable subscription covered are removed, and publishers forgotten."""

from typing import Final

from penstock.delivery.publish import is_generated
from penstock.delivery.state import Partition
from penstock.vocabulary.limits import PUBLISHER_IDLE_S_MAX
from penstock.vocabulary.records import Removed

NEVER: Final = 1 << 62


def decide_retention(partition: Partition, now_wall: int) -> Removed | None:
    """A record that removes what was kept long enough, or None."""
    retain_s = partition.topic.policy.retain_s
    if not partition.retained or retain_s is None:
        return None
    limit = now_wall - int(retain_s * 1000)
    ranges = tuple((start, end) for start, end, at in partition.retained if at <= limit)
    return Removed(partition.topic.id, partition.index, ranges) if ranges else None


def retained_until(partition: Partition) -> int:
    """The wall time at which something of a partition is next due for removal."""
    retain_s = partition.topic.policy.retain_s
    if not partition.retained or retain_s is None:
        return NEVER
    return partition.retained[0][2] + int(retain_s * 1000)


def forget_publishers(partition: Partition, now_wall: int) -> None:
    """Drops the state of generated publishers that were idle for long; named ones stay."""
    if not partition.publishers:
        return
    limit = now_wall - int(PUBLISHER_IDLE_S_MAX * 1000)
    idle = [
        publisher
        for publisher, known in partition.publishers.items()
        if known.used_at < limit and is_generated(publisher) and known.decided <= known.last
    ]
    for publisher in idle:
        del partition.publishers[publisher]
    if not partition.publishers:
        partition.publishers = None
