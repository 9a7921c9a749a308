"""Units: publishes and acks of a client that stand or fall together.

A unit is decided as a whole: its acks are examined and its offsets reserved before anything
changes. Each publisher's newest units are remembered, so that a retry gets the first outcome
before its acks, which would be stale by then, are looked at.
"""

from typing import Any

import msgspec

from penstock.batch.given import given_ids
from penstock.delivery import settle
from penstock.delivery.effects import Effects
from penstock.delivery.leases import EARLIER_START, is_of_earlier_start
from penstock.delivery.publish import Decided, Duplicate, InFlight, decide_publish, is_generated
from penstock.delivery.room import check_room
from penstock.delivery.state import (
    Consumer,
    Cursor,
    Lease,
    Partition,
    Publisher,
    State,
    Topic,
    UnitBook,
)
from penstock.delivery.traits import is_plain
from penstock.vocabulary import limits
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import (
    AckRefused,
    InvalidArgument,
    MalformedBatch,
    PublisherFenced,
    PublisherForgotten,
    Unavailable,
    UnitTooLarge,
    Unsupported,
)
from penstock.vocabulary.records import Placed, Published, Record, Settled, Unit, UnitCommitted
from penstock.vocabulary.units import Part, UnitWish

Claims = list[tuple[Consumer, list[Claim]]]
Places = tuple[Placed, ...]
Refused = tuple[str, int, int, str]
"""Topic, partition, offset, why."""

Decision = Published | Decided | Duplicate

LISTED_MAX = 3


class Reserved(msgspec.Struct, frozen=True):
    """How a partition and its publisher stood before a batch of a unit was decided."""

    partition: Partition
    reserved: int
    publisher: bytes
    known: Publisher | None
    decided: int


def first_outcome(state: State, wish: UnitWish) -> Places | InFlight | None:
    """What a retry is answered; None for a unit that was not committed before.

    Raises PublisherFenced, PublisherForgotten.
    """
    book = state.units.get(wish.publisher)
    if book is None:
        if wish.sequence and is_generated(wish.publisher):
            raise _forgotten()
        return None
    if (wish.epoch, wish.sequence) in book.decided:
        return InFlight()
    newest_epoch = max(book.epoch, book.decided_epoch)
    if wish.epoch < newest_epoch:
        raise PublisherFenced(
            f"publisher epoch {wish.epoch} is over: a newer client of this name has committed "
            f"since (epoch {newest_epoch}); open a new client to take over"
        )
    if wish.epoch > book.epoch:
        return None
    if wish.sequence in book.places:
        return book.places[wish.sequence]
    if wish.sequence <= book.newest - limits.UNITS_KEPT:
        raise _forgotten()
    return None


def _forgotten() -> PublisherForgotten:
    return PublisherForgotten(
        "the units of this publisher are not known here any more, so a retry cannot be told from "
        "a new unit; nothing was stored. Open a new client to go on"
    )


def check_size(parts: list[Part], claims: Claims) -> None:
    """Raises UnitTooLarge."""
    size = sum(len(part.batch) for part in parts)
    count = sum(part.count for part in parts) + sum(
        end - start for _, listed in claims for claim in listed for start, end in claim.ranges
    )
    # Messages of different make take a little more together than each alone: hence the slack.
    if size > limits.UNIT_BYTES_MAX * 3 // 2 or count > limits.UNIT_COUNT_MAX:
        raise UnitTooLarge(
            f"a unit of {size} bytes and {count} publishes and acks is over the limit of "
            f"{limits.UNIT_BYTES_MAX} bytes and {limits.UNIT_COUNT_MAX}; split it"
        )


