"""Moving subscriptions on a running broker: durable, exact, and void for whoever held something."""

import random
from typing import Any

import pytest

from penstock.broker.mailbox import DIRECT, Pending
from penstock.delivery.counts import unexplained
from penstock.journal.memory import MemoryDisk, Op
from penstock.journal.powercut import Policy
from penstock.vocabulary.errors import (
    InvalidArgument,
    PositionNotHeld,
    StoreFailed,
    UnknownSubscription,
    UnknownTopic,
)
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause
from tests.broker.rig import Rig, Worker, bodies_of, claim


def started(partitions: int = 1, **policy: Any) -> Rig:
    rig = Rig()
    rig.broker.create_topic("orders", partitions, TopicPolicy(**{"replay_s": 1000, **policy}))
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    return rig


def consume(rig: Rig, worker: Worker) -> list[bytes | None]:
    bodies = worker.bodies
    for part in worker.take():
        assert rig.ack(worker, part) == []
    return bodies


def exact(rig: Rig) -> tuple[int, int, int, int]:
    """Attached, acked, unfinished, dropped."""
    counts = rig.counts()
    assert unexplained(counts) == 0
    return (
        counts.attached, counts.acked, counts.waiting + counts.leased + counts.delayed,
        counts.dropped,
    )  # fmt: skip


REOPEN = pytest.mark.parametrize("reopen", ["", "restart", "crash"])


def again(rig: Rig, reopen: str) -> Rig:
    return {"": lambda: rig, "restart": rig.restart, "crash": rig.crash}[reopen]()


# -- where to --------------------------------------------------------------------------------------


@REOPEN
def test_back_to_the_earliest_gives_everything_again(reopen: str) -> None:
    rig = started()
    worker = rig.attach()
    rig.publish("orders", b"a", b"b", b"c")
    consume(rig, worker)
    rig.detach(worker)
    rig.broker.seek("orders", "billing", "earliest")
    rig = again(rig, reopen)
    assert exact(rig) == (3, 0, 3, 0)
    worker = rig.attach()
    assert consume(rig, worker) == [b"a", b"b", b"c"]
    assert exact(rig) == (3, 3, 0, 0)


@REOPEN
def test_on_to_the_latest_drops_what_waited(reopen: str) -> None:
    rig = started()
    rig.publish("orders", b"a", b"b", b"c")
    rig.broker.seek("orders", "billing", "latest")
    rig = again(rig, reopen)
    assert exact(rig) == (3, 0, 0, 3)
    rig.publish("orders", b"d")
    assert consume(rig, rig.attach()) == [b"d"]
    assert exact(rig) == (4, 1, 0, 3)


@REOPEN
def test_a_position_moves_its_partition_only(reopen: str) -> None:
    rig = started(2)
    for partition in (0, 1):
        rig.publish("orders", b"a%d" % partition, b"b%d" % partition, partition=partition)
    worker = rig.attach()
    consume(rig, worker)
    rig.detach(worker)
    rig.broker.seek("orders", "billing", "1:1")
    rig = again(rig, reopen)
    assert consume(rig, rig.attach()) == [b"b1"]
    assert exact(rig) == (4, 4, 0, 0)


def test_a_time_moves_every_partition_to_what_was_published_since() -> None:
    rig = started(2)
    times = []
    for number in range(4):
        times.append(rig.clock.wall() / 1000)
        for partition in (0, 1):
            rig.publish("orders", b"%d%d" % (number, partition), partition=partition)
        rig.wait(10)
    worker = rig.attach()
    consume(rig, worker)
    rig.broker.seek("orders", "billing", times[2])
    rig.settle()
    assert sorted(filter(None, consume(rig, worker))) == [b"20", b"21", b"30", b"31"]
    rig.broker.seek("orders", "billing", times[3] - 0.5)
    rig.settle()
    assert sorted(filter(None, consume(rig, worker))) == [b"30", b"31"]
    rig.broker.seek("orders", "billing", 0)
    rig.settle()
    assert len(consume(rig, worker)) == 8
    rig.broker.seek("orders", "billing", times[3] + 10**6)
    rig.settle()
    assert consume(rig, worker) == []
    assert exact(rig) == (8, 8, 0, 0)


