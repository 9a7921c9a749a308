"""What the killed processes were told, and whether a store still keeps to it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.batch import Batch
from penstock.broker.broker import Broker
from penstock.delivery import counts
from penstock.delivery.ranges import RangeSet
from penstock.delivery.state import Cursor, Partition
from tests.crash.kill_child import PARTITIONS, PUBLISHERS, SUBSCRIPTIONS, TOPIC, identify
from tests.tally import Tally

Place = tuple[str, int]
"""A subscription and a partition."""


class Score(msgspec.Struct):
    """What the run prints."""

    kills: int = 0
    lives: int = 0
    restarts_ok: int = 0
    confirmed: int = 0
    acked: int = 0
    lost: int = 0
    dup: int = 0
    redelivered_after_ack: int = 0
    wrong: int = 0
    failed_operations: int = 0
    recover_ms: list[float] = []
    problems: list[str] = []

    def recovery(self) -> tuple[float, float]:
        """Median and 99th percentile of the time an opening took, in ms."""
        times = sorted(self.recover_ms) or [0.0]
        return times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]

    def tell(self, tally: Tally, line: str) -> None:
        """Adds the numbers to those of the run."""
        names = (
            "kills", "restarts_ok", "confirmed", "acked", "lost", "dup", "redelivered_after_ack",
            "wrong", "failed_operations",
        )  # fmt: skip
        tally.add(line, **{name: getattr(self, name) for name in names})
        p50, p99 = self.recovery()
        tally.name(line, "recover_ms_p50", [f"{p50:.1f}"])
        tally.name(line, "recover_ms_p99", [f"{p99:.1f}"])

    def line(self) -> str:
        """The line of the report."""
        p50, p99 = self.recovery()
        return (
            f"kill kills={self.kills} restarts_ok={self.restarts_ok} lost={self.lost} "
            f"dup={self.dup} redelivered_after_ack={self.redelivered_after_ack} "
            f"wrong={self.wrong} recover_ms_p50={p50:.1f} p99={p99:.1f} "
            f"confirmed={self.confirmed} acked={self.acked}"
        )


class Book:
    """Reads the history as it grows."""

    def __init__(self, history: Path) -> None:
        self.history = history
        self.read_upto = 0
        self.score = Score()
        self.invoked: dict[str, tuple[int, int]] = {}
        """Publisher → sequence and count of its newest batch."""
        self.confirmed: dict[str, int] = {}
        """Publisher → first sequence not confirmed."""
        self.offsets: dict[tuple[int, int], tuple[str, int]] = {}
        """(partition, offset) → (publisher, sequence), as confirmed."""
        self.places: dict[tuple[str, int], int] = {}
        """(publisher, sequence) → offset, as confirmed."""
        pairs = [(name, n) for name in SUBSCRIPTIONS for n in range(PARTITIONS)]
        self.tried: dict[Place, RangeSet] = {pair: RangeSet() for pair in pairs}
        self.acked: dict[Place, RangeSet] = {pair: RangeSet() for pair in pairs}

    def publishers(self) -> dict[str, tuple[int, int]]:
        """Where each publisher goes on: its next sequence, and the count it has to repeat."""
        found: dict[str, tuple[int, int]] = {}
        for name, (sequence, count) in self.invoked.items():
            done = self.confirmed.get(name, 0)
            found[name] = (sequence, count) if sequence >= done else (done, 0)
        return found

    def catch_up(self) -> None:
        """Takes in what the history tells since the last time."""
        data = self.history.read_bytes()
        end = data.rfind(b"\n") + 1
        for line in data[self.read_upto : end].decode().splitlines():
            kind, _, rest = line.partition(" ")
            getattr(self, f"_{kind}")(*rest.split(" ", 3))
        self.read_upto = end

    def _o(self, _ms: str) -> None:
        self.score.lives += 1

    def _i(self, name: str, sequence: str, count: str) -> None:
        self.invoked[name] = (int(sequence), int(count))

    def _p(self, name: str, sequence: str, count: str, base: str) -> None:
        partition = PUBLISHERS.index(name) % PARTITIONS
        first, start = int(sequence), int(base)
        self.confirmed[name] = first + int(count)
        self.score.confirmed += int(count)
        for n in range(int(count)):
            identity, spot = (name, first + n), (partition, start + n)
            if self.offsets.setdefault(spot, identity) != identity:
                self._problem("wrong", f"offset {spot} was given to {identity} too")
            if self.places.setdefault(identity, start + n) != start + n:
                self._problem("dup", f"{identity} is at {start + n} too")

    def _d(self, name: str, partition: str, start: str, end: str) -> None:
        acked = self.acked[name, int(partition)]
        again = [*acked.inside(int(start), int(end))]
        if again:
            self._problem("redelivered_after_ack", f"{name} {partition} {again}")

    def _x(self, name: str, partition: str, start: str, end: str) -> None:
        self.tried[name, int(partition)].add(int(start), int(end))

    def _a(self, name: str, partition: str, start: str, end: str) -> None:
        self.score.acked += int(end) - int(start)
        self.acked[name, int(partition)].add(int(start), int(end))

    def _e(self, *_words: str) -> None:
        self.score.failed_operations += 1

    def _w(self, *words: str) -> None:
        self._problem("wrong", " ".join(words))

    def _problem(self, field: str, text: str) -> None:
        setattr(self.score, field, getattr(self.score, field) + 1)
        self.score.problems.append(f"{field}: {text}")

    # -- the store against the book --------------------------------------------------------------

    def check(self, broker: Broker) -> None:
        """Every promise of the past lives, held against this store."""
        topic = broker.state.names.get(TOPIC)
        if topic is None:
            if self.offsets:
                self._problem("lost", "the topic is gone")
            return
        for partition in topic.partitions:
            self._check_messages(broker, partition)
        for subscription in topic.durable_subscriptions():
            for cursor in subscription.cursors:
                self._check_cursor(cursor)
            if counts.unexplained(counts.count(subscription)):
                self._problem("wrong", f"{subscription.name} does not add up")
        if {s.name for s in topic.durable_subscriptions()} < set(SUBSCRIPTIONS) and self.offsets:
            self._problem("lost", "a subscription is gone")

    def _check_cursor(self, cursor: Cursor) -> None:
        where = (cursor.subscription.name, cursor.partition.index)
        end = cursor.partition.next_offset
        for low, high in self._unasked(cursor.done, where):
            self._problem("lost", f"{where} {low}–{high} is finished and nobody did it")
        for low, high in cursor.done.gaps(0, end):
            if list(cursor.partition.released.inside(low, high)):
                self._problem("lost", f"{where} {low}–{high} is released and not finished")
        for low, high in self.acked[where].inside(0, end):
            if list(cursor.done.gaps(low, high)):
                self._problem("redelivered_after_ack", f"{where} {low}–{high}")

    def _check_messages(self, broker: Broker, partition: Partition) -> None:
        confirmed = [offset for index, offset in self.offsets if index == partition.index]
        if confirmed and max(confirmed) >= partition.next_offset:
            self._problem("lost", f"confirmed up to {max(confirmed)}, log ends before")
        for low, high in list(partition.released.gaps(0, partition.next_offset)):
            frames, missing = broker.engine.read(partition, low, high)
            if missing:
                self._problem("lost", f"{missing} cannot be read")
            for frame in frames:
                view = Batch(frame.batch)
                for offset, index in zip(frame.offsets, frame.indexes, strict=True):
                    self._check_message(partition.index, offset, view.bodies[index] or b"")

    def _check_message(self, partition: int, offset: int, body: bytes) -> None:
        identity = identify(body)
        if identity is None:
            self._problem("wrong", f"{partition}:{offset} has the body {body[:40]!r}")
            return
        if self.offsets.get((partition, offset), identity) != identity:
            self._problem("wrong", f"{partition}:{offset} was {identity} once")
        if self.places.get(identity, offset) != offset:
            self._problem("dup", f"{identity} is at {self.places[identity]} and {offset}")
        name, sequence = identity
        first, count = self.invoked.get(name, (0, 0))
        if sequence >= first + count:
            self._problem("wrong", f"{identity} was never published")

    def _unasked(self, done: RangeSet, where: Place) -> Iterator[tuple[int, int]]:
        """Finished messages that no consumer ever tried to finish."""
        tried = self.tried[where]
        for low, high in [(0, done.floor), *done.ranges()]:
            yield from tried.gaps(low, high)