def decide_unit(
    state: State, wish: UnitWish, partitions: list[Partition], claims: Claims, now_wall: int
) -> tuple[Unit, Places] | InFlight:
    """One record for all of it; nothing has changed when this raises.

    Raises AckRefused, Unsupported, PublisherFenced, PublisherForgotten, HeldByReader.
    """
    _examine(state, claims)
    if _is_under_way(wish, partitions):
        return InFlight()
    # Acks first: a batch may replace a message that waits, also one that this unit acks late.
    settled = _settle(claims)
    decisions = _reserve(wish, partitions, now_wall)
    records = [record for each in decisions for record in _records(each)]
    places = tuple(_placed(each) for each in decisions)
    records.extend(record for _, record in settled)
    records.append(UnitCommitted(wish.publisher, wish.epoch, wish.sequence, now_wall, places))
    book = state.units.setdefault(wish.publisher, UnitBook(wish.epoch, now_wall))
    book.decided_epoch = max(book.decided_epoch, wish.epoch)
    book.decided[wish.epoch, wish.sequence] = settled
    return Unit(tuple(records)), places


def _settle(claims: Claims) -> list[tuple[Cursor, Settled]]:
    found: list[tuple[Cursor, Settled]] = []
    for consumer, listed in claims:
        records, refused = settle.decide_ack(consumer, listed)
        assert not refused, "examined a moment ago"
        found += [(consumer.subscription.cursors[each.partition], each) for each in records]
    return found


def _records(decision: Decision) -> tuple[Record, ...]:
    if isinstance(decision, Duplicate):
        return ()
    record = decision.record if isinstance(decision, Decided) else decision
    return record.records if isinstance(record, Unit) else (record,)


def _placed(decision: Decision) -> Placed:
    if isinstance(decision, Duplicate):
        return decision.base, True, None, decision.places
    if isinstance(decision, Decided):
        return decision.published.base, False, decision.published.kept, decision.places
    return decision.base, False, decision.kept, None


# -- acks ----------------------------------------------------------------------------------------


def _examine(state: State, claims: Claims) -> None:
    """Raises AckRefused unless every ack would be accepted. Changes nothing."""
    refused: list[Refused] = []
    seen: set[tuple[int, int, int]] = set()
    open_bits: dict[int, int] = {}
    """Lease id → what of it was found open, and belongs to this unit."""
    for consumer, listed in claims:
        subscription = consumer.subscription
        topic = subscription.topic
        if not subscription.is_durable:
            raise Unsupported(
                f"a message of {topic.name!r} came from a subscription without a name, whose acks "
                "are not kept: receive it from a named subscription to ack it in a transaction"
            )
        is_gone = subscription.is_removing or state.is_leaving(topic.id)
        is_gone = is_gone or state.subscriptions.get(subscription.id) is not subscription
        for claim in listed:
            if not is_gone and _are_open(consumer, claim, open_bits):
                continue
            for offset in (o for start, end in claim.ranges for o in range(start, end)):
                place = (subscription.id, claim.partition, offset)
                why = (
                    "its subscription was deleted" if is_gone else _why_not(consumer, claim, offset)
                )
                if place in seen or _is_counted(consumer, claim, offset, open_bits):
                    why = "it is acked twice in one unit"
                seen.add(place)
                if why:
                    refused.append((topic.name, claim.partition, offset, why))
    if refused:
        texts = [f"{name} {partition}:{at} ({why})" for name, partition, at, why in refused]
        more = len(texts) - LISTED_MAX
        raise AckRefused(
            f"nothing of the unit was stored: the broker did not accept {len(refused)} of its "
            "ack(s): "
            + ", ".join(texts[:LISTED_MAX])
            + (f" and {more} more" if more > 0 else "")
            + "; these messages are not yours any more: take the next ones",
            refused=refused,
        )


def _are_open(consumer: Consumer, claim: Claim, open_bits: dict[int, int]) -> bool:
    """True when the claim is good as a whole: all of it is out under its lease, and named once."""
    lease = consumer.leases.get(claim.lease_id)
    if lease is None or not 0 <= claim.partition < len(consumer.subscription.cursors):
        return False
    if lease.cursor is not consumer.subscription.cursors[claim.partition]:
        return False
    bits = open_bits.get(claim.lease_id, 0)
    for start, end in claim.ranges:
        if not lease.start <= start < end <= lease.end:
            return False
        named = ((1 << (end - start)) - 1) << (start - lease.start)
        if named & bits:
            return False
        bits |= named
    if lease.open is not None and bits & ~lease.open:
        return False
    open_bits[claim.lease_id] = bits
    return True


