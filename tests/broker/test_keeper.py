"""Housekeeping: snapshots when due, compaction that keeps what lives, dead letters that move."""

import pytest

from penstock.batch import Batch, encode_many
from penstock.broker.explaining import explain_topic
from penstock.broker.keeper import DEAD_RETRY_MS, KeeperState
from penstock.broker.mailbox import DIRECT, Pending
from penstock.delivery import admin
from penstock.delivery.state import Cursor
from penstock.journal.segment import SEGMENT_PREFIX
from penstock.vocabulary.message import Message, render_id
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause, Copied, Record
from tests.broker.rig import NAMED, SETTINGS, Rig, Worker, claim


@pytest.fixture
def rig() -> Rig:
    return Rig()


def fill(rig: Rig, count: int, size: int = 300) -> Worker:
    """A worker that holds `count` messages, most segments of which are sealed."""
    worker = rig.attach()
    for number in range(count):
        rig.publish("orders", b"%06d" % number + bytes(size))
    return worker


def ack_except(rig: Rig, worker: Worker, *kept: int) -> None:
    for part in worker.take():
        if part.start not in kept:
            rig.ack(worker, part)


# -- snapshots ---------------------------------------------------------------------------------


def test_a_fresh_store_needs_no_snapshot(rig: Rig) -> None:
    rig.clock.advance(3600)
    rig.keeper.snapshot()
    rig.clock.advance(3600)
    assert not rig.keeper.is_snapshot_due()


def test_a_snapshot_is_due_a_minute_after_the_last_when_something_was_written(rig: Rig) -> None:
    rig.publish()
    rig.clock.advance(59)
    assert not rig.keeper.is_snapshot_due()
    rig.clock.advance(1)
    assert rig.keeper.is_snapshot_due()
    rig.keeper.snapshot()
    assert not rig.keeper.is_snapshot_due()


def test_a_snapshot_is_due_after_enough_log_but_not_within_a_second(rig: Rig) -> None:
    rig.publish()
    rig.journal.bytes_since_snapshot = SETTINGS.snapshot_bytes
    assert not rig.keeper.is_snapshot_due()
    rig.clock.advance(1)
    assert rig.keeper.is_snapshot_due()


def test_a_snapshot_is_due_while_a_segment_waits_for_it(rig: Rig) -> None:
    worker = fill(rig, 30)
    ack_except(rig, worker)
    rig.clock.advance(1)
    for _ in range(2):
        assert rig.journal.waiting_segments()
        assert rig.keeper.is_snapshot_due()
        rig.keeper.snapshot()
        assert not rig.keeper.is_snapshot_due()
        rig.clock.advance(1)
    rig.journal.free_segments()
    assert not rig.journal.waiting_segments()
    assert not rig.keeper.is_snapshot_due()


def test_after_a_slow_snapshot_there_is_a_longer_pause(rig: Rig) -> None:
    worker = fill(rig, 30)
    ack_except(rig, worker)
    rig.keeper.state.snapshot_ms = 700
    rig.clock.advance(6.9)
    assert not rig.keeper.is_snapshot_due()
    rig.clock.advance(0.1)
    assert rig.keeper.is_snapshot_due()


def test_a_failed_journal_takes_no_snapshots(rig: Rig) -> None:
    rig.publish()
    rig.clock.advance(100)
    rig.journal.failed = rig.journal._fail("test", OSError("no"))
    assert not rig.keeper.is_snapshot_due()


def test_after_two_snapshots_empty_segments_are_used_again(rig: Rig) -> None:
    worker = fill(rig, 60)
    ack_except(rig, worker)
    before = rig.journal.disk_bytes
    rig.keeper.snapshot()
    rig.keeper.snapshot()
    assert rig.journal.free_segments() > 3
    assert rig.journal.disk_bytes < before / 2


def test_the_state_after_a_snapshot_is_the_state_before(rig: Rig) -> None:
    worker = fill(rig, 20)
    ack_except(rig, worker, 3, 7)
    rig.keeper.snapshot()
    again = rig.crash()
    assert again.journal.report.snapshot is not None
    assert [(body or b"")[:6] for body in again.held()] == [b"000003", b"000007"]
    assert again.counts().acked == 18


# -- compaction --------------------------------------------------------------------------------


def compact_all(rig: Rig) -> int:
    rounds = 0
    while (segment := rig.keeper.sparse_segment()) is not None:
        rig.keeper.compact(segment)
        rounds += 1
        assert rounds < 100
    rig.keeper.snapshot()
    rig.keeper.snapshot()
    rig.journal.free_segments()
    return rounds


