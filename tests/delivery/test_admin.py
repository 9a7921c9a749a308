"""Creating, changing and deleting: what is allowed, what is refused, and from where."""

import pytest

from penstock.delivery import admin
from penstock.delivery.state import Subscription, Topic
from penstock.vocabulary.errors import (
    InvalidArgument,
    InvalidName,
    PenstockError,
    PositionNotHeld,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicExists,
    TopicInUse,
    UnknownSubscription,
    UnknownTopic,
    Unsupported,
)
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause, SubscriptionCreated, TopicCreated
from tests.delivery.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


@pytest.fixture
def subscription(world: World, topic: Topic) -> Subscription:
    return world.subscribe(topic)


def create(
    world: World,
    name: str = "orders",
    partitions: int = 1,
    *,
    is_explicit: bool = True,
    **policy: object,
) -> TopicCreated | None:
    return admin.decide_create_topic(
        world.state,
        name,
        partitions,
        TopicPolicy(**policy),  # type: ignore[arg-type]
        world.wall,
        is_explicit=is_explicit,
    )


# -- finding -----------------------------------------------------------------------------------


def test_an_unknown_topic_is_refused_with_a_hint(world: World, topic: Topic) -> None:
    with pytest.raises(UnknownTopic, match="did you mean 'orders'"):
        admin.find_topic(world.state, "ordres")
    with pytest.raises(UnknownTopic, match="create it first"):
        admin.find_topic(world.state, "zebra")
    with pytest.raises(UnknownTopic, match="name one that matches"):
        admin.find_topic(world.state, "orders/+")


def test_an_unknown_subscription_is_refused_with_a_hint(
    topic: Topic, subscription: Subscription
) -> None:
    with pytest.raises(UnknownSubscription, match="did you mean 'billing'"):
        admin.find_subscription(topic, "bill")
    with pytest.raises(UnknownSubscription, match="subscribe with this name"):
        admin.find_subscription(topic, "zebra")