def _is_counted(consumer: Consumer, claim: Claim, offset: int, open_bits: dict[int, int]) -> bool:
    """True when an earlier claim of the unit has this message of the same lease."""
    lease = consumer.leases.get(claim.lease_id)
    bits = open_bits.get(claim.lease_id, 0)
    if lease is None or not bits or not lease.start <= offset < lease.end:
        return False
    return bool(bits >> (offset - lease.start) & 1)


def _why_not(consumer: Consumer, claim: Claim, offset: int) -> str:
    """Why a message cannot be acked by this claim; empty when it can."""
    cursors = consumer.subscription.cursors
    if not 0 <= claim.partition < len(cursors):
        return "there is no such partition"
    if consumer.subscription.policy.qos == 0:
        return ""
    cursor = cursors[claim.partition]
    lease = consumer.leases.get(claim.lease_id)
    if lease is not None and lease.cursor is cursor and _is_open(lease, offset):
        return ""
    if claim.lease_id < cursor.voided:
        return "the subscription was moved by a seek"
    if offset in cursor.done:
        # Not so for an ack alone: whoever finished it has published his own outputs.
        return "it is finished already"
    if is_of_earlier_start(consumer, claim.lease_id):
        return EARLIER_START
    if cursor.trial(offset).attempt not in (claim.attempt, claim.attempt - 1):
        return "it was handed out again"
    return "" if _is_waiting(cursor, offset) else "it is not leased to you"


def _is_open(lease: Lease, offset: int) -> bool:
    if not lease.start <= offset < lease.end:
        return False
    return lease.open is None or bool(lease.open >> (offset - lease.start) & 1)


def _is_waiting(cursor: Cursor, offset: int) -> bool:
    rows = [*(cursor.ready or ()), *(cursor.isolated or ())]
    rows += [(start, end) for _, start, end, _, _ in cursor.delayed or ()]
    is_in_line = cursor.line is not None and cursor.line.holds(offset)
    return is_in_line or any(start <= offset < end for start, end in rows)


# -- publishes -----------------------------------------------------------------------------------


def _is_under_way(wish: UnitWish, partitions: list[Partition]) -> bool:
    """True when a batch is decided and not yet durable: ask again when it is. Changes nothing.

    Raises what deciding a batch would raise, before any of them is decided.
    """
    own: dict[Partition, tuple[int, int]] = {}
    sizes: dict[Topic, int] = {}
    for part, partition in zip(wish.parts, partitions, strict=True):
        known = (partition.publishers or {}).get(wish.publisher)
        last = part.sequence + part.count - 1
        ids = None if is_plain(part.batch) else given_ids(part.batch)
        if ids is not None and len(ids) != part.count:
            raise MalformedBatch(f"the batch has {len(ids)} ids for {part.count} messages")
        if partition in own and (part.epoch, part.sequence) <= own[partition]:
            raise InvalidArgument("the batches of a unit have rising sequences in each partition")
        if partition not in own:
            if known is None and part.sequence and is_generated(wish.publisher):
                raise _forgotten()
            if known is not None and part.epoch < known.epoch:
                raise PublisherFenced(
                    f"publisher epoch {part.epoch} is over: a newer client of this name has "
                    f"published since (epoch {known.epoch}); open a new client to take over"
                )
            is_same = known is not None and part.epoch == known.epoch and last > known.last
            if is_same and known is not None and part.sequence <= known.decided > known.last:
                return True
        own[partition] = (part.epoch, last)
        if known is None or part.epoch > known.epoch or last > known.last:
            topic = partition.topic
            sizes[topic] = sizes.get(topic, 0) + len(part.batch)
    for topic, size in sizes.items():
        check_room(topic, size)
    return False


