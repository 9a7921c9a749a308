"""Defects that the model found, each in as few steps as it takes."""

from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.broker.mailbox import DIRECT, Pending
from penstock.delivery.counts import count
from penstock.vocabulary.errors import AckRefused
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import OnDuplicate, Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause
from penstock.vocabulary.units import UnitWish
from tests.broker.rig import NAMED, Rig, claim
from tests.model.driver import home_of
from tests.model.operations import run

HOUR_S = 3600


def submit(rig: Rig, *messages: Message, topic: str = "orders", partition: int = 0) -> Pending:
    """Publishes without committing."""
    place = (topic, partition)
    sequence = rig.sequences.get(place, 0)
    rig.sequences[place] = sequence + len(messages)
    pending = Pending()
    rig.broker.publish(
        topic, partition, encode_many(list(messages)), len(messages), NAMED, 0, sequence, DIRECT,
        pending,
    )  # fmt: skip
    return pending


def publish(rig: Rig, *messages: Message, **options: Any) -> None:
    pending = submit(rig, *messages, **options)
    rig.settle()
    pending.wait()


def test_a_seek_forgets_the_line_in_which_messages_stood() -> None:
    rig = Rig()
    wall_s = rig.clock.wall() / 1000
    worker = rig.attach(credit=1)
    publish(
        rig,
        Message(body=b"a", priority=1),
        Message(body=b"b"),
        Message(body=b"later", deliver_at=wall_s + 5),
    )
    rig.broker.seek("orders", "billing", "earliest")
    rig.settle()
    assert count(rig.subscription(), rig.clock.wall()).delayed == 1
    got: list[bytes | None] = []
    worker.slices = worker.slices[1:]
    for _ in range(6):
        got += worker.bodies
        for part in worker.take():
            if part.frames:
                rig.ack(worker, part)
        rig.wait(5)
    assert got == [b"a", b"b", b"later"]


def test_a_seek_to_the_end_leaves_nothing_in_line() -> None:
    rig = Rig()
    worker = rig.attach(credit=1)
    publish(rig, Message(body=b"a", priority=1), Message(body=b"b"), Message(body=b"c"))
    worker.take()
    rig.broker.seek("orders", "billing", "latest")
    publish(rig, Message(body=b"d"))
    assert [part.frames for part in worker.slices[:1]] == [[]]  # What it held is void.
    assert worker.bodies == [b"d"]
    assert rig.counts().dropped == 3


def test_what_has_expired_is_not_delivered_to_a_subscription_that_comes_later() -> None:
    rig = Rig()
    rig.broker.open_reader("orders", "tail", "run", "earliest")  # Holds it, whatever its time.
    rig.broker.create_subscription("orders", "first", SubscriptionPolicy(), "earliest")
    publish(rig, Message(body=b"old", expires_at=rig.clock.wall() / 1000 + 1), Message(body=b"ok"))
    rig.wait(2)
    worker = rig.attach("orders", "second")
    assert worker.bodies == [b"ok"]
    assert rig.counts("orders", "second").expired == 1


def test_what_has_expired_is_not_delivered_after_a_seek_back() -> None:
    rig = Rig()
    rig.broker.open_reader("orders", "tail", "run", "earliest")
    worker = rig.attach()
    publish(rig, Message(body=b"old", expires_at=rig.clock.wall() / 1000 + 1))
    rig.ack(worker, worker.take_one())
    rig.wait(2)
    rig.broker.seek("orders", "billing", "earliest")
    rig.settle()
    assert worker.bodies == []
    assert rig.counts().expired == 1


def test_of_what_comes_back_at_once_the_highest_priority_goes_first() -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 2, TopicPolicy())
    worker = rig.attach(credit=2)
    publish(rig, Message(body=b"low"), partition=0)
    publish(rig, Message(body=b"high", priority=5), partition=1)
    for part in worker.take():
        rig.give_back(worker, part, delay_s=1)
    rig.detach(worker)
    worker = rig.attach(credit=1)
    rig.wait(2)
    assert worker.bodies == [b"high"]


def test_a_publish_and_one_that_replaces_share_a_group() -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy(on_duplicate=OnDuplicate.REPLACE))
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), "earliest")
    publish(rig, Message(body=b"first"), Message(body=b"old", id="x"))
    submit(rig, Message(body=b"plain"))  # The index must know of this one first.
    submit(rig, Message(body=b"new", id="x"))
    rig.settle()
    (partition,) = rig.broker.state.names["orders"].partitions
    for offset in (0, 2, 3):
        frames, lost = rig.engine.read(partition, offset, offset + 1)
        assert lost == []
        assert [list(frame.offsets) for frame in frames] == [[offset]]


def test_nobody_makes_room_for_a_lone_message_that_another_has() -> None:
    rig = Rig()
    retry = Retry(first_s=10, max_s=10, max_attempts=None)
    policy = SubscriptionPolicy(lease_s=HOUR_S, retry=retry)
    rig.broker.create_subscription("orders", "billing", policy, "earliest")
    rig.publish("orders", b"lone")
    for _ in range(2):
        rig.wait(20)
        rig.detach(rig.attach(), is_clean=False)
    busy = rig.attach(credit=2)
    rig.publish("orders", b"busy")
    rig.wait(20)
    assert busy.bodies == [b"busy"]  # Lost twice, the other goes to somebody who holds nothing.
    idle = rig.attach(credit=1)
    assert idle.bodies == [b"lone"]
    rig.publish("orders", b"next")
    assert busy.bodies == [b"busy", b"next"]


