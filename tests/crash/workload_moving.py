"""Workloads of seeks, of what policies keep and remove, and of readers."""

from penstock.batch import encode_many
from penstock.broker.mailbox import DIRECT, Pending
from penstock.client.packing import partition_of
from penstock.vocabulary.errors import HeldByReader
from penstock.vocabulary.policy import SubscriptionPolicy
from tests.crash.given import ALICE
from tests.crash.run import Run


def seeks(run: Run) -> None:
    """Back over what was acked, died and was skipped; forward over what waits."""
    run.open()
    run.create_topic("orders", replay_s=1000.0)
    run.publish("orders", b"before")
    run.subscribe("orders", "billing", start="latest")
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b", b"c")
    run.ack(holder, 1)
    run.reject(holder, 2)
    run.bury("orders", "billing", (0, 2))
    run.seek("orders", "billing", "0:3")
    run.seek("orders", "billing", "earliest")
    run.ack(holder, 0, 2)
    run.seek("orders", "billing", "latest")


def seeks_after_a_snapshot(run: Run) -> None:
    """How messages ended is known from the snapshot when they come again."""
    run.open()
    run.create_topic("orders", replay_s=1000.0)
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b", b"c")
    run.ack(holder, 0)
    run.seek("orders", "billing", "0:2")
    run.snapshot()
    run.publish("orders", b"d")
    run.close()
    run.open()
    run.seek("orders", "billing", "earliest")


def seek_with_more_to_come(run: Run) -> None:
    """Acks, nacks and publishes are decided before a seek, and publishes behind it."""
    run.open()
    run.create_topic("orders", 2, replay_s=1000.0)
    holder = run.attach("orders", "billing")
    run.publish("orders", b"a", b"b")
    run.publish("orders", b"c", partition=1)
    run.ack(holder, 0, is_committed=False)
    run.nack(holder, 1, is_committed=False)
    run.seek("orders", "billing", "0:0", is_committed=False)
    run.publish("orders", b"d")
    run.snapshot()
    run.seek("orders", "billing", "latest", is_committed=False)
    run.snapshot()
    run.publish("orders", b"e", partition=1)


def seek_over_retained(run: Run) -> None:
    """What nobody covered is taken over; another subscription goes its own way."""
    run.open()
    run.publish("orders", b"a", b"b")
    run.subscribe("orders", "billing", start="latest")
    other = run.attach("orders", "audit")
    run.publish("orders", b"c")
    run.ack(other, 0, 2)
    run.seek("orders", "billing", "0:1")
    run.ack(other, 1)
    run.seek("orders", "billing", "latest")


def replay_window(run: Run) -> None:
    """Acked messages stay for their time, and go when it is over."""
    run.open()
    run.create_topic("orders", replay_s=10.0, retain_s=5.0)
    run.publish("orders", b"for nobody")
    holder = run.attach("orders", "billing", start="latest")
    run.publish("orders", b"a")
    run.ack(holder, 1)
    run.pass_time(6.0)
    run.publish("orders", b"b", b"c")
    run.ack(holder, 2)
    run.snapshot()
    run.pass_time(6.0)
    run.seek("orders", "billing", "earliest")
    run.pass_time(6.0)
    run.alter_topic("orders", retain_s=5.0, replay_s=0.0)


def last_of_each_key(run: Run) -> None:
    run.open()
    run.create_topic("state", keep_last=1, retain_s=5.0)
    run.publish("state", b"a0", b"b0", b"a1", key=["a", "b", "a"])
    run.pass_time(6.0)
    holder = run.attach("state", "viewer")
    run.publish("state", b"b1", key="b")
    run.ack(holder, 3)
    run.snapshot()
    run.publish("state", b"b2", b"a2", b"no key", key=["b", "a", None])
    run.ack(holder, 4, 5, 6)
    run.publish("state", b"b3", key="b")
    run.alter_topic("state", retain_s=5.0, keep_last=0)


