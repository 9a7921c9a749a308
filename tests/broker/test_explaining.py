"""Stuck cases with a whole broker: the message is found, and the reason is the right one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from penstock.batch import encode_many
from penstock.broker.broker import Sink
from penstock.broker.explaining import explain_topic
from penstock.broker.mailbox import DIRECT, Pending
from penstock.vocabulary.errors import InvalidArgument, UnknownSubscription, UnknownTopic
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause
from tests.broker.rig import NAMED, Rig, Worker, claim


@pytest.fixture
def rig() -> Rig:
    return Rig()


def publish(rig: Rig, *messages: Message, partition: int = 0) -> None:
    place = ("orders", partition, NAMED, 0)
    sequence = rig.sequences.get(place, 0)
    rig.sequences[place] = sequence + len(messages)
    batch = encode_many(list(messages))
    pending = Pending()
    rig.broker.publish(
        "orders", partition, batch, len(messages), NAMED, 0, sequence, DIRECT, pending
    )
    rig.settle()
    pending.wait()


def explain(rig: Rig, **which: Any) -> dict[str, Any]:
    return explain_topic(rig.broker, "orders", which.pop("subscription", "billing"), **which)


def bury(rig: Rig) -> None:
    while rig.keeper.move_doomed():
        rig.settle()


# -- finding the message -----------------------------------------------------------------------


def test_by_id_by_key_and_by_position_it_is_the_same_message(rig: Rig) -> None:
    rig.broker.create_topic("orders", 2, TopicPolicy())
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    publish(rig, Message(body=b"0", id="a", key="x"), Message(body=b"1", id="b", key="y"))
    publish(rig, Message(body=b"2", id="c", key="y"), partition=1)
    for which in ({"id": "b"}, {"position": "0:1"}, {"key": "y"}, {"key": b"y"}):
        found = explain(rig, **which)
        assert (found["reason"], found["position"]) == ("no-consumer", "0:1"), which
        assert found["ahead"] == 1
    assert explain(rig, key="y")["positions"] == ["0:1", "1:0"]


def test_of_a_key_the_oldest_unfinished_is_meant(rig: Rig) -> None:
    worker = rig.attach(credit=1)
    publish(rig, *(Message(body=b"%d" % n, key="k") for n in range(3)))
    rig.broker.create_subscription("orders", "audit", SubscriptionPolicy(), None)
    rig.ack(worker, worker.take_one())
    assert explain(rig, key="k")["position"] == "0:1"
    assert explain(rig, key="k", subscription="audit")["position"] == "0:0"
    for _ in range(2):
        rig.ack(worker, worker.take_one())
    found = explain(rig, key="k")
    assert (found["reason"], found["acked"]) == ("nothing-waits", 3)


def test_a_message_nobody_has(rig: Rig) -> None:
    worker = rig.attach()
    publish(rig, Message(body=b"0", id="a"))
    assert explain(rig, id="zzz")["reason"] == "not-held"
    assert explain(rig, position="0:1")["reason"] == "not-published"
    assert explain(rig, key="zzz")["reason"] == "nothing-waits"
    rig.ack(worker, worker.take_one())
    assert explain(rig, position="0:0")["reason"] == "acked"


def test_wrong_questions(rig: Rig) -> None:
    rig.publish("orders", b"a")
    rig.attach()
    with pytest.raises(UnknownTopic):
        explain_topic(rig.broker, "nothing")
    with pytest.raises(UnknownSubscription):
        explain(rig, subscription="nothing")
    for position in ("17", "a:b", "0:", "0:-1"):
        with pytest.raises(InvalidArgument, match="position"):
            explain(rig, position=position)
    with pytest.raises(InvalidArgument, match="no partition 3"):
        explain(rig, position="3:0")
    with pytest.raises(InvalidArgument, match="one of position, id and key"):
        explain(rig, id="a", key="b")


# -- stuck cases -------------------------------------------------------------------------------


def test_held_by_a_consumer(rig: Rig) -> None:
    rig.attach(name="w1")
    publish(rig, Message(body=b"0", id="a"))
    rig.clock.advance(10)
    found = explain(rig, id="a")
    assert (found["reason"], found["consumer"], found["attempt"]) == ("leased", "w1", 1)
    assert found["until"] == (rig.clock.wall() + 20_000) / 1000


def test_waiting_for_credit(rig: Rig) -> None:
    rig.attach(name="w1", credit=2)
    rig.publish("orders", b"0", b"1", b"2", b"3")
    found = explain(rig, position="0:2")
    assert (found["reason"], found["consumers"][0]["outstanding"]) == ("no-credit", 2)
    assert explain(rig, position="0:3")["reason"] == "behind-others"
    assert explain(rig, consumer="w1")["reason"] == "no-credit"


def test_backing_off_survives_a_crash(rig: Rig) -> None:
    worker = rig.attach(name="w1")
    rig.publish("orders", b"0")
    rig.give_back(worker, worker.take_one(), delay_s=60, reason="timeout")
    due = rig.clock.wall() / 1000 + 60
    for each in (rig, rig.crash()):
        found = explain(each, position="0:0")
        assert (found["reason"], found["last_reason"]) == ("backing-off", "timeout")
        assert (found["attempt"], found["until"]) == (1, due)


def test_dead_lettered_by_position_and_by_id_and_after_a_restart(rig: Rig) -> None:
    worker = rig.attach()
    publish(rig, Message(body=b"0", id="a"), Message(body=b"1", id="b"))
    part = worker.take_one()
    rig.give_back(worker, part, (1, 2), cause=Cause.REJECTED, reason="bad")
    bury(rig)
    rig.ack(worker, part, (0, 1))
    for each in (rig, rig.crash()):
        for which in ({"id": "b"}, {"position": "0:1"}):
            found = explain(each, **which)
            assert (found["reason"], found["position"]) == ("dead-lettered", "0:1")
            assert found["dead_topic"] == "orders.dead.billing"
            assert found["dead_position"] == "0:0"
        assert explain(each, position="0:0")["reason"] == "finished"


def test_dead_letters_are_full(rig: Rig) -> None:
    worker = rig.attach(policy=SubscriptionPolicy(dead_bytes_max=10, retry=Retry(max_attempts=1)))
    rig.publish("orders", b"x" * 100)
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED, reason="bad")
    bury(rig)
    found = explain(rig, position="0:0")
    assert (found["reason"], found["last_reason"]) == ("dead-letter-full", "bad")
    assert "raise dead_bytes_max of subscription 'billing'" in found["text"]


def test_lost_twice_waits_for_an_idle_consumer(rig: Rig) -> None:
    rig.publish("orders", b"killer", b"other")
    for _ in range(2):
        worker = rig.attach(credit=10)
        assert worker.slices
        rig.detach(worker, is_clean=False)
    holder = rig.attach(name="holder", is_settled=False)
    holder.consumer.outstanding = 1  # it has something in hand
    rig.settle()
    found = explain(rig, position="0:0")
    assert (found["reason"], found["losses"]) == ("isolated", 2)


def test_waiting_for_a_decision_to_be_durable(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"0")
    part = worker.take_one()
    rig.broker.ack(worker.consumer, [claim(part)])
    assert explain(rig, position="0:0")["reason"] == "settling"
    rig.submit("orders", b"1")
    assert explain(rig, position="0:1")["reason"] == "unsynced"
    rig.settle()
    assert explain(rig, position="0:0")["reason"] == "acked"


def test_before_the_start_of_the_subscription_also_after_a_restart(rig: Rig) -> None:
    rig.publish("orders", b"0", b"1")
    rig.broker.create_subscription("orders", "late", SubscriptionPolicy(), "latest")
    for each in (rig, rig.crash(), rig.restart()):
        found = explain(each, subscription="late", position="0:1")
        assert (found["reason"], found["first"]) == ("not-covered", 2)


# -- subscriptions and consumers ---------------------------------------------------------------


def test_a_topic_without_subscriptions(rig: Rig) -> None:
    rig.broker.create_topic("orders", 1, TopicPolicy(retain_s=60))
    rig.publish("orders", b"0")
    found = explain(rig, subscription=None, position="0:0")
    assert (found["reason"], found["position"]) == ("no-subscription", "0:0")
    assert found["until"] == rig.clock.wall() / 1000 + 60


def test_without_a_message_the_oldest_unfinished_is_meant(rig: Rig) -> None:
    worker = rig.attach(credit=2)
    assert explain(rig)["reason"] == "nothing-waits"
    rig.publish("orders", b"0", b"1", b"2")
    part = worker.take_one()
    rig.ack(worker, part, (0, 1))
    found = explain(rig)
    assert (found["reason"], found["position"]) == ("leased", "0:1")


def test_of_several_partitions_the_stuck_one_comes_first(rig: Rig) -> None:
    rig.broker.create_topic("orders", 2, TopicPolicy())
    worker = rig.attach(credit=1)
    rig.publish("orders", b"0", partition=1)
    rig.ack(worker, worker.take_one())
    rig.publish("orders", b"1", partition=1)
    rig.publish("orders", b"2", partition=0)
    found = explain(rig)
    assert {each["reason"] for each in found["partitions"]} == {"leased", "no-credit"}


def test_without_a_subscription_all_are_asked_and_the_stuck_one_comes_first(rig: Rig) -> None:
    worker = rig.attach(subscription="a")
    rig.broker.create_subscription("orders", "b", SubscriptionPolicy(), None)
    rig.publish("orders", b"0")
    rig.ack(worker, worker.take_one())
    found = explain(rig, subscription=None, position="0:0")
    assert (found["reason"], found["subscription"]) == ("no-consumer", "b")
    assert [each["reason"] for each in found["subscriptions"]] == ["acked", "no-consumer"]


def test_a_consumer_and_a_message(rig: Rig) -> None:
    rig.attach(name="w1")
    rig.publish("orders", b"0")
    rig.attach(name="w2")
    found = explain(rig, position="0:0", consumer="w2")
    assert (found["reason"], found["consumer"]) == ("leased", "w1")
    assert found["asked"]["reason"] == "nothing-waits"
    assert explain(rig, consumer="w3")["reason"] == "no-consumer"


def test_a_subscription_that_is_being_written(rig: Rig) -> None:
    rig.publish("orders", b"0")
    rig.attach(is_settled=False)
    assert explain(rig)["reason"] == "settling"


def test_a_grown_topic_is_explained_too(rig: Rig) -> None:
    rig.attach(name="w1", credit=1)
    rig.publish("orders", b"0")
    rig.broker.alter_topic("orders", {}, 3)
    rig.publish("orders", b"1", partition=2)
    assert explain(rig, position="2:0")["reason"] == "no-credit"


# -- multicasts, keys and patterns ---------------------------------------------------------------


def test_a_consumer_of_a_multicast_is_found_in_its_member(rig: Rig) -> None:
    policy = SubscriptionPolicy(kind=Kind.MULTICAST)
    worker = Worker()
    sink = Sink(DIRECT, worker.receive, worker.closed.append)
    rig.broker.attach("orders", "app", policy, None, 1, 1 << 26, "left", sink, is_named=True)
    rig.settle()
    rig.publish("orders", b"0", b"1")
    found = explain(rig, subscription="app", consumer="left")
    assert (found["reason"], found["members"][0]["reason"]) == ("ask-member", "no-credit")
    assert explain(rig, subscription="app", consumer="right")["reason"] == "no-consumer"
    found = explain(rig, subscription="app", position="0:1")
    assert [row["subscription"] for row in found["members"]] == ["app@left"]
    assert explain(rig, subscription=None, position="0:1")["subscription"] == "app@left"


def test_a_multicast_that_holds_nothing_is_not_what_is_stuck(rig: Rig) -> None:
    multicast = SubscriptionPolicy(kind=Kind.MULTICAST)
    rig.broker.create_subscription("orders", "app", multicast, None)
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    found = explain(rig, subscription=None)
    assert (found["reason"], found["subscription"]) == ("nothing-waits", "billing")
    rig.publish("orders", b"0")
    found = explain(rig, subscription=None)
    assert (found["reason"], found["subscription"]) == ("no-consumer", "billing")
    assert [row["reason"] for row in found["subscriptions"]] == ["no-consumer", "no-member"]


def test_a_consumer_whose_keys_do_not_wait(rig: Rig) -> None:
    policy = SubscriptionPolicy(kind=Kind.KEY_SHARED)
    rig.attach(policy=policy, name="w1", credit=1)
    publish(rig, Message(body=b"0", key="k"), Message(body=b"1", key="k"))
    rig.attach(policy=policy, name="w2")
    reasons = {name: explain(rig, consumer=name)["reason"] for name in ("w1", "w2")}
    assert reasons["w1"] == "no-credit"
    assert reasons["w2"] in {"nothing-waits", "key-held"}
    found = explain(rig, position="0:1")
    assert found["reason"] == ("no-credit" if reasons["w2"] == "nothing-waits" else "key-held")


def test_a_pattern_is_asked_topic_by_topic(rig: Rig) -> None:
    rig.broker.create_subscription("shop.+", "all", SubscriptionPolicy(), None)
    assert explain_topic(rig.broker, "shop.+")["reason"] == "no-topic"
    rig.publish("shop.a", b"0")
    found = explain_topic(rig.broker, "shop.+", "all")
    assert (found["reason"], found["topic"], found["pattern"]) == (
        "no-consumer",
        "shop.a",
        "shop.+",
    )
    rig.publish("shop.b", b"0")
    found = explain_topic(rig.broker, "shop.+")
    assert [row["topic"] for row in found["topics"]] == ["shop.a", "shop.b"]
    found = explain_topic(rig.broker, "shop.+", id="zzz")
    assert {row["reason"] for row in found["topics"]} == {"not-held"}
    with pytest.raises(UnknownSubscription, match=r"shop\.\+"):
        explain_topic(rig.broker, "shop.+", "odd")
    with pytest.raises(InvalidArgument, match="is a pattern"):
        explain_topic(rig.broker, "shop.+", position="0:0")


def test_how_a_held_message_ended_is_known_one_by_one(rig: Rig) -> None:
    rig.broker.create_topic("orders", 1, TopicPolicy(replay_s=1000))
    worker = rig.attach()
    soon = rig.clock.wall() / 1000 + 5
    publish(rig, Message(body=b"0"), Message(body=b"1", deliver_at=soon + 60, expires_at=soon))
    rig.ack(worker, worker.take_one())
    rig.wait(6)
    for each in (rig, rig.restart()):
        assert explain(each, position="0:0")["reason"] == "acked"
        assert explain(each, position="0:1")["reason"] == "expired"


# -- whatever happened -------------------------------------------------------------------------

AWAY = {"leased": "leased", "settling": "leased", "backing-off": "delayed"}
DONE = {"acked", "dead-lettered", "finished"}


def act(rig: Rig, workers: list[Worker], step: str, pick: int) -> None:
    parts = [(worker, part) for worker in workers for part in worker.slices]
    if step == "publish":
        rig.publish("orders", *(b"x" for _ in range(pick % 3 + 1)), partition=pick % 2)
    elif step == "attach":
        workers.append(rig.attach(credit=pick % 3 + 1, name=f"w{pick}"))
    elif step == "wait":
        rig.wait(pick)
    elif step == "leave" and workers:
        rig.detach(workers.pop(pick % len(workers)), is_clean=bool(pick % 2))
    elif parts:
        worker, part = parts[pick % len(parts)]
        worker.slices.remove(part)
        if step == "ack":
            rig.ack(worker, part)
        elif step == "nack":
            rig.give_back(worker, part, delay_s=pick)
        elif step == "reject":
            rig.give_back(worker, part, cause=Cause.REJECTED)
            bury(rig)


STEPS = ("publish", "publish", "attach", "ack", "nack", "reject", "leave", "wait")


@examples(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 40)), max_size=25))
def test_every_message_has_a_reason_that_agrees_with_the_counts(
    steps: list[tuple[str, int]],
) -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 2, TopicPolicy())
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    workers: list[Worker] = []
    for step, pick in steps:
        act(rig, workers, step, pick)
    told = {"leased": 0, "delayed": 0, "waiting": 0, "done": 0}
    for partition in rig.broker.state.names["orders"].partitions:
        for offset in range(partition.next_offset):
            found = explain(rig, position=f"{partition.index}:{offset}")
            reason = found["reason"]
            told["done" if reason in DONE else AWAY.get(reason, "waiting")] += 1
            if reason in {"behind-others", "no-credit", "ready"}:
                assert workers
    counts = rig.counts()
    assert told == {
        "leased": counts.leased,
        "delayed": counts.delayed,
        "waiting": counts.waiting,
        "done": counts.acked + counts.dead,
    }
