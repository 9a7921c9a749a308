"""Which messages of a batch are new: sifted, noted and remembered the same live and in recovery."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import encode_columns, encode_many
from penstock.batch.encode import Columns
from penstock.batch.given import ids_column
from penstock.delivery.dedup import Window
from penstock.delivery.pending import Pending
from penstock.delivery.state import Partition
from penstock.delivery.unique import (
    dump_ids,
    forget_ids,
    load_ids,
    note,
    pending_of,
    places_of,
    remember,
    sift,
    sift_alike,
    window_of,
)
from penstock.vocabulary import limits
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import OnDuplicate, TopicPolicy
from penstock.vocabulary.records import Published
from tests.delivery.world import NAMED, World

NOW = 1_700_000_000_000
NOBODY = bytes(16)

some_ids = st.lists(st.none() | st.sampled_from("abcdefgh"), min_size=1, max_size=12)


@pytest.fixture
def partition() -> Partition:
    return World().topic().partitions[0]


@pytest.fixture
def replacing() -> Partition:
    policy = TopicPolicy(on_duplicate=OnDuplicate.REPLACE)
    return World().topic(policy=policy).partitions[0]


def record(
    *ids: str | None, base: int = 0, kept: tuple[int, ...] | None = None, publisher: bytes = NAMED
) -> Published:
    batch = encode_many([Message(body=b"x", id=id) for id in ids])
    stored = len(ids) if kept is None else len(kept)
    return Published(1, 0, base, stored, publisher, 0, 0, NOW, batch, kept)


@given(st.lists(some_ids, min_size=1, max_size=5))
def test_each_id_has_the_place_where_it_came_first(batches: list[list[str | None]]) -> None:
    window, first, base = Window(), dict[str, int](), 0
    for ids in batches:
        sifted = sift(window, ids, 0, NOW)
        kept = range(len(ids)) if sifted.kept is None else sifted.kept
        new = [
            n for n, id in enumerate(ids) if id is None or (id not in first and id not in ids[:n])
        ]
        assert list(kept) == new
        note(window, sifted, base, NOW)
        for at, index in enumerate(kept):
            id = ids[index]
            if id is not None:
                first[id] = base + at
        assert sifted.places == {
            n: first[id] for n, id in enumerate(ids) if n not in new and id is not None
        }
        assert places_of(window, ids, NOW) == {
            n: first[id] for n, id in enumerate(ids) if id is not None
        }
        base += len(kept)


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=9), max_size=5))
def test_ids_that_are_alike_are_sifted_like_others(batches: list[list[str]]) -> None:
    one, other, base = World().topic().partitions[0], World().topic().partitions[0], 0
    for ids in batches:
        column = ids_column(record(*ids).batch)
        assert column is not None
        alike = sift_alike(one, column, len(ids), NOW)
        assert (alike is None) == (len(set(ids)) < len(ids))
        sifted = sift(window_of(other), ids, 0, NOW)
        if alike is not None:
            assert (alike.kept, alike.places, alike.twins) == (sifted.kept, sifted.places, {})
            assert alike.rows.tolist() == sifted.rows.tolist()
        note(window_of(one), alike or sifted, base, NOW)
        note(window_of(other), sifted, base, NOW)
        base += len(ids) if sifted.kept is None else len(sifted.kept)
        assert dump_ids(one) == dump_ids(other)


def test_what_is_known_by_its_sequence_is_not_looked_at() -> None:
    window = Window()
    sifted = sift(window, ["a", "b", "c"], 1, NOW)
    assert (sifted.kept, sifted.places) == ((1, 2), {})
    note(window, sifted, 5, NOW)
    assert places_of(window, ["a", "b", "c"], NOW) == {1: 5, 2: 6}


def test_only_what_was_kept_is_remembered(partition: Partition) -> None:
    remember(partition, record("a", None, "b", "c", base=10, kept=(1, 2)))
    assert places_of(window_of(partition), ["a", "b", "c"], NOW) == {1: 11}


def test_a_message_known_since_it_was_decided_is_not_remembered_twice(
    partition: Partition,
) -> None:
    window = window_of(partition)
    note(window, sift(window, ["a"], 0, NOW), 0, NOW)
    window.decided = 1
    remember(partition, record("a"))
    assert len(window) == 1
    remember(partition, record("b", base=1))
    assert len(window) == 2


def test_what_the_broker_moves_is_not_given(partition: Partition) -> None:
    batch = encode_columns(Columns(bodies=[b"x"], ids=["a"], published_at=[NOW]))
    remember(partition, Published(1, 0, 0, 1, NOBODY, 0, 0, NOW, batch), is_copy=True)
    assert partition.seen is None


def test_where_newer_messages_replace_older_all_that_wait_are_known(replacing: Partition) -> None:
    remember(replacing, record("a", publisher=NOBODY))
    remember(replacing, record("a", None, base=1))
    assert list(pending_of(replacing).places.values()) == [[0, 1]]


@pytest.mark.parametrize(
    "batch", [b"", encode_many([b"x"]), b"\1\0\1\0\1\0\0\0\0\0\0\0\3\0\0\0\1\0\0\0\1"]
)
def test_a_record_without_readable_ids_is_no_trouble(partition: Partition, batch: bytes) -> None:
    remember(partition, Published(1, 0, 0, 1, NAMED, 0, 0, NOW, batch))
    assert partition.seen is None


def test_a_snapshot_brings_both_kinds_back(partition: Partition, replacing: Partition) -> None:
    for each, kind in ((partition, Window), (replacing, Pending)):
        assert dump_ids(each) is None
        remember(each, record("a", "b"))
        each.next_offset = 2
        state = dump_ids(each)
        assert state is not None
        each.seen = None
        load_ids(each, state)
        assert isinstance(each.seen, kind)
    assert places_of(window_of(partition), ["b"], NOW) == {0: 1}
    assert list(pending_of(replacing).places.values()) == [[0], [1]]


def test_ids_that_no_longer_matter_are_forgotten(
    partition: Partition, replacing: Partition
) -> None:
    for each in (partition, replacing):
        forget_ids(each, NOW)
        remember(each, record("a", "b"))
        forget_ids(each, NOW + 1)
        assert each.seen is not None
    forget_ids(partition, NOW + int(limits.DEDUP_S * 1000))
    assert partition.seen is None
    replacing.released.add(0, 1)
    forget_ids(replacing, NOW)
    assert list(pending_of(replacing).places.values()) == [[1]]
