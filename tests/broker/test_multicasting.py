"""Kind multicast on a real broker: every consumer gets every message, whatever the others do."""

import random
from typing import Any

import pytest

from penstock.broker.broker import Sink
from penstock.broker.mailbox import DIRECT
from penstock.broker.multicasting import CHECK_MS, check_multicast_start, default_start
from penstock.broker.salvage import salvage
from penstock.delivery.state import Subscription
from penstock.journal.memory import MemoryDisk
from penstock.vocabulary.errors import (
    InvalidArgument,
    InvalidName,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicInUse,
    UnknownSubscription,
)
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause
from tests.broker.rig import SETTINGS, Rig, Worker
from tests.broker.test_rebuild import assert_rebuilds

MULTICAST = SubscriptionPolicy(kind=Kind.MULTICAST, retry=Retry(max_attempts=2, first_s=1))
DAY_S = 24 * 3600


def join(
    rig: Rig,
    consumer: str | None = None,
    *,
    name: str = "app",
    topic: str = "news",
    start: Any = None,
    credit: int = 1000,
    policy: SubscriptionPolicy = MULTICAST,
) -> Worker:
    """Attaches a consumer, named or not."""
    worker = Worker()
    sink = Sink(DIRECT, worker.receive, worker.closed.append)
    worker.consumer = rig.broker.attach(
        topic, name, policy, start, credit, 1 << 26, consumer or "made-up", sink,
        is_named=consumer is not None,
    )  # fmt: skip
    rig.settle()
    return worker


def member(rig: Rig, consumer: str) -> Subscription:
    return rig.subscription("news", f"app@{consumer}")


def row(rig: Rig, name: str = "app") -> dict[str, Any]:
    return next(r for r in rig.broker.subscriptions("news") if r["subscription"] == name)


# -- everybody gets everything -------------------------------------------------------------------


def test_every_consumer_gets_every_message() -> None:
    rig = Rig()
    workers = [join(rig, "left"), join(rig, "right"), join(rig), join(rig)]
    rig.publish("news", b"a", b"b")
    rig.publish("news", b"c")
    for worker in workers:
        assert worker.bodies == [b"a", b"b", b"c"]


def test_a_consumer_that_asks_for_no_kind_joins_the_multicast_that_is_there() -> None:
    rig = Rig()
    join(rig, "left")
    other = rig.attach("news", "app", name="right", is_named=True)
    rig.publish("news", b"a")
    assert other.bodies == [b"a"]
    assert member(rig, "right").is_durable


def test_a_member_that_never_acks_slows_nobody() -> None:
    rig = Rig()
    stalled, other, unnamed = (
        join(rig, "stalled", credit=2),
        join(rig, "other", credit=2),
        join(rig),
    )
    for number in range(50):
        rig.publish("news", b"%d" % number)
        for part in other.slices[-1:]:
            rig.ack(other, part)
    assert other.bodies == unnamed.bodies == [b"%d" % number for number in range(50)]
    assert stalled.bodies == [b"0", b"1"]
    assert rig.counts("news", "app@other").acked == 50
    assert rig.counts("news", "app@stalled").waiting == 48


def test_a_new_member_starts_at_the_latest_and_an_old_one_where_it_was() -> None:
    rig = Rig()
    rig.publish("news", b"before")
    first = join(rig, "left")
    assert first.bodies == []
    rig.publish("news", b"a")
    rig.ack(first, first.take_one())
    rig.detach(first)
    rig.publish("news", b"away")
    assert join(rig, "left").bodies == [b"away"]
    assert join(rig, "late").bodies == []
    assert join(rig, "all", start="earliest").bodies == [b"before", b"away"]


def test_an_unnamed_consumer_starts_at_its_join_and_ends_with_its_connection() -> None:
    rig = Rig()
    worker = join(rig)
    rig.publish("news", b"a")
    assert worker.bodies == [b"a"]
    rig.detach(worker)
    assert [s.name for s in rig.broker.state.names["news"].every_subscription()] == []
    rig.publish("news", b"away")
    assert join(rig).bodies == []


