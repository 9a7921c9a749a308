"""Planted bugs in given ids, traits, sparse leases, seeks, topic policies, readers and units."""

from typing import Any

import msgspec

from penstock.broker import rebuild, seeking
from penstock.broker.engine import Engine
from penstock.delivery import (
    apply,
    expiry,
    members,
    publish,
    reader,
    retention,
    seek,
    settle,
    snapshot,
)
from penstock.delivery.dedup import Window
from penstock.delivery.effects import Effects
from penstock.delivery.snapshot import (
    CURSOR_EXTRAS,
    PARTITION_EXTRAS,
    STATE_EXTRAS,
    SUBSCRIPTION_EXTRAS,
    Extra,
)
from penstock.vocabulary.records import Cause, Published, Settled, TopicCreated, Unit, UnitCommitted
from tests.crash import stages
from tests.crash import workload_given as given
from tests.crash import workload_moving as moving
from tests.crash import workload_ordering as ordering
from tests.crash import workload_uniting as uniting
from tests.crash.sabotage import Planting, after, patch, sabotage


def _without(name: str, extras: tuple[Extra, ...], place: str) -> Planting:
    """This part of the state is not in snapshots."""
    return patch(snapshot, place, tuple(extra for extra in extras if extra.name != name))


# -- given ids ------------------------------------------------------------------------------------


@sabotage("M50", "known ids are not restored", stages.crash(given.ids_around_a_snapshot))
def ids_forgotten() -> Planting:
    return _without("ids", PARTITION_EXTRAS, "PARTITION_EXTRAS")


@sabotage("M50b", "ids that are not durable yet are in the snapshot",
          stages.crash(given.ids_around_a_snapshot))  # fmt: skip
def ids_early() -> Planting:
    original = Window.state
    return patch(Window, "state", lambda self, _end: original(self, 1 << 60))


@sabotage("M51", "a replaced message is not dropped", stages.crash(given.replaced))
def replaced_stays() -> Planting:
    def only_stored(decision: Any, *_: Any) -> Any:
        return decision.records[0] if isinstance(decision, Unit) else decision

    return after(publish, "decide_replace", only_stored)


@sabotage("M51b", "the older message is dropped before the newer one is stored",
          stages.crash(given.replaced))  # fmt: skip
def replaced_early() -> Planting:
    original = Engine.submit

    def torn(self: Engine, record: Any, waiter: Any, **options: Any) -> None:
        if isinstance(record, Unit) and isinstance(record.records[0], Published):
            stored, *ends = record.records
            for end in ends:
                original(self, end, None, **options)
            self.commit_once()
            record = stored
        original(self, record, waiter, **options)

    return patch(Engine, "submit", torn)


@sabotage("M52", "what a redrive brings back counts as a known id at its new place",
          stages.crash(given.ids_of_dead_letters))  # fmt: skip
def redriven_ids() -> Planting:
    return patch(apply, "is_copied", lambda _batch: False)


# -- order and times ------------------------------------------------------------------------------


@sabotage("M53", "keys, priorities and times are not restored",
          stages.crash(ordering.delayed_messages))  # fmt: skip
def traits_forgotten() -> Planting:
    return _without("traits", PARTITION_EXTRAS, "PARTITION_EXTRAS")


@sabotage("M54", "scattered acks finish everything between them",
          stages.crash(ordering.holes_around_a_snapshot))  # fmt: skip
def masks_ignored() -> Planting:
    original = apply._APPLIERS[Settled]

    def whole(state: Any, record: Any, effects: Any) -> None:
        original(state, msgspec.structs.replace(record, mask=b""), effects)

    return _applier(Settled, whole)


@sabotage("M55", "what was taken back with its key counts as failed",
          stages.crash(ordering.keys_in_order))  # fmt: skip
def revoked_counts() -> Planting:
    return patch(apply, "_COUNTED", apply._COUNTED | {Cause.REVOKED})


@sabotage("M55b", "a nack leaves the later messages of its key where they are",
          stages.crash(ordering.keys_in_order))  # fmt: skip
def revocation_forgotten() -> Planting:
    return patch(settle, "revoke", lambda *_: [])


@sabotage("M56", "a message that is out expires all the same",
          stages.crash(ordering.expiring_messages))  # fmt: skip
def expiry_interrupts() -> Planting:
    return patch(expiry, "_withdrawn", lambda _cursor, start, end: [(start, end)])


