"""Patterns in the state: what they mean now, and what of them is durable."""

import msgspec
import pytest

from penstock.delivery import matching
from penstock.delivery.apply import topic_ids
from penstock.delivery.patterns import decide_create_pattern
from penstock.delivery.state import State
from penstock.vocabulary.errors import SubscriptionConflict
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import PatternCreated, PatternDeleted, Unit
from tests.delivery.world import World, the

POLICY = SubscriptionPolicy(lease_s=5)
CREATED = PatternCreated("a/+", "s", POLICY, 7)


def world_with_pattern() -> World:
    world = World()
    for name in ("a/c", "a.b", "other"):
        world.topic(name)
    record = decide_create_pattern(
        world.state, "a/+", "s", POLICY, lambda _: (0,), world.wall, is_explicit=True
    )
    world.apply(the(record))
    return world


def test_applying_twice_is_harmless() -> None:
    world = World()
    for record in (CREATED, CREATED):
        world.apply(record)
    assert world.state.durable_patterns == {("a/+", "s"): CREATED}
    for _ in range(2):
        world.apply(PatternDeleted("a/+", "s"))
    assert world.state.durable_patterns == {}


def test_a_pattern_record_speaks_of_no_topic() -> None:
    assert topic_ids(CREATED) == []
    assert topic_ids(Unit((CREATED, PatternDeleted("a/+", "s")))) == []


def test_a_topic_finds_its_patterns_and_a_pattern_its_topics() -> None:
    state = world_with_pattern().state
    (pattern,) = state.patterns.values()
    assert [topic.name for topic in matching.topics_of(state, "a/+")] == ["a.b", "a/c"]
    assert matching.patterns_of(state, "a:x") == [pattern]
    assert matching.patterns_of(state, "b/x") == []
    assert matching.pattern_of(state, "a/c", "s") is pattern
    assert matching.pattern_of(state, "a/c", "t") is None
    assert [s.topic.name for s in matching.subscriptions_of(state, pattern)] == ["a.b", "a/c"]
    state.names["a.b"].is_removing = True
    assert [topic.name for topic in matching.topics_of(state, "a/+")] == ["a/c"]


def test_a_taken_name_is_refused_with_the_pattern_that_has_it() -> None:
    state = world_with_pattern().state
    matching.refuse_taken(state, "a/c", "t")
    matching.refuse_taken(state, "b/c", "s")
    with pytest.raises(SubscriptionConflict, match=r"belongs to the pattern 'a/\+'"):
        matching.refuse_taken(state, "a/new", "s")


def test_a_snapshot_holds_what_is_durable() -> None:
    state = State()
    state.patterns["x/+", "s"] = CREATED
    assert matching.dump_patterns(state) == []
    world = World()
    world.apply(CREATED)
    rows = msgspec.msgpack.decode(msgspec.msgpack.encode(matching.dump_patterns(world.state)))
    matching.load_patterns(state, rows)
    assert state.durable_patterns == {("a/+", "s"): CREATED}
