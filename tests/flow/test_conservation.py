"""Every attached message is somewhere: for every kind, after everything, across restarts."""

from typing import Any

import pytest

from penstock.batch.frame import Slice
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import OnDuplicate, Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause
from tests.broker.rig import Rig, Worker
from tests.flow.stuck import KEYED, Scene

ONCE = SubscriptionPolicy(qos=0)
FEW = SubscriptionPolicy(retry=Retry(max_attempts=2, first_s=1))
SUMMED = ("acked", "leased", "waiting", "delayed", "dead", "expired", "dropped")


def rows(rig: Rig) -> dict[tuple[str, str], dict[str, Any]]:
    """Every subscription as `penstock subscriptions list` shows it."""
    return {(row["topic"], row["subscription"]): row for row in rig.broker.subscriptions()}


def check(rig: Rig) -> None:
    for name, row in rows(rig).items():
        assert row["unexplained"] == 0, (name, row)
        assert row["attached"] == sum(row[part] for part in SUMMED), (name, row)
        assert min(row[part] for part in SUMMED) >= 0, (name, row)


def bury(rig: Rig) -> None:
    while rig.keeper.move_doomed():
        rig.settle()


def build() -> Scene:
    """One topic with every kind of subscription, each with something in most counts."""
    scene = Scene(2, replay_s=10_000)
    rig, broker = scene.rig, scene.rig.broker
    scene.subscribe(FEW, "shared")
    scene.subscribe(KEYED, "keyed")
    scene.subscribe(ONCE, "once")
    scene.subscribe(FEW, "moved")
    scene.subscribe(FEW, "all", "shop.+")
    broker.open_reader("orders", "tables", "run-1", None)
    members = [scene.join("left"), scene.join("right")]
    for partition in (0, 1):
        scene.publish(*_mixed(scene), partition=partition)
        scene.keys("a", "b", "a", None, partition=partition)
    work_shared(scene)
    work_keyed(scene)
    work_once(scene)
    broker.plan_ranges("orders", "tables", "run-1", 5, None, None)
    broker.commit_reader("orders", "tables", "run-1", {0: 2})
    for part, one in taken(members[0])[:2]:
        rig.ack(members[0], part, one)
    rig.detach(members[1])
    for topic in ("shop.a", "shop.b"):
        scene.publish(Message(body=b"x"), topic=topic)
    replaced(scene)
    rig.wait(6)
    moved(scene)
    return scene


def _mixed(scene: Scene) -> list[Message]:
    now = scene.now
    return [
        Message(body=b"plain"),
        Message(body=b"soon over", expires_at=now + 5),
        Message(body=b"later", deliver_at=now + 1000),
        Message(body=b"high", priority=9),
        Message(body=b"bad", key="bad"),
    ]


def taken(worker: Worker) -> list[tuple[Slice, tuple[int, int]]]:
    """What came, message by message."""
    return [
        (part, (offset, offset + 1))
        for part in worker.take()
        for frame in part.frames
        for offset in frame.offsets
    ]


def work_shared(scene: Scene) -> None:
    """A nack, three dead letters, one of them sent back, acks, and something out."""
    rig = scene.rig
    worker = rig.attach(subscription="shared", policy=FEW, credit=6, name="w1")
    (part, one), *rest = taken(worker)
    rig.give_back(worker, part, one, delay_s=500)
    for part, one in rest[:3]:
        rig.give_back(worker, part, one, cause=Cause.REJECTED, reason="bad")
    bury(rig)
    for part, one in rest[3:]:
        rig.ack(worker, part, one)
    assert rig.broker.redrive("orders", "shared", lambda *_: True, 1, is_dry=False) == 1
    rig.settle()


def work_keyed(scene: Scene) -> None:
    """Nacks with what they revoke, acks, and a consumer that is lost."""
    rig = scene.rig
    workers = [rig.attach(subscription="keyed", policy=KEYED, name=n, credit=5) for n in "xy"]
    for worker in workers:
        for number, (part, one) in enumerate(taken(worker)[:3]):
            if number:
                rig.ack(worker, part, one)
            else:
                rig.give_back(worker, part, one, delay_s=500)
    rig.detach(workers[1], is_clean=False)


def work_once(scene: Scene) -> None:
    """Some are taken, the rest never reaches anybody."""
    rig = scene.rig
    worker = rig.attach(subscription="once", policy=ONCE, credit=3)
    part, one = taken(worker)[0]
    rig.ack(worker, part, one)
    rig.detach(worker, is_clean=False)


def replaced(scene: Scene) -> None:
    """A topic in which newer messages take the place of older ones."""
    policy = TopicPolicy(on_duplicate=OnDuplicate.REPLACE)
    scene.rig.broker.create_topic("lines", 1, policy)
    scene.subscribe(FEW, "lines", "lines")
    for body in (b"a", b"b", b"c"):
        scene.publish(Message(body=body, id="same"), topic="lines")
    scene.publish(Message(body=b"d", id="other"), topic="lines")


def moved(scene: Scene) -> None:
    """Forward and back, over acked, dead, expired and dropped messages."""
    rig, broker = scene.rig, scene.rig.broker
    worker = rig.attach(subscription="moved", policy=FEW, credit=5)
    (dead, one), *rest = taken(worker)
    rig.give_back(worker, dead, one, cause=Cause.REJECTED)
    bury(rig)
    for part, one in rest:
        rig.ack(worker, part, one)
    broker.seek("orders", "moved", "latest")
    rig.settle()
    check(rig)
    for subscription in ("moved", "keyed", "once", "app@left"):
        broker.seek("orders", subscription, "0:1")
        rig.settle()
        check(rig)


def pass_time(rig: Rig) -> None:
    for seconds in (6, 40, 600, 1000):
        rig.wait(seconds)
        bury(rig)
        check(rig)


@pytest.mark.parametrize("reopen", ["", "restart", "crash", "snapshot"])
def test_nothing_is_unexplained_in_any_kind(reopen: str) -> None:
    scene = build()
    rig = scene.rig
    check(rig)
    before = rows(rig)
    kinds = {row["kind"] for row in before.values()}
    assert kinds == {kind.value for kind in Kind}
    for part in SUMMED:
        assert any(row[part] for row in before.values()), f"nothing is {part}: the test is weak"
    reader = before["orders", "tables"]
    assert (reader["acked"], reader["waiting"], reader["delayed"]) == (2, 16, 0)
    if reopen == "snapshot":
        rig.keeper.snapshot()
    if reopen:
        rig = rig.restart() if reopen == "restart" else rig.crash()
        check(rig)
        after = rows(rig)
        assert after.keys() == before.keys()
        for name, row in after.items():
            durable = ("attached", "acked", "dead", "expired", "dropped")
            assert [row[p] for p in durable] == [before[name][p] for p in durable], name
    pass_time(rig)


def test_a_moved_once_subscription_counts_what_it_missed_once() -> None:
    scene = Scene(replay_s=10_000)
    scene.subscribe(ONCE, "once")
    scene.publish(*(Message(body=b"x") for _ in range(4)))
    worker = scene.rig.attach(subscription="once", policy=ONCE)
    scene.rig.detach(worker, is_clean=False)
    assert rows(scene.rig)["orders", "once"]["dropped"] == 4
    scene.rig.broker.seek("orders", "once", "earliest")
    scene.rig.settle()
    row = rows(scene.rig)["orders", "once"]
    assert (row["waiting"], row["dropped"], row["acked"], row["unexplained"]) == (4, 0, 0, 0)
    assert rows(scene.rig.crash())["orders", "once"]["waiting"] == 4
