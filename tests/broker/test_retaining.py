"""Time and size limits of topics on a running broker, across restarts and compaction."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.batch import Columns, encode_columns, encode_many
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.retaining import Retaining
from penstock.broker.wall import JUMP_MS_MAX
from penstock.delivery.counts import unexplained
from penstock.delivery.state import State
from penstock.journal.memory import MemoryDisk, Op
from penstock.journal.powercut import Policy
from penstock.vocabulary.errors import HeldByReader, InvalidArgument
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.units import Part, UnitWish
from tests.broker.rig import NAMED, ManualClock, Rig


def made(rig: Rig, topic: str = "orders", partitions: int = 1, **policy: Any) -> None:
    rig.broker.create_topic(topic, partitions, TopicPolicy(**policy))


def publish_keyed(rig: Rig, *keys: str | None) -> None:
    place = ("orders", 0, NAMED, 0)
    sequence = rig.sequences.get(place, 0)
    rig.sequences[place] = sequence + len(keys)
    bodies: list[bytes | None] = [b"%d" % (sequence + index) for index in range(len(keys))]
    batch = encode_columns(Columns(bodies=bodies, keys=list(keys)))
    pending = Pending()
    rig.broker.publish("orders", 0, batch, len(keys), NAMED, 0, sequence, DIRECT, pending)
    rig.settle()
    pending.wait()


def consume(rig: Rig) -> None:
    worker = rig.attach()
    for part in worker.take():
        assert rig.ack(worker, part) == []
    rig.detach(worker)


def exact(rig: Rig) -> None:
    for topic in rig.broker.state.topics.values():
        for subscription in topic.durable_subscriptions():
            assert unexplained(rig.counts(topic.name, subscription.name)) == 0


REOPEN = pytest.mark.parametrize("reopen", ["", "restart", "crash"])


def again(rig: Rig, reopen: str) -> Rig:
    return {"": lambda: rig, "restart": rig.restart, "crash": rig.crash}[reopen]()


@REOPEN
def test_deleting_a_late_subscription_leaves_what_it_had_not_acked_its_time(reopen: str) -> None:
    rig = Rig()
    made(rig, retain_s=100)
    rig.publish("orders", b"0", b"1")
    rig.wait(10)
    rig.publish("orders", b"2")
    for _ in range(2):  # the second one finds what the first left
        worker = rig.attach()
        part = worker.take()[0]
        if part.start == 0:
            rig.ack(worker, part, (0, 1))
        rig.detach(worker)
        rig = again(rig, reopen)
        rig.broker.delete_subscription("orders", "billing")
        assert rig.held() == [b"1", b"2"]
        rig = again(rig, reopen)
    rig.wait(89)
    assert rig.held() == [b"1", b"2"]
    rig.wait(2)
    assert rig.held() == [b"2"]
    rig.wait(10)
    assert rig.held() == []


def test_what_another_subscription_covers_is_not_kept_for_its_time() -> None:
    rig = Rig()
    made(rig, retain_s=100)
    rig.publish("orders", b"0", b"1", b"2")
    rig.broker.create_subscription("orders", "late", SubscriptionPolicy(), "earliest")
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), "0:1")
    rig.broker.delete_subscription("orders", "late")
    consume(rig)
    assert rig.held() == [b"0"]
    rig.wait(101)
    assert rig.held() == []


def test_what_was_covered_when_it_was_published_goes_with_its_subscription() -> None:
    rig = Rig()
    made(rig, retain_s=100)
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    rig.publish("orders", b"0")
    rig.broker.delete_subscription("orders", "billing")
    assert rig.held() == []


@REOPEN
def test_acked_messages_stay_for_the_replay_window_and_no_longer(reopen: str) -> None:
    rig = Rig()
    made(rig, replay_s=100)
    rig.broker.create_subscription("orders", "billing", rig_policy(), None)
    rig.publish("orders", b"a", b"b")
    consume(rig)
    rig.wait(60)
    rig.publish("orders", b"c")
    consume(rig)
    rig = again(rig, reopen)
    rig.wait(39)
    assert rig.held() == [b"a", b"b", b"c"]
    rig.wait(2)
    assert rig.held() == [b"c"]
    rig = again(rig, reopen)
    assert rig.held() == [b"c"]
    rig.wait(60)
    assert rig.held() == []
    exact(rig)
    assert rig.counts().acked == 3


def rig_policy() -> SubscriptionPolicy:
    return SubscriptionPolicy()


@REOPEN
def test_an_old_message_is_dropped_whoever_holds_it(reopen: str) -> None:
    rig = Rig()
    made(rig, max_age_s=100)
    worker = rig.attach()
    rig.publish("orders", b"a", b"b")
    part = worker.take_one()
    rig.ack(worker, part, (0, 1))
    rig.wait(50)
    rig.publish("orders", b"c")
    rig = again(rig, reopen)
    rig.wait(51)
    assert rig.held() == [b"c"]
    counts = rig.counts()
    assert (counts.attached, counts.acked, counts.dropped) == (3, 1, 1)
    exact(rig)
    again(rig, reopen)


@REOPEN
def test_the_newest_of_each_key_survives_everything_but_a_newer_one(reopen: str) -> None:
    rig = Rig()
    made(rig, keep_last=1, retain_s=10)
    publish_keyed(rig, "a", "b", "a", None)
    rig.wait(60)
    rig = again(rig, reopen)
    assert rig.held() == [b"1", b"2", b"3"]
    publish_keyed(rig, "b")
    assert rig.held() == [b"2", b"3", b"4"]
    consume(rig)
    rig = again(rig, reopen)
    assert rig.held() == [b"2", b"3", b"4"]
    publish_keyed(rig, None)
    consume(rig)
    assert rig.held() == [b"2", b"4", b"5"]
    exact(rig)


def test_a_topic_over_its_size_gives_its_oldest_messages() -> None:
    rig = Rig()
    made(rig, max_bytes=3000)
    rig.attach("orders", "billing", credit=1)
    for number in range(10):
        rig.publish("orders", b"%d" % number + bytes(500))
    rig.wait(0)
    held = rig.held()
    assert held == [b"%d" % number + bytes(500) for number in range(10 - len(held), 10)]
    assert 4 <= len(held) <= 5
    assert rig.counts().dropped == 10 - len(held)
    exact(rig)


def planned_over(rig: Rig, count: int, size: int) -> None:
    """So many messages of a topic, all of which a reader has planned to read."""
    rig.broker.open_reader("orders", "tables", "run-1", None)
    for number in range(count):
        rig.publish("orders", b"%d" % number + bytes(size - 1))
    rig.broker.plan_ranges("orders", "tables", "run-1", 1000, None, None)


def refused(rig: Rig, *bodies: bytes) -> None:
    """A publish that is refused, and nothing has changed."""
    sequence = rig.sequences["orders", 0, NAMED, 0]
    before = rig.held(), rig.broker.describe_topic("orders")
    with pytest.raises(HeldByReader, match="max_bytes of"):
        rig.submit("orders", *bodies)
    rig.sequences["orders", 0, NAMED, 0] = sequence
    rig.settle()
    rig.wait(1)
    assert (rig.held(), rig.broker.describe_topic("orders")) == before


def test_nothing_is_stored_that_only_a_planned_range_keeps_from_fitting() -> None:
    rig = Rig()
    made(rig, max_bytes=10_000)
    planned_over(rig, 9, 1050)
    refused(rig, bytes(1050))
    refused(rig, bytes(9000))
    rig.publish("other", b"is not concerned")
    rig.publish("orders", b"small")
    rig.wait(1)
    assert b"small" in rig.held()
    rig.publish("orders", b"tiny")
    assert rig.counts("orders", "tables").dropped == 0
    exact(rig)


@REOPEN
def test_what_a_reader_commits_makes_room(reopen: str) -> None:
    rig = Rig()
    made(rig, max_bytes=10_000)
    planned_over(rig, 9, 1050)
    rig = again(rig, reopen)
    refused(rig, bytes(1050))
    rig.broker.commit_reader("orders", "tables", "run-1", {0: 1})
    rig.publish("orders", bytes(1050))
    rig.wait(1)
    assert len(rig.held()) == 9
    refused(rig, bytes(2000))
    rig.broker.release_reader("orders", "tables", "run-1", is_forced=True)
    rig.publish("orders", bytes(2000))
    exact(rig)


def test_older_messages_that_nobody_planned_make_room() -> None:
    rig = Rig()
    made(rig, max_bytes=3000)
    rig.broker.create_subscription("orders", "billing", rig_policy(), None)
    planned_over(rig, 2, 500)
    for number in range(2, 9):
        rig.publish("orders", b"%d" % number + bytes(499))
        rig.wait(1)
    assert rig.held() == [b"%d" % number + bytes(499) for number in (0, 1, 6, 7, 8)]
    assert rig.counts().dropped == 4
    exact(rig)


def test_a_publish_that_was_stored_is_answered_while_there_is_no_room() -> None:
    rig = Rig()
    made(rig, max_bytes=10_000)
    planned_over(rig, 9, 1050)
    assert rig.publish("orders", b"8" + bytes(1049), sequence=8).is_duplicate
    refused(rig, bytes(1050))


def test_a_unit_is_refused_as_a_whole() -> None:
    rig = Rig()
    made(rig, max_bytes=10_000)
    planned_over(rig, 8, 1050)
    parts = tuple(
        Part(topic, 0, encode_many([body]), 1, 1, sequence)
        for topic, body, sequence in [
            ("other", b"x", 0), ("orders", bytes(700), 0), ("orders", bytes(700), 1),
        ]
    )  # fmt: skip
    with pytest.raises(HeldByReader):
        rig.broker.commit_unit(UnitWish(NAMED, 1, 0, list(parts)), [], DIRECT, Pending())
    rig.settle()
    assert rig.held("other") == []
    assert len(rig.held()) == 8
    rig.publish("orders", bytes(700))


@pytest.mark.parametrize("limit", [100_000, None])
def test_a_raised_limit_opens_the_topic_again(limit: int | None) -> None:
    rig = Rig()
    made(rig, max_bytes=3000)
    planned_over(rig, 1, 2000)
    refused(rig, bytes(1000))
    rig.broker.alter_topic("orders", {"max_bytes": limit})
    rig.publish("orders", bytes(1000))
    rig.wait(1)
    rig.publish("orders")


def test_a_small_message_is_not_dropped_for_the_size_of_those_that_are_gone() -> None:
    rig = Rig()
    made(rig, max_bytes=90_000)
    rig.broker.create_subscription("orders", "billing", rig_policy(), None)
    rig.publish("orders", b"twelve bytes")
    small = rig.broker.describe_topic("orders")["bytes"]
    worker = rig.attach()
    (first,) = worker.take()
    for _ in range(4):
        rig.publish("orders", bytes(60_000))
        rig.wait(0)
        for part in worker.take():
            rig.ack(worker, part)
        rig.wait(0)
        assert rig.broker.describe_topic("orders")["bytes"] == small
    assert rig.counts().dropped == 0
    assert rig.held() == [b"twelve bytes"]
    assert rig.ack(worker, first) == []
    assert rig.broker.describe_topic("orders")["bytes"] == 0
    exact(rig)


def test_a_new_rule_holds_for_what_is_there() -> None:
    rig = Rig()
    rig.broker.create_subscription("orders", "billing", rig_policy(), None)
    rig.publish("orders", b"a")
    rig.wait(1000)
    rig.broker.alter_topic("orders", {"max_age_s": 10})
    rig.wait(9)
    assert rig.held() == [b"a"]
    rig.wait(2)
    assert rig.held() == []
    rig.broker.alter_topic("orders", {"max_age_s": None})
    rig.publish("orders", b"b")
    rig.wait(1000)
    assert rig.held() == [b"b"]


@pytest.mark.parametrize(
    "policy",
    [
        {"replay_s": -1},
        {"replay_s": float("inf")},
        {"replay_s": float("nan")},
        {"keep_last": -1},
        {"keep_last": 10**6},
        {"max_age_s": 0},
        {"max_age_s": float("nan")},
        {"max_bytes": 0},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_and_changes_nothing(policy: dict[str, Any]) -> None:
    rig = Rig()
    with pytest.raises(InvalidArgument, match=next(iter(policy))):
        made(rig, **policy)
    assert "orders" not in rig.broker.state.names
    made(rig)
    with pytest.raises(InvalidArgument, match=next(iter(policy))):
        rig.broker.alter_topic("orders", policy)
    assert rig.broker.state.names["orders"].policy == TopicPolicy()


def test_released_messages_leave_segments_that_can_be_used_again() -> None:
    rig = Rig()
    made(rig, replay_s=50)
    consume(rig)
    for _ in range(40):
        rig.publish("orders", bytes(1000))
        consume(rig)
        rig.wait(2)
        rig.keeper.snapshot()
        segment = rig.keeper.sparse_segment()
        while segment is not None:
            rig.keeper.compact(segment)
            segment = rig.keeper.sparse_segment()
        rig.journal.free_segments()
    assert 24 <= len(rig.held()) <= 27
    assert len(rig.journal.index.segments) < 30
    rig.wait(60)
    rig.keeper.snapshot()
    rig.keeper.snapshot()
    rig.journal.free_segments()
    assert rig.held() == []
    assert len(rig.journal.index.segments) < 6


# -- time ------------------------------------------------------------------------------------------


def test_a_jump_of_the_clock_removes_nothing_until_it_is_confirmed() -> None:
    rig = Rig()
    made(rig, max_age_s=100)
    made(rig, "plain", retain_s=100)
    rig.attach("orders", "billing", credit=1)
    rig.publish("orders", b"a")
    rig.publish("plain", b"b")
    rig.clock.wall_ms += 2 * JUMP_MS_MAX
    rig.wait(1)
    rig.wait(1)
    assert (rig.held(), rig.held("plain")) == ([b"a"], [b"b"])
    stats = rig.broker.stats()
    assert stats["time"] == {"is_paused": True, "jumped_s": 2 * JUMP_MS_MAX / 1000}
    assert stats["health"]["status"] == "degraded"
    assert "confirm" in stats["health"]["reasons"][0]
    rig.broker.confirm_time()
    rig.wait(0)
    assert (rig.held(), rig.held("plain")) == ([], [])
    assert rig.broker.stats()["health"]["status"] == "ok"
    exact(rig)


def test_size_is_kept_while_time_is_not_believed() -> None:
    rig = Rig()
    made(rig, max_bytes=3000)
    rig.clock.wall_ms += 2 * JUMP_MS_MAX
    rig.wait(1)
    for _ in range(10):
        rig.publish("orders", bytes(500))
    rig.wait(1)
    assert len(rig.held()) <= 5


def test_publishers_are_not_forgotten_while_time_is_not_believed() -> None:
    rig = Rig()
    rig.publish("orders", publisher=b"\x02" + bytes(15))
    rig.clock.wall_ms += 30 * 24 * JUMP_MS_MAX
    rig.wait(0)
    rig.keeper.snapshot()
    assert rig.broker.state.names["orders"].partitions[0].publishers
    rig.broker.confirm_time()
    rig.keeper.snapshot()
    assert not rig.broker.state.names["orders"].partitions[0].publishers


def test_a_clock_set_back_removes_nothing_early_and_all_in_time() -> None:
    rig = Rig()
    made(rig, max_age_s=100, retain_s=50, max_bytes=10_000)
    rig.publish("orders", b"a")
    rig.wait(30)
    rig.clock.wall_ms -= 1000 * JUMP_MS_MAX
    rig.publish("orders", b"b")
    rig.wait(40)
    assert rig.held() == [b"a", b"b"], "both rest on a time that has not come yet"
    rig.publish("orders", bytes(20_000))
    rig.wait(0)
    assert len(rig.held()) < 3, "size is looked at all the same"


def test_a_deleted_topic_and_one_without_rules_are_not_looked_at() -> None:
    rig = Rig()
    made(rig, keep_last=1)
    made(rig, "gone", replay_s=1)
    rig.publish("orders", b"a")
    rig.publish("gone", b"a")
    rig.broker.create_subscription("orders", "billing", rig_policy(), None)
    rig.broker.alter_topic("orders", {"keep_last": 0})
    rig.broker.delete_topic("gone")
    rig.wait(10)
    assert rig.engine.retaining.partitions == {}


def test_the_next_look_is_no_sooner_than_something_is_due() -> None:
    clock = ManualClock()
    retaining = Retaining(State(), clock)
    retaining.decide(lambda _: None)
    assert retaining.next_at > clock.wall() + 10**15
    assert not retaining.note([])


def test_a_topic_deleted_while_over_its_size_is_forgotten() -> None:
    rig = Rig()
    made(rig, max_bytes=1)
    rig.publish("orders", bytes(100))
    assert rig.engine.retaining.over
    rig.broker.delete_topic("orders")
    rig.wait(0)
    assert rig.engine.retaining.over == {}


# -- all together ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_what_is_held_is_what_the_rules_say_across_restarts(seed: int) -> None:  # noqa: C901, PLR0912
    """A model of one keyed topic: publish time and key of every message, and who acked it."""
    dice = random.Random(seed)
    rig = Rig()
    policy: dict[str, Any] = {
        "replay_s": dice.choice([0, 30]),
        "keep_last": dice.choice([0, 1, 2]),
        "max_age_s": dice.choice([None, 80]),
        "retain_s": dice.choice([0, 20, None]),
    }
    made(rig, **policy)
    is_subscribed = dice.random() < 0.7
    if is_subscribed:
        rig.broker.create_subscription("orders", "billing", rig_policy(), None)
    messages: list[tuple[int, str | None]] = []
    acked: set[int] = set()
    for _ in range(40):
        choice = dice.randrange(6)
        if choice <= 1:
            keys = [dice.choice(["a", "b", None]) for _ in range(dice.randint(1, 3))]
            publish_keyed(rig, *keys)
            messages += [(rig.clock.wall(), key) for key in keys]
        elif choice == 2 and is_subscribed:
            worker = rig.attach(credit=3)
            for part in worker.take():
                for offset in range(part.start, part.end):
                    if dice.random() < 0.7:
                        assert rig.ack(worker, part, (offset, offset + 1)) == []
                        acked.add(offset)
            rig.detach(worker)
        elif choice == 3:
            rig = again(rig, dice.choice(["restart", "crash"]))
        elif choice == 4:
            rig.keeper.snapshot()
        else:
            rig.wait(dice.choice([1, 7, 25]))
        rig.wait(2)
        rig.wait(2)
        exact(rig)
        held = {int(body or b"") for body in rig.held()}
        now = rig.clock.wall()
        for offset, (at, key) in enumerate(messages):
            age = (now - at) / 1000
            rank = sum(k == key for _, k in messages[offset + 1 :])
            is_wanted = (
                offset not in acked
                if is_subscribed
                else (policy["retain_s"] is None or age < policy["retain_s"])
            )
            is_kept = (
                is_wanted or age < (policy["replay_s"] or 0) or rank < (policy["keep_last"] or 0)
            )
            limit = policy["max_age_s"]
            if limit is not None and age > limit + 5:
                assert offset not in held, "too old"
            elif limit is None or age < limit:
                if is_kept:
                    assert offset in held, "removed too early"
                elif age > max(policy["replay_s"] or 0, policy["retain_s"] or 0) + 5:
                    assert offset not in held, "kept for nothing"


def test_a_power_cut_anywhere_leaves_what_was_held_before_or_after_a_step() -> None:
    rig = Rig()
    made(rig, replay_s=50, keep_last=1, max_age_s=200)
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    held: list[list[bytes | None]] = [[]]
    seen: set[tuple[bytes | None, ...]] = set()

    def cut(_op: Op) -> None:
        images = rig.disk.crash_images((Policy.DROP_ALL, Policy.KEEP_ALL, Policy.PREFIX))
        for label, image in images:
            fresh = Rig(MemoryDisk.from_image(image, record=True), rig.clock, rig.settings)
            found = fresh.held()
            assert found in held, label
            exact(fresh)
            seen.add(tuple(found))

    def step(action: Callable[[], None], *after: bytes) -> None:
        held.append(list(after))
        action()
        assert rig.held() == list(after)
        del held[:-1]

    rig.disk.on_operation = cut
    step(lambda: publish_keyed(rig, "a", "b", "a"), b"0", b"1", b"2")
    step(lambda: consume(rig), b"0", b"1", b"2")
    step(rig.keeper.snapshot, b"0", b"1", b"2")
    step(lambda: rig.wait(51), b"1", b"2")
    step(lambda: publish_keyed(rig, "b"), b"2", b"3")
    step(rig.keeper.snapshot, b"2", b"3")
    step(lambda: rig.wait(150), b"3")
    step(lambda: rig.wait(51))
    assert len(seen) == 5
