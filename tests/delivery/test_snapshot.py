"""The durable state of a topic survives its way through a snapshot unchanged."""

import random
from typing import Any

import msgspec
import pytest

from penstock.delivery.publish import decide_publish
from penstock.delivery.shared import after_recovery
from penstock.delivery.snapshot import restore_topic, topic_state
from penstock.delivery.state import State, Topic
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause, Lost, Outcome, Settled, Skipped, TopicAltered
from tests.delivery.world import GENERATED, NAMED, World, the


def through_bytes(state: list[Any]) -> list[Any]:
    decoded: list[Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(state), strict=False)
    return decoded


def restored(world: World, topic: Topic) -> Topic:
    return restore_topic(State(), through_bytes(topic_state(topic)), world.now, world.wall)


def assert_survives(world: World, topic: Topic) -> None:
    again = topic_state(restored(world, topic))
    assert through_bytes(again) == through_bytes(topic_state(topic))


@pytest.fixture
def world() -> World:
    return World()


def test_an_empty_topic_survives(world: World) -> None:
    assert_survives(world, world.topic(partitions=3))


def mixed(world: World) -> Topic:
    """Held messages of different sizes, with others between them that are gone."""
    topic = world.topic()
    subscription = world.subscribe(topic)
    for size in (12, 60_000, 300, 7, 60_000):
        world.publish(topic, 3, body=bytes(size))
    lease = world.deliver_one(world.join(subscription))
    world.ack(lease, (1, 2), (3, 7), (14, 15))
    return topic


def test_what_each_message_takes_survives(world: World) -> None:
    topic = mixed(world)
    assert_survives(world, topic)
    before, after = topic.partitions[0], restored(world, topic).partitions[0]
    assert before.sizes is not None
    assert after.sizes is not None
    for offset in range(15):
        assert after.sizes.between(offset, offset + 1) == before.sizes.between(offset, offset + 1)
    held = list(after.released.gaps(0, 15))
    assert after.held_bytes == sum(after.sizes.between(*run) for run in held)


def test_an_older_snapshot_spreads_what_all_messages_take(world: World) -> None:
    topic = mixed(world)
    piece = through_bytes(topic_state(topic))
    del piece[5][0][-1]["sizes"]
    partition = restore_topic(State(), piece, world.now, world.wall).partitions[0]
    assert partition.sizes is not None
    assert 0 <= topic.partitions[0].held_bytes - partition.held_bytes < partition.held
    held = sum(partition.sizes.between(*run) for run in partition.released.gaps(0, 15))
    assert held == partition.held_bytes


def test_policies_survive_as_policies(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(durability=Durability.WRITTEN, retain_s=5))
    policy = SubscriptionPolicy(lease_s=7, retry=Retry(max_attempts=None))
    world.subscribe(topic, policy=policy)
    copy = restored(world, topic)
    assert copy.policy == topic.policy
    assert copy.durable_subscriptions()[0].policy == policy


def test_a_restored_topic_stands_in_every_table(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(durability=Durability.WRITTEN))
    subscription = world.subscribe(topic)
    state = State()
    copy = restore_topic(state, through_bytes(topic_state(topic)), 0, 0)
    assert state.topics == {topic.id: copy}
    assert state.names == {"orders": copy}
    assert state.subscriptions[subscription.id].topic is copy
    assert (state.next_topic_id, state.next_subscription_id) == (2, 2)
    assert state.written_topics == 1
    assert not copy.is_pending


def test_publishers_survive_so_that_a_retry_is_still_a_duplicate(world: World) -> None:
    topic = world.topic()
    world.publish(topic, 3)
    record = world.publish(topic, 2, publisher=GENERATED, epoch=4)
    copy = restored(world, topic)
    for publisher, epoch, sequence in ((NAMED, 0, 0), (GENERATED, 4, 0)):
        live, again = (
            decide_publish(t.partitions[0], record.batch, 2, publisher, epoch, sequence, 0)
            for t in (topic, copy)
        )
        assert live == again


def test_a_publisher_with_nothing_durable_is_not_stored(world: World) -> None:
    topic = world.topic()
    decide_publish(topic.partitions[0], b"", 1, NAMED, 0, 0, world.wall)
    assert restored(world, topic).partitions[0].publishers is None


def test_an_epoch_with_nothing_durable_does_not_hide_the_one_before(world: World) -> None:
    topic = world.topic()
    world.publish(topic, 3)
    decide_publish(topic.partitions[0], b"", 1, NAMED, 1, 0, world.wall)
    publishers = restored(world, topic).partitions[0].publishers or {}
    assert publishers[NAMED].last == 2


def test_reserved_offsets_are_not_durable(world: World) -> None:
    topic = world.topic()
    world.publish(topic, 3)
    decide_publish(topic.partitions[0], b"", 5, NAMED, 0, 3, world.wall)
    partition = restored(world, topic).partitions[0]
    assert (partition.next_offset, partition.reserved) == (3, 3)


