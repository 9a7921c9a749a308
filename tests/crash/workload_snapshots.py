"""Workloads that take a snapshot while the broker works: between, before and inside commits."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from typing import Any
from unittest import mock

from penstock.broker import rebuild
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import SubscriptionPolicy
from tests.crash.given import BOB
from tests.crash.run import Holder, Run


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
    _snapshot_between(
        run,
        [
            [lambda: run.ack(holder, 0), run.roll, lambda: run.publish("b", b"b2")],
            [lambda: run.ack(other, 0), lambda: run.publish("a", b"a2")],
            [lambda: run.publish("c", b"c1"), lambda: run.create_topic("d")],
            [lambda: run.ack(holder, 1), lambda: run.publish("d", b"d0")],
        ],
    )
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
    _snapshot_between(
        run,
        [
            [lambda: run.bury("a", "s", (0, 0))],
            [lambda: run.publish("b", b"b1"), lambda: run.delete_topic("b")],
            [lambda: run.redrive("a", "s", (0, 0))],
        ],
    )
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
    _snapshot_between(
        run,
        [
            [lambda: run.compact(1)],
            [run.roll, lambda: run.ack(holder, 0)],
            [lambda: run.publish("b", b"b1")],
        ],
    )
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


def _snapshot_between(run: Run, between: list[list[Callable[[], object]]]) -> None:
    """One topic per piece, and one list of actions between two pieces."""
    engine = run.broker.engine
    waiting = iter(between)

    def pieces() -> Iterator[bytes]:
        for piece in rebuild.pieces(engine):
            yield piece
            for action in next(waiting, []):
                action()

    with one_topic_per_piece():
        draft = engine.journal.begin_snapshot(engine.applied_end, engine.applied_records)
        engine.journal.finish_snapshot(draft, pieces())


def one_topic_per_piece() -> AbstractContextManager[object]:
    """The clock of the encoder runs so fast that every piece ends after its first topic."""
    ticks = count(0, 600)
    slow = rebuild.PIECE_S_MAX / 1000
    return mock.patch.object(rebuild, "perf_counter", side_effect=lambda: next(ticks) * slow)


SNAPSHOTS = (
    fuzzy_snapshot, fuzzy_snapshot_of_moves, fuzzy_snapshot_and_compaction, snapshot_of_everything,
    snapshot_before_commit, snapshot_before_apply, snapshot_inside_a_commit,
    snapshot_around_a_commit,
)  # fmt: skip
