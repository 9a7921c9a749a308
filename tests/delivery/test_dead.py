"""Dead letters: what moves aside, with which story, and the way back."""

import re

import pytest

from penstock.batch import Batch, encode_many
from penstock.batch.frame import Frame
from penstock.delivery.counts import count, unexplained
from penstock.delivery.dead import MARK
from penstock.delivery.publish import decide_publish
from penstock.delivery.state import Cursor, Partition, Subscription, Topic
from penstock.vocabulary.errors import DeadLetterFull
from penstock.vocabulary.message import Message, render_id
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import (
    Cause,
    Outcome,
    Published,
    Removed,
    Settled,
    TopicCreated,
    Unit,
)
from tests.delivery.world import NAMED, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


@pytest.fixture
def subscription(world: World, topic: Topic) -> Subscription:
    return world.subscribe(topic)


@pytest.fixture
def cursor(subscription: Subscription) -> Cursor:
    return subscription.cursors[0]


def publish(world: World, topic: Topic, *messages: Message) -> Published:
    batch = encode_many(list(messages))
    record = decide_publish(topic.partitions[0], batch, len(messages), NAMED, 0, 0, world.wall)
    assert isinstance(record, Published)
    world.apply(record)
    return record


def reject(world: World, subscription: Subscription, *ranges: tuple[int, int]) -> None:
    consumer = world.join(subscription, name="w1")
    (lease,) = world.deliver(consumer)
    world.give_back(lease, *ranges, cause=Cause.REJECTED, reason="bad body")
    world.leave(consumer)


def dead_partition(world: World) -> Partition:
    return world.state.names["orders.dead.billing"].partitions[0]


def only_frame(world: World, partition: Partition) -> tuple[Frame, Batch]:
    (frame,) = world.frames(partition, (0, partition.next_offset))
    return frame, Batch(frame.batch)


# -- the move ----------------------------------------------------------------------------------


