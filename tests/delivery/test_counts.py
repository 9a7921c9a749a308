"""attached = acked + leased + waiting + delayed + dead + expired + dropped, at every step.

The machine below keeps its own book: one word per message and subscription, changed only by what
an outsider sees. After every step the broker's counts must be a recount of that book.
"""

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.delivery.counts import Counts, count, count_cursor, unexplained
from penstock.delivery.shared import after_recovery
from penstock.delivery.state import Consumer, Lease, Subscription
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import (
    Cause,
    Outcome,
    Published,
    Ranges,
    Removed,
    Settled,
    Skipped,
    Started,
    SubscriptionDeleted,
)
from tests.delivery.world import World

PICK = st.integers(0, 1 << 16)
POLICY = SubscriptionPolicy(lease_s=30, retry=Retry(first_s=1, max_s=4, max_attempts=3))

WAITING, DELAYED, DEAD, ACKED, DROPPED = "waiting", "delayed", "dead", "acked", "dropped"
LEASED = "leased"


class Bookkeeper(RuleBasedStateMachine):
    """A broker with two subscriptions, and a book of where every message is."""

    @initialize(partitions=st.integers(1, 2))
    def begin(self, partitions: int) -> None:
        self.world = World()
        self.topic = self.world.topic(partitions=partitions)
        self.subscriptions = [
            self.world.subscribe(self.topic, name, POLICY) for name in ("billing", "audit")
        ]
        self.book: dict[Subscription, dict[tuple[int, int], str]] = {
            subscription: {} for subscription in self.subscriptions
        }
        self.due: dict[tuple[Subscription, int, int], int] = {}
        self.redriven: set[tuple[int, int]] = set()
        self.generation = 0

    # -- what an outsider does ------------------------------------------------------------------

    @rule(size=st.integers(1, 12), pick=PICK)
    def publish(self, size: int, pick: int) -> None:
        partition = pick % len(self.topic.partitions)
        record = self.world.publish(self.topic, size, partition)
        for pages in self.book.values():
            pages.update(((partition, o), WAITING) for o in range(record.base, record.end))

    @rule(pick=PICK, credit=st.integers(1, 8))
    def join(self, pick: int, credit: int) -> None:
        self.world.join(self.subscriptions[pick % len(self.subscriptions)], credit)

    @rule(pick=PICK)
    def serve(self, pick: int) -> None:
        subscription = self.subscriptions[pick % len(self.subscriptions)]
        pages = self.book[subscription]
        for offer in self.world.dispatch(subscription):
            lease = offer.lease
            for offset in range(lease.start, lease.end):
                place = (lease.cursor.partition.index, offset)
                assert pages[place] == WAITING, f"{place} handed out while {pages[place]}"
                pages[place] = LEASED
            assert lease.consumer.outstanding <= lease.consumer.credit

    @rule(pick=PICK, low=PICK, high=PICK)
    def ack(self, pick: int, low: int, high: int) -> None:
        chosen = self._part_of_a_lease(pick, low, high)
        if chosen is not None:
            lease, part = chosen
            assert self.world.ack(lease, part) == []
            self._move(lease, part, ACKED)

    @rule(pick=PICK, low=PICK, high=PICK, delay_s=st.sampled_from([None, 0, 3]))
    def nack(self, pick: int, low: int, high: int, delay_s: float | None) -> None:
        chosen = self._part_of_a_lease(pick, low, high)
        if chosen is not None:
            lease, part = chosen
            self.world.give_back(lease, part, delay_s=delay_s)
            self._come_back(lease, part)

    @rule(pick=PICK, low=PICK, high=PICK, cause=st.sampled_from([Cause.REJECTED, Cause.UNSTARTED]))
    def reject_or_hand_back(self, pick: int, low: int, high: int, cause: Cause) -> None:
        chosen = self._part_of_a_lease(pick, low, high)
        if chosen is not None:
            lease, part = chosen
            self.world.give_back(lease, part, cause=cause)
            self._move(lease, part, WAITING)

    @rule(pick=PICK, is_clean=st.booleans(), share=PICK)
    def leave(self, pick: int, is_clean: bool, share: int) -> None:
        consumers = self._consumers()
        if consumers:
            consumer = consumers[pick % len(consumers)]
            held = [
                (lease, part) for lease in consumer.leases.values() for part in lease.unfinished()
            ]
            begun: dict[int, Ranges] = {
                lease.id: ((low, high),)
                for number, (lease, (low, high)) in enumerate(held)
                if share >> number & 1
            }
            self.world.leave(consumer, begun, is_clean=is_clean)
            for lease, part in held:
                self._come_back(lease, part)

    @rule(seconds=st.sampled_from([1, 5, 31]))
    def wait(self, seconds: int) -> None:
        self.world.wait(seconds)
        for subscription in self.subscriptions:
            held = [
                (lease, part)
                for consumer in subscription.consumers or ()
                for lease in consumer.leases.values()
                for part in lease.unfinished()
                if lease.deadline <= self.world.now
            ]
            self.world.expire(subscription)
            for lease, part in held:
                self._move(lease, part, WAITING)
        for (subscription, partition, offset), due in list(self.due.items()):
            if due <= self.world.now:
                del self.due[subscription, partition, offset]
                if self.book[subscription][partition, offset] == DELAYED:
                    self.book[subscription][partition, offset] = WAITING

    @rule()
    def bury(self) -> None:
        for cursor in list(self.world.doomed):
            assert cursor.doomed is not None
            below = [(0, cursor.doomed.floor)] if cursor.doomed.floor else []
            ranges = [
                part
                for low, high in [*below, *cursor.doomed.ranges()]
                for part in cursor.done.gaps(low, high)
            ]
            if ranges and cursor.subscription in self.book:
                self.world.bury(cursor, *ranges)
                for low, high in ranges:
                    for offset in range(low, high):
                        place = (cursor.partition.index, offset)
                        assert self.book[cursor.subscription][place] == WAITING
                        self.book[cursor.subscription][place] = DEAD
        self.world.doomed.clear()

    @rule(pick=PICK)
    def redrive(self, pick: int) -> None:
        subscription = self.subscriptions[pick % len(self.subscriptions)]
        dead = self.world.state.names.get(f"orders.dead.{subscription.name}")
        for partition in dead.partitions if dead is not None else ():
            for part in list(partition.released.gaps(0, partition.next_offset))[:1]:
                unit = self.world.redrive(subscription, partition, part)
                for stored in unit.records:
                    if isinstance(stored, Published):
                        self.take_back(subscription, stored)

    def take_back(self, subscription: Subscription, stored: Published) -> None:
        pages = self.book[subscription]
        gone = [p for p, word in pages.items() if word == DEAD and p[0] == stored.partition]
        for place in gone[: stored.count]:
            del pages[place]  # It goes on under a new offset.
        fresh = [(stored.partition, o) for o in range(stored.base, stored.end)]
        pages.update(dict.fromkeys(fresh, WAITING))
        self.redriven.update(fresh)

    @rule(pick=PICK)
    def remove(self, pick: int) -> None:
        partition = self.topic.partitions[pick % len(self.topic.partitions)]
        if partition.next_offset:
            offset = pick % partition.next_offset
            self.world.apply(Removed(self.topic.id, partition.index, ((offset, offset + 1),)))
            for pages in self.book.values():
                word = pages.get((partition.index, offset))
                if word in (WAITING, LEASED, DELAYED):
                    pages[partition.index, offset] = DROPPED

    @rule(pick=PICK)
    def skip(self, pick: int) -> None:
        partition = self.topic.partitions[pick % len(self.topic.partitions)]
        for subscription in self.subscriptions:
            self.serve(self.subscriptions.index(subscription))
        self.world.apply(Skipped(self.topic.id, partition.index, partition.next_offset + 5))

    @rule()
    def restart(self) -> None:
        self.generation += 1
        for subscription in self.subscriptions:
            subscription.consumers = None
            for cursor in subscription.cursors:
                cursor.leased = cursor.settling = 0
        self.world.apply(Started(self.generation, False, self.world.wall))
        for subscription in self.subscriptions:
            for cursor in subscription.cursors:
                after_recovery(cursor)
            pages = self.book[subscription]
            pages.update((place, WAITING) for place, word in pages.items() if word == LEASED)

    @rule(pick=PICK)
    def replace_a_subscription(self, pick: int) -> None:
        subscription = self.subscriptions[1]
        if pick % 4 == 0 and not subscription.consumers:
            self.world.apply(SubscriptionDeleted(self.topic.id, subscription.id))
            del self.book[subscription]
            self.due = {place: due for place, due in self.due.items() if place[0] in self.book}
            fresh = self.world.subscribe(self.topic, "audit", POLICY)
            self.subscriptions[1] = fresh
            self.book[fresh] = {
                (partition.index, offset): WAITING
                for partition in self.topic.partitions
                for offset in range(partition.next_offset)
                if offset not in partition.released
                and (partition.index, offset) not in self.redriven
            }

    # -- the book -------------------------------------------------------------------------------

    def _consumers(self) -> list[Consumer]:
        return [c for subscription in self.subscriptions for c in subscription.consumers or ()]

    def _part_of_a_lease(
        self, pick: int, low: int, high: int
    ) -> tuple[Lease, tuple[int, int]] | None:
        leases = [lease for consumer in self._consumers() for lease in consumer.leases.values()]
        if not leases:
            return None
        lease = leases[pick % len(leases)]
        start, end = lease.unfinished()[low % len(lease.unfinished())]
        first = start + low % (end - start)
        return lease, (first, first + 1 + high % (end - first))

    def _move(self, lease: Lease, part: tuple[int, int], word: str) -> None:
        pages = self.book[lease.cursor.subscription]
        for offset in range(*part):
            place = (lease.cursor.partition.index, offset)
            assert pages[place] == LEASED
            pages[place] = word

    def _come_back(self, lease: Lease, part: tuple[int, int]) -> None:
        """Into a back-off when there is one; the delay itself is tested elsewhere."""
        self._move(lease, part, WAITING)
        cursor = lease.cursor
        for due, start, end, _, _ in cursor.delayed or ():
            for offset in range(max(start, part[0]), min(end, part[1])):
                place = (cursor.partition.index, offset)
                self.book[cursor.subscription][place] = DELAYED
                self.due[cursor.subscription, *place] = due

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def counts_are_a_recount_of_the_book(self) -> None:
        for subscription in self.subscriptions:
            found = count(subscription)
            words = Counter(self.book[subscription].values())
            assert {
                "leased": found.leased,
                "waiting": found.waiting,
                "delayed": found.delayed,
                "acked": found.acked,
                "dead": found.dead,
                "dropped": found.dropped,
            } == {word: words[word] for word in (LEASED, WAITING, DELAYED, ACKED, DEAD, DROPPED)}
            assert found.attached == len(self.book[subscription])
            assert found.expired == 0

    @invariant()
    def nothing_is_unexplained_or_negative(self) -> None:
        for subscription in self.subscriptions:
            found = count(subscription)
            assert unexplained(found) == 0
            assert min(getattr(found, name) for name in found.__struct_fields__) >= 0

    @invariant()
    def credit_is_what_the_leases_say(self) -> None:
        for consumer in self._consumers():
            open_count = sum(lease.count for lease in consumer.leases.values())
            assert consumer.outstanding == open_count <= consumer.credit
            if consumer.is_isolated:
                assert len(consumer.leases) == 1

    @invariant()
    def a_message_is_held_exactly_while_somebody_needs_it(self) -> None:
        for partition in self.topic.partitions:
            needed = {
                offset
                for pages in self.book.values()
                for (index, offset), word in pages.items()
                if index == partition.index and word in (WAITING, LEASED, DELAYED)
            }
            held = {o for o in range(partition.next_offset) if o not in partition.released}
            assert held == needed
            assert partition.held == len(held)

    @invariant()
    def what_may_be_offered_is_offered_once(self) -> None:
        for subscription in self.subscriptions:
            for cursor in subscription.cursors:
                rows = [*(cursor.ready or ()), *(cursor.isolated or ())]
                rows += [(low, high) for _, low, high, _, _ in cursor.delayed or ()]
                offsets = [offset for low, high in rows for offset in range(low, high)]
                assert len(offsets) == len(set(offsets))
                assert not [offset for offset in offsets if offset in cursor.done]


