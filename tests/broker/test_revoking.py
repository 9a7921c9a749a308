"""Consumers of kind `key_shared` hear what was taken from them, in order with their slices."""

from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.batch.frame import Slice
from penstock.broker.broker import Sink
from penstock.broker.mailbox import DIRECT, Pending
from penstock.vocabulary.claims import Revoked
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Cause
from tests.broker.rig import NAMED, Rig, Worker, bodies_of, claim

POLICY = SubscriptionPolicy(kind=Kind.KEY_SHARED)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def publish(rig: Rig, *keys: str) -> None:
    sequence = rig.sequences.get("keyed", 0)
    rig.sequences["keyed"] = sequence + len(keys)
    messages = [Message(body=f"{key}{sequence + n}", key=key) for n, key in enumerate(keys)]
    batch, pending = encode_many(messages), Pending()
    rig.broker.publish("orders", 0, batch, len(keys), NAMED, 0, sequence, DIRECT, pending)
    rig.settle()
    pending.wait()


def attach(rig: Rig, news: list[Any], subscription: str | None = "billing") -> Worker:
    worker = Worker()

    def receive(part: Slice) -> None:
        worker.receive(part)
        news.append(part)

    sink = Sink(DIRECT, receive, worker.closed.append, news.append)
    worker.consumer = rig.broker.attach(
        "orders", subscription, POLICY, None, 1000, 1 << 26, "w", sink
    )
    rig.settle()
    return worker


@pytest.mark.parametrize("subscription", ["billing", None])
def test_a_nack_is_answered_before_anything_comes_again(rig: Rig, subscription: str | None) -> None:
    news: list[Any] = []
    worker = attach(rig, news, subscription)
    publish(rig, "a", "b", "a", "a")
    part = worker.take_one()
    rig.give_back(worker, part, (0, 1), delay_s=0)
    assert news[0] is part
    assert news[1] == Revoked(claim(part, (0, 1)), ((part.lease_id, ((2, 4),)),))
    again = news[2:]
    assert [body for each in again for body in bodies_of(each)] == [b"a0", b"a2", b"a3"]


def test_a_nack_that_is_refused_or_takes_nothing_is_answered_too(rig: Rig) -> None:
    news: list[Any] = []
    worker = attach(rig, news)
    publish(rig, "a", "b")
    part = worker.take_one()
    rig.give_back(worker, part, (1, 2), delay_s=9)
    assert news[-1] == Revoked(claim(part, (1, 2)), ())
    rig.give_back(worker, part, (0, 1), delay_s=0)
    news.clear()
    assert rig.give_back(worker, part, (0, 1)), "it was handed out again"
    assert news == [Revoked(claim(part, (0, 1)), ())]


def test_a_reject_takes_nothing_and_is_not_answered(rig: Rig) -> None:
    news: list[Any] = []
    worker = attach(rig, news)
    publish(rig, "a", "a")
    rig.give_back(worker, worker.take_one(), (0, 1), cause=Cause.REJECTED)
    assert not [each for each in news if isinstance(each, Revoked)]


def test_leases_that_ran_out_are_told_with_what_followed(rig: Rig) -> None:
    news: list[Any] = []
    worker = attach(rig, news)
    publish(rig, "a", "b")
    (first,) = worker.take()
    rig.wait(20)
    publish(rig, "a")
    (second,) = worker.take()
    news.clear()
    rig.wait(15)
    told = news[0]
    assert told == Revoked(None, ((first.lease_id, ((0, 2),)), (second.lease_id, ((2, 3),))))
    bodies = [body for part in worker.take() for body in bodies_of(part)]
    assert bodies == [b"a0", b"b1", b"a2"]


def test_a_consumer_that_does_not_listen_is_left_alone(rig: Rig) -> None:
    worker = rig.attach(policy=POLICY)
    publish(rig, "a", "a")
    part = worker.take_one()
    rig.give_back(worker, part, (0, 1), delay_s=0)
    assert worker.bodies == [b"a0", b"a1"]


def test_what_is_taken_back_while_the_disk_is_read_is_not_handed_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    news: list[Any] = []
    worker = attach(rig, news)
    publish(rig, "a", "b")
    part = worker.take_one()
    read = rig.engine.read
    worker.consumer.pending_reads += 1  # as when an earlier slice is still being read
    publish_and_nack = iter([True])

    def slow_read(*arguments: Any) -> Any:
        found = read(*arguments)
        if next(publish_and_nack, False):
            rig.broker.give_back(worker.consumer, claim(part, (0, 1)), Cause.NACKED, 9.0, "")
        return found

    monkeypatch.setattr(rig.engine, "read", slow_read)
    publish(rig, "a", "b", "a")
    worker.consumer.pending_reads -= 1
    rig.settle()
    assert worker.bodies == [b"b3"]


def test_an_ephemeral_consumer_loses_nothing_when_the_disk_is_read(rig: Rig) -> None:
    rig.attach(name="keeper")  # so that the messages are still there
    worker = attach(rig, [], None)
    publish(rig, "a", "b", "a")
    part = worker.take_one()
    rig.journal._cache.clear()
    rig.give_back(worker, part, (0, 1), (2, 3), delay_s=0)
    assert worker.bodies == [b"a0", b"a2"]
    (cursor,) = worker.consumer.subscription.cursors
    assert (cursor.dropped, cursor.leased) == (0, 3), "what lies between was not meant"
