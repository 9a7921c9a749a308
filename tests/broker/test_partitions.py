"""Partitions added while the broker works: durable, refused when stale, whole after any crash."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.batch import Batch, encode_many
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.salvage import salvage
from penstock.delivery.counts import unexplained
from penstock.delivery.growth import decide_partitions, earlier_homes
from penstock.journal.dump import dump
from penstock.journal.memory import Image, MemoryDisk, Op
from penstock.journal.powercut import Policy
from penstock.vocabulary.errors import (
    PartitionsOnlyGrow,
    PublisherForgotten,
    StaleMap,
    UnknownTopic,
)
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause, PartitionsAdded, TopicCreated
from tests.broker.rig import GENERATED, NAMED, SETTINGS, Rig
from tests.broker.test_remains import kind, without


@pytest.fixture
def rig() -> Rig:
    return Rig()


def publish(
    rig: Rig, partition: int, partitions: int, sequence: int, publisher: bytes = NAMED
) -> Pending:
    pending = Pending()
    rig.broker.publish(
        "orders", partition, encode_many([b"x"]), 1, publisher, 0, sequence, DIRECT, pending,
        partitions,
    )  # fmt: skip
    return pending


def check(rig: Rig, partitions: int) -> None:
    """The topic is whole: cursors for all partitions, nothing unexplained."""
    topic = rig.broker.state.names["orders"]
    assert len(topic.partitions) == len(topic.map) == partitions
    for subscription in topic.every_subscription():
        assert len(subscription.cursors) == partitions
    assert [row["unexplained"] for row in rig.broker.subscriptions()] == [0] * len(
        rig.broker.subscriptions()
    )


# -- growing -----------------------------------------------------------------------------------


def test_added_partitions_are_durable_when_the_call_returns(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"a")
    rig.broker.alter_topic("orders", {}, 3)
    rig.publish("orders", b"b", partition=2)
    assert worker.bodies == [b"a", b"b"]
    for again in (rig.crash(), rig.restart()):
        check(again, 3)
        assert again.held() == [b"a", b"b"]
        assert again.attach(name="second").bodies == [b"a", b"b"]
        growth = again.broker.state.names["orders"].growth
        assert growth == [(1, (1,), rig.clock.wall())]


def test_policy_and_partitions_change_together(rig: Rig) -> None:
    rig.publish()
    rig.broker.alter_topic("orders", {"retain_s": 5}, 2)
    again = rig.crash()
    check(again, 2)
    assert again.broker.state.names["orders"].policy == TopicPolicy(retain_s=5.0)


def test_a_refusal_changes_nothing(rig: Rig) -> None:
    rig.broker.create_topic("orders", 3, TopicPolicy())
    before = rig.journal.records
    with pytest.raises(PartitionsOnlyGrow):
        rig.broker.alter_topic("orders", {"retain_s": 5}, 2)
    with pytest.raises(UnknownTopic):
        rig.broker.alter_topic("nothing", {}, 2)
    rig.broker.alter_topic("orders", {}, 3)
    assert rig.journal.records == before
    assert rig.broker.state.names["orders"].policy == TopicPolicy()
    assert rig.broker.partitions("orders") == 3


def test_publishes_decided_around_the_growth_all_find_their_place(rig: Rig) -> None:
    rig.attach()
    answers = [publish(rig, 0, 1, 0)]
    rig.broker.alter_topic("orders", {}, 2)
    answers.append(publish(rig, 1, 2, 0))
    rig.settle()
    assert [answer.wait().base for answer in answers] == [0, 0]
    check(rig.crash(), 2)


def test_publishes_to_new_partitions_may_ride_with_the_growth(rig: Rig) -> None:
    """Of a `written` topic, publishes count before the sync, but never before the growth."""
    rig.broker.create_topic("orders", 1, TopicPolicy(durability=Durability.WRITTEN))
    worker = rig.attach()
    with rig.engine.lock:
        record = decide_partitions(rig.broker.state.names["orders"], 3, rig.clock.wall())
        assert record is not None
        rig.engine.submit(record, None)
        answer = publish(rig, 2, 3, 0)
    rig.keeper.snapshot()  # between decision and record
    rig.settle()
    assert answer.wait().base == 0
    assert len(worker.bodies) == 1
    check(rig.crash(), 3)


def test_redrive_finds_its_way_home_after_the_growth(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"old")
    rig.broker.alter_topic("orders", {}, 3)
    rig.publish("orders", b"new", partition=2)
    for part in worker.take():
        rig.give_back(worker, part, cause=Cause.REJECTED)
    while rig.keeper.move_doomed():
        rig.settle()
    assert rig.counts().dead == 2
    assert rig.broker.redrive("orders", "billing", lambda *_: True, None, is_dry=False) == 2
    rig.settle()
    again = {part.partition: part for part in worker.take()}
    assert sorted(again) == [0, 2]
    assert unexplained(rig.counts()) == 0
    assert [c.dead for c in rig.subscription().cursors] == [0, 0, 0]


# -- stale maps --------------------------------------------------------------------------------


def test_a_new_batch_for_the_old_map_is_refused_and_takes_no_offset(rig: Rig) -> None:
    publish(rig, 0, 1, 0)
    rig.broker.alter_topic("orders", {}, 2)
    with pytest.raises(StaleMap, match="2 partitions now") as caught:
        publish(rig, 0, 1, 1)
    assert caught.value.partitions == 2
    rig.settle()
    assert len(rig.held()) == 1
    assert publish(rig, 0, 2, 1)
    rig.settle()
    assert len(rig.held()) == 2


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_stored_batch_sent_again_for_the_old_map_is_a_duplicate(
    rig: Rig, is_restarted: bool
) -> None:
    publish(rig, 0, 1, 0)
    rig.broker.alter_topic("orders", {}, 2)
    rig = rig.crash() if is_restarted else rig
    again = publish(rig, 0, 1, 0)
    rig.settle()
    assert (again.wait().is_duplicate, again.wait().base) == (True, 0)
    assert len(rig.held()) == 1


def test_a_batch_on_its_way_sent_again_waits_for_the_first(rig: Rig) -> None:
    rig.publish("orders", b"0")
    first = publish(rig, 0, 1, 1)
    with rig.engine.lock:
        record = decide_partitions(rig.broker.state.names["orders"], 2, rig.clock.wall())
        assert record is not None
        rig.engine.submit(record, None)
    again = publish(rig, 0, 1, 1)
    rig.settle()
    assert (first.wait().base, again.wait().base, again.wait().is_duplicate) == (1, 1, True)


def test_a_forgotten_publisher_is_told_so_and_not_to_split_anew(rig: Rig) -> None:
    rig.publish("orders", b"0")
    rig.broker.alter_topic("orders", {}, 2)
    with pytest.raises(PublisherForgotten):
        publish(rig, 0, 1, 5, GENERATED)


# -- the store ---------------------------------------------------------------------------------


def test_a_grown_topic_is_compacted_like_any_other(rig: Rig) -> None:
    worker = rig.attach(credit=100)
    rig.publish("orders", b"keep-0")
    rig.broker.alter_topic("orders", {}, 3)
    for number in range(40):
        rig.publish("orders", b"%d" % number + b"x" * 300, partition=number % 3)
    rig.publish("orders", b"keep-2", partition=2)
    for part in worker.take():
        bodies = [Batch(f.batch).bodies[i] or b"" for f in part.frames for i in f.indexes]
        for offset, body in zip(range(part.start, part.end), bodies, strict=True):
            if not body.startswith(b"keep"):
                rig.ack(worker, part, (offset, offset + 1))
    for segment in [s for s in rig.journal.index.segments.values() if s.is_sealed and s.live]:
        rig.keeper.compact(segment)
    rig.settle()
    rig.keeper.snapshot()
    for again in (rig.crash(), rig.restart()):
        check(again, 3)
        assert again.held() == [b"keep-0", b"keep-2"]


def grown_image() -> Image:
    rig = Rig()
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    rig.publish("orders", b"a")
    rig.broker.alter_topic("orders", {}, 3)
    rig.publish("orders", b"b", partition=2)
    rig.broker.alter_topic("orders", {}, 4)
    rig.publish("orders", b"c", partition=3)
    return rig.disk.image()


def test_salvage_tells_the_growth_again(rig: Rig) -> None:
    image = grown_image()
    target = MemoryDisk()
    salvage(MemoryDisk.from_image(image), target, SETTINGS, rig.clock)
    without_snapshots = {
        name: data for name, data in target.image().items() if "snapshot" not in name
    }
    for files in (target.image(), without_snapshots):
        again = Rig(MemoryDisk.from_image(files, record=True), rig.clock)
        check(again, 4)
        assert again.held() == [b"a", b"b", b"c"]
        topic = again.broker.state.names["orders"]
        assert [growth[:2] for growth in topic.growth or ()] == [(1, (1,)), (3, (1, 0, 1))]
        assert earlier_homes(topic, 3, 7) == [(0, 1), (1, 0)]


def test_the_dump_shows_the_growth() -> None:
    rows = [row for row in dump(MemoryDisk.from_image(grown_image())) if row.get("kind")]
    added = [row for row in rows if row["kind"] == "PartitionsAdded"]
    assert [(row["partitions"], list(row["ends"])) for row in added] == [(3, [1]), (4, [1, 0, 1])]


def test_a_lost_growth_loses_no_message(rig: Rig) -> None:
    image = without(dict(grown_image()), kind(PartitionsAdded))
    again = Rig(MemoryDisk.from_image(image, record=True), rig.clock)
    assert {b"a", b"b", b"c"} <= set(again.held())
    check(again, 4)
    assert again.broker.health()["status"] == "degraded"
    target = MemoryDisk()
    report = salvage(MemoryDisk.from_image(image), target, SETTINGS, rig.clock)
    assert (report.messages, report.lost_messages) == (3, 0)
    assert set(Rig(MemoryDisk.from_image(target.image(), record=True)).held()) == {b"a", b"b", b"c"}


def test_an_orphan_may_grow_too(rig: Rig) -> None:
    image = without(dict(grown_image()), kind(TopicCreated))
    target = MemoryDisk()
    report = salvage(MemoryDisk.from_image(image), target, SETTINGS, rig.clock)
    assert report.messages == 3


# -- power cuts --------------------------------------------------------------------------------

POLICIES = (Policy.DROP_ALL, Policy.KEEP_ALL, Policy.PREFIX, Policy.TORN_PREFIX)


class Story:
    """Grows a topic while it is used; after each confirmed step, what must be true from then on."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.images: list[tuple[int, set[bytes], str, Image]] = []
        self.partitions = 0
        self.confirmed: set[bytes] = set()
        self.rig.disk.on_operation = self.cut

    def cut(self, op: Op) -> None:
        for label, image in self.rig.disk.crash_images(POLICIES):
            self.images.append((self.partitions, set(self.confirmed), f"{op} {label}", image))

    def run(self) -> None:
        rig = self.rig
        rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
        self.partitions = 1
        self.publish(b"a", 0)
        for count in (2, 4):
            rig.broker.alter_topic("orders", {}, count)
            self.partitions = count
            self.publish(b"%d" % count, count - 1)
            rig.keeper.snapshot()
        self.publish(b"z", 0)

    def publish(self, body: bytes, partition: int) -> None:
        self.rig.publish("orders", body, partition=partition)
        self.confirmed.add(body)


def cuts() -> Iterator[tuple[int, set[bytes], str, Image]]:
    story = Story()
    story.run()
    seen: set[Any] = set()
    for partitions, confirmed, label, image in story.images:
        key = (partitions, frozenset(image.items()))
        if partitions and key not in seen:
            seen.add(key)
            yield partitions, confirmed, label, image


def test_a_power_cut_at_any_moment_leaves_a_whole_topic() -> None:
    grown = 0
    for partitions, confirmed, label, image in cuts():
        rig = Rig(MemoryDisk.from_image(image, record=True))
        topic = rig.broker.state.names["orders"]
        count = len(topic.partitions)
        assert count >= partitions, label
        check(rig, count)
        assert confirmed <= set(rig.held()), label
        assert [growth.partitions for growth in topic.growth or ()] == [
            n for n in (1, 2) if n < count
        ], label
        rig.publish("orders", b"next", partition=count - 1, publisher=GENERATED)
        assert b"next" in rig.attach().bodies, label
        grown += count > 1
    assert grown > 10, "the cuts do not reach the growth"
