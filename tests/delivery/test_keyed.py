"""Kind `key_shared`: one holder for each key, in order, whatever joins, leaves and fails."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from penstock.delivery import settle
from penstock.delivery.counts import count, unexplained
from penstock.delivery.growth import decide_partitions
from penstock.delivery.keyed import SLOTS, Keys, open_offsets, slots_of
from penstock.delivery.shared import after_recovery, due
from penstock.delivery.state import Consumer, Lease, Subscription
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause, Removed, Started
from tests.delivery.world import World, claim

POLICY = SubscriptionPolicy(kind=Kind.KEY_SHARED, retry=Retry(max_attempts=None))


def keyed(*keys: str | None) -> list[Message]:
    return [Message(body=b"x", key=key) for key in keys]


@pytest.fixture
def world() -> World:
    return World()


def start(world: World, *, partitions: int = 1) -> Subscription:
    return world.subscribe(world.topic(partitions=partitions), policy=POLICY)


def offsets_of(lease: Lease) -> list[int]:
    offsets: list[int] = open_offsets(lease).tolist()
    return offsets


def held(consumer: Consumer) -> list[int]:
    return sorted(o for lease in consumer.leases.values() for o in offsets_of(lease))


def test_one_consumer_gets_everything_in_order(world: World) -> None:
    subscription = start(world)
    consumer = world.join(subscription)
    world.publish_messages(subscription.topic, keyed("a", "b", "a", None, "c"))
    world.dispatch(subscription)
    assert held(consumer) == [0, 1, 2, 3, 4]


def test_each_key_has_one_holder_and_slots_are_shared_out(world: World) -> None:
    subscription = start(world)
    consumers = [world.join(subscription, credit=10_000) for _ in range(4)]
    names = [f"key-{n % 500}" for n in range(4000)]
    world.publish_messages(subscription.topic, keyed(*names))
    world.dispatch(subscription)
    holders = defaultdict(set)
    for consumer in consumers:
        for offset in held(consumer):
            holders[names[offset]].add(consumer.id)
    assert {len(each) for each in holders.values()} == {1}
    shares = [len(held(consumer)) for consumer in consumers]
    assert sum(shares) == 4000
    assert min(shares) > 600


def test_a_key_moves_only_when_nothing_of_it_is_out(world: World) -> None:
    subscription = start(world)
    first = world.join(subscription)
    names = [f"key-{n}" for n in range(100)]
    world.publish_messages(subscription.topic, keyed(*names))
    leases = world.deliver(first)
    second = world.join(subscription)
    world.publish_messages(subscription.topic, keyed(*names))
    world.dispatch(subscription)
    assert held(second) == [], "every slot is busy at the first one"
    moving = [n for n in held(first) if n >= 100]
    assert 0 < len(moving) < 100, "a slot that is to move gets nothing new"
    for lease in leases:
        world.ack(lease)
    world.dispatch(subscription)
    assert len(held(second)) > 0
    assert sorted(held(first) + held(second)) == list(range(100, 200))


def test_a_decided_ack_that_is_not_durable_keeps_the_key(world: World) -> None:
    subscription = start(world)
    first = world.join(subscription)
    world.publish_messages(subscription.topic, keyed("a"))
    (lease,) = world.deliver(first)
    second = world.join(subscription)
    third = world.join(subscription)
    world.publish_messages(subscription.topic, keyed("a"))
    records, _ = settle.decide_ack(first, [claim(lease)])
    keys = subscription.keys
    assert keys is not None
    slot = int(slots_of(subscription.cursors[0], np.array([0]))[0])
    world.dispatch(subscription)
    assert int(keys.holder[slot]) == first.id
    for record in records:
        world.carry_out(record)
    world.dispatch(subscription)
    assert int(keys.holder[slot]) == int(keys.target[slot])
    assert sum(len(held(c)) for c in (first, second, third)) == 1


def test_a_nack_revokes_what_follows_of_the_key_and_blocks_only_it(world: World) -> None:
    subscription = start(world)
    consumer = world.join(subscription)
    world.publish_messages(subscription.topic, keyed("a", "b", "a", "a", "b"))
    (lease,) = world.deliver(consumer)
    world.give_back(lease, (0, 1), delay_s=5.0, reason="later")
    assert held(consumer) == [1, 4]
    world.publish_messages(subscription.topic, keyed("a", "b"))
    world.dispatch(subscription)
    assert held(consumer) == [1, 4, 6], "the key of the nacked one waits, the other goes on"
    world.wait(6)
    for cursor in subscription.cursors:
        due(cursor, world.now, world.wall)
    offers = world.dispatch(subscription)
    assert held(consumer) == [0, 1, 2, 3, 4, 5, 6]
    out = [(offset, o.lease.attempt) for o in offers for offset in offsets_of(o.lease)]
    assert out == [(0, 2), (2, 1), (3, 1), (5, 1)], "in order, the attempt only for the nacked one"


def test_a_nack_that_is_not_durable_yet_blocks_its_key(world: World) -> None:
    subscription = start(world)
    consumer = world.join(subscription)
    world.publish_messages(subscription.topic, keyed("a"))
    (lease,) = world.deliver(consumer)
    settle.decide_return(consumer, claim(lease), Cause.NACKED, 0.0, "", world.wall)
    world.publish_messages(subscription.topic, keyed("a", "b"))
    world.dispatch(subscription)
    assert held(consumer) == [2]


def test_a_revoked_message_may_still_be_acked_until_it_is_out_again(world: World) -> None:
    subscription = start(world)
    consumer = world.join(subscription)
    world.publish_messages(subscription.topic, keyed("a", "a"))
    (lease,) = world.deliver(consumer)
    world.give_back(lease, (0, 1), delay_s=5.0)
    assert world.ack(lease, (1, 2)) == []
    assert count(subscription).acked == 1
    world.wait(6)
    world.dispatch(subscription)
    assert held(consumer) == [0]


def test_an_expired_lease_brings_later_ones_of_its_keys_back(world: World) -> None:
    subscription = start(world)
    consumer = world.join(subscription, credit=1)
    world.publish_messages(subscription.topic, keyed("a", "a"))
    world.dispatch(subscription)
    world.wait(20)
    consumer.credit = 10
    world.dispatch(subscription)
    assert held(consumer) == [0, 1]
    world.wait(15)
    world.expire(subscription)
    assert held(consumer) == []
    offers = world.dispatch(subscription)
    assert [offsets_of(o.lease) for o in offers] == [[0], [1]]
    assert [o.lease.attempt for o in offers] == [2, 1]


def test_a_purge_does_not_free_the_key_of_a_message_at_work(world: World) -> None:
    subscription = start(world)
    first = world.join(subscription)
    world.publish_messages(subscription.topic, keyed("a"))
    world.dispatch(subscription)
    world.apply(Removed(subscription.topic.id, 0, ((0, 1),)))
    keys = subscription.keys
    assert keys is not None
    (slot,) = keys.ghosts[0].slots.tolist()
    others = [world.join(subscription) for _ in range(3)]
    world.dispatch(subscription)
    assert int(keys.holder[slot]) == first.id
    world.wait(31)
    world.dispatch(subscription)
    assert int(keys.holder[slot]) == int(keys.target[slot])
    assert len(others) == 3


def test_key_order_beats_priority_and_the_oldest_message_gives_the_priority(world: World) -> None:
    subscription = start(world)
    consumer = world.join(subscription, credit=1)
    rows = [("a", 0), ("a", 9), ("b", 5), ("c", 7), ("c", 0)]
    messages = [Message(body=b"x", key=key, priority=level) for key, level in rows]
    world.publish_messages(subscription.topic, messages)
    order = []
    for _ in rows:
        lease = world.deliver_one(consumer)
        order += offsets_of(lease)
        world.ack(lease)
    assert order == [3, 2, 0, 1, 4]


def test_a_restart_forgets_holders_and_keeps_order(world: World) -> None:
    subscription = start(world)
    consumer = world.join(subscription)
    world.publish_messages(subscription.topic, keyed("a", "a", "b"))
    (lease,) = world.deliver(consumer)
    world.give_back(lease, (0, 1), delay_s=5.0)
    (cursor,) = subscription.cursors
    world.leave(consumer)
    world.apply(Started(2, is_clean=False, started_at=world.wall))
    subscription.keys = None
    cursor.leased = cursor.settling = 0
    after_recovery(cursor)
    again = world.join(subscription)
    world.dispatch(subscription)
    assert held(again) == [2], "the key of the one that backs off waits"
    world.wait(61)
    due(cursor, world.now, world.wall)
    world.dispatch(subscription)
    assert held(again) == [0, 1, 2]


def test_slots_stay_where_they_are_when_others_come_and_go() -> None:
    class Some:
        def __init__(self, number: int) -> None:
            self.id = number

    a, b, c = (Some(n) for n in (1, 2, 3))
    keys = Keys()
    both: list[Any] = [a, b]
    keys.join_and_leave(both)
    before = keys.target.copy()
    keys.join_and_leave([*both, c])  # type: ignore[list-item]
    taken = keys.target != before
    assert set(keys.target[taken].tolist()) == {3}
    assert 0.25 < taken.mean() < 0.42
    keys.join_and_leave(both)
    assert (keys.target[~taken] == before[~taken]).all()
    assert set(keys.target.tolist()) == {1, 2}
    assert len(keys.target) == SLOTS


def test_after_growth_a_moved_key_waits_for_its_older_messages(world: World) -> None:
    subscription = start(world, partitions=1)
    topic = subscription.topic
    consumer = world.join(subscription)
    names = [f"k{n}" for n in range(8)]
    world.publish_messages(topic, keyed(*names))
    (lease,) = world.deliver(consumer)
    record = decide_partitions(topic, 2, world.wall)
    assert record is not None
    world.apply(record)
    moved = [n for n in names if xxh3_64_intdigest(n.encode()) % 2]
    assert 0 < len(moved) < 8
    world.publish_messages(topic, keyed(*moved, "new"), 1)
    offers = world.dispatch(subscription)
    assert [offsets_of(o.lease) for o in offers] == [[len(moved)]], "only the key without a past"
    first = names.index(moved[0])
    world.ack(lease, (first, first + 1))
    assert [offsets_of(o.lease) for o in world.dispatch(subscription)] == [[0]]
    world.ack(lease)
    (offer,) = world.dispatch(subscription)
    assert offsets_of(offer.lease) == list(range(1, len(moved)))


# -- whatever happens ------------------------------------------------------------------------------


class Story:
    """Runs random steps and checks the promises on the way."""

    def __init__(self, partitions: int) -> None:
        self.world = World()
        self.subscription = start(self.world, partitions=partitions)
        self.names: dict[tuple[int, int], str | None] = {}
        self.consumers: list[Consumer] = []
        self.open: list[Lease] = []
        self.first: dict[str, list[int]] = defaultdict(list)
        """Key -> offsets in the order of their first delivery."""
        self.seen: set[tuple[int, int]] = set()
        self.acked: set[tuple[int, int]] = set()
        self.waiting_again: dict[str, set[int]] = defaultdict(set)

    def step(self, action: str, pick: int) -> None:
        getattr(self, action)(pick)
        self.dispatch()
        self.check()

    def publish(self, pick: int) -> None:
        topic = self.subscription.topic
        partition = pick % len(topic.partitions)
        names = [None if (pick + n) % 7 == 0 else f"{partition}-{(pick * 3 + n * n) % 4}"
                 for n in range(pick % 12 + 1)]  # fmt: skip
        record = self.world.publish_messages(topic, keyed(*names), partition)
        for at, name in enumerate(names):
            self.names[partition, record.base + at] = name

    def join(self, pick: int) -> None:
        if len(self.consumers) < 5:
            self.consumers.append(self.world.join(self.subscription, credit=pick % 30 + 1))

    def leave(self, pick: int) -> None:
        if self.consumers:
            consumer = self.consumers.pop(pick % len(self.consumers))
            self.note_back([o for lease in consumer.leases.values() for o in self.places(lease)])
            self.world.leave(consumer)

    def lose(self, pick: int) -> None:
        if self.consumers:
            consumer = self.consumers.pop(pick % len(self.consumers))
            self.note_back([o for lease in consumer.leases.values() for o in self.places(lease)])
            self.world.lose(consumer)

    def ack(self, pick: int) -> None:
        lease = self.some_lease(pick)
        if lease is not None:
            places = self.places(lease)
            chosen = places[: pick % len(places) + 1]
            for _, offset in chosen:
                assert self.world.ack(lease, (offset, offset + 1)) == []
            self.acked.update(chosen)

    def nack(self, pick: int) -> None:
        lease = self.some_lease(pick)
        if lease is not None:
            places = self.places(lease)
            index, offset = places[pick % len(places)]
            delay = (0.0, 3.0)[pick % 2]
            consumer = lease.consumer
            before = {o for each in consumer.leases.values() for o in self.places(each)}
            self.world.give_back(lease, (offset, offset + 1), cause=Cause.NACKED, delay_s=delay)
            after = {o for each in consumer.leases.values() for o in self.places(each)}
            name = self.names[index, offset]
            assert (index, offset) not in after
            later = {p for p in before if name and self.names[p] == name and p > (index, offset)}
            assert before - after == later | {(index, offset)}
            self.note_back(sorted(before - after))

    def wait(self, pick: int) -> None:
        self.world.wait(pick % 40)
        for cursor in self.subscription.cursors:
            due(cursor, self.world.now, self.world.wall)
        held_before = {o for c in self.consumers for each in c.leases.values()
                       for o in self.places(each)}  # fmt: skip
        self.world.expire(self.subscription)
        held_after = {o for c in self.consumers for each in c.leases.values()
                      for o in self.places(each)}  # fmt: skip
        self.note_back(sorted(held_before - held_after))

    # -- looking

    def some_lease(self, pick: int) -> Lease | None:
        leases = [lease for c in self.consumers for lease in c.leases.values()]
        return leases[pick % len(leases)] if leases else None

    def places(self, lease: Lease) -> list[tuple[int, int]]:
        return [(lease.cursor.partition.index, o) for o in offsets_of(lease)]

    def note_back(self, places: list[tuple[int, int]]) -> None:
        for place in places:
            name = self.names[place]
            if name is not None:
                self.waiting_again[name].add(place[1])

    def dispatch(self) -> None:
        for offer in self.world.dispatch(self.subscription):
            index = offer.lease.cursor.partition.index
            for offset in offsets_of(offer.lease):
                name = self.names[index, offset]
                if name is None:
                    continue
                again = self.waiting_again[name]
                if (index, offset) not in self.seen:
                    assert not [o for o in again if o < offset], "K3: a later one went first"
                    assert not self.first[name] or self.first[name][-1] < offset, "K2: order"
                    self.first[name].append(offset)
                    self.seen.add((index, offset))
                else:
                    assert not [o for o in again if o < offset], "K3: redelivered out of order"
                again.discard(offset)

    def check(self) -> None:
        holders: dict[str, set[int]] = defaultdict(set)
        for consumer in self.consumers:
            for lease in consumer.leases.values():
                for place in self.places(lease):
                    name = self.names[place]
                    if name is not None:
                        holders[name].add(consumer.id)
        assert all(len(each) == 1 for each in holders.values()), "K1: two holders of one key"
        found = count(self.subscription, self.world.wall)
        assert unexplained(found) == 0
        assert found.acked == len(self.acked)

    def drain(self) -> None:
        """K5: with a consumer that acks, everything ends."""
        for _ in range(400):
            if not self.consumers:
                self.join(8)
            self.wait(39)
            self.dispatch()
            for consumer in self.consumers:
                for lease in list(consumer.leases.values()):
                    places = self.places(lease)
                    for _, offset in places:
                        assert self.world.ack(lease, (offset, offset + 1)) == []
                    self.acked.update(places)
            if len(self.acked) == len(self.names):
                return
        raise AssertionError(f"stuck: {sorted(set(self.names) - self.acked)[:10]}")


ACTIONS = ("publish", "publish", "join", "leave", "lose", "ack", "ack", "nack", "wait")


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1000)), min_size=30, max_size=80),
)
def test_order_and_ownership_hold_whatever_happens(
    partitions: int, steps: list[tuple[str, int]]
) -> None:
    story = Story(partitions)
    story.join(20)
    for action, pick in steps:
        story.step(action, pick)
    story.drain()
