"""Group commit: who shares a sync, who is answered when, and what is never answered."""

import errno
from typing import Any

import msgspec
import pytest

from penstock.batch import encode_many
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.rebuild import pieces
from penstock.delivery import admin
from penstock.delivery.dead import decide_redrive
from penstock.journal.memory import MemoryDisk, Op, Verb
from penstock.vocabulary import limits
from penstock.vocabulary.errors import Closed, PenstockError, StoreFailed
from penstock.vocabulary.message import Durability, Message
from penstock.vocabulary.policy import OnDuplicate, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause, Removed
from tests.broker.rig import SETTINGS, Rig, claim

WIDE = msgspec.structs.replace(SETTINGS, segment_bytes_min=1 << 20, segment_bytes_max=1 << 20)


@pytest.fixture
def rig() -> Rig:
    return Rig()


class Watch:
    """Remembers what happened on the disk and who was answered, in order."""

    def __init__(self, rig: Rig) -> None:
        self.seen: list[str] = []
        rig.disk.on_operation = self._operation

    def _operation(self, op: Op) -> None:
        if op.file.startswith("segment"):
            self.seen.append(op.verb.value)

    def target(self, name: str) -> Any:
        return lambda _answer: self.seen.append(name)


def fail_on(rig: Rig, verb: Verb) -> None:
    def fail(op: Op) -> None:
        if op.verb is verb:
            raise OSError(errno.EIO, "the disk is gone")

    rig.disk.on_operation = fail


# -- group commit ------------------------------------------------------------------------------


def test_many_publishes_share_one_sync() -> None:
    rig = Rig(settings=WIDE)
    rig.publish()
    before = rig.syncs()
    waiting = [rig.submit() for _ in range(15)]
    assert rig.engine.commit_once()
    assert rig.syncs() == before + 1
    assert [pending.wait().base for pending in waiting] == list(range(1, 16))


def test_publishes_acks_and_administration_share_one_sync() -> None:
    rig = Rig(settings=WIDE)
    worker = rig.attach()
    rig.publish("orders", b"a", b"b")
    (part,) = worker.take()
    before = rig.syncs()
    rig.submit()
    rig.broker.ack(worker.consumer, [claim(part, (0, 1))])
    rig.broker.give_back(worker.consumer, claim(part, (1, 2)), Cause.NACKED, 1, "")
    rig.broker.create_topic("fresh", 1, TopicPolicy())
    assert rig.syncs() == before + 1


def test_a_group_larger_than_a_segment_takes_one_sync_per_segment_and_loses_nothing(
    rig: Rig,
) -> None:
    rig.attach()
    waiting = [rig.submit("orders", bytes(900)) for _ in range(20)]
    rig.settle()
    assert [pending.wait().base for pending in waiting] == list(range(20))
    assert rig.broker.stats()["segments"] > 4


def test_with_nothing_to_do_nothing_is_written(rig: Rig) -> None:
    before = len(rig.disk.trace)
    assert not rig.engine.commit_once()
    assert len(rig.disk.trace) == before


def test_a_publish_is_answered_after_its_sync_and_not_before(rig: Rig) -> None:
    rig.publish()
    watch = Watch(rig)
    rig.broker.publish(
        "orders", 0, b"\0" * 40, 1, b"\x05" * 16, 0, 0, DIRECT, watch.target("answered")
    )
    rig.engine.commit_once()
    assert watch.seen == ["write", "sync", "answered"]


def test_a_message_reaches_a_consumer_after_its_sync_and_not_before(rig: Rig) -> None:
    worker = rig.attach()
    seen: list[str] = []
    rig.disk.on_operation = lambda op: seen.append(f"{op.verb} with {len(worker.slices)}")
    rig.submit()
    assert worker.slices == []
    rig.engine.commit_once()
    assert seen == ["write with 0", "sync with 0"]
    assert len(worker.slices) == 1


def test_everything_read_after_a_crash_during_the_sync_was_confirmed_or_not_seen(rig: Rig) -> None:
    worker = rig.attach()
    pending = rig.submit()
    fail_on(rig, Verb.SYNC)
    rig.engine.commit_once()
    assert isinstance(pending.answer, StoreFailed)
    assert worker.slices == []


# -- topics that are only written --------------------------------------------------------------


def written(rig: Rig) -> Rig:
    policy = TopicPolicy(durability=Durability.WRITTEN)
    rig.broker.create_topic("quick", 1, policy)
    return rig


