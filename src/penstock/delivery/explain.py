"""Why a message, a subscription or a consumer does not move: a stable reason, a sentence, details.

`CHECKS` is asked in order, and the first check that knows the answer gives it. Each looks at one
reason only; a new reason is a new check at its place in the line.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.delivery.explain_consumer import Finding, consumer_rows
from penstock.delivery.offers import LOSSES_BEFORE_ISOLATION
from penstock.delivery.state import Cursor, Lease, Subscription
from penstock.vocabulary import names


class Case(NamedTuple):
    """One message of one subscription, and what is known besides the state."""

    cursor: Cursor
    offset: int
    now: int
    """Monotonic ms."""
    wall: int
    """Unix ms."""
    dead_at: str | None = None
    """Where it lies in the dead-letter topic, when it does."""
    blocked: str = ""
    """Why dead letters cannot be moved, when they cannot."""


Check = Callable[[Case], Finding | None]

DONE_REASONS: Final = frozenset(
    ("acked", "dead-lettered", "dropped", "expired", "finished", "lost", "not-covered")
)
"""Nothing will happen to such a message any more, and nothing needs to."""


def explain_message(case: Case) -> Finding:
    """Why this message is where it is."""
    for check in CHECKS:
        found = check(case)
        if found is not None:
            return _place(case) | found
    raise AssertionError("the last check always has an answer")


def _place(case: Case) -> Finding:
    partition = case.cursor.partition
    subscription = case.cursor.subscription
    return {
        "reason": "",
        "text": "",
        "topic": partition.topic.name,
        "subscription": subscription.name,
        "position": f"{partition.index}:{case.offset}",
        "partition": partition.index,
        "offset": case.offset,
    }


# -- it is not there, or done --------------------------------------------------------------------


def _not_published(case: Case) -> Finding | None:
    end = case.cursor.partition.reserved
    if case.offset < end:
        return None
    return {
        "reason": "not-published",
        "text": f"it was not published yet: the partition ends before offset {end}; publish it, or "
        "look for it under another position",
        "end": end,
    }


def _unsynced(case: Case) -> Finding | None:
    if case.offset < case.cursor.partition.next_offset:
        return None
    return {
        "reason": "unsynced",
        "text": "it waits for its sync: it is handed out as soon as it is durable; if that takes "
        "long, look at the disk and at the health of the broker",
    }


def _lost(case: Case) -> Finding | None:
    lost = case.cursor.partition.lost
    if lost is None or case.offset not in lost:
        return None
    return {
        "reason": "lost",
        "text": "it was lost to damage on disk and counts as dropped; publish it again if you can",
    }


def _not_covered(case: Case) -> Finding | None:
    cursor, aimed = case.cursor, case.cursor.partition.aimed
    is_for_another = aimed is not None and case.offset in aimed and case.offset in cursor.done
    if case.offset >= cursor.first and not is_for_another:
        return None
    why = (
        "it was sent back to another subscription only"
        if is_for_another
        else f"it was published before the start of the subscription at offset {cursor.first}"
    )
    return {
        "reason": "not-covered",
        "text": f"the subscription does not cover it: {why}; create one that starts earlier",
        "first": cursor.first,
    }


def _dead_lettered(case: Case) -> Finding | None:
    if case.dead_at is None:
        return None
    dead = _dead_topic(case.cursor.subscription)
    return {
        "reason": "dead-lettered",
        "text": f"it failed for good and lies in {dead!r} at {case.dead_at}; its headers tell why; "
        "redrive sends it back",
        "dead_topic": dead,
        "dead_position": case.dead_at,
    }


def _finished(case: Case) -> Finding | None:
    """What became of one message is not remembered, but known when the same became of all."""
    cursor = case.cursor
    if case.offset not in cursor.done:
        return None
    end = cursor.partition.next_offset
    total = max(0, end - cursor.first) - cursor.done.missing(cursor.first, end)
    for name, text in _OUTCOMES.items():
        if getattr(cursor, name) == total:
            return {"reason": name, "text": text}
    return {
        "reason": "finished",
        "text": "it is finished: acked, dropped, or sent on by a redrive; single outcomes are not "
        "remembered, the counts of its partition are given",
        "acked": cursor.acked,
        "dead": cursor.dead,
        "expired": cursor.expired,
        "dropped": cursor.dropped,
    }


_OUTCOMES: Final = {
    "acked": "it was acked: nothing is left to do for this subscription",
    "expired": "it expired before it was acked: give such messages more time, or add consumers",
    "dropped": "it was removed before it was acked, and counted as dropped: look at the policy of "
    "its topic",
}


# -- it is on its way ----------------------------------------------------------------------------


def _doomed(case: Case) -> Finding | None:
    cursor = case.cursor
    if cursor.doomed is None or case.offset not in cursor.doomed:
        return None
    dead = _dead_topic(cursor.subscription)
    details = {"dead_topic": dead, **_history(case)}
    if repr(dead) in case.blocked:
        return {
            "reason": "dead-letter-full",
            "text": f"it failed for good and cannot be moved: {case.blocked}",
            **details,
        }
    return {
        "reason": "dying",
        "text": f"it failed for good and is on its way to {dead!r}; look there in a moment",
        **details,
    }


def _leased(case: Case) -> Finding | None:
    lease = _lease_of(case.cursor, case.offset)
    if lease is None:
        return None
    name = lease.consumer.name
    if not lease.is_out:
        return {
            "reason": "settling",
            "text": f"it goes to consumer {name!r} once its attempt is written down; ask again",
            "consumer": name,
            **_history(case),
        }
    left = max(0, lease_until(lease, case.offset) - case.now)
    return {
        "reason": "leased",
        "text": f"consumer {name!r} holds it for another {left / 1000:.1f} s at most: see what "
        "it does; when the lease ends, or its connection, the message comes again",
        "consumer": name,
        "until": (case.wall + left) / 1000,
        **_history(case),
        "attempt": lease.attempt,
    }


def _backing_off(case: Case) -> Finding | None:
    for due, start, end, due_wall, _ in case.cursor.delayed or ():
        if start <= case.offset < end:
            history = _history(case)
            why = f" ({history['last_reason']})" if history["last_reason"] else ""
            return {
                "reason": "backing-off",
                "text": f"attempt {history['attempt']} failed{why}: it comes again in "
                f"{max(0, due - case.now) / 1000:.1f} s; mend the cause meanwhile",
                "until": due_wall / 1000,
                **history,
            }
    return None


def _settling(case: Case) -> Finding | None:
    cursor, offset = case.cursor, case.offset
    if offset >= cursor.next or _is_in(cursor.ready, offset) or _is_in(cursor.isolated, offset):
        return None
    return {
        "reason": "settling",
        "text": "its ack or nack is decided and waits for its sync; ask again in a moment",
        **_history(case),
    }


# -- it waits ------------------------------------------------------------------------------------


def _isolated(case: Case) -> Finding | None:
    cursor = case.cursor
    losses = cursor.trial(case.offset).losses
    if losses < LOSSES_BEFORE_ISOLATION:
        return None
    return {
        "reason": "isolated",
        "text": f"its consumer vanished {losses} times while it held it: it waits for a consumer "
        "that holds nothing else, to find out whether it is to blame; let one finish its work",
        "losses": losses,
        "consumers": consumer_rows(cursor.subscription),
        **_history(case),
    }


def _no_consumer(case: Case) -> Finding | None:
    subscription = case.cursor.subscription
    if subscription.consumers:
        return None
    return {
        "reason": "no-consumer",
        "text": f"no consumer is attached to subscription {subscription.name!r}: start one",
        **_line(case),
    }


def _behind_others(case: Case) -> Finding | None:
    line = _line(case)
    if not line["ahead"]:
        return None
    head = _place(case._replace(offset=line["head"])) | _at_head(case._replace(offset=line["head"]))
    return {
        "reason": "behind-others",
        "text": f"{line['ahead']} messages of its partition come first; of the first of them: "
        f"{head['text']}",
        "ahead": line["ahead"],
        "head": head,
    }


def _at_head(case: Case) -> Finding:
    """Why the first message in the line is not handed out."""
    rows = consumer_rows(case.cursor.subscription)
    states = {row["state"] for row in rows}
    busy = next((row for row in rows if row["state"].startswith("full")), None)
    if "free" in states:
        reason = "ready"
        text = "it is next, and a consumer has credit: it is being handed over; ask again"
    elif busy is not None:
        reason = "no-credit"
        text = (
            f"no consumer has credit: {busy['consumer']!r} has {busy['outstanding']} of "
            f"{busy['credit']} messages outstanding; ack faster, raise the credit, or add consumers"
        )
    elif states & {"isolated", "saving"}:
        reason = "behind-isolated"
        text = (
            "every consumer is kept for a message that was lost twice and must be alone; add "
            "consumers, or let that one finish"
        )
    else:
        reason = "attaching"
        text = "its consumers are attaching, which is being written down; ask again in a moment"
    return {"reason": reason, "text": text, "consumers": rows}


CHECKS: Final[tuple[Check, ...]] = (
    _not_published,
    _unsynced,
    _lost,
    _not_covered,
    _dead_lettered,
    _finished,
    _doomed,
    _leased,
    _backing_off,
    _settling,
    _no_consumer,
    _isolated,
    _behind_others,
    _at_head,
)


# -- looking closer ------------------------------------------------------------------------------


def oldest_unfinished(subscription: Subscription) -> list[tuple[Cursor, int]]:
    """The first message of each partition that is not finished."""
    found: list[tuple[Cursor, int]] = []
    for cursor in subscription.cursors:
        done = cursor.done
        for start, _ in done.gaps(done.floor, cursor.partition.next_offset):
            found.append((cursor, start))
            break
    return found


def _dead_topic(subscription: Subscription) -> str:
    return names.dead_topic(subscription.topic.name, subscription.name)


def _history(case: Case) -> Finding:
    """Attempts so far, and how the last one ended."""
    trial = case.cursor.trial(case.offset)
    reason, consumer = (case.cursor.reasons or {}).get(case.offset, ("", ""))
    return {"attempt": trial.attempt, "last_reason": reason, "last_consumer": consumer}


def _is_in(rows: list[tuple[int, int]] | None, offset: int) -> bool:
    return any(start <= offset < end for start, end in rows or ())


def _lease_of(cursor: Cursor, offset: int) -> Lease | None:
    for consumer in cursor.subscription.consumers or ():
        for lease in consumer.leases.values():
            if (
                lease.cursor is cursor
                and lease.start <= offset < lease.end
                and lease.mask() >> (offset - lease.start) & 1
            ):
                return lease
    return None


def lease_until(lease: Lease, offset: int) -> int:
    """When the lease of this message ends, in monotonic ms."""
    until = lease.deadline
    for below, deadline in reversed(lease.marks or ()):
        if offset < below:
            until = deadline
    return max(until, (lease.kept or {}).get(offset, 0))


def _line(case: Case) -> Finding:
    """How many messages of the partition are handed out before this one, and the first of them."""
    cursor, offset = case.cursor, case.offset
    rows = [*(cursor.ready or ())]
    if offset >= cursor.next:
        rows += cursor.done.gaps(cursor.next, offset)
    ahead = 0
    for start, end in rows:
        if start <= offset < end:
            ahead += offset - start
            break
        ahead += end - start
    return {"ahead": ahead, "head": rows[0][0] if rows else offset}
