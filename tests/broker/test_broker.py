"""The broker as a driver sees it: publish, attach, settle, time, stop and start."""

import pytest

from penstock.broker.broker import Broker
from penstock.broker.mailbox import DIRECT, Pending
from penstock.journal.memory import MemoryDisk
from penstock.journal.settings import JournalSettings
from penstock.vocabulary import limits
from penstock.vocabulary.errors import (
    Closed,
    DiskFull,
    Draining,
    InvalidArgument,
    InvalidName,
    PositionNotHeld,
    PublisherFenced,
    PublisherForgotten,
    SubscriptionConflict,
    UnknownTopic,
)
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause
from penstock.vocabulary.stored import Stored
from tests.broker.rig import GENERATED, SETTINGS, ManualClock, Rig, Worker, bodies_of, claim

WEEK_S = 7 * 24 * 3600


@pytest.fixture
def rig() -> Rig:
    return Rig()


# -- publish -----------------------------------------------------------------------------------


def test_a_publish_makes_its_topic_and_tells_where_it_was_stored(rig: Rig) -> None:
    assert rig.publish() == Stored(0, Durability.SYNCED, is_duplicate=False)
    assert rig.publish("orders", b"b", b"c").base == 1
    assert rig.broker.describe_topic("orders")["published"] == 3


def test_a_receipt_never_promises_more_than_the_url_can_give() -> None:
    rig = Rig(durability=Durability.MEMORY)
    assert rig.publish().durability is Durability.MEMORY


def test_a_retry_is_a_duplicate_at_the_same_place(rig: Rig) -> None:
    rig.attach()
    rig.publish("orders", b"a")
    again = rig.publish("orders", b"a", sequence=0)
    assert (again.base, again.is_duplicate) == (0, True)
    assert rig.held() == [b"a"]


def test_a_retry_after_a_crash_is_a_duplicate(rig: Rig) -> None:
    rig.attach()
    rig.publish("orders", b"a")
    again = rig.crash()
    assert again.publish("orders", b"a", sequence=0).is_duplicate
    assert again.held() == [b"a"]


def test_a_second_publish_of_what_is_in_flight_gets_the_outcome_of_the_first(rig: Rig) -> None:
    rig.attach()
    first = rig.submit("orders", b"a", sequence=0)
    second = rig.submit("orders", b"a", sequence=0)
    rig.settle()
    assert (first.wait().is_duplicate, second.wait().is_duplicate) == (False, True)
    assert second.wait().base == 0
    assert rig.held() == [b"a"]


def test_a_partial_overlap_stores_the_tail_and_says_which_part(rig: Rig) -> None:
    rig.attach()
    rig.publish("orders", b"a", b"b")
    stored = rig.publish("orders", b"b", b"c", b"d", sequence=1)
    assert (stored.base, stored.kept, stored.is_duplicate) == (2, (1, 2), False)
    assert rig.held() == [b"a", b"b", b"c", b"d"]


def test_a_newer_epoch_fences_the_older(rig: Rig) -> None:
    rig.publish(epoch=1)
    with pytest.raises(PublisherFenced):
        rig.submit(epoch=0)


def test_a_publisher_goes_on_after_a_crash_in_its_second_epoch(rig: Rig) -> None:
    for _ in range(5):
        rig.publish(epoch=0)
    rig.publish(epoch=1)
    again = rig.crash()
    assert not again.publish(epoch=1).is_duplicate


def test_a_generated_publisher_idle_for_a_week_is_refused_after_the_next_snapshot(
    rig: Rig,
) -> None:
    rig.publish(publisher=GENERATED)
    rig.wait(WEEK_S + 1)
    rig.keeper.snapshot()
    with pytest.raises(PublisherForgotten):
        rig.submit(publisher=GENERATED)


def test_users_cannot_publish_to_dead_letters(rig: Rig) -> None:
    with pytest.raises(InvalidName, match="only the broker"):
        rig.submit("orders.dead.billing")


