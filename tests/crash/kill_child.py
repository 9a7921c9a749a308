"""The process that is killed: a broker on a folder under load, telling what was confirmed.

Every line of the history is one write to an append-only file, made after the fact it tells of:

    o <ms>                                  the store is open
    i <publisher> <sequence> <count>        about to publish
    p <publisher> <sequence> <count> <base> confirmed at these offsets
    d <subscription> <partition> <start> <end>   handed over
    x <subscription> <partition> <start> <end>   about to ack or reject
    a <subscription> <partition> <start> <end>   acked and flushed
    e <text>                                an operation failed, as it may
    w <text>                                something is wrong
"""

import errno
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

from penstock.batch import Batch, encode_many
from penstock.broker import keeper, threads
from penstock.broker.broker import Broker, Sink
from penstock.broker.mailbox import DIRECT, Pending
from penstock.delivery.state import Consumer
from penstock.journal.disk import FolderDisk
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import PenstockError
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause

TOPIC = "load"
PARTITIONS = 2
PUBLISHERS = ("anna", "ben", "cleo")
SUBSCRIPTIONS = ("work", "slow")
COUNTS = (1, 1, 1, 2, 3, 10, 40, 120)
HELD_MAX = 4_000
AFTER_FAILURE = 5
"""Publishes tried after the journal failed; none may be confirmed."""
FAILURE_S_MAX = 120.0
SETTINGS = JournalSettings(
    segment_bytes_min=64 * 1024, segment_bytes_max=256 * 1024, snapshot_bytes=512 * 1024,
    reserve_bytes=0, cache_bytes=256 * 1024,
)  # fmt: skip
POLICY = SubscriptionPolicy(lease_s=0.4, retry=Retry(first_s=0.01, max_s=0.05, max_attempts=1000))


def publisher_id(name: str) -> bytes:
    """A chosen, hence lasting, identity."""
    return b"\1" + name.encode().ljust(15, b".")


def partition_of(name: str) -> int:
    """Each publisher keeps to one partition."""
    return PUBLISHERS.index(name) % PARTITIONS


def body_of(name: str, sequence: int) -> bytes:
    """The one body this message can have."""
    size = sequence * 37 % 211
    return f"{name}:{sequence}:".encode() + bytes([sequence % 251]) * size


def identify(body: bytes) -> tuple[str, int] | None:
    """Who published this body as what, or None when nobody did."""
    name, _, rest = body.partition(b":")
    number = rest.partition(b":")[0]
    if not number.isdigit() or name.decode(errors="replace") not in PUBLISHERS:
        return None
    found = (name.decode(), int(number))
    return found if body_of(*found) == body else None


