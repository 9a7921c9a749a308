"""Workloads of administration and time: topics, subscriptions, deletion, retention, durability."""

from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import SubscriptionPolicy
from tests.crash.given import BOB
from tests.crash.run import Run


def topics_change(run: Run) -> None:
    run.open()
    run.create_topic("orders", 3, retain_s=60.0)
    run.publish("orders", b"a", partition=2)
    run.alter_topic("orders", retain_s=90.0)
    run.publish("other", b"b")
    run.delete_topic("orders")
    run.create_topic("orders", 1)
    run.publish("orders", b"again", publisher=BOB)


def topics_grow(run: Run) -> None:
    """Partitions are added between publishes, acks and a restart; old and new ones go on."""
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b")
    run.grow_topic("orders", 3)
    run.publish("orders", b"c", partition=2)
    run.ack(holder, 0, partition=2)
    run.subscribe("orders", "late", start="latest")
    run.close()
    run.open()
    run.grow_topic("orders", 4)
    run.publish("orders", b"d", partition=3)
    run.publish("orders", b"e")


def growth_meets_publishing(run: Run) -> None:
    """What is decided before, with and after the growth goes to disk in one group."""
    run.open()
    run.subscribe("orders", "billing")
    run.publish("orders", b"a", is_committed=False)
    run.begin_growing("orders", 2)
    run.publish("orders", b"b", partition=1, is_committed=False)
    run.begin_growing("orders", 3)
    run.publish("orders", b"c", partition=2, is_committed=False)
    run.snapshot()
    run.settle()
    run.snapshot()
    run.publish("orders", b"d", partition=2)


def growth_meets_dead_letters(run: Run) -> None:
    """Dead letters of old and new partitions lie together and go home each to its own."""
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"old")
    run.reject(holder, 0)
    run.bury("orders", "billing", (0, 0))
    run.grow_topic("orders", 2)
    run.publish("orders", b"new", partition=1)
    run.reject(holder, 0, partition=1)
    run.bury("orders", "billing", (1, 0))
    run.redrive("orders", "billing", (0, 0), (0, 1))
    run.ack(holder, 1, partition=1)


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


CHANGING = (
    topics_change, topics_grow, growth_meets_publishing, growth_meets_dead_letters,
    subscriptions_change, deletion_meets_the_clock, deletion_meets_compaction,
    deletion_meets_dead_letters, retention, written_topic,
)  # fmt: skip
