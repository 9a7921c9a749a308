"""Creating, changing and deleting topics and subscriptions: what is allowed, and from where."""

from typing import Final

import msgspec

from penstock.delivery import members
from penstock.delivery.matching import patterns_of
from penstock.delivery.reader import check_topic_unplanned, check_unplanned
from penstock.delivery.registry import add_subscription, add_topic, start_cursors
from penstock.delivery.state import State, Subscription, Topic
from penstock.vocabulary import limits, names
from penstock.vocabulary.errors import (
    InvalidArgument,
    PositionNotHeld,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicExists,
    TopicInUse,
    UnknownSubscription,
    UnknownTopic,
    Unsupported,
)
from penstock.vocabulary.filters import is_pattern
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import OnDuplicate, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import (
    SubscriptionAltered,
    SubscriptionCreated,
    SubscriptionDeleted,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)

KINDS: Final = (Kind.SHARED, Kind.KEY_SHARED, Kind.READER, Kind.MULTICAST)


def find_topic(state: State, name: str) -> Topic:
    """The topic of this name. Raises UnknownTopic."""
    topic = state.names.get(name)
    if topic is None or topic.is_removing:
        hint = _did_you_mean(name, list(state.names), "create it first, or publish to it")
        if is_pattern(name):
            hint = "this is a pattern, and here one topic is meant: name one that matches it"
        raise UnknownTopic(f"there is no topic {name!r}; {hint}")
    return topic


def find_subscription(topic: Topic, name: str) -> Subscription:
    """The subscription of this name. Raises UnknownSubscription."""
    found = members.find(topic, name)
    if found is None or found.is_removing:
        known = sorted([*(topic.subscriptions or {}), *(topic.multicasts or {})])
        hint = _did_you_mean(name, known, "create it first, or subscribe with this name")
        raise UnknownSubscription(f"topic {topic.name!r} has no subscription {name!r}; {hint}")
    return found


def _did_you_mean(name: str, known: list[str], otherwise: str) -> str:
    # A short prefix match is enough here; the command line does the clever comparing.
    close = sorted(other for other in known if other[:3] == name[:3])[:3]
    if close:
        return f"did you mean {' or '.join(repr(other) for other in close)}?"
    return otherwise


def check_topic_policy(policy: TopicPolicy) -> None:
    """Raises InvalidArgument or Unsupported when a value makes no sense here."""
    if policy.durability not in (Durability.SYNCED, Durability.WRITTEN):
        raise InvalidArgument(
            f"durability {str(policy.durability)!r} is not one a topic can have here; "
            "use 'synced' or 'written'"
        )
    if policy.retain_s is not None and not 0 <= policy.retain_s < float("inf"):
        raise InvalidArgument(f"retain_s must be 0 or more seconds, not {policy.retain_s}")
    if policy.on_duplicate not in list(OnDuplicate):
        raise InvalidArgument(
            f"on_duplicate must be 'drop' or 'replace', not {policy.on_duplicate!r:.80}"
        )
    if not 0 <= policy.replay_s < float("inf"):
        raise InvalidArgument(f"replay_s must be 0 or more seconds, not {policy.replay_s}")
    if not 0 <= policy.keep_last <= limits.KEEP_LAST_MAX:
        raise InvalidArgument(f"keep_last must be 0…{limits.KEEP_LAST_MAX}, not {policy.keep_last}")
    if policy.max_age_s is not None and not 0 < policy.max_age_s < float("inf"):
        raise InvalidArgument(f"max_age_s must be above 0 seconds, or None, not {policy.max_age_s}")
    if policy.max_bytes is not None and policy.max_bytes < 1:
        raise InvalidArgument(f"max_bytes must be 1 or more, or None, not {policy.max_bytes}")
    if policy.max_bytes_refuse is not None:
        raise Unsupported(
            "max_bytes_refuse is for nats: URLs only: leave it out; max_bytes here removes "
            "the oldest messages, and dead_bytes_max of a subscription caps its dead letters"
        )


