"""A revoked message may be settled while its way back is not durable yet."""

import pytest

from penstock.delivery import settle
from penstock.delivery.counts import count, unexplained
from penstock.delivery.keyed import open_offsets
from penstock.delivery.revoked import accept
from penstock.delivery.state import Consumer, Lease, Subscription
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause, Returned
from tests.delivery.world import World, claim

POLICY = SubscriptionPolicy(kind=Kind.KEY_SHARED, retry=Retry(max_attempts=None))


class Scene:
    """Three messages of one key are out; the first is nacked, and nothing of that is durable."""

    def __init__(self) -> None:
        self.world = World()
        self.subscription = self.world.subscribe(self.world.topic(), policy=POLICY)
        self.consumer = self.world.join(self.subscription)
        messages = [Message(body=b"x", key="a")] * 3
        self.world.publish_messages(self.subscription.topic, messages)
        self.lease: Lease = self.world.deliver_one(self.consumer)
        self.records, refused = settle.decide_return(
            self.consumer, claim(self.lease, (0, 1)), Cause.NACKED, 0.0, "", self.world.wall
        )
        assert not refused

    def carry_out(self) -> None:
        for record in self.records:
            self.world.carry_out(record)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def held(consumer: Consumer) -> list[int]:
    return sorted(o for each in consumer.leases.values() for o in open_offsets(each).tolist())


def waiting_and_leased(subscription: Subscription) -> tuple[int, int]:
    found = count(subscription)
    assert unexplained(found) == 0
    return found.waiting, found.leased


def test_an_ack_is_accepted_and_the_message_never_comes_again(scene: Scene) -> None:
    claims = [claim(scene.lease, (1, 2))]
    (settled,), refused = settle.decide_ack(scene.consumer, claims)
    assert refused == []
    assert waiting_and_leased(scene.subscription) == (0, 3), "each message counts once"
    scene.carry_out()
    assert waiting_and_leased(scene.subscription) == (2, 1)
    scene.world.dispatch(scene.subscription)
    assert held(scene.consumer) == [0, 2], "the acked one is not handed out again"
    scene.world.carry_out(settled)
    assert waiting_and_leased(scene.subscription) == (0, 2)
    assert count(scene.subscription).acked == 1


def test_a_second_ack_finds_the_message_gone(scene: Scene) -> None:
    claims = [claim(scene.lease, (1, 2))]
    settle.decide_ack(scene.consumer, claims)
    records, refused = settle.decide_ack(scene.consumer, claims)
    assert not records
    assert [each.offset for each in refused] == [1]
    assert waiting_and_leased(scene.subscription) == (0, 3)


def test_a_nack_is_accepted_too(scene: Scene) -> None:
    records, refused = settle.decide_return(
        scene.consumer, claim(scene.lease, (1, 2)), Cause.NACKED, 9.0, "later", scene.world.wall
    )
    assert refused == []
    scene.carry_out()
    for record in records:
        scene.world.carry_out(record)
    scene.world.dispatch(scene.subscription)
    assert held(scene.consumer) == [0], "the second waits, and the third behind it"
    assert count(scene.subscription).delayed == 1


def test_what_is_not_on_its_way_back_is_not_accepted(scene: Scene) -> None:
    (cursor,) = scene.subscription.cursors
    assert [type(record) for record in scene.records] == [Returned, Returned]
    assert not accept(cursor, 0), "the nacked one was decided by its own consumer"
    assert not accept(cursor, 3)
    scene.carry_out()
    assert not accept(cursor, 1), "it is back: whoever wants it takes it out of what waits"


def test_other_kinds_know_nothing_of_it() -> None:
    world = World()
    subscription = world.subscribe(world.topic())
    (cursor,) = subscription.cursors
    assert not accept(cursor, 0)
