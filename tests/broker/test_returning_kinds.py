"""Consumers of keys and of patterns that return, and what `explain` says meanwhile."""

from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.batch.frame import Slice
from penstock.broker.broker import Sink
from penstock.broker.explaining import explain_topic
from penstock.broker.following import Seat, Wanted
from penstock.broker.mailbox import DIRECT, Pending
from penstock.delivery.state import Consumer
from penstock.vocabulary.claims import Returning
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import SubscriptionPolicy
from tests.broker.return_rig import KEYED, REATTACH_S, counts, held, kept_ranges, moved, was
from tests.broker.rig import NAMED, Rig, Worker

PATTERN = "sensors/+"


@pytest.fixture
def rig() -> Rig:
    return Rig(reattach_s=REATTACH_S)


def publish(rig: Rig, *keys: str, is_settled: bool = True) -> None:
    """Messages whose bodies are their keys and numbers."""
    place = ("orders", 0, NAMED, 0)
    sequence = rig.sequences.get(place, 0)
    rig.sequences[place] = sequence + len(keys)
    messages = [Message(body=f"{key}{sequence + n}", key=key) for n, key in enumerate(keys)]
    batch, pending = encode_many(messages), Pending()
    rig.broker.publish("orders", 0, batch, len(keys), NAMED, 0, sequence, DIRECT, pending)
    if is_settled:
        rig.settle()
        pending.wait()


def unfinished(rig: Rig) -> int:
    found = rig.counts()
    return found.attached - found.acked


def keys_of(worker: Worker) -> set[str]:
    return {bytes(body or b"").decode()[0] for body in worker.bodies}


MANY = "abcdefghijklmnop"


# -- keys ----------------------------------------------------------------------------------------


def test_the_keys_of_what_it_holds_stay_with_a_consumer_that_is_away(rig: Rig) -> None:
    one, two = rig.attach(policy=KEYED, name="one"), rig.attach(policy=KEYED, name="two")
    publish(rig, *MANY)
    mine, parts = keys_of(one), one.take()
    assert mine
    two.take()
    rig.broker.lose(one.consumer)
    publish(rig, *MANY)
    assert keys_of(two) == set(MANY) - mine  # the others go on
    again = rig.attach(policy=KEYED, name="one", returning=was(rig, one, *map(held, parts)))
    assert keys_of(again) == mine
    assert sum(high - low for each in kept_ranges(again) for low, high in each) == len(mine)
    assert not any(two.revoked + again.revoked)


def test_keys_of_which_it_holds_nothing_go_on_with_others(rig: Rig) -> None:
    one, two = rig.attach(policy=KEYED, name="one"), rig.attach(policy=KEYED, name="two")
    rig.broker.lose(one.consumer)
    publish(rig, *MANY)
    assert keys_of(two) == set(MANY)
    again = rig.attach(policy=KEYED, name="one", returning=was(rig, one))
    assert not again.slices
    for part in two.take():
        rig.ack(two, part)
    publish(rig, *MANY)
    assert keys_of(again)
    assert keys_of(again) | keys_of(two) == set(MANY)


def test_the_only_consumer_of_keys_returns(rig: Rig) -> None:
    worker = rig.attach(policy=KEYED)
    publish(rig, "a", "a", "b")
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    publish(rig, "a", "c")
    again = rig.attach(policy=KEYED, returning=was(rig, worker, held(part)))
    assert again.bodies == [b"a3", b"c4"]
    assert not rig.ack(again, moved(again, part))
    publish(rig, "a")
    assert again.bodies[-1] == b"a5"
    counts(rig, acked=3, leased=3)


def test_a_key_is_kept_only_up_to_the_first_message_that_never_arrived(rig: Rig) -> None:
    worker = rig.attach(policy=KEYED)
    publish(rig, "a", "b", "a", "a", "b")
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    named = held(part, (0, 2), (3, 5))  # not the second of key a
    again = rig.attach(policy=KEYED, returning=was(rig, worker, named))
    assert kept_ranges(again) == [((0, 2), (4, 5))]
    assert again.bodies == [b"a2", b"a3"]
    assert {each.attempt for each in again.slices} == {1}
    assert not again.revoked
    counts(rig, leased=5)


def test_one_that_does_not_return_gives_its_keys_to_others(rig: Rig) -> None:
    one, two = rig.attach(policy=KEYED, name="one"), rig.attach(policy=KEYED, name="two")
    publish(rig, *MANY)
    mine = keys_of(one)
    two.take()
    rig.broker.lose(one.consumer)
    rig.wait(REATTACH_S)
    assert keys_of(two) == mine
    assert {each.attempt for each in two.slices} == {2}


