"""A multicast over a pattern: every consumer gets every message of every topic, now or later."""

from typing import Any

import pytest

from penstock.broker.multicasting import CHECK_MS
from penstock.vocabulary.errors import (
    InvalidArgument,
    InvalidName,
    SubscriptionConflict,
    SubscriptionInUse,
    UnknownSubscription,
)
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause, SubscriptionCreated, TopicCreated, Unit
from tests.broker.rig import Rig
from tests.broker.test_following import Many
from tests.broker.test_rebuild import assert_rebuilds

MULTICAST = SubscriptionPolicy(kind=Kind.MULTICAST, retry=Retry(max_attempts=1))
DAY_S = 24 * 3600


def join(rig: Rig, consumer: str | None = None, **options: Any) -> Many:
    """A consumer, named or not."""
    options = {"policy": MULTICAST, **options}
    name = consumer or "made-up"
    return Many(rig, "n/+", "app", consumer=name, is_named=consumer is not None, **options)


def rows(rig: Rig) -> dict[str, dict[str, Any]]:
    return {row["subscription"]: row for row in rig.broker.subscriptions("n/+")}


def test_every_consumer_gets_every_message_of_every_topic() -> None:
    rig = Rig()
    rig.publish("n/a", b"old")
    found = [join(rig, "left"), join(rig, "right"), join(rig), join(rig, policy=None)]
    rig.publish("n/a", b"1")
    rig.publish("n/b", b"2")
    for many in found:
        assert many.bodies == {"n/a": [b"1"], "n/b": [b"2"]}


@pytest.mark.parametrize("consumer", ["left", None])
@pytest.mark.parametrize(
    ("start", "expected"), [("earliest", [b"old"]), (0, [b"old"]), ("latest", []), (2e9, [])]
)
def test_a_start_is_for_topics_that_exist(
    consumer: str | None, start: Any, expected: list[bytes]
) -> None:
    rig = Rig()
    rig.publish("n/a", b"old")
    many = join(rig, consumer, start=start)
    rig.publish("n/b", b"new")
    assert many.bodies == {"n/a": expected, "n/b": [b"new"]}


def test_a_new_topic_has_its_members_in_the_unit_that_creates_it() -> None:
    rig = Rig()
    join(rig, "left").leave()
    join(rig).leave()
    submitted: list[Any] = []
    submit = rig.engine.submit

    def spy(record: Any, *rest: Any, **options: Any) -> None:
        submitted.append(record)
        submit(record, *rest, **options)

    rig.engine.submit = spy  # type: ignore[method-assign]  # to see what is written
    rig.publish("n/a", b"1")
    unit = submitted[0]
    assert isinstance(unit, Unit)
    made = [TopicCreated, SubscriptionCreated, SubscriptionCreated]
    assert [type(part) for part in unit.records] == made
    made_names = [getattr(part, "name", None) for part in unit.records]
    assert made_names == ["n/a", "app", "app@left"]


@pytest.mark.parametrize("is_crash", [True, False])
def test_a_named_consumer_is_remembered_over_a_restart(is_crash: bool) -> None:
    rig = Rig()
    join(rig, "left").leave()
    join(rig).leave()
    rig.publish("n/a", b"1", b"2")
    rig = rig.crash() if is_crash else rig.restart()
    rig.publish("n/b", b"3")
    left = join(rig, "left")
    assert left.bodies == {"n/a": [b"1", b"2"], "n/b": [b"3"]}
    left.ack()
    assert rig.held("n/a") == rig.held("n/b") == []
    assert join(rig).bodies == {"n/a": [], "n/b": []}
    counted = rows(rig)
    assert list(counted) == ["app", "app@left"]
    for row in counted.values():
        assert (row["acked"], row["waiting"], row["unexplained"]) == (3, 0, 0)
        assert row["topics"] == ["n/a", "n/b"]
    assert counted["app"]["members"] == ["app@left"]
    assert counted["app"]["consumers"] == ["left", "made-up"]
    assert counted["app@left"]["consumers"] == ["left"]
    assert_rebuilds(rig)


def test_consumers_of_one_name_share_their_member() -> None:
    rig = Rig()
    found = [join(rig, "left", credit=1), join(rig, "left", credit=1)]
    rig.publish("n/a", b"1", b"2")
    assert sorted(many.bodies["n/a"] for many in found) == [[b"1"], [b"2"]]


