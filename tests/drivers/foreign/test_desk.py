"""The desk decides what our own broker would, without a broker and without a clock."""

from typing import Any

import pytest

from penstock.batch import Batch
from penstock.drivers.foreign.carrier import Traits
from penstock.drivers.foreign.desk import Desk, Work
from penstock.drivers.foreign.envelope import Letter
from penstock.vocabulary.claims import Claim, Renewal
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause

ALL = Traits()
NOTHING = Traits(has_leases=False, has_release=False, counts_attempts=False)
LEASED = Traits(is_release_leased=True)
WALL = 1_700_000_000_000


def letter(number: int, **fields: Any) -> Letter:
    body = fields.pop("body", b"%d" % number)
    return Letter(body=body, id=str(number), offset=number, position=f"0:{number}", **fields)


def desk(
    traits: Traits = ALL, *, credit: int = 10, credit_bytes: int = 1 << 20,
    subscription: str | None = "billing", topic: str = "orders", **policy: Any,
) -> Desk:  # fmt: skip
    made = SubscriptionPolicy(**policy)
    return Desk(topic, subscription, "worker", made, credit, credit_bytes, traits)


def deliver(made: Desk, count: int, now: float = 0.0, **fields: Any) -> Work:
    return made.arrived([letter(number, **fields) for number in range(count)], now, WALL)


def claim(lease_id: int, low: int, high: int, mask: int = 0) -> Claim:
    return Claim(lease_id, 0, 1, ((low, high),), mask)


def bodies(work: Work) -> list[bytes | None]:
    return [body for part in work.slices for f in part.frames for body in Batch(f.batch).bodies]


# -- credit --------------------------------------------------------------------------------------


def test_credit_falls_with_what_is_out_and_comes_back_with_acks() -> None:
    made = desk(credit=5)
    assert made.room()[0] == 5
    work = deliver(made, 5)
    assert made.room() == (0, 0)
    [part] = work.slices
    assert (part.start, part.end, part.attempt) == (0, 5, 1)
    done = made.ack([claim(part.lease_id, 0, 5, 0b10101)])
    assert [each.offset for each in done.settle] == [0, 2, 4]
    assert made.room()[0] == 3


def test_bytes_become_messages_of_the_size_seen_lately() -> None:
    made = desk(credit=1000, credit_bytes=10_000)
    assert made.room()[0] == 9  # while nothing was seen a message counts as 1 KiB
    deliver(made, 2, body=bytes(4_000))
    assert made.room() == (1, 2_000)
    deliver(made, 1, body=bytes(9_000))
    assert made.room() == (0, 0)


def test_one_message_larger_than_all_credit_is_taken() -> None:
    assert desk(credit_bytes=1).room() == (1, 1)


# -- what arrives --------------------------------------------------------------------------------


def test_slices_are_of_one_attempt_and_carry_the_words_of_the_broker() -> None:
    made = desk()
    letters = [letter(5), letter(6, attempt=2), letter(7, attempt=2), letter(8)]
    work = made.arrived(letters, 0.0, WALL)
    assert [(s.attempt, s.start, s.end) for s in work.slices] == [(1, 0, 1), (2, 1, 3), (1, 3, 4)]
    assert [s.frames[0].marks for s in work.slices][1] == [(6, "0:6"), (7, "0:7")]
    assert not work.has_orders()


def test_what_is_expired_or_meant_for_others_is_finished_and_not_delivered() -> None:
    made = desk()
    letters = [
        letter(0, expires_at=WALL - 1), letter(1, target="stock"), letter(2, target="billing"),
        letter(3, expires_at=WALL + 1000),
    ]  # fmt: skip
    work = made.arrived(letters, 0.0, WALL)
    assert bodies(work) == [b"2", b"3"]
    assert [each.offset for each in work.settle] == [0, 1]
    assert (made.expired, made.skipped) == (1, 1)


def test_what_is_not_due_goes_back_until_then_uncounted() -> None:
    work = desk().arrived([letter(0, deliver_at=WALL + 2_000)], 0.0, WALL)
    assert not work.slices
    [release] = work.release
    assert (release.delay_s, release.is_unstarted) == (2.0, True)


def test_a_broker_that_keeps_nothing_back_leaves_that_to_the_desk() -> None:
    made = desk(NOTHING)
    assert not made.arrived([letter(0, deliver_at=WALL + 2_000)], 0.0, WALL).has_orders()
    assert made.next_due() == 2.0
    assert not made.tick(1.9, WALL + 1_900).slices
    [part] = made.tick(2.0, WALL + 2_000).slices
    assert part.attempt == 1


