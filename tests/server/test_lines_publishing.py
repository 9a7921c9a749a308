import pytest

from penstock.broker.mailbox import DIRECT
from penstock.server import lines_publishing
from penstock.server.lines_publishing import LinePublisher, Load, Run
from penstock.vocabulary.errors import StaleMap
from penstock.vocabulary.policy import TopicPolicy
from penstock.wire.line_event import Event
from tests.broker.rig import Rig


def _publish(rig: Rig, publisher: LinePublisher, topic: str, *ids: str) -> list[bytes]:
    run = Run()
    run.lines = [f"ok {id}".encode() for id in ids]
    load = Load(list(range(len(ids))), [Event(id, 0, b"1") for id in ids])
    publisher.publish(run, topic, load)
    rig.settle()
    assert run.is_done
    return run.lines


def test_events_are_stored_under_one_publisher_with_rising_numbers() -> None:
    rig = Rig()
    publisher = LinePublisher(rig.broker, DIRECT)
    assert _publish(rig, publisher, "t", "a", "b") == [b"ok a", b"ok b"]
    _publish(rig, publisher, "t", "c")
    frames = [frame for _, frame in rig.broker.held("t")]
    assert [frame.sequence for frame in frames] == [0, 2]
    assert len({frame.publisher for frame in frames}) == 1
    assert not frames[0].publisher[0] & 1  # a generated id: its state is given up some day
    assert publisher.published == 3


def test_nothing_is_said_before_it_is_durable() -> None:
    rig = Rig()
    publisher = LinePublisher(rig.broker, DIRECT)
    run = Run()
    run.lines = [b"ok a"]
    done: list[int] = []
    run.on_done = lambda: done.append(rig.syncs())
    before = rig.syncs()
    publisher.publish(run, "t", Load([0], [Event("a", 0, b"1")]))
    assert not run.is_done
    assert not done
    rig.settle()
    assert done == [before + 1]


def test_the_id_chooses_the_partition_and_a_grown_topic_is_met_with_its_new_map() -> None:
    rig = Rig()
    publisher = LinePublisher(rig.broker, DIRECT)
    rig.broker.create_topic("t", 4, TopicPolicy())
    ids = [str(n) for n in range(40)]
    _publish(rig, publisher, "t", *ids)
    places = _places(rig)
    assert len(set(places.values())) == 4
    rig.broker.alter_topic("t", {}, 8)
    assert all(line.startswith(b"ok") for line in _publish(rig, publisher, "t", "x", *"yz"))


def _places(rig: Rig) -> dict[int, int]:
    return {
        hash((partition, offset)): partition
        for partition, frame in rig.broker.held("t")
        for offset in frame.offsets
    }


def test_a_topic_that_was_made_again_begins_a_new_epoch() -> None:
    rig = Rig()
    publisher = LinePublisher(rig.broker, DIRECT)
    _publish(rig, publisher, "t", "a")
    rig.broker.delete_topic("t")
    assert _publish(rig, publisher, "t", "b") == [b"ok b"]
    assert _publish(rig, publisher, "t", "c") == [b"ok c"]
    assert [frame.epoch for _, frame in rig.broker.held("t")] == [1, 1]


def test_numbers_are_never_used_twice_when_very_many_topics_are_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines_publishing, "ROUTES_MAX", 2)
    rig = Rig()
    publisher = LinePublisher(rig.broker, DIRECT)
    for topic in "abcabc":
        assert _publish(rig, publisher, topic, "1") == [b"ok 1"]
    assert sorted(rig.broker.describe_topic(topic)["published"] for topic in "abc") == [2, 2, 2]


def test_what_is_refused_becomes_the_reply_of_each_event_it_concerns() -> None:
    rig = Rig()
    publisher = LinePublisher(rig.broker, DIRECT)
    assert _publish(rig, publisher, "a b", "1") == [
        b"error: topic name 'a b' contains a space or control character [invalid-name]\r\n"
    ]
    rig.publish("t", b"x")
    rig.broker.drain()
    for topic in ("t", "new"):
        (first, second) = _publish(rig, publisher, topic, "1", "2")
        assert first == second
        assert first.endswith(b"[draining]\r\n")
    assert publisher.published == 0


def test_an_answer_that_the_topic_grew_is_tried_again_and_given_up_at_last() -> None:
    class Growing:
        """Refuses as a broker does whose topic grows between two looks at it."""

        def __init__(self, rig: Rig, times: int) -> None:
            self.engine, self.state = rig.broker.engine, rig.broker.state
            self.partitions = rig.broker.partitions
            self.rig, self.times = rig, times

        def publish(self, *arguments: object) -> None:
            if self.times:
                self.times -= 1
                raise StaleMap("the topic has other partitions now", partitions=1)
            self.rig.broker.publish(*arguments)  # type: ignore[arg-type]

    for times, expected in ((3, b"ok a"), (100, b"error: ")):
        rig = Rig()
        rig.publish("t", b"x")
        publisher = LinePublisher(Growing(rig, times), DIRECT)  # type: ignore[arg-type]
        (line,) = _publish(rig, publisher, "t", "a")
        assert line.startswith(expected)
