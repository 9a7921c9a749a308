"""What tests of consumers that return have in common."""

from penstock.batch.frame import Slice
from penstock.delivery.counts import unexplained
from penstock.delivery.settle import merge
from penstock.vocabulary.claims import Held, Kept, Returning
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.records import Ranges
from tests.broker.rig import Rig, Worker

REATTACH_S = 5.0
KEYED = SubscriptionPolicy(kind=Kind.KEY_SHARED)
ONCE = SubscriptionPolicy(qos=0)
EXACT = SubscriptionPolicy(qos=2)


def held(part: Slice, *ranges: tuple[int, int]) -> Held:
    """What a consumer names: everything that arrived of a slice, or these ranges."""
    arrived = [(o, o + 1) for frame in part.frames for o in frame.offsets]
    named = ranges or merge(arrived or [(part.start, part.end)])
    return Held(part.lease_id, part.partition, part.attempt, named)


def was(rig: Rig, worker: Worker, *names: Held) -> Returning:
    """What a consumer says of itself; `rig` is the broker it was attached to."""
    return Returning(rig.broker.generation, worker.consumer.id, list(names))


def kept_ranges(worker: Worker) -> list[Ranges]:
    return [each.ranges for each in worker.consumer.kept]


def moved(worker: Worker, part: Slice) -> Slice:
    """A slice as its consumer knows it after its return."""
    found: dict[int, Kept] = {each.old_lease_id: each for each in worker.consumer.kept}
    number = found[part.lease_id].lease_id
    return Slice(number, part.partition, part.start, part.end, part.attempt, part.frames)


def trial(rig: Rig, offset: int) -> tuple[int, ...]:
    return tuple(rig.subscription().cursors[0].trial(offset))


def counts(rig: Rig, **expected: int) -> None:
    found = rig.counts()
    assert unexplained(found) == 0
    assert {name: getattr(found, name) for name in expected} == expected
