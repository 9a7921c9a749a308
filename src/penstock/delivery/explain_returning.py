"""Messages that wait for a consumer to return."""

from penstock.delivery.explain_case import Case, Finding, history, lease_of, seconds
from penstock.delivery.state import Subscription


def awaited(case: Case) -> Finding | None:
    """After a stop nothing is handed out until the consumers of before have returned."""
    awaiting = case.cursor.subscription.awaiting
    if awaiting is None:
        return None
    is_out = lease_of(case.cursor, case.offset) is not None
    where = "it was out when it stopped" if is_out else "it may have been out when it stopped"
    left = awaiting.until - case.now
    return {
        "reason": "awaiting-return",
        "text": f"the broker was started again, and {where}: it waits for "
        f"{_list(awaiting.names)} to return and say what they hold, for another {seconds(left)} "
        "at most; start them, or wait",
        "consumers": awaiting.names,
        "until": (case.wall + left) / 1000,
        **history(case),
    }


def held_by_one_away(case: Case) -> Finding | None:
    """Whoever holds it lost its connection."""
    lease = lease_of(case.cursor, case.offset)
    if lease is None or not lease.consumer.away_until:
        return None
    consumer = lease.consumer
    if not consumer.id:
        return awaited(case)
    left = consumer.away_until - case.now
    return {
        "reason": "consumer-away",
        "text": f"consumer {consumer.name!r} holds it and lost its connection: it waits for that "
        f"one to return, for another {seconds(left)} at most, and comes again then; see to its "
        "connection",
        "consumer": consumer.name,
        "until": (case.wall + left) / 1000,
        **history(case),
        "attempt": lease.attempt,
    }


def all_away(case: Case) -> Finding | None:
    """There are consumers, and none of them is connected."""
    subscription = case.cursor.subscription
    away = subscription.consumers or []
    if not away or subscription.connected:
        return None
    left = max(each.away_until for each in away) - case.now
    names = sorted(each.name for each in away)
    return {
        "reason": "consumer-away",
        "text": f"its subscription has no consumer but {_list(names)}, which lost the connection "
        f"and may return within {seconds(left)}: see to it, or start another",
        "consumers": names,
        "until": (case.wall + left) / 1000,
    }


def describe_returning(subscription: Subscription, now: int, wall: int) -> Finding:
    """For the row of a subscription: who may return, and until when; empty when nobody may."""
    names = [c.name for c in subscription.consumers or () if c.away_until and c.id]
    until = [c.away_until for c in subscription.consumers or () if c.away_until]
    if subscription.awaiting is not None:
        names += subscription.awaiting.names
    if not names:
        return {}
    return {"returning": sorted(names), "returning_until": (wall + max(until) - now) / 1000}


def _list(names: list[str]) -> str:
    return ", ".join(map(repr, names))