def test_a_multicast_without_cursors_holds_nothing() -> None:
    rig = Rig()
    rig.broker.create_topic("news", 1, TopicPolicy(retain_s=10))
    worker = join(rig)
    rig.publish("news", b"a")
    assert worker.bodies == [b"a"]
    rig.wait(20)
    assert rig.held("news") == []


def test_a_message_is_held_until_every_named_member_has_acked_it() -> None:
    rig = Rig()
    left, right = join(rig, "left"), join(rig, "right")
    rig.publish("news", b"a")
    rig.ack(left, left.take_one())
    assert rig.held("news") == [b"a"]
    rig.ack(right, right.take_one())
    assert rig.held("news") == []


def test_two_connections_of_one_name_share_its_messages() -> None:
    rig = Rig()
    one, two = join(rig, "left", credit=1), join(rig, "left", credit=1)
    rig.publish("news", b"a", b"b")
    assert sorted([*one.bodies, *two.bodies], key=str) == [b"a", b"b"]
    assert row(rig)["members"] == ["app@left"]


# -- leases, retries, dead letters ---------------------------------------------------------------


def test_a_lease_that_ends_comes_back_to_its_member_only() -> None:
    rig = Rig()
    left, right = join(rig, "left"), join(rig, "right")
    rig.publish("news", b"a")
    rig.ack(right, right.take_one())
    left.take()
    rig.wait(31)
    rig.wait(5)
    assert left.bodies == [b"a"]
    assert right.bodies == []


def test_dead_letters_are_of_one_member_and_go_back_to_it_alone() -> None:
    rig = Rig()
    left, right = join(rig, "left"), join(rig, "right")
    rig.publish("news", b"a")
    rig.ack(right, right.take_one())
    rig.give_back(left, left.take_one(), cause=Cause.REJECTED, reason="bad")
    rig.keeper.move_doomed()
    rig.settle()
    assert rig.held("news.dead.app@left") == [b"a"]
    assert row(rig)["dead"] == 1
    rig.detach(left)
    rig.detach(right)
    with pytest.raises(TopicInUse, match="dead letters"):
        rig.broker.delete_topic("news")
    left, right = join(rig, "left"), join(rig, "right")
    with pytest.raises(InvalidArgument, match="members: app@left, app@right"):
        rig.broker.redrive("news", "app", lambda *_: True, None, is_dry=False)
    assert rig.broker.redrive("news", "app@left", lambda *_: True, None, is_dry=False) == 1
    rig.settle()
    assert left.bodies == [b"a"]
    assert right.bodies == []


# -- administration ------------------------------------------------------------------------------


def test_a_listing_shows_the_multicast_and_its_members() -> None:
    rig = Rig()
    left, _ = join(rig, "left"), join(rig, "right")
    join(rig)
    rig.publish("news", b"a")
    rig.ack(left, left.take_one())
    rows = rig.broker.subscriptions("news")
    assert [(r["subscription"], r["kind"], r["acked"], r["leased"]) for r in rows] == [
        ("app", "multicast", 1, 1),
        ("app@left", "multicast", 1, 0),
        ("app@right", "multicast", 0, 1),
    ]
    assert rows[0]["members"] == ["app@left", "app@right"]
    assert sorted(rows[0]["consumers"]) == ["left", "made-up", "right"]
    assert rows[0]["unexplained"] == 0
    found = rig.broker.describe_topic("news")["subscriptions"]
    assert found == ["app", "app@left", "app@right"]


def test_creating_a_multicast_makes_no_member() -> None:
    rig = Rig()
    rig.broker.create_subscription("news", "app", MULTICAST, None)
    rig.broker.create_subscription("news", "app", MULTICAST, None)
    assert row(rig)["members"] == []
    with pytest.raises(SubscriptionConflict, match="another policy"):
        rig.broker.create_subscription(
            "news", "app", SubscriptionPolicy(kind=Kind.MULTICAST, lease_s=5), None
        )