def check_subscription_policy(policy: SubscriptionPolicy) -> None:
    """Raises InvalidArgument or Unsupported when a value makes no sense."""
    if policy.kind not in KINDS:
        raise Unsupported(
            f"subscription kind {policy.kind.value!r} is not available here yet; use "
            + " or ".join(repr(kind.value) for kind in KINDS)
        )
    if policy.qos not in (0, 1, 2):
        raise InvalidArgument(f"qos must be 0, 1 or 2, not {policy.qos}")
    if not 0.01 <= policy.lease_s <= 24 * 3600:  # noqa: PLR2004 - a range in seconds
        raise InvalidArgument(f"lease_s must be between 0.01 and 86400, not {policy.lease_s}")
    retry = policy.retry
    if retry.max_attempts is not None and retry.max_attempts < 1:
        raise InvalidArgument(f"max_attempts must be 1 or more, or None, not {retry.max_attempts}")
    if not 0 <= retry.first_s <= retry.max_s < float("inf"):
        raise InvalidArgument("retry needs 0 <= first_s <= max_s, both finite")
    if policy.dead_bytes_max < 0:
        raise InvalidArgument(f"dead_bytes_max must be 0 or more, not {policy.dead_bytes_max}")


def check_dead(topic_name: str, name: str, policy: SubscriptionPolicy) -> None:
    """Raises InvalidName for a subscription whose failed messages would have no place to go."""
    can_fail = policy.kind in (Kind.SHARED, Kind.KEY_SHARED) and policy.qos > 0
    if can_fail and not names.is_dead_topic(topic_name):
        names.check_dead(topic_name, name)


def decide_create_topic(
    state: State, name: str, partitions: int, policy: TopicPolicy, now_wall: int, *,
    is_explicit: bool, is_reserved: bool = False,
) -> TopicCreated | None:  # fmt: skip
    """A record to create the topic, or None when it exists as asked.

    Raises TopicExists, and InvalidName also when a pattern it matches could have no dead letters.
    """
    names.check_topic(name, reserved=is_reserved)
    if not 1 <= partitions <= limits.PARTITIONS_MAX:
        raise InvalidArgument(f"partitions must be 1…{limits.PARTITIONS_MAX}, not {partitions}")
    check_topic_policy(policy)
    known = state.names.get(name)
    if known is not None:
        if known.is_removing:
            raise TopicInUse(f"topic {name!r} is being deleted; try again in a moment")
        if is_explicit and (len(known.map) != partitions or known.policy != policy):
            raise TopicExists(
                f"topic {name!r} exists with {len(known.map)} partition(s) and other settings; "
                "use alter_topic to change its policy or to add partitions"
            )
        return None
    for pattern in patterns_of(state, name) if state.patterns else ():
        check_dead(name, pattern.name, pattern.policy)
    record = TopicCreated(state.next_topic_id, name, partitions, policy, now_wall)
    add_topic(state, record)
    return record


def decide_alter_topic(topic: Topic, policy: TopicPolicy, now_wall: int) -> TopicAltered | None:
    """A record for the new policy, or None when nothing changes."""
    check_topic_policy(policy)
    if policy.on_duplicate != topic.policy.on_duplicate:
        raise InvalidArgument(
            f"on_duplicate of topic {topic.name!r} is {str(topic.policy.on_duplicate)!r} and "
            "cannot change: older ids are not known; create another topic"
        )
    return None if policy == topic.policy else TopicAltered(topic.id, policy, now_wall)


def decide_delete_topic(state: State, topic: Topic) -> TopicDeleted:
    """Raises TopicInUse while consumers are connected or dead letters would be orphaned."""
    for subscription in (topic.subscriptions or {}).values():
        if subscription.connected:
            raise TopicInUse(
                f"topic {topic.name!r} has consumers on subscription {subscription.name!r}; "
                "close them first"
            )
        check_topic_unplanned(subscription)
        dead = state.names.get(names.dead_topic(topic.name, subscription.name))
        if dead is not None and any(partition.held for partition in dead.partitions):
            raise TopicInUse(
                f"topic {topic.name!r} has dead letters in {dead.name!r}; "
                "redrive or purge them first"
            )
    topic.is_removing = True
    return TopicDeleted(topic.id)


def decide_create_subscription(
    state: State, topic: Topic, name: str, policy: SubscriptionPolicy | None,
    starts: tuple[int, ...], now_wall: int, *, is_explicit: bool,
) -> SubscriptionCreated | None:  # fmt: skip
    """A record to create it, or None when it exists as asked.

    Raises InvalidName, SubscriptionConflict, SubscriptionInUse, TopicInUse.
    """
    names.check_subscription(name)
    check_subscription_policy(policy or SubscriptionPolicy())
    if topic.is_removing:
        raise TopicInUse(f"topic {topic.name!r} is being deleted; try again in a moment")
    known = members.find(topic, name)
    if known is not None:
        if known.is_removing:
            raise SubscriptionInUse(
                f"subscription {name!r} is being deleted; try again in a moment"
            )
        _check_same(known, policy, is_explicit=is_explicit)
        return None
    check_dead(topic.name, name, policy or SubscriptionPolicy())
    record = SubscriptionCreated(
        topic.id, state.next_subscription_id, name, starts, policy or SubscriptionPolicy(), now_wall
    )
    add_subscription(state, record, is_durable=True)
    return record