def age_and_size(run: Run) -> None:
    """What is too old or too much goes, acked or not; a message that is out goes too."""
    run.open()
    run.create_topic("old", max_age_s=10.0)
    run.create_topic("full", max_bytes=400)
    old = run.attach("old", "s", credit=1)
    run.publish("old", b"a", b"b")
    for number in range(6):
        run.publish("full", b"%d" % number + bytes(60))
    run.subscribe("full", "s")
    run.pass_time(6.0)
    run.publish("old", b"c")
    run.pass_time(6.0)
    assert len(run.history.last.topics["full"].held) < 6
    assert not old.held or (0, 2) in old.held
    run.snapshot()
    run.publish("full", b"7" + bytes(60))
    run.pass_time(1.0)


def readers(run: Run) -> None:
    """Plans, commits, a new run that fences the old one, and a release."""
    run.open()
    run.open_reader("orders", "tables", "run-1")
    run.publish("orders", b"a", b"b", b"c")
    run.plan("orders", "tables", 2)
    run.publish("orders", b"d")
    run.commit_reader("orders", "tables", 1)
    run.snapshot()
    run.open_reader("orders", "tables", "run-2")
    run.plan("orders", "tables", 5)
    run.commit_reader("orders", "tables", 3)
    run.open_reader("orders", "other", "run-1")
    run.release_reader("orders", "tables")
    run.publish("orders", b"e")


def readers_hold(run: Run) -> None:
    """A planned range stays against age and expiry; with it the topic is full."""
    run.open()
    run.create_topic("orders", max_age_s=10.0, max_bytes=500)
    run.open_reader("orders", "tables", "run-1")
    holder = run.attach("orders", "billing", SubscriptionPolicy())
    for number in range(3):
        run.publish("orders", b"%d" % number + bytes(60), ttl_s=8.0)
    run.plan("orders", "tables", 2)
    run.ack(holder, 0)
    run.pass_time(20.0)
    run.commit_reader("orders", "tables", 1)
    run.pass_time(1.0)
    run.snapshot()
    run.commit_reader("orders", "tables", 2)


def full_because_of_a_reader(run: Run) -> None:
    """Nothing is stored while only a planned range could make room; then all goes on."""
    run.open()
    run.create_topic("orders", max_bytes=240)
    run.open_reader("orders", "tables", "run-1")
    run.publish("orders", b"0" + bytes(60))
    run.publish("orders", b"1" + bytes(60))
    run.plan("orders", "tables", 2)
    ends = list(run.history.last.topics["orders"].ends)
    batch = encode_many([b"2" + bytes(60)])
    try:
        run.broker.publish("orders", 0, batch, 1, ALICE, 0, 2, DIRECT, Pending())
        raise AssertionError("a full topic takes publishes")
    except HeldByReader:
        run.settle()
    assert run.history.last.topics["orders"].ends == ends
    run.commit_reader("orders", "tables", 1)
    run.publish("orders", b"2" + bytes(60))
    run.publish("orders", b"3" + bytes(60))
    run.pass_time(1.0)
    run.commit_reader("orders", "tables", 2)
    run.pass_time(1.0)
    run.publish("orders", b"4" + bytes(60))


def last_of_a_key_that_moved(run: Run) -> None:
    """Growth moves keys: what is kept of them goes with the newer ones elsewhere."""
    run.open()
    run.create_topic("state", keep_last=2, retain_s=0.0)
    for partitions in (1, 2, 3, 4):
        if partitions > 1:
            run.grow_topic("state", partitions)
        for key in ("a", "b", "c"):
            home = partition_of(key, None, partitions, 0)
            run.publish("state", b"%d" % partitions, partition=home, key=key)
    run.snapshot()
    run.publish("state", b"last", partition=partition_of("a", None, 4, 0), key="a")


MOVING = (
    seeks, seeks_after_a_snapshot, seek_with_more_to_come, seek_over_retained, replay_window,
    last_of_each_key, age_and_size, readers, readers_hold, full_because_of_a_reader,
    last_of_a_key_that_moved,
)  # fmt: skip
