"""Which topics and subscriptions there are: what their records do to the tables."""

from penstock.delivery import members
from penstock.delivery.effects import Effects
from penstock.delivery.holding import keep_again, release, take_over, wait_again
from penstock.delivery.policies import begin_keeping, change_policy
from penstock.delivery.state import Cursor, Partition, State, Subscription, Topic
from penstock.vocabulary import records as r
from penstock.vocabulary.message import Durability


def apply_topic_created(state: State, record: r.TopicCreated, _effects: Effects) -> None:
    """A topic exists from here on."""
    topic = state.topics.get(record.topic_id)
    if topic is None:
        topic = add_topic(state, record)
    topic.is_pending = False


def add_topic(state: State, record: r.TopicCreated) -> Topic:
    """Puts a topic into the tables."""
    policy = state.share(record.policy)
    topic = Topic(record.topic_id, record.name, policy, record.created_at)
    topic.partitions += [Partition(topic, index) for index in range(record.partitions)]
    begin_keeping(topic)
    state.topics[topic.id] = topic
    state.names[topic.name] = topic
    state.written_topics += topic.policy.durability is Durability.WRITTEN
    state.next_topic_id = max(state.next_topic_id, topic.id + 1)
    return topic


def apply_topic_altered(state: State, record: r.TopicAltered, effects: Effects) -> None:
    """A topic has a new policy."""
    topic = state.topics[record.topic_id]
    state.written_topics -= topic.policy.durability is Durability.WRITTEN
    state.written_topics += record.policy.durability is Durability.WRITTEN
    change_policy(topic, record.policy, record.altered_at, effects)


def apply_topic_deleted(state: State, record: r.TopicDeleted, effects: Effects) -> None:
    """A topic is gone, with everything in it."""
    topic = state.topics.pop(record.topic_id)
    state.names.pop(topic.name, None)
    state.written_topics -= topic.policy.durability is Durability.WRITTEN
    for subscription in list((topic.subscriptions or {}).values()):
        state.subscriptions.pop(subscription.id, None)
        effects.closed.append(subscription)
    members.forget_parents(state, topic)
    effects.forgotten.extend(partition.key for partition in topic.partitions)


def apply_subscription_created(
    state: State, record: r.SubscriptionCreated, effects: Effects
) -> None:
    """A durable subscription exists from here on."""
    topic = state.topics[record.topic_id]
    subscription = state.subscriptions.get(record.subscription_id)
    if subscription is None:
        subscription = add_subscription(state, record, is_durable=True)
    subscription.is_pending = False
    if subscription.is_parent:
        return
    start_cursors(subscription, record.starts)
    for cursor in subscription.cursors:
        partition, floor = cursor.partition, cursor.done.floor
        take_over(partition, floor, partition.next_offset)
        wait_again(partition, floor, partition.next_offset, effects)
    assert topic is subscription.topic
    effects.dirty[subscription] = None


def add_subscription(
    state: State, record: r.SubscriptionCreated, *, is_durable: bool
) -> Subscription:
    """Puts a subscription into the tables."""
    topic = state.topics[record.topic_id]
    name = state.share(record.name)
    subscription = Subscription(
        topic,
        record.subscription_id,
        name,
        state.share(record.policy),
        record.created_at,
        is_durable=is_durable,
    )
    if subscription.is_parent:
        members.add_parent(state, subscription)
    else:
        if topic.subscriptions is None:
            topic.subscriptions = {}
        topic.subscriptions[name] = subscription
    state.subscriptions[subscription.id] = subscription
    state.next_subscription_id = max(state.next_subscription_id, subscription.id + 1)
    return subscription


def start_cursors(subscription: Subscription, starts: tuple[int, ...]) -> None:
    """Gives a subscription its cursors: what is released or for another is not its business."""
    subscription.cursors = []
    # Partitions added since the starts were chosen are covered from their beginning.
    partitions = subscription.topic.partitions
    starts += (0,) * (len(partitions) - len(starts))
    for partition, start in zip(partitions, starts, strict=True):
        cursor = Cursor(subscription, partition, start)
        for gone in (partition.released, partition.aimed):
            for low, high in gone.inside(start, partition.next_offset) if gone else ():
                cursor.done.add(low, high)
        cursor.attached = cursor.done.missing(start, partition.next_offset)
        subscription.cursors.append(cursor)


def apply_subscription_altered(
    state: State, record: r.SubscriptionAltered, effects: Effects
) -> None:
    """A subscription has a new policy."""
    subscription = state.subscriptions[record.subscription_id]
    subscription.policy = record.policy
    effects.dirty[subscription] = None


def apply_subscription_deleted(
    state: State, record: r.SubscriptionDeleted | r.MemberExpired, effects: Effects
) -> None:
    """A subscription is gone: what only it held is released, or kept for its time again."""
    subscription = state.subscriptions.pop(record.subscription_id)
    if type(record) is r.MemberExpired:
        members.count_forgotten(subscription)
    if state.multicasts.pop(subscription.id, None) is not None:
        members.remove_parent(subscription)
        return
    remove_subscription(subscription)
    effects.closed.append(subscription)
    for cursor in subscription.cursors:
        partition = cursor.partition
        for low, high in list(cursor.done.gaps(cursor.done.floor, partition.next_offset)):
            keep_again(partition, low, high, effects)
            release(partition, low, high, effects)


def remove_subscription(subscription: Subscription) -> None:
    """Takes a subscription out of its topic."""
    topic = subscription.topic
    assert topic.subscriptions is not None
    topic.subscriptions.pop(subscription.name, None)
    if not topic.subscriptions:
        topic.subscriptions = None
