"""A unit is decided whole: what is refused leaves no trace, a retry gets the first answer."""

from typing import Any

import msgspec
import pytest

from penstock.batch import encode_many
from penstock.delivery import units
from penstock.delivery.counts import count, unexplained
from penstock.delivery.effects import Effects
from penstock.delivery.publish import InFlight, decide_publish
from penstock.delivery.state import Consumer, Lease, Partition, State
from penstock.delivery.units import Claims, Places
from penstock.vocabulary import limits
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
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import OnDuplicate, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Published, Settled, Unit, UnitCommitted
from penstock.vocabulary.units import Part, UnitWish
from tests.delivery.world import GENERATED, NAMED, World, claim

BATCH = encode_many([b"out"])


def part(sequence: int = 0, *, epoch: int = 0, partition: int = 0) -> Part:
    return Part("out", partition, BATCH, 1, epoch, sequence)


def wish(*parts: Part, sequence: int = 0, epoch: int = 0, publisher: bytes = NAMED) -> UnitWish:
    return UnitWish(publisher, epoch, sequence, list(parts))


class Bench(World):
    """A topic to take from, one to put into, and a consumer that holds what was published."""

    def __init__(self, messages: int = 3, qos: int = 1) -> None:
        super().__init__()
        self.source, self.out = self.topic("orders"), self.topic("out")
        self.subscription = self.subscribe(self.source, policy=SubscriptionPolicy(qos=qos))
        self.consumer = self.join(self.subscription)
        self.publish(self.source, messages)
        self.home = self.out.partitions[0]

    def decide(self, asked: UnitWish, claims: Claims | None = None) -> tuple[Unit, Places]:
        partitions = [self.home for _ in asked.parts]
        found = units.decide_unit(self.state, asked, partitions, claims or [], self.wall)
        assert not isinstance(found, InFlight)
        return found


def test_one_record_holds_the_publishes_the_acks_and_its_number() -> None:
    bench = Bench()
    lease = bench.deliver_one(bench.consumer)
    unit, places = bench.decide(wish(part(0), part(1)), [(bench.consumer, [claim(lease, (0, 2))])])
    kinds = [type(each) for each in unit.records]
    assert kinds == [Published, Published, Settled, UnitCommitted]
    assert places == ((0, False, None, None), (1, False, None, None))
    assert count(bench.subscription).leased == 3
    bench.apply(unit)
    found = count(bench.subscription)
    assert (found.acked, found.leased, unexplained(found)) == (2, 1, 0)
    assert bench.home.next_offset == 2


def snapshot_of(bench: Bench) -> tuple[object, ...]:
    """Everything a refused unit might have touched."""
    publishers = {key: known.decided for key, known in (bench.home.publishers or {}).items()}
    leases = [(each.id, each.unfinished()) for each in bench.consumer.leases.values()]
    cursor = bench.subscription.cursors[0]
    return (
        bench.home.reserved, publishers, leases, cursor.settling, cursor.leased, cursor.ready,
        bench.consumer.outstanding, dict(bench.state.units),
    )  # fmt: skip


def stale(bench: Bench) -> tuple[Consumer, Lease]:
    """A lease that ran out, and whose messages somebody else has."""
    lease = bench.deliver_one(bench.consumer)
    bench.wait(31)
    bench.expire(bench.subscription)
    other = bench.join(bench.subscription, name="other")
    bench.consumer.credit = 0
    bench.deliver_one(other)
    return other, lease


def test_one_stale_ack_refuses_all_and_changes_nothing() -> None:
    bench = Bench()
    _, lease = stale(bench)
    before = snapshot_of(bench)
    with pytest.raises(AckRefused, match="nothing of the unit was stored") as caught:
        bench.decide(wish(part(0)), [(bench.consumer, [claim(lease)])])
    assert [row[:3] for row in caught.value.refused] == [("orders", 0, n) for n in range(3)]
    assert {row[3] for row in caught.value.refused} == {"it was handed out again"}
    assert snapshot_of(bench) == before


def test_a_message_somebody_else_finished_refuses_the_unit() -> None:
    bench = Bench()
    other, lease = stale(bench)
    (mine,) = other.leases.values()
    bench.ack(mine)
    with pytest.raises(AckRefused, match="it is finished already"):
        bench.decide(wish(), [(bench.consumer, [claim(lease)])])