def test_an_ephemeral_or_pending_subscription_is_not_stored(world: World) -> None:
    topic = world.topic()
    world.subscribe(topic, "watcher").is_durable = False
    world.subscribe(topic, "unborn").is_pending = True
    assert restored(world, topic).subscriptions is None


def test_a_back_off_goes_on_with_the_rest_of_its_time(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic)
    world.publish(topic)
    world.give_back(world.deliver_one(world.join(subscription)), delay_s=10)
    piece = through_bytes(topic_state(topic))
    copy = restore_topic(State(), piece, 500, world.wall + 4_000)
    delayed = copy.durable_subscriptions()[0].cursors[0].delayed
    assert [row[0] for row in delayed or ()] == [500 + 6_000]


def test_reasons_attempts_and_doom_survive(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic)
    world.publish(topic, 3)
    lease = world.deliver_one(world.join(subscription))
    world.give_back(lease, (0, 1), cause=Cause.REJECTED, reason="bad")
    world.give_back(lease, (1, 2), delay_s=0, reason="later")
    cursor = restored(world, topic).durable_subscriptions()[0].cursors[0]
    live = subscription.cursors[0]
    assert [cursor.trial(o) for o in range(3)] == [live.trial(o) for o in range(3)]
    assert cursor.reasons == {0: ("bad", "worker"), 1: ("later", "worker")}
    assert cursor.doomed is not None
    assert 0 in cursor.doomed


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happened_to_a_topic_survives(world: World, seed: int) -> None:
    chance = random.Random(seed)
    topic = world.topic(partitions=2)
    world.publish(topic, 4, 1)
    subscriptions = [
        world.subscribe(topic, name, SubscriptionPolicy(retry=Retry(max_attempts=2)))
        for name in ("billing", "audit")
    ]
    for _ in range(60):
        subscription = chance.choice(subscriptions)
        consumers = subscription.consumers or ()
        leases = [lease for consumer in consumers for lease in consumer.leases.values()]
        match chance.randrange(8):
            case 0 | 1:
                world.publish(topic, chance.randrange(1, 6), chance.randrange(2))
            case 2:
                world.join(subscription, chance.randrange(1, 9))
            case 3:
                world.dispatch(subscription)
            case 4 if leases:
                world.ack(chance.choice(leases))
            case 5 if leases:
                lease = chance.choice(leases)
                at = lease.unfinished()[0][0]
                cause = chance.choice([Cause.NACKED, Cause.REJECTED, Cause.UNSTARTED])
                world.give_back(lease, (at, at + 1), cause=cause, reason=chance.choice("xy"))
            case 6 if consumers:
                world.lose(consumers[0])
            case 7:
                world.wait(chance.choice([0, 1, 60]))
                offset = chance.randrange(5)
                ends = [partition.next_offset for partition in topic.partitions]
                if offset < ends[0]:
                    world.apply(Lost(topic.id, 0, ((offset, offset + 1),)))
                world.apply(Skipped(topic.id, 1, ends[1] + 3))
                world.apply(TopicAltered(topic.id, TopicPolicy(retain_s=float(offset))))
    topic.applied = seed
    assert_survives(world, topic)


def test_a_restored_cursor_offers_what_the_live_one_would(world: World) -> None:
    topic = world.topic()
    subscription = world.subscribe(topic)
    world.publish(topic, 8)
    lease = world.deliver_one(world.join(subscription))
    world.ack(lease, (0, 2))
    world.give_back(lease, (4, 5), delay_s=10)
    cursor = restored(world, topic).durable_subscriptions()[0].cursors[0]
    after_recovery(cursor)
    assert cursor.ready == [(2, 4), (5, 8)]


def test_what_a_topic_keeps_and_where_a_subscription_was_survive(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(replay_s=100, keep_last=1))
    world.publish(topic, 2)
    subscription = world.subscribe(topic, starts=(1,))
    world.publish(topic, 3)
    world.apply(Settled(topic.id, 0, subscription.id, Outcome.DROPPED, ((2, 3),)))
    assert_survives(world, topic)
    copy = restored(world, topic)
    cursor = (copy.subscriptions or {})["billing"].cursors[0]
    assert (cursor.begin, the(cursor.otherwise).items()) == (1, [(2, 3, (Outcome.DROPPED,))])
    keeping = the(copy.partitions[0].keeping)
    assert (keeping.newest, keeping.rows) == ({None: [4]}, [[0, 5, world.wall]])


def test_a_topic_with_rules_and_without_messages_survives(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(max_age_s=5))
    assert_survives(world, topic)
    assert restored(world, topic).partitions[0].keeping is not None
