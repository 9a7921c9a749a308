"""Why a message, a subscription or a consumer does not move: a stable reason, a sentence, details.

`CHECKS` is asked in order, and the first check that knows the answer gives it. Each looks at one
reason only; a new reason is a new check at its place in the line. A check that knows which other
message comes first names it as `head`: why that one waits is looked up here, one step far.
"""

from typing import Final

from penstock.delivery import (
    explain_keys,
    explain_kinds,
    explain_line,
    explain_returning,
    explain_time,
)
from penstock.delivery.explain_case import (
    Case,
    Check,
    Finding,
    history,
    is_waiting,
    lease_of,
    lease_until,
    place,
    seconds,
)
from penstock.delivery.explain_consumer import consumer_rows
from penstock.delivery.offers import LOSSES_BEFORE_ISOLATION
from penstock.delivery.state import Cursor, Subscription
from penstock.vocabulary import names
from penstock.vocabulary.errors import InvalidName
from penstock.vocabulary.records import Outcome

DONE_REASONS: Final = frozenset(
    (
        "acked",
        "dead-lettered",
        "dropped",
        "expired",
        "finished",
        "handed-over",
        "lost",
        "not-covered",
    )
)
"""Nothing will happen to such a message any more, and nothing needs to."""


def explain_message(case: Case) -> Finding:
    """Why this message is where it is."""
    answers = (each for each in (check(case) for check in CHECKS) if each is not None)
    found = _complete(case, next(answers))
    if found["reason"] == "time-paused":
        # It is handed out as if it had no end, so what else keeps it is worth knowing.
        found["besides"] = _complete(case, next(answers))
    return found


def _complete(case: Case, found: Finding) -> Finding:
    """An answer with its place, what its head waits for, and when it ends by itself."""
    head = found.pop("head", None)
    found = place(case) | found
    if head is not None and not case.is_head:
        cursor, offset = head
        first = explain_message(case._replace(cursor=cursor, offset=offset, is_head=True))
        found["head"] = first
        found["text"] += f". Of {first['position']}: {first['text']}"
    if case.pattern:
        found["pattern"] = case.pattern
    if found["reason"] not in DONE_REASONS and not case.is_head:
        ends = explain_time.ending(case)
        found |= ends
        left = min(ends.values(), default=0) * 1000 - case.wall
        if left > 0:
            found["text"] += f". It ends by itself in {seconds(left)}"
    return found


# -- it is not there, or done --------------------------------------------------------------------


def _not_published(case: Case) -> Finding | None:
    end = case.cursor.partition.reserved
    if case.offset < end:
        return None
    full = explain_kinds.topic_full(case.cursor.partition.topic)
    if full is not None:
        return full | {"end": end}
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
    if case.offset >= cursor.begin and not is_for_another:
        return None
    why = (
        "it was sent back to another subscription only"
        if is_for_another
        else f"it was published before the start of the subscription at offset {cursor.begin}"
    )
    return {
        "reason": "not-covered",
        "text": f"the subscription does not cover it: {why}; create one that starts earlier",
        "first": cursor.begin,
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
    """What became of a held message is known, of a removed one when the same became of all."""
    cursor = case.cursor
    if case.offset not in cursor.done:
        return None
    if case.offset not in cursor.partition.released:
        ending = cursor.otherwise.get(case.offset) if cursor.otherwise else None
        name = (Outcome.ACKED if ending is None else Outcome(ending[0])).name.lower()
        if name in _OUTCOMES:
            return {"reason": name, "text": _OUTCOMES[name]}
    end = cursor.partition.next_offset
    total = max(0, end - cursor.begin) - cursor.done.missing(cursor.begin, end)
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
    details = {"dead_topic": dead, **history(case)}
    try:
        names.check_dead(cursor.partition.topic.name, cursor.subscription.name)
    except InvalidName as error:
        return {
            "reason": "dead-letter-impossible",
            "text": f"it failed for good and cannot be moved: {error.text}; seek past it to drop "
            "it, and go on with a subscription of a shorter name",
            **details,
        }
    if case.blocked:
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
    lease = lease_of(case.cursor, case.offset)
    if lease is None:
        return None
    name = lease.consumer.name
    if not lease.is_out:
        return {
            "reason": "settling",
            "text": f"it is on its way to consumer {name!r}; ask again",
            "consumer": name,
            **history(case),
        }
    left = max(0, lease_until(lease, case.offset) - case.now)
    return {
        "reason": "leased",
        "text": f"consumer {name!r} holds it for another {seconds(left)} at most: see what "
        "it does; when the lease ends, or its connection, the message comes again",
        "consumer": name,
        "until": (case.wall + left) / 1000,
        **history(case),
        "attempt": lease.attempt,
    }


def _backing_off(case: Case) -> Finding | None:
    for due, start, end, due_wall, _ in case.cursor.delayed or ():
        if start <= case.offset < end:
            known = history(case)
            why = f" ({known['last_reason']})" if known["last_reason"] else ""
            return {
                "reason": "backing-off",
                "text": f"attempt {known['attempt']} failed{why}: it comes again in "
                f"{seconds(due - case.now)}; mend the cause meanwhile",
                "until": due_wall / 1000,
                **known,
            }
    return None


def _settling(case: Case) -> Finding | None:
    if is_waiting(case.cursor, case.offset):
        return None
    what = "its ack is part of a unit that" if case.is_in_unit else "its ack or nack is decided and"
    return {
        "reason": "settling",
        "text": f"{what} waits for its sync; ask again in a moment",
        "is_in_unit": case.is_in_unit,
        **history(case),
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
        **history(case),
    }


def _no_consumer(case: Case) -> Finding | None:
    subscription = case.cursor.subscription
    if subscription.consumers:
        return None
    whole = f" of pattern {case.pattern!r}" if case.pattern else ""
    return {
        "reason": "no-consumer",
        "text": f"no consumer is attached to subscription {subscription.name!r}{whole}: start one",
        "ahead": explain_line.ahead_of(case),
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
    explain_kinds.seeking,
    _not_covered,
    _dead_lettered,
    explain_kinds.handed_over,
    _finished,
    explain_kinds.read_later,
    _doomed,
    explain_returning.held_by_one_away,
    _leased,
    _backing_off,
    _settling,
    explain_time.not_due,
    explain_time.over,
    explain_returning.awaited,
    explain_returning.all_away,
    explain_kinds.member_away,
    _no_consumer,
    _isolated,
    explain_keys.behind_key,
    explain_keys.behind_growth,
    explain_keys.key_held,
    explain_keys.at_holder,
    explain_line.behind,
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
