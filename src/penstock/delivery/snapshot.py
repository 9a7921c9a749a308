"""The durable state of a topic ↔ plain lists, one piece of a snapshot each."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from penstock.delivery import members
from penstock.delivery.growth import growth_state, restore_growth
from penstock.delivery.holding import dump_taken, load_taken
from penstock.delivery.keeping import Keeping
from penstock.delivery.ranges import RangeMap, RangeSet
from penstock.delivery.reader import dump_reader, load_reader
from penstock.delivery.registry import add_subscription, add_topic
from penstock.delivery.setbacks import dump_setbacks, load_setbacks
from penstock.delivery.sizes import Sizes
from penstock.delivery.state import Cursor, Partition, Publisher, State, Subscription, Topic
from penstock.delivery.tokens import dump_finished, load_finished
from penstock.delivery.traits import dump_traits, load_traits
from penstock.delivery.unique import dump_ids, load_ids
from penstock.delivery.units import dump_units, load_units
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import SubscriptionCreated, TopicCreated


class Extra(NamedTuple):
    """A part of the state that few objects have, known by a name: absent when `dump` gives None."""

    name: str
    dump: Callable[[Any], Any]
    load: Callable[[Any, Any], None]


TOPIC_EXTRAS: Final[tuple[Extra, ...]] = (
    Extra("multicasts", members.dump_parents, members.load_parents),
    Extra("growth", growth_state, restore_growth),
)
PARTITION_EXTRAS: Final[tuple[Extra, ...]] = (
    Extra("traits", dump_traits, load_traits),
    Extra("ids", dump_ids, load_ids),
    Extra("taken", dump_taken, load_taken),
    Extra("setbacks", dump_setbacks, load_setbacks),
    Extra(
        "keeping",
        lambda partition: partition.keeping and partition.keeping.state(),
        lambda partition, found: setattr(partition, "keeping", Keeping.restored(found)),
    ),
    Extra(
        "sizes",
        lambda partition: partition.sizes and partition.sizes.state(),
        lambda partition, found: setattr(partition, "sizes", Sizes.restored(found)),
    ),
)
SUBSCRIPTION_EXTRAS: Final[tuple[Extra, ...]] = (
    Extra("reader", dump_reader, load_reader),
    Extra("seen_at", members.dump_seen, members.load_seen),
)
CURSOR_EXTRAS: Final[tuple[Extra, ...]] = (
    Extra("finished", dump_finished, load_finished),
    Extra(
        "begin",
        lambda cursor: cursor.begin or None,
        lambda cursor, found: setattr(cursor, "begin", found),
    ),
    Extra(
        "voided",
        lambda cursor: cursor.voided or None,
        lambda cursor, found: setattr(cursor, "voided", found),
    ),
    Extra(
        "otherwise",
        lambda cursor: cursor.otherwise.items() if cursor.otherwise else None,
        lambda cursor, found: setattr(cursor, "otherwise", RangeMap.restored(found)),
    ),
)
STATE_EXTRAS: Final[tuple[Extra, ...]] = (Extra("units", dump_units, load_units),)


def _dump(extras: tuple[Extra, ...], owner: object) -> dict[str, Any] | None:
    found = {extra.name: value for extra in extras if (value := extra.dump(owner)) is not None}
    return found or None


def _load(extras: tuple[Extra, ...], owner: object, found: dict[str, Any] | None) -> None:
    for extra in extras:
        if found is not None and extra.name in found:
            extra.load(owner, found[extra.name])


def state_extras(state: State) -> dict[str, Any] | None:
    """What belongs to no topic."""
    return _dump(STATE_EXTRAS, state)


def restore_state_extras(state: State, found: dict[str, Any] | None) -> None:
    """From a snapshot."""
    _load(STATE_EXTRAS, state, found)


def topic_state(topic: Topic) -> list[Any]:
    """Everything durable about a topic, its partitions and its subscriptions."""
    return [
        topic.id,
        topic.name,
        topic.policy,
        topic.created_at,
        topic.applied,
        [_partition_state(partition) for partition in topic.partitions],
        [_subscription_state(subscription) for subscription in topic.durable_subscriptions()],
        _dump(TOPIC_EXTRAS, topic),
    ]


def _partition_state(partition: Partition) -> list[Any]:
    publishers = [
        (key, p.epoch, p.last, p.first, p.base, p.used_at)
        for key, known in (partition.publishers or {}).items()
        if (p := known.durable()) is not None
    ]
    return [
        partition.next_offset,
        partition.released.state(),
        partition.retained,
        publishers,
        partition.lost.state() if partition.lost is not None else None,
        partition.held,
        partition.held_bytes,
        partition.aimed.state() if partition.aimed is not None else None,
        _dump(PARTITION_EXTRAS, partition),
    ]


def _subscription_state(subscription: Subscription) -> list[Any]:
    return [
        subscription.id,
        subscription.name,
        subscription.policy,
        subscription.created_at,
        [_cursor_state(cursor) for cursor in subscription.cursors],
        _dump(SUBSCRIPTION_EXTRAS, subscription),
    ]


def _cursor_state(cursor: Cursor) -> list[Any]:
    return [
        cursor.done.state(),
        cursor.trials.items() if cursor.trials else None,
        [row[1:] for row in cursor.delayed] if cursor.delayed else None,
        cursor.reasons or None,
        cursor.doomed.state() if cursor.doomed is not None else None,
        cursor.attached,
        cursor.acked,
        cursor.dead,
        cursor.expired,
        cursor.dropped,
        _dump(CURSOR_EXTRAS, cursor),
    ]


def restore_topic(state: State, piece: list[Any], now: int, wall: int) -> Topic:
    """Puts a topic from a snapshot into the state."""
    topic_id, name, policy, created_at, applied, partitions, subscriptions, extras = piece
    record = TopicCreated(
        topic_id, name, len(partitions), msgspec.convert(policy, TopicPolicy), created_at
    )
    topic = add_topic(state, record)
    topic.is_pending = False
    topic.applied = applied
    for partition, row in zip(topic.partitions, partitions, strict=True):
        _restore_partition(partition, row)
    for row in subscriptions:
        _restore_subscription(state, topic, row, now, wall)
    _load(TOPIC_EXTRAS, topic, extras)
    members.enter_parents(state, topic)
    return topic


def _restore_partition(partition: Partition, row: list[Any]) -> None:
    next_offset, released, retained, publishers, lost, held, held_bytes, aimed, extras = row
    partition.next_offset = partition.reserved = next_offset
    partition.released = RangeSet.restored(released)
    partition.retained = retained
    for key, epoch, last, first, base, used_at in publishers:
        publisher = Publisher(epoch, used_at)
        publisher.last = publisher.decided = last
        publisher.first, publisher.base = first, base
        if partition.publishers is None:
            partition.publishers = {}
        partition.publishers[key] = publisher
    partition.lost = None if lost is None else RangeSet.restored(lost)
    partition.held, partition.held_bytes = held, held_bytes
    partition.aimed = None if aimed is None else RangeSet.restored(aimed)
    _load(PARTITION_EXTRAS, partition, extras)
    if partition.sizes is None and held:
        _spread_bytes(partition)


def _spread_bytes(partition: Partition) -> None:
    """Older snapshots know only what all held messages take together: each counts the same."""
    start, end = partition.released.floor, partition.next_offset
    each = partition.held_bytes // partition.held
    partition.held_bytes = each * partition.held
    partition.sizes = Sizes(start)
    partition.sizes.add(start, end, each * (end - start), partition.released)


def _restore_subscription(state: State, topic: Topic, row: list[Any], now: int, wall: int) -> None:
    subscription_id, name, policy, created_at, cursors, extras = row
    record = SubscriptionCreated(
        topic.id, subscription_id, name, (), msgspec.convert(policy, SubscriptionPolicy), created_at
    )
    subscription = add_subscription(state, record, is_durable=True)
    subscription.is_pending = False
    for partition, fields in zip(topic.partitions, cursors, strict=True):
        cursor = Cursor(subscription, partition, 0)
        _restore_cursor(cursor, fields, now, wall)
        subscription.cursors.append(cursor)
    _load(SUBSCRIPTION_EXTRAS, subscription, extras)


def _restore_cursor(cursor: Cursor, fields: list[Any], now: int, wall: int) -> None:
    done, trials, delayed, reasons, doomed = fields[:5]
    cursor.done = RangeSet.restored(done)
    cursor.trials = RangeMap.restored(trials) if trials else None
    if delayed:
        cursor.delayed = sorted(
            (now + min(max(due_wall - wall, 0), delay), start, end, due_wall, delay)
            for start, end, due_wall, delay in delayed
        )
    if reasons:
        cursor.reasons = {offset: (reason, who) for offset, (reason, who) in reasons.items()}
    cursor.doomed = RangeSet.restored(doomed) if doomed else None
    cursor.attached, cursor.acked, cursor.dead, cursor.expired, cursor.dropped = fields[5:10]
    _load(CURSOR_EXTRAS, cursor, fields[10])