def test_a_redriven_message_hides_nothing_from_a_seek_by_time() -> None:
    rig = started(replay_s=0)
    other, worker = rig.attach(subscription="other"), rig.attach()
    began = rig.clock.wall() / 1000
    rig.publish("orders", b"m0")
    rig.give_back(other, other.take_one(), cause=Cause.REJECTED)
    rig.keeper.move_doomed()
    consume(rig, worker)
    rig.detach(worker)
    rig.wait(100)
    rig.publish("orders", b"m1")
    assert rig.broker.redrive("orders", "other", lambda *_: True, None, is_dry=False) == 1
    rig.broker.seek("orders", "billing", began + 50)
    assert exact(rig) == (2, 1, 1, 0)
    assert consume(rig, rig.attach()) == [b"m1"]


def test_a_subscription_that_starts_at_a_time_misses_nothing_behind_a_redriven_message() -> None:
    rig = started(replay_s=0)
    worker = rig.attach()
    began = rig.clock.wall() / 1000
    rig.publish("orders", b"m0")
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED)
    rig.keeper.move_doomed()
    rig.wait(100)
    rig.publish("orders", b"m1")
    rig.broker.redrive("orders", "billing", lambda *_: True, None, is_dry=False)
    assert rig.attach(subscription="late", start=began + 50).bodies == [b"m1"]


@REOPEN
def test_a_clock_that_was_set_back_hides_nothing_from_a_seek_by_time(reopen: str) -> None:
    rig = started(replay_s=100_000)
    began = rig.clock.wall() / 1000
    for number in range(6):
        rig.publish("orders", b"a%d" % number)
        rig.wait(100)
    rig.keeper.snapshot()
    rig.clock.wall_ms -= 3_600_000
    rig = again(rig, reopen)
    for number in range(6):
        rig.publish("orders", b"b%d" % number)
        rig.wait(100)
    worker = rig.attach()
    assert len(consume(rig, worker)) == 12
    rig.broker.seek("orders", "billing", began + 450)
    rig.settle()
    assert consume(rig, worker)[0] == b"a5"
    rig.broker.seek("orders", "billing", began - 3600 + 850)
    rig.settle()
    assert consume(rig, worker)[0] == b"a0", "all of these were published later than that"
    rig.broker.seek("orders", "billing", began + 10_000)
    rig.settle()
    assert consume(rig, worker) == []


def test_a_message_of_a_clock_set_back_is_found_once_the_later_ones_are_gone() -> None:
    rig = started(replay_s=0)
    rig.publish("orders", b"a")
    rig.clock.wall_ms -= 3_600_000
    began = rig.clock.wall() / 1000
    for number in range(5):
        rig.publish("orders", b"b%d" % number)
        rig.clock.advance(10)
    worker = rig.attach()
    for part in worker.take():
        if part.start == 0:
            rig.ack(worker, part, (0, 1))
    assert rig.attach(subscription="late", start=began + 15).bodies == [b"b2", b"b3", b"b4"]


def test_dead_letters_are_found_by_the_time_of_their_first_publish() -> None:
    rig = started()
    worker = rig.attach()
    began = rig.clock.wall() / 1000
    for number in range(4):
        rig.publish("orders", b"%d" % number)
        rig.clock.advance(10)
    for part in reversed(worker.take()):
        rig.give_back(worker, part, cause=Cause.REJECTED)
        rig.keeper.move_doomed()
    dead = rig.broker.state.names["orders.dead.billing"].partitions[0]
    assert [rig.broker._offset_at(dead, int(began + s) * 1000) for s in (0, 25, 35)] == [0, 0, 4]
    reader = rig.attach("orders.dead.billing", None, start=began + 5)
    assert reader.bodies == [b"3", b"2", b"1", b"0"]