def test_a_late_ack_is_taken_while_nobody_else_has_the_message() -> None:
    bench = Bench()
    lease = bench.deliver_one(bench.consumer)
    bench.wait(31)
    bench.expire(bench.subscription)
    unit, _ = bench.decide(wish(), [(bench.consumer, [claim(lease)])])
    bench.apply(unit)
    assert count(bench.subscription).acked == 3
    assert bench.dispatch(bench.subscription) == []


def test_the_same_message_twice_a_wrong_partition_and_what_was_never_had_are_refused() -> None:
    bench = Bench()
    lease = bench.deliver_one(bench.consumer)
    twice = [claim(lease, (0, 1)), claim(lease, (0, 1))]
    with pytest.raises(AckRefused, match="twice"):
        bench.decide(wish(), [(bench.consumer, twice)])
    with pytest.raises(AckRefused, match="no such partition"):
        bench.decide(wish(), [(bench.consumer, [claim(lease)._replace(partition=5)])])
    with pytest.raises(AckRefused, match="not leased to you"):
        bench.decide(wish(), [(bench.consumer, [claim(lease)._replace(ranges=((90, 91),))])])
    thief = bench.join(bench.subscription, name="thief")
    with pytest.raises(AckRefused, match="not leased to you"):
        bench.decide(wish(), [(thief, [claim(lease)])])


def test_a_subscription_that_ends_and_one_without_a_name_are_refused() -> None:
    bench = Bench()
    lease = bench.deliver_one(bench.consumer)
    bench.subscription.is_removing = True
    with pytest.raises(AckRefused, match="was deleted"):
        bench.decide(wish(), [(bench.consumer, [claim(lease)])])
    bench.subscription.is_removing = False
    bench.subscription.is_durable = False
    with pytest.raises(Unsupported, match="named subscription"):
        bench.decide(wish(), [(bench.consumer, [claim(lease)])])


def test_a_publish_that_is_refused_takes_the_others_back() -> None:
    bench = Bench()
    bench.publish(bench.out, 1, publisher=GENERATED, epoch=5)
    before = snapshot_of(bench)
    source = bench.source.partitions[0]
    fenced = wish(part(0), part(0, epoch=4), publisher=GENERATED)
    with pytest.raises(PublisherFenced):
        units.decide_unit(bench.state, fenced, [source, bench.home], [], bench.wall)
    assert snapshot_of(bench) == before
    assert (source.reserved, GENERATED in (source.publishers or {})) == (3, False)
    forgotten = wish(part(0), part(7), publisher=b"\x02" + bytes(15))
    bench.home.publishers = None
    with pytest.raises(PublisherForgotten):
        units.decide_unit(
            bench.state, forgotten, [bench.home, bench.source.partitions[0]], [], bench.wall
        )
    assert (bench.home.reserved, bench.home.publishers) == (1, None)


def test_a_batch_that_is_under_way_makes_the_unit_wait_without_a_trace() -> None:
    bench = Bench()
    decide_publish(bench.home, BATCH, 1, NAMED, 0, 0, bench.wall)
    before = snapshot_of(bench)
    asked = wish(part(0, partition=0), part(0))
    second = bench.source.partitions[0]
    asked = wish(Part("orders", 0, BATCH, 1, 0, 3), part(0))
    found = units.decide_unit(bench.state, asked, [second, bench.home], [], bench.wall)
    assert isinstance(found, InFlight)
    assert snapshot_of(bench) == before
    assert second.reserved == second.next_offset == 3


def test_whatever_goes_wrong_half_way_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.publish(bench.out, 1)
    before = snapshot_of(bench)
    calls: list[Partition] = []

    def second_fails(partition: Partition, *rest: Any) -> Any:
        calls.append(partition)
        if len(calls) == 3:
            raise MalformedBatch("bad bytes")
        return decide_publish(partition, *rest)

    monkeypatch.setattr(units, "decide_publish", second_fails)
    source = bench.source.partitions[0]
    asked = wish(part(1), part(0, epoch=9), part(2))
    with pytest.raises(MalformedBatch):
        units.decide_unit(bench.state, asked, [bench.home, source, bench.home], [], bench.wall)
    assert snapshot_of(bench) == before
    assert source.reserved == 3
    assert {key: known.epoch for key, known in (source.publishers or {}).items()} == {NAMED: 0}


