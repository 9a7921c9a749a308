"""Units at the broker: one record, one sync, one outcome, whatever crashes when."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.batch import encode_many
from penstock.batch.frame import Slice
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.rebuild import pieces
from penstock.broker.salvage import salvage
from penstock.delivery.counts import unexplained
from penstock.delivery.units import Claims
from penstock.journal.memory import ALL_POLICIES, Image, MemoryDisk, Policy
from penstock.vocabulary.errors import (
    AckRefused,
    Closed,
    DiskFull,
    InvalidName,
    PublisherFenced,
    UnitTooLarge,
)
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Unit
from penstock.vocabulary.stored import Stored
from penstock.vocabulary.units import Part, UnitWish
from tests.broker.rig import GENERATED, NAMED, ManualClock, Rig, Worker, claim


def part(rig: Rig, topic: str, *bodies: bytes, publisher: bytes = NAMED) -> Part:
    """A batch with the next number of its publisher."""
    place = (topic, 0, publisher, 0)
    sequence = rig.sequences.get(place, 0)
    rig.sequences[place] = sequence + len(bodies)
    return Part(topic, 0, encode_many(list(bodies)), len(bodies), 0, sequence)


def send(rig: Rig, wish: UnitWish, claims: Claims | None = None) -> Pending:
    pending = Pending()
    rig.broker.commit_unit(wish, claims or [], DIRECT, pending)
    return pending


def commit(rig: Rig, wish: UnitWish, claims: Claims | None = None) -> list[Stored]:
    pending = send(rig, wish, claims)
    rig.settle()
    found: list[Stored] = pending.wait()
    return found


def acks(worker: Worker, *slices: Slice) -> Claims:
    return [(worker.consumer, [claim(each) for each in slices])]


def test_a_unit_of_two_topics_and_an_ack_is_one_record_and_one_sync() -> None:
    rig = Rig()
    worker = rig.attach()
    rig.publish("orders", b"a", b"b")
    for topic in ("left", "right"):
        rig.publish(topic, b"first")
    given = worker.take_one()
    synced, counted = rig.syncs(), rig.journal.records
    wish = UnitWish(NAMED, 0, 0, [part(rig, "left", b"x", b"y"), part(rig, "right", b"z")])
    stored = commit(rig, wish, acks(worker, given))
    assert (rig.syncs() - synced, rig.journal.records - counted) == (1, 1)
    assert [each.base for each in stored] == [1, 1]
    assert {each.durability for each in stored} == {Durability.SYNCED}
    assert not any(each.is_duplicate for each in stored)
    assert rig.held("left") == [b"first", b"x", b"y"]
    assert rig.held("right") == [b"first", b"z"]
    found = rig.counts()
    assert (found.acked, found.leased, found.waiting, unexplained(found)) == (2, 0, 0, 0)


def test_messages_of_a_unit_are_delivered_and_survive_restarts() -> None:
    rig = Rig()
    commit(rig, UnitWish(NAMED, 0, 0, [part(rig, "orders", b"a"), part(rig, "orders", b"b", b"c")]))
    assert rig.attach().bodies == [b"a", b"b", b"c"]
    rig = rig.crash()
    assert rig.attach().bodies == [b"a", b"b", b"c"]
    rig = rig.restart()
    assert rig.attach().bodies == [b"a", b"b", b"c"]


def test_nothing_is_true_before_the_sync() -> None:
    rig = Rig()
    worker = rig.attach()
    rig.publish("orders", b"a")
    given = worker.take_one()
    pending = send(rig, UnitWish(NAMED, 0, 0, [part(rig, "out", b"x")]), acks(worker, given))
    assert not pending.is_done
    assert rig.held("out") == []
    assert (rig.counts().acked, rig.counts().leased, unexplained(rig.counts())) == (0, 1, 0)
    fresh = rig.crash()
    assert fresh.counts().acked == 0
    rig.settle()
    assert len(pending.wait()) == 1
    assert rig.held("out") == [b"x"]


def test_a_unit_that_only_acks_is_told_from_its_retry() -> None:
    rig = Rig()
    worker = rig.attach()
    rig.publish("orders", b"a")
    given = worker.take_one()
    wish = UnitWish(GENERATED, 0, 0, [])
    assert commit(rig, wish, acks(worker, given)) == []
    assert commit(rig, wish, acks(worker, given)) == []
    with pytest.raises(AckRefused, match="finished already"):
        commit(rig, wish._replace(sequence=1), acks(worker, given))
    assert rig.counts().acked == 1


@pytest.mark.parametrize("ending", ["none", "flying", "crash", "restart"])
def test_a_retry_gets_the_first_outcome(ending: str) -> None:
    rig = Rig()
    worker = rig.attach()
    rig.publish("orders", b"a")
    rig.publish("out", b"before")
    given = worker.take_one()
    wish = UnitWish(NAMED, 0, 0, [part(rig, "out", b"x")])
    if ending == "flying":
        first, second = send(rig, wish, acks(worker, given)), send(rig, wish, acks(worker, given))
        rig.settle()
        assert [each.base for each in first.wait()] == [1]
        assert [each.base for each in second.wait()] == [1]
    else:
        commit(rig, wish, acks(worker, given))
    if ending in ("crash", "restart"):
        rig = rig.crash() if ending == "crash" else rig.restart()
        worker = rig.attach()
    (again,) = commit(rig, wish, acks(worker, given))
    assert (again.base, again.is_duplicate) == (1, True)
    assert rig.held("out") == [b"before", b"x"]
    assert rig.counts().acked == 1


def test_a_snapshot_alone_knows_the_outcomes() -> None:
    rig = Rig()
    wish = UnitWish(NAMED, 0, 5, [part(rig, "out", b"x")])
    commit(rig, wish)
    rig.keeper.snapshot()
    for _ in range(30):
        rig.publish("filler", bytes(1000))
    rig.keeper.snapshot()
    rig = rig.crash()
    (again,) = commit(rig, wish)
    assert (again.base, again.is_duplicate) == (0, True)
    assert rig.held("out") == [b"x"]


def test_a_stale_ack_refuses_all_of_it() -> None:
    rig = Rig()
    worker = rig.attach(credit=1)
    rig.publish("orders", b"a")
    rig.publish("out", b"before")
    old = worker.take_one()
    rig.wait(31)
    new = worker.take_one()
    assert new.attempt == 2
    wish = UnitWish(NAMED, 0, 0, [part(rig, "out", b"x")])
    with pytest.raises(AckRefused, match="handed out again"):
        commit(rig, wish, acks(worker, old))
    rig.settle()
    assert rig.held("out") == [b"before"]
    assert commit(rig, wish, acks(worker, new))[0].base == 1
    assert rig.counts().acked == 1


def test_acks_make_room_for_what_waits() -> None:
    rig = Rig()
    worker = rig.attach(credit=1)
    rig.publish("orders", b"a", b"b")
    commit(rig, UnitWish(NAMED, 0, 0, []), acks(worker, worker.take_one()))
    assert worker.bodies == [b"b"]


def test_refusals_known_at_once_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.publish("out", b"before")
    wish = UnitWish(NAMED, 3, 0, [part(rig, "out", b"x")])
    with pytest.raises(InvalidName, match="dead-letter"):
        commit(rig, UnitWish(NAMED, 3, 0, [*wish.parts, part(rig, "a.dead.b", b"x")]))
    monkeypatch.setattr("penstock.vocabulary.limits.UNIT_COUNT_MAX", 0)
    with pytest.raises(UnitTooLarge):
        commit(rig, wish)
    monkeypatch.undo()
    monkeypatch.setattr(MemoryDisk, "free_bytes", lambda _: -1)
    rig.broker.check_space()
    with pytest.raises(DiskFull):
        commit(rig, wish)
    monkeypatch.undo()
    rig.broker.check_space()
    rig.settle()
    assert rig.held("out") == [b"before"]
    commit(rig, wish)
    assert rig.held("out") == [b"before", b"x"]
    with pytest.raises(PublisherFenced):
        commit(rig, wish._replace(epoch=2, sequence=9))
    rig.broker.close()
    with pytest.raises(Closed):
        commit(rig, wish)


def test_a_full_disk_still_takes_a_unit_that_only_acks(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    worker = rig.attach()
    rig.publish("orders", b"a")
    monkeypatch.setattr(MemoryDisk, "free_bytes", lambda _: -1)
    rig.broker.check_space()
    commit(rig, UnitWish(NAMED, 0, 0, []), acks(worker, worker.take_one()))
    assert rig.counts().acked == 1


def test_a_failed_sync_answers_whoever_waits_with_the_failure() -> None:
    rig = Rig()
    rig.publish("out", b"before")
    pending = send(rig, UnitWish(NAMED, 0, 0, [part(rig, "out", b"x")]))

    def fail(_op: Any) -> None:
        raise OSError(5, "the disk is gone")

    again = send(rig, UnitWish(NAMED, 0, 0, []))
    rig.disk.on_operation = fail
    rig.settle()
    for each in (pending, again):
        with pytest.raises(Exception, match="the disk is gone"):
            each.wait()


def test_qos_2_refuses_the_token_of_an_earlier_hand_over_for_ever() -> None:
    rig = Rig()
    worker = rig.attach(policy=SubscriptionPolicy(qos=2))
    rig.publish("orders", b"a")
    old = worker.take_one()
    rig.wait(31)
    new = worker.take_one()
    (refusal,) = rig.ack(worker, old)
    assert refusal.why == "it was handed out again"
    assert rig.ack(worker, new) == []
    assert rig.ack(worker, new) == []
    (refusal,) = rig.ack(worker, old)
    assert refusal.why == "it was handed out again"
    rig = rig.restart()
    worker = rig.attach(policy=SubscriptionPolicy(qos=2))
    (refusal,) = rig.ack(worker, old)
    assert refusal.why == "it was handed out again"
    assert rig.ack(worker, new) == []


# -- consume, transform, produce -----------------------------------------------------------------


INPUTS = [b"%d" % number for number in range(5)]


class Copier:
    """Takes from `orders`, puts into `out`, one message a unit; dies and is started again.

    Each life has an epoch of its own, so that nothing but the unit prevents a second effect.
    """

    def __init__(self, rig: Rig, worker: Worker, epoch: int) -> None:
        self.rig = rig
        self.worker = worker
        self.epoch = epoch
        self.sequence = 0

    def work(self) -> None:
        while self.worker.slices:
            for each in self.worker.take():
                batch = encode_many([b"out %d" % each.start])
                parts = [Part("out", 0, batch, 1, self.epoch, self.sequence)]
                wish = UnitWish(NAMED, self.epoch, self.sequence, parts)
                self.sequence += 1
                commit(self.rig, wish, acks(self.worker, each))


def test_a_copy_loop_crashed_at_every_operation_has_each_effect_once() -> None:
    """Every operation on the disk × every way power can fail; then the loop runs to its end."""
    clock = ManualClock()
    disk = MemoryDisk(record=True)
    rig = Rig(disk, clock)
    rig.publish("out", b"begin", publisher=GENERATED)
    rig.publish("orders", *INPUTS)
    worker = rig.attach(credit=1)
    images: list[Image] = []
    disk.on_operation = lambda _: images.extend(
        image for _, image in disk.crash_images(ALL_POLICIES, seed=2)
    )
    Copier(rig, worker, 0).work()
    disk.on_operation = None
    images.append(disk.image())
    expected = [b"begin", *(b"out %d" % number for number in range(5))]
    assert rig.held("out") == expected
    assert len(images) > 30
    found_at = set()
    for image in images:
        fresh = Rig(MemoryDisk.from_image(image, record=True), clock)
        done = len(fresh.held("out")) - 1
        found_at.add(done)
        assert fresh.counts().acked == done, "a torn unit"
        Copier(fresh, fresh.attach(credit=1), 1).work()
        assert fresh.held("out") == expected
        assert fresh.counts().acked == 5
        assert unexplained(fresh.counts()) == 0
    assert found_at == set(range(6))


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=5), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_a_copy_loop_that_dies_again_and_again_has_each_effect_once(
    deaths: list[tuple[int, bool]], credit: int
) -> None:
    """It is killed before some operation of each life, with or without what was not synced."""
    rig = Rig()
    rig.publish("out", b"begin", publisher=GENERATED)
    rig.publish("orders", *INPUTS)
    rig.attach(is_settled=False)
    rig.settle()
    clock = rig.clock
    image = rig.disk.image()
    for life, (steps, keeps) in enumerate([*deaths, (1000, True)]):
        disk = MemoryDisk.from_image(image, record=True)
        rig = Rig(disk, clock)
        left = steps

        def step(_op: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt

        disk.on_operation = step
        try:
            Copier(rig, rig.attach(credit=credit), life + 1).work()
        except KeyboardInterrupt:
            policy = Policy.KEEP_ALL if keeps else Policy.DROP_ALL
            ((_, image),) = disk.crash_images([policy], seed=life)
        else:
            disk.on_operation = None
            image = disk.image()
        clock.advance(100)
    outputs = rig.held("out")[1:]
    assert sorted(str(each) for each in outputs) == sorted({str(each) for each in outputs})
    assert rig.counts().acked == 5
    assert unexplained(rig.counts()) == 0
    if credit == 1:
        assert len(outputs) == 5


def test_a_unit_is_skipped_part_by_part_when_a_snapshot_saw_only_one_topic() -> None:
    rig = Rig()
    worker = rig.attach()
    rig.publish("orders", b"a")
    rig.publish("out", b"before")
    given = worker.take_one()
    draft = rig.journal.begin_snapshot(rig.engine.applied_end, rig.engine.applied_records)
    wish = UnitWish(NAMED, 0, 0, [part(rig, "out", b"x")])
    commit(rig, wish, acks(worker, given))
    rig.journal.finish_snapshot(draft, pieces(rig.engine))
    rig = rig.crash()
    assert rig.held("out") == [b"before", b"x"]
    assert (rig.counts().acked, unexplained(rig.counts())) == (1, 0)
    assert commit(rig, wish)[0].is_duplicate


def test_a_unit_is_written_as_one_unit_record() -> None:
    rig = Rig()
    seen: list[Any] = []
    submit = rig.engine.submit

    def watch(record: Any, waiter: Any, *, urgent: bool = True) -> None:
        seen.append((type(record), urgent))
        submit(record, waiter, urgent=urgent)

    rig.publish("out", b"before")
    rig.engine.submit = watch  # type: ignore[method-assign]
    commit(rig, UnitWish(NAMED, 0, 0, [part(rig, "out", b"x")]))
    assert seen == [(Unit, True)]


def test_salvage_keeps_the_messages_the_acks_and_the_outcome_of_a_unit() -> None:
    rig = Rig()
    worker = rig.attach()
    rig.publish("orders", b"a", b"b")
    given = worker.take_one()
    wish = UnitWish(NAMED, 0, 0, [part(rig, "out", b"x")])
    only_first = [(worker.consumer, [claim(given, (0, 1))])]
    commit(rig, wish, only_first)
    target = MemoryDisk(record=True)
    salvage(MemoryDisk.from_image(rig.disk.image()), target, rig.settings, rig.clock)
    fresh = Rig(target, rig.clock)
    assert fresh.held("out") == [b"x"]
    assert fresh.attach().bodies == [b"b"]
    assert commit(fresh, wish)[0].is_duplicate
    assert fresh.held("out") == [b"x"]
