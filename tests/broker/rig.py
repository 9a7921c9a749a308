"""A broker without threads on a disk in memory: the test moves the clock and every step."""

from typing import Any

from penstock.batch import Batch, encode_many
from penstock.batch.frame import Slice
from penstock.broker.broker import Broker, Sink
from penstock.broker.mailbox import DIRECT, Pending
from penstock.delivery.counts import Counts, count
from penstock.delivery.state import Consumer, Subscription
from penstock.journal.memory import MemoryDisk, Verb
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.claims import Claim, Refusal, Returning, Revoked
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Cause, Ranges
from penstock.vocabulary.stored import Stored

SETTINGS = JournalSettings(
    segment_bytes_min=4096, segment_bytes_max=4096, reserve_bytes=0, is_zeroing=False
)
NAMED = b"\x01" + bytes(14) + b"n"
GENERATED = b"\x02" + bytes(14) + b"g"


class ManualClock:
    """Stands still until `advance`."""

    def __init__(self) -> None:
        self.monotonic_ms = 1_000_000
        self.wall_ms = 1_700_000_000_000

    def now(self) -> int:
        return self.monotonic_ms

    def wall(self) -> int:
        return self.wall_ms

    def advance(self, seconds: float) -> None:
        self.monotonic_ms += int(seconds * 1000)
        self.wall_ms += int(seconds * 1000)


class Worker:
    """A consumer and what has reached it."""

    def __init__(self) -> None:
        self.consumer: Consumer
        self.slices: list[Slice] = []
        self.closed: list[Exception] = []
        self.revoked: list[Revoked] = []

    def receive(self, part: Slice) -> None:
        self.slices.append(part)

    @property
    def bodies(self) -> list[bytes | None]:
        return [body for part in self.slices for body in bodies_of(part)]

    def take(self) -> list[Slice]:
        """What came since the last time."""
        taken, self.slices = self.slices, []
        return taken

    def take_one(self) -> Slice:
        (part,) = self.take()
        return part


def bodies_of(part: Slice) -> list[bytes | None]:
    return [Batch(frame.batch).bodies[index] for frame in part.frames for index in frame.indexes]


def claim(part: Slice, *ranges: tuple[int, int]) -> Claim:
    held = ranges or ((part.start, part.end),)
    return Claim(part.lease_id, part.partition, part.attempt, held)


class Rig:
    """An open broker and the shortest way to use it."""

    def __init__(
        self,
        disk: MemoryDisk | None = None,
        clock: ManualClock | None = None,
        settings: JournalSettings = SETTINGS,
        durability: Durability = Durability.SYNCED,
        reattach_s: float = 0.0,
    ) -> None:
        self.disk = disk or MemoryDisk(record=True)
        self.clock = clock or ManualClock()
        self.settings = settings
        self.broker = Broker.open(
            self.disk, settings, self.clock, threads=False, durability=durability,
            reattach_s=reattach_s,
        )  # fmt: skip
        self.reattach_s = reattach_s
        self.engine = self.broker.engine
        self.keeper = self.broker.keeper
        self.journal = self.broker.journal
        self.sequences: dict[Any, int] = {}

    # -- time and turns --------------------------------------------------------------------------

    def settle(self) -> None:
        """Commits and reads until there is nothing left to do."""
        while self.engine.commit_once() or self.engine.run_jobs():
            pass

    def wait(self, seconds: float) -> None:
        """Lets time pass, and does what it demands."""
        self.clock.advance(seconds)
        self.broker.tick()
        self.settle()

    def crash(self) -> "Rig":
        """The process dies as it stands, and another opens the store."""
        disk = MemoryDisk.from_image(self.disk.image(), record=True)
        fresh = Rig(disk, self.clock, self.settings, reattach_s=self.reattach_s)
        fresh.sequences = self.sequences
        return fresh

    def restart(self) -> "Rig":
        """Stops in good order and opens the store again."""
        self.broker.close()
        return self.crash()

    def syncs(self) -> int:
        """How often anything was synced so far."""
        return sum(op.verb is Verb.SYNC for op in self.disk.trace)

    # -- publish ---------------------------------------------------------------------------------

    def submit(
        self,
        topic: str = "orders",
        *bodies: bytes,
        partition: int = 0,
        publisher: bytes = NAMED,
        epoch: int = 0,
        sequence: int | None = None,
    ) -> Pending:
        """Publishes without committing; without bodies, one that says its sequence."""
        place = (topic, partition, publisher, epoch)
        if sequence is None:
            sequence = self.sequences.get(place, 0)
        batch_bodies = bodies or (b"%d" % sequence,)
        self.sequences[place] = max(self.sequences.get(place, 0), sequence + len(batch_bodies))
        pending = Pending()
        self.broker.publish(
            topic, partition, encode_many(list(batch_bodies)), len(batch_bodies), publisher, epoch,
            sequence, DIRECT, pending,
        )  # fmt: skip
        return pending

    def publish(self, topic: str = "orders", *bodies: bytes, **options: Any) -> Stored:
        pending = self.submit(topic, *bodies, **options)
        self.settle()
        stored: Stored = pending.wait()
        return stored

    # -- consume ---------------------------------------------------------------------------------

    def attach(
        self,
        topic: str = "orders",
        subscription: str | None = "billing",
        *,
        credit: int = 1000,
        credit_bytes: int = 1 << 26,
        policy: SubscriptionPolicy | None = None,
        start: Any = None,
        name: str = "worker",
        is_settled: bool = True,
        is_named: bool = False,
        returning: Returning | None = None,
    ) -> Worker:
        worker = Worker()
        sink = Sink(DIRECT, worker.receive, worker.closed.append, worker.revoked.append)
        worker.consumer = self.broker.attach(
            topic, subscription, policy, start, credit, credit_bytes, name, sink,
            is_named=is_named, returning=returning,
        )  # fmt: skip
        if is_settled:
            self.settle()
        return worker

    def ack(self, worker: Worker, part: Slice, *ranges: tuple[int, int]) -> list[Refusal]:
        refused = self.broker.ack(worker.consumer, [claim(part, *ranges)])
        self.settle()
        return refused

    def give_back(
        self,
        worker: Worker,
        part: Slice,
        *ranges: tuple[int, int],
        cause: Cause = Cause.NACKED,
        delay_s: float | None = None,
        reason: str = "",
    ) -> list[Refusal]:
        refused = self.broker.give_back(
            worker.consumer, claim(part, *ranges), cause, delay_s, reason
        )
        self.settle()
        return refused

    def detach(
        self, worker: Worker, begun: dict[int, Ranges] | None = None, *, is_clean: bool = True
    ) -> None:
        pending = Pending()
        self.broker.detach(worker.consumer, begun or {}, DIRECT, pending, is_clean=is_clean)
        self.settle()
        pending.wait()

    # -- look ------------------------------------------------------------------------------------

    def subscription(self, topic: str = "orders", name: str = "billing") -> Subscription:
        return (self.broker.state.names[topic].subscriptions or {})[name]

    def counts(self, topic: str = "orders", name: str = "billing") -> Counts:
        return count(self.subscription(topic, name))

    def held(self, topic: str = "orders") -> list[bytes | None]:
        """Bodies of every held message, in order."""
        return [
            Batch(frame.batch).bodies[index]
            for _, frame in self.broker.held(topic)
            for index in frame.indexes
        ]
