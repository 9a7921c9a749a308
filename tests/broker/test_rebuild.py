"""What is rebuilt from snapshot and log is what was true, whenever the snapshot was made."""

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from penstock.broker import rebuild
from penstock.broker.rebuild import Rebuild, pieces, started
from penstock.delivery.snapshot import topic_state
from penstock.delivery.state import State
from penstock.journal.memory import Image, MemoryDisk
from penstock.journal.recovery import open_journal
from penstock.vocabulary.errors import PenstockError, StoreDamaged
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause, Outcome, Removed, Settled, TopicCreated, Unit
from tests.broker.rig import SETTINGS, ManualClock, Rig, Worker, claim

POLICY = SubscriptionPolicy(retry=Retry(max_attempts=3, first_s=1, max_s=4))


def durable(state: State, wall: int) -> dict[str, Any]:
    """Everything durable, in plain values. Back-offs that are over are the timer's business."""
    found = {}
    for topic in state.topics.values():
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(topic_state(topic)), strict=False)
        fields[2] = msgspec.convert(fields[2], TopicPolicy)
        for subscription in fields[6]:
            subscription[2] = msgspec.convert(subscription[2], SubscriptionPolicy)
            for cursor in subscription[4]:
                cursor[2] = sorted(row for row in cursor[2] or () if row[2] > wall)
        found[topic.name] = fields
    return found


def rebuilt(image: Image, clock: ManualClock) -> Rebuild:
    """The state as recovery finds it, before the broker writes that it started."""
    made: list[Rebuild] = []

    def make(journal: Any) -> Rebuild:
        made.append(Rebuild(journal, clock))
        return made[0]

    open_journal(MemoryDisk.from_image(image), SETTINGS, make)
    return made[0]


def assert_rebuilds(rig: Rig) -> None:
    """A crash now loses nothing of what is true and makes nothing up."""
    found = rebuilt(rig.disk.image(), rig.clock)
    wall = rig.clock.wall()
    assert durable(found.state, wall) == durable(rig.broker.state, wall)
    assert found.state.generation == rig.broker.state.generation
    assert found.state.attached == rig.broker.state.attached
    topics, subscriptions, consumers = found.state.next_ids()
    assert topics == rig.broker.state.next_topic_id
    assert subscriptions > max(found.state.subscriptions, default=0)
    assert consumers > max(found.state.attached, default=0)
    for topic in rig.broker.state.topics.values():
        for partition in topic.partitions:
            there = partition.released.gaps(0, partition.next_offset)
            for low, high in there:
                places = found.journal.index.locate(partition.key, low, high)
                covered = {o for place in places for o in range(place.first, place.last + 1)}
                assert set(range(low, high)) <= covered