def test_what_was_delivered_too_often_is_a_dead_letter_on_arrival() -> None:
    made = desk(retry=Retry(max_attempts=3))
    work = made.arrived([letter(0, attempt=3), letter(1, attempt=4)], 0.0, WALL)
    assert bodies(work) == [b"0"]
    [dead] = work.bury
    assert dead.headers["penstock-dead-why"] == "max_attempts"
    assert dead.headers["penstock-dead-offset"] == "1"


# -- decisions -----------------------------------------------------------------------------------


def test_a_nack_backs_off_and_grows() -> None:
    made = desk(retry=Retry(first_s=1, max_s=5, max_attempts=None))
    delays = []
    for attempt in range(1, 6):
        work = made.arrived([letter(0, attempt=attempt)], 0.0, WALL)
        [part] = work.slices
        nacked = claim(part.lease_id, part.start, part.end)
        back = made.give_back(nacked, Cause.NACKED, None, "", 0.0, WALL)
        delays.append(back.release[0].delay_s)
    for delay, full in zip(delays, (1, 2, 4, 5, 5), strict=True):
        assert full * 0.75 <= delay <= full
    [part] = made.arrived([letter(0)], 0.0, WALL).slices
    nacked = claim(part.lease_id, part.start, part.end)
    assert made.give_back(nacked, Cause.NACKED, 7.5, "", 0.0, WALL).release[0].delay_s == 7.5


def test_the_last_nack_and_a_reject_are_dead_letters_with_their_story() -> None:
    made = desk(retry=Retry(max_attempts=2))
    [part] = made.arrived([letter(0, attempt=2, headers={"a": "b"})], 0.0, WALL).slices
    work = made.give_back(claim(part.lease_id, 0, 1), Cause.NACKED, None, "broken", 0.0, WALL)
    [dead] = work.bury
    assert dead.headers == {
        "a": "b", "penstock-dead-why": "max_attempts", "penstock-dead-reason": "broken",
        "penstock-dead-topic": "orders", "penstock-dead-subscription": "billing",
        "penstock-dead-partition": "0", "penstock-dead-offset": "0",
        "penstock-dead-consumer": "worker", "penstock-dead-attempts": "2",
        "penstock-dead-at": str(WALL),
    }  # fmt: skip
    assert (dead.attempts, dead.id) == (2, "0")
    [part] = made.arrived([letter(1, expires_at=WALL + 9)], 0.0, WALL).slices
    work = made.give_back(claim(part.lease_id, 1, 2), Cause.REJECTED, 0.0, "bad", 0.0, WALL)
    assert work.bury[0].headers["penstock-dead-why"] == "rejected"
    assert work.bury[0].expires_at == 0


def test_an_ephemeral_subscription_and_a_dead_letter_topic_have_no_dead_letters() -> None:
    made = desk(subscription=None)
    [part] = deliver(made, 1).slices
    work = made.give_back(claim(part.lease_id, 0, 1), Cause.REJECTED, 0.0, "bad", 0.0, WALL)
    assert (len(work.settle), work.bury, made.dropped) == (1, [], 1)
    made = desk(topic="orders.dead.billing", subscription="care", retry=Retry(max_attempts=1))
    [part] = made.arrived([letter(0, attempt=9)], 0.0, WALL).slices
    work = made.give_back(claim(part.lease_id, 0, 1), Cause.REJECTED, None, "bad", 0.0, WALL)
    assert work.bury == []
    assert len(work.release) == 1


def test_a_second_decision_on_a_message_changes_nothing() -> None:
    made = desk()
    [part] = deliver(made, 2).slices
    assert len(made.ack([claim(part.lease_id, 0, 1)]).settle) == 1
    again = made.ack([claim(part.lease_id, 0, 2)])
    assert ([each.offset for each in again.settle], again.refusals) == ([1], [])
    [refusal] = made.ack([claim(part.lease_id, 0, 1)]).refusals
    assert "long ago" in refusal.why


def test_a_unit_asks_what_is_meant_before_it_finishes() -> None:
    made = desk()
    [part] = deliver(made, 3).slices
    letters, refusals = made.meant([claim(part.lease_id, 0, 2)])
    assert ([each.offset for each in letters], refusals) == ([0, 1], [])
    made.ack([claim(part.lease_id, 0, 1)])
    letters, refusals = made.meant([claim(part.lease_id, 0, 2), claim(99, 0, 1)])
    assert ([each.offset for each in letters], len(refusals)) == ([1], 2)