def test_a_wrong_topic_name_is_refused_at_once(rig: Rig) -> None:
    with pytest.raises(InvalidName):
        rig.submit("or ders")
    with pytest.raises(InvalidName):
        rig.broker.partitions("or ders")


def test_asking_for_partitions_makes_the_topic(rig: Rig) -> None:
    rig.broker.create_topic("wide", 3, TopicPolicy())
    assert rig.broker.partitions("wide") == 3
    assert rig.broker.partitions("fresh") == 1
    rig.settle()
    assert rig.broker.describe_topic("fresh")["partitions"] == 1


def test_below_the_reserve_publishes_are_refused_and_acks_and_reads_go_on() -> None:
    disk = MemoryDisk(record=True)
    settings = JournalSettings(
        segment_bytes_min=4096, segment_bytes_max=4096, reserve_bytes=1000, is_zeroing=False
    )
    rig = Rig(disk, settings=settings)
    worker = rig.attach()
    rig.publish("orders", b"a", b"b")
    disk.free = 999
    rig.wait(2)
    with pytest.raises(DiskFull, match="acks and reads go on"):
        rig.submit()
    assert rig.broker.health()["status"] == "degraded"
    assert rig.ack(worker, worker.take_one()) == []
    assert rig.counts().acked == 2
    disk.free = 1000
    rig.wait(2)
    assert rig.publish().base == 2


# -- attach and deliver ------------------------------------------------------------------------


def test_a_consumer_gets_nothing_before_its_attachment_is_durable(rig: Rig) -> None:
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    rig.publish()
    worker = rig.attach(is_settled=False)
    assert worker.slices == []
    rig.settle()
    assert len(worker.slices) == 1


def test_attaching_makes_topic_and_subscription(rig: Rig) -> None:
    rig.attach("fresh", "sub")
    (found,) = rig.broker.subscriptions()
    assert (found["topic"], found["subscription"], found["consumers"]) == (
        "fresh", "sub", ["worker"],
    )  # fmt: skip


def test_a_slice_says_lease_place_and_attempt_and_brings_the_messages(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"a", b"b")
    part = worker.take_one()
    assert (part.partition, part.start, part.end, part.attempt) == (0, 0, 2, 1)
    assert bodies_of(part) == [b"a", b"b"]


def test_credit_holds_back_and_acks_let_go_on(rig: Rig) -> None:
    worker = rig.attach(credit=2)
    rig.publish("orders", b"a", b"b", b"c")
    first = worker.take_one()
    assert bodies_of(first) == [b"a", b"b"]
    rig.ack(worker, first, (0, 1))
    assert bodies_of(worker.take_one()) == [b"c"]


def test_a_slow_consumer_never_slows_another(rig: Rig) -> None:
    slow, quick = rig.attach(credit=1), rig.attach(credit=10)
    for _ in range(6):
        rig.publish()
        for part in quick.take():
            rig.ack(quick, part)
    assert len(slow.slices) == 1
    assert rig.counts().acked == 5


@pytest.mark.parametrize("credit", [0, -1, limits.CREDIT_MAX + 1])
def test_credit_out_of_range_is_refused(rig: Rig, credit: int) -> None:
    with pytest.raises(InvalidArgument, match="credit"):
        rig.attach(credit=credit)


def test_a_wrong_name_of_a_consumer_or_subscription_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidName):
        rig.attach(name="a b")
    with pytest.raises(InvalidName):
        rig.attach(subscription="dead")


def test_joining_with_another_kind_of_policy_is_refused(rig: Rig) -> None:
    rig.attach()
    with pytest.raises(Exception, match="qos"):
        rig.attach(policy=SubscriptionPolicy(qos=2))
    with pytest.raises(SubscriptionConflict):
        rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(lease_s=5), None)


