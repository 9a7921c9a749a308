"""The stored bytes of messages, from memory or from the disk."""

from penstock.batch.frame import Frame, frame_of
from penstock.delivery.leases import close_bits
from penstock.delivery.masking import masked
from penstock.delivery.state import Lease, Partition
from penstock.journal.journal import Journal
from penstock.vocabulary.errors import RecordDamaged
from penstock.vocabulary.records import Outcome, Published, Settled


def cached_frames(journal: Journal, lease: Lease) -> list[Frame] | None:
    """What a lease hands over, when all of it is in memory; None when the disk must be read."""
    key = lease.cursor.partition.key
    frames: list[Frame] = []
    covered = lease.start
    for place in journal.index.locate(key, lease.start, lease.end):
        record = journal.cached(place)
        if type(record) is not Published or place.first > covered:
            return None
        frames.append(frame_of(record, covered, lease.end))
        covered = place.last + 1
    if covered < lease.end:
        return None
    return frames if lease.open is None else masked(frames, lease.start, lease.open)


def read_frames(
    journal: Journal, partition: Partition, start: int, end: int
) -> tuple[list[Frame], list[tuple[int, int]]]:
    """Frames of start…end from memory or disk, and the ranges that cannot be read."""
    frames: list[Frame] = []
    lost: list[tuple[int, int]] = []
    covered = start
    for place in journal.index.locate(partition.key, start, end):
        if place.first > covered:
            lost.append((covered, place.first))
        upto = min(place.last + 1, end)
        begin = max(place.first, covered)
        try:
            record = journal.fetch(place, partition.key)
        except RecordDamaged as error:
            journal.note(f"{partition.topic.name}: {error}")
            place.segment.is_damaged = True
            lost.append((begin, upto))
        else:
            if record is not None:
                frames.append(frame_of(record, begin, upto))
        covered = upto
    if covered < end:
        lost.append((covered, end))
    still_held = [
        gap
        for low, high in lost
        for gap in partition.released.gaps(low, min(high, partition.next_offset))
    ]
    for low, high in still_held:
        journal.note(f"{partition.topic.name}: messages {low}–{high - 1} cannot be read any more")
    return frames, still_held


def skip_missing(lease: Lease, frames: list[Frame]) -> Settled | None:
    """An ephemeral consumer holds nothing: what was released before it was read is skipped."""
    present = {offset for frame in frames for offset in frame.offsets}
    meant = [o for low, high in lease.unfinished() for o in range(low, high)]
    missing = [(o, o + 1) for o in meant if o not in present]
    if not missing:
        return None
    cursor = lease.cursor
    for start, end in missing:
        close_bits(lease, start, end)
    cursor.settling += len(missing)
    partition, number = cursor.partition, cursor.subscription.id
    return Settled(partition.topic.id, partition.index, number, Outcome.DROPPED, tuple(missing))