def test_a_publish_to_a_written_topic_is_answered_between_write_and_sync(rig: Rig) -> None:
    written(rig)
    watch = Watch(rig)
    batch = b"\0" * 40
    rig.broker.publish("quick", 0, batch, 1, b"\x05" * 16, 0, 0, DIRECT, watch.target("quick"))
    rig.broker.publish("orders", 0, batch, 1, b"\x05" * 16, 0, 0, DIRECT, watch.target("orders"))
    rig.engine.commit_once()
    assert watch.seen == ["write", "quick", "sync", "orders"]


def test_a_message_of_a_written_topic_reaches_its_consumer_before_the_sync(rig: Rig) -> None:
    written(rig)
    worker = rig.attach("quick")
    seen: list[str] = []
    rig.disk.on_operation = lambda op: seen.append(f"{op.verb} with {len(worker.slices)}")
    rig.submit("quick")
    rig.engine.commit_once()
    assert seen == ["write with 0", "sync with 1"]


def test_an_answer_of_a_written_topic_says_so(rig: Rig) -> None:
    assert written(rig).publish("quick").durability is Durability.WRITTEN
    assert rig.publish().durability is Durability.SYNCED


def test_a_written_topic_is_answered_once_even_when_the_sync_fails(rig: Rig) -> None:
    written(rig)
    answers: list[object] = []
    batch = b"\0" * 40
    rig.broker.publish("quick", 0, batch, 1, b"\x05" * 16, 0, 0, DIRECT, answers.append)
    fail_on(rig, Verb.SYNC)
    rig.engine.commit_once()
    assert len(answers) == 1
    assert not isinstance(answers[0], Exception)


def test_offsets_of_a_written_topic_stay_in_order_beside_a_redrive(rig: Rig) -> None:
    """A unit is applied after the sync, a publish to the same topic may not overtake it."""
    written(rig)
    worker = rig.attach("quick")
    rig.publish("quick", b"bad")
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED)
    rig.keeper.move_doomed()
    rig.broker.engine.submit(_redrive_unit(rig), None)
    rig.submit("quick", b"new")
    rig.settle()
    partition = rig.broker.state.names["quick"].partitions[0]
    assert (partition.next_offset, partition.lost) == (3, None)
    assert sorted(body or b"" for body in worker.bodies) == [b"bad", b"new"]
    assert rig.counts("quick").dropped == 0


def _redrive_unit(rig: Rig) -> Any:
    dead = rig.broker.state.names["quick.dead.billing"].partitions[0]
    frames = [frame for _, frame in rig.broker.held("quick.dead.billing")]
    return decide_redrive(rig.subscription("quick"), dead, frames, rig.clock.wall())


def test_a_snapshot_waits_while_a_written_publish_is_not_yet_synced(rig: Rig) -> None:
    written(rig)
    states: list[bool] = []

    def look(op: Op) -> None:
        if op.verb is Verb.SYNC:
            states.append(rig.engine.unsynced.locked())

    rig.disk.on_operation = look
    rig.submit("quick")
    rig.engine.commit_once()
    assert states == [True]
    assert not rig.engine.unsynced.locked()
    assert len(list(pieces(rig.engine))) >= 2


# -- flush -------------------------------------------------------------------------------------


def test_flush_is_answered_after_everything_decided_before_it(rig: Rig) -> None:
    rig.publish()
    watch = Watch(rig)
    batch = b"\0" * 40
    rig.broker.publish("orders", 0, batch, 1, b"\x05" * 16, 0, 0, DIRECT, watch.target("first"))
    rig.broker.flush(DIRECT, watch.target("flushed"))
    rig.engine.commit_once()
    assert watch.seen == ["write", "sync", "first", "flushed"]


def test_flush_with_nothing_pending_is_answered_without_writing(rig: Rig) -> None:
    before = len(rig.disk.trace)
    pending = Pending()
    rig.broker.flush(DIRECT, pending)
    assert rig.engine.has_pending
    rig.engine.commit_once()
    assert pending.wait() is None
    assert len(rig.disk.trace) == before


