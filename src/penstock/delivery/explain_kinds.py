"""Reasons that come from the kind of a subscription, its QoS, or from what is done with it."""

from penstock.delivery.explain_case import Case, Finding, holds, offsets_of, seconds
from penstock.delivery.members import members_of
from penstock.delivery.once import is_shade
from penstock.delivery.policies import held_bytes
from penstock.delivery.reader import describe_reader
from penstock.delivery.room import is_held_by_readers
from penstock.delivery.state import Cursor, State, Subscription, Topic
from penstock.vocabulary.limits import MEMBER_IDLE_S_MAX
from penstock.vocabulary.message import Kind
from penstock.vocabulary.names import MEMBER_MARK


def topic_full(topic: Topic) -> Finding | None:
    """Publishes are refused, since only what readers have planned could make room.

    A smaller message than those that are held may find room even so.
    """
    usual = held_bytes(topic) // max(1, sum(partition.held for partition in topic.partitions))
    if not is_held_by_readers(topic, max(1, usual)):
        return None
    readers = [
        {"subscription": each.name, **_reader_place(each)}
        for each in topic.durable_subscriptions()
        if each.reader is not None
    ]
    return {
        "reason": "topic-full",
        "text": "publishes are refused: beside what a reader has planned and not committed there "
        f"is no room within max_bytes of {topic.policy.max_bytes}; let it commit, release it, or "
        "raise max_bytes",
        "topic": topic.name,
        "held_bytes": held_bytes(topic),
        "max_bytes": topic.policy.max_bytes,
        "readers": readers,
    }


def seeking(case: Case) -> Finding | None:
    """The subscription is being moved."""
    if not case.cursor.subscription.seeks:
        return None
    return {
        "reason": "seeking",
        "text": "its subscription is being moved by a seek that is not durable yet, and nothing is "
        "handed out until it is; ask again in a moment",
    }


def read_later(case: Case) -> Finding | None:
    """A reader has not come so far."""
    subscription, cursor = case.cursor.subscription, case.cursor
    if subscription.policy.kind is not Kind.READER:
        return None
    found, index = describe_reader(subscription), cursor.partition.index
    progress, planned = found.progress[index], found.planned[index]
    place = f"its progress is {index}:{progress} of {index}:{cursor.partition.next_offset}"
    details: Finding = {
        "owner": found.owner,
        "progress": progress,
        "planned": planned,
        "end": cursor.partition.next_offset,
        "behind": cursor.done.missing(progress, cursor.partition.next_offset),
    }
    if case.offset < planned:
        return {
            "reason": "reader-planned",
            "text": f"reader {subscription.name!r} has planned it and not committed it: {place}; "
            "look at whoever reads, which must commit what it has stored",
            **details,
        }
    return {
        "reason": "reader-behind",
        "text": f"reader {subscription.name!r} has not planned it yet: {place}; nothing is pushed "
        "to a reader: open it with client.reader(…), plan, read and commit",
        **details,
    }


def _reader_place(subscription: Subscription) -> Finding:
    found = describe_reader(subscription)
    return {
        "owner": found.owner,
        "progress": list(found.progress),
        "planned": list(found.planned),
    }


def handed_over(case: Case) -> Finding | None:
    """QoS 0: finished before it was handed over."""
    subscription = case.cursor.subscription
    if subscription.policy.qos != 0 or case.offset not in case.cursor.done:
        return None
    for consumer in subscription.consumers or ():
        for lease in consumer.leases.values():
            is_of = lease.cursor.partition is case.cursor.partition
            if is_of and is_shade(lease) and holds(lease, case.offset):
                return {
                    "reason": "handed-over",
                    "text": f"it was handed over to consumer {consumer.name!r} and was finished "
                    "before, as QoS 0 has it: it does not come again; use QoS 1 if it must",
                    "consumer": consumer.name,
                }
    return None


def member_away(case: Case) -> Finding | None:
    """The one consumer of a multicast that should get it is not there."""
    subscription = case.cursor.subscription
    if not subscription.is_member or subscription.consumers:
        return None
    until = subscription.seen_at + int(MEMBER_IDLE_S_MAX * 1000)
    parent, _, name = subscription.name.partition(MEMBER_MARK)
    away = seconds(case.wall - subscription.seen_at)
    return {
        "reason": "member-away",
        "text": f"consumer {name!r} of multicast {parent!r} has not been connected for {away}: "
        f"start it; in {seconds(until - case.wall)} what waits for it is dropped",
        "consumer": name,
        "since": subscription.seen_at / 1000,
        "until": until / 1000,
    }


def ask_member(parent: Subscription) -> Finding:
    """A multicast itself holds nothing."""
    found = sorted(each.name for each in members_of(parent) if each.is_durable)
    if found:
        reason = "ask-member"
        text = (
            f"multicast {parent.name!r} has no place of its own: ask one of its members, "
            f"{', '.join(map(repr, found))}"
        )
    else:
        reason = "no-member"
        text = (
            f"multicast {parent.name!r} has no named consumer, so it holds nothing and messages "
            "pass it by: start a consumer with a name"
        )
    return {
        "reason": reason,
        "text": text,
        "topic": parent.topic.name,
        "subscription": parent.name,
    }


def is_in_unit(state: State, cursor: Cursor, offset: int) -> bool:
    """True when a unit that is not durable yet settles this message."""
    return any(
        other is cursor and offset in offsets_of(record)
        for book in state.units.values()
        for rows in book.decided.values()
        for other, record in rows
    )