def test_an_ephemeral_consumer_starts_at_the_latest_and_holds_nothing(rig: Rig) -> None:
    rig.publish("orders", b"before")
    watcher = rig.attach(subscription=None)
    rig.publish("orders", b"after")
    assert watcher.bodies == [b"after"]
    assert rig.broker.subscriptions() == []
    rig.detach(watcher)
    assert rig.broker.state.subscriptions == {}
    assert rig.held() == [b"before", b"after"]


def test_an_ephemeral_consumer_may_nack_and_get_it_again(rig: Rig) -> None:
    watcher = rig.attach(subscription=None)
    rig.publish("orders", b"a")
    rig.give_back(watcher, watcher.take_one(), delay_s=1)
    rig.wait(1)
    assert watcher.take_one().attempt == 2


def test_an_ephemeral_consumer_leaves_no_trace_in_the_log(rig: Rig) -> None:
    rig.publish()
    before = rig.journal.records
    watcher = rig.attach(subscription=None, start="earliest")
    rig.ack(watcher, watcher.take_one())
    rig.detach(watcher)
    assert rig.journal.records == before


# -- starts ------------------------------------------------------------------------------------


def started(rig: Rig, start: object, name: str = "late") -> list[bytes | None]:
    return rig.attach(subscription=name, start=start).bodies


def ten(rig: Rig) -> Rig:
    """Ten messages, a second apart, of which the first three are gone."""
    worker = rig.attach()
    for number in range(10):
        rig.publish("orders", b"%d" % number)
        rig.clock.advance(1)
    for part in worker.take()[:3]:
        rig.ack(worker, part)
    return rig


def test_earliest_is_everything_still_held(rig: Rig) -> None:
    assert started(ten(rig), "earliest") == [b"%d" % n for n in range(3, 10)]


def test_a_new_subscription_starts_at_the_earliest_unless_told_otherwise(rig: Rig) -> None:
    assert started(ten(rig), None) == started(rig, "earliest", "other")


def test_latest_is_nothing_that_was_published_before(rig: Rig) -> None:
    assert started(ten(rig), "latest") == []


def test_latest_does_not_get_what_was_decided_before_it(rig: Rig) -> None:
    ten(rig)
    rig.submit("orders", b"in flight")
    worker = rig.attach(subscription="late", start="latest")
    rig.publish("orders", b"after")
    assert worker.bodies == [b"after"]


@pytest.mark.parametrize("first", [3, 5, 9])
def test_a_time_starts_at_the_first_message_published_then_or_later(rig: Rig, first: int) -> None:
    begin = rig.clock.wall() / 1000
    ten(rig)
    expected = [b"%d" % n for n in range(first, 10)]
    assert started(rig, begin + first, "exact") == expected
    assert started(rig, begin + first - 0.5, "between") == expected


def test_a_time_before_everything_is_the_earliest_and_one_after_it_the_latest(rig: Rig) -> None:
    begin = rig.clock.wall() / 1000
    ten(rig)
    assert len(started(rig, 0, "old")) == 7
    assert started(rig, begin + 1000, "new") == []


def test_a_position_starts_there(rig: Rig) -> None:
    assert started(ten(rig), "0:7") == [b"7", b"8", b"9"]


def test_the_end_is_a_position_too(rig: Rig) -> None:
    assert started(ten(rig), "0:10") == []


def test_a_position_below_what_is_held_names_the_lowest(rig: Rig) -> None:
    with pytest.raises(PositionNotHeld, match="0:3"):
        started(ten(rig), "0:2")


@pytest.mark.parametrize("start", ["0:99", "5:0", "yesterday", "0:", ":3", "-1:0", [], object()])
def test_a_start_that_means_nothing_is_refused(rig: Rig, start: object) -> None:
    ten(rig)
    with pytest.raises((InvalidArgument, PositionNotHeld)):
        started(rig, start)
    assert [found["subscription"] for found in rig.broker.subscriptions()] == ["billing"]


