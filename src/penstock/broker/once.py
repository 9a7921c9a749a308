"""QoS 0: messages are read, finished on disk, and only then handed over."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.batch.frame import Frame
from penstock.broker.mailbox import DIRECT, Target
from penstock.delivery.leases import close_bits
from penstock.delivery.masking import masked
from penstock.delivery.once import decide_hand_over, settled
from penstock.delivery.state import Lease
from penstock.vocabulary.records import Lost, Outcome

if TYPE_CHECKING:
    from penstock.broker.engine import Engine

Give = Callable[[Lease, list[Frame]], None]


def hand_over_once(engine: "Engine", lease: Lease, give: Give) -> None:
    """Gives a slice to its consumer after the record that finishes it is durable.

    The worker reads first: once they are finished the bytes may be overwritten. It takes one
    slice after the other, so their order is kept.
    """
    lease.is_out = False
    engine.jobs.append(lambda: _read_and_finish(engine, lease, give))
    engine.wake_worker()


def _read_and_finish(engine: "Engine", lease: Lease, give: Give) -> None:
    partition, consumer = lease.cursor.partition, lease.consumer
    frames, lost = engine.read(partition, lease.start, lease.end)
    with engine.lock:
        is_off = consumer.is_gone or consumer.away_until or engine.journal.failed is not None
        if lease.id not in consumer.leases or is_off:
            return
        is_durable = lease.cursor.subscription.is_durable
        offsets = [offset for frame in frames for offset in frame.offsets]
        decision = decide_hand_over(engine.state, lease, offsets)
        if decision is not None:
            record, shade = decision
            if shade.count < len(offsets):
                frames = masked(frames, shade.start, shade.mask())
            if is_durable:
                engine.submit(record, (DIRECT, _when_finished(engine, shade, frames, give), None))
            else:
                engine.apply_now(record)
                give(shade, frames)
        if is_durable and lost:
            engine.submit(Lost(partition.topic.id, partition.index, tuple(lost)), None)
        elif not is_durable:
            _skip_rest(engine, lease)


def _when_finished(engine: "Engine", shade: Lease, frames: list[Frame], give: Give) -> Target:
    def finished(answer: Any) -> None:
        if isinstance(answer, BaseException):
            return
        with engine.lock:
            # Whoever left meanwhile has said so in a record that counts these as dropped.
            if shade.id in shade.consumer.leases and not shade.consumer.is_gone:
                give(shade, frames)

    return finished


def _skip_rest(engine: "Engine", lease: Lease) -> None:
    """An ephemeral consumer holds nothing: what was released before it was read is skipped."""
    ranges = [part for low, high in lease.unfinished() for part in close_bits(lease, low, high)]
    if ranges:
        engine.apply_now(settled(lease, ranges, Outcome.DROPPED))
