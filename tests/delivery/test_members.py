"""Multicasts in the state: parents beside the subscriptions, members among them."""

import msgspec

from penstock.delivery import members
from penstock.delivery.multicast import decide_join
from penstock.delivery.snapshot import restore_topic, topic_state
from penstock.delivery.state import State, Subscription, Topic
from penstock.vocabulary.limits import MEMBER_IDLE_S_MAX
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Attached, Detached, MemberExpired, Started, TopicDeleted
from tests.delivery.world import World, the

MULTICAST = SubscriptionPolicy(kind=Kind.MULTICAST)
IDLE_MS = int(MEMBER_IDLE_S_MAX * 1000)


def join(world: World, topic: Topic, consumer: str | None = "left") -> Subscription:
    starts = tuple(p.reserved for p in topic.partitions)
    record, member = decide_join(world.state, topic, "app", MULTICAST, consumer, starts, world.wall)
    if record is not None:
        world.apply(record)
    return member


def test_a_parent_has_no_cursor_and_holds_nothing() -> None:
    world = World()
    topic = world.topic(partitions=2)
    parent = world.subscribe(topic, "app", MULTICAST)
    assert parent.is_parent
    assert not parent.is_member
    assert topic.subscriptions is None
    assert the(topic.multicasts) == {"app": parent}
    world.publish(topic, 3)
    assert topic.partitions[0].retained is not None


def test_shared_subscriptions_are_neither_parent_nor_member() -> None:
    world = World()
    shared = world.subscribe(world.topic())
    assert not shared.is_parent
    assert not shared.is_member
    members.see(world.state, shared.id, world.wall + 5)
    assert shared.seen_at == shared.created_at


def test_parent_and_members_know_each_other() -> None:
    world = World()
    topic = world.topic()
    left, unnamed = join(world, topic), join(world, topic, None)
    world.subscribe(topic, "application")
    parent = the(topic.multicasts)["app"]
    assert members.members_of(parent) == [left, unnamed]
    assert members.parent_of(left) is parent
    assert members.find(topic, "app") is parent
    assert members.find(topic, "app@left") is left
    assert members.find(topic, "nobody") is None
    assert [each.name for each in members.listed(topic)] == ["app", "app@left", "application"]
    assert left.is_member
    assert not unnamed.is_member


def test_a_member_is_forgotten_a_week_after_it_was_last_seen() -> None:
    world = World()
    member = join(world, world.topic())
    assert not members.is_forgotten(member, world.wall + IDLE_MS - 1)
    assert members.is_forgotten(member, world.wall + IDLE_MS)
    world.apply(Attached(1, member.id, 1, "left"))
    world.apply(Detached(1, member.id, 1, world.wall + 10))
    assert not members.is_forgotten(member, world.wall + IDLE_MS)
    assert members.is_forgotten(member, world.wall + IDLE_MS + 10)
    world.join(member)
    assert not members.is_forgotten(member, world.wall + 2 * IDLE_MS)


def test_whoever_was_attached_when_the_broker_stopped_was_seen_then() -> None:
    world = World()
    topic = world.topic()
    left, right = join(world, topic), join(world, topic, "right")
    world.apply(Attached(topic.id, left.id, 1, "left"))
    world.apply(Started(2, is_clean=False, started_at=world.wall + 99))
    assert (left.seen_at, right.seen_at) == (world.wall + 99, world.wall)


def test_the_backlog_of_an_expired_member_is_counted_at_its_parent() -> None:
    world = World()
    topic = world.topic()
    left = join(world, topic)
    world.publish(topic, 3)
    consumer = world.join(left)
    world.ack(world.deliver_one(consumer), (0, 1))
    world.leave(consumer)
    world.apply(MemberExpired(topic.id, left.id))
    assert the(topic.multicasts)["app"].forgotten == 2
    assert topic.subscriptions is None
    assert world.released == [(topic.partitions[0].key, 0, 1), (topic.partitions[0].key, 1, 3)]


def test_a_deleted_topic_takes_its_parents_along() -> None:
    world = World()
    topic = world.topic()
    join(world, topic)
    world.apply(TopicDeleted(topic.id))
    assert (world.state.multicasts, world.state.subscriptions) == ({}, {})


def test_a_snapshot_holds_parents_and_when_members_were_seen() -> None:
    world = World()
    topic = world.topic()
    left = join(world, topic)
    world.apply(Attached(topic.id, left.id, 1, "left"))
    world.apply(Detached(topic.id, left.id, 1, world.wall + 7))
    the(topic.multicasts)["app"].forgotten = 5
    piece = msgspec.msgpack.decode(msgspec.msgpack.encode(topic_state(topic)), strict=False)
    state = State()
    again = restore_topic(state, piece, world.now, world.wall)
    parent = the(again.multicasts)["app"]
    assert (parent.forgotten, parent.policy, parent.is_pending) == (5, MULTICAST, False)
    assert state.multicasts == {parent.id: parent}
    assert state.subscriptions[parent.id] is parent
    assert the(again.subscriptions)["app@left"].seen_at == world.wall + 7
    assert state.next_subscription_id == world.state.next_subscription_id
    assert topic_state(again) == topic_state(topic)


def test_what_is_not_durable_is_in_no_snapshot() -> None:
    world = World()
    topic = world.topic()
    decide_join(world.state, topic, "app", MULTICAST, "left", (0,), world.wall)
    assert members.dump_parents(topic) is None
    assert members.listed(topic) == []