def test_a_batch_whose_ids_do_not_fit_is_refused_before_anything_changes() -> None:
    bench = Bench()
    lease = bench.deliver_one(bench.consumer)
    before = snapshot_of(bench)
    batch = encode_many([Message(body=b"a", id="1"), Message(body=b"b", id="2")])
    wrong = Part("out", 0, batch, 5, 0, 0)
    with pytest.raises(MalformedBatch, match="2 ids for 5"):
        bench.decide(wish(wrong), [(bench.consumer, [claim(lease)])])
    assert snapshot_of(bench) == before


def test_an_id_known_already_is_told_and_the_rest_is_stored() -> None:
    bench = Bench()
    one = encode_many([Message(body=b"a", id="1")])
    both = encode_many([Message(body=b"a", id="1"), Message(body=b"b", id="2")])
    unit, _ = bench.decide(wish(Part("out", 0, one, 1, 0, 0)))
    bench.apply(unit)
    again = wish(Part("out", 0, both, 2, 0, 1), sequence=1)
    unit, places = bench.decide(again)
    bench.apply(unit)
    assert places == ((1, False, (1,), {0: 0}),)
    assert units.first_outcome(bench.state, again) == places
    state = State()
    units.load_units(
        state,
        msgspec.msgpack.decode(msgspec.msgpack.encode(units.dump_units(bench.state)), strict=False),
    )
    assert units.first_outcome(state, again) == places


def test_a_unit_may_replace_the_message_it_acks_late() -> None:
    bench = World()
    policy = TopicPolicy(on_duplicate=OnDuplicate.REPLACE)
    topic = bench.topic("jobs", policy=policy)
    subscription = bench.subscribe(topic)
    consumer = bench.join(subscription)
    batch = encode_many([Message(body=b"a", id="1")])
    home = topic.partitions[0]
    unit, _ = decided(bench, wish(Part("jobs", 0, batch, 1, 0, 0)), home, [])
    bench.apply(unit)
    lease = bench.deliver_one(consumer)
    bench.wait(31)
    bench.expire(subscription)
    asked = wish(Part("jobs", 0, batch, 1, 0, 1), sequence=1)
    unit, _ = decided(bench, asked, home, [(consumer, [claim(lease)])])
    bench.apply(unit)
    found = count(subscription)
    assert (found.acked, found.waiting, found.leased, unexplained(found)) == (1, 1, 0, 0)


def decided(world: World, asked: UnitWish, home: Partition, claims: Claims) -> tuple[Unit, Places]:
    found = units.decide_unit(world.state, asked, [home], claims, world.wall)
    assert not isinstance(found, InFlight)
    return found


def test_batches_of_one_partition_rise() -> None:
    bench = Bench()
    before = snapshot_of(bench)
    for parts in ((part(0), part(0)), (part(3), part(1)), (part(0, epoch=1), part(1))):
        with pytest.raises(InvalidArgument, match="rising"):
            bench.decide(wish(*parts))
    assert snapshot_of(bench) == before


def test_a_batch_stored_before_is_told_so() -> None:
    bench = Bench()
    bench.publish(bench.out, 1)
    unit, places = bench.decide(wish(part(0), part(1)))
    assert places == ((0, True, None, None), (1, False, None, None))
    bench.apply(unit)
    assert bench.home.next_offset == 2


# -- retries -------------------------------------------------------------------------------------


def test_a_retry_gets_the_first_outcome_whatever_became_of_its_acks() -> None:
    bench = Bench()
    lease = bench.deliver_one(bench.consumer)
    asked = wish(part(0))
    unit, places = bench.decide(asked, [(bench.consumer, [claim(lease)])])
    assert isinstance(units.first_outcome(bench.state, asked), InFlight)
    bench.apply(unit)
    assert units.first_outcome(bench.state, asked) == places
    with pytest.raises(AckRefused):
        bench.decide(asked._replace(sequence=1), [(bench.consumer, [claim(lease)])])
    assert units.first_outcome(bench.state, asked._replace(sequence=1)) is None


def test_a_refused_unit_is_not_remembered_even_when_later_ones_are() -> None:
    bench = Bench()
    for sequence in (0, 2):
        bench.apply(bench.decide(wish(sequence=sequence))[0])
    assert units.first_outcome(bench.state, wish(sequence=0)) == ()
    assert units.first_outcome(bench.state, wish(sequence=1)) is None


