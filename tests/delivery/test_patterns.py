"""Subscriptions over patterns: one decision for all their topics."""

import pytest

from penstock.delivery import admin, patterns
from penstock.delivery.state import Topic
from penstock.vocabulary.errors import (
    InvalidArgument,
    InvalidName,
    PositionNotHeld,
    SubscriptionConflict,
    SubscriptionInUse,
    UnknownSubscription,
    Unsupported,
)
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import (
    PatternCreated,
    PatternDeleted,
    SubscriptionAltered,
    SubscriptionCreated,
    SubscriptionDeleted,
    TopicCreated,
    Unit,
)
from tests.delivery.world import World, the

DEFAULT = SubscriptionPolicy()
LATER = SubscriptionPolicy(lease_s=5)


def create(
    world: World,
    pattern: str = "a/+",
    name: str = "s",
    policy: SubscriptionPolicy | None = None,
    *,
    is_explicit: bool = True,
) -> Unit | None:
    return patterns.decide_create_pattern(
        world.state, pattern, name, policy, admin.earliest, world.wall, is_explicit=is_explicit
    )


def created_topic(world: World, name: str) -> TopicCreated:
    return the(
        admin.decide_create_topic(world.state, name, 2, TopicPolicy(), world.wall, is_explicit=True)
    )


def test_one_unit_creates_the_pattern_and_its_subscriptions() -> None:
    world = World()
    topic = world.topic("a/b")
    world.topic("other")
    assert create(world) == Unit(
        (
            PatternCreated("a/+", "s", DEFAULT, world.wall),
            SubscriptionCreated(topic.id, 1, "s", (0,), DEFAULT, world.wall),
        )
    )
    assert create(world) is None
    assert create(world, policy=DEFAULT) is None
    assert create(world, policy=LATER, is_explicit=False) is None
    with pytest.raises(SubscriptionConflict, match="another policy"):
        create(world, policy=LATER)
    other = SubscriptionPolicy(kind=Kind.KEY_SHARED)
    world.state.patterns["a/+", "s"] = PatternCreated("a/+", "s", other, 0)
    with pytest.raises(SubscriptionConflict, match="exists with kind"):
        create(world, policy=DEFAULT)


def test_a_new_topic_comes_with_the_subscriptions_of_its_patterns() -> None:
    world = World()
    plain = created_topic(world, "before")
    assert patterns.with_patterns(world.state, plain) is plain
    world.apply(the(create(world, policy=LATER)))
    world.apply(the(create(world, "#", "all")))
    record = created_topic(world, "a/b")
    unit = patterns.with_patterns(world.state, record)
    number = world.state.next_subscription_id
    assert unit == Unit(
        (
            record,
            SubscriptionCreated(record.topic_id, number - 2, "s", (0, 0), LATER, world.wall),
            SubscriptionCreated(record.topic_id, number - 1, "all", (0, 0), DEFAULT, world.wall),
        )
    )
    world.apply(unit)
    topic = world.state.names["a/b"]
    world.publish(topic, 3, 1)
    assert [s.cursors[1].attached for s in topic.durable_subscriptions()] == [3, 3]
    dead = the(
        admin.decide_create_topic(
            world.state, "a.dead.s", 1, TopicPolicy(), 0, is_explicit=True, is_reserved=True
        )
    )
    assert patterns.with_patterns(world.state, dead) is dead


@pytest.mark.parametrize(
    ("pattern", "name", "policy", "error"),
    [
        ("a/#/b", "s", DEFAULT, InvalidName),
        ("a/+", "s@x", DEFAULT, InvalidName),
        ("a/+", "s", SubscriptionPolicy(lease_s=0), InvalidArgument),
        ("a/+", "s", SubscriptionPolicy(kind=Kind.READER), Unsupported),
        ("+/b", "taken", DEFAULT, SubscriptionConflict),
        ("#", "everywhere", DEFAULT, SubscriptionConflict),
    ],
)
def test_a_refusal_changes_nothing(
    pattern: str, name: str, policy: SubscriptionPolicy, error: type[Exception]
) -> None:
    world = World()
    world.subscribe(world.topic("a/b"), "taken")
    world.apply(the(create(world, "x/+", "everywhere")))
    before = dict(world.state.patterns), world.state.next_subscription_id
    with pytest.raises(error):
        create(world, pattern, name, policy)
    assert before == (world.state.patterns, world.state.next_subscription_id)