def test_below_what_is_held_the_lowest_position_is_told_and_nothing_changes() -> None:
    rig = started(replay_s=0)
    worker = rig.attach()
    rig.publish("orders", b"a", b"b", b"c")
    rig.ack(worker, worker.take_one(), (0, 2))
    before = exact(rig)
    with pytest.raises(PositionNotHeld, match="lowest held position is 0:2") as caught:
        rig.broker.seek("orders", "billing", "0:1")
    assert caught.value.details == {"lowest": "0:2"}
    with pytest.raises(PositionNotHeld):
        rig.broker.seek("orders", "billing", "0:4")
    assert exact(rig) == before
    assert rig.subscription().seeks == 0
    assert rig.counts().leased == 1, "what its consumer holds is still its own"


def test_earliest_is_what_is_held_for_any_reason() -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy(keep_last=1, retain_s=50))
    rig.publish("orders", b"a", b"b")
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), "latest")
    rig.broker.seek("orders", "billing", "earliest")
    rig.wait(1000)
    assert rig.held() == [b"a", b"b"], "taken over, whatever their time is"
    worker = rig.attach()
    assert consume(rig, worker) == [b"a", b"b"]
    assert rig.held() == [b"b"]
    rig.broker.seek("orders", "billing", "earliest")
    rig.settle()
    assert consume(rig, worker) == [b"b"]
    assert exact(rig) == (2, 2, 0, 0)


def test_what_a_seek_took_is_held_beyond_the_window_until_it_is_acked() -> None:
    rig = started(replay_s=100)
    worker = rig.attach()
    rig.publish("orders", b"a", b"b")
    consume(rig, worker)
    rig.detach(worker)
    rig.wait(99)
    rig.broker.seek("orders", "billing", "0:1")
    rig.wait(500)
    assert rig.held() == [b"b"]
    assert consume(rig, rig.attach()) == [b"b"]
    assert rig.held() == []
    assert exact(rig) == (2, 2, 0, 0)


@pytest.mark.parametrize(
    "to",
    ["", "first", "0", "0:", ":0", "0:-1", "0:x", "0:1:2", "²:1", None, True, -1,
     float("nan"), float("inf"), b"earliest", ["earliest"]],
)  # fmt: skip
def test_nowhere_is_refused(to: Any) -> None:
    rig = started()
    with pytest.raises(InvalidArgument, match="'0:17'"):
        rig.broker.seek("orders", "billing", to)


def test_a_partition_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no partition 1"):
        started().broker.seek("orders", "billing", "1:0")


def test_unknown_names_are_refused() -> None:
    rig = started()
    with pytest.raises(UnknownTopic):
        rig.broker.seek("order", "billing", "latest")
    with pytest.raises(UnknownSubscription):
        rig.broker.seek("orders", "shipping", "latest")


def test_a_subscription_whose_creation_is_under_way_is_waited_for() -> None:
    rig = Rig()
    rig.publish("orders", b"a")
    rig.attach(is_settled=False)
    rig.broker.seek("orders", "billing", "latest")
    rig.settle()
    assert exact(rig) == (1, 0, 0, 1)


# -- consumers -------------------------------------------------------------------------------------


def test_a_connected_consumer_gets_the_new_place_and_its_old_acks_are_refused() -> None:
    rig = started()
    worker = rig.attach()
    rig.publish("orders", b"a", b"b", b"c")
    old = worker.take_one()
    rig.broker.seek("orders", "billing", "0:1")
    rig.settle()
    assert worker.closed == []
    assert {refusal.why for refusal in rig.ack(worker, old)} == {
        "the subscription was moved by a seek"
    }
    assert len(rig.give_back(worker, old)) == 3
    void, fresh = worker.take()
    assert (void.lease_id, void.frames) == (old.lease_id, [])
    assert (bodies_of(fresh), fresh.attempt) == ([b"b", b"c"], 1)
    assert rig.ack(worker, fresh) == []
    assert exact(rig) == (3, 2, 0, 1)


