"""Workloads of given ids: known ones, replaced ones, in flight, and around snapshots."""

from penstock.client.packing import partition_of
from penstock.vocabulary.policy import OnDuplicate, SubscriptionPolicy
from tests.crash.given import BOB
from tests.crash.run import Run


def ids_known_again(run: Run) -> None:
    """Whole and partly known batches, of the same publisher and of another."""
    run.open()
    run.subscribe("orders", "billing")
    run.publish("orders", b"a", b"b", ids=["a", "b"])
    run.publish("orders", b"b again", b"c", ids=["b", "c"], publisher=BOB)
    run.publish("orders", b"a", b"c", ids=["a", "c"])
    run.publish("orders", b"d", b"no id", b"d twin", ids=["d", None, "d"])
    run.publish("orders", b"next")


def ids_in_flight(run: Run) -> None:
    """The second publish of an id is decided before the first is durable."""
    run.open()
    run.publish("orders", b"first")
    run.publish("orders", b"a", ids=["a"], is_committed=False)
    run.publish("orders", b"a other", ids=["a"], publisher=BOB, is_committed=False)
    run.publish("orders", b"b", b"a", ids=["b", "a"], publisher=BOB, is_committed=False)
    run.retry(is_committed=False)
    run.commit()
    run.publish("orders", b"b", ids=["b"])


def ids_around_a_snapshot(run: Run) -> None:
    """Some ids are in the snapshot, some decided while it is made, some come later."""
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b", ids=["a", "b"])
    run.ack(holder, 0)
    run.publish("orders", b"c", ids=["c"], is_committed=False)
    run.snapshot()
    run.publish("orders", b"c", b"d", ids=["c", "d"], publisher=BOB)
    run.close()
    run.open()
    run.publish("orders", b"a", ids=["a"], publisher=BOB)


def ids_forgotten_in_time(run: Run) -> None:
    """An id is known for ten minutes and new after that."""
    run.open()
    run.subscribe("orders", "billing")
    run.publish("orders", b"a", ids=["a"])
    run.pass_time(300.0)
    run.publish("orders", b"b", b"a", ids=["b", "a"])
    run.pass_time(301.0)
    run.publish("orders", b"a again", b"b", ids=["a", "b"])
    run.publish("orders", b"a", ids=["a"])


def ids_of_dead_letters(run: Run) -> None:
    """A redriven message is no second one; its id stays known at its first place."""
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b", ids=["a", "b"])
    run.reject(holder, 0)
    run.bury("orders", "billing", (0, 0))
    run.publish("orders", b"a", ids=["a"])
    run.redrive("orders", "billing", (0, 0))
    run.publish("orders", b"a", b"c", ids=["a", "c"], publisher=BOB)
    run.ack(holder, 1, 2)


def replaced(run: Run) -> None:
    """The older one waits, is out, backs off, is in flight, is in the same batch."""
    run.open()
    run.create_topic("line", on_duplicate=OnDuplicate.REPLACE)
    run.subscribe("line", "audit")
    run.publish("line", b"a0", b"b0", ids=["a", "b"])
    run.publish("line", b"a1", ids=["a"])
    holder = run.attach("line", "billing", SubscriptionPolicy(), credit=2)
    run.publish("line", b"b1", ids=["b"])
    run.nack(holder, 2, delay_s=30.0)
    run.publish("line", b"a2", ids=["a"], is_committed=False)
    run.publish("line", b"a3", b"c0", b"c1", ids=["a", "c", "c"])
    run.publish("line", b"a4", ids=["a"])


def replaced_around_a_snapshot(run: Run) -> None:
    run.open()
    run.create_topic("line", on_duplicate=OnDuplicate.REPLACE)
    run.subscribe("line", "billing")
    run.publish("line", b"a0", b"b0", ids=["a", "b"])
    run.publish("line", b"a1", ids=["a"], is_committed=False)
    run.snapshot()
    run.publish("line", b"b1", ids=["b"], publisher=BOB)
    run.close()
    run.open()
    run.publish("line", b"a2", b"b2", ids=["a", "b"])


def replaced_after_growth(run: Run) -> None:
    """The older one waits in the partition of the older map, durable or not, as the growth is."""
    run.open()
    run.create_topic("line", on_duplicate=OnDuplicate.REPLACE)
    run.subscribe("line", "billing")
    run.publish("line", b"a0", b"b0", ids=["a", "b"])
    run.publish("line", b"a1", ids=["a"], is_committed=False)
    run.begin_growing("line", 2)
    for name in ("a", "b"):
        home = partition_of(None, name, 2, 0)
        run.publish("line", name.encode(), ids=[name], partition=home, is_committed=False)
    run.publish("line", b"a3", ids=["a"], partition=partition_of(None, "a", 2, 0))
    run.snapshot()
    run.grow_topic("line", 5)
    for name in ("a", "b"):
        run.publish("line", name.encode(), ids=[name], partition=partition_of(None, name, 5, 0))


GIVEN = (
    ids_known_again, ids_in_flight, ids_around_a_snapshot, ids_forgotten_in_time,
    ids_of_dead_letters, replaced, replaced_around_a_snapshot, replaced_after_growth,
)  # fmt: skip
