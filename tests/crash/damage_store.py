"""The store that the damage sweep breaks: small segments, and something of every kind in it."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from penstock.batch import encode_many
from penstock.broker.broker import Broker, Sink
from penstock.broker.mailbox import DIRECT, Pending
from penstock.delivery.state import Consumer
from penstock.journal.memory import MemoryDisk
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause

SETTINGS = JournalSettings(
    segment_bytes_min=4096, segment_bytes_max=4096, snapshot_bytes=1 << 30, reserve_bytes=0,
    cache_bytes=0, spare_count=1, is_zeroing=False,
)  # fmt: skip
CREDIT = 100_000
RETRY = SubscriptionPolicy(retry=Retry(first_s=100.0, max_s=100.0, max_attempts=5))
BEGAN_MS = 1_700_000_000_000

Files = dict[str, bytes]


class StillClock:
    """Time stands still unless a test moves it."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now(self) -> int:
        return self.ms

    def wall(self) -> int:
        return BEGAN_MS + self.ms


class Stage(NamedTuple):
    """The files at one moment, and what the broker could show of itself then."""

    name: str
    image: Files


class Bench:
    """A broker without threads, driven by hand."""

    def __init__(self, disk: MemoryDisk, broker: Broker | None = None) -> None:
        self.disk = disk
        self.broker = broker or Broker.open(disk, SETTINGS, StillClock(), threads=False)
        self.clock: Any = self.broker.engine.clock
        self.slices: list[tuple[Consumer, Any]] = []
        self.sequences: dict[tuple[str, int], int] = {}

    def publish(self, topic: str, partition: int, messages: list[Message | bytes | str]) -> None:
        """Publishes a batch as its topic's only publisher and makes it durable."""
        pending = Pending()
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(messages)
        publisher = b"\1" + topic.encode().ljust(15)
        self.broker.publish(
            topic, partition, encode_many(messages), len(messages), publisher, 1, sequence, DIRECT,
            pending,
        )  # fmt: skip
        self.pump()
        pending.wait()

    def attach(self, topic: str, name: str) -> Consumer:
        """Joins a subscription; what it is handed lands in `slices`."""
        found: list[Consumer] = []
        sink = Sink(DIRECT, lambda each: self.slices.append((found[0], each)), lambda _: None)
        consumer = self.broker.attach(topic, name, RETRY, None, CREDIT, 1 << 30, "worker", sink)
        found.append(consumer)
        self.pump()
        return consumer

    def settle(self, count: int, how: str, *, newest: bool = False) -> None:
        """Acks, nacks or rejects messages of the oldest slice, or the newest of the newest."""
        consumer, each = self.slices.pop(-1 if newest else 0)
        low, high = each.start, min(each.start + count, each.end)
        if newest:
            low, high = max(each.end - count, each.start), each.end
        claim = Claim(each.lease_id, each.partition, each.attempt, ((low, high),))
        if how == "ack":
            assert not self.broker.ack(consumer, [claim])
        else:
            cause = Cause.NACKED if how == "nack" else Cause.REJECTED
            assert not self.broker.give_back(consumer, claim, cause, None, f"{how}ed")
        self.pump()

    def detach(self, consumer: Consumer) -> None:
        """Leaves; what was not settled comes back."""
        pending = Pending()
        self.broker.detach(consumer, {}, DIRECT, pending)
        self.pump()
        pending.wait()
        self.slices = [pair for pair in self.slices if pair[0] is not consumer]

    def pump(self) -> None:
        """Does everything that waits."""
        broker = self.broker
        while broker.engine.commit_once() or broker.engine.run_jobs():
            pass
        if broker.engine.doomed:
            broker.keeper.move_doomed()

    def again(self) -> "Bench":
        """The same store after a kill and a restart."""
        self.broker.abandon()
        fresh = Bench(self.disk)
        fresh.sequences = self.sequences
        return fresh

    def snapshot(self) -> None:
        """Takes a snapshot and frees what it allows."""
        self.broker.keeper.snapshot()
        self.broker.journal.free_segments()


def build(rounds: int, seed: int = 1) -> list[Stage]:
    """The stages of one store's life; the last one is left by a broker that was killed."""
    rng = random.Random(seed)
    stages: list[Stage] = []
    with _fixed_chance(rng):
        disk = MemoryDisk()
        bench = Bench(disk)
        broker = bench.broker
        broker.create_topic("orders", 1, TopicPolicy(retain_s=None))
        broker.create_topic("events", 2, TopicPolicy(retain_s=None))
        broker.create_subscription("orders", "billing", RETRY, None)
        broker.create_subscription("orders", "audit", RETRY, None)
        broker.create_subscription("events", "all", RETRY, None)
        stages.append(Stage("begun", dict(disk.image())))
        for number in range(rounds):
            _round(bench, rng, number)
            if number in (rounds // 4, rounds // 2):
                bench.snapshot()
                stages.append(Stage(f"snapshot-{number}", dict(disk.image())))
            if number == rounds // 2 + 1:
                _compact(bench)
            if number == 2 * rounds // 3:
                bench.snapshot()
                bench.snapshot()
                stages.append(Stage("compacted", dict(disk.image())))
                bench = bench.again()
        _late(bench)
        bench.broker.journal.mark()
        stages.append(Stage("killed", dict(disk.image())))
        bench.broker.close()
        stages.append(Stage("closed", dict(disk.image())))
    return stages


def _round(bench: Bench, rng: random.Random, number: int) -> None:
    body = f"body {number} ".encode() + rng.randbytes(12)
    bench.publish("orders", 0, [Message(body=body + bytes([n]), key=f"k{n}") for n in range(2)])
    if number % 2:
        headers = {"number": str(number)}
        event = Message(body=body, headers=headers, id=f"event-{number}")
        bench.publish("events", number // 2 % 2, [event, body[::-1]])
    names = [("orders", "billing"), ("orders", "audit"), ("events", "all")]
    topic, name = names[number % 3]
    consumer = bench.attach(topic, name)
    how = "reject" if number == 4 else "nack" if number % 7 == 5 else "ack"
    if bench.slices:
        bench.settle(1 if number % 2 else 3, how)
    if bench.slices and number % 3 != 1:
        bench.settle(2, "ack", newest=True)
    bench.detach(consumer)


def _late(bench: Bench) -> None:
    """Changes that no snapshot has seen."""
    broker = bench.broker
    broker.create_topic("late", 1, TopicPolicy(retain_s=None))
    broker.create_subscription("late", "first", RETRY, None)
    bench.publish("late", 0, [b"one", b"two", b"three"])
    broker.create_subscription("late", "second", RETRY, "latest")
    bench.publish("late", 0, [b"four"])
    consumer = bench.attach("late", "first")
    bench.settle(2, "ack")
    bench.detach(consumer)
    broker.alter_topic("orders", {"retain_s": 3600.0})
    broker.create_topic("gone", 1, TopicPolicy(retain_s=None))
    bench.publish("gone", 0, [b"soon"])
    broker.delete_topic("gone")
    broker.create_subscription("events", "brief", RETRY, None)
    broker.delete_subscription("events", "brief")


def _compact(bench: Bench) -> None:
    """Moves what is held in the oldest sealed segment forward, whatever its share is."""
    segments = bench.broker.journal.index.segments
    sealed = [segments[number] for number in sorted(segments) if segments[number].is_sealed]
    held = [segment for segment in sealed if segment.live]
    bench.broker.keeper.compact(held[0])


@contextmanager
def _fixed_chance(rng: random.Random) -> Iterator[None]:
    with mock.patch.object(os, "urandom", rng.randbytes):
        yield