def _reserve(wish: UnitWish, partitions: list[Partition], now_wall: int) -> list[Decision]:
    """Decides every batch, or none."""
    before: list[Reserved] = []
    decisions: list[Decision] = []
    publisher = wish.publisher
    try:
        for part, partition in zip(wish.parts, partitions, strict=True):
            known = (partition.publishers or {}).get(publisher)
            decided = -1 if known is None else known.decided
            before.append(Reserved(partition, partition.reserved, publisher, known, decided))
            decision = decide_publish(
                partition, part.batch, part.count, publisher, part.epoch, part.sequence, now_wall
            )
            assert not isinstance(decision, InFlight), "screened a moment ago"
            decisions.append(decision)
    except BaseException:
        _undo(before)
        raise
    return decisions


def _undo(before: list[Reserved]) -> None:
    for each in reversed(before):
        partition = each.partition
        partition.reserved = each.reserved
        if each.known is not None:
            assert partition.publishers is not None
            partition.publishers[each.publisher] = each.known
            each.known.decided = each.decided
        elif partition.publishers:
            partition.publishers.pop(each.publisher, None)
            partition.publishers = partition.publishers or None


def partition_of(topic_partitions: list[Partition], part: Part) -> Partition:
    """The partition of a batch. Raises Unavailable when the topic has fewer by now."""
    if not 0 <= part.partition < len(topic_partitions):
        raise Unavailable(
            f"topic {part.topic!r} was created again with fewer partitions; commit once more"
        )
    return topic_partitions[part.partition]


# -- what is remembered --------------------------------------------------------------------------


def apply_unit_committed(state: State, record: UnitCommitted, effects: Effects) -> None:
    """Remembers the outcome of a unit; seeing it again changes nothing."""
    book = state.units.get(record.publisher)
    if book is None:
        book = state.units[record.publisher] = UnitBook(record.epoch, record.committed_at)
    for cursor, settled in book.decided.pop((record.epoch, record.sequence), ()):
        _unsettle(cursor, settled, effects)
    if record.epoch < book.epoch:
        return
    if record.epoch > book.epoch:
        book.epoch, book.newest, book.places = record.epoch, -1, {}
    book.used_at = max(book.used_at, record.committed_at)
    book.newest = max(book.newest, record.sequence)
    book.places[record.sequence] = record.places
    oldest = book.newest - limits.UNITS_KEPT
    for sequence in [s for s in book.places if s <= oldest]:
        del book.places[sequence]


def _unsettle(cursor: Cursor, settled: Settled, effects: Effects) -> None:
    """What was decided with a unit is true now."""
    cursor.settling -= settled.count
    keys = cursor.subscription.keys
    if keys is not None:
        keys.decided.pop(id(settled), None)
        if keys.is_moving:
            effects.dirty[cursor.subscription] = None


def forget_units(state: State, now_wall: int) -> None:
    """Drops the units of generated publishers that were idle for long; named ones stay."""
    limit = now_wall - int(limits.PUBLISHER_IDLE_S_MAX * 1000)
    idle = [
        publisher
        for publisher, book in state.units.items()
        if book.used_at < limit and is_generated(publisher) and not book.decided
    ]
    for publisher in idle:
        del state.units[publisher]


def dump_units(state: State) -> Any:
    """For a snapshot."""
    rows = [
        (publisher, book.epoch, book.newest, list(book.places.items()), book.used_at)
        for publisher, book in state.units.items()
        if book.newest >= 0
    ]
    return rows or None


def load_units(state: State, found: Any) -> None:
    """From a snapshot."""
    for publisher, epoch, newest, places, used_at in found:
        book = state.units[publisher] = UnitBook(epoch, used_at)
        book.newest = newest
        book.places = {sequence: msgspec.convert(rows, Places) for sequence, rows in places}
