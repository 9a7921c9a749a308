"""Moving a subscription: what comes again, what is skipped, and that every count stays exact."""

import random

import pytest

from penstock.delivery import settle
from penstock.delivery.counts import count_cursor, unexplained
from penstock.delivery.leases import withdraw
from penstock.delivery.seek import decide_seek, note_ending
from penstock.delivery.snapshot import restore_topic, topic_state
from penstock.delivery.state import Cursor, State, Subscription, Topic
from penstock.vocabulary.errors import Unsupported
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause, Outcome, Outlived, Settled, Sought
from tests.delivery.world import World, claim, the


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic(policy=TopicPolicy(replay_s=1000))


@pytest.fixture
def subscription(world: World, topic: Topic) -> Subscription:
    return world.subscribe(topic)


def seek(world: World, subscription: Subscription, *places: int | None) -> None:
    world.apply(the(decide_seek(world.state, subscription, places)))


def where(cursor: Cursor) -> tuple[int, int, int, int, int]:
    """Attached, acked, waiting, dead, dropped; checked to be exact."""
    counts = count_cursor(cursor)
    assert unexplained(counts) == 0
    assert min(counts.acked, counts.waiting, counts.leased, counts.dead, counts.dropped) >= 0
    return counts.attached, counts.acked, counts.waiting, counts.dead, counts.dropped


def test_acked_messages_come_again_and_leave_the_count_of_acked(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic, 5)
    world.ack(world.deliver_one(consumer))
    cursor = subscription.cursors[0]
    assert where(cursor) == (5, 5, 0, 0, 0)
    seek(world, subscription, 2)
    assert where(cursor) == (5, 2, 3, 0, 0)
    again = world.deliver_one(consumer)
    assert (again.start, again.end, again.attempt) == (2, 5, 1)
    world.ack(again)
    assert where(cursor) == (5, 5, 0, 0, 0)


def test_forward_counts_what_is_skipped_as_dropped_and_back_takes_it_up_again(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 5)
    cursor = subscription.cursors[0]
    seek(world, subscription, 4)
    assert where(cursor) == (5, 0, 1, 0, 4)
    seek(world, subscription, 1)
    assert where(cursor) == (5, 0, 4, 0, 1)
    seek(world, subscription, 5)
    assert where(cursor) == (5, 0, 0, 0, 5)


def test_what_is_skipped_is_released_when_nothing_else_holds_it(world: World) -> None:
    topic = world.topic("plain")
    subscription = world.subscribe(topic)
    world.publish(topic, 5)
    seek(world, subscription, 3)
    assert topic.partitions[0].held == 2
    assert subscription.cursors[0].otherwise is None
    seek(world, subscription, 0)
    assert where(subscription.cursors[0]) == (5, 0, 2, 0, 3)


def test_messages_from_before_its_start_are_attached_when_it_goes_back_to_them(
    world: World, topic: Topic
) -> None:
    world.publish(topic, 4)
    late = world.subscribe(topic, "late", starts=(3,))
    cursor = late.cursors[0]
    assert where(cursor) == (1, 0, 1, 0, 0)
    seek(world, late, 1)
    assert where(cursor) == (3, 0, 3, 0, 0)
    seek(world, late, 4)
    seek(world, late, 1)
    assert where(cursor) == (3, 0, 3, 0, 0)
    assert topic.partitions[0].retained is not None, "message 0 is still nobody's"
    assert topic.partitions[0].retained[0][:2] == [0, 1]


def test_dead_and_expired_messages_come_again_too(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription, credit=1)
    world.publish(topic, 3)
    world.give_back(world.deliver_one(consumer), cause=Cause.REJECTED)
    cursor = subscription.cursors[0]
    world.bury(cursor, (0, 1))
    world.apply(Settled(topic.id, 0, subscription.id, Outcome.EXPIRED, ((1, 2),)))
    assert (cursor.dead, cursor.expired) == (1, 1)
    seek(world, subscription, 0)
    assert (cursor.dead, cursor.expired) == (0, 0)
    assert where(cursor) == (3, 0, 3, 0, 0)


def test_a_dead_letter_that_was_sent_back_is_another_message_by_then(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic)
    world.give_back(world.deliver_one(consumer), cause=Cause.REJECTED)
    cursor = subscription.cursors[0]
    world.bury(cursor, (0, 1))
    dead = world.state.names["orders.dead.billing"].partitions[0]
    world.redrive(subscription, dead, (0, 1))
    assert where(cursor) == (1, 0, 1, 0, 0)
    seek(world, subscription, 0)
    assert where(cursor) == (2, 0, 2, 0, 0)