@sabotage("M56b", "after a restart nothing expires", stages.crash(ordering.expired_while_down))
def expiry_forgotten() -> Planting:
    def forget(_: None, self: Any) -> None:
        self.expiring.clear()

    return after(rebuild.Rebuild, "finish", forget)


def _applier(kind: Any, instead: Any) -> Planting:
    return patch(apply, "_APPLIERS", {**apply._APPLIERS, kind: instead})


# -- places ---------------------------------------------------------------------------------------


@sabotage("M57", "a seek is not written", stages.crash(moving.seek_over_retained))
def seek_unwritten() -> Planting:
    original = seek.decide_seek

    def done_at_once(state: Any, subscription: Any, places: Any) -> None:
        record = original(state, subscription, places)
        if record is not None:
            seek.apply_sought(state, record, Effects(0, 0))

    return patch(seeking, "decide_seek", done_at_once)


@sabotage("M57b", "how messages ended is not restored", stages.crash(moving.seeks_after_a_snapshot))
def endings_forgotten() -> Planting:
    return _without("otherwise", CURSOR_EXTRAS, "CURSOR_EXTRAS")


@sabotage("M58", "what policies keep is not restored", stages.crash(moving.replay_window))
def keeping_forgotten() -> Planting:
    def empty(partition: Any, _found: Any) -> None:
        partition.keeping.rows, partition.keeping.window = [], 0

    extras = tuple(
        extra._replace(load=empty) if extra.name == "keeping" else extra
        for extra in PARTITION_EXTRAS
    )
    return patch(snapshot, "PARTITION_EXTRAS", extras)


@sabotage("M59", "age removes what a reader has planned", stages.crash(moving.readers_hold))
def plans_unguarded() -> Planting:
    return patch(retention, "_free", lambda _partition, start, end, _guards: [(start, end)])


@sabotage("M59b", "readers are not restored", stages.crash(moving.readers))
def readers_forgotten() -> Planting:
    return _without("reader", SUBSCRIPTION_EXTRAS, "SUBSCRIPTION_EXTRAS")


@sabotage("M59c", "a fenced owner may come back after a restart", stages.crash(moving.readers))
def owners_forgotten() -> Planting:
    def dump(subscription: Any) -> Any:
        found = reader.dump_reader(subscription)
        return found and [found[0], [], *found[2:]]

    extras = tuple(extra._replace(dump=dump) for extra in SUBSCRIPTION_EXTRAS)
    return patch(snapshot, "SUBSCRIPTION_EXTRAS", extras)


# -- units ----------------------------------------------------------------------------------------


@sabotage("M60", "the acks of a unit count before its publishes are stored",
          stages.crash(uniting.units))  # fmt: skip
def units_torn() -> Planting:
    original = Engine.submit

    def torn(self: Engine, record: Any, waiter: Any, **options: Any) -> None:
        if isinstance(record, Unit) and isinstance(record.records[-1], UnitCommitted):
            acks = [part for part in record.records if isinstance(part, Settled)]
            for part in acks:
                original(self, part, None, **options)
            self.commit_once()
            record = Unit(tuple(part for part in record.records if part not in acks))
        original(self, record, waiter, **options)

    return patch(Engine, "submit", torn)


@sabotage("M61", "committed units are not restored", stages.crash(uniting.units))
def units_forgotten() -> Planting:
    return _without("units", STATE_EXTRAS, "STATE_EXTRAS")


@sabotage("M62", "a new topic gets the subscriptions of its patterns later",
          stages.crash(uniting.patterns))  # fmt: skip
def patterns_late() -> Planting:
    original = Engine.submit

    def torn(self: Engine, record: Any, waiter: Any, **options: Any) -> None:
        if isinstance(record, Unit) and isinstance(record.records[0], TopicCreated):
            for part in record.records[:-1]:
                original(self, part, None, **options)
                self.commit_once()
            record = record.records[-1]
        original(self, record, waiter, **options)

    return patch(Engine, "submit", torn)


@sabotage("M63", "what a multicast dropped with old members is not restored",
          stages.crash(uniting.multicasts_after_a_snapshot))  # fmt: skip
def forgotten_forgotten() -> Planting:
    def dump(topic: Any) -> Any:
        rows = members.dump_parents(topic)
        return rows and [(*row[:-1], 0) for row in rows]

    extras = tuple(
        extra._replace(dump=dump) if extra.name == "multicasts" else extra
        for extra in snapshot.TOPIC_EXTRAS
    )
    return patch(snapshot, "TOPIC_EXTRAS", extras)