class Chance:
    """Random operations on a broker, all through its public face."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rig = Rig()
        self.workers: list[Worker] = []
        self.topics = ["a", "b"]

    def step(self) -> None:
        often = [self.publish, self.publish, self.attach, self.ack, self.give_back]
        seldom = [self.detach, self.wait, self.bury, self.redrive, self.alter, self.delete]
        # Some random wishes are refused, which must leave no trace.
        with suppress(PenstockError):
            self.random.choice([*often, *often, *seldom])()
        self.rig.settle()

    def publish(self) -> None:
        bodies = [b"x" * self.random.randrange(60) for _ in range(self.random.randrange(1, 5))]
        self.rig.submit(self.random.choice(self.topics), *bodies)

    def attach(self) -> None:
        subscription = self.random.choice(["s", "t", None])
        policy = None if subscription is None else POLICY
        credit = self.random.randrange(1, 8)
        topic = self.random.choice(self.topics)
        self.workers.append(
            self.rig.attach(topic, subscription, policy=policy, credit=credit, is_settled=False)
        )

    def _part(self) -> tuple[Worker, Any] | None:
        holding = [worker for worker in self.workers if worker.slices]
        if not holding:
            return None
        worker = self.random.choice(holding)
        return worker, worker.slices.pop(self.random.randrange(len(worker.slices)))

    def ack(self) -> None:
        chosen = self._part()
        if chosen is not None:
            worker, part = chosen
            at = self.random.randrange(part.start, part.end)
            ranges = ((part.start, at),) if at > part.start else ((part.start, part.end),)
            self.rig.broker.ack(worker.consumer, [claim(part, *ranges)])

    def give_back(self) -> None:
        chosen = self._part()
        if chosen is not None:
            cause = self.random.choice(
                [Cause.NACKED, Cause.NACKED, Cause.REJECTED, Cause.UNSTARTED]
            )
            delay_s = self.random.choice([None, 0, 2.5])
            worker, part = chosen
            self.rig.broker.give_back(worker.consumer, claim(part), cause, delay_s, "why")

    def detach(self) -> None:
        if self.workers:
            worker = self.workers.pop(self.random.randrange(len(self.workers)))
            self.rig.detach(worker, is_clean=self.random.random() < 0.5)

    def wait(self) -> None:
        self.rig.wait(self.random.choice([0.5, 2, 31, 100_000]))

    def bury(self) -> None:
        self.rig.keeper.move_doomed()

    def redrive(self) -> None:
        topic = self.random.choice(self.topics)
        self.rig.broker.redrive(topic, "s", lambda *_: self.random.random() < 0.7, 3, is_dry=False)

    def alter(self) -> None:
        topic = self.random.choice(self.topics)
        self.rig.broker.alter_topic(topic, {"retain_s": float(self.random.randrange(100))})
        self.rig.broker.alter_subscription(topic, "s", {"lease_s": self.random.randrange(1, 40)})

    def delete(self) -> None:
        topic = self.random.choice(self.topics)
        if self.random.random() < 0.5:
            self.rig.broker.delete_subscription(topic, "t")
        elif self.random.random() < 0.3:
            self.rig.broker.delete_topic(topic)

    def keep_house(self) -> None:
        segment = self.rig.keeper.sparse_segment()
        if segment is not None:
            self.rig.keeper.compact(segment)
        self.rig.keeper.snapshot()
        self.rig.journal.free_segments()


@pytest.mark.parametrize("seed", range(12))
def test_the_log_alone_rebuilds_what_is_true(seed: int) -> None:
    chance = Chance(seed)
    for number in range(80):
        chance.step()
        if number % 8 == 0:
            assert_rebuilds(chance.rig)
    assert_rebuilds(chance.rig)


@pytest.mark.parametrize("seed", range(12))
def test_snapshots_compaction_and_log_rebuild_what_is_true(seed: int) -> None:
    chance = Chance(1000 + seed)
    for number in range(80):
        chance.step()
        if number % 7 == 0:
            chance.keep_house()
        if number % 8 == 0:
            assert_rebuilds(chance.rig)
    assert_rebuilds(chance.rig)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_true_stays_true_over_many_crashes(seed: int) -> None:
    chance = Chance(2000 + seed)
    for _ in range(5):
        for _ in range(20):
            chance.step()
        held = {topic: chance.rig.held(topic) for topic in chance.rig.broker.state.names}
        chance.rig = chance.rig.crash()
        chance.workers = []
        assert {topic: chance.rig.held(topic) for topic in chance.rig.broker.state.names} == held
        assert all(s["unexplained"] == 0 for s in chance.rig.broker.subscriptions())
        assert all(s["waiting"] >= 0 for s in chance.rig.broker.subscriptions())


def one_topic_per_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time goes so quickly that the lock is given up after every topic."""
    ticks = iter(range(1 << 30))
    monkeypatch.setattr(rebuild, "perf_counter", lambda: next(ticks) * 0.6 * rebuild.PIECE_S_MAX)


