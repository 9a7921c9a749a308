import pytest

from penstock.broker.broker import Sink
from penstock.broker.first_use import (
    abandoned_queues,
    end_queue,
    join_existing,
    topic_to_publish,
)
from penstock.broker.mailbox import DIRECT
from penstock.vocabulary.errors import Draining, InvalidName, SubscriptionInUse, UnknownTopic
from penstock.vocabulary.policy import OnDuplicate, SubscriptionPolicy, TopicPolicy
from tests.broker.rig import Rig

REPLACE = TopicPolicy(on_duplicate=OnDuplicate.REPLACE)


def _nobody(_answer: object) -> None: ...


def test_a_missing_topic_is_made_with_the_policy_and_survives_with_what_is_published() -> None:
    rig = Rig()
    assert topic_to_publish(rig.broker, "t", REPLACE) == 1
    rig.publish("t", b"x")
    fresh = rig.crash()
    assert fresh.broker.describe_topic("t")["policy"] == {"on_duplicate": "replace"}
    assert fresh.held("t") == [b"x"]


def test_a_topic_that_is_there_stays_as_it_is() -> None:
    rig = Rig()
    rig.broker.create_topic("t", 3, TopicPolicy())
    assert topic_to_publish(rig.broker, "t", REPLACE) == 3
    assert rig.broker.describe_topic("t")["policy"] == {}


def test_names_that_are_not_allowed_and_a_broker_that_stops_are_refused() -> None:
    rig = Rig()
    for name in ("a b", "#", "t.dead.s", "\x1b"):
        with pytest.raises(InvalidName):
            topic_to_publish(rig.broker, name, REPLACE)
    rig.broker.drain()
    with pytest.raises(Draining):
        topic_to_publish(rig.broker, "t", REPLACE)
    assert rig.broker.topics() == []


def test_joining_makes_a_subscription_and_never_a_topic() -> None:
    rig = Rig()
    sink = Sink(DIRECT, _nobody, _nobody)
    with pytest.raises(UnknownTopic):
        join_existing(rig.broker, "t", "s", "latest", 1, "me", sink)
    assert rig.broker.topics() == []
    rig.publish("t", b"before")
    consumer = join_existing(rig.broker, "t", "s", "latest", 1, "me", sink)
    rig.settle()
    assert consumer.credit == 1
    assert rig.counts("t", "s").attached == 0


def test_the_end_of_a_queue_tells_how_much_waited() -> None:
    rig = Rig()
    worker = rig.attach("t", "s", credit=1)
    rig.publish("t", b"a", b"b", b"c")
    with pytest.raises(SubscriptionInUse):
        end_queue(rig.broker, "t", "s")
    rig.ack(worker, worker.take_one())
    rig.detach(worker)
    assert end_queue(rig.broker, "t", "s") == 2
    assert rig.broker.subscriptions("t") == []
    assert end_queue(rig.broker, "t", "s") == 0
    assert end_queue(rig.broker, "gone", "s") == 0


def test_abandoned_queues_are_those_without_consumers() -> None:
    rig = Rig()
    rig.attach("t", "line.~live")
    rig.broker.create_subscription("t", "line.~gone", SubscriptionPolicy(), "latest")
    rig.broker.create_subscription("t", "line.bob", SubscriptionPolicy(), "latest")
    assert abandoned_queues(rig.broker, "line.~") == [("t", "line.~gone")]