def test_an_ack_is_durable_once_flush_is_answered(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish()
    rig.broker.ack(worker.consumer, [claim(worker.take_one())])
    pending = Pending()
    rig.broker.flush(DIRECT, pending)
    rig.settle()
    assert pending.is_done
    assert rig.crash().counts().acked == 1


def test_flush_after_a_failure_does_not_claim_that_acks_are_durable(rig: Rig) -> None:
    worker = rig.attach()
    rig.publish()
    rig.broker.ack(worker.consumer, [claim(worker.take_one())])
    fail_on(rig, Verb.SYNC)
    rig.engine.commit_once()
    rig.disk.on_operation = None
    pending = Pending()
    rig.broker.flush(DIRECT, pending)
    rig.engine.commit_once()
    with pytest.raises(StoreFailed):
        pending.wait()


# -- failure -----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.SYNC])
def test_after_a_failure_every_waiter_hears_it_and_nobody_is_confirmed(
    rig: Rig, verb: Verb
) -> None:
    rig.publish()
    waiting = [rig.submit() for _ in range(3)]
    flush = Pending()
    rig.broker.flush(DIRECT, flush)
    fail_on(rig, verb)
    rig.engine.commit_once()
    for pending in (*waiting, flush):
        with pytest.raises(StoreFailed):
            pending.wait()


def test_after_a_failure_publishes_and_acks_are_refused_until_the_store_is_opened_again(
    rig: Rig,
) -> None:
    worker = rig.attach()
    rig.publish()
    part = worker.take_one()
    rig.submit()
    fail_on(rig, Verb.SYNC)
    rig.engine.commit_once()
    rig.disk.on_operation = None
    with pytest.raises(StoreFailed):
        rig.submit()
    with pytest.raises(StoreFailed):
        rig.broker.ack(worker.consumer, [claim(part)])
    assert rig.broker.health()["status"] == "failed"


def test_a_consumer_is_told_when_the_store_fails(rig: Rig) -> None:
    worker = rig.attach()
    rig.submit()
    fail_on(rig, Verb.SYNC)
    rig.engine.commit_once()
    assert [type(error) for error in worker.closed] == [StoreFailed]


def test_what_was_confirmed_before_a_failure_is_there_after_it(rig: Rig) -> None:
    rig.attach()
    rig.publish("orders", b"safe")
    rig.submit("orders", b"doubtful")
    rig.disk.drop_on_failed_sync = True
    fail_on(rig, Verb.SYNC)
    rig.engine.commit_once()
    rig.disk.on_operation = None
    assert rig.crash().held() == [b"safe"]


def test_a_retry_after_a_failure_is_stored_once(rig: Rig) -> None:
    rig.attach()
    rig.publish("orders", b"a")
    rig.submit("orders", b"b", sequence=1)
    fail_on(rig, Verb.SYNC)
    rig.engine.commit_once()
    rig.disk.on_operation = None
    again = rig.crash()
    again.publish("orders", b"b", sequence=1)
    assert again.held() == [b"a", b"b"]


# -- back-pressure -----------------------------------------------------------------------------


def test_there_is_room_until_too_much_is_decided_and_not_yet_written(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PENDING_BYTES_MAX", 1000)
    told: list[object] = []
    waiter = (DIRECT, told.append, "room")
    assert rig.broker.when_room(waiter)
    rig.submit("orders", bytes(2000))
    assert not rig.broker.when_room(waiter)
    assert told == []
    rig.settle()
    assert told == ["room"]
    assert rig.broker.when_room(waiter)


def test_whoever_waits_for_room_hears_of_a_failure(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PENDING_BYTES_MAX", 1000)
    told: list[object] = []
    rig.submit("orders", bytes(2000))
    rig.broker.when_room((DIRECT, told.append, "room"))
    fail_on(rig, Verb.SYNC)
    rig.engine.commit_once()
    assert [type(answer) for answer in told] == [StoreFailed]


def test_nobody_waits_for_room_after_a_failure(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PENDING_BYTES_MAX", 1000)
    rig.publish()

    def fail(op: Op) -> None:
        if op.verb is Verb.SYNC:
            rig.disk.on_operation = None
            rig.submit("orders", bytes(2000))
            raise OSError(errno.EIO, "the disk is gone")

    rig.submit()
    rig.disk.on_operation = fail
    rig.engine.commit_once()
    assert rig.broker.when_room((DIRECT, lambda _: None, None))


# -- handing over ------------------------------------------------------------------------------


def test_messages_in_memory_are_handed_over_at_once(rig: Rig) -> None:
    worker = rig.attach()
    rig.submit("orders", b"a", b"b")
    rig.engine.commit_once()
    assert worker.bodies == [b"a", b"b"]
    assert not rig.engine.jobs


def test_messages_that_are_only_on_disk_are_read_by_the_worker(rig: Rig) -> None:
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    rig.publish("orders", b"a", b"b")
    rig.journal._cache.clear()
    worker = rig.attach(is_settled=False)
    while rig.engine.commit_once():
        pass
    assert worker.slices == []
    assert rig.engine.run_jobs()
    assert worker.bodies == [b"a", b"b"]


def test_slices_arrive_in_order_even_when_the_first_must_be_read_from_disk(rig: Rig) -> None:
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    rig.publish("orders", b"a")
    rig.journal._cache.clear()
    worker = rig.attach(is_settled=False)
    rig.engine.commit_once()
    rig.submit("orders", b"b")
    rig.engine.commit_once()
    rig.settle()
    assert worker.bodies == [b"a", b"b"]


def test_after_a_crash_a_slice_is_handed_over_only_when_its_delivery_is_durable(rig: Rig) -> None:
    rig.attach()
    rig.publish("orders", b"a")
    again = rig.crash()
    worker = again.attach(is_settled=False)
    again.engine.commit_once()
    again.engine.run_jobs()
    assert worker.slices == []
    again.engine.commit_once()
    again.engine.run_jobs()
    assert worker.take_one().attempt == 2


def test_after_an_abrupt_loss_a_slice_is_handed_over_only_when_its_delivery_is_durable(
    rig: Rig,
) -> None:
    lost = rig.attach(name="lost")
    rig.publish("orders", b"a", b"b")
    other = rig.attach(name="other")
    rig.broker.detach(lost.consumer, {}, DIRECT, Pending(), is_clean=False)
    rig.engine.commit_once()
    assert other.slices == []
    rig.engine.commit_once()
    assert other.take_one().attempt == 2


def test_what_comes_behind_a_strict_slice_waits_with_it(rig: Rig) -> None:
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    rig.publish("orders", b"old")
    again = rig.crash()
    worker = again.attach(is_settled=False)
    again.engine.commit_once()
    again.submit("orders", b"new")
    again.engine.commit_once()
    again.settle()
    assert worker.bodies == [b"old", b"new"]


def test_a_message_that_cannot_be_read_is_reported_and_dropped_and_the_rest_arrives(
    rig: Rig,
) -> None:
    rig.broker.create_subscription("orders", "billing", SubscriptionPolicy(), None)
    for body in (b"a", b"b", b"c"):
        rig.publish("orders", body)
    key = rig.broker.state.names["orders"].partitions[0].key
    (place,) = rig.journal.index.locate(key, 1, 2)
    place.segment.file.pwrite(place.byte + 30, b"\xff\xff")
    rig.journal._cache.clear()
    worker = rig.attach()
    assert worker.bodies == [b"a", b"c"]
    counted = rig.counts()
    assert (counted.dropped, counted.leased) == (1, 2)
    assert rig.broker.health()["status"] == "degraded"


# -- the end -----------------------------------------------------------------------------------


def test_a_closed_engine_says_so(rig: Rig) -> None:
    rig.broker.close()
    with pytest.raises(Closed):
        rig.engine.check_alive()
    with pytest.raises(PenstockError):
        rig.submit()


def test_a_record_for_a_topic_that_is_being_deleted_is_not_written(rig: Rig) -> None:
    rig.publish()
    topic = rig.broker.state.names["orders"]
    with rig.engine.lock:
        record = admin.decide_delete_topic(rig.broker.state, topic)
        rig.engine.submit(record, None)
    before = rig.journal.records
    rig.engine.call(Removed(topic.id, 0, ((0, 1),)))
    rig.settle()
    assert rig.journal.records == before + 1
    assert Rig(MemoryDisk.from_image(rig.disk.image()), settings=SETTINGS).broker.topics() == []


def test_what_a_unit_stores_behind_a_plain_publish_of_its_group_is_found(rig: Rig) -> None:
    policy = TopicPolicy(on_duplicate=OnDuplicate.REPLACE)
    rig.broker.create_topic("line", 1, policy)
    worker = rig.attach("line")
    rig.publish("line", b"first")
    for number, ids in enumerate((["a"], ["b", "b"])):
        batch = encode_many([Message(body=id.encode(), id=id) for id in ids])
        publisher = bytes([1, *[number] * 15])
        rig.broker.publish("line", 0, batch, len(ids), publisher, 0, 0, DIRECT, Pending())
    rig.settle()
    assert worker.bodies == [b"first", b"a", b"b"]
    assert rig.held("line") == [b"first", b"a", b"b"]
