"""Consumers that return on a real broker after the loss of their connection."""

from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.returning import NOWHERE, reattach_ms
from penstock.journal.memory import MemoryDisk
from penstock.vocabulary.claims import Held
from penstock.vocabulary.errors import Closed, InvalidArgument, TopicInUse
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from tests.broker.return_rig import (
    EXACT,
    ONCE,
    REATTACH_S,
    counts,
    held,
    kept_ranges,
    moved,
    trial,
    was,
)
from tests.broker.rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig(reattach_s=REATTACH_S)


# -- the loss of a connection --------------------------------------------------------------------


def test_a_consumer_that_returns_goes_on_with_what_it_holds(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach()
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    rig.wait(REATTACH_S - 0.1)
    counts(rig, leased=2, waiting=0)
    again = rig.attach(returning=was(rig, worker, held(part)))
    assert kept_ranges(again) == [((0, 2),)]
    assert not again.slices
    assert trial(rig, 0) == (1, 0, 0, 2, 1)
    assert not rig.ack(again, moved(again, part))
    counts(rig, acked=2, leased=0)
    rig.wait(REATTACH_S)
    assert not again.closed
    assert rig.broker.stats()["consumers"] == 1
    counts(rig, acked=2)


def test_what_it_does_not_name_never_reached_it_and_comes_at_once(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b", b"c")
    worker = rig.attach()
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    again = rig.attach(returning=was(rig, worker, held(part, (0, 1))))
    assert kept_ranges(again) == [((0, 1),)]
    assert again.bodies == [b"b", b"c"]
    assert again.slices[0].attempt == 1
    assert trial(rig, 0) == (1, 0, 0, 3, 1)
    counts(rig, leased=3)


def test_meanwhile_only_what_it_had_waits(rig: Rig) -> None:
    worker = rig.attach(credit=2)
    rig.publish("orders", b"a", b"b")
    worker.take_one()
    other = rig.attach(name="other")
    rig.broker.lose(worker.consumer)
    rig.publish("orders", b"c", b"d")
    assert other.bodies == [b"c", b"d"]
    counts(rig, leased=4)


def test_one_that_stays_away_is_given_up_as_if_it_had_died(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach()
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    other = rig.attach(name="other")
    rig.wait(REATTACH_S - 0.1)
    assert not other.slices
    rig.wait(0.1)
    assert [each.attempt for each in other.take()] == [2]
    assert trial(rig, 0) == (2, 0, 1, 2, 1)
    assert set(rig.broker.state.attached) == {other.consumer.id}
    late = rig.attach(returning=was(rig, worker, held(part)))
    assert late.consumer.kept == []
    assert rig.ack(late, part)  # it was handed out again


def test_a_loss_alone_counts_when_it_does_not_return(rig: Rig) -> None:
    policy = SubscriptionPolicy(retry=Retry(max_attempts=1, first_s=1))
    rig.publish("orders", b"a")
    worker = rig.attach(policy=policy)
    rig.broker.lose(worker.consumer)
    rig.wait(REATTACH_S)
    rig.keeper.move_doomed()
    rig.settle()
    counts(rig, dead=1)


def test_leases_stand_still_while_a_consumer_is_away(rig: Rig) -> None:
    policy = SubscriptionPolicy(lease_s=1)
    rig.publish("orders", b"a")
    worker = rig.attach(policy=policy)
    part = worker.take_one()
    other = rig.attach(name="other")
    rig.broker.lose(worker.consumer)
    rig.wait(REATTACH_S - 1)
    again = rig.attach(returning=was(rig, worker, held(part)))
    assert kept_ranges(again) == [((0, 1),)]
    rig.wait(0.9)
    assert not other.slices
    rig.broker.extend(again.consumer, [(moved(again, part).lease_id, 0, None)], None)
    rig.wait(0.9)
    assert not other.slices
    rig.wait(0.2)
    assert len(other.slices) + len(again.slices) == 1
    assert trial(rig, 0)[:2] == (2, 1)


def test_a_nack_after_the_return_is_a_nack(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    again = rig.attach(returning=was(rig, worker, held(part)))
    assert not rig.give_back(again, moved(again, part), delay_s=1)
    counts(rig, delayed=1)
    rig.wait(1)
    assert [each.attempt for each in again.slices] == [2]


def test_acks_sent_before_the_loss_may_be_sent_again(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach(policy=EXACT)
    part = worker.take_one()
    rig.ack(worker, part, (0, 1))
    rig.broker.lose(worker.consumer)
    again = rig.attach(policy=EXACT, returning=was(rig, worker, held(part)))
    assert kept_ranges(again) == [((1, 2),)]
    assert not rig.ack(again, moved(again, part), (0, 1))
    assert not rig.ack(again, part, (0, 1))
    assert not rig.ack(again, moved(again, part), (1, 2))
    counts(rig, acked=2)


def test_a_second_connection_takes_over_from_one_that_is_only_half_dead(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach()
    part = worker.take_one()
    again = rig.attach(returning=was(rig, worker, held(part)))
    assert isinstance(worker.closed[0], Closed)
    assert kept_ranges(again) == [((0, 2),)]
    assert [each.why for each in rig.ack(worker, part)] == ["it is not leased to you"] * 2
    rig.broker.lose(worker.consumer)
    rig.detach(worker, is_clean=False)
    rig.wait(REATTACH_S)
    counts(rig, leased=2)
    assert not rig.ack(again, moved(again, part))
    assert set(rig.broker.state.attached) == {again.consumer.id}


def test_it_may_be_lost_and_return_again_and_again(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    part = worker.take_one()
    for _ in range(5):
        rig.broker.lose(worker.consumer)
        rig.broker.lose(worker.consumer)
        rig.wait(REATTACH_S - 0.1)
        again = rig.attach(returning=was(rig, worker, held(part)))
        worker, part = again, moved(again, part)
    assert trial(rig, 0) == (1, 0, 0, 1, 1)
    assert not rig.ack(worker, part)


@pytest.mark.parametrize("wrong", ["id", "name", "subscription", "generation", "future"])
def test_nobody_takes_what_another_holds(rig: Rig, wrong: str) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    part = worker.take_one()
    returning = was(rig, worker, held(part))
    options: dict[str, Any] = {}
    if wrong == "id":
        returning = returning._replace(consumer_id=999)
    elif wrong == "name":
        options = {"name": "other"}
    elif wrong == "subscription":
        options = {"subscription": "audit"}
    else:
        change = -1 if wrong == "generation" else 1
        returning = returning._replace(generation=returning.generation + change)
    thief = rig.attach(returning=returning, **options)
    assert thief.consumer.kept == []
    assert not worker.closed
    if wrong != "subscription":
        assert not thief.slices
    assert not rig.ack(worker, part)


@pytest.mark.parametrize(
    "claimed",
    [
        Held(1, 0, 1, ((0, 1),)),
        Held(0, 0, 1, ((5, 900),)),
        Held(0, 0, 2, ((0, 1),)),
        Held(0, 7, 1, ((0, 1),)),
        Held(0, -1, 1, ((0, 1),)),
        Held(0, 0, 1, ()),
        Held(0, 0, 1, ((-3, -1), (4, 2))),
        Held(0, 0, 1, ((0, 1 << 62),)),
    ],
)
def test_ranges_it_never_had_are_not_kept(rig: Rig, claimed: Held) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach(credit=1)
    part = worker.take_one()
    if not claimed.lease_id:
        claimed = claimed._replace(lease_id=part.lease_id)
    rig.broker.lose(worker.consumer)
    again = rig.attach(returning=was(rig, worker, claimed), credit=1)
    assert again.consumer.kept == []
    assert again.bodies == [b"a"]
    counts(rig, leased=1, waiting=1)


def test_what_another_consumer_holds_stays_with_it(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach(credit=1)
    other = rig.attach(credit=1, name="other")
    part, foreign = worker.take_one(), other.take_one()
    rig.broker.lose(worker.consumer)
    again = rig.attach(returning=was(rig, worker, held(part), held(foreign)), credit=1)
    assert kept_ranges(again) == [((0, 1),)]
    assert not rig.ack(other, foreign)
    assert rig.ack(again, foreign, (1, 2)) == []  # acked already
    counts(rig, acked=1, leased=1)


def test_a_seek_meanwhile_voids_what_it_held(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    rig.broker.seek("orders", "billing", "earliest")
    again = rig.attach(returning=was(rig, worker, held(part)))
    assert again.consumer.kept == []
    assert again.bodies == [b"a"]


def test_slices_on_their_way_to_it_count_as_not_arrived(rig: Rig) -> None:
    worker = rig.attach()
    rig.submit("orders", b"a")
    rig.broker.lose(worker.consumer)
    rig.settle()
    again = rig.attach(returning=was(rig, worker))
    assert again.bodies == [b"a"]
    assert again.slices[0].attempt == 1


def test_a_consumer_lost_before_it_was_durable_returns_too(rig: Rig) -> None:
    worker = rig.attach(is_settled=False)
    rig.broker.lose(worker.consumer)
    rig.settle()
    rig.publish("orders", b"a")
    assert not worker.slices
    again = rig.attach(returning=was(rig, worker))
    assert again.bodies == [b"a"]
    assert set(rig.broker.state.attached) == {again.consumer.id}


def test_without_time_to_return_a_loss_is_a_loss() -> None:
    rig = Rig()
    rig.publish("orders", b"a", b"b")
    worker = rig.attach()
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    again = rig.attach(returning=was(rig, worker, held(part)))
    assert again.consumer.kept == []
    assert [each.attempt for each in again.slices] == [2]


def test_a_wrong_time_to_return_is_refused() -> None:
    assert reattach_ms(0.25) == 250
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(InvalidArgument, match="reattach_s"):
            Broker.open(MemoryDisk(), reattach_s=wrong)


def test_nobody_listens_where_no_connection_is() -> None:
    NOWHERE.mailbox.post([(NOWHERE.on_slice, 1), (NOWHERE.on_closed, 2), (NOWHERE.on_revoked, 3)])


def test_a_clean_stop_leaves_what_is_away_to_the_next_start(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach()
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    fresh = rig.restart()
    again = fresh.attach(returning=was(rig, worker, held(part)))
    assert kept_ranges(again) == [((0, 2),)]
    assert not again.slices
    assert not fresh.ack(again, moved(again, part))


def test_what_is_away_does_not_hold_up_a_deletion(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    with pytest.raises(TopicInUse):
        rig.broker.delete_topic("orders")
    rig.broker.lose(worker.consumer)
    rig.broker.delete_topic("orders")
    again = rig.attach(returning=was(rig, worker))
    assert not again.consumer.kept
    rig.wait(REATTACH_S)
    rig.publish("orders", b"b")
    assert again.bodies == [b"b"]


# -- every kind ----------------------------------------------------------------------------------


def test_an_ephemeral_subscription_outlives_its_connection_for_a_time(rig: Rig) -> None:
    rig.publish("orders", b"before")
    worker = rig.attach(subscription=None, start="earliest")
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    rig.publish("orders", b"meanwhile")
    again = rig.attach(subscription=None, returning=was(rig, worker, held(part)), start="0:77")
    assert kept_ranges(again) == [((0, 1),)]
    assert again.bodies == [b"meanwhile"]
    assert again.consumer.subscription is worker.consumer.subscription
    rig.broker.lose(again.consumer)
    rig.wait(REATTACH_S)
    assert not rig.broker.state.subscriptions
    fresh = rig.attach(subscription=None, returning=was(rig, again))
    assert not fresh.slices


def test_an_ephemeral_subscription_is_not_taken_from_another_topic(rig: Rig) -> None:
    worker = rig.attach(subscription=None)
    rig.broker.lose(worker.consumer)
    other = rig.attach("bills", None, returning=was(rig, worker))
    named = rig.attach(subscription="billing", returning=was(rig, worker))
    assert other.consumer.subscription is not worker.consumer.subscription
    assert named.consumer.subscription is not worker.consumer.subscription


@pytest.mark.parametrize("is_named", [True, False])
def test_a_member_of_a_multicast_returns(rig: Rig, is_named: bool) -> None:
    policy = SubscriptionPolicy(kind=Kind.MULTICAST)
    options: dict[str, Any] = {"subscription": "news", "policy": policy, "is_named": is_named}
    worker, other = rig.attach(**options), rig.attach(**options, name="other")
    rig.publish("orders", b"a")
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    rig.publish("orders", b"b")
    again = rig.attach(**options, returning=was(rig, worker, held(part)))
    assert kept_ranges(again) == [((0, 1),)]
    assert again.bodies == [b"b"]
    assert other.bodies == [b"a", b"b"]
    assert again.consumer.subscription is worker.consumer.subscription
    assert not rig.ack(again, moved(again, part))


def test_at_qos_0_what_it_was_sent_and_names_is_still_its_own(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b", b"c")
    worker = rig.attach(policy=ONCE, credit=3)
    part = worker.take_one()
    rig.broker.lose(worker.consumer)
    rig.publish("orders", b"d")
    again = rig.attach(policy=ONCE, credit=3, returning=was(rig, worker, held(part, (0, 2))))
    assert kept_ranges(again) == [((0, 2),)]
    assert again.bodies == [b"d"]
    counts(rig, acked=3, dropped=1, leased=0, waiting=0)
    assert again.consumer.outstanding == 3
    rig.ack(again, moved(again, part), (0, 2))
    assert again.consumer.outstanding == 1


def test_at_qos_0_nothing_is_finished_for_a_consumer_that_is_away(rig: Rig) -> None:
    worker = rig.attach(policy=ONCE)
    rig.submit("orders", b"a")
    rig.engine.commit_once()  # it is decided who gets it, and not yet read
    rig.broker.lose(worker.consumer)
    rig.settle()
    again = rig.attach(policy=ONCE, returning=was(rig, worker))
    assert again.bodies == [b"a"]
    counts(rig, acked=1, dropped=0)


def test_an_isolated_message_stays_alone_with_its_consumer(rig: Rig) -> None:
    rig.publish("orders", b"a")
    for _ in range(2):
        worker = rig.attach()
        rig.broker.lose(worker.consumer)
        rig.wait(REATTACH_S)
        rig.wait(60)
    worker = rig.attach()
    part = worker.take_one()
    assert worker.consumer.is_isolated
    rig.publish("orders", b"b")
    rig.broker.lose(worker.consumer)
    again = rig.attach(returning=was(rig, worker, held(part)))
    assert again.consumer.is_isolated
    assert not again.slices
    rig.ack(again, moved(again, part))
    assert again.bodies == [b"b"]


def test_stats_count_who_is_waited_for(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    rig.attach(name="other")
    rig.broker.lose(worker.consumer)
    found = rig.broker.stats()
    assert (found["consumers"], found["consumers_away"], found["subscriptions_waiting"]) == (
        1,
        1,
        0,
    )
    fresh = rig.crash()
    found = fresh.broker.stats()
    assert (found["consumers"], found["consumers_away"], found["subscriptions_waiting"]) == (
        0,
        2,
        1,
    )
