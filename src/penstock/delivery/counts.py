"""The count that must always be exact: every attached message is somewhere.

attached = acked + leased + waiting + delayed + dead + expired + dropped
"""

import msgspec

from penstock.delivery.state import Cursor, Subscription


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


def count_cursor(cursor: Cursor) -> Counts:
    """The counts of one partition, each taken from its own source."""
    delayed = sum(end - start for _, start, end, _, _ in cursor.delayed or ())
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


def count(subscription: Subscription) -> Counts:
    """The counts of a subscription over its partitions."""
    total = Counts()
    for cursor in subscription.cursors:
        total = total + count_cursor(cursor)
    return total


def unexplained(counts: Counts) -> int:
    """Attached messages that are nowhere; anything but 0 is a defect."""
    return counts.attached - (
        counts.acked + counts.leased + counts.waiting + counts.delayed + counts.dead
        + counts.expired + counts.dropped
    )  # fmt: skip
