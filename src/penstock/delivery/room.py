"""Whether a topic with `max_bytes` has room, beside what its readers have planned to read.

Older messages make room for newer ones, but nothing removes what a reader has planned. So a
publish is refused, before it is stored, when it and the planned ranges are over the limit.
"""

from penstock.delivery.policies import held_bytes
from penstock.delivery.reader import planned_ranges
from penstock.delivery.state import Topic
from penstock.vocabulary.errors import HeldByReader


def check_room(topic: Topic, size: int) -> None:
    """Raises HeldByReader when only a reader keeps so many bytes more from being stored."""
    if is_held_by_readers(topic, size):
        raise HeldByReader(
            f"topic {topic.name!r} has max_bytes of {topic.policy.max_bytes}, of which readers "
            f"have planned to read {planned_bytes(topic)}: there is no room for {size} more "
            "until a reader commits, is released, or max_bytes is raised"
        )


def is_held_by_readers(topic: Topic, size: int) -> bool:
    """True when removing all but what readers have planned would not make room for `size`."""
    limit = topic.policy.max_bytes
    if limit is None or held_bytes(topic) + size <= limit:
        return False
    if not any(each.reader is not None for each in topic.durable_subscriptions()):
        return False
    planned = planned_bytes(topic)
    return planned > 0 and planned + size > limit


def planned_bytes(topic: Topic) -> int:
    """How many bytes readers have planned to read and not committed."""
    return sum(
        partition.sizes.between(start, end)
        for partition in topic.partitions
        if partition.sizes is not None
        for low, high in planned_ranges(partition)
        for start, end in partition.released.gaps(low, high)
    )