class DoomedDisk(FolderDisk):
    """A folder whose process dies at the n-th passing of a named point."""

    def __init__(self, folder: Path, mark: str) -> None:
        super().__init__(folder)
        name, _, number = mark.partition(":")
        self.mark, self.left = name, int(number or 0)

    def point(self, name: str) -> None:
        """Called by the journal wherever a crash is interesting."""
        if name == self.mark:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Child:
    """One life."""

    def __init__(self, folder: Path, history: Path, plan: dict[str, Any]) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self.descriptor = os.open(history, flags, 0o600)
        self.plan = plan
        self.folder = folder
        self.stop = Event()

    def tell(self, *words: object) -> None:
        os.write(self.descriptor, (" ".join(map(str, words)) + "\n").encode())

    def run(self) -> None:
        """Opens, serves until killed or until the plan's time is over."""
        began = time.perf_counter()
        self.broker = Broker.open(DoomedDisk(self.folder, self.plan["mark"]), SETTINGS)
        self.tell("o", round((time.perf_counter() - began) * 1000, 2))
        self.broker.create_topic(TOPIC, PARTITIONS, TopicPolicy(retain_s=None))
        for name in SUBSCRIPTIONS:
            self.broker.create_subscription(TOPIC, name, POLICY, None)
        jobs = [(self.publish, name) for name in PUBLISHERS]
        jobs += [(self.consume, name) for name in ("work", "work", "slow")]
        workers = [Thread(target=self._guarded, args=job, daemon=True) for job in jobs]
        for worker in workers:
            worker.start()
        self._wait_for_failure()
        time.sleep(self.plan["seconds"])
        self.stop.set()
        for worker in workers:
            worker.join(5)

    def _wait_for_failure(self) -> None:
        """Until the file that the plan names tells of one: a busy machine syncs seldom."""
        if not self.plan["trace"]:
            return
        trace, until = Path(self.plan["trace"]), time.monotonic() + FAILURE_S_MAX
        while b"EIO" not in trace.read_bytes() and time.monotonic() < until:
            time.sleep(0.05)

    def _guarded(self, work: Any, name: str) -> None:
        try:
            work(name)
        except PenstockError as error:
            self.tell("e", error.code)
        except Exception as error:  # noqa: BLE001 - a defect is the finding
            self.tell("w", f"{name}: {error!r}")

    # -- publishing ------------------------------------------------------------------------------

    def publish(self, name: str) -> None:
        """Repeats what was not confirmed in an earlier life, then goes on."""
        rng = random.Random(f"{self.plan['seed']}:{name}")
        sequence, waiting = self.plan["publishers"].get(name, (0, 0))
        failures = 0
        while not self.stop.is_set():
            count = waiting or rng.choice(COUNTS)
            waiting = 0
            while not failures and self._held() > HELD_MAX and not self.stop.is_set():
                time.sleep(0.002)
            try:
                self._publish(name, sequence, count)
            except PenstockError as error:
                self.tell("e", error.code)
                failures += 1
                waiting = count
                if failures > AFTER_FAILURE:
                    return
                continue
            if failures:
                self.tell("w", f"{name}: confirmed after {failures} failure(s)")
            sequence += count

    def _publish(self, name: str, sequence: int, count: int) -> None:
        batch = encode_many([body_of(name, sequence + n) for n in range(count)])
        self.tell("i", name, sequence, count)
        pending = Pending()
        self.broker.publish(
            TOPIC,
            partition_of(name),
            batch,
            count,
            publisher_id(name),
            1,
            sequence,
            DIRECT,
            pending,
        )
        stored = pending.wait()
        if stored.base is None:
            self.tell("w", f"{name}: {sequence} is a duplicate without a place")
        self.tell("p", name, sequence, count, stored.base)

    def _held(self) -> int:
        return sum(partition.held for partition in self.broker.state.names[TOPIC].partitions)

    # -- consuming -------------------------------------------------------------------------------

    def consume(self, name: str) -> None:
        """Acks most, gives some back, rejects a few, and forgets some now and then."""
        rng = random.Random(f"{self.plan['seed']}:{name}")
        slices: SimpleQueue[Any] = SimpleQueue()

        def take(each: Any) -> None:
            self.tell("d", name, each.partition, each.start, each.end)
            slices.put(each)

        sink = Sink(DIRECT, take, lambda _: None)
        consumer = self.broker.attach(TOPIC, name, None, None, 500, 1 << 26, name, sink)
        while not self.stop.is_set():
            try:
                each = slices.get(timeout=0.05)
            except Empty:
                continue
            self._look_at(each)
            self._settle(consumer, each, rng)

    def _look_at(self, each: Any) -> None:
        for frame in each.frames:
            view = Batch(frame.batch)
            for offset, index in zip(frame.offsets, frame.indexes, strict=True):
                if identify(view.bodies[index] or b"") is None:
                    self.tell("w", f"offset {offset} has the body {view.bodies[index]!r}")

    def _settle(self, consumer: Consumer, each: Any, rng: random.Random) -> None:
        name = consumer.subscription.name
        start, end = each.start, each.end
        if name == "slow" and end - start > 1 and rng.random() < 0.2:
            start += 1  # It is finished in another life, or never: compaction has to carry it.
        if rng.random() < 0.1 and end - start > 1:
            middle = (start + end) // 2
            self.broker.give_back(
                consumer, _claim(each, middle, end), Cause.NACKED, rng.choice((0.0, 0.02)), "again"
            )
            end = middle
        elif rng.random() < 0.02 and end - start > 1:
            self.tell("x", name, each.partition, end - 1, end)
            self.broker.give_back(
                consumer, _claim(each, end - 1, end), Cause.REJECTED, None, "never"
            )
            end -= 1
        if start < end:
            self.tell("x", name, each.partition, start, end)
            refused = self.broker.ack(consumer, [_claim(each, start, end)])
            pending = Pending()
            self.broker.flush(DIRECT, pending)
            pending.wait()
            if not refused:
                self.tell("a", name, each.partition, start, end)


def _claim(each: Any, start: int, end: int) -> Claim:
    return Claim(each.lease_id, each.partition, each.attempt, ((start, end),))


def _fail_sync(number: int) -> None:
    """Lets the n-th sync of this process fail, once, whichever call asks for it."""
    left = [number]

    def failing(call: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(*arguments)

        return counted

    for name in ("fdatasync", "pwritev"):
        setattr(os, name, failing(getattr(os, name)))


def main() -> None:
    """Arguments: folder, history file, plan as JSON."""
    folder, history, plan = sys.argv[1:]
    # Everything that takes its time in use happens often here.
    vars(keeper).update(SNAPSHOT_MS_MIN=40, SNAPSHOT_MS_MAX=150)
    vars(threads).update(KEEPER_S=0.01, IDLE_MARK_S=0.01)
    child = Child(Path(folder), Path(history), json.loads(plan))
    if child.plan["fail_sync"]:
        _fail_sync(child.plan["fail_sync"])
    try:
        child.run()
    except PenstockError as error:
        child.tell("e", error.code)


if __name__ == "__main__":
    main()