def test_a_full_store_has_no_segment_worth_copying(rig: Rig) -> None:
    fill(rig, 60, 150)
    assert rig.broker.stats()["segments"] > 8
    assert rig.keeper.sparse_segment() is None


def test_a_small_store_is_left_alone(rig: Rig) -> None:
    worker = fill(rig, 8)
    ack_except(rig, worker, 0)
    assert rig.keeper.sparse_segment() is None


def test_compaction_keeps_only_live_messages_and_the_disk_shrinks(rig: Rig) -> None:
    worker = fill(rig, 100)
    ack_except(rig, worker, *range(0, 100, 10))
    before = rig.journal.disk_bytes
    assert compact_all(rig) > 3
    assert rig.journal.disk_bytes < before / 3
    assert [(body or b"")[:6] for body in rig.held()] == [b"%06d" % n for n in range(0, 100, 10)]


def test_compacted_messages_survive_a_crash_with_and_without_the_snapshot(rig: Rig) -> None:
    worker = fill(rig, 100)
    ack_except(rig, worker, *range(0, 100, 10))
    expected = rig.held()
    segment = rig.keeper.sparse_segment()
    assert segment is not None
    rig.keeper.compact(segment)
    assert rig.crash().held() == expected
    compact_all(rig)
    again = rig.crash()
    assert again.held() == expected
    assert again.counts().waiting == 10


def test_a_compacted_message_is_delivered_and_acked_like_any_other(rig: Rig) -> None:
    worker = fill(rig, 100)
    ack_except(rig, worker, 30, 60)
    rig.detach(worker)
    compact_all(rig)
    fresh = rig.attach()
    assert [(body or b"")[:6] for body in fresh.bodies] == [b"000030", b"000060"]
    for part in fresh.take():
        assert rig.ack(fresh, part) == []
    assert rig.held() == []
    assert rig.broker.stats()["messages_held"] == 0


@pytest.mark.parametrize("is_durable_first", [False, True])
def test_a_message_acked_while_it_is_being_copied_stays_acked(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, is_durable_first: bool
) -> None:
    worker = fill(rig, 100)
    parts = worker.take()
    for part in parts:
        if part.start % 10:
            rig.ack(worker, part)
    segment = rig.keeper.sparse_segment()
    assert segment is not None
    ((_, ranges),) = rig.journal.index.spans_in(segment.sequence)
    there = {offset for low, high in ranges for offset in range(low, high)}
    kept = next(part for part in parts if part.start % 10 == 0 and part.start in there)
    call = rig.engine.call

    def call_late(record: Record | None) -> None:
        rig.broker.ack(worker.consumer, [claim(kept)])
        if is_durable_first:
            rig.settle()
        call(record)

    monkeypatch.setattr(rig.engine, "call", call_late)
    rig.keeper.compact(segment)
    rig.settle()
    numbers = [int((body or b"")[:6]) for body in rig.held()]
    assert kept.start not in numbers
    assert segment.live == 0
    assert sum(each.live for each in rig.journal.index.segments.values()) == 9
    assert len(rig.crash().held()) == 9


