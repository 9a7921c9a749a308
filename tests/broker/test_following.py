"""Subscriptions over patterns on a real broker: every topic that matches, now or later."""

import random
from typing import Any

import pytest

from penstock.broker.broker import Sink
from penstock.broker.following import Follower, Seat, Wanted, check_start
from penstock.broker.mailbox import DIRECT
from penstock.broker.salvage import salvage
from penstock.delivery.state import Consumer
from penstock.journal.memory import MemoryDisk
from penstock.vocabulary.errors import (
    Draining,
    InvalidArgument,
    InvalidName,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicInUse,
    UnknownSubscription,
)
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import SubscriptionCreated, TopicCreated, Unit
from tests.broker.rig import SETTINGS, Rig, Worker
from tests.broker.test_rebuild import assert_rebuilds

PATTERN = "sensors/+/temp"


class Many:
    """A consumer of a pattern: one worker for each topic."""

    def __init__(self, rig: Rig, pattern: str, name: str | None, **options: Any) -> None:
        self.rig = rig
        self.workers: dict[str, Worker] = {}
        self.closed: list[Any] = []
        wanted = Wanted(
            pattern, name, options.get("policy"), options.get("start"), options.get("credit", 1000),
            1 << 26, options.get("consumer", "worker"), is_named=options.get("is_named", False),
        )  # fmt: skip
        self.follower: Follower = rig.broker.follow(wanted, self.seat, DIRECT, self.closed.append)
        rig.settle()

    def seat(self, topic: str) -> Seat:
        worker = Worker()
        self.workers[topic] = worker

        def joined(consumer: Consumer) -> None:
            worker.consumer = consumer

        return Seat(Sink(DIRECT, worker.receive, worker.closed.append), joined)

    @property
    def bodies(self) -> dict[str, list[bytes | None]]:
        return {topic: worker.bodies for topic, worker in self.workers.items()}

    def ack(self) -> None:
        for worker in self.workers.values():
            for part in worker.take():
                self.rig.ack(worker, part)

    def leave(self) -> None:
        self.follower.leave()
        self.follower.leave()
        for worker in self.workers.values():
            self.rig.detach(worker)


def follow(rig: Rig, pattern: str = PATTERN, name: str | None = "s", **options: Any) -> Many:
    return Many(rig, pattern, name, **options)


def row(rig: Rig, pattern: str = PATTERN) -> dict[str, Any]:
    (found,) = rig.broker.subscriptions(pattern)
    return found


# -- topics that match ---------------------------------------------------------------------------


def test_topics_that_exist_and_topics_that_come_are_delivered() -> None:
    rig = Rig()
    rig.publish("sensors/a/temp", b"old")
    rig.publish("sensors/a/hum", b"other")
    many = follow(rig)
    rig.publish("sensors/a/temp", b"1")
    rig.publish("sensors.b.temp", b"2")
    rig.publish("sensors.b.hum", b"3")
    assert many.bodies == {"sensors/a/temp": [b"old", b"1"], "sensors.b.temp": [b"2"]}
    assert row(rig)["topics"] == ["sensors.b.temp", "sensors/a/temp"]


def test_a_topic_is_attached_in_the_unit_that_creates_it() -> None:
    rig = Rig()
    follow(rig).leave()
    submitted: list[Any] = []
    submit = rig.engine.submit

    def spy(record: Any, *rest: Any, **options: Any) -> None:
        submitted.append(record)
        submit(record, *rest, **options)

    rig.engine.submit = spy  # type: ignore[method-assign]  # to see what is written
    rig.publish("sensors/a/temp", b"1")
    unit = submitted[0]
    assert isinstance(unit, Unit)
    assert [type(part) for part in unit.records] == [TopicCreated, SubscriptionCreated]
    rig.broker.create_topic("sensors/b/temp", 3, TopicPolicy())
    assert rig.subscription("sensors/b/temp", "s").cursors[2].done.floor == 0
    rig.broker.create_topic("other", 1, TopicPolicy())
    assert isinstance(submitted[-1], TopicCreated)


def test_what_was_published_while_nobody_was_connected_is_there_from_the_beginning() -> None:
    rig = Rig()
    follow(rig).leave()
    rig.publish("sensors/a/temp", b"1", b"2")
    many = follow(rig)
    assert many.bodies == {"sensors/a/temp": [b"1", b"2"]}
    many.ack()
    assert rig.held("sensors/a/temp") == []
    assert row(rig)["acked"] == 2