@pytest.mark.parametrize("seed", range(12))
def test_a_snapshot_made_while_the_broker_works_rebuilds_what_is_true(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_topic_per_piece(monkeypatch)
    chance = Chance(3000 + seed)
    chance.topics = ["a", "b", "c", "d"]
    rig = chance.rig

    def working() -> Iterator[bytes]:
        for piece in pieces(rig.engine):
            yield piece
            for _ in range(3):
                chance.step()

    for _ in range(8):
        for _ in range(5):
            chance.step()
        draft = rig.journal.begin_snapshot(rig.engine.applied_end, rig.engine.applied_records)
        rig.journal.finish_snapshot(draft, working())
        assert_rebuilds(rig)
        for _ in range(3):
            chance.step()
        assert_rebuilds(rig)
        rig.journal.free_segments()


# -- single claims -----------------------------------------------------------------------------


def test_a_topic_that_has_seen_a_record_skips_it() -> None:
    rig = Rig()
    rig.attach()
    rig.publish("orders", b"a")
    rig.publish("orders", b"b")
    draft = rig.journal.begin_snapshot(0, 0)  # As if it had begun before everything.
    rig.journal.finish_snapshot(draft, pieces(rig.engine))
    found = rebuilt(rig.disk.image(), rig.clock)
    (subscription,) = found.state.subscriptions.values()
    assert subscription.cursors[0].attached == 2
    assert found.state.names["orders"].partitions[0].held == 2


def test_each_topic_takes_only_its_own_part_of_a_unit() -> None:
    rig = Rig()
    rig.attach()
    rig.publish("orders", b"a")
    rig.publish("other")
    found = rebuilt(rig.disk.image(), rig.clock)
    orders, other = found.state.names["orders"], found.state.names["other"]
    (subscription,) = found.state.subscriptions.values()
    orders.applied = 1 << 60
    parts = (
        Settled(orders.id, 0, subscription.id, Outcome.ACKED, ((0, 1),)),
        Removed(other.id, 0, ((0, 1),)),
    )
    found.apply(Unit(parts), 1 << 50)
    assert subscription.cursors[0].acked == 0
    assert other.partitions[0].held == 0


def test_records_of_a_topic_deleted_during_the_snapshot_are_passed_over() -> None:
    found = rebuilt(Rig().disk.image(), ManualClock())
    found.state.ignore_unknown_upto = 500
    found.apply(Removed(77, 0, ((0, 1),)), 499)
    with pytest.raises(StoreDamaged, match="topic number 77"):
        found.apply(Removed(77, 0, ((0, 1),)), 500)


def test_a_log_that_speaks_of_an_unknown_subscription_is_refused() -> None:
    found = rebuilt(Rig().disk.image(), ManualClock())
    found.apply(TopicCreated(1, "orders", 1, TopicPolicy(), 0), 600)
    with pytest.raises(StoreDamaged, match="subscription number 5"):
        found.apply(Settled(1, 0, 5, Outcome.ACKED, ((0, 1),)), 601)


def test_what_is_volatile_is_made_ready_in_the_end() -> None:
    rig = Rig()
    worker = rig.attach()
    rig.publish("orders", b"a", b"b", b"c", b"d")
    rig.publish("uncovered")
    part = worker.take_one()
    rig.give_back(worker, part, (0, 1), delay_s=60)
    rig.give_back(worker, part, (1, 2), cause=Cause.REJECTED)
    found = rebuilt(rig.disk.image(), rig.clock)
    found.finish()
    (subscription,) = found.state.subscriptions.values()
    cursor = subscription.cursors[0]
    assert cursor.ready == [(2, 4)]
    assert cursor.strict_below == 4
    assert list(found.delaying) == [cursor]
    assert list(found.doomed) == [cursor]
    assert [partition.topic.name for partition in found.retaining] == ["uncovered"]


def test_numbers_of_deleted_things_are_not_used_again_after_a_restart() -> None:
    rig = Rig()
    rig.publish("a")
    rig.publish("b")
    worker = rig.attach("b")
    rig.detach(worker)
    rig.broker.delete_topic("b")
    again = rig.restart()
    again.attach("c")
    assert again.broker.state.names["c"].id == 3
    assert again.subscription("c").id == 2


def test_a_start_record_counts_generations() -> None:
    state = State()
    state.generation = 4
    record = started(state, 99, is_clean=True)
    assert (record.generation, record.is_clean, record.started_at) == (5, True, 99)
