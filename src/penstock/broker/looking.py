"""Looking without taking: held messages, dead letters, statistics, health."""

from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from typing import Any

import msgspec

from penstock.batch import Batch
from penstock.batch.frame import Frame
from penstock.broker.keeper import Keeper
from penstock.broker.returning import Returns
from penstock.broker.seeking import Seeking
from penstock.broker.wall import alert
from penstock.delivery import admin, settle
from penstock.delivery.dead import decide_redrive
from penstock.delivery.members import refuse_parent
from penstock.delivery.reader import outside_planned, unplanned_frames
from penstock.delivery.state import Partition
from penstock.journal.journal import Journal
from penstock.vocabulary import names
from penstock.vocabulary.records import Ranges, Removed, Unit


class Looking(Seeking, Returns):
    """The looking half of a Broker."""

    journal: Journal
    keeper: Keeper
    _is_full: bool
    _dead_lock: Lock
    """One redrive or purge at a time, or two would move the same dead letter."""

    def held(
        self, topic_name: str, partition: int | None = None, after: int = 0
    ) -> Iterator[tuple[int, Frame]]:
        """(partition, frame) of every held message, oldest first, without leasing any."""
        with self.engine.lock:
            topic = admin.find_topic(self.state, topic_name)
        parts = topic.partitions if partition is None else [topic.partitions[partition]]
        for part in parts:
            at = after
            while True:
                with self.engine.lock:
                    run = next(iter(part.released.gaps(at, part.next_offset)), None)
                if run is None:
                    break
                start, end = run[0], min(run[1], run[0] + 1000)
                frames, _ = self.engine.read(part, start, end)
                for frame in frames:
                    yield part.index, frame
                at = end

    def redrive(
        self, topic_name: str, subscription_name: str, choose: Callable[[Frame, Batch, int], bool],
        limit: int | None, *, is_dry: bool,
    ) -> int:  # fmt: skip
        """Sends dead letters back to their subscription; returns how many."""
        with self.engine.lock:
            topic = admin.find_topic(self.state, topic_name)
            refuse_parent(admin.find_subscription(topic, subscription_name))
        count = 0
        with self._dead_lock:
            for partition, frames in self._chosen(topic_name, subscription_name, choose, limit):
                count += sum(len(frame.indexes) for frame in frames)
                if not is_dry:
                    self._run(
                        partial(self._redrive, topic_name, subscription_name, partition, frames)
                    )
        return count

    def _redrive(
        self, topic_name: str, subscription_name: str, partition: Partition, frames: list[Frame]
    ) -> Unit | None:
        """Looks again under the lock: any of the three may have been deleted meanwhile."""
        admin.find_topic(self.state, partition.topic.name)
        topic = admin.find_topic(self.state, topic_name)
        subscription = admin.find_subscription(topic, subscription_name)
        frames = unplanned_frames(partition, frames)
        if not frames:
            return None
        return decide_redrive(subscription, partition, frames, self.engine.clock.wall())

    def purge_dead(
        self, topic_name: str, subscription_name: str, choose: Callable[[Frame, Batch, int], bool],
        limit: int | None, *, is_dry: bool,
    ) -> int:  # fmt: skip
        """Removes dead letters for good; returns how many."""
        count = 0
        with self._dead_lock:
            for partition, frames in self._chosen(topic_name, subscription_name, choose, limit):
                offsets = [offset for frame in frames for offset in frame.offsets]
                count += len(offsets)
                if not is_dry:
                    ranges = settle.merge([(offset, offset + 1) for offset in offsets])
                    self._run(partial(self._purge, partition, ranges))
        return count

    def _purge(self, partition: Partition, ranges: Ranges) -> Removed | None:
        ranges = outside_planned(partition, ranges)
        if not ranges or self.state.is_leaving(partition.topic.id):
            return None
        return Removed(partition.topic.id, partition.index, ranges)

    def _chosen(
        self, topic_name: str, subscription_name: str, choose: Callable[[Frame, Batch, int], bool],
        limit: int | None,
    ) -> Iterator[tuple[Partition, list[Frame]]]:  # fmt: skip
        name = names.dead_topic(topic_name, subscription_name)
        if name not in self.state.names:
            return
        dead = self.state.names[name]
        left = limit
        for partition in dead.partitions:
            frames: list[Frame] = []
            held = [frame for _, frame in self.held(name, partition.index)]
            for frame in unplanned_frames(partition, held):
                if left is not None and left <= 0:
                    break
                view = Batch(frame.batch, verify=False)
                pairs = [
                    (offset, index)
                    for offset, index in zip(frame.offsets, frame.indexes, strict=True)
                    if choose(frame, view, index)
                ][:left]
                if pairs:
                    frames.append(
                        msgspec.structs.replace(
                            frame, offsets=[o for o, _ in pairs], indexes=[i for _, i in pairs]
                        )
                    )
                    left = None if left is None else left - len(pairs)
                if sum(len(f.indexes) for f in frames) >= 100:  # noqa: PLR2004 - a modest unit
                    yield partition, frames
                    frames = []
            if frames:
                yield partition, frames

    def stats(self) -> dict[str, Any]:
        """The broker in numbers."""
        with self.engine.lock:
            journal, report = self.journal, self.journal.report
            segments = list(journal.index.segments.values())
            return {
                "generation": self.state.generation,
                "topics": len(self.state.topics),
                "subscriptions": sum(s.is_durable for s in self.state.subscriptions.values()),
                "consumers": len(self.engine.consumers) - len(self.engine.away),
                **self.count_returns(),
                "messages_held": sum(
                    p.held for t in self.state.topics.values() for p in t.partitions
                ),
                "segments": len(segments),
                "spare_segments": len(journal.spares.files),
                "disk_bytes": journal.disk_bytes,
                "live_bytes": sum(self.keeper.live_bytes(segment) for segment in segments),
                "snapshots": len(journal.snapshots),
                "records": journal.records,
                "time": self.engine.retaining.time.state(),
                "health": self.health(),
                "recovery": msgspec.to_builtins(report),
            }

    def health(self) -> dict[str, Any]:
        """Whether something needs a person: `ok`, `degraded` or `failed`, and why."""
        journal = self.journal
        reasons = [str(damage) for damage in journal.report.damages] + journal.report.notes
        reasons += self.keeper.blocked()
        time = self.engine.retaining.time
        if time.is_paused:
            reasons.append(alert(time.jumped_ms))
        if self._is_full:
            reasons.append("free space is below the reserve: publishes are refused")
        if journal.failed is not None:
            return {"status": "failed", "reasons": [str(journal.failed), *reasons]}
        return {"status": "degraded" if reasons else "ok", "reasons": reasons}
