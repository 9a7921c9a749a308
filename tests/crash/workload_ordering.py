"""Workloads of priorities, times of messages, keys, and leases full of holes."""

from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from tests.crash.given import BOB
from tests.crash.run import Run

KEYED = SubscriptionPolicy(
    kind=Kind.KEY_SHARED, lease_s=10.0, retry=Retry(first_s=1.0, max_s=4.0, max_attempts=3)
)


def priorities(run: Run) -> None:
    """Higher ones go first, so what is out is full of holes, and is written so."""
    run.open()
    run.publish("orders", *(b"%d" % n for n in range(6)), priority=[0, 5, 0, 5, -1, 5])
    holder = run.attach("orders", "billing", credit=2)
    run.ack(holder, 1)
    run.publish("orders", b"urgent", priority=9)
    run.nack(holder, 3)
    run.ack(holder, 6)
    run.snapshot()
    run.publish("orders", b"last", priority=1)


def holes_in_leases(run: Run) -> None:
    """Every second of many messages is out, and every second of those is acked, at once."""
    run.open()
    bodies = [b"%02d" % n for n in range(40)]
    run.publish("orders", *bodies, priority=[n % 2 for n in range(40)])
    holder = run.attach("orders", "billing", credit=20)
    run.ack_scattered(holder, *range(1, 40, 4))
    run.kill()
    run.open()
    holder = run.attach("orders", "billing", None, credit=20)
    run.ack_scattered(holder, *range(3, 40, 4))


def holes_around_a_snapshot(run: Run) -> None:
    run.open()
    run.subscribe("orders", "audit")
    run.publish("orders", *(b"%02d" % n for n in range(24)))
    holder = run.attach("orders", "billing")
    run.ack_scattered(holder, *range(0, 24, 2), is_committed=False)
    run.snapshot()
    run.ack_scattered(holder, *range(1, 21, 2))
    run.snapshot()
    run.ack(holder, 23)


def delayed_messages(run: Run) -> None:
    """Messages with a time of their own come when it is there, before and after a restart."""
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"later", delay_s=20.0)
    run.publish("orders", b"now", b"now too")
    run.ack(holder, 1)
    run.snapshot()
    run.publish("orders", b"much later", delay_s=90.0, priority=3)
    run.close()
    run.open()
    holder = run.attach("orders", "billing", None)
    run.pass_time(30.0)
    run.ack(holder, 0, 2)


def expiring_messages(run: Run) -> None:
    """What waits ends in each subscription; what is out is left alone; what nobody has goes."""
    run.open()
    run.publish("orders", b"kept", ttl_s=5.0)
    run.publish("other", b"for nobody", ttl_s=5.0)
    run.subscribe("orders", "audit")
    holder = run.attach("orders", "billing", SubscriptionPolicy(), credit=2)
    run.publish("orders", b"out", b"waits", ttl_s=6.0)
    run.publish("orders", b"stays")
    run.pass_time(10.0)
    run.ack(holder, 0)
    run.nack(holder, 1)
    run.snapshot()
    run.publish("orders", b"next", ttl_s=100.0)


def expired_for_nobody(run: Run) -> None:
    """One message waits in a subscription, one was only kept for a time: both end together."""
    run.open()
    run.publish("orders", b"for nobody", ttl_s=5.0)
    run.subscribe("orders", "billing", start="latest")
    run.publish("orders", b"waits", ttl_s=5.0)
    run.publish("orders", b"stays")
    run.pass_time(6.0)
    run.snapshot()
    run.publish("orders", b"next", ttl_s=5.0)
    run.pass_time(6.0)


def expired_while_down(run: Run) -> None:
    """Backing off, delayed and doomed messages expire, or not, around a restart."""
    run.open()
    holder = run.attach("orders", "billing")
    run.publish("orders", b"backs off", b"doomed", b"acked", ttl_s=5.0)
    run.publish("orders", b"later", ttl_s=5.0, delay_s=90.0)
    run.nack(holder, 0, delay_s=50.0)
    run.reject(holder, 1)
    run.ack(holder, 2)
    run.close()
    run.clock.advance(10_000)
    run.open()
    run.pass_time(1.0)
    run.bury("orders", "billing", (0, 1))


def keys_in_order(run: Run) -> None:
    """A nack takes back what is out of its key behind it, and no attempt is counted for that."""
    run.open()
    first = run.attach("orders", "billing", KEYED, credit=4)
    run.publish("orders", *(b"%d" % n for n in range(6)), key=["a", "b", "a", "b", "a", None])
    run.nack(first, 0)
    run.ack(first, 1)
    run.nack(first, 0, delay_s=5.0)
    second = run.attach("orders", "billing", None)
    run.publish("orders", b"6", b"7", key=["a", "b"], publisher=BOB)
    run.pass_time(6.0)
    del second


def keys_lost_and_found(run: Run) -> None:
    """The process dies with a key out; leases run out; a doomed head lets the next one pass."""
    run.open()
    holder = run.attach("orders", "billing", KEYED, credit=3)
    run.publish("orders", b"0", b"1", b"2", b"3", key=["a", "a", "b", "a"])
    run.nack(holder, 0)
    run.kill()
    run.open()
    holder = run.attach("orders", "billing", None)
    run.pass_time(11.0)
    run.reject(holder, 0)
    run.bury_all()
    run.snapshot()


def keys_and_priorities(run: Run) -> None:
    """A key has the priority of its oldest message; its later ones wait their turn."""
    run.open()
    run.publish(
        "orders", *(b"%d" % n for n in range(5)), key=["a", "b", "a", "c", "b"],
        priority=[0, 1, 9, 5, 0],
    )  # fmt: skip
    holder = run.attach("orders", "billing", KEYED, credit=2)
    run.ack(holder, *(offset for _, offset in sorted(holder.held)))
    run.snapshot()
    run.nack(holder, min(offset for _, offset in holder.held))
    run.detach(holder, is_clean=False)


ORDERING = (
    priorities, holes_in_leases, holes_around_a_snapshot, delayed_messages, expiring_messages,
    expired_for_nobody, expired_while_down, keys_in_order, keys_lost_and_found, keys_and_priorities,
)  # fmt: skip