def test_only_the_newest_units_are_remembered_and_older_retries_are_refused() -> None:
    bench = Bench()
    for sequence in range(limits.UNITS_KEPT + 10):
        bench.apply(bench.decide(wish(sequence=sequence))[0])
    assert len(bench.state.units[NAMED].places) == limits.UNITS_KEPT
    assert units.first_outcome(bench.state, wish(sequence=10)) == ()
    with pytest.raises(PublisherForgotten):
        units.first_outcome(bench.state, wish(sequence=9))


def test_a_new_epoch_ends_the_old_one_even_before_it_is_durable() -> None:
    bench = Bench()
    bench.apply(bench.decide(wish(sequence=4, epoch=1))[0])
    flying, _ = bench.decide(wish(sequence=5, epoch=1))
    unit, _ = bench.decide(wish(sequence=0, epoch=2))
    with pytest.raises(PublisherFenced):
        units.first_outcome(bench.state, wish(sequence=6, epoch=1))
    assert isinstance(units.first_outcome(bench.state, wish(sequence=5, epoch=1)), InFlight)
    bench.apply(flying)
    assert bench.state.units[NAMED].newest == 5
    bench.apply(unit)
    assert (bench.state.units[NAMED].epoch, bench.state.units[NAMED].newest) == (2, 0)
    bench.apply(flying)
    assert (bench.state.units[NAMED].epoch, bench.state.units[NAMED].newest) == (2, 0)


def test_a_drawn_publisher_that_is_not_known_may_only_begin() -> None:
    state = State()
    assert units.first_outcome(state, wish(publisher=GENERATED)) is None
    assert units.first_outcome(state, wish(publisher=NAMED, sequence=9)) is None
    with pytest.raises(PublisherForgotten, match="Open a new client"):
        units.first_outcome(state, wish(publisher=GENERATED, sequence=1))


def test_idle_drawn_publishers_are_forgotten_and_named_ones_kept() -> None:
    bench = Bench()
    for publisher in (NAMED, GENERATED):
        bench.apply(bench.decide(wish(publisher=publisher))[0])
    units.forget_units(bench.state, bench.wall + int(limits.PUBLISHER_IDLE_S_MAX * 1000))
    assert set(bench.state.units) == {NAMED, GENERATED}
    units.forget_units(bench.state, bench.wall + int(limits.PUBLISHER_IDLE_S_MAX * 1000) + 1)
    assert set(bench.state.units) == {NAMED}


def test_a_snapshot_keeps_the_outcomes_and_seeing_a_record_again_is_harmless() -> None:
    bench = Bench()
    records = []
    for sequence in range(3):
        unit, _ = bench.decide(wish(part(sequence), sequence=sequence))
        bench.apply(unit)
        records.append(unit.records[-1])
    bench.decide(wish(sequence=9, publisher=GENERATED))
    rows = units.dump_units(bench.state)
    assert len(rows) == 1, "what is not durable is not in a snapshot"
    state = State()
    units.load_units(state, rows)
    for record in records:
        assert isinstance(record, UnitCommitted)
        units.apply_unit_committed(state, record, Effects(0, 0))
    assert units.first_outcome(state, wish(sequence=1)) == ((1, False, None, None),)
    assert (state.units[NAMED].newest, len(state.units[NAMED].places)) == (2, 3)
    assert units.dump_units(State()) is None


# -- limits --------------------------------------------------------------------------------------


def test_a_unit_over_its_limits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    lease = bench.deliver_one(bench.consumer)
    monkeypatch.setattr(limits, "UNIT_COUNT_MAX", 3)
    units.check_size([], [(bench.consumer, [claim(lease)])])
    with pytest.raises(UnitTooLarge, match="4 publishes and acks"):
        units.check_size([part()], [(bench.consumer, [claim(lease)])])
    monkeypatch.setattr(limits, "UNIT_BYTES_MAX", len(BATCH) // 2)
    with pytest.raises(UnitTooLarge, match="split it"):
        units.check_size([part(), part()], [])


def test_a_partition_that_is_gone_is_refused() -> None:
    bench = Bench()
    partitions: list[Partition] = bench.out.partitions
    assert units.partition_of(partitions, part()) is bench.home
    with pytest.raises(Unavailable, match="fewer partitions"):
        units.partition_of(partitions, part(partition=1))


def test_a_qos_0_message_is_acked_by_nothing() -> None:
    bench = Bench(qos=0)
    lease = bench.deliver_one(bench.consumer)
    unit, _ = bench.decide(wish(), [(bench.consumer, [claim(lease)])])
    assert [type(each) for each in unit.records] == [UnitCommitted]
