"""Planted bugs in publishers, cursors, leases and dead letters."""

from typing import Any

from penstock.broker import broker, engine, rebuild, retaining
from penstock.broker.engine import Engine
from penstock.delivery import apply, dead, publish, settle, snapshot
from penstock.delivery.state import Publisher, State
from penstock.vocabulary.records import Published, Removed, Unit
from tests.crash import stages
from tests.crash import workload_changing as changing
from tests.crash import workload_keeping as keeping
from tests.crash import workload_publishing as publishing
from tests.crash import workload_settling as settling
from tests.crash import workload_snapshots as snapshots
from tests.crash.given import Hand
from tests.crash.sabotage import Planting, after, patch, sabotage

# -- publishers -----------------------------------------------------------------------------------


@sabotage("M10", "a sequence counts before its record is durable",
          stages.crash(snapshots.snapshot_before_commit))  # fmt: skip
def sequence_early() -> Planting:
    def count(decision: Any, partition: Any, *others: Any) -> Any:
        _batch, _count, publisher, *_ = others
        known = (partition.publishers or {}).get(publisher)
        if known is not None:
            known.last = known.decided
        return decision

    return after(broker, "decide_publish", count)


@sabotage("M11", "publishers are not restored", stages.crash(snapshots.snapshot_of_everything))
def publishers_forgotten() -> Planting:
    def forget(_: None, partition: Any, *_rest: Any) -> None:
        partition.publishers = None

    return after(snapshot, "_restore_partition", forget)


@sabotage("M11b", "a publisher's old epoch is forgotten when the new one is decided",
          stages.crash(publishing.publisher_comes_back))  # fmt: skip
def epoch_forgotten() -> Planting:
    return patch(Publisher, "durable", lambda self: self if self.last >= 0 else None)


@sabotage("M12", "a batch that overlaps an old one is dropped whole", stages.overlap)
def whole_batches() -> Planting:
    def drop(decision: Any, *_: Any) -> Any:
        is_overlap = isinstance(decision, Published) and decision.kept is not None
        return publish.Duplicate(0) if is_overlap else decision

    return after(broker, "decide_publish", drop)


# -- delivery -------------------------------------------------------------------------------------


@sabotage("M13", "an ack moves the cursor before it is written",
          stages.crash(snapshots.snapshot_before_commit))  # fmt: skip
def ack_early() -> Planting:
    def move(result: Any, consumer: Any, _claims: Any) -> Any:
        for record in result[0]:
            for start, end in record.ranges:
                consumer.subscription.cursors[record.partition].done.add(start, end)
        return result

    return after(settle, "decide_ack", move)


@sabotage("M20", "anybody may ack anything", stages.tokens)
def leases_unchecked() -> Planting:
    def take(consumer: Any, claim: Any, _refused: Any) -> Any:
        return consumer.subscription.cursors[claim.partition], list(claim.ranges)

    return patch(settle, "_close", take)


@sabotage("M21", "a stale token is as good as a fresh one", stages.tokens)
def tokens_unchecked() -> Planting:
    original = settle._close

    def trust(consumer: Any, claim: Any, refused: Any) -> Any:
        for lease in consumer.leases.values():
            claim = claim._replace(lease_id=lease.id)
        return original(consumer, claim, refused)

    return patch(settle, "_close", trust)


@sabotage(
    "M22", "an old back-off brings back what was acked", stages.crash(settling.nack_with_delay)
)
def backoff_survives() -> Planting:
    return patch(apply, "withdraw", lambda *_: 0)


@sabotage("M25", "a dead letter leaves its subscription before it arrives",
          stages.crash(settling.dead_twice))  # fmt: skip
def two_records() -> Planting:
    original = Engine.submit

    def torn(self: Engine, record: Any, waiter: Any, **options: Any) -> None:
        if isinstance(record, Unit):
            *arriving, leaving = record.records
            original(self, leaving, None, **options)
            self.commit_once()
            for part in arriving[:-1]:
                original(self, part, None, **options)
            record = arriving[-1]
        original(self, record, waiter, **options)

    return patch(Engine, "submit", torn)


@sabotage("M26", "failures are not restored", stages.crash(snapshots.snapshot_of_everything))
def trials_forgotten() -> Planting:
    def forget(_: None, cursor: Any, *_rest: Any) -> None:
        cursor.trials = None

    return after(snapshot, "_restore_cursor", forget)


@sabotage("M27", "leases run on the wall clock", stages.wall_clock_jumps)
def wall_leases() -> Planting:
    original = settle.decide_expired
    apart = Hand().wall() - Hand().now()

    def by_wall(subscription: Any, _now: int, wall: int) -> Any:
        return original(subscription, wall - apart, wall)

    return patch(settle, "decide_expired", by_wall)


@sabotage("M31", "a redriven message goes to every subscription",
          stages.crash(settling.dead_letters_of_two))  # fmt: skip
def redrive_to_all() -> Planting:
    original = dead._store

    def untargeted(partition: Any, batch: bytes, count: int, wall: int, _target: int) -> Any:
        return original(partition, batch, count, wall, 0)

    return patch(dead, "_store", untargeted)


@sabotage("M26b", "a message that was out is handed out again before that is written",
          stages.crash(keeping.killed_and_opened))  # fmt: skip
def attempts_unwritten() -> Planting:
    def hasty(offers: Any, *_: Any) -> Any:
        return [offer._replace(is_strict=False) for offer in offers]

    return after(engine, "dispatch", hasty)


@sabotage("M32", "after a restart messages are offered as if they had never been out",
          stages.crash(settling.consumers_come_and_go))  # fmt: skip
def offered_from_the_start() -> Planting:
    def everything(_: None, cursor: Any) -> None:
        cursor.ready = [(0, cursor.partition.next_offset)]

    return after(rebuild, "after_recovery", everything)


@sabotage(
    "M34", "retention removes what subscriptions still hold", stages.crash(changing.retention)
)
def retention_of_all() -> Planting:
    def everything(records: Any, partition: Any, *_: Any) -> Any:
        return [
            Removed(record.topic_id, record.partition, ((0, partition.next_offset),))
            for record in records
        ]

    return after(retaining, "decide_retention", everything)


@sabotage("M40", "records are written about a topic that is being deleted",
          stages.crash(changing.deletion_meets_compaction))  # fmt: skip
def deletion_unseen() -> Planting:
    return patch(State, "is_leaving", lambda *_: False)