def test_a_start_that_is_refused_changes_nothing() -> None:
    world = World()
    world.topic("a/b")

    def refuse(topic: Topic) -> tuple[int, ...]:
        raise PositionNotHeld(topic.name)

    with pytest.raises(PositionNotHeld):
        patterns.decide_create_pattern(
            world.state, "a/+", "s", None, refuse, world.wall, is_explicit=True
        )
    assert world.state.patterns == {}


def test_a_new_policy_is_for_all_topics() -> None:
    world = World()
    topic = world.topic("a/b")
    world.apply(the(create(world)))
    known = patterns.find_pattern(world.state, "a/+", "s")
    assert patterns.decide_alter_pattern(world.state, known, DEFAULT) is None
    unit = patterns.decide_alter_pattern(world.state, known, LATER)
    changed = PatternCreated("a/+", "s", LATER, world.wall)
    assert unit == Unit((changed, SubscriptionAltered(topic.id, 1, LATER)))
    world.apply(the(unit))
    assert world.state.durable_patterns["a/+", "s"] == changed
    with pytest.raises(SubscriptionConflict, match="cannot change"):
        patterns.decide_alter_pattern(world.state, changed, SubscriptionPolicy(kind=Kind.MULTICAST))


def test_a_pattern_is_deleted_with_all_its_subscriptions() -> None:
    world = World()
    topic = world.topic("a/b")
    world.apply(the(create(world)))
    known = patterns.find_pattern(world.state, "a/+", "s")
    subscription = the(topic.subscriptions)["s"]
    with pytest.raises(SubscriptionConflict, match="change or delete it there"):
        patterns.refuse_part(world.state, subscription)
    consumer = world.join(subscription)
    with pytest.raises(SubscriptionInUse, match="on topic 'a/b'"):
        patterns.decide_delete_pattern(world.state, known)
    assert patterns.find_pattern(world.state, "a/+", "s") is known
    world.leave(consumer)
    unit = patterns.decide_delete_pattern(world.state, known)
    assert unit == Unit((PatternDeleted("a/+", "s"), SubscriptionDeleted(topic.id, 1)))
    with pytest.raises(UnknownSubscription, match="it has: none"):
        patterns.find_pattern(world.state, "a/+", "s")
    with pytest.raises(SubscriptionInUse, match="being deleted"):
        create(world)
    world.apply(unit)
    assert topic.subscriptions is None
    patterns.refuse_part(world.state, subscription)
    world.apply(the(create(world)))


def test_a_pattern_that_comes_back_before_its_end_is_durable_stays() -> None:
    world = World()
    world.apply(the(create(world)))
    ended = patterns.decide_delete_pattern(
        world.state, patterns.find_pattern(world.state, "a/+", "s")
    )
    begun = the(create(world, policy=LATER))
    world.apply(ended)
    assert patterns.find_pattern(world.state, "a/+", "s").policy == LATER
    world.apply(begun)
    assert world.state.durable_patterns == world.state.patterns


def test_a_topic_is_refused_when_a_pattern_it_matches_could_have_no_dead_letters_there() -> None:
    world = World()
    create(world, "a/#", "s" * 100)
    with pytest.raises(InvalidName, match=r"'ssss.*over the limit of 255"):
        created_topic(world, "a/" + "t" * 200)
    assert not world.state.names
    created_topic(world, "a/t")


def test_a_pattern_is_refused_when_it_could_have_no_dead_letters_on_a_topic_there_is() -> None:
    world = World()
    world.topic("a/b")
    long = world.topic("a/" + "t" * 200)
    with pytest.raises(InvalidName, match="over the limit of 255"):
        create(world, "a/#", "s" * 100)
    assert not world.state.patterns
    assert not long.subscriptions