def test_after_a_stop_keys_stay_with_whoever_holds_them(rig: Rig) -> None:
    one, two = rig.attach(policy=KEYED, name="one"), rig.attach(policy=KEYED, name="two")
    publish(rig, *MANY)
    mine, parts, others = keys_of(one), one.take(), two.take()
    fresh = rig.crash()
    publish(fresh, *MANY)
    two = fresh.attach(policy=KEYED, name="two", returning=was(rig, two, *map(held, others)))
    assert not two.slices
    one = fresh.attach(policy=KEYED, name="one", returning=was(rig, one, *map(held, parts)))
    for part in parts:
        assert not fresh.ack(one, moved(one, part), *held(part).ranges)
    for part in others:
        assert not fresh.ack(two, moved(two, part), *held(part).ranges)
    assert keys_of(one) | keys_of(two) == set(MANY)
    assert not keys_of(one) & keys_of(two)
    assert mine & keys_of(one)
    counts(fresh, acked=16, leased=16)


def test_after_a_stop_a_key_waits_for_what_is_out_of_it(rig: Rig) -> None:
    one, two = rig.attach(policy=KEYED, name="one"), rig.attach(policy=KEYED, name="two")
    publish(rig, *MANY)
    mine, parts = keys_of(one), one.take()
    fresh = rig.crash()
    publish(fresh, *MANY)
    again = fresh.attach(policy=KEYED, name="one", returning=was(rig, one, *map(held, parts)))
    third = fresh.attach(policy=KEYED, name="three")
    fresh.wait(REATTACH_S)  # the second does not return
    assert {key for key in keys_of(third) if key in mine} == set()
    assert keys_of(again) | keys_of(third) >= set(MANY) - mine
    for worker in (again, third):
        numbers = [int((body or b"")[1:]) for body in worker.bodies]
        assert sorted(numbers) == numbers  # in the order of each key, and here of all
    for part in parts:
        assert not fresh.ack(again, moved(again, part), *held(part).ranges)
    assert mine <= keys_of(again) | keys_of(third)
    assert unfinished(fresh) == len(set(MANY) - mine) + len(MANY)
    assert two.closed == []


def test_after_a_stop_what_nobody_names_revokes_what_follows_of_its_key(rig: Rig) -> None:
    worker = rig.attach(policy=KEYED)
    publish(rig, "a", "b", "a")
    part = worker.take_one()
    fresh = rig.crash()
    again = fresh.attach(policy=KEYED, returning=was(rig, worker, held(part, (1, 3))))
    assert kept_ranges(again) == [((1, 2),)]
    assert again.bodies == [b"a0", b"a2"]
    assert [each.attempt for each in again.slices] == [1]
    counts(fresh, leased=3)


# -- patterns ------------------------------------------------------------------------------------


class Legs:
    """A consumer of a pattern."""

    def __init__(
        self, rig: Rig, name: str | None, returning: dict[str, Returning] | None = None
    ) -> None:
        self.workers: dict[str, Worker] = {}
        wanted = Wanted(PATTERN, name, None, None, 1000, 1 << 26, "worker", returning)
        self.follower = rig.broker.follow(wanted, self._seat, DIRECT, lambda _: None)
        rig.settle()

    def _seat(self, topic: str) -> Seat:
        worker = self.workers[topic] = Worker()

        def joined(consumer: Consumer) -> None:
            worker.consumer = consumer

        return Seat(Sink(DIRECT, worker.receive, worker.closed.append), joined)

    def lose(self, rig: Rig) -> None:
        self.follower.leave()
        for worker in self.workers.values():
            rig.broker.lose(worker.consumer)

    def names(self, rig: Rig) -> dict[str, Returning]:
        return {
            topic: was(rig, worker, *map(held, worker.take()))
            for topic, worker in self.workers.items()
        }


@pytest.mark.parametrize("name", ["app", None])
def test_each_topic_of_a_pattern_returns(rig: Rig, name: str | None) -> None:
    rig.publish("sensors/1", b"before")
    rig.publish("sensors/2", b"before")
    legs = Legs(rig, name)
    rig.publish("sensors/1", b"a")
    rig.publish("sensors/2", b"b")
    parts: dict[str, list[Slice]] = {t: list(w.slices) for t, w in legs.workers.items()}
    legs.lose(rig)
    rig.publish("sensors/1", b"c")
    rig.publish("sensors/3", b"d")
    again = Legs(rig, name, legs.names(rig))
    assert {topic: worker.bodies for topic, worker in again.workers.items()} == {
        "sensors/1": [b"c"],
        "sensors/2": [],
        "sensors/3": [b"d"],
    }
    for topic, worker in again.workers.items():
        assert len(worker.consumer.kept) == len(parts.get(topic, []))
        for part in parts.get(topic, []):
            assert not rig.ack(worker, moved(worker, part))


