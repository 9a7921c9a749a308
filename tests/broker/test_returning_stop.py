"""Consumers that return to a real broker after it stopped."""

from typing import Any

import pytest

from penstock.vocabulary.claims import Held
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause
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
from tests.broker.rig import Rig, claim


@pytest.fixture
def rig() -> Rig:
    return Rig(reattach_s=REATTACH_S)


# -- the stop of the broker ----------------------------------------------------------------------


def test_after_a_stop_a_consumer_goes_on_with_what_it_holds(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach()
    part = worker.take_one()
    fresh = rig.crash()
    counts(fresh, leased=2, waiting=0)
    again = fresh.attach(returning=was(rig, worker, held(part)))
    assert kept_ranges(again) == [((0, 2),)]
    assert trial(fresh, 0) == (1, 0, 0, 2, 1)
    assert not again.slices
    fresh.publish("orders", b"c")
    assert again.bodies == [b"c"]
    assert not fresh.ack(again, moved(again, part))
    counts(fresh, acked=2, leased=1)


def test_nothing_is_handed_out_until_all_have_returned(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    one, two = rig.attach(credit=1, name="one"), rig.attach(credit=1, name="two")
    first, second = one.take_one(), two.take_one()
    fresh = rig.crash()
    fresh.publish("orders", b"c")
    fresh.publish("elsewhere", b"x")
    assert fresh.attach("elsewhere", "another").bodies == [b"x"]
    third = fresh.attach(name="three")
    one = fresh.attach(credit=2, name="one", returning=was(rig, one, held(first)))
    assert not third.slices
    assert not one.slices
    two = fresh.attach(credit=1, name="two", returning=was(rig, two, held(second)))
    assert kept_ranges(one) == [((0, 1),)]
    assert kept_ranges(two) == [((1, 2),)]
    assert third.bodies + one.bodies == [b"c"]
    counts(fresh, leased=3)


def test_it_is_over_when_the_time_is_over(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    one, two = rig.attach(credit=1, name="one"), rig.attach(credit=1, name="two")
    first, second = one.take_one(), two.take_one()
    fresh = rig.crash()
    assert fresh.broker.tick() <= REATTACH_S * 1000
    one = fresh.attach(credit=2, name="one", returning=was(rig, one, held(first)))
    fresh.wait(REATTACH_S - 0.1)
    assert not one.slices
    fresh.wait(0.1)
    counts(fresh, leased=1, delayed=1)  # what was out alone backs off
    fresh.wait(10)
    assert one.bodies == [b"b"]
    assert [each.attempt for each in one.slices] == [2]
    assert trial(fresh, 1)[:3] == (2, 1, 1)
    assert set(fresh.broker.state.attached) == {one.consumer.id}
    late = fresh.attach(name="two", returning=was(rig, two, held(second)))
    assert late.consumer.kept == []
    assert [each.why for each in fresh.ack(late, second)] == [
        "the broker was started again since, and it was not named on return"
    ]


def test_a_loss_in_company_does_not_count(rig: Rig) -> None:
    policy = SubscriptionPolicy(retry=Retry(max_attempts=1))
    rig.publish("orders", b"a", b"b")
    rig.attach(policy=policy)
    fresh = rig.crash()
    fresh.wait(REATTACH_S)
    assert trial(fresh, 0) == (1, 0, 1, 2, 0)
    counts(fresh, waiting=2)
    assert fresh.broker.state.attached == {}


def test_what_nobody_names_when_all_are_back_gets_its_attempt_back(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach()
    part = worker.take_one()
    fresh = rig.crash()
    again = fresh.attach(returning=was(rig, worker, held(part, (0, 1))))
    assert kept_ranges(again) == [((0, 1),)]
    assert again.bodies == [b"b"]
    assert again.slices[0].attempt == 1


def test_a_delivery_whose_record_was_lost_with_the_broker_is_known_by_its_name(rig: Rig) -> None:
    worker = rig.attach()
    rig.submit("orders", b"a", b"b")
    rig.engine.commit_once()
    part = worker.take_one()  # handed over; the record of it rides with a group that never comes
    fresh = rig.crash()
    assert trial(fresh, 0) == (0, 0, 0, 0, 0)
    counts(fresh, waiting=2)
    again = fresh.attach(returning=was(rig, worker, held(part, (1, 2))))
    assert kept_ranges(again) == [((1, 2),)]
    assert again.bodies == [b"a"]
    assert trial(fresh, 1) == (1, 0, 0, 1, 2)
    assert trial(fresh.crash(), 1) == (1, 0, 0, 1, 2)
    assert not fresh.ack(again, moved(again, part), (1, 2))
    counts(fresh, acked=1, leased=1)


def test_an_attempt_that_does_not_fit_is_not_kept(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    part = worker.take_one()
    rig.give_back(worker, part, delay_s=0)
    second = worker.take_one()
    fresh = rig.crash()
    again = fresh.attach(
        returning=was(rig, worker, held(part), held(second)._replace(attempt=3), held(second))
    )
    assert [each.old_lease_id for each in again.consumer.kept] == [second.lease_id]
    assert not fresh.ack(again, moved(again, second))


def test_what_came_back_before_the_stop_is_not_kept(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    part = worker.take_one()
    rig.give_back(worker, part, delay_s=60)
    fresh = rig.crash()
    again = fresh.attach(returning=was(rig, worker, held(part)))
    assert again.consumer.kept == []
    counts(fresh, delayed=1)


def test_two_consumers_cannot_both_keep_one_message(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    one, two = rig.attach(credit=1, name="one"), rig.attach(credit=1, name="two")
    first = one.take_one()
    fresh = rig.crash()
    one = fresh.attach(name="one", returning=was(rig, one, held(first), held(first)))
    two = fresh.attach(name="two", returning=was(rig, two, held(first)))
    assert kept_ranges(one) == [((0, 1),)]
    assert two.consumer.kept == []
    assert [each.why for each in fresh.ack(two, first)] == [
        "the broker was started again since, and it was not named on return"
    ]


@pytest.mark.parametrize("wrong", ["id", "name", "subscription", "generation"])
def test_after_a_stop_only_whom_the_log_knows_is_believed(rig: Rig, wrong: str) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    part = worker.take_one()
    returning = was(rig, worker, held(part))
    fresh = rig.crash()
    options: dict[str, Any] = {}
    if wrong == "id":
        returning = returning._replace(consumer_id=999)
    elif wrong == "name":
        options = {"name": "other"}
    elif wrong == "subscription":
        options = {"subscription": "audit"}
    else:
        returning = returning._replace(generation=fresh.broker.generation)
    thief = fresh.attach(returning=returning, **options)
    assert thief.consumer.kept == []
    again = fresh.attach(returning=was(rig, worker, held(part)))
    assert kept_ranges(again) == [((0, 1),)]


def test_messages_published_after_the_stop_cannot_be_named(rig: Rig) -> None:
    worker = rig.attach()
    fresh = rig.crash()
    other = fresh.attach(name="other")
    fresh.publish("orders", b"a")
    again = fresh.attach(returning=was(rig, worker, Held(1, 0, 1, ((0, 1),))))
    assert again.consumer.kept == []
    assert other.bodies + again.bodies == [b"a"]


def test_a_second_stop_while_it_waits_changes_nothing(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    one, two = rig.attach(credit=1, name="one"), rig.attach(credit=1, name="two")
    first, second = one.take_one(), two.take_one()
    fresh = rig.crash()
    back = fresh.attach(name="one", returning=was(rig, one, held(first)))
    first = moved(back, first)
    third = fresh.crash()
    one = third.attach(name="one", returning=was(fresh, back, held(first)))
    two = third.attach(name="two", returning=was(rig, two, held(second)))
    assert kept_ranges(one) == [((0, 1),)]
    assert kept_ranges(two) == [((1, 2),)]
    assert trial(third, 0) == (1, 0, 0, 1, 2)
    assert not third.ack(one, moved(one, first))
    assert not third.ack(two, moved(two, second))
    counts(third, acked=2)


def test_lease_ids_of_two_starts_are_never_the_same(rig: Rig) -> None:
    rig.publish("orders", b"a")
    first = rig.attach().take_one()
    fresh = rig.crash()
    fresh.wait(REATTACH_S + 10)
    second = fresh.attach(name="other").take_one()
    assert first.lease_id < second.lease_id
    assert second.lease_id >> 40 == fresh.broker.generation


def test_an_embedded_broker_does_not_wait(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach()
    part = worker.take_one()
    rig.reattach_s = 0
    fresh = rig.crash()
    again = fresh.attach(returning=was(rig, worker, held(part)))
    assert again.consumer.kept == []
    assert [each.attempt for each in again.slices] == [2]
    assert trial(fresh, 0) == (2, 0, 1, 2, 1)


def test_a_clean_stop_leaves_nobody_to_wait_for(rig: Rig) -> None:
    rig.publish("orders", b"a")
    rig.attach()
    fresh = rig.restart()
    assert not fresh.engine.awaiting
    assert fresh.attach().bodies == [b"a"]


def test_a_snapshot_keeps_who_is_waited_for(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach()
    part = worker.take_one()
    rig.keeper.snapshot()
    fresh = rig.crash()
    fresh.keeper.snapshot()
    third = fresh.crash()
    again = third.attach(returning=was(rig, worker, held(part)))
    assert kept_ranges(again) == [((0, 2),)]


def test_a_subscription_deleted_while_it_waits_is_gone(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    part = worker.take_one()
    fresh = rig.crash()
    fresh.broker.delete_subscription("orders", "billing")
    fresh.wait(REATTACH_S)
    assert not fresh.engine.awaiting
    again = fresh.attach(returning=was(rig, worker, held(part)))
    assert again.consumer.kept == []
    assert not fresh.restart().engine.awaiting


def test_a_topic_deleted_while_it_waits_is_gone(rig: Rig) -> None:
    rig.publish("orders", b"a")
    rig.attach()
    fresh = rig.crash()
    fresh.broker.delete_topic("orders")
    fresh.wait(REATTACH_S)
    assert not fresh.engine.awaiting
    assert not fresh.crash().engine.awaiting


def test_a_seek_while_it_waits_voids_what_was_out(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    part = worker.take_one()
    fresh = rig.crash()
    fresh.broker.seek("orders", "billing", "earliest")
    counts(fresh, waiting=1, leased=0)
    again = fresh.attach(returning=was(rig, worker, held(part)))
    assert again.consumer.kept == []
    assert again.bodies == [b"a"]


@pytest.mark.parametrize("is_in_snapshot", [True, False])
def test_a_seek_before_the_stop_voids_what_was_out(rig: Rig, is_in_snapshot: bool) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    part = worker.take_one()
    rig.detach(rig.attach(name="other"))
    rig.clock.advance(60)
    rig.broker.seek("orders", "billing", "earliest")
    worker.take()
    if is_in_snapshot:
        rig.keeper.snapshot()
    fresh = rig.crash()
    again = fresh.attach(returning=was(rig, worker, held(part)))
    assert again.consumer.kept == []
    assert again.bodies == [b"a"]
    assert [each.why for each in fresh.ack(again, part)] == ["the subscription was moved by a seek"]


def test_after_a_stop_an_ephemeral_subscription_starts_afresh(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach(subscription=None, start="earliest")
    part = worker.take_one()
    fresh = rig.crash()
    again = fresh.attach(subscription=None, returning=was(rig, worker, held(part)))
    assert again.consumer.kept == []
    fresh.publish("orders", b"b")
    assert again.bodies == [b"b"]


def test_after_a_stop_a_named_member_of_a_multicast_returns(rig: Rig) -> None:
    policy = SubscriptionPolicy(kind=Kind.MULTICAST)
    options: dict[str, Any] = {"subscription": "news", "policy": policy, "is_named": True}
    one, two = rig.attach(**options, name="one"), rig.attach(**options, name="two")
    rig.publish("orders", b"a")
    first = one.take_one()
    fresh = rig.crash()
    fresh.publish("orders", b"b")
    again = fresh.attach(**options, name="one", returning=was(rig, one, held(first)))
    assert kept_ranges(again) == [((0, 1),)]
    assert again.bodies == [b"b"]  # its own member has nobody else to wait for
    assert two.bodies == [b"a"]
    assert not fresh.ack(again, moved(again, first))


def test_after_a_stop_at_qos_0_only_credit_is_taken(rig: Rig) -> None:
    rig.publish("orders", b"a", b"b")
    worker = rig.attach(policy=ONCE)
    part = worker.take_one()
    fresh = rig.crash()
    again = fresh.attach(
        policy=ONCE, returning=was(rig, worker, held(part)._replace(ranges=((0, 9),)))
    )
    assert kept_ranges(again) == [((0, 2),)]
    assert again.consumer.outstanding == 2
    fresh.ack(again, moved(again, part))
    assert again.consumer.outstanding == 0
    counts(fresh, acked=2)


def test_claims_of_units_follow_the_new_lease(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach(policy=EXACT)
    part = worker.take_one()
    fresh = rig.crash()
    again = fresh.attach(policy=EXACT, returning=was(rig, worker, held(part)))
    assert not fresh.ack(again, moved(again, part))
    assert not fresh.ack(again, moved(again, part))  # the token that acked
    assert fresh.broker.ack(again.consumer, [claim(part)._replace(attempt=2)])


def test_a_reject_after_the_return_is_final(rig: Rig) -> None:
    rig.publish("orders", b"a")
    worker = rig.attach()
    part = worker.take_one()
    fresh = rig.crash()
    again = fresh.attach(returning=was(rig, worker, held(part)))
    assert not fresh.give_back(again, moved(again, part), cause=Cause.REJECTED)
    fresh.keeper.move_doomed()
    fresh.settle()
    counts(fresh, dead=1)
