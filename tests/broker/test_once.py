"""QoS 0 at the broker: durable before hand-over, at most one hand-over whatever happens."""

from random import Random

import msgspec
import pytest

from penstock.delivery.counts import unexplained
from penstock.journal.memory import ALL_POLICIES, MemoryDisk
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from tests.broker.rig import ManualClock, Rig, Worker, bodies_of

QOS_0 = SubscriptionPolicy(qos=0)


def test_a_slice_comes_only_after_the_sync_of_what_finishes_it() -> None:
    rig = Rig()
    worker = rig.attach(policy=QOS_0)
    rig.submit("orders", b"a")
    rig.engine.commit_once()
    assert worker.slices == []
    rig.engine.run_jobs()
    assert worker.slices == []
    synced = rig.syncs()
    rig.engine.commit_once()
    assert rig.syncs() > synced
    assert worker.bodies == [b"a"]
    assert rig.counts().acked == 1


def test_after_a_crash_nothing_is_handed_over_again() -> None:
    rig = Rig()
    worker = rig.attach(policy=QOS_0)
    rig.publish("orders", b"a", b"b", b"c")
    assert worker.bodies == [b"a", b"b", b"c"]
    rig = rig.crash()
    again = rig.attach(policy=QOS_0)
    assert again.bodies == []
    rig.publish("orders", b"d")
    assert again.bodies == [b"d"]
    assert rig.restart().attach(policy=QOS_0).bodies == []


def test_no_crash_at_any_moment_leads_to_a_second_hand_over() -> None:
    """Every operation on the disk × every way power can fail there."""
    crashes = 0
    clock = ManualClock()
    disk = MemoryDisk(record=True)
    seen: list[tuple[list[bytes | None], MemoryDisk]] = []
    rig = Rig(disk, clock)
    worker = rig.attach(policy=QOS_0)

    def look(_op: object) -> None:
        got = worker.bodies
        for _, image in disk.crash_images(ALL_POLICIES, seed=1):
            seen.append((got, MemoryDisk.from_image(image, record=True)))

    disk.on_operation = look
    for number in range(6):
        rig.publish("orders", b"%d" % number)
    disk.on_operation = None
    assert worker.bodies == [b"%d" % number for number in range(6)]
    for got, image in seen:
        fresh = Rig(image, clock)
        if "orders" not in fresh.broker.state.names:
            continue
        later = fresh.attach(policy=QOS_0).bodies
        assert not set(got) & set(later), (got, later)
        assert unexplained(fresh.counts()) == 0
        crashes += bool(later)
    assert crashes > 5, "no image was taken between a publish and its hand-over"


def test_acks_and_nacks_are_accepted_and_do_nothing() -> None:
    rig = Rig()
    worker = rig.attach(policy=QOS_0, credit=2)
    rig.publish("orders", b"a", b"b", b"c", b"d")
    part = worker.take_one()
    assert bodies_of(part) == [b"a", b"b"]
    assert rig.give_back(worker, part, (0, 1)) == []
    assert rig.ack(worker, part, (1, 2)) == []
    assert [body for each in worker.take() for body in bodies_of(each)] == [b"c", b"d"]
    rig.wait(3600)
    assert worker.slices == []
    assert rig.counts().acked == 4


def test_credit_holds_a_flood_back() -> None:
    rig = Rig()
    worker = rig.attach(policy=QOS_0, credit=3)
    rig.publish("orders", *[b"%d" % n for n in range(10)])
    assert worker.bodies == [b"0", b"1", b"2"]
    assert rig.counts().waiting == 7


def test_whoever_leaves_before_the_hand_over_loses_nothing_that_is_not_counted() -> None:
    rig = Rig()
    worker = rig.attach(policy=QOS_0)
    rig.submit("orders", b"a")
    rig.engine.commit_once()
    rig.engine.run_jobs()
    rig.detach(worker)
    assert worker.slices == []
    found = rig.counts()
    assert (found.acked, found.dropped) == (0, 1)
    rig = rig.crash()
    assert (rig.counts().acked, rig.counts().dropped) == (0, 1)


