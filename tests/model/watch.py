"""What is demanded of every delivery, and of the broker's state after every step."""

from typing import Any

from penstock.delivery.counts import count_cursor, unexplained
from penstock.delivery.state import Cursor
from tests.model import book
from tests.model.book import (
    DEAD,
    DELAYED,
    DOOMED,
    DROPPED,
    ENDED,
    EXPIRED,
    LEASED,
    NEVER,
    WAITING,
    Broken,
    Clock,
    Entry,
    Fact,
    Place,
    Sub,
    Topic,
    demand,
)

ISOLATED = 2
"""After so many losses a message goes out alone."""


def is_eligible(fact: Fact, entry: Entry, clock: Clock) -> bool:
    """True when a message may be handed out now."""
    if entry.state == DELAYED and entry.due[0] <= clock.now:
        return fact.deliver_at <= clock.wall
    return entry.state == WAITING and fact.deliver_at <= clock.wall


def must_go(fact: Fact, entry: Entry, clock: Clock) -> bool:
    """True when nothing keeps a message from being handed out."""
    if entry.losses >= ISOLATED or entry.may_die:
        return False
    if fact.deliver_at > clock.wall or (fact.expires_at and fact.expires_at <= clock.wall):
        return False
    return entry.state == WAITING or (entry.state == DELAYED and entry.due[1] <= clock.now)


def deliver(
    topic: Topic, sub: Sub, worker: int, place: Place, attempt: int, lease: int, body: Any,
    clock: Clock, *, is_burst: bool, is_quiet: bool,
) -> None:  # fmt: skip
    """One message reaches a consumer."""
    name = f"{topic.name}/{sub.name} {place}"
    entry, fact = sub.entries.get(place), topic.facts.get(place)
    demand(entry and fact, f"{name} was delivered and is none of its messages")
    assert entry is not None
    assert fact is not None
    demand(worker in sub.workers, f"{name} was delivered to a consumer that left")
    demand(is_eligible(fact, entry, clock), f"{name} was delivered while {entry}")
    demand(body == fact.body, f"{name} was delivered with body {body!r}, not {fact.body!r}")
    low, high = entry.attempt
    demand(low < attempt <= high + 1, f"{name} came as attempt {attempt}, known: {entry.attempt}")
    is_late = 0 < fact.expires_at <= clock.wall
    demand(not is_late, f"{name} was delivered after it expired")
    # What is over its topic's age may be gone already.
    held = sum(
        clock.wall - topic.facts[p].published_at < topic.max_age_ms for p in sub.held_by(worker)
    )
    demand(held < sub.workers[worker], f"{name}: its consumer holds {held}, as many as it may")
    if sub.rules.kind == "key_shared":
        check_key(topic, sub, worker, place, clock, name, is_burst=is_burst)
    if not is_burst:
        check_priority(topic, sub, place, clock, name, is_quiet=is_quiet)
    entry.state, entry.worker, entry.lease = LEASED, worker, lease
    entry.attempt = (attempt, attempt)
    entry.deadline = clock.now + sub.rules.lease_ms
    entry.is_fresh = True


def check_key(
    topic: Topic, sub: Sub, worker: int, place: Place, clock: Clock, name: str, *, is_burst: bool
) -> None:
    """K1 to K4: one consumer holds a key, in order, and it moves only when nothing is out."""
    fact = topic.facts[place]
    if fact.key is None:
        return
    for other, entry in sub.entries.items():
        rival = topic.facts[other]
        is_moved = book.is_moved(topic, other, place)
        if rival.key != fact.key or other == place or (other[0] != place[0] and not is_moved):
            continue
        if entry.state == LEASED and (not is_moved or not rival.deliver_at):
            # What is over its topic's age may be gone; its consumer may still be at work on it.
            may_be_gone = clock.wall - rival.published_at >= topic.max_age_ms
            is_same = entry.worker == worker and (may_be_gone or not is_moved)
            demand(is_same, f"{name}: {other} of its key is with a consumer: {entry}")
        is_older = is_moved or other[1] < place[1]
        if is_older and not rival.deliver_at and not fact.deliver_at:
            is_before = entry.state in (WAITING, DELAYED) and not entry.may_die
            # In a burst it may have come back after this one was on its way.
            is_before = is_before and not (is_burst and entry.waits_since >= clock.step)
            is_before = is_before and (other[0], rival.id) not in topic.coming
            is_over = 0 < rival.expires_at <= clock.wall
            is_over = is_over or clock.wall - rival.published_at >= topic.max_age_ms
            if is_before and not is_over:
                raise Broken(f"{name} went before {other} of its key: {entry}")
    for key, holder, until in sub.ghosts:
        is_busy = key == fact.key and holder != worker and holder in sub.workers
        demand(not is_busy or until <= clock.now, f"{name}: another may still be at work on it")