@pytest.mark.parametrize("is_first", [True, False])
def test_a_name_is_of_one_kind(is_first: bool) -> None:
    rig = Rig()
    if is_first:
        join(rig, "left")
        with pytest.raises(SubscriptionConflict, match="exists with kind 'multicast'"):
            rig.attach("news", "app", policy=SubscriptionPolicy())
        with pytest.raises(SubscriptionConflict, match="exists with kind 'multicast'"):
            rig.broker.open_reader("news", "app", "me", None)
    else:
        rig.attach("news", "app", policy=SubscriptionPolicy())
        with pytest.raises(SubscriptionConflict, match="exists with kind 'shared'"):
            join(rig, "left")
    assert len(rig.broker.subscriptions("news")) == (2 if is_first else 1)


def test_changing_a_multicast_changes_its_members_and_those_to_come() -> None:
    rig = Rig()
    join(rig, "left")
    rig.broker.alter_subscription("news", "app", {"lease_s": 7})
    join(rig, "right")
    assert [r["policy"]["lease_s"] for r in rig.broker.subscriptions("news")] == [7, 7, 7]
    with pytest.raises(InvalidArgument, match="change 'app'"):
        rig.broker.alter_subscription("news", "app@left", {"lease_s": 8})
    assert_rebuilds(rig)


@pytest.mark.parametrize("consumer", ["left", None])
def test_deleting_is_refused_while_anybody_is_connected(consumer: str | None) -> None:
    rig = Rig()
    worker = join(rig, consumer)
    with pytest.raises(SubscriptionInUse, match=r"multicast 'app' has 1 consumer"):
        rig.broker.delete_subscription("news", "app")
    rig.publish("news", b"a")
    assert worker.bodies == [b"a"]
    rig.detach(worker)
    rig.broker.delete_subscription("news", "app")
    assert rig.broker.subscriptions("news") == []
    assert rig.held("news") == ([] if consumer else [b"a"])
    with pytest.raises(UnknownSubscription):
        rig.broker.delete_subscription("news", "app")


def test_one_member_can_be_deleted() -> None:
    rig = Rig()
    left, right = join(rig, "left"), join(rig, "right")
    rig.detach(left)
    rig.broker.delete_subscription("news", "app@left")
    assert row(rig)["members"] == ["app@right"]
    rig.publish("news", b"a")
    assert right.bodies == [b"a"]


def test_a_topic_goes_with_its_multicasts() -> None:
    rig = Rig()
    rig.detach(join(rig, "left"))
    rig.broker.delete_topic("news")
    assert not rig.broker.state.multicasts
    assert not rig.broker.state.subscriptions
    assert join(rig.restart(), "left").bodies == []


def test_a_consumer_name_that_cannot_be_a_member_changes_nothing() -> None:
    rig = Rig()
    with pytest.raises(InvalidName, match="contains '@'"):
        join(rig, "a@b")
    assert (rig.broker.topics(), rig.broker.subscriptions()) == ([], [])


def test_only_consumers_of_a_multicast_have_a_start() -> None:
    check_multicast_start(MULTICAST, None)
    check_multicast_start(SubscriptionPolicy(), "latest")
    with pytest.raises(InvalidArgument, match="no start of its own"):
        check_multicast_start(MULTICAST, "latest")
    assert default_start("s", SubscriptionPolicy()) == "earliest"
    assert default_start("s", None) == "earliest"
    assert default_start(None, None) == default_start("s", MULTICAST) == "latest"


# -- members that stay away ----------------------------------------------------------------------


def test_a_member_that_stays_away_a_week_is_forgotten_and_its_backlog_dropped() -> None:
    rig = Rig()
    here, gone = join(rig, "here"), join(rig, "gone")
    rig.wait(6 * DAY_S)
    rig.detach(gone)
    rig.publish("news", b"a", b"b")
    rig.ack(here, here.take_one())
    rig.wait(7 * DAY_S - 1 - CHECK_MS / 1000)
    assert row(rig)["members"] == ["app@gone", "app@here"]
    assert rig.held("news") == [b"a", b"b"]
    rig.wait(2 + CHECK_MS / 1000)
    found = row(rig)
    assert found["members"] == ["app@here"]
    assert (found["dropped"], found["unexplained"]) == (2, 0)
    assert rig.held("news") == []
    assert_rebuilds(rig)
    fresh = rig.restart()
    assert row(fresh)["dropped"] == 2
    assert join(fresh, "gone").bodies == []


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_counts_as_seen_for_whoever_was_attached(is_clean: bool) -> None:
    rig = Rig()
    join(rig, "here")
    rig.detach(join(rig, "gone"))
    rig.wait(5 * DAY_S)
    fresh = rig.restart() if is_clean else rig.crash()
    fresh.wait(3 * DAY_S)
    assert row(fresh)["members"] == ["app@here"]
    fresh.wait(5 * DAY_S)
    assert row(fresh)["members"] == []


