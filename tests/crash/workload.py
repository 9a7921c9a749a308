"""Short workloads that together touch every operation of the broker.

A segment has 4 KiB and a group at least 512 bytes, so a handful of commands fills one.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any
from unittest import mock

import msgspec

from penstock.broker import rebuild
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause
from tests.crash.run import BOB, Holder, Run

LONG = bytes(range(256)) * 3
"""A body that makes a group span several sectors."""
SHORT_LEASE = SubscriptionPolicy(lease_s=1.0, retry=Retry(first_s=1.0, max_s=4.0, max_attempts=2))


# -- publishing -----------------------------------------------------------------------------------


def first_publishes(run: Run) -> None:
    """From an empty folder: the topic comes with its first message."""
    run.open()
    run.publish("orders", b"one")
    run.publish("orders", b"two", b"three", key="k", ids=["a", "b"])
    run.publish("bills", LONG, publisher=BOB)


def store_of_one_record(run: Run) -> None:
    """From a store that holds one record and was stopped in good order."""
    run.is_watched = False
    run.open()
    run.close()
    run.is_watched = True
    run.open()
    run.publish("orders", b"one")
    run.retry()


def several_publishers(run: Run) -> None:
    run.open()
    run.create_topic("orders", 2)
    run.subscribe("orders", "billing")
    run.publish("orders", b"a0", b"a1")
    run.publish("orders", b"a2", partition=1)
    run.publish("orders", b"b0", publisher=BOB)
    run.publish("orders", b"b1", b"b2", publisher=BOB, partition=1)
    run.publish("orders", b"a3")


def one_group_of_many(run: Run) -> None:
    """What arrives while a group is synced forms the next: several topics in one write."""
    run.open()
    run.create_topic("orders", 2)
    run.publish("orders", b"x" * 300, is_committed=False)
    run.publish("orders", b"y" * 500, partition=1, is_committed=False)
    run.publish("bills", b"z" * 300, is_committed=False)
    run.publish("bills", b"w" * 600, publisher=BOB)
    run.publish("orders", b"last")


def only_a_later_record_survives(run: Run) -> None:
    """Each record of the group has sectors of its own; a torn write may keep any of them."""
    run.open()
    run.publish("orders", b"0")
    run.publish("orders", b"1" * 420, is_committed=False)
    run.publish("orders", b"2" * 420, is_committed=False)
    run.publish("orders", b"3" * 200)
    run.publish("orders", b"4")


def retries(run: Run) -> None:
    """The same sequence again: after the answer, before it, and after the next batch."""
    run.open()
    run.publish("orders", b"one", b"two")
    run.retry()
    run.publish("orders", b"three", is_committed=False)
    run.retry(is_committed=False)
    run.commit()
    run.publish("orders", b"four")
    run.retry()


def publisher_comes_back(run: Run) -> None:
    """A new epoch is decided, and a snapshot taken, before it is durable."""
    run.open()
    run.publish("orders", b"one", b"two", publisher=BOB)
    run.publish("orders", b"three", publisher=BOB, is_new_epoch=True, is_committed=False)
    run.snapshot()
    run.commit()
    run.publish("orders", b"four", publisher=BOB)
    run.retry()
    run.publish("orders", b"five", publisher=BOB, is_new_epoch=True)


def full_segment(run: Run) -> None:
    """From a segment that is filled to its last byte: the next record begins another."""
    run.is_watched = False
    run.open()
    run.publish("orders", b"one")
    while _room(run) >= 4 * 512:
        run.publish("orders", b"fill")
    run.is_watched = True
    run.publish("orders", bytes(_room(run) - 512 - 512 - 192))
    run.publish("orders", b"over the edge")
    run.publish("orders", b"and on")


def _room(run: Run) -> int:
    segment = run.broker.journal.active
    assert segment is not None
    return segment.size - segment.end


# -- settling -------------------------------------------------------------------------------------


def acks_in_any_order(run: Run) -> None:
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", *(b"%d" % n for n in range(6)))
    run.ack(holder, 4)
    run.ack(holder, 0, 2)
    run.ack(holder, 5, is_committed=False)
    run.publish("orders", b"6")
    run.ack(holder, 1, 3, 6)


def two_subscriptions(run: Run) -> None:
    run.open()
    run.create_topic("orders", 2)
    first = run.attach("orders", "billing")
    second = run.attach("orders", "audit", SubscriptionPolicy())
    run.publish("orders", b"a", b"b", b"c")
    run.publish("orders", b"d", partition=1)
    run.ack(first, 0, 1, 2)
    run.ack(second, 1)
    run.ack(first, 0, partition=1)
    run.ack(second, 0, partition=1)


def nack_with_delay(run: Run) -> None:
    """Nacked, delayed, delivered again, acked: the old back-off must not bring it back."""
    run.open()
    holder = run.attach("orders", "billing", SubscriptionPolicy())
    run.publish("orders", b"a", b"b")
    run.nack(holder, 0, delay_s=2.0)
    run.pass_time(3.0)
    run.ack(holder, 0)
    run.nack(holder, 1, delay_s=2.0)
    run.pass_time(3.0)
    run.nack(holder, 1, delay_s=50.0)


def late_ack(run: Run) -> None:
    """An ack after the nack and before the next delivery is accepted, and final."""
    run.open()
    holder = run.attach("orders", "billing", SubscriptionPolicy())
    run.publish("orders", b"a", b"b")
    run.nack(holder, 0, delay_s=30.0, is_kept=True)
    run.ack(holder, 0)
    run.nack(holder, 1, cause=Cause.UNSTARTED)
    run.ack(holder, 1)


def lease_expiry(run: Run) -> None:
    """Leases run out until the message is dead; its neighbour is acked meanwhile."""
    run.open()
    holder = run.attach("orders", "billing", SHORT_LEASE)
    run.publish("orders", b"bad", b"good")
    run.ack(holder, 1)
    run.pass_time(2.0)
    run.pass_time(2.0)
    run.bury("orders", "billing", (0, 0))
    run.publish("orders", b"next")


def consumers_come_and_go(run: Run) -> None:
    run.open()
    first = run.attach("orders", "billing", credit=1)
    second = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b", b"c")
    run.detach(second)
    run.detach(first, is_clean=False)
    third = run.attach("orders", "billing")
    run.pass_time(5.0)
    run.ack(third, *(offset for _, offset in sorted(third.held)))


# -- dead letters ---------------------------------------------------------------------------------


def rejected_and_purged(run: Run) -> None:
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b", b"c")
    run.reject(holder, 0)
    run.reject(holder, 2)
    run.bury("orders", "billing", (0, 0), (0, 2))
    run.purge("orders", "billing", (0, 0))
    run.ack(holder, 1)


def dead_twice(run: Run) -> None:
    """Dead by attempts, redriven, dead again under its new offset, redriven, acked."""
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"poison")
    for offset in (0, 1):
        run.nack(holder, offset)
        run.nack(holder, offset)
        run.bury("orders", "billing", (0, offset))
        run.redrive("orders", "billing", (0, offset))
    run.ack(holder, 2)


def dead_letters_of_two(run: Run) -> None:
    """Two subscriptions and two partitions; a redriven message goes to one of them only."""
    run.open()
    run.create_topic("orders", 2)
    first = run.attach("orders", "billing")
    second = run.attach("orders", "audit")
    run.publish("orders", b"a", partition=1)
    run.ack(second, 0, partition=1)
    run.reject(first, 0, partition=1)
    run.bury("orders", "billing", (1, 0))
    watcher = run.attach("orders.dead.billing", "people", SubscriptionPolicy())
    run.redrive("orders", "billing", (1, 0))
    run.ack(first, 1, partition=1)
    del watcher


# -- topics, subscriptions, time ------------------------------------------------------------------


def topics_change(run: Run) -> None:
    run.open()
    run.create_topic("orders", 3, retain_s=60.0)
    run.publish("orders", b"a", partition=2)
    run.alter_topic("orders", retain_s=90.0)
    run.publish("other", b"b")
    run.delete_topic("orders")
    run.create_topic("orders", 1)
    run.publish("orders", b"again", publisher=BOB)


def subscriptions_change(run: Run) -> None:
    run.open()
    run.publish("orders", b"a", b"b")
    run.subscribe("orders", "billing")
    run.subscribe("orders", "late", start="latest")
    run.publish("orders", b"c")
    run.alter_subscription("orders", "billing", SubscriptionPolicy(lease_s=5.0))
    run.unsubscribe("orders", "billing")
    run.unsubscribe("orders", "late")


def deletion_meets_the_clock(run: Run) -> None:
    """Retention falls due while the deletion of its topic waits to be written."""
    run.open()
    run.create_topic("orders", retain_s=1.0)
    run.publish("orders", b"old")
    run.begin_deleting("orders")
    run.pass_time(5.0)
    run.publish("other", b"next")


def deletion_meets_compaction(run: Run) -> None:
    run.open()
    run.publish("orders", b"a")
    run.publish("other", b"b")
    run.roll()
    run.publish("other", b"c")
    run.begin_deleting("orders")
    run.compact(1)
    run.settle()


def deletion_meets_dead_letters(run: Run) -> None:
    """Doomed messages whose subscription, and then whose dead-letter topic, is being deleted."""
    run.open()
    first, second = run.attach("a", "s"), run.attach("b", "s")
    run.publish("a", b"a0")
    run.publish("b", b"b0", b"b1")
    run.reject(second, 0)
    run.bury("b", "s", (0, 0))
    run.reject(first, 0)
    run.reject(second, 1)
    run.detach(first)
    run.begin_deleting("a", "s")
    run.begin_deleting("b.dead.s")
    run.broker.keeper.move_doomed()
    run.settle()


def retention(run: Run) -> None:
    """What nobody subscribed to goes when its time is over; what somebody holds stays."""
    run.open()
    run.create_topic("orders", 2, retain_s=10.0)
    run.publish("orders", b"old")
    run.publish("orders", b"old too", partition=1)
    run.pass_time(6.0)
    run.publish("orders", b"young")
    run.pass_time(6.0)
    run.subscribe("orders", "billing")
    run.publish("orders", b"held")
    run.pass_time(60.0)


def written_topic(run: Run) -> None:
    """Confirmed at the write: may be lost in a power cut, but no offset is used twice."""
    run.open()
    run.create_topic("trace", durability=Durability.WRITTEN)
    holder = run.attach("trace", "viewer", SubscriptionPolicy())
    run.publish("trace", b"a")
    run.publish("trace", b"b", b"c")
    run.ack(holder, 0)
    run.publish("orders", b"synced")
    run.close()
    run.open()
    run.publish("trace", b"d")


# -- keeping --------------------------------------------------------------------------------------


def rolls(run: Run) -> None:
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", LONG, b"a")
    run.roll()
    run.publish("orders", LONG, b"b")
    run.ack(holder, 1, 3)
    run.roll()
    run.ack(holder, 0)
    run.publish("orders", b"c")


def snapshots_free_segments(run: Run) -> None:
    """Two snapshots, then empty segments are used again over their old groups."""
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", LONG)
    run.ack(holder, 0, 1)
    run.roll()
    run.publish("orders", b"b")
    run.snapshot()
    run.snapshot()
    assert run.free()
    run.roll()
    run.publish("orders", b"c")
    run.ack(holder, 2)


def recycled_segment(run: Run) -> None:
    """A file full of old valid groups begins a new life."""
    run.is_watched = False
    run.open()
    holder = run.attach("orders", "billing")
    for number in range(8):
        run.publish("orders", b"old %d" % number)
    run.ack(holder, *range(8))
    run.roll()
    run.publish("orders", b"kept")
    run.snapshot()
    run.snapshot()
    assert run.free() > 0
    run.is_watched = True
    run.roll()
    run.publish("orders", b"new")
    run.ack(holder, 8)
    run.publish("orders", b"newer")


def segments_removed(run: Run) -> None:
    """More free segments than are kept: the rest is unlinked."""
    run.is_watched = False
    run.open()
    holder = run.attach("orders", "billing")
    for number in range(16):
        run.publish("orders", b"old %d" % number)
    run.ack(holder, *range(16))
    run.roll()
    run.publish("orders", b"kept")
    run.snapshot()
    run.is_watched = True
    run.snapshot()
    assert run.free() > run.settings.spare_count
    run.publish("orders", b"new")
    run.snapshot()
    run.free()
    run.publish("orders", b"newer")


def compaction(run: Run) -> None:
    """One message nobody acks keeps only itself; its segment is copied out and used again."""
    run.is_watched = False
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"stays", *(b"goes %d" % n for n in range(5)), ids=list("abcdef"))
    run.publish("orders", b"stays too")
    run.roll()
    run.ack(holder, 1, 2, 3, 4, 5)
    run.is_watched = True
    run.compact(1)
    run.publish("orders", b"after")
    run.snapshot()
    run.snapshot()
    assert run.free()
    run.roll()
    run.publish("orders", b"over the old place")
    run.ack(holder, 0, 6)


def compaction_of_copies(run: Run) -> None:
    """Copied twice, from two partitions, with an ack between."""
    run.is_watched = False
    run.open()
    run.create_topic("orders", 2)
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b", b"c")
    run.publish("orders", b"d", b"e", partition=1)
    run.ack(holder, 1)
    run.roll()
    run.is_watched = True
    run.compact(1)
    run.ack(holder, 0)
    run.roll()
    run.publish("orders", b"next")
    run.compact(2)
    run.snapshot()
    run.snapshot()
    run.free()
    run.ack(holder, 2)


def spare_ahead(run: Run) -> None:
    """A zeroed segment is made ready before it is needed."""
    run.settings = msgspec.structs.replace(run.settings, is_zeroing=True)
    run.open()
    run.publish("orders", b"a")
    run.prepare_spare()
    run.roll()
    run.publish("orders", b"b")
    run.publish("orders", b"c")


def clean_stops(run: Run) -> None:
    """Stopped in good order with messages out and delayed; opened, used and stopped again."""
    run.open()
    holder = run.attach("orders", "billing", SubscriptionPolicy())
    run.publish("orders", b"a", b"b", b"c")
    run.ack(holder, 0)
    run.nack(holder, 1, delay_s=20.0)
    run.close()
    run.open()
    run.publish("orders", b"d")
    run.close()
    run.open()
    holder = run.attach("orders", "billing", None)
    run.ack(holder, 2, 3)


def snapshot_after_clean_stop(run: Run) -> None:
    """The segment a snapshot starts in is empty, sealed and given back while it still counts."""
    run.is_watched = False
    run.open()
    run.create_topic("orders")
    run.close()
    run.is_watched = True
    run.open()
    run.snapshot()
    run.free()
    run.publish("orders", b"a")
    run.roll()
    run.publish("orders", b"b")
    run.snapshot()
    run.free()


def killed_and_opened(run: Run) -> None:
    """The process dies twice; what was out comes back, counted once."""
    run.open()
    holder = run.attach("orders", "billing", credit=1)
    run.publish("orders", b"a", b"b")
    run.kill()
    run.open()
    run.publish("orders", b"c")
    holder = run.attach("orders", "billing", None)
    run.ack(holder, 1)
    run.kill()
    run.open()
    run.mark()


# -- snapshots while the broker works -------------------------------------------------------------


def fuzzy_snapshot(run: Run) -> None:
    """Each topic is encoded at its own moment; between two of them the broker goes on."""
    run.is_watched = False
    run.open()
    holder = run.attach("a", "s")
    other = run.attach("b", "s")
    run.publish("a", b"a0", b"a1")
    run.publish("b", b"b0", b"b1")
    run.publish("c", b"c0")
    run.is_watched = True
    between = iter(
        (
            lambda: (run.ack(holder, 0), run.roll(), run.publish("b", b"b2")),
            lambda: (run.ack(other, 0), run.publish("a", b"a2")),
            lambda: (run.publish("c", b"c1"), run.create_topic("d")),
            lambda: (run.ack(holder, 1), run.publish("d", b"d0")),
        )
    )
    _snapshot_between(run, between)
    run.publish("a", b"a3")


def fuzzy_snapshot_of_moves(run: Run) -> None:
    """Units over two topics, and topics that end, while a snapshot is made of them."""
    run.is_watched = False
    run.open()
    holder = run.attach("a", "s")
    run.publish("a", b"a0", b"a1")
    run.publish("b", b"b0")
    run.reject(holder, 0)
    run.is_watched = True
    between = iter(
        (
            lambda: run.bury("a", "s", (0, 0)),
            lambda: (run.publish("b", b"b1"), run.delete_topic("b")),
            lambda: run.redrive("a", "s", (0, 0)),
        )
    )
    _snapshot_between(run, between)
    run.ack(holder, 2)


def fuzzy_snapshot_and_compaction(run: Run) -> None:
    run.is_watched = False
    run.open()
    holder = run.attach("a", "s")
    run.publish("a", b"a0", b"a1", b"a2")
    run.publish("b", b"b0")
    run.roll()
    run.ack(holder, 1)
    run.snapshot()
    run.is_watched = True
    between = iter(
        (
            lambda: run.compact(1),
            lambda: (run.roll(), run.ack(holder, 0)),
            lambda: run.publish("b", b"b1"),
        )
    )
    _snapshot_between(run, between)
    run.snapshot()
    run.free()
    run.publish("a", b"a3")


def snapshot_of_everything(run: Run) -> None:
    """Failures, back-off, doom and dead letters are all in the snapshot, and only there."""
    run.is_watched = False
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b", b"c", b"d", publisher=BOB)
    run.nack(holder, 0, delay_s=60.0)
    run.reject(holder, 1)
    run.bury("orders", "billing", (0, 1))
    run.reject(holder, 2)
    run.ack(holder, 3)
    run.roll()
    run.publish("orders", b"e")
    run.snapshot()
    run.is_watched = True
    run.snapshot()
    run.free()
    run.retry()


def snapshot_before_commit(run: Run) -> None:
    """Decided and not yet written: none of it may be in the snapshot."""
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b", b"c")
    run.ack(holder, 0, is_committed=False)
    run.nack(holder, 1, delay_s=9.0, is_committed=False)
    run.publish("orders", b"d", is_committed=False)
    run.publish("fresh", b"e", is_committed=False)
    run.snapshot()
    run.settle()


def snapshot_before_apply(run: Run) -> None:
    """A snapshot is begun and made while a group is written and not yet true."""
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b")
    run.ack(holder, 0, is_committed=False)
    run.publish("orders", b"c", is_committed=False)
    sync = run.broker.journal.sync

    def sync_late() -> None:
        run.snapshot()
        sync()

    with mock.patch.object(run.broker.journal, "sync", sync_late):
        run.settle()
    run.publish("orders", b"d")


def snapshot_inside_a_commit(run: Run) -> None:
    """A piece is due when a `written` publish counts and its group is not yet synced."""
    holder = _written_group(run)
    engine = run.broker.engine
    apply_early = engine._apply_early
    made: list[list[bytes]] = []
    draft = engine.journal.begin_snapshot(engine.applied_end, engine.applied_records)

    def then_encode(*arguments: Any) -> Any:
        early = apply_early(*arguments)
        if not engine.unsynced.locked():
            made.append(list(rebuild.pieces(engine)))
        return early

    with mock.patch.object(engine, "_apply_early", then_encode):
        run.settle()
    made.append(list(rebuild.pieces(engine)))
    engine.journal.finish_snapshot(draft, iter(made[0]))
    run.ack(holder, 1)


def snapshot_around_a_commit(run: Run) -> None:
    """A snapshot begins before a group with a `written` publish and is encoded after it."""
    holder = _written_group(run)
    engine = run.broker.engine
    draft = engine.journal.begin_snapshot(engine.applied_end, engine.applied_records)
    run.settle()
    engine.journal.finish_snapshot(draft, rebuild.pieces(engine))
    run.ack(holder, 1)


def _written_group(run: Run) -> Holder:
    """An ack and a `written` publish of one topic wait to be committed together."""
    run.is_watched = False
    run.open()
    run.create_topic("trace", durability=Durability.WRITTEN)
    holder = run.attach("trace", "viewer", SubscriptionPolicy())
    run.publish("trace", b"a", b"b")
    run.is_watched = True
    run.ack(holder, 0, is_committed=False)
    run.publish("trace", b"c", is_committed=False)
    return holder


def _snapshot_between(run: Run, between: "Iterator[object]") -> None:
    """One topic per piece, and one of the actions between two pieces."""
    ticks = count()
    with mock.patch.object(rebuild, "perf_counter", lambda: next(ticks) * 0.6 * rebuild.PIECE_S_MAX):
        engine = run.broker.engine
        draft = engine.journal.begin_snapshot(engine.applied_end, engine.applied_records)

        def pieces() -> Iterator[bytes]:
            for piece in rebuild.pieces(engine):
                yield piece
                action = next(between, None)
                if callable(action):
                    action()

        engine.journal.finish_snapshot(draft, pieces())


PUBLISHING = (
    first_publishes, store_of_one_record, several_publishers, one_group_of_many,
    only_a_later_record_survives, retries, publisher_comes_back, full_segment,
)  # fmt: skip
SETTLING = (
    acks_in_any_order, two_subscriptions, nack_with_delay, late_ack, lease_expiry,
    consumers_come_and_go, rejected_and_purged, dead_twice, dead_letters_of_two,
)  # fmt: skip
CHANGING = (
    topics_change, subscriptions_change, deletion_meets_the_clock, deletion_meets_compaction,
    deletion_meets_dead_letters, retention, written_topic, clean_stops,
    snapshot_after_clean_stop, killed_and_opened,
)  # fmt: skip
KEEPING = (
    rolls, spare_ahead, snapshots_free_segments, recycled_segment, segments_removed, compaction,
    compaction_of_copies, fuzzy_snapshot, fuzzy_snapshot_of_moves, fuzzy_snapshot_and_compaction,
    snapshot_of_everything, snapshot_before_commit, snapshot_before_apply,
    snapshot_inside_a_commit, snapshot_around_a_commit,
)  # fmt: skip
ALL = (*PUBLISHING, *SETTLING, *CHANGING, *KEEPING)
