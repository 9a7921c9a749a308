"""A reference model of delivery: one word for each message and subscription, in plain dicts.

It is written from the contract, not from the code. Where the contract leaves a choice (which
consumer, how much jitter, whether a loss was alone) it takes what it sees, if that is allowed.
Numbers that may be one of two values are kept as (lowest, highest).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

WAITING, LEASED, DELAYED, DOOMED = "waiting", "leased", "delayed", "doomed"
ACKED, DEAD, EXPIRED, DROPPED = "acked", "dead", "expired", "dropped"
ENDED: Final = frozenset({ACKED, DEAD, EXPIRED, DROPPED})
NEVER: Final = 1 << 62
ROW_MS: Final = 3_000
"""What a rule about age removes may stay this much longer."""
LOOK_MS: Final = 1_000
"""What has expired may wait this long for the next look."""
ID_MS: Final = 600_000

Place = tuple[int, int]
"""Partition and offset."""
Span = tuple[int, int]
"""The lowest and the highest value a number may have."""


class Broken(AssertionError):
    """The broker did what the contract forbids."""


def demand(is_right: object, text: str) -> None:
    """Raises Broken."""
    if not is_right:
        raise Broken(text)


@dataclass
class Clock:
    """What time it is, and in which step."""

    now: int = 0
    wall: int = 0
    step: int = 0


@dataclass
class Fact:
    """A published message."""

    body: bytes
    key: str | None = None
    id: str | None = None
    priority: int = 0
    deliver_at: int = 0
    expires_at: int = 0
    published_at: int = 0
    only_for: str | None = None
    """Sent back to this subscription alone."""
    is_retained: bool = False
    """Nobody covered it when it was published, and nobody took it over."""
    kept_since: int = 0
    """When the rules about age came that apply to it."""


@dataclass
class Entry:
    """One message in one subscription."""

    state: str = WAITING
    attempt: Span = (0, 0)
    counted: Span = (0, 0)
    losses: int = 0
    due: Span = (0, 0)
    worker: int = 0
    lease: int = 0
    """The lease it was last handed out in."""
    deadline: int = 0
    is_fresh: bool = False
    """Handed out, and perhaps not written yet."""
    may_die: bool = False
    waits_since: int = -1
    """The step in which it began to wait."""
    back_at: int = 0
    """When it came back, wall time."""
    finished_by: int = 0
    """The attempt that acked it; 0 = one whose number was given back before."""


@dataclass
class Rules:
    """The policy of a subscription."""

    kind: str = "shared"
    lease_ms: int = 30_000
    first_ms: int = 500
    max_ms: int = 4_000
    max_attempts: int = 3
    qos: int = 1


@dataclass
class Sub:
    """A subscription and its book."""

    name: str
    rules: Rules
    begin: dict[int, int]
    entries: dict[Place, Entry] = field(default_factory=dict)
    sums: dict[int, dict[str, int]] = field(default_factory=dict)
    workers: dict[int, int] = field(default_factory=dict)
    """Consumer → credit."""
    ghosts: list[tuple[str, int, int]] = field(default_factory=list)
    """(key, consumer, until): taken from a consumer that may still be at work on it."""
    voided: dict[int, int] = field(default_factory=dict)
    """Leases up to this number ended with a seek, by partition."""

    def add(self, partition: int, name: str, number: int) -> None:
        """Changes one of the sums of a partition."""
        row = self.sums.setdefault(partition, {})
        row[name] = row.get(name, 0) + number

    def end(self, place: Place, state: str) -> None:
        """A message is finished."""
        self.entries[place].state = state
        self.add(place[0], state, 1)

    def ack(self, place: Place, attempt: int) -> None:
        """A message is acked with the token of one of its attempts."""
        self.end(place, ACKED)
        entry = self.entries[place]
        entry.finished_by = attempt if entry.attempt == (attempt, attempt) else 0

    def held_by(self, worker: int) -> list[Place]:
        """What a consumer holds."""
        return [p for p, e in self.entries.items() if e.state == LEASED and e.worker == worker]

    def open(self) -> list[Place]:
        """Everything that is not finished."""
        return [place for place, entry in self.entries.items() if entry.state not in ENDED]


@dataclass
class Topic:
    """A topic, its messages and its subscriptions."""

    name: str
    partitions: int
    replaces: bool
    facts: dict[Place, Fact] = field(default_factory=dict)
    subs: dict[str, Sub] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=dict)
    held: set[Place] = field(default_factory=set)
    ids: dict[tuple[int, str], tuple[int, bool]] = field(default_factory=dict)
    """(partition, id) → when it was stored, and whether a redrive makes that uncertain."""
    dead: dict[str, list[tuple[Place, Fact, int]]] = field(default_factory=dict)
    """Dead letters of a subscription: their place there, and the partition they came from."""
    replay_ms: int = 0
    keep_last: int = 0
    keep_from: dict[int, int] = field(default_factory=dict)
    """Offsets from which `keep_last` counts."""
    max_age_ms: int = NEVER
    growths: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    """When partitions were added, and where the older ones ended then."""
    coming: set[tuple[int, str | None]] = field(default_factory=set)
    """(partition, id) of what is decided and not yet durable: it may have replaced others."""


def era(topic: Topic, place: Place) -> int:
    """How often partitions had been added when this message came."""
    return sum(place[1] >= ends.get(place[0], 0) for _, ends in topic.growths)


def is_moved(topic: Topic, older: Place, newer: Place) -> bool:
    """True when partitions were added between two messages, and the older lies in another one."""
    return older[0] != newer[0] and any(
        older[1] < ends.get(older[0], 0) and newer[1] >= ends.get(newer[0], 0)
        for _, ends in topic.growths
    )


def begin_to_wait(entry: Entry, clock: Clock, *, at_once: bool = False) -> None:
    """A message may be handed out; `at_once` = before anything else happens in this step."""
    entry.state = WAITING
    entry.waits_since = clock.step - 1 if at_once else clock.step
    entry.back_at = clock.wall


def publish(topic: Topic, partition: int, fact: Fact, clock: Clock) -> Place:
    """A message is stored: every subscription gets it, older ones with its id are dropped."""
    offset = topic.next.get(partition, 0)
    topic.next[partition] = offset + 1
    place = (partition, offset)
    topic.facts[place] = fact
    topic.held.add(place)
    fact.published_at = fact.kept_since = clock.wall
    fact.is_retained = True
    for sub in topic.subs.values():
        if fact.only_for not in (None, sub.name):
            continue
        fact.is_retained = False
        begin_to_wait(entry := Entry(), clock, at_once=True)
        sub.entries[place] = entry
        known = 0
        if fact.only_for is not None:
            known = min(1, sub.sums.get(partition, {}).get(DEAD, 0))
            sub.add(partition, DEAD, -known)
        sub.add(partition, "attached", 1 - known)
    return place


def replace(
    topic: Topic, id: str, ends: dict[int, int], is_out: Callable[[str, Place], bool]
) -> None:
    """Where older messages with this id wait, are delayed or back off, they are dropped.

    `ends`: the partitions in which they may lie, and where the older ones end. One that `is_out`
    was handed out before, and has not been seen yet.
    """
    for sub in topic.subs.values():
        if sub.rules.kind == "reader":
            continue
        for place, entry in sub.entries.items():
            is_older = place[1] < ends.get(place[0], 0) and topic.facts[place].id == id
            if is_older and entry.state in (WAITING, DELAYED) and not is_out(sub.name, place):
                sub.end(place, DROPPED)


def subscribe(topic: Topic, sub: Sub, clock: Clock) -> None:
    """A subscription begins: from its places on it has what is held and was for everybody."""
    topic.subs[sub.name] = sub
    for place in sorted(topic.held):
        fact = topic.facts[place]
        if place[1] >= sub.begin[place[0]]:
            fact.is_retained = False
            if fact.only_for is None:
                begin_to_wait(entry := Entry(), clock, at_once=True)
                sub.entries[place] = entry
                sub.add(place[0], "attached", 1)


def seek(topic: Topic, sub: Sub, places: dict[int, int], newest_lease: int, clock: Clock) -> None:
    """Below its new place everything is finished; above, what is held waits, untried."""
    for partition, start in places.items():
        sub.voided[partition] = newest_lease
        for place in [p for p in sub.open() if p[0] == partition and p[1] < start]:
            sub.end(place, DROPPED)
        for place in sorted(p for p in topic.held if p[0] == partition and p[1] >= start):
            _come_again(topic, sub, place, clock)
        sub.begin[partition] = min(sub.begin[partition], start)
    # What was sent to another subscription only stays what it was.


def _come_again(topic: Topic, sub: Sub, place: Place, clock: Clock) -> None:
    fact, entry = topic.facts[place], sub.entries.get(place)
    fact.is_retained = False
    if fact.only_for is not None and (entry is None or entry.state in ENDED):
        return
    if entry is None:
        sub.add(place[0], "attached", 1)
    elif entry.state == DEAD and not sub.sums[place[0]].get(DEAD):
        sub.add(place[0], "attached", 1)  # Sent back meanwhile, it is another message by now.
    elif entry.state in ENDED:
        sub.add(place[0], entry.state, -1)
    begin_to_wait(fresh := Entry(), clock, at_once=True)
    sub.entries[place] = fresh


# -- coming back -----------------------------------------------------------------------------------


def more(span: Span, low: int, high: int) -> Span:
    """Adds to both ends, not below zero."""
    return max(0, span[0] + low), max(0, span[1] + high)


def backoff(sub: Sub, counts: list[Span]) -> Span:
    """Between which times a failed message comes back, in ms."""
    first, most = sub.rules.first_ms, sub.rules.max_ms
    low = min(min(first * 2 ** min(c[0], 30), most) for c in counts)
    high = max(min(first * 2 ** min(c[1], 30), most) for c in counts)
    return int(low * 0.75) - 1, high + 1


def come_back(
    sub: Sub, entry: Entry, clock: Clock, *, failed: Span = (0, 0), attempt: Span = (0, 0),
    delay: Span = (0, 0), is_rejected: bool = False, losses: int = 0,
) -> None:  # fmt: skip
    """A message is with the broker again: it waits, backs off or is doomed."""
    entry.counted = more(entry.counted, *failed)
    entry.attempt = more(entry.attempt, *attempt)
    entry.losses += losses
    limit = sub.rules.max_attempts
    if is_rejected or entry.counted[0] >= limit:
        entry.state = DOOMED
        return
    entry.may_die = entry.counted[1] >= limit
    begin_to_wait(entry, clock)
    if delay[1] > 0:
        entry.state = DELAYED
        entry.due = (clock.now + delay[0], clock.now + delay[1])


def later_of_keys(topic: Topic, sub: Sub, worker: int, firsts: list[Place]) -> list[Place]:
    """What a consumer holds of the keys of some messages, behind the first of each."""
    oldest: dict[tuple[int, str], int] = {}
    for place in sorted(firsts):
        key = topic.facts[place].key
        if key is not None:
            oldest.setdefault((place[0], key), place[1])
    found = []
    for place in sub.held_by(worker):
        first = oldest.get((place[0], topic.facts[place].key or ""))
        if first is not None and place[1] > first:
            found.append(place)
    return found


def run_out(topic: Topic, sub: Sub, clock: Clock) -> None:
    """Leases whose time is over end; of kind `key_shared`, what follows of their keys too."""
    for worker in sub.workers:
        late = [p for p in sub.held_by(worker) if sub.entries[p].deadline <= clock.now]
        is_keyed = sub.rules.kind == "key_shared"
        revoked = later_of_keys(topic, sub, worker, late) if is_keyed else []
        for place in late:
            entry = sub.entries[place]
            # It may count as revoked when another lease of its consumer ran out as well.
            is_open = place in revoked
            low = (0, 1) if is_open else (1, 1)
            come_back(sub, entry, clock, failed=low, attempt=(-1 if is_open else 0, 0))
        for place in revoked:
            if place not in late:
                come_back(sub, sub.entries[place], clock, attempt=(-1, -1))


def lose_all(sub: Sub, clock: Clock) -> None:
    """The broker died: whatever was out comes back with its attempt, a loss alone counts."""
    held: dict[int, int] = {}
    for entry in sub.entries.values():
        if entry.state == LEASED:
            held[entry.worker] = held.get(entry.worker, 0) + 1
    for entry in sub.entries.values():
        if entry.state == LEASED:
            alone = held[entry.worker] == 1
            sure = alone and sub.workers.get(entry.worker) == 1 and not entry.is_fresh
            back = -1 if entry.is_fresh else 0
            failed = (int(sure), int(alone))
            come_back(sub, entry, clock, failed=failed, attempt=(back, 0), losses=1)
        elif entry.state not in ENDED and entry.counted[1] >= sub.rules.max_attempts:
            entry.may_die = True
    sub.workers.clear()
    sub.ghosts.clear()
    sub.voided.clear()