def test_a_member_that_leaves_is_not_forgotten_before_that_is_written() -> None:
    rig = Rig()
    worker = join(rig, "here")
    rig.wait(8 * DAY_S)
    rig.clock.advance(CHECK_MS / 1000)
    rig.broker.detach(worker.consumer, {}, DIRECT, lambda _: None)
    rig.broker.tick()
    rig.settle()
    assert row(rig)["members"] == ["app@here"]


def test_a_jump_of_the_clock_makes_nobody_stay_away() -> None:
    rig = Rig()
    rig.detach(join(rig, "gone"))
    rig.publish("news", b"a")
    rig.clock.wall_ms += 30 * DAY_S * 1000
    rig.wait(1)
    assert row(rig)["members"] == ["app@gone"]
    assert rig.held("news") == [b"a"]
    rig.broker.confirm_time()
    rig.wait(CHECK_MS / 1000 + 1)
    assert row(rig)["members"] == []


# -- restarts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
def test_members_go_on_where_they_were_after_a_restart(is_clean: bool) -> None:
    rig = Rig()
    left, right = join(rig, "left"), join(rig, "right")
    join(rig)
    rig.publish("news", b"a", b"b")
    part = left.take_one()
    rig.ack(left, part, (0, 1))
    rig.detach(left)
    rig.detach(right)
    fresh = rig.restart() if is_clean else rig.crash()
    assert row(fresh)["members"] == ["app@left", "app@right"]
    left, right = join(fresh, "left"), join(fresh, "right")
    assert left.bodies == [b"b"]
    assert right.bodies == [b"a", b"b"]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_a_crash_loses_nothing_of_a_multicast(seed: int) -> None:
    chance = random.Random(seed)
    rig = Rig()
    workers: list[Worker] = []
    for step in range(60):
        match chance.randrange(7):
            case 0 if len(workers) < 6:
                workers.append(join(rig, chance.choice(["a", "b", "c", None]), credit=3))
            case 1 if workers:
                rig.detach(workers.pop(chance.randrange(len(workers))))
            case 2 if workers:
                worker = chance.choice(workers)
                for part in worker.take()[:1]:
                    rig.ack(worker, part)
            case 3:
                rig.keeper.snapshot()
            case 4 if not workers and chance.random() < 0.3 and rig.broker.state.multicasts:
                rig.broker.delete_subscription("news", "app")
            case 5:
                rig.wait(chance.choice([1, 40, 4 * DAY_S]))
            case _:
                rig.publish("news", b"%d" % step)
        assert_rebuilds(rig)
        for found in rig.broker.subscriptions():
            assert found["unexplained"] == 0
    fresh = rig.crash()
    names = [r["subscription"] for r in rig.broker.subscriptions()]
    assert [r["subscription"] for r in fresh.broker.subscriptions()] == names


def test_salvage_keeps_multicasts_and_their_members() -> None:
    rig = Rig()
    left = join(rig, "left")
    rig.publish("news", b"a", b"b")
    rig.ack(left, left.take_one(), (0, 1))
    rig.detach(left)
    rig.broker.close()
    target = MemoryDisk()
    salvage(MemoryDisk.from_image(rig.disk.image()), target, SETTINGS, rig.clock)
    bare = {n: data for n, data in target.image().items() if not n.startswith("snapshot-")}
    fresh = Rig(MemoryDisk.from_image(bare, record=True), rig.clock)
    assert row(fresh)["members"] == ["app@left"]
    assert join(fresh, "left").bodies == [b"b"]