def test_dead_letter_and_system_topics_never_match() -> None:
    rig = Rig()
    many = follow(rig, "#")
    rig.broker.create_topic("$system", 1, TopicPolicy())
    worker = rig.attach("orders", "billing")
    rig.publish("orders", b"1")
    rig.give_back(worker, worker.take_one(), cause=3)  # type: ignore[arg-type]  # rejected
    rig.keeper.move_doomed()
    rig.settle()
    assert "orders.dead.billing" in rig.broker.state.names
    assert list(many.workers) == ["orders"]


@pytest.mark.parametrize(
    ("start", "expected"), [(None, [b"old"]), ("earliest", [b"old"]), ("latest", []), (2e9, [])]
)
def test_a_start_is_for_topics_that_exist(start: Any, expected: list[bytes]) -> None:
    rig = Rig()
    rig.publish("sensors/a/temp", b"old")
    many = follow(rig, start=start)
    rig.publish("sensors/b/temp", b"new")
    assert many.bodies == {"sensors/a/temp": expected, "sensors/b/temp": [b"new"]}


@pytest.mark.parametrize(
    ("start", "text"),
    [("0:17", "many topics"), ("soon", "'soon' is not"), (True, "True is not"), ([1], "is not")],
)
def test_a_position_is_no_start_for_many_topics(start: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        check_start(start)
    rig = Rig()
    with pytest.raises(InvalidArgument, match=text):
        follow(rig, start=start)
    assert not rig.broker.state.patterns


def test_two_consumers_of_a_pattern_share_its_messages() -> None:
    rig = Rig()
    one, two = follow(rig, credit=1), follow(rig, credit=1, consumer="second")
    rig.publish("sensors/a/temp", b"1", b"2")
    found = [*one.workers["sensors/a/temp"].bodies, *two.workers["sensors/a/temp"].bodies]
    assert sorted(found, key=str) == [b"1", b"2"]
    assert row(rig)["consumers"] == ["worker", "second"]


def test_whoever_left_gets_no_new_topics() -> None:
    rig = Rig()
    many = follow(rig)
    many.leave()
    rig.publish("sensors/a/temp", b"1")
    assert many.workers == {}
    assert rig.broker.followers == {}


# -- ephemeral -----------------------------------------------------------------------------------


def test_without_a_name_nothing_is_kept() -> None:
    rig = Rig()
    rig.publish("sensors/a/temp", b"old")
    many = follow(rig, name=None)
    rig.publish("sensors/a/temp", b"1")
    rig.publish("sensors/b/temp", b"2")
    assert many.bodies == {"sensors/a/temp": [b"1"], "sensors/b/temp": [b"2"]}
    assert rig.broker.subscriptions() == []
    many.leave()
    assert not rig.broker.state.subscriptions


def test_a_follower_that_cannot_join_hurts_nobody_else() -> None:
    rig = Rig()
    many = follow(rig, name=None)
    rig.broker.is_draining = True
    rig.broker.create_topic("sensors/a/temp", 1, TopicPolicy())
    assert [type(error) for error in many.closed] == [Draining]
    assert "sensors/a/temp" in rig.broker.state.names


def test_joining_is_undone_when_one_topic_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    for topic in ("sensors/a/temp", "sensors/b/temp"):
        rig.broker.create_topic(topic, 1, TopicPolicy())
    attach, tried = rig.broker.attach, list[str]()

    def failing(topic: str, *rest: Any, **options: Any) -> Consumer:
        tried.append(topic)
        if len(tried) == 2:
            raise Draining("no")
        return attach(topic, *rest, **options)

    monkeypatch.setattr(rig.broker, "attach", failing)
    with pytest.raises(Draining):
        follow(rig)
    rig.settle()
    assert tried == ["sensors/a/temp", "sensors/b/temp"]
    assert rig.engine.consumers == {}
    assert rig.broker.followers == {}


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["sensors/#", "sensors/a/+", "+/+/temp", "#"])
def test_a_name_is_not_used_by_two_patterns_that_meet(other: str) -> None:
    rig = Rig()
    many = follow(rig)
    with pytest.raises(SubscriptionConflict, match="exists on the pattern 'sensors/"):
        follow(rig, other)
    follow(rig, other, "another")
    follow(rig, "sensors/+/hum")
    rig.publish("sensors/a/temp", b"1")
    assert many.bodies == {"sensors/a/temp": [b"1"]}


def test_a_name_of_a_topic_is_not_used_by_a_pattern_that_matches_it() -> None:
    rig = Rig()
    worker = rig.attach("sensors/a/temp", "s")
    with pytest.raises(SubscriptionConflict, match="exists on topic 'sensors/a/temp'"):
        follow(rig)
    rig.publish("sensors/b/temp", b"1")
    assert rig.broker.state.patterns == {}
    assert [r["topic"] for r in rig.broker.subscriptions()] == ["sensors/a/temp"]
    rig.publish("sensors/a/temp", b"1")
    assert worker.bodies == [b"1"]


