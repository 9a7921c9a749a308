"""When the broker has to look at the clock again."""

from penstock.broker.engine import Engine

LOOK_MS = 1_000
"""At least so often, whatever waits."""


def until_next(engine: Engine, now: int, wall: int, expire_at: int) -> int:
    """Milliseconds until something may be due; `expire_at` is the wall time of the next expiry."""
    soonest = min(now + LOOK_MS, now + expire_at - wall)
    for cursor in engine.delaying:
        if cursor.delayed:
            soonest = min(soonest, cursor.delayed[0][0])
        if cursor.line and cursor.line.later:
            soonest = min(soonest, now + cursor.line.later[0][0] - wall)
    for subscription in engine.serving:
        for consumer in subscription.consumers or ():
            if consumer.leases:
                soonest = min(soonest, consumer.deadline)
    for consumer in engine.away:
        soonest = min(soonest, consumer.away_until)
    for subscription in engine.awaiting:
        if subscription.awaiting is not None:
            soonest = min(soonest, subscription.awaiting.until)
    return max(1, soonest - now)
