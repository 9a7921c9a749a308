"""Workloads of segments and restarts: roll, recycle, remove, compact, stop, kill."""

import msgspec

from penstock.vocabulary.policy import SubscriptionPolicy
from tests.crash.run import Run
from tests.crash.workload_publishing import LONG


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


def freed_step_by_step(run: Run) -> None:
    """After each snapshot whatever is free is used again at once: one is not enough."""
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a")
    run.ack(holder, 0)
    for body in (b"b", b"c", b"d"):
        run.roll()
        run.publish("orders", body)
        run.snapshot()
        run.free()


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


KEEPING = (
    rolls, spare_ahead, snapshots_free_segments, freed_step_by_step, recycled_segment,
    segments_removed, compaction, compaction_of_copies, clean_stops, snapshot_after_clean_stop,
    killed_and_opened,
)  # fmt: skip
