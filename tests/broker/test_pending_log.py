from typing import Any

import pytest

from penstock.broker import pending_log
from penstock.broker.asking import answer_request
from penstock.broker.pending_log import topic_log
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import InvalidArgument, UnknownTopic
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from tests.broker.rig import Rig


def _publish(rig: Rig, topic: str, *messages: Any, partition: int = 0) -> None:
    rig.publish(topic, *messages, partition=partition)


def _event(id: str, priority: int, body: bytes = b'"x"') -> Message:
    return Message(id=id, priority=priority, body=body)


def _ids(log: pending_log.Log) -> dict[str, list[str]]:
    return {name: [row["id"] for row in rows] for name, rows in log.items()}


def test_the_log_has_the_shape_and_the_order_of_a_priority_queue() -> None:
    rig = Rig()
    rig.broker.create_subscription("t", "line.bob", SubscriptionPolicy(), "earliest")
    _publish(rig, "t", _event("042", 4), _event("1", 5, b"text"), _event("04c", 5, b"\xff"))
    log = answer_request(rig.broker, q.TopicLog("t"))
    wall = rig.clock.wall()
    assert log == {
        "line.bob": [
            {"timestamp": wall, "priority": 5, "msg": "text", "id": "1"},
            {"timestamp": wall, "priority": 5, "msg": {"$base64": "/w=="}, "id": "04c"},
            {"timestamp": wall, "priority": 4, "msg": "x", "id": "042"},
        ]
    }
    assert list(log["line.bob"][0]) == ["timestamp", "priority", "msg", "id"]


def test_every_kind_with_a_queue_is_there_each_with_its_own_events() -> None:
    rig = Rig()
    rig.broker.create_subscription("t", "keys", SubscriptionPolicy(kind=Kind.KEY_SHARED), None)
    multicast = SubscriptionPolicy(kind=Kind.MULTICAST)
    rig.broker.attach(
        "t", "all", multicast, None, 1, 1 << 20, "screen", rig.attach("x").consumer.sink,
        is_named=True,
    )  # fmt: skip
    rig.settle()
    worker = rig.attach("t", "shared", credit=1)
    _publish(rig, "t", _event("a", 0), _event("b", 0), _event("c", 0))
    rig.ack(worker, worker.take_one())
    assert _ids(topic_log(rig.broker, "t", 10)) == {
        "all@screen": ["a", "b", "c"],
        "keys": ["a", "b", "c"],
        "shared": ["b", "c"],
    }


def test_what_backs_off_and_what_is_out_is_still_pending() -> None:
    rig = Rig()
    worker = rig.attach("t", "s", credit=1)
    _publish(rig, "t", _event("a", 0), _event("b", 0))
    rig.give_back(worker, worker.take_one(), delay_s=60)
    assert _ids(topic_log(rig.broker, "t", 10)) == {"s": ["a", "b"]}


def test_a_limit_holds_for_each_subscriber_and_partitions_are_merged() -> None:
    rig = Rig()
    rig.broker.create_topic("t", 2, TopicPolicy())
    rig.broker.create_subscription("t", "s", SubscriptionPolicy(), "earliest")
    _publish(rig, "t", _event("a", 1), _event("b", 3))
    _publish(rig, "t", _event("c", 2), _event("d", 9), partition=1)
    assert _ids(topic_log(rig.broker, "t", 3)) == {"s": ["d", "b", "c"]}


def test_it_reads_no_more_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_log, "OUT_BYTES_MAX", 100)
    monkeypatch.setattr(pending_log, "STEP", 2)
    rig = Rig()
    rig.broker.create_subscription("t", "s", SubscriptionPolicy(), "earliest")
    _publish(rig, "t", *[_event(str(n), 0, b"x" * 60) for n in range(9)])
    assert _ids(topic_log(rig.broker, "t", 9)) == {"s": ["0", "1"]}


def test_many_events_are_read_in_runs_and_all_are_there() -> None:
    rig = Rig()
    rig.broker.create_subscription("t", "s", SubscriptionPolicy(), "earliest")
    for start in range(0, 600, 20):
        _publish(rig, "t", *[_event(str(n), n % 3) for n in range(start, start + 20)])
    expected = sorted(range(600), key=lambda n: (-(n % 3), n))
    assert _ids(topic_log(rig.broker, "t", 1000)) == {"s": [str(n) for n in expected]}


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_limit_out_of_range_is_refused(limit: int) -> None:
    rig = Rig()
    rig.publish("t", b"x")
    with pytest.raises(InvalidArgument, match="limit must be"):
        topic_log(rig.broker, "t", limit)


def test_an_unknown_topic_is_named() -> None:
    with pytest.raises(UnknownTopic):
        topic_log(Rig().broker, "nothing", 10)