def test_a_move_is_one_unit_durable_there_and_released_here(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    reject(world, subscription, (1, 2))
    unit = world.bury(cursor, (1, 2))
    created, stored, settled = unit.records
    assert isinstance(created, TopicCreated)
    assert created.name == "orders.dead.billing"
    assert isinstance(stored, Published)
    assert (stored.topic_id, stored.base, stored.count) == (created.topic_id, 0, 1)
    assert settled == Settled(topic.id, 0, subscription.id, Outcome.DEAD, ((1, 2),))
    assert dead_partition(world).held == 1
    assert 1 in topic.partitions[0].released


def test_the_dead_letter_topic_is_made_once_and_keeps_for_ever(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic, 2)
    reject(world, subscription, (0, 2))
    world.bury(cursor, (0, 1))
    unit = world.bury(cursor, (1, 2))
    assert not any(isinstance(part, TopicCreated) for part in unit.records)
    policy = world.state.names["orders.dead.billing"].policy
    assert policy.retain_s is None
    assert policy.dead_of == "orders\nbilling"


def test_a_dead_letter_keeps_body_key_headers_and_priority(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    message = Message(body=b"b", key="k", headers={"type": "x"}, priority=4)
    publish(world, topic, message)
    reject(world, subscription)
    world.bury(cursor, (0, 1))
    _, view = only_frame(world, dead_partition(world))
    assert view.bodies == [b"b"]
    assert view.keys == ["k"]
    assert view.priorities is not None
    assert list(view.priorities) == [4]
    assert view.headers is not None
    assert (view.headers[0] or {})["type"] == "x"


def test_a_dead_letter_without_a_body_still_has_none(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    publish(world, topic, Message(key="k"))
    reject(world, subscription)
    world.bury(cursor, (0, 1))
    assert only_frame(world, dead_partition(world))[1].bodies == [None]


def test_a_dead_letter_keeps_its_rendered_id_and_its_first_publish_time(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    publish(world, topic, Message(body=b"a", id="given"), Message(body=b"b"))
    first = world.wall
    world.wait(100)
    reject(world, subscription)
    world.bury(cursor, (0, 2))
    frame, view = only_frame(world, dead_partition(world))
    assert [frame.id_of(view, i) for i in (0, 1)] == ["given", render_id(NAMED, 0, 1)]
    assert [frame.published_at_of(view, i) for i in (0, 1)] == [first, first]


def test_a_dead_letter_keeps_its_attempts(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic)
    consumer = world.join(subscription)
    for _ in range(3):
        world.give_back(world.deliver_one(consumer), delay_s=0)
    world.give_back(world.deliver_one(consumer), cause=Cause.REJECTED)
    world.bury(cursor, (0, 1))
    attempts = only_frame(world, dead_partition(world))[1].attempts
    assert attempts is not None
    assert list(attempts) == [4]


def test_the_headers_tell_the_whole_story(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    world.publish(topic, 3)
    reject(world, subscription, (2, 3))
    world.bury(cursor, (2, 3))
    headers = only_frame(world, dead_partition(world))[1].headers
    assert headers == [
        {
            MARK + "why": "rejected",
            MARK + "reason": "bad body",
            MARK + "topic": "orders",
            MARK + "subscription": "billing",
            MARK + "partition": "0",
            MARK + "offset": "2",
            MARK + "consumer": "w1",
            MARK + "attempts": "1",
            MARK + "at": str(world.wall),
        }
    ]


def test_a_message_out_of_attempts_says_so(world: World, topic: Topic) -> None:
    subscription = world.subscribe(topic)
    consumer = world.join(subscription, name="w2")
    world.publish(topic)
    for _ in range(10):
        world.give_back(world.deliver_one(consumer), delay_s=0, reason="no luck")
    assert list(world.doomed) == subscription.cursors
    world.bury(subscription.cursors[0], (0, 1))
    headers = only_frame(world, dead_partition(world))[1].headers
    assert headers is not None
    story = headers[0] or {}
    assert (story[MARK + "why"], story[MARK + "reason"]) == ("max_attempts", "no luck")
    assert (story[MARK + "consumer"], story[MARK + "attempts"]) == ("w2", "10")


def test_a_dead_letter_is_neither_delayed_nor_expired_any_more(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    publish(world, topic, Message(body=b"x", deliver_at=1.0, expires_at=2.0))
    reject(world, subscription)
    world.bury(cursor, (0, 1))
    _, view = only_frame(world, dead_partition(world))
    assert (view.deliver_at, view.expires_at) == (None, None)


def test_a_full_dead_letter_topic_refuses_and_the_source_message_waits(
    world: World, topic: Topic
) -> None:
    subscription = world.subscribe(topic, policy=SubscriptionPolicy(dead_bytes_max=100))
    world.publish(topic)
    reject(world, subscription)
    with pytest.raises(DeadLetterFull, match=r"orders\.dead\.billing") as caught:
        world.bury(subscription.cursors[0], (0, 1))
    size = int(re.findall(r"and (\d+) more", caught.value.text)[0])
    assert f"raise dead_bytes_max of subscription 'billing' to {size} or more" in caught.value.text
    assert "purge" not in caught.value.text, "there is none"
    assert 0 not in topic.partitions[0].released
    assert "orders.dead.billing" not in world.state.names
    assert count(subscription).waiting == 1


def test_the_cap_counts_what_is_already_there(world: World, topic: Topic) -> None:
    subscription = world.subscribe(topic, policy=SubscriptionPolicy(dead_bytes_max=1000))
    cursor = subscription.cursors[0]
    world.publish(topic, 9)
    reject(world, subscription)
    with pytest.raises(DeadLetterFull, match="redrive or purge some dead letters, or raise"):
        all(world.bury(cursor, (offset, offset + 1)) for offset in range(9))
    assert 1 <= dead_partition(world).held <= 4


def test_large_letters_that_are_gone_leave_room(world: World, topic: Topic) -> None:
    policy = SubscriptionPolicy(dead_bytes_max=100_000)
    subscription = world.subscribe(topic, policy=policy)
    for size in (10, 90_000, 90_000):
        offset = topic.partitions[0].next_offset
        world.publish(topic, body=bytes(size))
        reject(world, subscription)
        world.bury(subscription.cursors[0], (offset, offset + 1))
        dead = dead_partition(world)
        if size > 10:
            world.apply(Removed(dead.topic.id, 0, ((dead.next_offset - 1, dead.next_offset),)))
    assert dead_partition(world).held == 1
    assert dead_partition(world).held_bytes < 1000


def test_the_story_may_go_past_the_header_limit_of_publishers(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    publish(world, topic, Message(body=b"x", headers={f"h{n}": "v" for n in range(64)}))
    reject(world, subscription)
    world.bury(cursor, (0, 1))
    headers = only_frame(world, dead_partition(world))[1].headers
    assert headers is not None
    assert len(headers[0] or {}) == 64 + 9


# -- the way back ------------------------------------------------------------------------------


def buried(world: World, subscription: Subscription, count: int = 1) -> Partition:
    world.publish(subscription.topic, count)
    reject(world, subscription)
    world.bury(subscription.cursors[0], (0, count))
    return dead_partition(world)


def test_a_redrive_is_one_unit_back_here_and_gone_there(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    dead = buried(world, subscription, 2)
    unit = world.redrive(subscription, dead, (0, 2))
    stored, removed = unit.records
    assert isinstance(stored, Published)
    assert (stored.topic_id, stored.base, stored.count) == (topic.id, 2, 2)
    assert stored.target == subscription.id
    assert removed == Removed(dead.topic.id, 0, ((0, 2),))
    assert dead.held == 0


def test_a_second_subscription_on_the_topic_never_sees_a_redriven_message(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    audit = world.subscribe(topic, "audit")
    dead = buried(world, subscription)
    world.redrive(subscription, dead, (0, 1))
    back = world.deliver_one(world.join(subscription))
    assert (back.start, back.end) == (1, 2)
    seen = [(x.start, x.end) for x in world.deliver(world.join(audit))]
    assert seen == [(0, 1)]


def test_a_subscription_made_after_a_redrive_never_sees_the_redriven_message(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    dead = buried(world, subscription, 2)
    world.redrive(subscription, dead, (0, 2))
    world.publish(topic)
    late = world.subscribe(topic, "late")
    assert count(late).attached == 1
    assert [(x.start, x.end) for x in world.deliver(world.join(late))] == [(4, 5)]
    world.ack(world.deliver_one(world.join(subscription)), (2, 4))
    assert [o for o in range(5) if o not in topic.partitions[0].released] == [4]


def test_an_ephemeral_watcher_does_not_see_a_redriven_message(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    dead = buried(world, subscription)
    watcher = world.subscribe(topic, "watcher", starts=(1,))
    watcher.is_durable = False
    world.redrive(subscription, dead, (0, 1))
    assert world.deliver(world.join(watcher)) == []


def test_a_redriven_message_is_released_when_its_subscription_acks_it(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.subscribe(topic, "audit")
    dead = buried(world, subscription)
    world.redrive(subscription, dead, (0, 1))
    world.ack(world.deliver_one(world.join(subscription)))
    assert 1 in topic.partitions[0].released


def test_a_redrive_moves_counts_and_adds_none(world: World, subscription: Subscription) -> None:
    dead = buried(world, subscription, 3)
    before = count(subscription)
    assert (before.attached, before.dead) == (3, 3)
    world.redrive(subscription, dead, (0, 2))
    after = count(subscription)
    assert (after.attached, after.dead, after.waiting) == (3, 1, 2)
    assert unexplained(after) == 0


def test_a_redriven_message_may_fail_as_often_as_a_new_one(
    world: World, subscription: Subscription
) -> None:
    dead = buried(world, subscription)
    world.redrive(subscription, dead, (0, 1))
    world.doomed.clear()
    consumer = world.join(subscription)
    for _ in range(9):
        world.give_back(world.deliver_one(consumer), delay_s=0)
    assert world.doomed == {}
    assert world.deliver_one(consumer).attempt == 10


def test_a_redriven_message_keeps_the_attempts_it_had(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    dead = buried(world, subscription)
    world.redrive(subscription, dead, (0, 1))
    (frame,) = world.frames(topic.partitions[0], (1, 2))
    attempts = Batch(frame.batch).attempts
    assert attempts is not None
    assert list(attempts) == [1]


def test_attempts_add_up_over_several_deaths(
    world: World, subscription: Subscription, cursor: Cursor
) -> None:
    dead = buried(world, subscription)
    world.redrive(subscription, dead, (0, 1))
    reject(world, subscription)
    world.bury(cursor, (1, 2))
    (frame,) = world.frames(dead, (1, 2))
    view = Batch(frame.batch)
    assert view.attempts is not None
    assert list(view.attempts) == [2]
    assert view.headers is not None
    assert (view.headers[0] or {})[MARK + "attempts"] == "2"


def test_a_redriven_message_keeps_id_time_and_its_own_headers_without_the_story(
    world: World, topic: Topic, subscription: Subscription, cursor: Cursor
) -> None:
    first = world.wall
    publish(world, topic, Message(body=b"a", headers={"type": "x"}), Message(body=b"b"))
    world.wait(50)
    reject(world, subscription)
    world.bury(cursor, (0, 2))
    world.redrive(subscription, dead_partition(world), (0, 2))
    (frame,) = world.frames(topic.partitions[0], (2, 4))
    view = Batch(frame.batch)
    assert view.headers == [{"type": "x"}, None]
    assert [frame.id_of(view, i) for i in (0, 1)] == [render_id(NAMED, 0, i) for i in (0, 1)]
    assert [frame.published_at_of(view, i) for i in (0, 1)] == [first, first]


def test_a_redriven_message_can_die_again(
    world: World, subscription: Subscription, cursor: Cursor
) -> None:
    dead = buried(world, subscription)
    world.redrive(subscription, dead, (0, 1))
    reject(world, subscription)
    unit = world.bury(cursor, (1, 2))
    assert isinstance(unit, Unit)
    assert (dead.held, count(subscription).dead) == (1, 1)


def test_dead_letters_lie_in_one_partition_and_go_back_to_their_own(world: World) -> None:
    topic = world.topic("wide", partitions=3)
    subscription = world.subscribe(topic)
    for partition in (2, 0, 2):
        world.publish(topic, 1, partition)
    for lease in world.deliver(world.join(subscription)):
        world.give_back(lease, cause=Cause.REJECTED)
    world.bury(subscription.cursors[2], (0, 1))
    world.bury(subscription.cursors[0], (0, 1))
    world.bury(subscription.cursors[2], (1, 2))
    dead = world.state.names["wide.dead.billing"]
    assert [partition.held for partition in dead.partitions] == [3]
    unit = world.redrive(subscription, dead.partitions[0], (0, 3))
    stored = [part for part in unit.records if isinstance(part, Published)]
    assert [(part.partition, part.base, part.count) for part in stored] == [(2, 2, 2), (0, 1, 1)]
    assert [cursor.dead for cursor in subscription.cursors] == [0, 0, 0]
    assert dead.partitions[0].held == 0