# -- leases --------------------------------------------------------------------------------------


def test_renewing_is_told_to_the_broker_a_few_times_in_a_lease() -> None:
    made = desk(lease_s=30)
    [part] = deliver(made, 2).slices
    renewal = [Renewal(part.lease_id, 0, None)]
    said = [len(made.extend(renewal, 33, now).renew) for now in range(3, 31, 3)]
    assert said == [0, 0, 0, 2, 0, 0, 0, 2, 0, 0]  # each time a third of the lease has passed


def test_a_long_extension_is_kept_up_by_ticks() -> None:
    made = desk(lease_s=10)
    [part] = deliver(made, 1).slices
    made.extend([Renewal(part.lease_id, 0, 1)], 60, 0.0)
    renewed = sum(len(made.tick(float(now), WALL).renew) for now in range(1, 60))
    assert 12 <= renewed <= 20
    assert made.room()[0] == 9
    made.tick(60.0, WALL)
    assert made.room()[0] == 10


def test_a_lapsed_delivery_returns_its_credit_and_a_late_ack_is_for_the_broker_to_judge() -> None:
    made = desk(credit=1, lease_s=10)
    [part] = deliver(made, 1).slices
    assert not made.tick(10.0, WALL).slices
    assert made.room()[0] == 1
    late = made.ack([claim(part.lease_id, 0, 1)])
    assert (len(late.settle), late.refusals) == (1, [])
    assert made.room()[0] == 1
    [part] = deliver(made, 1, 20.0).slices
    made.tick(200.0, WALL)
    assert made.ack([claim(part.lease_id, 1, 2)]).refusals, "it is forgotten in the end"


def test_without_leases_at_the_broker_the_same_consumer_gets_it_again() -> None:
    made = desk(NOTHING, lease_s=10, retry=Retry(max_attempts=2))
    [part] = deliver(made, 2).slices
    made.ack([claim(part.lease_id, 0, 1)])
    [again] = made.tick(10.0, WALL).slices
    assert (again.attempt, bodies(Work(slices=[again]))) == (2, [b"1"])
    [refusal] = made.ack([claim(part.lease_id, 1, 2)]).refusals
    assert "handed out again" in refusal.why
    [dead] = made.tick(20.0, WALL).bury
    assert dead.headers["penstock-dead-reason"] == "lease expired"


def test_a_nack_longer_than_the_broker_can_is_kept_here_and_renewed() -> None:
    made = desk(LEASED, lease_s=10)
    [part] = deliver(made, 1).slices
    work = made.give_back(claim(part.lease_id, 0, 1), Cause.NACKED, 35.0, "", 0.0, WALL)
    assert not work.has_orders()
    renewed, released = 0, []
    for now in range(1, 36):
        ticked = made.tick(float(now), WALL)
        renewed += len(ticked.renew)
        released += [(now, each.delay_s) for each in ticked.release]
    assert renewed >= 4
    assert released == [(25, 10.0)]


# -- the end -------------------------------------------------------------------------------------


def test_leaving_gives_back_what_was_not_begun_uncounted() -> None:
    made = desk(LEASED, lease_s=10)
    [part] = deliver(made, 4).slices
    made.ack([claim(part.lease_id, 0, 1)])
    made.give_back(claim(part.lease_id, 1, 2), Cause.NACKED, 25.0, "", 0.0, WALL)
    work = made.detach({part.lease_id: ((0, 3),)}, 5.0)
    found = [(each.letter.offset, each.delay_s, each.is_unstarted) for each in work.release]
    assert found == [(2, 0.0, False), (3, 0.0, True), (1, 10.0, False)]
    assert made.room()[0] == 10


def test_leaving_a_broker_without_release_says_nothing() -> None:
    made = desk(NOTHING)
    deliver(made, 2)
    assert not made.detach({}, 0.0).has_orders()


@pytest.mark.parametrize("cause", [Cause.NACKED, Cause.REJECTED])
def test_qos_0_settles_nothing(cause: Cause) -> None:
    made = desk(qos=0, credit=2)
    work = made.arrived([letter(0), letter(1), letter(2, expires_at=1)], 0.0, WALL)
    assert not work.has_orders()
    [part] = work.slices
    assert not made.give_back(claim(part.lease_id, 0, 1), cause, None, "", 0.0, WALL).has_orders()
    assert not made.ack([claim(part.lease_id, 1, 2)]).has_orders()
    assert made.room()[0] == 2
    assert not made.tick(1000.0, WALL).has_orders()