def test_a_name_of_a_pattern_is_not_used_by_a_topic_it_matches() -> None:
    rig = Rig()
    follow(rig).leave()
    for topic in ("sensors/a/temp", "sensors/b/temp"):
        with pytest.raises(SubscriptionConflict, match="belongs to the pattern 'sensors/"):
            rig.attach(topic, "s")
        with pytest.raises(SubscriptionConflict, match="belongs to the pattern 'sensors/"):
            rig.broker.create_subscription(topic, "s", SubscriptionPolicy(), None)
        with pytest.raises(SubscriptionConflict, match="belongs to the pattern 'sensors/"):
            rig.broker.open_reader(topic, "s", "me", None)
    assert list(rig.broker.state.names) == []
    rig.attach("sensors/a/temp", "another")
    rig.attach("sensors/a/hum", "s")


@pytest.mark.parametrize(
    ("pattern", "name", "policy", "error"),
    [
        ("a/#/b", "s", SubscriptionPolicy(), InvalidName),
        ("a/+b", "s", SubscriptionPolicy(), InvalidName),
        ("a/+", "s@c", SubscriptionPolicy(), InvalidName),
        ("a/+", "s", SubscriptionPolicy(lease_s=0), InvalidArgument),
    ],
)
def test_what_is_refused_changes_nothing(
    pattern: str, name: str, policy: SubscriptionPolicy, error: type[Exception]
) -> None:
    rig = Rig()
    with pytest.raises(error):
        follow(rig, pattern, name, policy=policy)
    with pytest.raises(error):
        rig.broker.create_subscription(pattern, name, policy, None)
    assert (rig.broker.state.patterns, rig.broker.followers) == ({}, {})


# -- administration ------------------------------------------------------------------------------


def test_a_listing_shows_the_pattern_and_its_topics() -> None:
    rig = Rig()
    rig.broker.create_subscription(PATTERN, "s", SubscriptionPolicy(), None)
    rig.publish("sensors/a/temp", b"1")
    rig.publish("sensors/b/temp", b"2", b"3")
    rig.attach("sensors/a/temp", "plain")
    rows = rig.broker.subscriptions()
    assert [(r["topic"], r["subscription"], r["waiting"], r.get("pattern")) for r in rows] == [
        (PATTERN, "s", 3, PATTERN),
        ("sensors/a/temp", "plain", 0, None),
        ("sensors/a/temp", "s", 1, PATTERN),
        ("sensors/b/temp", "s", 2, PATTERN),
    ]
    assert rig.broker.subscriptions("other/+") == []


def test_changing_a_pattern_changes_every_topic_and_those_to_come() -> None:
    rig = Rig()
    rig.publish("sensors/a/temp", b"1")
    rig.broker.create_subscription(PATTERN, "s", SubscriptionPolicy(), None)
    rig.broker.alter_subscription(PATTERN, "s", {"lease_s": 7})
    rig.broker.alter_subscription(PATTERN, "s", {"lease_s": 7})
    rig.publish("sensors/b/temp", b"1")
    assert [r["policy"].get("lease_s") for r in rig.broker.subscriptions()] == [7, 7, 7]
    with pytest.raises(SubscriptionConflict, match="belongs to the pattern"):
        rig.broker.alter_subscription("sensors/a/temp", "s", {"lease_s": 8})
    with pytest.raises(SubscriptionConflict, match="cannot change"):
        rig.broker.alter_subscription(PATTERN, "s", {"kind": "multicast"})
    with pytest.raises(SubscriptionConflict, match="another policy"):
        rig.broker.create_subscription(PATTERN, "s", SubscriptionPolicy(), None)
    with pytest.raises(UnknownSubscription, match="it has: 's'"):
        rig.broker.alter_subscription(PATTERN, "t", {"lease_s": 8})
    assert_patterns_rebuild(rig)


def test_deleting_a_pattern_deletes_it_everywhere() -> None:
    rig = Rig()
    many = follow(rig)
    with pytest.raises(SubscriptionInUse, match=r"has 1 consumer"):
        rig.broker.delete_subscription(PATTERN, "s")
    rig.publish("sensors/a/temp", b"1")
    with pytest.raises(SubscriptionConflict, match="belongs to the pattern"):
        rig.broker.delete_subscription("sensors/a/temp", "s")
    with pytest.raises(TopicInUse):
        rig.broker.delete_topic("sensors/a/temp")
    many.leave()
    rig.broker.delete_subscription(PATTERN, "s")
    assert rig.broker.subscriptions() == []
    assert rig.held("sensors/a/temp") == []
    rig.publish("sensors/b/temp", b"2")
    assert rig.broker.subscriptions() == []
    with pytest.raises(UnknownSubscription):
        rig.broker.delete_subscription(PATTERN, "s")
    assert follow(rig).bodies == {"sensors/a/temp": [], "sensors/b/temp": [b"2"]}