def test_nothing_is_handed_out_between_the_decision_and_its_durability() -> None:
    rig = started()
    worker = rig.attach(credit=2)
    rig.publish("orders", b"a", b"b", b"c", b"d")
    part = worker.take_one()
    rig.broker.give_back(worker.consumer, claim(part), Cause.NACKED, 0.0, "")
    pending = Pending()
    with rig.engine.lock:
        record = rig.broker._decide_seek("orders", "billing", "0:3", (0, 3), None)
        assert record is not None
        rig.engine.dispatch(rig.subscription())
        rig.engine.submit(record, (DIRECT, pending, None))
    assert worker.slices == []
    rig.settle()
    assert worker.bodies == [b"d"]
    assert exact(rig) == (4, 0, 1, 3)


def test_acks_decided_and_not_yet_durable_come_before_the_seek() -> None:
    rig = started()
    worker = rig.attach()
    rig.publish("orders", b"a", b"b", b"c")
    part = worker.take_one()
    assert rig.broker.ack(worker.consumer, [claim(part, (0, 2))]) == []
    rig.broker.seek("orders", "billing", "0:1")
    rig.settle()
    assert worker.bodies == [b"b", b"c"]
    assert exact(rig) == (3, 1, 2, 0)
    rig = rig.crash()
    assert exact(rig) == (3, 1, 2, 0)


def test_a_lease_of_before_the_seek_does_not_run_out_after_it() -> None:
    rig = started()
    worker = rig.attach()
    rig.publish("orders", b"a")
    worker.take()
    rig.broker.seek("orders", "billing", "latest")
    rig.settle()
    worker.take()
    rig.wait(100)
    assert worker.slices == []
    assert exact(rig) == (1, 0, 0, 1)
    rig.detach(worker, is_clean=False)
    assert exact(rig) == (1, 0, 0, 1)


def test_what_was_about_to_die_is_tried_again() -> None:
    rig = started()
    policy = SubscriptionPolicy(retry=Retry(max_attempts=1))
    rig.broker.alter_subscription("orders", "billing", {"retry": policy.retry})
    worker = rig.attach()
    rig.publish("orders", b"a")
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED)
    rig.broker.seek("orders", "billing", "earliest")
    rig.settle()
    assert not rig.keeper.move_doomed()
    assert consume(rig, worker) == [b"a"]
    assert exact(rig) == (1, 1, 0, 0)


def test_a_move_to_the_dead_letters_does_not_overtake_a_seek() -> None:
    rig = started(2)
    worker = rig.attach()
    rig.publish("orders", b"a", partition=0)
    rig.publish("orders", b"b", partition=1)
    for part in worker.take():
        rig.give_back(worker, part, cause=Cause.REJECTED)
    with rig.engine.lock:
        record = rig.broker._decide_seek("orders", "billing", "0:0", (0, 0), None)
        assert record is not None
        rig.engine.submit(record, None)
    assert not rig.keeper.move_doomed()
    rig.settle()
    while rig.keeper.move_doomed():
        pass
    assert worker.bodies == [b"a"]
    assert (rig.counts().dead, rig.held("orders.dead.billing")) == (1, [b"b"])
    assert unexplained(rig.counts()) == 0


def test_a_dead_letter_is_delivered_again_after_a_seek_back() -> None:
    rig = started()
    worker = rig.attach()
    rig.publish("orders", b"a")
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED)
    assert rig.keeper.move_doomed()
    assert rig.counts().dead == 1
    rig = rig.crash()
    rig.broker.seek("orders", "billing", "earliest")
    assert rig.counts().dead == 0
    assert consume(rig, rig.attach()) == [b"a"]
    assert exact(rig) == (1, 1, 0, 0)
    assert rig.held("orders.dead.billing") == [b"a"]


