from typing import Any

import pytest

from penstock.broker.mailbox import DIRECT
from penstock.server.lines_queue import VIEWS_MAX, Flying, LineQueue, Views
from penstock.vocabulary.errors import UnknownTopic
from penstock.vocabulary.message import Message
from tests.broker.rig import Rig


class _Seat:
    """A queue and what it hands over."""

    def __init__(self, rig: Rig, credit: int = 1) -> None:
        self.rig = rig
        self.events: list[Flying] = []
        self.queue = LineQueue(rig.broker, DIRECT, "t", "bob", credit, Views())
        self.queue.on_event = self.events.append
        self.queue.join()
        rig.settle()

    def take(self) -> Flying:
        self.rig.settle()
        (event,) = self.events
        self.events.clear()
        return event


def _publish(rig: Rig, *ids: str) -> None:
    messages: list[Any] = [Message(id=id, body=b"1") for id in ids]
    rig.publish("t", *messages)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.publish("t", b"old")
    return rig


def test_a_queue_begins_at_the_latest_of_a_topic_that_is_there(rig: Rig) -> None:
    with pytest.raises(UnknownTopic):
        LineQueue(rig.broker, DIRECT, "nothing", "bob", 1, Views()).join()
    seat = _Seat(rig)
    assert seat.events == []
    _publish(rig, "1")
    assert seat.take().line() == b'{"topic":"t","id":"1","priority":0,"msg":1}\r\n'


def test_an_event_is_settled_once_by_its_id(rig: Rig) -> None:
    seat = _Seat(rig)
    _publish(rig, "1", "2")
    first = seat.take()
    assert seat.queue.find("2") is None
    assert seat.queue.find("1") is first
    assert seat.queue.take("1") is first
    assert seat.queue.take("1") is None
    assert seat.queue.ack([first]) == [""]
    second = seat.take()
    assert seat.queue.take("2") is second
    assert seat.queue.nack(second) == ""
    assert (second.is_gone, seat.queue.in_flight) == (True, 0)
    rig.settle()
    rig.wait(1)
    assert seat.take().attempt == 2


def test_what_was_not_written_to_the_client_gets_its_attempt_back(rig: Rig) -> None:
    for is_written, attempt in ((False, 1), (True, 1), (False, 2)):
        seat = _Seat(rig)
        if not is_written and attempt == 1:
            _publish(rig, "1")
        event = seat.take()
        assert event.attempt == attempt
        if is_written:
            event.line()
        seat.queue.leave(is_clean=True)
        rig.settle()
        assert event.is_gone


def test_a_client_that_is_lost_alone_with_an_event_counts_as_an_attempt(rig: Rig) -> None:
    seat = _Seat(rig)
    _publish(rig, "1")
    seat.take().line()
    seat.queue.leave(is_clean=False)
    rig.settle()
    seat = _Seat(rig)
    assert seat.events == []  # it backs off first
    rig.wait(1)
    assert seat.take().attempt == 2
    (cursor,) = rig.subscription("t", "line.bob").cursors
    assert cursor.trial(1).counted == 1


def test_a_lease_is_renewed_in_good_time(rig: Rig) -> None:
    seat = _Seat(rig)
    _publish(rig, "1")
    event = seat.take()
    for second in range(100):
        seat.queue.renew(float(second))
        rig.wait(1)
    assert seat.events == []
    assert seat.queue.ack([event]) == [""]
    assert rig.counts("t", "line.bob").leased == 1  # decided, not yet durable
    rig.settle()
    assert rig.counts("t", "line.bob").acked == 1


def test_an_event_whose_lease_ran_out_comes_again_and_only_the_newest_counts(rig: Rig) -> None:
    seat = _Seat(rig)
    _publish(rig, "1")
    first = seat.take()
    rig.wait(31)
    second = seat.take()
    assert first.is_gone
    assert seat.queue.find("1") is second
    assert seat.queue.ack([first]) == ["it was handed out again"]
    assert seat.queue.ack([second]) == [""]


def test_a_seek_takes_what_is_in_flight_away(rig: Rig) -> None:
    seat = _Seat(rig)
    _publish(rig, "1")
    event = seat.take()
    rig.broker.seek("t", "line.bob", "latest")
    rig.settle()
    assert (event.is_gone, seat.queue.in_flight) == (True, 0)
    assert seat.queue.ack([event]) == ["the subscription was moved by a seek"]


def test_no_more_batches_are_kept_open_than_allowed(rig: Rig) -> None:
    views = Views()
    for _ in range(2 * VIEWS_MAX):
        rig.publish("t", b"x")
    frames = [frame for _, frame in rig.broker.held("t")]
    opened = [views.of(frame) for frame in frames]
    assert views.of(frames[-1]) is opened[-1]
    assert len(views._known) == VIEWS_MAX
    rig.publish("large", *[b"x" * 300_000] * 4)
    ((_, large),) = rig.broker.held("large")
    assert views.of(large).count == 4
    assert len(views._known) == VIEWS_MAX