def test_a_topic_that_goes_and_comes_is_attached_again() -> None:
    rig = Rig()
    rig.broker.create_subscription(PATTERN, "s", SubscriptionPolicy(), None)
    rig.publish("sensors/a/temp", b"1")
    rig.broker.delete_topic("sensors/a/temp")
    rig.sequences.clear()
    rig.publish("sensors/a/temp", b"2")
    assert follow(rig.restart()).bodies == {"sensors/a/temp": [b"2"]}


# -- restarts ------------------------------------------------------------------------------------


def assert_patterns_rebuild(rig: Rig) -> None:
    assert_rebuilds(rig)
    fresh = rig.crash()
    assert fresh.broker.state.patterns == rig.broker.state.patterns


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_pattern_survives_a_restart(is_clean: bool) -> None:
    rig = Rig()
    many = follow(rig, policy=SubscriptionPolicy(lease_s=9))
    rig.publish("sensors/a/temp", b"1", b"2")
    worker = many.workers["sensors/a/temp"]
    rig.ack(worker, worker.take_one(), (0, 1))
    many.leave()
    fresh = rig.restart() if is_clean else rig.crash()
    fresh.publish("sensors/b/temp", b"3")
    assert follow(fresh).bodies == {"sensors/a/temp": [b"2"], "sensors/b/temp": [b"3"]}
    assert row(fresh)["policy"]["lease_s"] == 9


def test_a_pattern_that_is_not_durable_is_in_no_snapshot() -> None:
    rig = Rig()
    rig.broker._ensure_pattern(PATTERN, "s", None, None, is_explicit=True)
    rig.keeper.snapshot()
    assert rig.broker.state.patterns
    fresh = rig.crash()
    assert fresh.broker.state.patterns == {}
    fresh.publish("sensors/a/temp", b"1")
    assert fresh.broker.subscriptions() == []


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_a_crash_loses_nothing_of_a_pattern(seed: int) -> None:
    chance = random.Random(seed)
    rig = Rig()
    many: list[Many] = []
    patterns = [PATTERN, "sensors/#", "*.hum", "#"]
    topics = ["sensors/a/temp", "sensors.b.temp", "x.hum", "other"]
    for step in range(60):
        match chance.randrange(7):
            case 0 if len(many) < 4:
                chosen = chance.randrange(4)
                many.append(follow(rig, patterns[chosen], f"s{chosen}", credit=3))
            case 1 if many:
                many.pop(chance.randrange(len(many))).leave()
            case 2 if many:
                chance.choice(many).ack()
            case 3:
                rig.keeper.snapshot()
            case 4 if not many and rig.broker.state.patterns:
                pattern, name = chance.choice(list(rig.broker.state.patterns))
                rig.broker.delete_subscription(pattern, name)
            case 5 if not many and rig.broker.state.names:
                topic = chance.choice(list(rig.broker.state.names))
                rig.broker.delete_topic(topic)
                rig.sequences = {k: v for k, v in rig.sequences.items() if k[0] != topic}
            case _:
                rig.publish(chance.choice(topics), b"%d" % step)
        assert_patterns_rebuild(rig)
        for found in rig.broker.subscriptions():
            assert found["unexplained"] == 0


def test_salvage_keeps_patterns() -> None:
    rig = Rig()
    rig.broker.create_subscription(PATTERN, "s", SubscriptionPolicy(), None)
    rig.publish("sensors/a/temp", b"1")
    rig.broker.close()
    target = MemoryDisk()
    salvage(MemoryDisk.from_image(rig.disk.image()), target, SETTINGS, rig.clock)
    for image in (
        target.image(),
        {n: data for n, data in target.image().items() if not n.startswith("snapshot-")},
    ):
        fresh = Rig(MemoryDisk.from_image(image, record=True), rig.clock)
        fresh.publish("sensors/b/temp", b"2")
        assert follow(fresh).bodies == {"sensors/a/temp": [b"1"], "sensors/b/temp": [b"2"]}


def test_a_topic_of_durability_written_is_attached_too() -> None:
    rig = Rig()
    many = follow(rig)
    rig.broker.create_topic("sensors/a/temp", 1, TopicPolicy(durability=Durability.WRITTEN))
    rig.publish("sensors/a/temp", b"1")
    assert many.bodies == {"sensors/a/temp": [b"1"]}