def test_whoever_leaves_before_the_messages_are_read_leaves_them_to_others() -> None:
    rig = Rig()
    worker = rig.attach(policy=QOS_0)
    rig.submit("orders", b"a")
    rig.engine.commit_once()
    rig.detach(worker)
    assert worker.slices == []
    assert rig.attach(policy=QOS_0).bodies == [b"a"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_was_sent_and_not_taken_counts_as_dropped(is_clean: bool) -> None:
    rig = Rig()
    worker = rig.attach(policy=QOS_0)
    rig.publish("orders", b"a", b"b", b"c")
    part = worker.take_one()
    rig.ack(worker, part, (0, 1))
    rig.detach(worker, is_clean=is_clean)
    found = rig.counts()
    assert (found.attached, found.acked, found.dropped) == (3, 1, 2)
    assert unexplained(found) == 0


def test_without_a_name_it_is_handed_over_once_too() -> None:
    rig = Rig()
    worker = rig.attach(subscription=None, policy=QOS_0)
    rig.publish("orders", b"a", b"b")
    part = worker.take_one()
    rig.give_back(worker, part)
    rig.wait(3600)
    assert worker.slices == []
    rig.publish("orders", b"c")
    assert worker.bodies == [b"c"]


def test_a_message_that_cannot_be_read_is_lost_and_the_others_come() -> None:
    rig = Rig()
    worker = rig.attach(policy=QOS_0)
    partition = rig.broker.state.names["orders"].partitions[0]
    rig.submit("orders", b"a")
    rig.submit("orders", b"b")
    rig.engine.commit_once()
    whole = rig.engine.read

    def half(at: object, start: int, end: int) -> object:
        assert at is partition
        frames, _ = whole(partition, start, end)
        return [frame for frame in frames if 0 not in frame.offsets], [(0, 1)]

    rig.engine.read = half  # type: ignore[method-assign, assignment]
    rig.settle()
    assert worker.bodies == [b"b"]
    found = rig.counts()
    assert (found.acked, found.dropped, found.leased) == (1, 1, 0)
    assert worker.consumer.outstanding == 1


# -- seeks -----------------------------------------------------------------------------------------


def replayed() -> tuple[Rig, Worker]:
    """Three messages handed over, of which the broker does not know whether they were taken."""
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy(replay_s=3600))
    worker = rig.attach(policy=QOS_0)
    rig.publish("orders", b"a", b"b", b"c")
    worker.take()
    return rig, worker


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_a_seek_takes_up_again_is_not_missed(is_clean: bool) -> None:
    rig, worker = replayed()
    rig.engine.is_draining = True  # nothing comes again before it leaves
    rig.broker.seek("orders", "billing", "earliest")
    rig.settle()
    counts = rig.counts()
    assert (counts.attached, counts.waiting, counts.acked, counts.dropped) == (3, 3, 0, 0)
    rig.detach(worker, is_clean=is_clean)
    assert rig.counts() == counts
    assert rig.restart().counts() == counts


def test_what_comes_again_is_missed_once() -> None:
    rig, worker = replayed()
    rig.broker.seek("orders", "billing", "0:1")
    rig.settle()
    assert worker.bodies == [b"b", b"c"]
    rig.detach(worker)
    counts = rig.counts()
    assert (counts.attached, counts.acked, counts.dropped) == (3, 0, 3)
    assert unexplained(counts) == 0
    rig.broker.seek("orders", "billing", "earliest")
    rig.settle()
    counts = rig.counts()
    assert (counts.attached, counts.waiting, counts.dropped) == (3, 3, 0)


def test_a_consumer_is_told_that_what_it_was_sent_comes_again() -> None:
    rig, worker = replayed()
    rig.broker.seek("orders", "billing", "earliest")
    rig.settle()
    void, again = worker.take()
    assert void.frames == []
    assert bodies_of(again) == [b"a", b"b", b"c"]


def test_who_leaves_between_a_seek_and_its_sync_misses_nothing_of_it() -> None:
    rig, worker = replayed()
    with rig.engine.lock:
        record = rig.broker._decide_seek("orders", "billing", "0:2", (0, 2), None)
        assert record is not None
        rig.engine.submit(record, None)
    rig.detach(worker)
    counts = rig.counts()
    assert (counts.waiting, counts.acked, counts.dropped) == (1, 0, 2)
    assert unexplained(counts) == 0


@pytest.mark.parametrize("seed", range(12))
def test_the_count_is_exact_whatever_is_moved_and_whoever_leaves(seed: int) -> None:
    random = Random(seed)
    rig = Rig()
    rig.broker.create_topic("orders", 1, TopicPolicy(replay_s=60))
    rig.attach(policy=QOS_0, credit=3)
    workers: list[Worker] = []
    for _ in range(60):
        act = random.randrange(7)
        if act < 2:
            rig.publish("orders", *[b"x"] * random.randrange(1, 5))
        elif act == 2:
            workers.append(rig.attach(policy=QOS_0, credit=random.randrange(1, 6)))
        elif act == 3 and workers:
            worker = workers.pop(random.randrange(len(workers)))
            rig.detach(worker, is_clean=random.random() < 0.5)
        elif act == 4 and workers:
            for part in random.choice(workers).take():
                if part.frames and random.random() < 0.7:
                    rig.ack(random.choice(workers), part)
        elif act == 5:
            rig.wait(random.choice([1, 20, 50]))
        else:
            end = rig.subscription().cursors[0].partition.next_offset
            low = rig.subscription().cursors[0].partition.released.floor
            to = random.choice(["earliest", "latest", f"0:{random.randint(low, end)}"])
            rig.broker.seek("orders", "billing", to)
            rig.settle()
        counts = rig.counts()
        assert unexplained(counts) == 0
        assert min(msgspec.structs.astuple(counts)) >= 0, counts
    assert rig.crash().counts().attached == counts.attached