def test_changing_the_multicast_changes_its_members_on_every_topic() -> None:
    rig = Rig()
    join(rig, "left")
    rig.publish("n/a", b"1")
    rig.broker.alter_subscription("n/+", "app", {"lease_s": 7})
    rig.publish("n/b", b"1")
    for topic in ("n/a", "n/b"):
        assert rig.subscription(topic, "app@left").policy.lease_s == 7
    assert {row["policy"]["lease_s"] for row in rows(rig).values()} == {7}
    with pytest.raises(InvalidArgument, match="is one consumer of the multicast 'app'"):
        rig.broker.alter_subscription("n/+", "app@left", {"lease_s": 8})
    with pytest.raises(SubscriptionConflict, match="belongs to the pattern"):
        rig.broker.delete_subscription("n/a", "app@left")
    assert_rebuilds(rig)


def test_deleting_the_multicast_deletes_its_members_on_every_topic() -> None:
    rig = Rig()
    left, right = join(rig, "left"), join(rig, "right")
    rig.publish("n/a", b"1")
    with pytest.raises(SubscriptionInUse, match="has 2 consumer"):
        rig.broker.delete_subscription("n/+", "app")
    left.leave()
    rig.broker.delete_subscription("n/+", "app@left")
    assert list(rows(rig)) == ["app", "app@right"]
    right.leave()
    rig.broker.delete_subscription("n/+", "app")
    assert rows(rig) == {}
    assert rig.broker.subscriptions("n/a") == []
    assert rig.held("n/a") == []
    rig.publish("n/b", b"1")
    assert rig.broker.subscriptions("n/b") == []
    assert_rebuilds(rig)


def test_a_member_that_stays_away_is_forgotten_on_every_topic() -> None:
    rig = Rig()
    join(rig, "left").leave()
    join(rig, "right")
    rig.publish("n/a", b"1")
    rig.wait(6 * DAY_S)
    rig.publish("n/b", b"2")
    rig.wait(DAY_S)
    rig.wait(CHECK_MS / 1000)
    counted = rows(rig)
    assert list(counted) == ["app", "app@right"]
    assert (counted["app"]["dropped"], counted["app"]["unexplained"]) == (2, 0)
    rig.publish("n/c", b"3")
    assert [row["subscription"] for row in rig.broker.subscriptions("n/c")] == ["app", "app@right"]
    assert join(rig, "left").bodies == {"n/a": [], "n/b": [], "n/c": []}
    assert_rebuilds(rig)


def test_a_member_of_a_single_topic_is_forgotten_as_before() -> None:
    rig = Rig()
    join(rig, "left").leave()
    single = Many(rig, "other/+", "app", consumer="up", is_named=True, policy=MULTICAST)
    single.leave()
    worker = rig.attach("plain", "app", policy=MULTICAST, name="up", is_named=True)
    rig.detach(worker)
    rig.wait(7 * DAY_S)
    rig.wait(CHECK_MS / 1000)
    assert [row["subscription"] for row in rig.broker.subscriptions("plain")] == ["app"]


def test_a_member_has_dead_letters_of_its_own() -> None:
    rig = Rig()
    left, _right = join(rig, "left"), join(rig, "right")
    rig.publish("n/a", b"1")
    worker = left.workers["n/a"]
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED)
    rig.keeper.move_doomed()
    rig.settle()
    assert rig.held("n/a.dead.app@left") == [b"1"]
    assert rows(rig)["app"]["dead"] == 1


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    rig = Rig()
    with pytest.raises(InvalidArgument, match="no start of its own"):
        rig.broker.create_subscription("n/+", "app", MULTICAST, "earliest")
    with pytest.raises(InvalidName, match="contains '@'"):
        join(rig, "a@b")
    assert rows(rig) == {}
    rig.broker.create_subscription("n/+", "app", MULTICAST, None)
    with pytest.raises(SubscriptionConflict):
        Many(rig, "n/+", "app", policy=SubscriptionPolicy())
    with pytest.raises(SubscriptionConflict, match="belongs to the pattern"):
        rig.attach("n/a", "app", policy=MULTICAST)
    with pytest.raises(SubscriptionConflict, match="topics may match both"):
        Many(rig, "n/#", "app", policy=MULTICAST, consumer="left", is_named=True)
    with pytest.raises(UnknownSubscription):
        rig.broker.delete_subscription("n/+", "app@left")
    assert list(rows(rig)) == ["app"]