def _check_same(
    known: Subscription, policy: SubscriptionPolicy | None, *, is_explicit: bool
) -> None:
    if policy is None:
        return
    if policy.kind is not known.policy.kind or policy.qos != known.policy.qos:
        raise _other_kind(known, policy)
    if is_explicit and policy != known.policy:
        raise SubscriptionConflict(
            f"subscription {known.name!r} on topic {known.topic.name!r} exists with another "
            "policy; use alter_subscription to change it"
        )


def _other_kind(known: Subscription, policy: SubscriptionPolicy) -> SubscriptionConflict:
    return SubscriptionConflict(
        f"subscription {known.name!r} on topic {known.topic.name!r} exists with kind "
        f"{known.policy.kind.value!r} and qos {known.policy.qos}, not {policy.kind.value!r} and "
        f"{policy.qos}, and these cannot change; ask for what it has, or use another name"
    )


def make_ephemeral(
    state: State, topic: Topic, policy: SubscriptionPolicy, starts: tuple[int, ...], now_wall: int
) -> Subscription:
    """A subscription that holds nothing and ends with its consumer; never written."""
    check_subscription_policy(policy)
    number = state.next_subscription_id
    record = SubscriptionCreated(topic.id, number, f"\0{number}", starts, policy, now_wall)
    subscription = add_subscription(state, record, is_durable=False)
    subscription.is_pending = False
    start_cursors(subscription, starts)
    return subscription


def decide_alter_subscription(
    subscription: Subscription, policy: SubscriptionPolicy
) -> SubscriptionAltered | None:
    """A record for the new policy. Raises SubscriptionConflict when the kind would change."""
    check_subscription_policy(policy)
    if policy.kind is not subscription.policy.kind or policy.qos != subscription.policy.qos:
        raise _other_kind(subscription, policy)
    if policy == subscription.policy:
        return None
    return SubscriptionAltered(subscription.topic.id, subscription.id, policy)


def decide_delete_subscription(subscription: Subscription) -> SubscriptionDeleted:
    """Raises SubscriptionInUse while consumers are connected or a reader has a planned range."""
    if subscription.connected:
        raise SubscriptionInUse(
            f"subscription {subscription.name!r} has {len(subscription.connected)} consumer(s); "
            "close them first"
        )
    check_unplanned(subscription)
    subscription.is_removing = True
    return SubscriptionDeleted(subscription.topic.id, subscription.id)


def earliest(topic: Topic) -> tuple[int, ...]:
    """First offset of each partition that is still held or retained."""
    return tuple(
        next((low for low, _ in p.released.gaps(p.released.floor, p.next_offset)), p.next_offset)
        for p in topic.partitions
    )


def latest(topic: Topic) -> tuple[int, ...]:
    """The offset each partition's next publish gets."""
    return tuple(partition.reserved for partition in topic.partitions)


def at_position(topic: Topic, partition: int, offset: int) -> tuple[int, ...]:
    """Starts at one offset of one partition, at the latest of the others.

    Raises PositionNotHeld when the offset lies below what is held or beyond the end.
    """
    if not 0 <= partition < len(topic.partitions):
        raise InvalidArgument(
            f"topic {topic.name!r} has no partition {partition}: it has "
            f"{len(topic.partitions)}, counted from 0"
        )
    lowest = earliest(topic)[partition]
    highest = topic.partitions[partition].reserved
    if not lowest <= offset <= highest:
        raise PositionNotHeld(
            f"offset {offset} of topic {topic.name!r} partition {partition} is not held; the "
            f"lowest held position is {partition}:{lowest}, the end is {partition}:{highest}; "
            "'earliest' and 'latest' are always held",
            lowest=f"{partition}:{lowest}",
        )
    starts = list(latest(topic))
    starts[partition] = offset
    return tuple(starts)


def describe(topic: Topic) -> dict[str, object]:
    """A topic for people and machines."""
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "messages": sum(p.held for p in topic.partitions),
        "bytes": sum(p.held_bytes for p in topic.partitions),
        "published": sum(p.next_offset for p in topic.partitions),
        "ends": [p.next_offset for p in topic.partitions],
        "subscriptions": [s.name for s in members.listed(topic)],
        "policy": msgspec.to_builtins(topic.policy),
        "created_at": topic.created_at / 1000,
    }