def test_priority_counts_over_all_partitions_of_a_key_shared_subscription() -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 2, TopicPolicy())
    policy = SubscriptionPolicy(kind=Kind.KEY_SHARED)
    rig.broker.create_subscription("orders", "billing", policy, "earliest")
    publish(rig, Message(body=b"low", key="a"), Message(body=b"lower", priority=-1), partition=0)
    publish(rig, Message(body=b"high", key="b", priority=5), partition=1)
    worker = rig.attach(credit=1)
    got: list[bytes | None] = []
    for _ in range(3):
        got += worker.bodies
        rig.ack(worker, worker.take_one())
    assert got == [b"high", b"low", b"lower"]


def test_whoever_loses_a_message_to_its_age_is_handed_the_next() -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy(max_age_s=10))
    worker = rig.attach(credit=1, policy=SubscriptionPolicy(lease_s=HOUR_S))
    rig.publish("orders", b"old")
    rig.wait(6)
    rig.publish("orders", b"new")
    rig.wait(6)
    assert worker.bodies == [b"old", b"new"]
    assert rig.counts().dropped == 1


def test_a_message_replaced_within_its_batch_stays_replaced_when_the_next_one_replaces_too() -> (
    None
):
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy(on_duplicate=OnDuplicate.REPLACE))
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), "earliest")
    submit(rig, *(Message(body=body, id="x") for body in (b"1", b"2")), Message(body=b"between"))
    submit(rig, Message(body=b"3", id="x"))
    rig.settle()
    assert rig.attach().bodies == [b"between", b"3"]
    assert rig.counts().dropped == 2


def test_a_unit_that_acks_what_a_seek_made_void_is_refused() -> None:
    rig = Rig()
    worker = rig.attach(credit=2)
    publish(rig, Message(body=b"first", priority=1), Message(body=b"second", priority=1))
    part = worker.take_one()
    rig.detach(worker)
    rig.broker.seek("orders", "billing", "earliest")
    other = rig.attach(credit=1)  # The second message stands in line.
    wish = UnitWish(NAMED, 0, 0, [])
    acks = [(worker.consumer, [claim(part, (1, 2))])]
    with pytest.raises(AckRefused, match="moved by a seek"):
        rig.broker.commit_unit(wish, acks, DIRECT, Pending())
    assert rig.counts().waiting == 1
    rig.ack(other, other.take_one())
    assert other.bodies == [b"second"]


def test_a_topic_that_gets_an_age_limit_later_knows_how_old_its_backlog_is() -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy(replay_s=5))
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), "earliest")
    rig.publish("orders", b"old")
    rig.wait(100)
    rig.broker.alter_topic("orders", {"max_age_s": 40.0})
    rig.wait(2)
    assert rig.counts().dropped == 1


def test_a_longer_replay_window_takes_in_what_is_still_held() -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy(replay_s=5))
    worker = rig.attach()
    rig.publish("orders", b"held")
    rig.wait(10)
    rig.broker.alter_topic("orders", {"replay_s": 60.0})
    rig.ack(worker, worker.take_one())
    assert [frame for _, frame in rig.broker.held("orders", None, 0)]
    rig.wait(60)
    assert not [frame for _, frame in rig.broker.held("orders", None, 0)]


def test_what_a_reader_no_longer_needs_goes_at_once_when_it_is_over_its_age() -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy(max_age_s=10))
    rig.broker.open_reader("orders", "tables", "run", "earliest")
    rig.publish("orders", b"planned")
    rig.broker.plan_ranges("orders", "tables", "run", 1, None, None)
    rig.wait(60)
    assert [frame for _, frame in rig.broker.held("orders", None, 0)]
    rig.broker.commit_reader("orders", "tables", "run", {0: 1})
    rig.wait(0.001)
    assert not [frame for _, frame in rig.broker.held("orders", None, 0)]


@pytest.mark.parametrize("seed", [10771, 10918, 13969, 14804, 14836, 14870])
def test_seeds_that_found_a_defect_find_none_now(seed: int) -> None:
    run(seed, 100)


@pytest.mark.parametrize("ending", ["dead", "unit", "ack"])
def test_what_waits_behind_a_key_in_its_older_partition_goes_on(ending: str) -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy())
    policy = SubscriptionPolicy(kind=Kind.KEY_SHARED)
    rig.broker.create_subscription("orders", "billing", policy, "earliest")
    worker = rig.attach(policy=policy)
    key = next(key for key in "abcdef" if home_of(key, 2) == 1)
    publish(rig, Message(body=b"older", key=key))
    part = worker.take_one()
    rig.broker.alter_topic("orders", {}, 2)
    publish(rig, Message(body=b"newer", key=key), partition=1)
    assert worker.bodies == []
    if ending == "dead":
        rig.give_back(worker, part, cause=Cause.REJECTED)
        rig.keeper.move_doomed()
    elif ending == "unit":
        acks = [(worker.consumer, [claim(part)])]
        rig.broker.commit_unit(UnitWish(NAMED, 0, 0, []), acks, DIRECT, Pending())
    else:
        rig.ack(worker, part)
    rig.settle()
    assert worker.bodies == [b"newer"]


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(10_457, id="a dead letter frees its key in a partition that was added"),
        pytest.param(11_176, id="a late ack of a message in back-off frees its key"),
        pytest.param(14_558, id="nobody waits for a message without a key that was removed"),
    ],
)
def test_a_history_that_once_stood_still_goes_on(seed: int) -> None:
    run(seed, 100)
