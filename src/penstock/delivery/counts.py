"""The count that must always be exact: every attached message is somewhere.

attached = acked + leased + waiting + delayed + dead + expired + dropped
"""

import msgspec

from penstock.delivery.state import Cursor, Subscription
from penstock.vocabulary.message import Kind


class Counts(msgspec.Struct, frozen=True):
    """Where the messages of a subscription are."""

    attached: int = 0
    acked: int = 0
    leased: int = 0
    waiting: int = 0
    delayed: int = 0
    dead: int = 0
    expired: int = 0
    dropped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        names = self.__struct_fields__
        return Counts(*(getattr(self, name) + getattr(other, name) for name in names))


def count_cursor(cursor: Cursor, wall: int = 0) -> Counts:
    """The counts of one partition, each taken from its own source; `wall` is now, in ms."""
    delayed = sum(end - start for _, start, end, _, _ in cursor.delayed or ())
    delayed += _not_due(cursor, wall)
    leased = cursor.leased + cursor.settling
    unfinished = cursor.done.missing(cursor.done.floor, cursor.partition.next_offset)
    return Counts(
        attached=cursor.attached,
        acked=cursor.acked,
        leased=leased,
        waiting=unfinished - leased - delayed,
        delayed=delayed,
        dead=cursor.dead,
        expired=cursor.expired,
        dropped=cursor.dropped,
    )


def _not_due(cursor: Cursor, wall: int) -> int:
    """Messages that wait for their `deliver_at`, whether they were looked at or not."""
    if cursor.subscription.policy.kind is Kind.READER:
        return 0  # Readers get every message of a range, whatever its time.
    found = 0 if cursor.line is None else len(cursor.line.later)
    traits = cursor.partition.traits
    if traits is not None and traits.counts["due"]:
        unseen = [*(cursor.ready or ()), *cursor.done.gaps(cursor.next, traits.chunks[-1].end)]
        found += sum(int((traits.column("due", *run) > wall).sum()) for run in unseen)
    return found


def count(subscription: Subscription, wall: int = 0) -> Counts:
    """The counts of a subscription over its partitions; `wall` is now, in ms."""
    total = Counts()
    for cursor in subscription.cursors:
        total = total + count_cursor(cursor, wall)
    return total


def unexplained(counts: Counts) -> int:
    """Attached messages that are nowhere; anything but 0 is a defect."""
    return counts.attached - (
        counts.acked + counts.leased + counts.waiting + counts.delayed + counts.dead
        + counts.expired + counts.dropped
    )  # fmt: skip
