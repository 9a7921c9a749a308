"""One message that may be stuck, and what every check of `explain` looks at."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.delivery.line import offsets_in
from penstock.delivery.offers import places_in
from penstock.delivery.state import Cursor, Lease
from penstock.delivery.traits import Offsets
from penstock.vocabulary.records import Returned, Settled

Finding = dict[str, Any]
"""`reason` (a stable code), `text` (a sentence that says what to do next), and details."""

Place = tuple[Cursor, int]
"""A message, as the `head` a check names: `explain_message` puts why that one waits there."""


class Case(NamedTuple):
    """One message of one subscription, and what is known besides the state."""

    cursor: Cursor
    offset: int
    now: int
    """Monotonic ms."""
    wall: int
    """Unix ms."""
    dead_at: str | None = None
    """Where it lies in the dead-letter topic, when it does."""
    blocked: str = ""
    """Why its dead letters cannot be moved, when they cannot."""
    jumped_ms: int = 0
    """How far the wall clock jumped, while nobody has confirmed it: nothing ends by its age."""
    pattern: str = ""
    """The pattern its subscription belongs to."""
    is_in_unit: bool = False
    """A unit that is not durable yet settles it."""
    is_head: bool = False
    """Another message waits for this one: what this one waits for is not followed further."""


Check = Callable[[Case], Finding | None]


def place(case: Case) -> Finding:
    """Which message of which subscription it is."""
    partition = case.cursor.partition
    return {
        "reason": "",
        "text": "",
        "topic": partition.topic.name,
        "subscription": case.cursor.subscription.name,
        "position": position(case.cursor, case.offset),
        "partition": partition.index,
        "offset": case.offset,
    }


def position(cursor: Cursor, offset: int) -> str:
    """A position as people write it."""
    return f"{cursor.partition.index}:{offset}"


def history(case: Case) -> Finding:
    """Attempts so far, and how the last one ended."""
    trial = case.cursor.trial(case.offset)
    reason, consumer = (case.cursor.reasons or {}).get(case.offset, ("", ""))
    return {"attempt": trial.attempt, "last_reason": reason, "last_consumer": consumer}


def trait(cursor: Cursor, name: str, offset: int) -> int:
    """The key's hash, priority, or a time of one message; 0 when it has none."""
    traits = cursor.partition.traits
    return 0 if traits is None else int(traits.column(name, offset, offset + 1)[0])


def traits_of(cursor: Cursor, name: str, offsets: Offsets) -> Offsets:
    """The same of some rising offsets."""
    traits = cursor.partition.traits
    if traits is None:
        return np.zeros(len(offsets), dtype=np.int64)
    return traits.of(name, offsets)


def seconds(milliseconds: float) -> str:
    """A length of time as people read it."""
    left = max(0.0, milliseconds / 1000)
    if left < 120:  # noqa: PLR2004 - two minutes
        return f"{left:.1f} s"
    sizes = ((86_400, "days"), (3_600, "hours"), (60, "minutes"))
    size, unit = next(row for row in sizes if left >= 2 * row[0])
    return f"{left / size:.1f} {unit}"


def messages(count: int) -> str:
    """1 message, 2 messages."""
    return f"{count} message" if count == 1 else f"{count} messages"


# -- where it is ---------------------------------------------------------------------------------


def is_in(rows: list[tuple[int, int]] | None, offset: int) -> bool:
    """True when one of these ranges has this offset."""
    return any(start <= offset < end for start, end in rows or ())


def is_waiting(cursor: Cursor, offset: int) -> bool:
    """True for an unfinished message that is in nobody's hands, backs off or not yet due."""
    return (
        offset >= cursor.next
        or is_in(cursor.ready, offset)
        or is_in(cursor.isolated, offset)
        or (cursor.line is not None and cursor.line.holds(offset))
    )


def is_backing_off(cursor: Cursor, offset: int) -> bool:
    """True for a message whose next attempt waits for its back-off."""
    return any(start <= offset < end for _, start, end, _, _ in cursor.delayed or ())


def is_coming_back(cursor: Cursor, offset: int) -> bool:
    """True for a message of a key_shared subscription whose return is decided, not yet durable."""
    return any(isinstance(record, Returned) for record in undurable(cursor, offset))


def undurable(cursor: Cursor, offset: int) -> list[Settled | Returned]:
    """Decisions about a message of a key_shared subscription that are not durable yet."""
    keys = cursor.subscription.keys
    return [
        record
        for record in ({} if keys is None else keys.decided).values()
        if record.partition == cursor.partition.index and offset in offsets_of(record)
    ]


def offsets_of(record: Settled | Returned) -> Offsets:
    """The messages a decision is about, rising."""
    offsets: Offsets = np.sort(offsets_in(record.ranges))
    if isinstance(record, Settled) and record.mask:
        offsets = places_in(int.from_bytes(record.mask, "little")) + offsets[0]
    return offsets


def lease_of(cursor: Cursor, offset: int) -> Lease | None:
    """Who holds a message."""
    for consumer in cursor.subscription.consumers or ():
        for lease in consumer.leases.values():
            if lease.cursor is cursor and holds(lease, offset):
                return lease
    return None


def holds(lease: Lease, offset: int) -> bool:
    """True when a message is in a lease and not finished."""
    return lease.start <= offset < lease.end and lease.mask() >> (offset - lease.start) & 1 == 1


def lease_until(lease: Lease, offset: int) -> int:
    """When the lease of this message ends, in monotonic ms."""
    until = lease.deadline
    for below, deadline in reversed(lease.marks or ()):
        if offset < below:
            until = deadline
    return max(until, (lease.kept or {}).get(offset, 0))
