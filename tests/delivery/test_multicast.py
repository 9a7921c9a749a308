"""Kind multicast: who joins what, and what goes together."""

import pytest

from penstock.delivery import members
from penstock.delivery.multicast import decide_alter, decide_delete, decide_forgotten, decide_join
from penstock.vocabulary.errors import InvalidArgument, SubscriptionInUse, TopicInUse
from penstock.vocabulary.limits import MEMBER_IDLE_S_MAX
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import (
    MemberExpired,
    SubscriptionAltered,
    SubscriptionCreated,
    SubscriptionDeleted,
    Unit,
)
from tests.delivery.test_members import MULTICAST, join
from tests.delivery.world import World, the

LATER = SubscriptionPolicy(kind=Kind.MULTICAST, lease_s=5)


def test_the_first_consumer_makes_multicast_and_member_in_one_unit() -> None:
    world = World()
    topic = world.topic()
    record, member = decide_join(world.state, topic, "app", MULTICAST, "left", (0,), world.wall)
    assert isinstance(record, Unit)
    created = [part for part in record.records if isinstance(part, SubscriptionCreated)]
    assert [part.name for part in created] == ["app", "app@left"]
    again, same = decide_join(world.state, topic, "app", MULTICAST, "left", (0,), world.wall)
    assert (again, same) == (None, member)


def test_a_member_has_the_policy_of_its_multicast() -> None:
    world = World()
    topic = world.topic()
    world.subscribe(topic, "app", LATER)
    record, member = decide_join(world.state, topic, "app", MULTICAST, "left", (0,), world.wall)
    assert isinstance(record, SubscriptionCreated)
    assert member.policy == LATER


def test_an_unnamed_consumer_needs_no_record_of_its_own() -> None:
    world = World()
    topic = world.topic()
    world.subscribe(topic, "app", MULTICAST)
    record, member = decide_join(world.state, topic, "app", MULTICAST, None, (0,), world.wall)
    assert record is None
    assert not member.is_durable
    world.publish(topic, 2)
    assert member.cursors[0].attached == 2


def test_each_member_is_served_on_its_own() -> None:
    world = World()
    topic = world.topic()
    left, right = join(world, topic), join(world, topic, "right")
    world.publish(topic, 10)
    stalled, busy = world.join(left, credit=1), world.join(right, credit=10)
    assert world.deliver_one(stalled).count == 1
    assert world.deliver(stalled) == []
    assert world.deliver_one(busy).count == 10


def test_one_policy_covers_all() -> None:
    world = World()
    topic = world.topic()
    left, unnamed = join(world, topic), join(world, topic, None)
    parent = the(members.parent_of(left))
    assert decide_alter(parent, MULTICAST) is None
    unit = decide_alter(parent, LATER)
    assert unit == Unit(
        (
            SubscriptionAltered(topic.id, parent.id, LATER),
            SubscriptionAltered(topic.id, left.id, LATER),
        )
    )
    world.apply(the(unit))
    assert (parent.policy, left.policy) == (LATER, LATER)
    assert unnamed.policy == MULTICAST
    with pytest.raises(InvalidArgument, match="one consumer of the multicast 'app'"):
        decide_alter(left, LATER)
    shared = world.subscribe(topic)
    assert isinstance(decide_alter(shared, SubscriptionPolicy(lease_s=5)), SubscriptionAltered)


def test_a_multicast_goes_with_its_members_once_nobody_is_connected() -> None:
    world = World()
    topic = world.topic()
    left = join(world, topic)
    parent = the(members.parent_of(left))
    consumer = world.join(left)
    with pytest.raises(SubscriptionInUse, match="1 consumer"):
        decide_delete(parent)
    assert not parent.is_removing
    assert not left.is_removing
    world.leave(consumer)
    unit = decide_delete(parent)
    assert unit == Unit(
        (SubscriptionDeleted(topic.id, left.id), SubscriptionDeleted(topic.id, parent.id))
    )
    with pytest.raises(SubscriptionInUse, match="being deleted"):
        join(world, topic)
    world.apply(unit)
    assert (topic.multicasts, topic.subscriptions) == (None, None)
    join(world, topic)


def test_nothing_joins_what_is_being_deleted() -> None:
    world = World()
    topic = world.topic()
    left = join(world, topic)
    decide_delete(left)
    with pytest.raises(SubscriptionInUse, match="'app@left' is being deleted"):
        join(world, topic)
    topic.is_removing = True
    with pytest.raises(TopicInUse):
        join(world, topic, "right")


def test_members_that_stay_away_are_ended_once() -> None:
    world = World()
    topic = world.topic()
    left = join(world, topic)
    join(world, topic, None)
    parent = the(members.parent_of(left))
    late = world.wall + int(MEMBER_IDLE_S_MAX * 1000)
    assert decide_forgotten(parent, late - 1) == []
    topic.is_removing = True
    assert decide_forgotten(parent, late) == []
    topic.is_removing = False
    assert decide_forgotten(parent, late) == [MemberExpired(topic.id, left.id)]
    assert decide_forgotten(parent, late) == []