def check_priority(
    topic: Topic, sub: Sub, place: Place, clock: Clock, name: str, *, is_quiet: bool
) -> None:
    """P1: nothing that waited already has a higher priority, or the same and came before."""
    fact = topic.facts[place]
    is_keyed = sub.rules.kind == "key_shared"
    if any(sub.entries[other].losses >= ISOLATED for other in sub.open()):
        return
    if is_keyed and (len(sub.workers) > 1 or not is_quiet):
        return
    for other, entry in sub.entries.items():
        rival = topic.facts[other]
        if other == place or entry.waits_since >= clock.step or not must_go(rival, entry, clock):
            continue
        if clock.wall - rival.published_at >= topic.max_age_ms:
            continue  # It is being removed.
        if is_keyed and (_is_behind(topic, sub, other) or _is_behind(topic, sub, place)):
            continue
        if is_keyed and _was_behind(topic, sub, other):
            continue
        is_first = rival.priority > fact.priority or (
            rival.priority == fact.priority and other[0] == place[0] and other[1] < place[1]
        )
        if is_first:
            raise Broken(f"{name} of priority {fact.priority} went before {other} {rival}")


def _is_behind(topic: Topic, sub: Sub, place: Place) -> bool:
    """True when an older message of its key is not finished."""
    key = topic.facts[place].key
    return key is not None and any(
        topic.facts[other].key == key
        and (book.is_moved(topic, other, place) or (other[0] == place[0] and other < place))
        for other in sub.open()
    )


def _was_behind(topic: Topic, sub: Sub, place: Place) -> bool:
    """True when a message may have waited for older ones of its key, before partitions came."""
    key = topic.facts[place].key
    return key is not None and any(
        topic.facts[other].key == key and book.is_moved(topic, other, place)
        for other in sub.entries
    )


# -- after a step ----------------------------------------------------------------------------------


def see_endings(
    topic: Topic, sub: Sub, cursors: list[Cursor], clock: Clock, *, waited: bool
) -> None:
    """What time alone ended: messages that expired, and those over their topic's age."""
    either: list[Place] = []
    for place in sub.open():
        fact, entry = topic.facts[place], sub.entries[place]
        cursor = cursors[place[0]]
        is_gone = place[1] in cursor.done
        name = f"{topic.name}/{sub.name} {place}"
        if place[1] in cursor.partition.released:
            age = clock.wall - fact.published_at
            is_old = age >= topic.max_age_ms
            is_timed = 0 < fact.expires_at <= clock.wall and entry.state in (WAITING, DELAYED)
            is_timed = is_timed and sub.rules.kind != "reader"
            demand(is_old or is_timed, f"{name} was removed while {entry}")
            if entry.state == LEASED and fact.key is not None:
                sub.ghosts.append((fact.key, entry.worker, entry.deadline))
            if is_timed and is_old:
                either.append(place)
            else:
                sub.end(place, EXPIRED if is_timed else DROPPED)
            continue
        if not fact.expires_at or fact.expires_at > clock.wall or sub.rules.kind == "reader":
            continue
        if is_gone:
            demand(entry.state in (WAITING, DELAYED), f"{name} expired while {entry}")
            sub.end(place, EXPIRED)
        elif waited and entry.state in (WAITING, DELAYED) and not entry.may_die:
            since = max(fact.expires_at, entry.back_at)
            demand(clock.wall - since < book.LOOK_MS, f"{name} has expired and lingers: {entry}")
    for place in either:  # The broker says which it was, once the others are counted.
        expired = cursors[place[0]].expired - sub.sums.get(place[0], {}).get(EXPIRED, 0)
        sub.end(place, EXPIRED if expired > 0 else DROPPED)


