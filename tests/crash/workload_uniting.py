"""Workloads of units, patterns and multicasts: what belongs together comes together."""

from penstock.vocabulary.policy import OnDuplicate, SubscriptionPolicy
from tests.crash.run import Run


def units(run: Run) -> None:
    """Acks of inputs and publishes of outputs, on several topics, are never there by half."""
    run.open()
    run.subscribe("out", "next")
    holder = run.attach("in", "worker", SubscriptionPolicy())
    run.publish("in", b"a", b"b", b"c")
    run.unit([("out", b"A", None), ("log", b"a done", None)], [(holder, [0])])
    run.unit([("out", b"B", None)], [(holder, [1])], is_committed=False)
    run.publish("in", b"d", is_committed=False)
    run.unit([], [(holder, [2])])
    run.snapshot()
    run.unit([("in", b"again", None), ("out", b"D", None)], [(holder, [3])])


def units_with_ids(run: Run) -> None:
    """A unit finds ids known, and replaces; between plain publishes of the same group."""
    run.open()
    run.create_topic("line", on_duplicate=OnDuplicate.REPLACE)
    run.subscribe("line", "next")
    holder = run.attach("in", "worker")
    run.publish("in", b"a", b"b", ids=["a", "b"])
    run.publish("line", b"x0", ids=["x"], is_committed=False)
    run.unit([("line", b"x1", "x"), ("in", b"a again", "a")], [(holder, [0])], is_committed=False)
    run.publish("line", b"y", ids=["y"])
    run.close()
    run.open()
    run.unit([("line", b"x2", "x"), ("in", b"c", "c")], [])


def large_units(run: Run) -> None:
    """The parts of a unit lie in several sectors; a torn write keeps all of it or nothing."""
    run.open()
    holder = run.attach("in", "worker")
    run.publish("in", b"a")
    run.publish("out", b"first")
    run.unit([("out", b"1" * 700, None), ("in", b"2" * 700, None)], [(holder, [0])])
    run.publish("out", b"next")


def patterns(run: Run) -> None:
    """A new topic and its subscriptions come in one unit, from its first message on."""
    run.open()
    run.publish("a.x", b"before")
    run.subscribe_pattern("a.#", "all", SubscriptionPolicy())
    run.publish("a.y", b"first")
    run.snapshot()
    run.subscribe_pattern("a.+", "each", SubscriptionPolicy())
    run.create_topic("a.z", 2)
    run.publish("a.z", b"there", partition=1)
    run.publish("b", b"elsewhere")
    run.unsubscribe_pattern("a.#", "all")
    run.publish("a.w", b"last")


def multicasts(run: Run) -> None:
    """Each named consumer has its own place; one that stays away for days is forgotten."""
    run.open()
    run.subscribe("news", "archive")
    first = run.attach_member("news", "readers", "one")
    run.publish("news", b"a")
    second = run.attach_member("news", "readers", "two")
    run.publish("news", b"b")
    run.ack(first, 0, 1)
    run.snapshot()
    run.nack(second, 1)
    run.detach(second)
    run.forget_member("news", "readers", "two")
    run.publish("news", b"c")
    run.ack(first, 2)


def multicasts_after_a_snapshot(run: Run) -> None:
    """A member is forgotten, then a snapshot is made and the store is opened again."""
    run.is_watched = False
    run.open()
    first = run.attach_member("news", "readers", "one")
    run.publish("news", b"a", b"b")
    run.detach(first)
    run.forget_member("news", "readers", "one")
    run.is_watched = True
    run.publish("news", b"c")
    run.snapshot()
    run.close()
    run.open()
    run.attach_member("news", "readers", "one")
    run.publish("news", b"d")


UNITING = (
    units, units_with_ids, large_units, patterns, multicasts, multicasts_after_a_snapshot,
)  # fmt: skip