def test_after_a_stop_each_topic_of_a_pattern_returns(rig: Rig) -> None:
    rig.publish("sensors/1", b"a")
    legs = Legs(rig, "app")
    names = legs.names(rig)
    fresh = rig.crash()
    fresh.publish("sensors/2", b"b")
    again = Legs(fresh, "app", names)
    assert kept_ranges(again.workers["sensors/1"]) == [((0, 1),)]
    assert again.workers["sensors/2"].bodies == [b"b"]


# -- explain -------------------------------------------------------------------------------------


def why(rig: Rig, **which: Any) -> dict[str, Any]:
    return explain_topic(rig.broker, "orders", "billing", **which)


def row(rig: Rig) -> dict[str, Any]:
    return rig.broker.subscriptions("orders")[0]


def test_explain_says_that_a_message_waits_for_its_consumer(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach(credit=1)
    rig.broker.lose(worker.consumer)
    rig.wait(1)
    until = rig.clock.wall() / 1000 + REATTACH_S - 1
    found = why(rig, position="0:0")
    assert (found["reason"], found["consumer"]) == ("consumer-away", "worker")
    assert found["until"] == until
    assert "'worker'" in found["text"]
    assert found["attempt"] == 1
    found = why(rig, position="0:1")
    assert (found["reason"], found["consumers"], found["until"]) == (
        "consumer-away", ["worker"], until,
    )  # fmt: skip
    found = why(rig, consumer="worker")
    assert (found["reason"], found["state"]) == ("consumer-away", "away")
    assert (row(rig)["consumers"], row(rig)["returning"]) == ([], ["worker"])
    assert row(rig)["returning_until"] == until
    other = rig.attach(credit=1)
    assert other.bodies == [b"b"]
    assert why(rig, position="0:1")["reason"] == "leased"
    assert why(rig, consumer="worker")["reason"] == "no-credit"


def test_explain_says_that_a_subscription_waits_for_its_consumers(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b", b"c")
    rig.attach(credit=1, name="one")
    two = rig.attach(credit=1, name="two")
    rig.give_back(two, two.take_one(), delay_s=60)
    two.take()
    fresh = rig.crash()
    until = fresh.clock.wall() / 1000 + REATTACH_S
    found = why(fresh, position="0:0")
    assert (found["reason"], found["consumers"]) == ("awaiting-return", ["one", "two"])
    assert found["until"] == until
    assert "it was out when it stopped" in found["text"]
    assert why(fresh, position="0:1")["reason"] == "backing-off"
    fresh.publish("orders", b"d")
    assert "may have been out" in why(fresh, position="0:3")["text"]
    assert why(fresh)["reason"] == "awaiting-return"
    assert row(fresh)["returning"] == ["one", "two"]
    assert row(fresh)["returning_until"] == until
    one = fresh.attach(name="new")
    found = why(fresh, consumer="new")
    assert found["reason"] == "awaiting-return"
    assert "'one', 'two'" in found["text"]
    fresh.wait(REATTACH_S)
    assert one.slices
    assert "returning" not in row(fresh)


def test_explain_says_so_for_keys_too(rig: Rig) -> None:
    worker = rig.attach(policy=KEYED)
    publish(rig, "a")
    rig.broker.lose(worker.consumer)
    other = rig.attach(policy=KEYED, name="other")
    publish(rig, "a")
    assert why(rig, position="0:0")["reason"] == "consumer-away"
    found = why(rig, position="0:1")
    assert (found["reason"], found["consumer"]) == ("key-held", "worker")
    assert found["until"] == rig.clock.wall() / 1000 + REATTACH_S
    assert not other.slices


def test_a_policy_may_be_named_on_return(rig: Rig) -> None:
    policy = SubscriptionPolicy(lease_s=2)
    rig.publish("orders", b"a")
    worker = rig.attach(policy=policy)
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    again = rig.attach(policy=policy, returning=was(rig, worker, held(part)))
    assert kept_ranges(again) == [((0, 1),)]
