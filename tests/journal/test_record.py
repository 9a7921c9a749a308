"""One record ↔ its bytes: everything comes back, and nothing else comes through."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.journal.record import OTHER, PREFIX, UNIT, decode, encode, encode_published
from penstock.vocabulary import records as r
from penstock.vocabulary.errors import ProtocolError
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy

u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(codec="utf-8"), max_size=20)
batches = st.binary(max_size=60)
ranges = st.lists(st.tuples(u64, u64), max_size=5).map(tuple)
offsets = st.lists(u64, min_size=1, max_size=6).map(tuple)

topic_policies = st.builds(
    TopicPolicy,
    durability=st.sampled_from(list(Durability)),
    retain_s=st.none() | st.floats(0, 1e6),
    dead_of=st.none() | text,
    max_bytes_refuse=st.none() | st.integers(0, 2**40),
)
retries = st.builds(
    Retry,
    first_s=st.floats(0, 100),
    max_s=st.floats(0, 100),
    max_attempts=st.none() | st.integers(1, 100),
)
subscription_policies = st.builds(
    SubscriptionPolicy,
    kind=st.sampled_from(list(Kind)),
    qos=st.integers(0, 2),
    lease_s=st.floats(0, 1000),
    retry=retries,
    dead_bytes_max=st.integers(0, 2**40),
)


@st.composite
def published(draw: st.DrawFn) -> r.Published:
    kept = draw(st.none() | st.lists(u32, max_size=6).map(tuple))
    count = draw(u32) if kept is None else len(kept)
    return r.Published(
        draw(u32), draw(u16), draw(u64), count, draw(st.binary(min_size=16, max_size=16)),
        draw(u64), draw(u64), draw(i64), draw(batches), kept, draw(u32), draw(u32),
    )  # fmt: skip


KINDS: dict[type, st.SearchStrategy[r.Record]] = {
    r.Published: published(),
    r.Copied: st.builds(r.Copied, u32, u16, offsets, batches, u32),
    r.Settled: st.builds(r.Settled, u32, u16, u32, st.sampled_from(list(r.Outcome)), ranges),
    r.Delivered: st.builds(r.Delivered, u32, u16, u32, u64, u64, st.booleans(), u32),
    r.Returned: st.builds(
        r.Returned, u32, u16, u32, st.sampled_from(list(r.Cause)), ranges, u64, i64, text, text
    ),
    r.Removed: st.builds(r.Removed, u32, u16, ranges),
    r.Lost: st.builds(r.Lost, u32, u16, ranges),
    r.Skipped: st.builds(r.Skipped, u32, u16, u64),
    r.TopicCreated: st.builds(r.TopicCreated, u32, text, u16, topic_policies, i64),
    r.TopicAltered: st.builds(r.TopicAltered, u32, topic_policies),
    r.TopicDeleted: st.builds(r.TopicDeleted, u32),
    r.SubscriptionCreated: st.builds(
        r.SubscriptionCreated, u32, u32, text, offsets, subscription_policies, i64
    ),
    r.SubscriptionAltered: st.builds(r.SubscriptionAltered, u32, u32, subscription_policies),
    r.SubscriptionDeleted: st.builds(r.SubscriptionDeleted, u32, u32),
    r.Attached: st.builds(r.Attached, u32, u32, u32, text),
    r.Detached: st.builds(r.Detached, u32, u32, u32, i64),
    r.Started: st.builds(r.Started, u32, st.booleans(), i64),
    r.ReaderOpened: st.builds(r.ReaderOpened, u32, u32, text),
    r.ReaderMoved: st.builds(r.ReaderMoved, u32, u32, offsets, offsets),
    r.Outlived: st.builds(r.Outlived, u32, u16, ranges, u64),
    r.Sought: st.builds(r.Sought, u32, u32, st.lists(st.none() | u64, max_size=4).map(tuple)),
    r.MemberExpired: st.builds(r.MemberExpired, u32, u32),
    r.PatternCreated: st.builds(r.PatternCreated, text, text, subscription_policies, i64),
    r.PatternDeleted: st.builds(r.PatternDeleted, text, text),
    r.PartitionsAdded: st.builds(r.PartitionsAdded, u32, u16, offsets, i64),
    r.UnitCommitted: st.builds(
        r.UnitCommitted,
        st.binary(max_size=16),
        u64,
        u64,
        i64,
        st.lists(
            st.tuples(
                st.none() | u64,
                st.booleans(),
                st.none() | offsets,
                st.none() | st.dictionaries(u32, u64),
            ),
            max_size=3,
        ).map(tuple),
    ),
    r.Missed: st.builds(r.Missed, u32, u16, u32, ranges, text),
}
simple = st.one_of(*KINDS.values())
KINDS[r.Unit] = st.builds(r.Unit, st.lists(simple, max_size=4).map(tuple))
every = st.one_of(simple, KINDS[r.Unit])


def test_every_kind_of_record_is_tried_here() -> None:
    assert set(KINDS) == set(get_args(r.Record))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(st.data())
def test_a_record_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    record = data.draw(KINDS[kind])
    copy = decode(encode(record))
    assert type(copy) is kind
    assert copy == record


@given(published())
def test_the_quick_way_for_the_commonest_record_writes_the_same_bytes(record: r.Published) -> None:
    assert encode_published(record) == encode(record)


@given(every)
def test_a_record_says_its_own_length_topic_and_partition(record: r.Record) -> None:
    data = encode(record)
    length, _, _, partition, topic_id = PREFIX.unpack_from(data)
    assert length == len(data)
    assert topic_id == getattr(record, "topic_id", 0)
    assert partition == getattr(record, "partition", 0)


@given(every, st.data())
def test_a_record_cut_short_or_lengthened_is_refused(record: r.Record, data: st.DataObject) -> None:
    encoded = encode(record)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for wrong in (encoded[:cut], encoded + b"\0"):
        with pytest.raises(ProtocolError):
            decode(wrong)


@given(every, st.data())
def test_a_record_cut_short_with_a_matching_length_is_refused_or_another_record(
    record: r.Record, data: st.DataObject
) -> None:
    encoded = encode(record)
    cut = encoded[: data.draw(st.integers(4, len(encoded) - 1))]
    only_protocol_errors(len(cut).to_bytes(4, "little") + cut[4:])


@given(every, st.data())
def test_changed_bytes_give_another_record_or_a_protocol_error(
    record: r.Record, data: st.DataObject
) -> None:
    encoded = bytearray(encode(record))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(4, len(encoded) - 1))
        encoded[at] = data.draw(st.integers(0, 255))
    only_protocol_errors(bytes(encoded))


@given(st.integers(0, 255), st.integers(0, 255), st.binary(max_size=80))
def test_random_bytes_give_a_record_or_a_protocol_error(kind: int, flags: int, body: bytes) -> None:
    head = PREFIX.pack(PREFIX.size + len(body), kind, flags, 0, 0)
    only_protocol_errors(head + body)


def only_protocol_errors(data: bytes) -> None:
    try:
        record = decode(data)
    except ProtocolError:
        return
    assert type(record) in KINDS


def test_an_unknown_kind_or_type_is_named() -> None:
    with pytest.raises(ProtocolError, match="unknown record kind 99"):
        decode(PREFIX.pack(PREFIX.size, 99, 0, 0, 0))
    with pytest.raises(ProtocolError, match="unknown record type 200"):
        decode(PREFIX.pack(PREFIX.size, OTHER, 200, 0, 0))


def test_a_copy_that_holds_fewer_offsets_than_it_says_is_refused() -> None:
    data = encode(r.Copied(1, 0, (1, 2, 3), b""))
    short = len(data) - 8
    with pytest.raises(ProtocolError):
        decode(short.to_bytes(4, "little") + data[4:short])


def test_a_part_that_overlaps_the_end_of_its_unit_is_refused() -> None:
    inner = encode(r.TopicDeleted(1))
    for part in (inner[:-1], b"\x01\0\0\0" + inner[4:]):
        head = PREFIX.pack(PREFIX.size + len(part), UNIT, 0, 0, 0)
        with pytest.raises(ProtocolError, match="does not fit"):
            decode(head + part)


def test_a_unit_inside_a_unit_inside_a_unit_is_refused_rather_than_followed_for_ever() -> None:
    data = b""
    for _ in range(5000):
        data = PREFIX.pack(PREFIX.size + len(data), UNIT, 0, 0, 0) + data
    with pytest.raises(ProtocolError):
        decode(data)


GOLDEN = {
    r.Settled(7, 3, 9, r.Outcome.ACKED, ((1, 5),)): (
        "2000000003010300070000000900000001000000000000000500000000000000"
    ),
    r.Delivered(7, 3, 9, 1, 5, True, 4): (
        "240000000401030007000000090000000400000001000000000000000500000000000000"
    ),
}


@pytest.mark.parametrize("record", GOLDEN, ids=lambda record: type(record).__name__)
def test_the_bytes_on_disk_do_not_change(record: r.Record) -> None:
    assert encode(record).hex() == GOLDEN[record]


def test_numbers_of_rare_records_on_disk_do_not_change() -> None:
    rare: list[r.Record] = [
        r.Removed(0, 0, ()), r.Lost(0, 0, ()), r.Skipped(0, 0, 0),
        r.TopicCreated(0, "", 1, TopicPolicy(), 0), r.TopicAltered(0, TopicPolicy()),
        r.TopicDeleted(0), r.SubscriptionCreated(0, 0, "", (), SubscriptionPolicy(), 0),
        r.SubscriptionAltered(0, 0, SubscriptionPolicy()), r.SubscriptionDeleted(0, 0),
        r.Attached(0, 0, 0, ""), r.Detached(0, 0, 0), r.Started(0, False, 0),
        r.ReaderOpened(0, 0, ""), r.ReaderMoved(0, 0, (), ()),
        r.Outlived(0, 0, (), 0), r.Sought(0, 0, ()),
        r.MemberExpired(0, 0), r.PatternCreated("", "", SubscriptionPolicy(), 0),
        r.PatternDeleted("", ""), r.PartitionsAdded(0, 2, (0,), 0),
        r.UnitCommitted(b"", 0, 0, 0, ()), r.Missed(0, 0, 0, (), ""),
    ]  # fmt: skip
    assert [encode(record)[5] for record in rare] == list(range(len(rare)))
    assert {encode(record)[4] for record in rare} == {OTHER}
