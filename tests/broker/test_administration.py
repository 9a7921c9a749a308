"""Topics and subscriptions: create, change, delete, list; durable when the call returns."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.administration import changed
from penstock.broker.first_use import topic_to_publish
from penstock.vocabulary.errors import (
    InvalidArgument,
    InvalidName,
    PositionNotHeld,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicExists,
    TopicInUse,
    UnknownSubscription,
    UnknownTopic,
)
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause
from tests.broker.rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


# -- topics ------------------------------------------------------------------------------------


def test_a_created_topic_is_durable_when_the_call_returns(rig: Rig) -> None:
    rig.broker.create_topic("orders", 3, TopicPolicy(retain_s=60))
    again = rig.crash()
    (found,) = again.broker.topics()
    assert (found["topic"], found["partitions"]) == ("orders", 3)
    assert found["policy"] == {"retain_s": 60.0}


def test_creating_it_again_as_it_is_succeeds_and_otherwise_not(rig: Rig) -> None:
    rig.broker.create_topic("orders", 3, TopicPolicy())
    rig.broker.create_topic("orders", 3, TopicPolicy())
    with pytest.raises(TopicExists):
        rig.broker.create_topic("orders", 2, TopicPolicy())


def test_creating_again_waits_until_the_first_creation_is_durable(rig: Rig) -> None:
    rig.submit()
    rig.broker.create_topic("orders", 1, TopicPolicy())
    assert [found["topic"] for found in rig.crash().broker.topics()] == ["orders"]


def test_an_altered_policy_is_durable(rig: Rig) -> None:
    rig.broker.create_topic("orders", 1, TopicPolicy())
    rig.broker.alter_topic("orders", {"retain_s": 5, "durability": "written"})
    policy = rig.crash().broker.state.names["orders"].policy
    assert policy == TopicPolicy(retain_s=5.0, durability=Durability.WRITTEN)


def test_altering_to_what_it_is_writes_nothing(rig: Rig) -> None:
    rig.broker.create_topic("orders", 1, TopicPolicy())
    before = rig.journal.records
    rig.broker.alter_topic("orders", {"retain_s": 24 * 3600})
    assert rig.journal.records == before


def test_a_deleted_topic_is_gone_with_its_messages_and_subscriptions(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"a")
    rig.detach(worker)
    rig.broker.delete_topic("orders")
    for each in (rig, rig.crash()):
        assert each.broker.topics() == []
        assert each.broker.subscriptions() == []
        assert each.broker.stats()["messages_held"] == 0


def test_a_topic_made_again_under_the_same_name_starts_empty(rig: Rig) -> None:
    rig.publish("orders", b"old")
    rig.broker.delete_topic("orders")
    rig.sequences.clear()
    assert rig.publish("orders", b"new").base == 0
    assert rig.held() == [b"new"]
    assert rig.crash().held() == [b"new"]


def test_a_topic_in_use_is_not_deleted(rig: Rig) -> None:
    rig.attach()
    with pytest.raises(TopicInUse):
        rig.broker.delete_topic("orders")


def test_what_does_not_exist_cannot_be_altered_deleted_or_described(rig: Rig) -> None:
    with pytest.raises(UnknownTopic):
        rig.broker.alter_topic("nothing", {})
    with pytest.raises(UnknownTopic):
        rig.broker.delete_topic("nothing")
    with pytest.raises(UnknownTopic):
        rig.broker.describe_topic("nothing")
    with pytest.raises(UnknownTopic):
        rig.broker.subscriptions("nothing")


def test_topics_are_listed_by_name(rig: Rig) -> None:
    for name in ("b", "c", "a"):
        rig.publish(name)
    assert [found["topic"] for found in rig.broker.topics()] == ["a", "b", "c"]


def test_a_topic_not_yet_durable_is_not_listed(rig: Rig) -> None:
    rig.submit()
    assert rig.broker.topics() == []
    rig.settle()
    assert len(rig.broker.topics()) == 1


# -- subscriptions -----------------------------------------------------------------------------


def test_a_created_subscription_is_durable_when_the_call_returns(rig: Rig) -> None:
    policy = SubscriptionPolicy(lease_s=5, retry=Retry(max_attempts=3))
    rig.broker.create_subscription("orders", "billing", policy, None)
    again = rig.crash()
    assert again.subscription().policy == policy
    again.publish()
    assert again.counts().waiting == 1


def test_a_subscription_covers_from_its_start(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b", b"c")
    for name, start in (("early", "earliest"), ("late", "latest"), ("third", "0:2")):
        rig.broker.create_subscription("orders", name, SubscriptionPolicy(), start)
    waiting = {found["subscription"]: found["waiting"] for found in rig.broker.subscriptions()}
    assert waiting == {"early": 3, "late": 0, "third": 1}


def test_a_subscription_with_an_impossible_start_is_not_made(rig: Rig) -> None:
    rig.publish()
    with pytest.raises(PositionNotHeld):
        rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), "0:9")
    assert rig.broker.subscriptions() == []


@pytest.mark.parametrize(
    ("topic", "name", "policy", "consumer", "reason"),
    [
        ("t" * 200, "s" * 100, None, "c", "cannot have a dead-letter topic"),
        ("orders", "a@b", None, "c", "contains '@'"),
        ("orders", "s", SubscriptionPolicy(kind=Kind.MULTICAST), "a@b", "contains '@'"),
        ("orders ", "s", None, "c", "^topic name 'orders '"),
    ],
)
def test_no_topic_is_made_for_a_name_that_is_refused(
    rig: Rig, topic: str, name: str, policy: SubscriptionPolicy | None, consumer: str, reason: str
) -> None:
    with pytest.raises(InvalidName, match=reason):
        rig.attach(topic, name, policy=policy, name=consumer, is_named=True)
    if policy is None:
        with pytest.raises(InvalidName, match=reason):
            rig.broker.create_subscription(topic, name, SubscriptionPolicy(), None)
    assert rig.broker.topics() == []


def test_an_altered_subscription_keeps_its_place(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"a", b"b")
    rig.ack(worker, worker.take_one(), (0, 1))
    rig.broker.alter_subscription("orders", "billing", {"lease_s": 7})
    again = rig.crash()
    assert again.subscription().policy.lease_s == 7
    assert again.counts().acked == 1


def test_a_retry_policy_may_be_given_in_plain_values(rig: Rig) -> None:
    rig.attach()
    rig.broker.alter_subscription("orders", "billing", {"retry": {"max_attempts": 2}})
    assert rig.subscription().policy.retry.max_attempts == 2


def test_a_deleted_subscription_lets_go_of_what_only_it_held(rig: Rig) -> None:
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    rig.publish("orders", b"a")
    rig.broker.delete_subscription("orders", "billing")
    assert rig.held() == []
    assert rig.crash().held() == []


def test_a_subscription_in_use_is_not_deleted(rig: Rig) -> None:
    rig.attach()
    with pytest.raises(SubscriptionInUse):
        rig.broker.delete_subscription("orders", "billing")


def test_unknown_subscriptions_and_conflicts_are_refused(rig: Rig) -> None:
    rig.attach()
    with pytest.raises(UnknownSubscription):
        rig.broker.delete_subscription("orders", "nobody")
    with pytest.raises(UnknownSubscription):
        rig.broker.alter_subscription("orders", "nobody", {})
    with pytest.raises(SubscriptionConflict):
        rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(lease_s=1), None)
    with pytest.raises(SubscriptionConflict):
        rig.broker.alter_subscription("orders", "billing", {"qos": 2})


def test_a_description_shows_the_counts_and_that_none_is_unexplained(rig: Rig) -> None:
    worker = rig.attach(name="w1")
    rig.publish("orders", b"a", b"b", b"c")
    part = worker.take_one()
    rig.ack(worker, part, (0, 1))
    rig.give_back(worker, part, (1, 2), delay_s=60)
    (found,) = rig.broker.subscriptions("orders")
    assert (found["attached"], found["acked"], found["delayed"], found["leased"]) == (3, 1, 1, 1)
    assert (found["unexplained"], found["kind"], found["consumers"]) == (0, "shared", ["w1"])


def test_subscriptions_are_listed_by_topic_and_name(rig: Rig) -> None:
    for topic, name in (("b", "y"), ("a", "z"), ("b", "x")):
        rig.broker.create_subscription(topic, name, SubscriptionPolicy(), None)
    found = [(each["topic"], each["subscription"]) for each in rig.broker.subscriptions()]
    assert found == [("a", "z"), ("b", "x"), ("b", "y")]
    assert len(rig.broker.subscriptions("b")) == 2


# -- changes -----------------------------------------------------------------------------------


def test_only_the_named_fields_change() -> None:
    policy = changed(SubscriptionPolicy(lease_s=9), {"retry": Retry(max_attempts=1)})
    assert policy == SubscriptionPolicy(lease_s=9, retry=Retry(max_attempts=1))


def test_an_unknown_setting_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"'colour'.*retain_s"):
        changed(TopicPolicy(), {"colour": "red"})


@pytest.mark.parametrize("changes", [{"retain_s": "long"}, {"durability": "forever"}])
def test_a_value_of_the_wrong_type_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="wrong setting"):
        changed(TopicPolicy(), changes)


# -- topics that only being told to creates ------------------------------------------------------


def test_without_auto_creation_a_first_use_is_refused_and_says_what_to_do(rig: Rig) -> None:
    rig.broker.auto_create_topics = False
    uses: list[Callable[[], Any]] = [
        rig.publish,
        rig.attach,
        lambda: rig.attach(subscription=None),
        lambda: rig.broker.partitions("orders"),
        lambda: rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None),
        lambda: rig.broker.open_reader("orders", "spark", "run-1", None),
        lambda: topic_to_publish(rig.broker, "orders", TopicPolicy()),
    ]
    for use in uses:
        with pytest.raises(UnknownTopic, match=r"penstock topics create orders.*create_topic"):
            use()
    assert rig.broker.topics() == []


def test_without_auto_creation_topics_that_exist_work_and_dead_letters_are_made(rig: Rig) -> None:
    rig.broker.auto_create_topics = False
    rig.broker.create_topic("orders", 1, TopicPolicy())
    worker = rig.attach()
    rig.publish("orders", b"bad")
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED)
    assert rig.keeper.move_doomed()
    assert rig.held("orders.dead.billing") == [b"bad"]