def check_counts(topic: Topic, sub: Sub, cursors: list[Cursor], clock: Clock) -> None:
    """S15: the counts of every cursor are a recount of the book."""
    for cursor in cursors:
        partition = cursor.partition.index
        name = f"{topic.name}/{sub.name} partition {partition}"
        found = count_cursor(cursor, clock.wall)
        if unexplained(found):
            raise Broken(f"{name}: {unexplained(found)} unexplained in {found}")
        sums = sub.sums.get(partition, {})
        for word in ("attached", "acked", DEAD, EXPIRED, DROPPED):
            real, right = getattr(found, word), sums.get(word, 0)
            if real != right:
                raise Broken(f"{name}: {word} is {real}, must be {right}: {found}")
        rows = [
            (topic.facts[p], e)
            for p, e in sub.entries.items()
            if p[0] == partition and e.state not in ENDED
        ]
        leased = sum(entry.state == LEASED for _, entry in rows)
        demand(found.leased == leased, f"{name}: leased is {found.leased}, must be {leased}")
        is_timed = sub.rules.kind != "reader"
        low = sum(_is_later(f, e, clock, e.due[0]) for f, e in rows) if is_timed else 0
        high = sum(_is_later(f, e, clock, e.due[1]) for f, e in rows) if is_timed else NEVER
        demand(
            high >= found.delayed >= low or not is_timed,
            f"{name}: delayed is {found.delayed}, must be {low}…{high}",
        )


def _is_later(fact: Fact, entry: Entry, clock: Clock, due: int) -> bool:
    if entry.state == DELAYED and due > clock.now:
        return True
    return entry.state in (WAITING, DELAYED) and fact.deliver_at > clock.wall


def check_waiting(topic: Topic, sub: Sub, clock: Clock) -> None:
    """Nobody with credit idles beside a message that could go."""
    rows = [(place, sub.entries[place]) for place in sub.open()]
    if not sub.workers or sub.rules.kind == "reader":
        return
    if any(entry.losses >= ISOLATED for _, entry in rows):
        return
    free = {w: credit - len(sub.held_by(w)) for w, credit in sub.workers.items()}
    is_keyed = sub.rules.kind == "key_shared"
    if not (all if is_keyed else any)(left > 0 for left in free.values()):
        return
    out = {topic.facts[place].key for place, entry in rows if entry.state == LEASED}
    out |= {key for key, _, until in sub.ghosts if until > clock.now}
    # A message without a key has the slot of its offset, in every partition.
    slots = {p[1] for p, e in rows if e.state == LEASED and topic.facts[p].key is None}
    for place, entry in rows:
        fact = topic.facts[place]
        if not must_go(fact, entry, clock):
            continue
        if is_keyed and fact.key and (fact.key in out or _is_behind(topic, sub, place)):
            continue
        if is_keyed and fact.key is None and place[1] in slots:
            continue
        raise Broken(f"{topic.name}/{sub.name} {place} idles beside {free}: {entry}")


def check_held(
    topic: Topic, real: set[Place], readers: dict[Place, bool], clock: Clock, *, waited: bool
) -> None:
    """What must be held is held, and nothing else where that can be said exactly."""
    newest: dict[int | str, list[Place]] = {}
    for place in sorted(topic.facts, key=lambda place: (book.era(topic, place), place)):
        fact = topic.facts[place]
        if fact.only_for is None and place[1] >= topic.keep_from.get(place[0], 0):
            name = place[0] if fact.key is None else fact.key
            newest.setdefault(name, []).append(place)
    kept = (
        {p for rows in newest.values() for p in rows[-topic.keep_last :]}
        if topic.keep_last
        else set()
    )
    wanted = {place for sub in topic.subs.values() for place in sub.open()}
    for place, fact in topic.facts.items():
        name = f"{topic.name} {place}"
        is_held = place in real
        if place not in topic.held:
            demand(not is_held, f"{name} is held again after it was released")
            continue
        age = clock.wall - fact.published_at
        is_timed = 0 < fact.expires_at <= clock.wall
        is_old = age >= topic.max_age_ms or is_timed
        must = fact.is_retained or age < topic.replay_ms or place in kept
        if place in wanted:
            demand(is_held, f"{name} is not held although a subscription needs it")
        elif must and not is_old:
            demand(is_held, f"{name} is not held although its topic keeps it")
        elif not must and not topic.replay_ms and not topic.keep_last:
            demand(not is_held, f"{name} is held although nobody needs it")
        since = clock.wall - max(fact.kept_since, fact.published_at)
        if is_held and waited and since >= topic.max_age_ms + book.ROW_MS:
            demand(readers.get(place), f"{name} is held although it is over its topic's age")
    topic.held &= real


def check_doomed(topic: Topic, sub: Sub) -> None:
    """D3: at the limit a message is a dead letter."""
    for place, entry in sub.entries.items():
        if entry.state == DOOMED:
            raise Broken(f"{topic.name}/{sub.name} {place} is no dead letter: {entry}")
        if entry.may_die:
            entry.may_die = False
            low, high = entry.counted
            entry.counted = (low, max(low, min(high, sub.rules.max_attempts - 1)))