def test_only_what_is_held_is_copied(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = fill(rig, 100, 150)
    ack_except(rig, worker, *range(0, 100, 5))
    copied: list[int] = []
    call = rig.engine.call

    def watch(record: Record | None) -> None:
        if isinstance(record, Copied):
            copied.extend(record.offsets)
        call(record)

    monkeypatch.setattr(rig.engine, "call", watch)
    compact_all(rig)
    assert copied
    assert [offset for offset in copied if offset % 5] == []


def test_a_compacted_message_keeps_id_time_key_headers_and_attempts(rig: Rig) -> None:
    worker = rig.attach()
    message = Message(body=bytes(200), key="k", headers={"type": "x"}, priority=2)
    batch = encode_many([message, Message(body=b"", id="given", priority=2)])
    rig.broker.publish("orders", 0, batch, 2, NAMED, 0, 0, DIRECT, Pending())
    rig.settle()
    first = rig.clock.wall()
    rig.sequences["orders", 0, NAMED, 0] = 2
    rig.clock.advance(100)
    for number in range(60):
        rig.publish("orders", b"%06d" % number + bytes(300))
    ack_except(rig, worker, 0)
    compact_all(rig)
    frames = [frame for _, frame in rig.broker.held("orders")]
    views = [(frame, Batch(frame.batch), index) for frame in frames for index in frame.indexes]
    assert [frame.id_of(view, i) for frame, view, i in views] == [
        render_id(NAMED, 0, 0), "given",
    ]  # fmt: skip
    assert [frame.published_at_of(view, i) for frame, view, i in views] == [first, first]
    assert [(view.keys or [])[i] for _, view, i in views] == ["k", None]
    assert [(view.headers or [])[i] for _, view, i in views] == [{"type": "x"}, None]
    assert [view.bodies[i] for _, view, i in views] == [bytes(200), b""]


def test_a_damaged_message_stops_the_copying_of_its_segment_and_is_reported(rig: Rig) -> None:
    worker = fill(rig, 100)
    ack_except(rig, worker, *range(0, 100, 10))
    segment = rig.keeper.sparse_segment()
    assert segment is not None
    key, ranges = rig.journal.index.spans_in(segment.sequence)[0]
    offset = next(o for low, high in ranges for o in range(low, high) if o % 10 == 0)
    (place,) = rig.journal.index.locate(key, offset, offset + 1)
    place.segment.file.pwrite(place.byte + 100, b"\xee")
    rig.journal._cache.clear()
    rig.keeper.compact(segment)
    assert segment.is_damaged
    assert rig.counts().dropped == 1
    assert rig.broker.health()["status"] == "degraded"
    assert len(rig.held()) == 9


def test_the_topic_of_a_segment_may_be_gone_when_it_is_compacted(rig: Rig) -> None:
    worker = fill(rig, 60)
    rig.publish("other", bytes(300))
    ack_except(rig, worker, *range(0, 60, 20))
    segment = rig.keeper.sparse_segment()
    assert segment is not None
    rig.detach(worker)
    rig.broker.delete_topic("orders")
    rig.keeper.compact(segment)
    assert rig.crash().held("other") == [bytes(300)]


# -- dead letters ------------------------------------------------------------------------------


def reject(rig: Rig, worker: Worker, count: int = 1) -> None:
    rig.publish("orders", *[b"bad %d" % n for n in range(count)])
    rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED, reason="no good")


def test_doomed_messages_are_moved_once(rig: Rig) -> None:
    reject(rig, rig.attach(), 3)
    assert rig.keeper.move_doomed()
    assert not rig.keeper.move_doomed()
    assert rig.held("orders.dead.billing") == [b"bad 0", b"bad 1", b"bad 2"]
    assert rig.held() == []
    assert rig.counts().dead == 3


def test_many_doomed_messages_are_moved_in_modest_units(rig: Rig) -> None:
    reject(rig, rig.attach(), 250)
    rig.keeper.move_doomed()
    assert len(rig.held("orders.dead.billing")) == 250


def test_a_doomed_message_is_moved_after_a_crash(rig: Rig) -> None:
    reject(rig, rig.attach())
    again = rig.crash()
    assert again.keeper.move_doomed()
    assert again.held("orders.dead.billing") == [b"bad 0"]
    assert again.counts().dead == 1


def test_a_move_that_was_not_durable_happens_again_after_a_crash(rig: Rig) -> None:
    reject(rig, rig.attach())
    image = rig.disk.image()
    rig.keeper.move_doomed()
    again = Rig(type(rig.disk).from_image(image, record=True), rig.clock)
    again.keeper.move_doomed()
    assert again.held("orders.dead.billing") == [b"bad 0"]


def full(rig: Rig, name: str = "billing", dead_bytes_max: int = 10) -> Worker:
    policy = SubscriptionPolicy(dead_bytes_max=dead_bytes_max, retry=Retry(max_attempts=1))
    return rig.attach(subscription=name, policy=policy)


def test_a_full_dead_letter_topic_lets_the_message_wait_loudly(rig: Rig) -> None:
    reject(rig, full(rig))
    assert not rig.keeper.move_doomed()
    assert rig.counts().waiting == 1
    health = rig.broker.health()
    assert health["status"] == "degraded"
    assert "orders.dead.billing" in health["reasons"][0]


def test_a_full_dead_letter_topic_is_tried_again_after_a_while(rig: Rig) -> None:
    worker = full(rig)
    reject(rig, worker)
    rig.keeper.move_doomed()
    rig.broker.alter_subscription("orders", "billing", {"dead_bytes_max": 10_000})
    assert not rig.keeper.move_doomed()
    rig.clock.advance(DEAD_RETRY_MS / 1000)
    assert rig.keeper.move_doomed()
    assert rig.broker.health()["status"] == "ok"
    assert rig.counts().dead == 1


def test_one_full_dead_letter_topic_does_not_stop_or_silence_the_others(rig: Rig) -> None:
    blocked, free = full(rig, "billing"), full(rig, "audit", 10_000)
    rig.publish("orders", b"bad")
    for worker in (blocked, free):
        rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED)
    rig.keeper.move_doomed()
    assert rig.counts(name="audit").dead == 1
    assert rig.counts(name="billing").waiting == 1
    assert rig.broker.health()["status"] == "degraded"


