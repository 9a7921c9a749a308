"""Messages that wait for a time, or whose own time is over."""

from typing import Final

from penstock.delivery.explain_case import Case, Finding, seconds, trait
from penstock.vocabulary.message import Kind


def not_due(case: Case) -> Finding | None:
    """Its `deliver_at` has not come."""
    due = trait(case.cursor, "due", case.offset)
    if due <= case.wall:
        return None
    return {
        "reason": "delayed",
        "text": f"it was published to be delivered later, in {seconds(due - case.wall)}; wait, or "
        "publish another without deliver_at",
        "until": due / 1000,
    }


def over(case: Case) -> Finding | None:
    """Its time is over, and it is still there."""
    ends = _ends(case)
    if not ends or case.cursor.subscription.policy.kind is Kind.READER:
        return None
    name, at = min(ends.items(), key=lambda row: row[1])
    rule = _RULES[name]
    if at > case.wall:
        return None
    if case.jumped_ms:
        return {
            "reason": "time-paused",
            "text": f"its time is over ({rule}), but the wall clock jumped ahead by "
            f"{seconds(case.jumped_ms)}, so nothing ends by its age: set the clock right, or "
            "confirm it with client.confirm_time() or `penstock stats --confirm-time`",
            "rule": rule,
            "jumped_s": case.jumped_ms / 1000,
        }
    if rule != "expires_at":
        return None  # Whether it may be removed is for the rules of its topic to say.
    return {
        "reason": "expiring",
        "text": "its time is over (expires_at): it is being ended; ask again in a moment",
        "rule": rule,
    }


_RULES: Final = {"expires_at": "expires_at", "max_age_at": "max_age_s"}
"""Whose value ends it."""


def ending(case: Case) -> Finding:
    """When an unfinished message ends by itself, as details; empty when it does not."""
    if case.cursor.subscription.policy.kind is Kind.READER:
        return {}
    return {name: at / 1000 for name, at in _ends(case).items()}


def _ends(case: Case) -> dict[str, int]:
    """Name of a time → wall ms at which it ends the message."""
    found: dict[str, int] = {}
    expiry = trait(case.cursor, "expiry", case.offset)
    if expiry:
        found["expires_at"] = expiry
    partition = case.cursor.partition
    max_age_s = partition.topic.policy.max_age_s
    if max_age_s is not None and partition.keeping is not None:
        for start, end, at in partition.keeping.rows:
            if start <= case.offset < end:
                found["max_age_at"] = at + int(max_age_s * 1000)
    return found
