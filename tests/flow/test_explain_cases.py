"""Scripted cases of something that does not move: `explain` must give the right reason for each."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.batch import encode_many
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.wall import JUMP_MS_MAX
from penstock.delivery import explain
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause
from penstock.vocabulary.units import Part, UnitWish
from tests.broker.rig import NAMED, claim
from tests.flow.stuck import KEYED, MULTICAST, PATIENT, Scene
from tests.tally import Tally

Finding = dict[str, Any]
Script = Callable[[], tuple[Finding, dict[str, Any]]]
"""Gets something stuck; returns what explain says, and what it must say."""

SCRIPTS: list[Script] = []


def case(script: Script) -> Script:
    SCRIPTS.append(script)
    return script


# -- plain ---------------------------------------------------------------------------------------


@case
def nobody_is_there() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.subscribe()
    scene.publish()
    return scene.explain("0:0"), {"reason": "no-consumer", "ahead": 0}


@case
def somebody_holds_it() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.rig.attach(name="w1")
    scene.publish()
    until = scene.now + 30
    return scene.explain("0:0"), {"reason": "leased", "consumer": "w1", "until": until}


@case
def nobody_has_credit() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.rig.attach(name="w1", credit=1)
    scene.publish(Message(body=b"a"), Message(body=b"b"))
    return scene.explain("0:1"), {"reason": "no-credit"}


@case
def others_come_first() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.rig.attach(name="w1", credit=1)
    scene.publish(*(Message(body=b"a") for _ in range(4)))
    expected = {"reason": "behind-others", "ahead": 2, "head.reason": "no-credit"}
    return scene.explain("0:3"), expected | {"head.position": "0:1"}


@case
def it_backs_off() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    worker = scene.rig.attach(name="w1")
    scene.publish()
    scene.rig.give_back(worker, worker.take_one(), delay_s=40, reason="timeout")
    expected = {"reason": "backing-off", "until": scene.now + 40, "attempt": 1}
    return scene.explain("0:0"), expected | {"last_reason": "timeout", "last_consumer": "w1"}


@case
def its_dead_letter_topic_is_full() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    policy = SubscriptionPolicy(dead_bytes_max=10, retry=Retry(max_attempts=1))
    worker = scene.rig.attach(policy=policy)
    scene.publish(Message(body=bytes(100)))
    scene.rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED, reason="bad")
    while scene.rig.keeper.move_doomed():
        scene.rig.settle()
    return scene.explain("0:0"), {"reason": "dead-letter-full", "last_reason": "bad"}


@case
def it_was_lost_twice() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.subscribe()
    scene.publish(*(Message(body=b"a") for _ in range(2)))
    for _ in range(2):
        worker = scene.rig.attach()
        scene.rig.detach(worker, is_clean=False)
    busy = scene.rig.attach(is_settled=False)
    busy.consumer.outstanding = 1
    scene.rig.settle()
    return scene.explain("0:0"), {"reason": "isolated", "losses": 2}


@case
def its_consumer_closed_while_it_was_leased_and_nobody_came() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    worker = scene.rig.attach()
    scene.publish()
    scene.rig.detach(worker)
    return scene.explain("0:0"), {"reason": "no-consumer"}


# -- times ---------------------------------------------------------------------------------------


def delayed(scene: Scene, seconds: float = 60) -> None:
    at = scene.now + seconds
    scene.publish(Message(body=b"later", deliver_at=at), Message(body=b"now"))


@case
def its_time_has_not_come() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.rig.attach()
    delayed(scene)
    return scene.explain("0:0"), {"reason": "delayed", "until": scene.now + 60}


@case
def its_time_has_not_come_and_nobody_is_there_after_a_crash() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.subscribe()
    delayed(scene)
    scene.rig = scene.rig.crash()
    return scene.explain("0:0"), {"reason": "delayed", "until": scene.now + 60}


@case
def a_delayed_message_keeps_nobody_back() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.subscribe()
    delayed(scene)
    return scene.explain("0:1"), {"reason": "no-consumer", "ahead": 0}


@case
def it_ends_by_itself_soon() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.subscribe()
    scene.publish(Message(body=b"x", expires_at=scene.now + 90))
    found = scene.explain("0:0")
    assert "ends by itself in 90.0 s" in found["text"]
    return found, {"reason": "no-consumer", "expires_at": scene.now + 90}


@case
def its_own_time_ended_it() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.subscribe()
    scene.subscribe(name="acking")
    worker = scene.rig.attach(subscription="acking")
    scene.publish(Message(body=b"x", expires_at=scene.now + 90), Message(body=b"y"))
    scene.rig.ack(worker, worker.take_one())
    scene.rig.wait(100)
    return scene.explain("0:0"), {"reason": "expired"}


@case
def its_own_time_is_ending_it() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.subscribe()
    scene.publish(Message(body=b"x", expires_at=scene.now + 90))
    scene.rig.clock.advance(100)
    return scene.explain("0:0"), {"reason": "expiring", "expires_at": scene.now - 10}


def jump(scene: Scene) -> None:
    scene.rig.clock.wall_ms += 2 * JUMP_MS_MAX
    scene.rig.wait(1)


@case
def the_clock_jumped_and_it_should_have_expired() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.subscribe()
    scene.publish(Message(body=b"x", expires_at=scene.now + 90))
    jump(scene)
    expected = {"reason": "time-paused", "rule": "expires_at", "besides.reason": "no-consumer"}
    return scene.explain("0:0"), expected


@case
def the_clock_jumped_and_it_is_too_old() -> tuple[Finding, dict[str, Any]]:
    scene = Scene(max_age_s=60)
    scene.rig.attach(credit=1)
    scene.publish(Message(body=b"x"), Message(body=b"y"))
    jump(scene)
    expected = {"reason": "time-paused", "rule": "max_age_s", "besides.reason": "no-credit"}
    return scene.explain("0:1"), expected


@case
def the_clock_jumped_and_nobody_ever_wanted_it() -> tuple[Finding, dict[str, Any]]:
    scene = Scene(retain_s=60)
    scene.publish()
    jump(scene)
    return scene.explain(None, None), {"reason": "time-paused"}


@case
def the_clock_was_confirmed() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.subscribe()
    scene.publish(Message(body=b"x", expires_at=scene.now + 90))
    jump(scene)
    scene.rig.broker.confirm_time()
    scene.rig.wait(1)
    return scene.explain("0:0"), {"reason": "expired"}


# -- priorities ----------------------------------------------------------------------------------


@case
def a_higher_priority_comes_first() -> tuple[Finding, dict[str, Any]]:
    scene = Scene(2)
    scene.rig.attach(credit=1, name="w1")
    scene.publish(Message(body=b"first"))
    scene.publish(Message(body=b"low", priority=1), Message(body=b"top", priority=7))
    scene.publish(Message(body=b"other", priority=5), partition=1)
    expected = {"reason": "behind-priority", "ahead": 2, "priority": 1, "highest": 7}
    return scene.explain("0:1"), expected | {"head.position": "0:2", "head.reason": "no-credit"}


@case
def within_one_priority_older_ones_come_first() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.rig.attach(credit=1)
    scene.publish(Message(body=b"first"))
    scene.publish(*(Message(body=b"x", priority=p) for p in (3, 0, 3)))
    return scene.explain("0:3"), {"reason": "behind-others", "ahead": 1, "head.position": "0:1"}


# -- keys ----------------------------------------------------------------------------------------


@case
def an_older_one_of_its_key_backs_off() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    worker = scene.rig.attach(policy=KEYED)
    scene.keys("a", "b")
    part = worker.take_one()
    scene.rig.give_back(worker, part, (0, 1), delay_s=40, reason="bad")
    scene.keys("a")
    expected = {"reason": "behind-key", "behind": "0:0", "head.reason": "backing-off"}
    return scene.explain("0:2"), expected | {"head.until": scene.now + 40}


@case
def it_was_revoked() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    worker = scene.rig.attach(policy=KEYED)
    scene.keys("a", "b", "a")
    scene.rig.give_back(worker, worker.take_one(), (0, 1), delay_s=40)
    return scene.explain("0:2"), {"reason": "revoked", "behind": "0:0", "attempt": 0}


@case
def its_key_is_held_by_a_consumer_it_moves_from() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.rig.attach(policy=KEYED, name="first", credit=1000)
    for number in range(64):
        scene.keys(f"probe-{number}")
    scene.rig.attach(policy=KEYED, name="second")
    keys = scene.rig.subscription().keys
    traits = scene.rig.subscription().cursors[0].partition.traits
    assert keys is not None
    assert traits is not None
    ids = {c.name: c.id for c in scene.rig.subscription().consumers or ()}
    moving = next(
        f"probe-{n}" for n in range(64) if keys.target[traits.hash_of(n) >> 48] == ids["second"]
    )
    scene.keys(moving)
    expected = {"reason": "key-held", "consumer": "first", "moving_to": "second", "out": 1}
    return scene.explain("0:64"), expected | {"until": scene.now + 30}


@case
def its_key_is_with_a_consumer_without_credit() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.rig.attach(policy=KEYED, name="w1", credit=1)
    scene.keys("a", "b", "c")
    expected = {"reason": "behind-others", "ahead": 1, "head.reason": "no-credit"}
    return scene.explain("0:2"), expected | {"head.position": "0:1"}


@case
def its_key_lies_in_the_partition_it_had_before() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.rig.attach(policy=KEYED, name="w1")
    scene.keys("a")
    scene.rig.broker.alter_topic("orders", {}, 2)
    scene.keys("a", partition=1)
    expected = {"reason": "behind-growth", "behind": "0:0", "head.reason": "leased"}
    return scene.explain("1:0"), expected | {"head.consumer": "w1"}


@case
def a_free_consumer_has_no_key_that_waits() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    worker = scene.rig.attach(policy=KEYED, name="w1")
    scene.keys("a")
    scene.rig.give_back(worker, worker.take_one(), delay_s=40)
    scene.keys("a")
    expected = {"reason": "behind-key", "head.reason": "backing-off", "consumer": "w1"}
    return scene.explain(consumer="w1"), expected


# -- decisions that are not durable --------------------------------------------------------------


@case
def a_seek_is_under_way() -> tuple[Finding, dict[str, Any]]:
    scene = Scene(replay_s=100)
    scene.rig.attach()
    scene.publish()
    broker = scene.rig.broker
    with broker.engine.lock:
        record = broker._decide_seek("orders", "billing", "earliest", None, None)
        assert record is not None
        broker.engine.submit(record, None)
    found = scene.explain("0:0")
    scene.rig.settle()
    assert scene.explain("0:0")["reason"] == "leased"
    return found, {"reason": "seeking"}


@case
def a_unit_is_under_way() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    worker = scene.rig.attach(policy=SubscriptionPolicy(qos=2))
    scene.publish()
    part = worker.take_one()
    wish = UnitWish(NAMED, 0, 0, [Part("other", 0, encode_many([b"y"]), 1, 0, 0)])
    scene.rig.broker.commit_unit(wish, [(worker.consumer, [claim(part)])], DIRECT, Pending())
    found = scene.explain("0:0")
    scene.rig.settle()
    assert scene.explain("0:0")["reason"] == "acked"
    return found, {"reason": "settling", "is_in_unit": True}


@case
def an_ack_is_under_way() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    worker = scene.rig.attach(policy=PATIENT)
    scene.publish()
    scene.rig.broker.ack(worker.consumer, [claim(worker.take_one())])
    return scene.explain("0:0"), {"reason": "settling", "is_in_unit": False}


# -- kinds ---------------------------------------------------------------------------------------


@case
def a_reader_has_not_come_so_far() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    broker = scene.rig.broker
    broker.open_reader("orders", "tables", "run-1", None)
    scene.publish(*(Message(body=b"x", expires_at=scene.now + 5) for _ in range(5)))
    broker.plan_ranges("orders", "tables", "run-1", 3, None, None)
    broker.commit_reader("orders", "tables", "run-1", {0: 2})
    expected = {"reason": "reader-behind", "progress": 2, "planned": 3, "end": 5, "behind": 3}
    return scene.explain("0:4", "tables"), expected | {"owner": "run-1"}


@case
def a_reader_has_not_committed_it() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    broker = scene.rig.broker
    broker.open_reader("orders", "tables", "run-1", None)
    scene.publish()
    broker.plan_ranges("orders", "tables", "run-1", 3, None, None)
    scene.rig = scene.rig.crash()
    return scene.explain("0:0", "tables"), {"reason": "reader-planned", "owner": "run-1"}


@case
def publishes_are_refused_for_a_reader() -> tuple[Finding, dict[str, Any]]:
    scene = Scene(max_bytes=1000)
    broker = scene.rig.broker
    broker.open_reader("orders", "tables", "run-1", None)
    scene.publish(Message(body=bytes(900)))
    broker.plan_ranges("orders", "tables", "run-1", 9, None, None)
    assert scene.explain(None, None)["reason"] == "topic-full"
    return scene.explain("0:1", "tables"), {"reason": "topic-full", "max_bytes": 1000}


@case
def a_multicast_has_no_place_of_its_own() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.join("left")
    scene.join("right")
    scene.publish()
    found = scene.explain("0:0", "app")
    assert [row["reason"] for row in found["members"]] == ["leased", "leased"]
    return found, {"reason": "ask-member", "subscription": "app"}


@case
def a_multicast_without_members_holds_nothing() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.subscribe(MULTICAST, "app")
    scene.publish()
    return scene.explain(None, None), {"reason": "no-member"}


@case
def a_member_is_away() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    worker = scene.join("left")
    scene.rig.detach(worker)
    since = scene.now
    scene.publish()
    scene.rig.wait(7200)
    expected = {"reason": "member-away", "consumer": "left", "since": since}
    return scene.explain("0:0", "app@left"), expected | {"until": since + 7 * 86_400}


@case
def nobody_serves_a_pattern() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.subscribe(name="all", topic="shop.+")
    scene.publish(topic="shop.a")
    scene.publish(topic="shop.b")
    found = scene.explain("0:0", "all", "shop.b")
    assert "'shop.+'" in found["text"]
    whole = scene.explain(None, "all", "shop.+")
    assert [row["topic"] for row in whole["topics"]] == ["shop.a", "shop.b"]
    return found, {"reason": "no-consumer", "pattern": "shop.+"}


@case
def it_was_handed_over_once_and_no_more() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.rig.attach(policy=SubscriptionPolicy(qos=0), name="w1", credit=1)
    scene.publish(Message(body=b"x"), Message(body=b"y"))
    assert scene.explain("0:1")["reason"] == "no-credit"
    return scene.explain("0:0"), {"reason": "handed-over", "consumer": "w1"}


@case
def a_key_of_a_reader_topic_waits_only_for_the_reader() -> tuple[Finding, dict[str, Any]]:
    scene = Scene()
    scene.rig.broker.open_reader("orders", "tables", "run-1", None)
    scene.keys("a", "a")
    assert scene.rig.subscription(name="tables").policy.kind is Kind.READER
    return scene.explain("0:1", "tables"), {"reason": "reader-behind", "behind": 2}


# -- all of them ---------------------------------------------------------------------------------


def look(found: Finding, path: str) -> Any:
    value: Any = found
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_reason_is_the_right_one(script: Script, tally: Tally) -> None:
    tally.add("explain", cases=1)
    found, expected = script()
    said = {path: look(found, path) for path in expected}
    assert said == expected, found
    assert found["text"]
    tally.add("explain", right=1)


def test_the_guide_has_every_reason_and_no_other() -> None:
    source = Path(penstock.__file__).parent
    modules = [*source.glob("delivery/explain*.py"), source / "broker" / "explaining.py"]
    code = "\n".join(path.read_text() for path in modules)
    known = set(re.findall(r'reason"?(?::| =) "([a-z-]+)"', code))
    known |= explain.DONE_REASONS
    guide = (source.parents[1] / "docs" / "guides" / "explain.md").read_text()
    rows = [line.split("|")[1] for line in guide.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall("`([a-z-]+)`", row)} == known


def test_there_are_enough_cases() -> None:
    assert len({inspect.getsource(script) for script in SCRIPTS}) == len(SCRIPTS) >= 12