def test_a_full_dead_letter_topic_does_not_delay_what_fails_elsewhere_later(rig: Rig) -> None:
    blocked, free = full(rig, "billing"), full(rig, "audit", 10_000)
    rig.publish("orders", b"bad")
    rig.give_back(blocked, blocked.take_one(), cause=Cause.REJECTED)
    rig.keeper.move_doomed()
    rig.give_back(free, free.take_one(), cause=Cause.REJECTED)
    assert rig.keeper.move_doomed()
    assert rig.counts(name="audit").dead == 1
    assert rig.broker.health()["status"] == "degraded"


LONG = "t" * 200
WIDE = "s" * 100


def with_nameless_dead_letters(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A store of a version that did not look whether dead letters can be named, opened again."""
    with monkeypatch.context() as patched:
        patched.setattr(admin, "check_dead", lambda *_: None)
        rig.broker.create_subscription(LONG, WIDE, SubscriptionPolicy(), None)
    return rig.restart()


def test_a_subscription_without_a_possible_dead_letter_topic_serves_and_says_so_loudly(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = with_nameless_dead_letters(rig, monkeypatch)
    worker = rig.attach(LONG, WIDE)
    rig.publish(LONG, b"good", b"bad")
    part = worker.take_one()
    rig.ack(worker, part, (0, 1))
    rig.give_back(worker, part, (1, 2), cause=Cause.REJECTED)
    assert not rig.keeper.move_doomed()
    assert rig.counts(LONG, WIDE).waiting == 1
    health = rig.broker.health()
    assert health["status"] == "degraded"
    assert "over the limit of 255" in health["reasons"][0]
    found = explain_topic(rig.broker, LONG, WIDE, position="0:1")
    assert found["reason"] == "dead-letter-impossible"
    assert "over the limit of 255" in found["text"]
    assert "seek past it" in found["text"]


def test_a_subscription_that_cannot_bury_its_dead_holds_up_no_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = with_nameless_dead_letters(rig, monkeypatch)
    bad, good = rig.attach(LONG, WIDE), rig.attach()
    rig.publish(LONG, b"bad")
    rig.publish("orders", b"bad")
    rig.give_back(bad, bad.take_one(), cause=Cause.REJECTED)
    rig.give_back(good, good.take_one(), cause=Cause.REJECTED)
    assert rig.keeper.move_doomed()
    assert rig.held("orders.dead.billing") == [b"bad"]


def test_a_defect_met_with_one_subscription_leaves_the_others_in_line(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = {name: rig.attach(subscription=name) for name in ("billing", "audit")}
    rig.publish("orders", b"bad")
    for worker in workers.values():
        rig.give_back(worker, worker.take_one(), cause=Cause.REJECTED)
    move = rig.keeper._move

    def failing(cursor: Cursor) -> bool:
        if cursor.subscription.name == "billing":
            raise RuntimeError("a defect")
        return move(cursor)

    monkeypatch.setattr(rig.keeper, "_move", failing)
    with pytest.raises(RuntimeError):
        rig.keeper.move_doomed()
    rig.keeper.move_doomed()
    assert rig.counts(name="audit").dead == 1
    assert rig.broker.health()["reasons"] == ["a defect"]
    monkeypatch.undo()
    rig.clock.advance(DEAD_RETRY_MS / 1000)
    rig.keeper.move_doomed()
    assert rig.counts(name="billing").dead == 1
    assert rig.broker.health()["status"] == "ok"


def test_a_deleted_subscription_leaves_nothing_to_move(rig: Rig) -> None:
    worker = rig.attach()
    reject(rig, worker)
    rig.detach(worker)
    rig.broker.delete_subscription("orders", "billing")
    assert not rig.keeper.move_doomed()
    assert "orders.dead.billing" not in rig.broker.state.names


def test_the_keeper_starts_with_nothing_to_remember() -> None:
    state = KeeperState()
    assert (state.blocked, state.snapshot_end) == ({}, 0)


def test_live_bytes_follow_what_is_held(rig: Rig) -> None:
    worker = fill(rig, 40, 150)
    segment = rig.journal.index.segments[3]
    whole = rig.keeper.live_bytes(segment)
    ack_except(rig, worker, *range(0, 40, 2))
    assert 0.3 * whole < rig.keeper.live_bytes(segment) < 0.7 * whole
    assert len([name for name in rig.disk.names() if name.startswith(SEGMENT_PREFIX)]) > 3