def test_what_is_being_deleted_is_not_found(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    admin.decide_delete_subscription(subscription)
    with pytest.raises(UnknownSubscription):
        admin.find_subscription(topic, "billing")
    admin.decide_delete_topic(world.state, topic)
    with pytest.raises(UnknownTopic):
        admin.find_topic(world.state, "orders")


# -- topics ------------------------------------------------------------------------------------


def test_a_topic_gets_the_next_number(world: World) -> None:
    first, second = create(world, "a"), create(world, "b", 4)
    assert first is not None
    assert second is not None
    assert (first.topic_id, second.topic_id, second.partitions) == (1, 2, 4)


def test_creating_a_topic_again_as_it_is_changes_nothing(world: World, topic: Topic) -> None:
    assert create(world) is None


def test_creating_a_topic_again_with_other_settings_is_refused(world: World, topic: Topic) -> None:
    with pytest.raises(TopicExists):
        create(world, partitions=2)
    with pytest.raises(TopicExists, match="alter_topic"):
        create(world, retain_s=1.0)


def test_a_topic_found_by_a_publish_may_have_any_settings(world: World) -> None:
    world.topic("wide", 4, TopicPolicy(retain_s=1))
    assert create(world, "wide", is_explicit=False) is None


@pytest.mark.parametrize("partitions", [0, -1, 1025])
def test_a_topic_has_between_one_and_1024_partitions(world: World, partitions: int) -> None:
    with pytest.raises(InvalidArgument, match="partitions"):
        create(world, partitions=partitions)
    assert "orders" not in world.state.names


@pytest.mark.parametrize(
    "policy",
    [
        {"durability": Durability.MEMORY},
        {"durability": Durability.REPLICATED},
        {"retain_s": -1.0},
        {"retain_s": float("inf")},
        {"retain_s": float("nan")},
        {"on_duplicate": "keep"},
    ],
    ids=str,
)
def test_a_topic_policy_that_makes_no_sense_is_refused(
    world: World, policy: dict[str, object]
) -> None:
    with pytest.raises(InvalidArgument):
        create(world, **policy)  # type: ignore[arg-type]


def test_a_setting_that_would_do_nothing_is_refused_by_name(world: World) -> None:
    with pytest.raises(Unsupported, match="max_bytes_refuse is for nats: URLs only"):
        create(world, max_bytes_refuse=5)


def test_a_dead_letter_topic_is_not_for_users_to_create(world: World) -> None:
    with pytest.raises(InvalidName):
        create(world, "orders.dead.billing")


def test_altering_to_the_same_policy_writes_nothing(topic: Topic) -> None:
    assert admin.decide_alter_topic(topic, TopicPolicy(), 7) is None
    record = admin.decide_alter_topic(topic, TopicPolicy(retain_s=5), 7)
    assert record is not None
    assert (record.policy.retain_s, record.altered_at) == (5, 7)


def test_a_topic_with_consumers_is_not_deleted(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    with pytest.raises(TopicInUse, match="billing"):
        admin.decide_delete_topic(world.state, topic)
    assert not topic.is_removing
    world.leave(consumer)
    assert admin.decide_delete_topic(world.state, topic).topic_id == topic.id


def test_a_topic_with_dead_letters_is_not_deleted(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    world.publish(topic)
    world.give_back(world.deliver_one(consumer), cause=Cause.REJECTED)
    world.leave(consumer)
    world.bury(subscription.cursors[0], (0, 1))
    with pytest.raises(TopicInUse, match="redrive or purge"):
        admin.decide_delete_topic(world.state, topic)


def test_a_topic_being_deleted_cannot_be_created(world: World, topic: Topic) -> None:
    admin.decide_delete_topic(world.state, topic)
    with pytest.raises(TopicInUse, match="being deleted"):
        create(world)


# -- subscriptions -----------------------------------------------------------------------------


def subscribe(
    world: World, topic: Topic, policy: SubscriptionPolicy | None, *, is_explicit: bool = True
) -> object:
    return admin.decide_create_subscription(
        world.state, topic, "billing", policy, (0,), world.wall, is_explicit=is_explicit
    )


def test_creating_a_subscription_again_as_it_is_changes_nothing(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    assert subscribe(world, topic, SubscriptionPolicy()) is None
    assert subscribe(world, topic, None) is None


def test_creating_a_subscription_again_with_another_policy_is_refused(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    with pytest.raises(SubscriptionConflict, match="alter_subscription"):
        subscribe(world, topic, SubscriptionPolicy(lease_s=5))


def test_joining_an_existing_subscription_may_name_another_lease_time(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    assert subscribe(world, topic, SubscriptionPolicy(lease_s=5), is_explicit=False) is None
    assert subscription.policy.lease_s == 30


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (SubscriptionPolicy(qos=3), InvalidArgument),
        (SubscriptionPolicy(dead_bytes_max=-1), InvalidArgument),
        (SubscriptionPolicy(lease_s=0), InvalidArgument),
        (SubscriptionPolicy(lease_s=100_000), InvalidArgument),
        (SubscriptionPolicy(lease_s=float("nan")), InvalidArgument),
        (SubscriptionPolicy(retry=Retry(max_attempts=0)), InvalidArgument),
        (SubscriptionPolicy(retry=Retry(first_s=-1)), InvalidArgument),
        (SubscriptionPolicy(retry=Retry(first_s=5, max_s=1)), InvalidArgument),
        (SubscriptionPolicy(retry=Retry(max_s=float("inf"))), InvalidArgument),
    ],
    ids=str,
)
def test_a_subscription_policy_that_cannot_be_kept_is_refused(
    world: World, topic: Topic, policy: SubscriptionPolicy, error: type[PenstockError]
) -> None:
    with pytest.raises(error):
        subscribe(world, topic, policy)
    assert topic.subscriptions is None


def test_an_altered_subscription_keeps_its_kind(subscription: Subscription) -> None:
    record = admin.decide_alter_subscription(subscription, SubscriptionPolicy(lease_s=5))
    assert record is not None
    assert record.policy.lease_s == 5
    assert admin.decide_alter_subscription(subscription, SubscriptionPolicy()) is None


def test_a_subscription_with_consumers_is_not_deleted(
    world: World, subscription: Subscription
) -> None:
    consumer = world.join(subscription)
    with pytest.raises(SubscriptionInUse, match="1 consumer"):
        admin.decide_delete_subscription(subscription)
    world.leave(consumer)
    assert admin.decide_delete_subscription(subscription).subscription_id == subscription.id


def test_a_subscription_being_deleted_cannot_be_joined(
    world: World, topic: Topic, subscription: Subscription
) -> None:
    admin.decide_delete_subscription(subscription)
    with pytest.raises(SubscriptionInUse, match="being deleted"):
        subscribe(world, topic, None)


def test_no_subscription_is_made_on_a_topic_being_deleted(world: World, topic: Topic) -> None:
    admin.decide_delete_topic(world.state, topic)
    with pytest.raises(TopicInUse):
        subscribe(world, topic, None)


def test_an_ephemeral_subscription_is_ready_at_once_and_has_no_name(
    world: World, topic: Topic
) -> None:
    watcher = admin.make_ephemeral(world.state, topic, SubscriptionPolicy(), (0,), world.wall)
    assert not watcher.is_durable
    assert not watcher.is_pending
    assert topic.durable_subscriptions() == []
    other = admin.make_ephemeral(world.state, topic, SubscriptionPolicy(), (0,), world.wall)
    assert other.name != watcher.name


# -- starts ------------------------------------------------------------------------------------


def acked(world: World, topic: Topic) -> Topic:
    """Ten messages, of which 0-3 and 5 are gone."""
    subscription = world.subscribe(topic)
    world.publish(topic, 10)
    consumer = world.join(subscription)
    world.ack(world.deliver_one(consumer), (0, 4), (5, 6))
    world.leave(consumer)
    return topic


def test_earliest_is_the_first_message_still_held(world: World, topic: Topic) -> None:
    assert admin.earliest(acked(world, topic)) == (4,)


def test_earliest_of_an_empty_topic_is_its_end(world: World) -> None:
    assert admin.earliest(world.topic("wide", 2)) == (0, 0)


def test_latest_is_after_everything_decided(world: World, topic: Topic) -> None:
    world.publish(topic, 3)
    topic.partitions[0].reserved = 5
    assert admin.latest(topic) == (5,)


@pytest.mark.parametrize("offset", [4, 5, 7, 10])
def test_a_position_that_is_held_or_the_end_is_a_start(
    world: World, topic: Topic, offset: int
) -> None:
    assert admin.at_position(acked(world, topic), 0, offset) == (offset,)


@pytest.mark.parametrize("offset", [0, 3, 11])
def test_a_position_that_is_not_held_is_refused_with_the_lowest(
    world: World, topic: Topic, offset: int
) -> None:
    with pytest.raises(PositionNotHeld, match="0:4") as caught:
        admin.at_position(acked(world, topic), 0, offset)
    assert caught.value.details["lowest"] == "0:4"


def test_a_position_starts_the_other_partitions_at_their_latest(world: World) -> None:
    topic = world.topic("wide", 3)
    for partition in range(3):
        world.publish(topic, 2, partition)
    assert admin.at_position(topic, 1, 1) == (2, 1, 2)


@pytest.mark.parametrize("partition", [-1, 1])
def test_a_partition_that_does_not_exist_is_refused(topic: Topic, partition: int) -> None:
    with pytest.raises(InvalidArgument, match="no partition"):
        admin.at_position(topic, partition, 0)


def test_a_description_says_what_a_topic_holds(world: World, topic: Topic) -> None:
    acked(world, topic)
    found = admin.describe(topic)
    assert found["topic"] == "orders"
    assert (found["partitions"], found["messages"], found["published"]) == (1, 5, 10)
    assert found["subscriptions"] == ["billing"]
    assert found["created_at"] == world.wall / 1000


# -- dead letters that could not be named --------------------------------------------------------


@pytest.mark.parametrize(
    ("topic_name", "why"),
    [("t" * 200, "over the limit of 255"), ("/".join("abcdefghijklmno"), "more than 16 levels")],
)
def test_a_subscription_whose_dead_letters_could_not_be_named_is_refused(
    world: World, topic_name: str, why: str
) -> None:
    topic = world.topic(topic_name)
    for policy in (None, SubscriptionPolicy(), SubscriptionPolicy(kind=Kind.KEY_SHARED, qos=2)):
        with pytest.raises(InvalidName, match=why):
            subscribe_as(world, topic, "s" * 100, policy)
    assert not topic.subscriptions


@pytest.mark.parametrize(
    "policy", [SubscriptionPolicy(kind=Kind.READER), SubscriptionPolicy(qos=0)]
)
def test_what_has_no_dead_letters_needs_no_name_for_them(
    world: World, policy: SubscriptionPolicy
) -> None:
    assert subscribe_as(world, world.topic("t" * 200), "s" * 100, policy) is not None


def subscribe_as(
    world: World, topic: Topic, name: str, policy: SubscriptionPolicy | None
) -> SubscriptionCreated | None:
    return admin.decide_create_subscription(
        world.state, topic, name, policy, (0,), world.wall, is_explicit=False
    )