def test_a_store_that_failed_moves_nothing() -> None:
    rig = started()
    rig.publish("orders", b"a")
    rig.journal.failed = StoreFailed("the disk is gone")
    with pytest.raises(StoreFailed):
        rig.broker.seek("orders", "billing", "latest")
    assert rig.subscription().seeks == 0


# -- all together ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_counts_and_deliveries_follow_a_model_across_restarts(seed: int) -> None:  # noqa: C901
    dice = random.Random(seed)
    rig = started(replay_s=dice.choice([0, 40]), keep_last=dice.choice([0, 2]))
    fate: dict[int, str] = {}
    for _ in range(50):
        choice = dice.randrange(7)
        partition = rig.broker.state.names["orders"].partitions[0]
        if choice <= 1:
            stored = rig.publish("orders", *[b"x"] * dice.randint(1, 3))
            assert stored.base is not None
            fate.update(dict.fromkeys(range(stored.base, partition.next_offset), "waiting"))
        elif choice == 2:
            worker = rig.attach(credit=4)
            for part in worker.take():
                for offset in range(part.start, part.end):
                    assert fate[offset] == "waiting", "finished messages do not come"
                    if dice.random() < 0.6:
                        assert rig.ack(worker, part, (offset, offset + 1)) == []
                        fate[offset] = "acked"
            rig.detach(worker, is_clean=dice.random() < 0.8)
        elif choice == 3:
            rig = again(rig, dice.choice(["restart", "crash"]))
        elif choice == 4:
            rig.wait(dice.choice([1, 15, 60]))
        elif choice == 5:
            rig.keeper.snapshot()
        else:
            lowest = next(partition.released.gaps(0, partition.next_offset), (0, 0))[0]
            place = dice.randint(lowest or partition.released.floor, partition.next_offset)
            held = [o for o in range(partition.next_offset) if o not in partition.released]
            rig.broker.seek("orders", "billing", f"0:{place}")
            for offset, what in fate.items():
                if offset >= place and offset in held:
                    fate[offset] = "waiting"
                elif offset < place and what == "waiting":
                    fate[offset] = "dropped"
        rig.wait(1)
        expected = list(fate.values())
        assert exact(rig) == (
            len(fate), expected.count("acked"), expected.count("waiting"),
            expected.count("dropped"),
        )  # fmt: skip


# -- power cuts ------------------------------------------------------------------------------------


def test_a_power_cut_anywhere_leaves_a_subscription_at_one_place_or_the_other() -> None:
    """Whatever was confirmed before the cut is true after it, with exact counts."""
    rig = started(keep_last=1)
    worker = rig.attach()
    rig.publish("orders", b"a", b"b", b"c", b"d")
    assert rig.ack(worker, worker.take_one(), (0, 3)) == []
    rig.detach(worker)
    confirmed = [exact(rig)]
    seen: set[tuple[int, int, int, int]] = set()

    def cut(_op: Op) -> None:
        images = rig.disk.crash_images((Policy.DROP_ALL, Policy.KEEP_ALL, Policy.PREFIX))
        for label, image in images:
            fresh = Rig(MemoryDisk.from_image(image, record=True), rig.clock, rig.settings)
            found = exact(fresh)
            assert found in confirmed[-2:], label
            assert len(fresh.held()) == 4
            seen.add(found)

    rig.disk.on_operation = cut
    for to, after in (("0:1", (4, 1, 3, 0)), ("latest", (4, 1, 0, 3)), ("0:2", (4, 1, 2, 1))):
        confirmed.append(after)
        rig.broker.seek("orders", "billing", to)
        assert exact(rig) == after
        confirmed = confirmed[-1:]
        rig.keeper.snapshot()
    assert len(seen) == 4
