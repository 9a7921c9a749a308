"""Kind `multicast`: every consumer gets every message.

A named consumer is a durable member with a cursor of its own, made when it first attaches and kept
while it is attached and for some days after. Consumers of one name share that member: each message
goes to one of them. An unnamed consumer is an ephemeral member. A member that stalls holds up
nobody else, since each has its own cursor, leases and credit.
"""

from penstock.delivery import members
from penstock.delivery.admin import (
    decide_alter_subscription,
    decide_create_subscription,
    decide_delete_subscription,
)
from penstock.delivery.registry import add_subscription, start_cursors
from penstock.delivery.state import State, Subscription, Topic
from penstock.vocabulary import names
from penstock.vocabulary.errors import InvalidArgument, SubscriptionInUse
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import MemberExpired, Record, SubscriptionCreated, Unit


def decide_join(
    state: State, topic: Topic, name: str, policy: SubscriptionPolicy, consumer: str | None,
    starts: tuple[int, ...], now_wall: int,
) -> tuple[Record | None, Subscription]:  # fmt: skip
    """The member a consumer gets, and a record when it or the multicast is new.

    `consumer` is None for an unnamed one. Raises SubscriptionConflict, SubscriptionInUse,
    InvalidName, TopicInUse.
    """
    member = names.check_member(topic.name, name, consumer) if consumer is not None else None
    known = (topic.subscriptions or {}).get(member) if member is not None else None
    if known is not None and known.is_removing:
        raise SubscriptionInUse(f"subscription {member!r} is being deleted; try again in a moment")
    created = decide_create_subscription(
        state, topic, name, policy, (), now_wall, is_explicit=False
    )
    assert topic.multicasts is not None
    parent = topic.multicasts[name]
    if member is None:
        return created, _ephemeral(state, parent, starts, now_wall)
    if known is not None:
        return created, known
    record = SubscriptionCreated(
        topic.id, state.next_subscription_id, member, starts, parent.policy, now_wall
    )
    made = add_subscription(state, record, is_durable=True)
    return (record if created is None else Unit((created, record))), made


def _ephemeral(
    state: State, parent: Subscription, starts: tuple[int, ...], now_wall: int
) -> Subscription:
    """A member that holds nothing and ends with its consumer; never written."""
    number = state.next_subscription_id
    name = f"{parent.name}{names.MEMBER_MARK}\0{number}"
    record = SubscriptionCreated(parent.topic.id, number, name, starts, parent.policy, now_wall)
    member = add_subscription(state, record, is_durable=False)
    member.is_pending = False
    start_cursors(member, starts)
    return member


def decide_alter(subscription: Subscription, policy: SubscriptionPolicy) -> Record | None:
    """A record for the new policy of a subscription; that of a multicast covers its members.

    Raises InvalidArgument for a single member, SubscriptionConflict when the kind would change.
    """
    if subscription.is_member:
        raise only_whole(subscription.name)
    first = decide_alter_subscription(subscription, policy)
    if first is None or not subscription.is_parent:
        return first
    rest = [decide_alter_subscription(each, policy) for each in _durable(subscription)]
    return Unit((first, *(record for record in rest if record is not None)))


def only_whole(member: str) -> InvalidArgument:
    """What to answer when the policy of one member is to change."""
    parent = member.partition(names.MEMBER_MARK)[0]
    return InvalidArgument(
        f"{member!r} is one consumer of the multicast {parent!r}: change {parent!r}"
    )


def decide_delete(subscription: Subscription) -> Record:
    """A record that deletes a subscription; a multicast goes with its members.

    Raises SubscriptionInUse while consumers are connected.
    """
    if not subscription.is_parent:
        return decide_delete_subscription(subscription)
    found = members.members_of(subscription)
    connected = sum(len(each.connected) for each in found)
    if connected:
        raise SubscriptionInUse(
            f"multicast {subscription.name!r} has {connected} consumer(s); close them first"
        )
    parts = [decide_delete_subscription(each) for each in _durable(subscription)]
    return Unit((*parts, decide_delete_subscription(subscription)))


def _durable(parent: Subscription) -> list[Subscription]:
    found = members.members_of(parent)
    return [each for each in found if each.is_durable and not each.is_removing]


def decide_forgotten(parent: Subscription, now_wall: int) -> list[MemberExpired]:
    """Ends the members of a multicast that stayed away too long."""
    if parent.is_removing or parent.topic.is_removing:
        return []
    gone = [each for each in members.members_of(parent) if members.is_forgotten(each, now_wall)]
    for member in gone:
        member.is_removing = True
    return [MemberExpired(parent.topic.id, member.id) for member in gone]
