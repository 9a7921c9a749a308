"""Workloads of consumers: ack, nack, expiry, loss, dead letters and back."""

from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause
from tests.crash.run import Run

SHORT_LEASE = SubscriptionPolicy(lease_s=1.0, retry=Retry(first_s=1.0, max_s=4.0, max_attempts=2))


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


def onlooker(run: Run) -> None:
    """A consumer without a subscription sees what comes and holds nothing."""
    run.open()
    run.publish("orders", b"before")
    first = run.attach("orders", None, None)
    holder = run.attach("orders", "billing")
    run.publish("orders", b"seen")
    run.ack(holder, 0, 1)
    assert first.held
    run.detach(first)
    run.publish("orders", b"after")


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
    run.redrive("orders", "billing", (0, 0))
    run.ack(first, 1, partition=1)
    del watcher


SETTLING = (
    acks_in_any_order, two_subscriptions, nack_with_delay, late_ack, lease_expiry,
    consumers_come_and_go, onlooker, rejected_and_purged, dead_twice, dead_letters_of_two,
)  # fmt: skip
