"""Credit that comes and goes with pulls."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.batch import encode_one
from penstock.broker.broker import Broker, Sink
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.pulling import (
    ask_for,
    attach_idle,
    attach_looking,
    extend_held,
    find,
    ids_of,
    is_finished_by,
    is_in_transit,
    same_room,
    starts_of,
)
from penstock.journal.memory import MemoryDisk
from penstock.vocabulary.claims import Claim, Renewal
from penstock.vocabulary.errors import InvalidArgument, UnknownSubscription, UnknownTopic
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy


class Seat:
    """A consumer whose slices are kept."""

    def __init__(self, broker: Broker, name: str = "s", consumer: str | None = None) -> None:
        self.slices: list[Any] = []
        sink = Sink(DIRECT, self.slices.append, self.slices.append)
        self.consumer = attach_idle(broker, find(broker, "t", name), consumer, sink)
        wait = Pending()
        broker.flush(DIRECT, wait)
        broker.engine.settle_down(wait)

    @property
    def offsets(self) -> list[int]:
        return [o for part in self.slices for frame in part.frames for o in frame.offsets]

    def claim(self) -> Claim:
        part = self.slices[0]
        return Claim(part.lease_id, part.partition, part.attempt, ((part.start, part.end),))


@pytest.fixture
def broker() -> Iterator[Broker]:
    found = Broker.open(MemoryDisk(), threads=False)
    found.create_subscription("t", "s", SubscriptionPolicy(), None)
    yield found
    found.close()


def publish(broker: Broker, count: int) -> None:
    for number in range(count):
        wait = Pending()
        place = broker.state.names["t"].partitions[0].reserved
        broker.publish("t", 0, encode_one(b"%d" % number), 1, b"\0" * 16, 0, place, DIRECT, wait)
        broker.engine.settle_down(wait)


def test_a_consumer_gets_nothing_until_it_asks(broker: Broker) -> None:
    seat = Seat(broker)
    publish(broker, 5)
    assert seat.offsets == []
    ask_for(broker, seat.consumer, 2)
    assert seat.offsets == [0, 1]
    ask_for(broker, seat.consumer, 0)
    publish(broker, 1)
    assert seat.offsets == [0, 1]


def test_asking_again_is_beside_what_is_held(broker: Broker) -> None:
    seat = Seat(broker)
    publish(broker, 5)
    ask_for(broker, seat.consumer, 2)
    ask_for(broker, seat.consumer, 2)
    assert seat.offsets == [0, 1, 2, 3]


def test_settling_makes_no_more_room_than_was_asked_for(broker: Broker) -> None:
    seat = Seat(broker)
    publish(broker, 2)
    ask_for(broker, seat.consumer, 3)
    with same_room(broker, seat.consumer):
        assert broker.ack(seat.consumer, [seat.claim()]) == []
    publish(broker, 5)
    assert len(seat.offsets) == 3


def test_settling_without_a_pull_makes_no_room(broker: Broker) -> None:
    seat = Seat(broker)
    publish(broker, 4)
    ask_for(broker, seat.consumer, 2)
    ask_for(broker, seat.consumer, 0)
    with same_room(broker, seat.consumer):
        broker.ack(seat.consumer, [seat.claim()])
    publish(broker, 1)
    assert seat.offsets == [0, 1]


def test_nothing_is_in_transit_once_it_has_arrived(broker: Broker) -> None:
    seat = Seat(broker)
    assert not is_in_transit(broker, seat.consumer)
    seat.consumer.pending_reads = 1
    assert is_in_transit(broker, seat.consumer)


def test_only_what_is_held_is_extended(broker: Broker) -> None:
    seat = Seat(broker)
    publish(broker, 3)
    ask_for(broker, seat.consumer, 3)
    part = seat.slices[0]
    held, gone = Renewal(part.lease_id, 0, 1), Renewal(part.lease_id, 1, 2)
    broker.ack(seat.consumer, [seat.claim()._replace(ranges=((1, 2),))])
    unknown = Renewal(999, 0, 1)
    beyond = Renewal(part.lease_id, 0, 9)
    late = extend_held(broker, seat.consumer, [held, gone, unknown, beyond], 60)
    assert late == [gone, unknown, beyond]
    assert seat.consumer.leases[part.lease_id].kept is not None
    assert extend_held(broker, seat.consumer, [Renewal(part.lease_id, 0, None)], 60) == []


def test_what_is_not_there_is_not_found(broker: Broker) -> None:
    with pytest.raises(UnknownTopic):
        find(broker, "no", "s")
    with pytest.raises(UnknownSubscription):
        find(broker, "t", "no")
    with pytest.raises(UnknownTopic):
        attach_looking(broker, "no", None, 1, 1, Sink(DIRECT, print, print))


@pytest.mark.parametrize("kind", [Kind.KEY_SHARED, Kind.MULTICAST])
def test_some_kinds_need_a_named_consumer(broker: Broker, kind: Kind) -> None:
    broker.create_subscription("t", "k", SubscriptionPolicy(kind=kind), None)
    with pytest.raises(InvalidArgument, match="name the consumer"):
        Seat(broker, "k")
    seat = Seat(broker, "k", "c")
    assert seat.consumer.subscription.id in ids_of(broker, find(broker, "t", "k"))


def test_who_looks_sees_from_a_place_that_is_held(broker: Broker) -> None:
    publish(broker, 3)
    topic = broker.state.names["t"]
    assert starts_of(topic, {0: 1}) == (1,)
    assert starts_of(topic, {0: 99}) == (3,)
    assert starts_of(topic, {5: 1}) == (3,)
    slices: list[Any] = []
    attach_looking(broker, "t", {0: 1}, 10, 1000, Sink(DIRECT, slices.append, print))
    assert [o for part in slices for frame in part.frames for o in frame.offsets] == [1, 2]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_finished_is_known_by_the_attempt_that_finished_it(
    broker: Broker, qos: int
) -> None:
    broker.create_subscription("t", "q", SubscriptionPolicy(qos=qos), None)
    seat = Seat(broker, "q")
    publish(broker, 1)
    ask_for(broker, seat.consumer, 1)
    number = seat.consumer.subscription.id
    assert not is_finished_by(broker, number, 0, 0, 1)
    broker.ack(seat.consumer, [seat.claim()])
    wait = Pending()
    broker.flush(DIRECT, wait)
    broker.engine.settle_down(wait)
    assert is_finished_by(broker, number, 0, 0, 1)
    assert is_finished_by(broker, number, 0, 0, 2) == (qos == 1)
    assert not is_finished_by(broker, number, 9, 0, 1)
    assert not is_finished_by(broker, 99, 0, 0, 1)
