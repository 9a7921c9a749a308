"""Kind key_shared: which message or which consumer a message waits for."""

import pytest

from penstock.delivery.explain_case import Case, Finding
from penstock.delivery.explain_keys import (
    at_holder,
    behind_growth,
    behind_key,
    first_for,
    key_held,
)
from penstock.delivery.growth import decide_partitions
from penstock.delivery.state import Subscription
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Removed
from tests.delivery.world import World, the

POLICY = SubscriptionPolicy(kind=Kind.KEY_SHARED, retry=Retry(max_attempts=None))
MANY = [f"k{n}" for n in range(32)]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def subscription(world: World) -> Subscription:
    return world.subscribe(world.topic(), policy=POLICY)


def publish(
    world: World, subscription: Subscription, *keys: str | None, partition: int = 0, level: int = 0
) -> None:
    messages = [Message(body=b"x", key=key, priority=level) for key in keys]
    world.publish_messages(subscription.topic, messages, partition)


def case(world: World, subscription: Subscription, offset: int, partition: int = 0) -> Case:
    return Case(subscription.cursors[partition], offset, world.now, world.wall)


def asked(found: Finding | None) -> Finding:
    assert found is not None
    assert found["text"]
    return found


def test_shared_subscriptions_know_no_keys(world: World) -> None:
    subscription = world.subscribe(world.topic())
    publish(world, subscription, "a", "a")
    world.join(subscription, credit=1)
    world.dispatch(subscription)
    for check in (behind_key, behind_growth, key_held, at_holder):
        assert check(case(world, subscription, 1)) is None
    assert first_for(subscription, "worker", world.wall) is None


def test_an_older_message_of_the_key_that_waits(world: World, subscription: Subscription) -> None:
    publish(world, subscription, "a", "b", "a", None)
    found = asked(behind_key(case(world, subscription, 2)))
    assert (found["reason"], found["behind"]) == ("behind-key", "0:0")
    assert found["head"] == (subscription.cursors[0], 0)
    for offset in (0, 1, 3):
        assert behind_key(case(world, subscription, offset)) is None


def test_what_is_out_keeps_its_key_in_motion(world: World, subscription: Subscription) -> None:
    publish(world, subscription, "a", "a", "a")
    world.deliver(world.join(subscription, credit=1, name="w1"))
    assert behind_key(case(world, subscription, 1)) is None
    found = asked(at_holder(case(world, subscription, 1)))
    assert found["reason"] == "no-credit"
    assert "'w1', which has 1 of 1" in found["text"]
    assert asked(behind_key(case(world, subscription, 2)))["behind"] == "0:1"


def test_a_delayed_message_does_not_keep_its_key_back(
    world: World, subscription: Subscription
) -> None:
    due = world.wall / 1000 + 60
    messages = [Message(body=b"x", key="a", deliver_at=due), Message(body=b"x", key="a")]
    world.publish_messages(subscription.topic, messages)
    assert behind_key(case(world, subscription, 1)) is None
    world.wait(60)
    assert asked(behind_key(case(world, subscription, 1)))["behind"] == "0:0"


def test_a_revoked_message(world: World, subscription: Subscription) -> None:
    publish(world, subscription, "a", "a")
    lease = world.deliver_one(world.join(subscription))
    world.give_back(lease, (0, 1), delay_s=10)
    found = asked(behind_key(case(world, subscription, 1)))
    assert (found["reason"], found["behind"], found["attempt"]) == ("revoked", "0:0", 0)
    publish(world, subscription, "a")
    assert asked(behind_key(case(world, subscription, 2)))["reason"] == "behind-key"


def test_an_older_message_in_the_partition_of_before(
    world: World, subscription: Subscription
) -> None:
    publish(world, subscription, "a")
    lease = world.deliver_one(world.join(subscription))
    world.apply(the(decide_partitions(subscription.topic, 2, world.wall)))
    publish(world, subscription, "a", "b", partition=1)
    found = asked(behind_growth(case(world, subscription, 0, 1)))
    assert (found["reason"], found["behind"]) == ("behind-growth", "0:0")
    assert found["head"] == (subscription.cursors[0], 0)
    assert behind_growth(case(world, subscription, 1, 1)) is None
    assert behind_growth(case(world, subscription, 0, 0)) is None
    world.ack(lease)
    assert behind_growth(case(world, subscription, 0, 1)) is None


def test_a_key_that_moves(world: World, subscription: Subscription) -> None:
    publish(world, subscription, *MANY)
    lease = world.deliver_one(world.join(subscription, name="first"))
    world.join(subscription, name="second")
    publish(world, subscription, *MANY)
    world.dispatch(subscription)
    held = {o: f for o in range(32, 64) if (f := key_held(case(world, subscription, o)))}
    assert 0 < len(held) < 32
    offset, found = next(iter(held.items()))
    assert (found["consumer"], found["moving_to"]) == ("first", "second")
    assert (found["out"], found["until"]) == (1, world.wall / 1000 + 30)
    world.apply(Removed(subscription.topic.id, 0, ((offset - 32, offset - 31),)))
    world.dispatch(subscription)
    found = asked(key_held(case(world, subscription, offset)))
    assert found["out"] == 1, "what was removed under a consumer keeps its key until it had ended"
    world.ack(lease)
    world.wait(31)
    world.dispatch(subscription)
    assert key_held(case(world, subscription, offset)) is None


def test_a_holder_without_credit_and_what_it_takes_first(
    world: World, subscription: Subscription
) -> None:
    publish(world, subscription, "a", "b", "c", "d")
    world.deliver(world.join(subscription, credit=1, name="w1"))
    found = asked(at_holder(case(world, subscription, 3)))
    assert (found["reason"], found["ahead"]) == ("behind-others", 2)
    assert found["head"] == (subscription.cursors[0], 1)
    publish(world, subscription, "e", level=6)
    found = asked(at_holder(case(world, subscription, 3)))
    assert (found["reason"], found["highest"]) == ("behind-priority", 6)
    assert found["head"] == (subscription.cursors[0], 4)
    head = case(world, subscription, 4)._replace(is_head=True)
    assert asked(at_holder(head))["reason"] == "no-credit"


def test_a_holder_that_is_kept_for_another_message(
    world: World, subscription: Subscription
) -> None:
    publish(world, subscription, "a", "b")
    consumer = world.join(subscription, credit=1)
    world.deliver(consumer)
    consumer.is_isolated = True
    assert asked(at_holder(case(world, subscription, 1)))["reason"] == "behind-isolated"


def test_the_first_message_for_a_consumer(world: World, subscription: Subscription) -> None:
    publish(world, subscription, *MANY)
    world.deliver(world.join(subscription, name="first", credit=4))
    world.join(subscription, name="second")
    world.dispatch(subscription)
    found = first_for(subscription, "first", world.wall)
    assert found is not None
    assert found[1] >= 4
    assert first_for(subscription, "nobody", world.wall) is None
