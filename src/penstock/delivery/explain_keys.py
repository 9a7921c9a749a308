"""Kind `key_shared`: which message or which consumer a message waits for."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from penstock.delivery import explain_case as at
from penstock.delivery.explain_case import Case, Finding
from penstock.delivery.explain_consumer import consumer_row
from penstock.delivery.explain_line import behind_priority, waiting_offsets
from penstock.delivery.keyed import Blocked, Keys, open_offsets, slots_of
from penstock.delivery.state import Consumer, Cursor, Subscription
from penstock.delivery.traits import Numbers, Offsets
from penstock.vocabulary.message import Kind

_PART: Final = 65_536
"""So many messages are looked at together: the first that fits is enough."""


def behind_key(case: Case) -> Finding | None:
    """An older message of its key must go first."""
    cursor, key = case.cursor, _key(case)
    older = next(_older(case, key), None) if key else None
    if older is None:
        return None
    position = at.position(cursor, older)
    trial = cursor.trial(case.offset)
    was_out = trial.slice > 0 and case.offset not in (cursor.reasons or {})
    if was_out and (at.is_backing_off(cursor, older) or at.is_coming_back(cursor, older)):
        return {
            "reason": "revoked",
            "text": f"it was out and was taken back, because {position}, an older message of its "
            "key, came back: it comes again after that one; an ack of it is accepted until then",
            "behind": position,
            "head": (cursor, older),
            **at.history(case),
        }
    return {
        "reason": "behind-key",
        "text": f"{position}, an older message of its key, goes first",
        "behind": position,
        "head": (cursor, older),
    }


def behind_growth(case: Case) -> Finding | None:
    """The topic grew, and older messages of its key are unfinished in another partition."""
    cursor, key = case.cursor, _key(case)
    for growth in (cursor.partition.topic.growth or ()) if key else ():
        index, ends = cursor.partition.index, growth.ends
        if index < len(ends) and case.offset < ends[index]:
            continue
        for other, end in zip(cursor.subscription.cursors, ends, strict=False):
            older = None if other is cursor else next(_unfinished(other, key, end), None)
            if older is not None:
                position = at.position(other, older)
                return {
                    "reason": "behind-growth",
                    "text": f"the topic got more partitions, and {position}, an older message of "
                    "its key, lies in the partition the key had before: it must be done first",
                    "behind": position,
                    "head": (other, older),
                }
    return None


def _key(case: Case) -> int:
    if case.cursor.subscription.policy.kind is not Kind.KEY_SHARED:
        return 0
    return at.trait(case.cursor, "hashes", case.offset)


def _unfinished(cursor: Cursor, key: int, end: int) -> Iterator[int]:
    """Unfinished messages of a key below `end`, oldest first."""
    for low, high in cursor.done.gaps(cursor.done.floor, end):
        for start in range(low, high, _PART):
            offsets = np.arange(start, min(high, start + _PART), dtype=np.int64)
            hashes = at.traits_of(cursor, "hashes", offsets)
            yield from offsets[hashes == np.uint64(key)].tolist()


def _older(case: Case, key: int) -> Iterator[int]:
    """Those of them that keep this one back: not what is out, nor what has a time of its own."""
    cursor = case.cursor
    for offset in _unfinished(cursor, key, case.offset):
        is_due = at.trait(cursor, "due", offset) <= case.wall
        if (
            at.is_backing_off(cursor, offset)
            or at.is_coming_back(cursor, offset)
            or (is_due and at.is_waiting(cursor, offset))
        ):
            yield offset


# -- who holds the key ---------------------------------------------------------------------------


def key_held(case: Case) -> Finding | None:
    """Its key is to move to another consumer, and something of it is still out."""
    subscription = case.cursor.subscription
    keys = subscription.keys
    if keys is None or subscription.policy.kind is not Kind.KEY_SHARED:
        return None
    slot = _slot(case.cursor, case.offset)
    holder, target = int(keys.holder[slot]), int(keys.target[slot])
    if holder in (0, target):
        return None
    held, until = _out_of(keys, subscription, slot)
    from_name, to_name = _name(keys, subscription, holder), _name(keys, subscription, target)
    return {
        "reason": "key-held",
        "text": f"its key is with consumer {from_name!r}, which is at work on {at.messages(held)} "
        f"of its slot, and goes to {to_name!r} when that is done: see what {from_name!r} does",
        "consumer": from_name,
        "moving_to": to_name,
        "out": held,
        **({} if until is None else {"until": (case.wall + max(0, until - case.now)) / 1000}),
    }


def at_holder(case: Case) -> Finding | None:
    """Its key has a consumer, which takes others first, or nothing."""
    cursor, subscription = case.cursor, case.cursor.subscription
    keys = subscription.keys
    if keys is None or subscription.policy.kind is not Kind.KEY_SHARED:
        return None
    number = int(keys.holder[_slot(cursor, case.offset)])
    holder = next((c for c in subscription.consumers or () if c.id == number), None)
    if holder is None or holder.free > 0:
        return None
    row = consumer_row(holder)
    if row["state"] in {"isolated", "saving"}:
        reason = "behind-isolated"
        text = (
            f"its key is with consumer {holder.name!r}, which is kept for a message that was lost "
            "twice and must be alone; let that one finish"
        )
    else:
        found = _before(case, _waiting_for(cursor, keys, holder, case.wall), holder)
        if found is not None:
            return found
        reason = "no-credit"
        text = (
            f"its key is with consumer {holder.name!r}, which has {holder.outstanding} of "
            f"{holder.credit} messages outstanding; ack faster, raise its credit, or add consumers"
        )
    return {"reason": reason, "text": text, "consumers": [row]}


def _before(case: Case, offsets: Offsets, holder: Consumer) -> Finding | None:
    """Others that the consumer gets first: a key stands where its oldest message does."""
    if case.is_head:
        return None
    levels = at.traits_of(case.cursor, "levels", offsets)
    own = at.trait(case.cursor, "levels", case.offset)
    oldest = _oldest_of_keys(case.cursor, offsets)
    higher = oldest & (levels > own)
    if higher.any():
        top = int(levels[higher].max())
        return behind_priority(
            int(higher.sum()), own, top, (case.cursor, int(offsets[higher & (levels == top)][0]))
        )
    is_even = not (levels != own).any()
    earlier = offsets[(is_even | (oldest & (levels == own))) & (offsets < case.offset)]
    if not len(earlier):
        return None
    return {
        "reason": "behind-others",
        "text": f"it stands behind {at.messages(len(earlier))} for consumer {holder.name!r}",
        "ahead": len(earlier),
        "head": (case.cursor, int(earlier[0])),
    }


def _oldest_of_keys(cursor: Cursor, offsets: Offsets) -> Numbers:
    """True for the first message of each key, and for each without one."""
    hashes = at.traits_of(cursor, "hashes", offsets)
    found: Numbers = hashes == 0
    found[np.unique(hashes, return_index=True)[1]] = True
    return found


def first_for(subscription: Subscription, name: str, wall: int) -> tuple[Cursor, int] | None:
    """The oldest waiting message whose key is with a consumer, or comes to it."""
    keys = subscription.keys
    consumer = next((c for c in subscription.consumers or () if c.name == name), None)
    if keys is None or consumer is None:
        return None
    for column in (keys.holder, keys.target):
        for cursor in subscription.cursors:
            offsets = waiting_offsets(cursor, wall)
            mine = offsets[column[slots_of(cursor, offsets)] == consumer.id]
            if len(mine):
                return cursor, int(mine[0])
    return None


def _waiting_for(cursor: Cursor, keys: Keys, consumer: Consumer, wall: int) -> Offsets:
    """What a consumer could get of a partition if it had credit."""
    offsets = waiting_offsets(cursor, wall)
    slots = slots_of(cursor, offsets)
    is_fenced = keys.is_fenced
    blocked = Blocked(keys, cursor).apply(at.traits_of(cursor, "hashes", offsets), offsets)
    keys.is_fenced = is_fenced
    is_mine = (keys.holder[slots] == consumer.id) & (keys.target[slots] == consumer.id)
    found: Offsets = offsets[is_mine & ~blocked]
    return found


def _slot(cursor: Cursor, offset: int) -> int:
    return int(slots_of(cursor, np.array([offset], dtype=np.int64))[0])


def _name(keys: Keys, subscription: Subscription, number: int) -> str:
    known = [*keys.members, *(subscription.consumers or ())]
    return next((each.name for each in known if each.id == number), "one that left")


def _out_of(keys: Keys, subscription: Subscription, slot: int) -> tuple[int, int | None]:
    """How many messages of a slot are out or being written down, and until when at most."""
    count, until = 0, []
    for consumer in subscription.consumers or ():
        for lease in consumer.leases.values():
            offsets = open_offsets(lease)
            mine = offsets[slots_of(lease.cursor, offsets) == slot]
            count += len(mine)
            until += [consumer.away_until or at.lease_until(lease, int(o)) for o in mine]
    for record in keys.decided.values():
        cursor = subscription.cursors[record.partition]
        count += int((slots_of(cursor, at.offsets_of(record)) == slot).sum())
    for ghost in keys.ghosts:
        number = int((ghost.slots == slot).sum())
        count += number
        until += [ghost.deadline] * bool(number)
    return count, max(until, default=None)
