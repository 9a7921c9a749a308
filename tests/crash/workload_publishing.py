"""Workloads of publishers: first messages, groups, retries, epochs, full segments."""

from tests.crash.given import BOB
from tests.crash.run import Run

LONG = bytes(range(256)) * 3
"""A body that makes a group span several sectors."""


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
    """From a segment in which no further record has a place: the next one begins another."""
    run.is_watched = False
    run.open()
    run.publish("orders", b"one")
    while _room(run) > 2 * 512:
        run.publish("orders", b"fill")
    run.is_watched = True
    run.publish("orders", b"over the edge")
    assert run.broker.journal.last_sequence == 2, "the segment was not full"
    run.publish("orders", b"and on")


def larger_than_a_segment(run: Run) -> None:
    """A batch that fits in no segment gets one of its own size."""
    run.open()
    run.publish("orders", b"small")
    run.publish("orders", bytes(range(256)) * 20)
    run.publish("orders", b"small again")


def _room(run: Run) -> int:
    segment = run.broker.journal.active
    assert segment is not None
    return segment.size - segment.end


PUBLISHING = (
    first_publishes, store_of_one_record, several_publishers, one_group_of_many,
    only_a_later_record_survives, retries, publisher_comes_back, full_segment,
    larger_than_a_segment,
)  # fmt: skip
