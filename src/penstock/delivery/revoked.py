"""Decisions about a revoked message whose way back is decided and not durable yet.

It is neither out nor waiting: the decision is accepted, as it would be a moment later, and once
the message is back it is taken from what may be offered before anybody looks.
"""

from penstock.delivery.leases import withdraw
from penstock.delivery.state import Cursor
from penstock.vocabulary.records import Cause, Returned, Settled


def accept(cursor: Cursor, offset: int) -> bool:
    """Accepts a decision about a message that is on its way back; False when it is not."""
    keys = cursor.subscription.keys
    if keys is None or (cursor, offset) in keys.early:
        return False
    for record in keys.decided.values():
        if (
            isinstance(record, Returned)
            and record.cause is Cause.REVOKED
            and record.partition == cursor.partition.index
            and any(start <= offset < end for start, end in record.ranges)
        ):
            keys.early.add((cursor, offset))
            cursor.settling -= 1  # the new decision counts it from now on
            return True
    return False


def carried_out(cursor: Cursor, record: Settled | Returned) -> None:
    """After a record was applied: what was decided about its messages meanwhile holds."""
    keys = cursor.subscription.keys
    if keys is None or not keys.early or not isinstance(record, Returned):
        return
    if record.cause is Cause.REVOKED:
        for start, end in record.ranges:
            for offset in range(start, end):
                if (cursor, offset) in keys.early:
                    keys.early.discard((cursor, offset))
                    cursor.settling += 1
                    withdraw(cursor, offset, offset + 1)
