"""Why a consumer gets nothing, or a subscription has nothing to hand out."""

from typing import Final

from penstock.delivery.counts import count
from penstock.delivery.explain_case import Finding
from penstock.delivery.shared import waiting_count
from penstock.delivery.state import Consumer, Subscription
from penstock.vocabulary.message import Kind


def nothing_waits(subscription: Subscription, text: str, wall: int) -> Finding:
    """There is no message that could be stuck."""
    counts = count(subscription, wall)
    return {
        "reason": "nothing-waits",
        "text": text,
        "topic": subscription.topic.name,
        "subscription": subscription.name,
        **{name: getattr(counts, name) for name in counts.__struct_fields__},
        "consumers": consumer_rows(subscription),
    }


def explain_consumer(subscription: Subscription, name: str, wall: int) -> Finding:
    """Why this consumer gets nothing; `wall` is now, in ms."""
    found = [c for c in subscription.consumers or () if c.name == name]
    found.sort(key=lambda each: each.away_until)
    if not found:
        known = [c.name for c in subscription.connected]
        others = f"attached: {', '.join(map(repr, known)) or 'none'}"
        if subscription.policy.kind is Kind.READER:
            others = "it is a reader, which has none: use client.reader(…)"
        return {
            "reason": "no-consumer",
            "text": f"no consumer {name!r} is attached to subscription {subscription.name!r}; "
            f"{others}",
            "topic": subscription.topic.name,
            "subscription": subscription.name,
            "consumer": name,
            "consumers": consumer_rows(subscription),
        }
    row = consumer_row(found[0])
    if subscription.seeks:
        return {
            "reason": "seeking",
            "text": "its subscription is being moved by a seek that is not durable yet; ask again "
            "in a moment",
            "topic": subscription.topic.name,
            "subscription": subscription.name,
            **row,
        }
    if subscription.awaiting is not None:
        names = ", ".join(map(repr, subscription.awaiting.names))
        return {
            "reason": "awaiting-return",
            "text": f"the broker was started again: nothing is handed out until {names} returned "
            "and said what they hold, or the time for it is over; start them, or wait",
            "topic": subscription.topic.name,
            "subscription": subscription.name,
            **row,
        }
    reason, text = _CONSUMER_TEXTS[row["state"]]
    waiting = sum(waiting_count(cursor) for cursor in subscription.cursors)
    if row["state"] == "free" and not waiting:
        idle = (
            "nothing waits for it: everything is finished, held by others, backing off, or waits "
            "for its time"
        )
        return nothing_waits(subscription, idle, wall) | row
    return {
        "reason": reason,
        "text": text.format(**row),
        "topic": subscription.topic.name,
        "subscription": subscription.name,
        "waiting": waiting,
        **row,
    }


_CONSUMER_TEXTS: Final = {
    "gone": ("no-consumer", "consumer {consumer!r} lost its subscription; attach again"),
    "away": (
        "consumer-away",
        (
            "consumer {consumer!r} lost its connection, and its {outstanding} messages wait for it "
            "to return; see to its connection"
        ),
    ),
    "attaching": ("attaching", "its attachment is being written down; ask again in a moment"),
    "isolated": (
        "isolated",
        (
            "consumer {consumer!r} holds a message that was lost twice, and must hold nothing else "
            "meanwhile; let it finish"
        ),
    ),
    "saving": (
        "isolated",
        (
            "consumer {consumer!r} gets nothing new until its {outstanding} messages are done: a "
            "message that was lost twice waits for it"
        ),
    ),
    "full": (
        "no-credit",
        (
            "consumer {consumer!r} has {outstanding} of {credit} messages outstanding; ack faster "
            "or raise its credit"
        ),
    ),
    "full-bytes": (
        "no-credit",
        (
            "consumer {consumer!r} has {outstanding_bytes} of {credit_bytes} bytes outstanding; "
            "ack faster or raise its credit_bytes"
        ),
    ),
    "not-pulling": (
        "no-credit",
        "consumer {consumer!r} takes messages only while it pulls, and does not just now; pull",
    ),
    "free": ("ready", "messages wait and it has credit: they are being handed over; ask again"),
}


def consumer_rows(subscription: Subscription) -> list[Finding]:
    """Every consumer with its credit."""
    return [consumer_row(consumer) for consumer in subscription.consumers or () if consumer.id]


def consumer_row(consumer: Consumer) -> Finding:
    """One consumer with its credit, and whether it can take more."""
    if consumer.is_gone:
        state = "gone"
    elif consumer.away_until:
        state = "away"
    elif not consumer.is_attached:
        state = "attaching"
    elif consumer.is_isolated:
        state = "isolated"
    elif consumer.is_saving:
        state = "saving"
    elif not consumer.credit_bytes:
        state = "not-pulling"
    elif consumer.outstanding_bytes >= consumer.credit_bytes:
        state = "full-bytes"
    else:
        state = "free" if consumer.free > 0 else "full"
    return {
        "consumer": consumer.name,
        "state": state,
        "outstanding": consumer.outstanding,
        "credit": consumer.credit,
        "outstanding_bytes": consumer.outstanding_bytes,
        "credit_bytes": consumer.credit_bytes,
    }