def test_an_existing_subscription_goes_on_where_it_was_whatever_start_says(rig: Rig) -> None:
    ten(rig)
    rig.attach(subscription="late", start="latest")
    assert started(rig, "earliest") == []


# -- settle ------------------------------------------------------------------------------------


def test_a_confirmed_ack_is_never_redelivered(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"a", b"b")
    rig.ack(worker, worker.take_one(), (0, 1))
    again = rig.crash()
    assert again.attach().bodies == [b"b"]


def test_a_confirmed_ack_after_a_back_off_is_never_redelivered_even_after_a_crash(
    rig: Rig,
) -> None:
    rig.attach(subscription="audit")
    worker = rig.attach()
    rig.publish("orders", b"a")
    rig.give_back(worker, worker.take_one())
    rig.wait(1)
    rig.ack(worker, worker.take_one())
    again = rig.crash()
    fresh = again.attach()
    again.wait(120)
    assert fresh.slices == []
    assert again.counts().acked == 1


def test_a_nack_comes_back_after_its_back_off_with_one_more_attempt(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish()
    rig.give_back(worker, worker.take_one())
    rig.wait(0.3)
    assert worker.slices == []
    rig.wait(0.2)
    assert worker.take_one().attempt == 2


def test_a_back_off_survives_a_crash_with_the_rest_of_its_time(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish()
    rig.give_back(worker, worker.take_one(), delay_s=10)
    rig.wait(4)
    again = rig.crash()
    fresh = again.attach()
    again.wait(5.9)
    assert fresh.slices == []
    again.wait(0.2)
    assert fresh.take_one().attempt == 2


@pytest.mark.parametrize("delay_s", [float("inf"), float("nan"), 1e300])
def test_an_impossible_delay_is_refused_and_the_message_stays_leased(
    rig: Rig, delay_s: float
) -> None:
    worker = rig.attach()
    rig.publish()
    part = worker.take_one()
    with pytest.raises(InvalidArgument, match="seconds"):
        rig.give_back(worker, part, delay_s=delay_s)
    assert rig.counts().leased == 1
    assert rig.ack(worker, part) == []


def test_a_long_reason_is_cut_to_its_limit(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish()
    rig.give_back(worker, worker.take_one(), reason="é" * limits.REASON_BYTES_MAX)
    ((reason, _),) = (rig.subscription().cursors[0].reasons or {}).values()
    assert len(reason.encode()) == limits.REASON_BYTES_MAX


def test_a_late_ack_is_refused_once_the_message_was_handed_out_again(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish()
    part = worker.take_one()
    rig.wait(30)
    assert worker.take_one().attempt == 2
    (refusal,) = rig.ack(worker, part)
    assert (refusal.partition, refusal.offset) == (0, 0)


def test_an_expired_lease_goes_to_somebody_else(rig: Rig) -> None:
    stuck = rig.attach(credit=1)
    rig.publish("orders", b"a")
    other = rig.attach(credit=1)
    rig.wait(30)
    assert stuck.bodies + other.bodies == [b"a", b"a"]
    assert rig.counts().leased == 1


def test_a_renewed_lease_does_not_expire(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish()
    part = worker.take_one()
    for _ in range(5):
        rig.wait(20)
        rig.broker.extend(worker.consumer, [(part.lease_id, 0, None)], None)
    assert rig.counts().leased == 1
    assert worker.slices == []
    rig.wait(30)
    assert worker.take_one().attempt == 2


def test_a_renewal_may_name_its_own_time(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish()
    part = worker.take_one()
    rig.broker.extend(worker.consumer, [(part.lease_id, 0, None)], 100)
    rig.wait(99)
    assert worker.slices == []
    rig.wait(1)
    assert len(worker.slices) == 1


# -- attempts across crashes -------------------------------------------------------------------


def test_attempts_survive_a_crash(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish()
    for _ in range(3):
        rig.give_back(worker, worker.take_one(), delay_s=0)
    again = rig.crash()
    assert again.attach().take_one().attempt == 5


def test_a_message_that_kills_the_process_ends_as_a_dead_letter(rig: Rig) -> None:
    policy = SubscriptionPolicy(retry=Retry(max_attempts=3, first_s=0, max_s=0))
    rig.broker.create_subscription("orders", "billing", policy, None)
    rig.publish("orders", b"killer")
    for _ in range(8):
        worker = rig.attach(credit=1)
        if not worker.slices:
            break
        rig = rig.crash()
    rig.keeper.move_doomed()
    assert rig.counts().dead == 1
    assert rig.held("orders.dead.billing") == [b"killer"]


def test_a_clean_stop_gives_unstarted_messages_their_attempt_back(rig: Rig) -> None:
    rig.attach()
    rig.publish()
    again = rig.restart()
    assert again.attach().take_one().attempt == 1


def test_an_abrupt_loss_raises_the_attempt(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"a", b"b")
    rig.detach(worker, is_clean=False)
    assert rig.attach().take_one().attempt == 2


def test_a_hand_back_of_what_was_begun_counts_the_attempt(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"a", b"b")
    part = worker.take_one()
    rig.detach(worker, {part.lease_id: ((0, 1),)})
    again = rig.attach()
    assert [(x.start, x.attempt) for x in again.take()] == [(0, 2), (1, 1)]


def test_detaching_twice_is_harmless(rig: Rig) -> None:
    worker = rig.attach()
    rig.detach(worker)
    rig.detach(worker)
    assert rig.broker.stats()["consumers"] == 0


# -- retention ---------------------------------------------------------------------------------


def test_uncovered_messages_go_when_their_time_is_over(rig: Rig) -> None:
    rig.broker.create_topic("brief", 1, TopicPolicy(retain_s=60))
    rig.publish("brief")
    rig.wait(59)
    assert len(rig.held("brief")) == 1
    rig.wait(2)
    assert rig.held("brief") == []


def test_a_shorter_retention_takes_effect_without_a_restart(rig: Rig) -> None:
    rig.publish("orders")
    rig.wait(5)
    rig.broker.alter_topic("orders", {"retain_s": 1.0})
    rig.wait(1)
    assert rig.held("orders") == []


def test_retention_goes_on_after_a_restart(rig: Rig) -> None:
    rig.broker.create_topic("brief", 1, TopicPolicy(retain_s=60))
    rig.publish("brief")
    again = rig.restart()
    again.wait(61)
    assert again.held("brief") == []


def test_the_timer_asks_to_be_called_for_the_next_thing_due(rig: Rig) -> None:
    worker = rig.attach(policy=SubscriptionPolicy(lease_s=0.5))
    rig.publish()
    assert rig.broker.tick() == 500
    rig.give_back(worker, worker.take_one(), delay_s=0.2)
    assert rig.broker.tick() == 200


# -- topics that are only written --------------------------------------------------------------


def test_after_an_unclean_stop_a_written_topic_never_uses_an_offset_again(rig: Rig) -> None:
    rig.broker.create_topic("quick", 1, TopicPolicy(durability=Durability.WRITTEN))
    rig.publish("quick")
    again = rig.crash()
    assert again.publish("quick").base == 1 + limits.OFFSET_SKIP


def test_after_a_clean_stop_offsets_go_on(rig: Rig) -> None:
    rig.broker.create_topic("quick", 1, TopicPolicy(durability=Durability.WRITTEN))
    rig.publish("quick")
    assert rig.restart().publish("quick").base == 1


def test_skipped_offsets_are_counted_nowhere(rig: Rig) -> None:
    rig.broker.create_topic("quick", 1, TopicPolicy(durability=Durability.WRITTEN))
    rig.attach("quick")
    rig.publish("quick")
    again = rig.crash()
    counted = again.counts("quick")
    assert (counted.attached, counted.waiting) == (1, 1)


# -- stop and start ----------------------------------------------------------------------------


def test_a_draining_broker_takes_no_new_work_and_finishes_the_old(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish()
    pending = rig.submit()
    rig.broker.drain()
    with pytest.raises(Draining):
        rig.submit()
    with pytest.raises(Draining):
        rig.attach()
    rig.settle()
    assert pending.wait().base == 1
    for part in worker.take():
        assert rig.ack(worker, part) == []


def test_a_clean_stop_and_start_keeps_everything(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"a", b"b", b"c")
    rig.ack(worker, worker.take_one(), (1, 2))
    rig.publish("other", b"x")
    again = rig.restart()
    assert again.held() == [b"a", b"c"]
    assert again.held("other") == [b"x"]
    counted = again.counts()
    assert (counted.attached, counted.acked, counted.waiting) == (3, 1, 2)


def test_a_clean_start_replays_nothing(rig: Rig) -> None:
    rig.attach()
    rig.publish()
    report = rig.restart().journal.report
    assert report.is_clean
    assert report.records == 0
    assert report.snapshot is not None


def test_a_crash_is_told_from_a_clean_stop(rig: Rig) -> None:
    rig.publish()
    assert not rig.crash().journal.report.is_clean


def test_every_start_is_a_new_generation(rig: Rig) -> None:
    assert rig.broker.stats()["generation"] == 1
    assert rig.crash().broker.stats()["generation"] == 2
    assert rig.restart().broker.stats()["generation"] == 2


def test_the_superblock_knows_the_generation_and_that_the_store_is_in_use(rig: Rig) -> None:
    again = rig.restart()
    state = again.journal.block.state
    assert (state.broker_generation, state.is_clean) == (2, False)


def test_closing_tells_consumers_and_is_harmless_twice(rig: Rig) -> None:
    worker = rig.attach()
    rig.broker.close()
    rig.broker.close()
    assert [type(error) for error in worker.closed] == [Closed]
    with pytest.raises(Closed):
        rig.broker.ack(worker.consumer, [])


def test_a_closed_store_can_be_opened_by_another(rig: Rig) -> None:
    rig.broker.close()
    Broker.open(rig.disk, SETTINGS, ManualClock(), threads=False).close()


def test_abandoning_leaves_the_store_as_a_crash_would(rig: Rig) -> None:
    rig.attach()
    rig.publish("orders", b"a")
    rig.broker.abandon()
    again = rig.crash()
    assert not again.journal.report.is_clean
    assert again.held() == [b"a"]


def test_consumers_of_a_dead_run_are_forgotten(rig: Rig) -> None:
    rig.attach()
    again = rig.crash()
    assert again.broker.state.attached == {}
    again.broker.delete_subscription("orders", "billing")


def test_a_dead_letter_topic_must_exist_to_be_read(rig: Rig) -> None:
    with pytest.raises(UnknownTopic):
        rig.attach("orders.dead.billing", "inspector")


def test_dead_letters_can_be_consumed_like_any_topic(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish("orders", b"bad")
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED)
    rig.keeper.move_doomed()
    inspector: Worker = rig.attach("orders.dead.billing", "inspector")
    assert inspector.bodies == [b"bad"]
    rig.ack(inspector, inspector.take_one())
    assert rig.held("orders.dead.billing") == []


def test_an_ack_makes_room_before_it_is_durable(rig: Rig) -> None:
    worker = rig.attach(credit=1)
    rig.publish("orders", b"a", b"b")
    rig.broker.ack(worker.consumer, [claim(worker.take_one())])
    assert worker.bodies == [b"b"]


def test_flush_answers_through_the_mailbox(rig: Rig) -> None:
    pending = Pending()
    rig.broker.flush(DIRECT, pending)
    rig.settle()
    assert pending.wait() is None
