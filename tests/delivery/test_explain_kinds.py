"""Reasons that come from the kind of a subscription, its QoS, or what is done with it."""

import pytest

from penstock.delivery import reader
from penstock.delivery.explain_case import Case, Finding
from penstock.delivery.explain_kinds import (
    ask_member,
    handed_over,
    is_in_unit,
    member_away,
    read_later,
    seeking,
    topic_full,
)
from penstock.delivery.multicast import decide_join
from penstock.delivery.once import decide_hand_over
from penstock.delivery.seek import decide_seek
from penstock.delivery.state import Subscription, UnitBook
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Outcome, Settled
from tests.delivery.world import World, the

MULTICAST = SubscriptionPolicy(kind=Kind.MULTICAST)
READER = SubscriptionPolicy(kind=Kind.READER)


@pytest.fixture
def world() -> World:
    return World()


def case(world: World, subscription: Subscription, offset: int = 0) -> Case:
    return Case(subscription.cursors[0], offset, world.now, world.wall)


def asked(found: Finding | None) -> Finding:
    assert found is not None
    assert found["text"]
    return found


def test_none_of_this_concerns_a_plain_message(world: World) -> None:
    subscription = world.subscribe(world.topic())
    world.publish(subscription.topic)
    for check in (seeking, read_later, handed_over, member_away):
        assert check(case(world, subscription)) is None
    assert topic_full(subscription.topic) is None


def test_a_seek_that_is_not_durable(world: World) -> None:
    subscription = world.subscribe(world.topic())
    world.publish(subscription.topic)
    record = the(decide_seek(world.state, subscription, (0,)))
    assert asked(seeking(case(world, subscription)))["reason"] == "seeking"
    world.apply(record)
    assert seeking(case(world, subscription)) is None


def test_how_far_a_reader_is(world: World) -> None:
    subscription = world.subscribe(world.topic(), "tables", READER)
    world.publish(subscription.topic, 5)
    assert asked(read_later(case(world, subscription)))["reason"] == "reader-behind"
    world.apply(the(reader.decide_open(subscription, "run-1")))
    world.apply(the(reader.decide_plan(subscription, "run-1", {0: 3})))
    world.apply(the(reader.decide_commit(subscription, "run-1", {0: 1})))
    found = asked(read_later(case(world, subscription, 2)))
    assert (found["reason"], found["owner"], found["behind"]) == ("reader-planned", "run-1", 4)
    found = asked(read_later(case(world, subscription, 3)))
    assert (found["reason"], found["progress"], found["planned"]) == ("reader-behind", 1, 3)
    assert "progress is 0:1 of 0:5" in found["text"]


def test_a_topic_that_takes_no_more(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(max_bytes=100))
    subscription = world.subscribe(topic, "tables", READER)
    world.publish(topic, body=bytes(60))
    world.apply(the(reader.decide_open(subscription, "run-1")))
    assert topic_full(topic) is None
    world.apply(the(reader.decide_plan(subscription, "run-1", {0: 1})))
    found = asked(topic_full(topic))
    assert (found["reason"], found["max_bytes"]) == ("topic-full", 100)
    assert found["held_bytes"] > 0
    assert [row["subscription"] for row in found["readers"]] == ["tables"]


def test_what_qos_0_handed_over(world: World) -> None:
    subscription = world.subscribe(world.topic(), policy=SubscriptionPolicy(qos=0))
    world.publish(subscription.topic, 2)
    lease = world.deliver_one(world.join(subscription, name="w1"))
    assert handed_over(case(world, subscription)) is None, "not finished yet"
    record, shade = the(decide_hand_over(world.state, lease, [0, 1]))
    world.carry_out(record)
    found = asked(handed_over(case(world, subscription, 1)))
    assert (found["reason"], found["consumer"]) == ("handed-over", "w1")
    del shade.consumer.leases[shade.id]
    assert handed_over(case(world, subscription, 1)) is None, "nobody holds it any more"


def test_a_multicast_and_its_members(world: World) -> None:
    topic = world.topic()
    parent = world.subscribe(topic, "app", MULTICAST, ())
    assert asked(ask_member(parent))["reason"] == "no-member"
    record, member = decide_join(world.state, topic, "app", MULTICAST, "left", (0,), world.wall)
    assert record is not None
    world.apply(record)
    found = asked(ask_member(parent))
    assert (found["reason"], found["subscription"]) == ("ask-member", "app")
    assert "'app@left'" in found["text"]
    world.publish(topic)
    since = world.wall / 1000
    world.wait(7200)
    found = asked(member_away(case(world, member)))
    assert (found["reason"], found["consumer"]) == ("member-away", "left")
    assert (found["since"], found["until"]) == (since, since + 7 * 86_400)
    assert "2.0 hours" in found["text"]
    world.join(member)
    assert member_away(case(world, member)) is None


def test_a_unit_that_is_not_durable(world: World) -> None:
    subscription = world.subscribe(world.topic())
    cursor = subscription.cursors[0]
    assert not is_in_unit(world.state, cursor, 1)
    book = world.state.units[b"p"] = UnitBook(0, world.wall)
    record = Settled(subscription.topic.id, 0, subscription.id, Outcome.ACKED, ((1, 3),))
    book.decided[0, 0] = [(cursor, record)]
    assert [is_in_unit(world.state, cursor, n) for n in range(4)] == [False, True, True, False]