TestNothingIsEverUnexplained = Bookkeeper.TestCase
TestNothingIsEverUnexplained.settings = settings(
    stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)


# -- single claims -----------------------------------------------------------------------------


def test_a_decided_ack_counts_as_leased_until_it_is_durable() -> None:
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic)
    world.publish(topic, 3)
    consumer = world.join(subscription)
    lease = world.deliver_one(consumer)
    subscription.cursors[0].settling += 2
    subscription.cursors[0].leased -= 2
    assert count(subscription).leased == 3
    assert lease.count == 3


def test_a_doomed_message_waits_until_it_is_moved() -> None:
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic)
    world.publish(topic)
    world.give_back(world.deliver_one(world.join(subscription)), cause=Cause.REJECTED)
    assert count(subscription).waiting == 1


def test_expired_messages_have_their_own_count() -> None:
    world = World()
    topic = world.topic()
    subscription = world.subscribe(topic)
    world.publish(topic, 2)
    world.apply(Settled(topic.id, 0, subscription.id, Outcome.EXPIRED, ((0, 1),)))
    assert count(subscription).expired == 1
    assert unexplained(count(subscription)) == 0


def test_partitions_add_up() -> None:
    world = World()
    topic = world.topic(partitions=2)
    subscription = world.subscribe(topic)
    world.publish(topic, 2, 0)
    world.publish(topic, 3, 1)
    parts = [count_cursor(cursor) for cursor in subscription.cursors]
    assert parts[0] + parts[1] == count(subscription) == Counts(attached=5, waiting=5)


def test_a_message_that_is_nowhere_is_unexplained() -> None:
    assert unexplained(Counts(attached=5, acked=2, leased=1, waiting=1)) == 1
