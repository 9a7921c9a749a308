"""Dead letters: moving a hopeless message aside with its story, and sending it back."""

from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.batch import Batch, encode_columns
from penstock.batch.frame import Frame, gather
from penstock.delivery.admin import decide_create_topic
from penstock.delivery.apply import NOBODY, REJECTED
from penstock.delivery.settle import merge
from penstock.delivery.state import Cursor, Partition, State, Subscription
from penstock.vocabulary import names
from penstock.vocabulary.errors import DeadLetterFull
from penstock.vocabulary.policy import TopicPolicy
from penstock.vocabulary.records import Outcome, Published, Record, Removed, Settled, Unit

MARK: Final = "penstock-dead-"
"""Headers that tell a dead letter's story start with this."""


def decide_dead(state: State, cursor: Cursor, frames: Sequence[Frame], now_wall: int) -> Unit:
    """One unit: durable in the dead-letter topic, released in the source.

    Raises DeadLetterFull when the dead-letter topic is at its cap, InvalidName when there can be
    none (an older version let such a subscription be made); the messages then wait.
    """
    subscription = cursor.subscription
    names.check_dead(subscription.topic.name, subscription.name)
    offsets, columns = gather(frames)
    before = columns.attempts or [0] * len(offsets)
    attempts = [n + cursor.trial(offset).attempt for n, offset in zip(before, offsets, strict=True)]
    stories = [
        _story(cursor, offset, tried, now_wall)
        for offset, tried in zip(offsets, attempts, strict=True)
    ]
    old = columns.headers or [None] * len(offsets)
    columns.headers = [{**(kept or {}), **story} for kept, story in zip(old, stories, strict=True)]
    columns.attempts = attempts
    columns.deliver_at = columns.expires_at = None
    batch = encode_columns(columns)
    parts: list[Record] = []
    partition = _dead_partition(state, subscription, len(batch), now_wall, parts)
    parts.append(_store(partition, batch, len(offsets), now_wall, 0))
    ranges = merge([(offset, offset + 1) for offset in offsets])
    parts.append(
        Settled(
            subscription.topic.id, cursor.partition.index, subscription.id, Outcome.DEAD, ranges
        )
    )
    return Unit(tuple(parts))


def _story(cursor: Cursor, offset: int, attempts: int, now_wall: int) -> dict[str, str]:
    trial = cursor.trial(offset)
    reason, consumer = (cursor.reasons or {}).get(offset, ("", ""))
    why = "rejected" if trial.counted >= REJECTED else "max_attempts"
    return {
        MARK + "why": why,
        MARK + "reason": reason,
        MARK + "topic": cursor.partition.topic.name,
        MARK + "subscription": cursor.subscription.name,
        MARK + "partition": str(cursor.partition.index),
        MARK + "offset": str(offset),
        MARK + "consumer": consumer,
        MARK + "attempts": str(attempts),
        MARK + "at": str(now_wall),
    }


def _dead_partition(
    state: State, subscription: Subscription, size: int, now_wall: int, parts: list[Record]
) -> Partition:
    topic = subscription.topic
    name = names.dead_topic(topic.name, subscription.name)
    cap = subscription.policy.dead_bytes_max
    dead = state.names.get(name)
    held = sum(partition.held_bytes for partition in dead.partitions) if dead else 0
    if held + size > cap:
        raise DeadLetterFull(
            f"dead-letter topic {name!r} holds {held} bytes and may hold {cap}, and {size} more "
            "are to go there: the failed messages wait in their subscription; "
            + ("redrive or purge some dead letters, or " if held else "")
            + f"raise dead_bytes_max of subscription {subscription.name!r} to {held + size} or more"
        )
    if dead is not None and dead.is_removing:
        raise DeadLetterFull(f"dead-letter topic {name!r} is being deleted: what failed waits")
    if dead is None:
        policy = TopicPolicy(retain_s=None, dead_of=f"{topic.name}\n{subscription.name}")
        record = decide_create_topic(
            state, name, 1, policy, now_wall, is_explicit=True, is_reserved=True
        )
        assert record is not None
        parts.append(record)
        dead = state.names[name]
    return dead.partitions[0]


def _store(partition: Partition, batch: bytes, count: int, now_wall: int, target: int) -> Published:
    base = partition.reserved
    partition.reserved = base + count
    return Published(
        partition.topic.id,
        partition.index,
        base,
        count,
        NOBODY,
        0,
        0,
        now_wall,
        batch,
        None,
        target,
    )


def decide_redrive(
    subscription: Subscription, dead: Partition, frames: Sequence[Frame], now_wall: int
) -> Unit:
    """One unit: back to the subscription it came from only, and gone from the dead letters."""
    offsets = [offset for frame in frames for offset in frame.offsets]
    parts: list[Record] = [
        _sent_back(subscription, home, part, now_wall)
        for home, part in _by_home(subscription, dead, frames).items()
    ]
    ranges = merge([(offset, offset + 1) for offset in offsets])
    return Unit((*parts, Removed(dead.topic.id, dead.index, ranges)))


def _by_home(
    subscription: Subscription, dead: Partition, frames: Sequence[Frame]
) -> dict[int, list[Frame]]:
    """The frames by the partition their messages came from, which their story tells."""
    count = len(subscription.topic.partitions)
    found: dict[int, list[Frame]] = {}
    for frame in frames:
        headers = Batch(frame.batch).headers
        places: dict[int, list[int]] = {}
        for at, index in enumerate(frame.indexes):
            told = ((headers[index] if headers is not None else None) or {}).get(MARK + "partition")
            home = (int(told) if told is not None else dead.index) % count
            places.setdefault(home, []).append(at)
        for home, rows in places.items():
            part = msgspec.structs.replace(
                frame,
                offsets=[frame.offsets[at] for at in rows],
                indexes=[frame.indexes[at] for at in rows],
            )
            found.setdefault(home, []).append(part)
    return found


def _sent_back(
    subscription: Subscription, home: int, frames: list[Frame], now_wall: int
) -> Published:
    offsets, columns = gather(frames)
    if columns.headers is not None:
        columns.headers = [
            {k: v for k, v in (kept or {}).items() if not k.startswith(MARK)} or None
            for kept in columns.headers
        ]
        if not any(columns.headers):
            columns.headers = None
    batch = encode_columns(columns)
    partition = subscription.topic.partitions[home]
    return _store(partition, batch, len(offsets), now_wall, subscription.id)