def test_messages_for_another_subscription_do_not_come(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    other = world.subscribe(topic, "other")
    consumer = world.join(subscription)
    world.publish(topic)
    world.give_back(world.deliver_one(consumer), cause=Cause.REJECTED)
    world.bury(subscription.cursors[0], (0, 1))
    dead = world.state.names["orders.dead.billing"].partitions[0]
    world.redrive(subscription, dead, (0, 1))
    seek(world, other, 0)
    assert where(other.cursors[0]) == (1, 0, 1, 0, 0)


def test_attempts_reasons_and_back_off_start_afresh(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription, credit=2)
    world.publish(topic, 2)
    lease = world.deliver_one(consumer)
    world.give_back(lease, (0, 1), delay_s=60, reason="busy")
    world.give_back(lease, (1, 2), cause=Cause.REJECTED)
    cursor = subscription.cursors[0]
    assert cursor.delayed
    assert cursor.doomed
    seek(world, subscription, 0)
    left: list[object] = [cursor.delayed, cursor.doomed, cursor.trials, cursor.reasons]
    assert left == [None] * 4
    assert world.deliver_one(consumer).attempt == 1


# -- what consumers hold ---------------------------------------------------------------------------


def test_what_a_consumer_holds_is_void_as_soon_as_the_seek_is_decided(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic, 4)
    lease = world.deliver_one(consumer)
    record = the(decide_seek(world.state, subscription, (2,)))
    assert consumer.outstanding == 0
    records, refused = settle.decide_ack(consumer, [claim(lease)])
    assert records == []
    assert [refusal.offset for refusal in refused] == [0, 1, 2, 3]
    world.apply(record)
    assert where(subscription.cursors[0]) == (4, 0, 2, 0, 2)
    fresh = world.deliver_one(consumer)
    assert fresh.attempt == lease.attempt == 1
    world.give_back(fresh, delay_s=0)
    assert len(world.ack(lease)) == 4, "not even when its attempt has the same number"
    assert world.ack(world.deliver_one(consumer)) == []


def test_an_ack_decided_before_the_seek_applies_before_it(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic, 4)
    lease = world.deliver_one(consumer)
    (ack,), _ = settle.decide_ack(consumer, [claim(lease, (0, 3))])
    record = the(decide_seek(world.state, subscription, (1,)))
    cursor = subscription.cursors[0]
    assert unexplained(count_cursor(cursor)) == 0
    world.carry_out(ack)
    assert where(cursor) == (4, 3, 1, 0, 0)
    world.apply(record)
    assert where(cursor) == (4, 1, 3, 0, 0)
    assert world.deliver_one(consumer).start == 1


def test_two_seeks_under_way_are_both_waited_for(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 4)
    first = the(decide_seek(world.state, subscription, (4,)))
    second = the(decide_seek(world.state, subscription, (1,)))
    world.apply(first)
    assert subscription.seeks == 1
    world.apply(second)
    assert subscription.seeks == 0
    assert where(subscription.cursors[0]) == (4, 0, 3, 0, 1)


# -- places ----------------------------------------------------------------------------------------


def test_a_partition_without_a_new_place_stays_as_it_is(world: World) -> None:
    topic = world.topic("wide", 2, TopicPolicy(replay_s=1000))
    subscription = world.subscribe(topic)
    consumer = world.join(subscription)
    world.publish(topic, 2, 0)
    world.publish(topic, 2, 1)
    leases = {lease.cursor.partition.index: lease for lease in world.deliver(consumer)}
    seek(world, subscription, 2, None)
    assert where(subscription.cursors[0]) == (2, 0, 0, 0, 2)
    assert world.ack(leases[1]) == []
    assert where(subscription.cursors[1]) == (2, 2, 0, 0, 0)
    assert decide_seek(world.state, subscription, (None, None)) is None
    assert subscription.seeks == 0


def test_only_what_is_still_held_comes_again(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic, 5)
    world.ack(world.deliver_one(consumer), (0, 3), (4, 5))
    world.apply(Outlived(topic.id, 0, (), 2))
    seek(world, subscription, 0)
    assert where(subscription.cursors[0]) == (5, 2, 3, 0, 0)


def test_a_place_beyond_the_end_proves_that_messages_were_lost(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    world.publish(topic, 2)
    world.apply(Sought(topic.id, subscription.id, (5,)))
    assert world.publish(topic, 1).base == 5
    assert where(subscription.cursors[0]) == (6, 0, 1, 0, 5)
    assert topic.partitions[0].held == 3


@pytest.mark.parametrize("kind", [Kind.READER, Kind.MULTICAST])
def test_readers_and_multicasts_themselves_cannot_be_moved(
    subscription: Subscription, world: World, kind: Kind
) -> None:
    subscription.policy = SubscriptionPolicy(kind=kind)
    with pytest.raises(Unsupported, match=kind.value):
        decide_seek(world.state, subscription, (0,))
    assert subscription.seeks == 0


def test_endings_of_released_messages_are_forgotten(world: World) -> None:
    topic = world.topic("plain")
    subscription, other = world.subscribe(topic), world.subscribe(topic, "other")
    world.publish(topic, 400)
    cursor = subscription.cursors[0]
    for offset in range(1, 399, 2):
        for each, outcome in ((subscription, Outcome.DROPPED), (other, Outcome.ACKED)):
            world.apply(Settled(topic.id, 0, each.id, outcome, ((offset, offset + 1),)))
    assert len(the(cursor.otherwise)) <= 64
    assert where(cursor) == (400, 0, 201, 0, 199)
    note_ending(cursor, 0, 1, Outcome.DROPPED)
    assert the(cursor.otherwise).get(0) == (Outcome.DROPPED,)


# -- all together ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_counts_follow_every_message_whatever_happens(seed: int) -> None:  # noqa: C901, PLR0912, PLR0915
    dice = random.Random(seed)
    world = World()
    topic = world.topic(policy=TopicPolicy(replay_s=1000, retain_s=1000))
    world.publish(topic, dice.randint(1, 4))
    subscription = world.subscribe(topic, starts=(dice.randint(0, topic.partitions[0].reserved),))
    other = world.subscribe(topic, "other")
    cursor, partition = subscription.cursors[0], topic.partitions[0]
    consumer = world.join(subscription, credit=5)
    fate = dict.fromkeys(range(cursor.begin, partition.next_offset), "waiting")
    for _ in range(60):
        match dice.randrange(8):
            case 0 | 1:
                record = world.publish(topic, dice.randint(1, 4))
                fate.update(dict.fromkeys(range(record.base, record.end), "waiting"))
            case 2 | 3:
                for lease in world.deliver(consumer):
                    done = [o for o in range(lease.start, lease.end) if dice.random() < 0.6]
                    for offset in done:
                        world.ack(lease, (offset, offset + 1))
                        fate[offset] = "acked"
                    for low, high in lease.unfinished() if lease.count else ():
                        world.give_back(lease, (low, high), delay_s=dice.choice([0, 5]))
            case 4:
                waiting = [o for o, what in fate.items() if what == "waiting"]
                if waiting and not consumer.leases:
                    offset = dice.choice(waiting)
                    withdraw(cursor, offset, offset + 1)
                    outcome = dice.choice([Outcome.DROPPED, Outcome.EXPIRED])
                    ranges = ((offset, offset + 1),)
                    world.apply(Settled(topic.id, 0, subscription.id, outcome, ranges))
                    fate[offset] = outcome.name.lower()
            case 5:
                place = dice.randint(0, partition.next_offset)
                seek(world, subscription, place)
                for offset in range(partition.next_offset):
                    if offset >= place and offset not in partition.released:
                        fate[offset] = "waiting"
                    elif offset < place and fate.get(offset) == "waiting":
                        fate[offset] = "dropped"
            case 6:
                world.wait(5)
                if dice.random() < 0.3:
                    window = dice.randint(0, partition.next_offset)
                    world.apply(Outlived(topic.id, 0, (), window))
                    seek(world, other, partition.next_offset)
            case _:
                copy = restore_topic(State(), topic_state(topic), world.now, world.wall)
                found = (copy.subscriptions or {})["billing"].cursors[0]
                assert (found.begin, found.attached) == (cursor.begin, cursor.attached)
                assert (found.otherwise is None) == (not cursor.otherwise)
        counts = count_cursor(cursor)
        assert unexplained(counts) == 0
        expected = list(fate.values())
        assert counts.attached == len(fate)
        for name in ("acked", "dropped", "expired"):
            assert getattr(counts, name) == expected.count(name), name
        assert counts.waiting + counts.leased + counts.delayed == expected.count("waiting")
