"""Publisher sequences: a retry is never a second message, and never a lost one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import encode_many
from penstock.delivery.publish import Decided, Duplicate, InFlight, decide_publish, is_generated
from penstock.delivery.state import Partition
from penstock.vocabulary.errors import PublisherFenced, PublisherForgotten
from penstock.vocabulary.records import Published
from tests.delivery.world import GENERATED, NAMED, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def partition(world: World) -> Partition:
    topic = world.topic()
    world.subscribe(topic)
    return topic.partitions[0]


def decide(
    partition: Partition,
    sequence: int,
    count: int = 1,
    *,
    publisher: bytes = NAMED,
    epoch: int = 0,
) -> Published | Decided | Duplicate | InFlight:
    batch = encode_many([b"x"] * count)
    return decide_publish(partition, batch, count, publisher, epoch, sequence, 1_000)


def store(
    world: World, partition: Partition, sequence: int, count: int = 1, **who: object
) -> Published:
    record = decide(partition, sequence, count, **who)  # type: ignore[arg-type]
    assert isinstance(record, Published)
    world.apply(record)
    return record


def test_offsets_are_reserved_in_the_order_of_deciding(partition: Partition) -> None:
    first, second = decide(partition, 0, 3), decide(partition, 3, 2)
    assert isinstance(first, Published)
    assert isinstance(second, Published)
    assert (first.base, first.end, second.base, second.end) == (0, 3, 3, 5)
    assert (partition.reserved, partition.next_offset) == (5, 0)


def test_a_record_says_who_published_what_and_when(partition: Partition) -> None:
    record = decide(partition, 7, 2, epoch=3)
    assert isinstance(record, Published)
    assert (record.publisher, record.epoch, record.sequence) == (NAMED, 3, 7)
    assert (record.published_at, record.kept, record.target) == (1_000, None, 0)


def test_a_retry_of_a_durable_batch_is_a_duplicate_at_the_same_place(
    world: World, partition: Partition
) -> None:
    store(world, partition, 0, 3)
    record = store(world, partition, 3, 2)
    assert decide(partition, 3, 2) == Duplicate(record.base)


def test_a_retry_of_a_part_of_the_newest_batch_knows_its_place(
    world: World, partition: Partition
) -> None:
    store(world, partition, 0, 5)
    assert decide(partition, 2, 2) == Duplicate(2)


def test_the_place_of_an_older_duplicate_is_forgotten_but_not_that_it_is_one(
    world: World, partition: Partition
) -> None:
    store(world, partition, 0, 3)
    store(world, partition, 3, 3)
    assert decide(partition, 0, 3) == Duplicate(None)


def test_a_second_publish_of_what_is_in_flight_waits_for_the_first(
    world: World, partition: Partition
) -> None:
    first = decide(partition, 0, 2)
    assert isinstance(decide(partition, 0, 2), InFlight)
    assert isinstance(decide(partition, 1, 5), InFlight)
    assert isinstance(first, Published)
    world.apply(first)
    assert decide(partition, 0, 2) == Duplicate(0)


def test_a_sequence_counts_as_seen_only_once_it_is_durable(
    world: World, partition: Partition
) -> None:
    decide(partition, 0)
    assert partition.publishers is not None
    assert partition.publishers[NAMED].last == -1


def test_a_partial_overlap_keeps_exactly_the_new_tail(world: World, partition: Partition) -> None:
    store(world, partition, 0, 3)
    record = store(world, partition, 1, 5)
    assert (record.base, record.count, record.kept) == (3, 3, (2, 3, 4))
    assert partition.next_offset == 6
    assert decide(partition, 3, 3) == Duplicate(3)
    assert isinstance(decide(partition, 6), Published)


def test_sequences_may_have_gaps(world: World, partition: Partition) -> None:
    store(world, partition, 0)
    assert store(world, partition, 100, 2).base == 1
    assert decide(partition, 50) == Duplicate(None)


def test_publishers_do_not_disturb_each_other(world: World, partition: Partition) -> None:
    store(world, partition, 0)
    other = b"\x03" * 16
    assert store(world, partition, 0, publisher=other).base == 1


def test_partitions_count_on_their_own(world: World) -> None:
    topic = world.topic("wide", partitions=2)
    store(world, topic.partitions[0], 0)
    assert store(world, topic.partitions[1], 0).base == 0


# -- epochs ------------------------------------------------------------------------------------


def test_a_newer_epoch_begins_anew(world: World, partition: Partition) -> None:
    store(world, partition, 0, 5)
    assert store(world, partition, 0, 2, epoch=1).base == 5
    assert decide(partition, 0, 2, epoch=1) == Duplicate(5)


def test_a_newer_epoch_fences_the_older(world: World, partition: Partition) -> None:
    store(world, partition, 0)
    store(world, partition, 0, epoch=2)
    with pytest.raises(PublisherFenced, match="epoch 2"):
        decide(partition, 1, epoch=1)


def test_an_older_epoch_is_fenced_from_the_decision_on(partition: Partition) -> None:
    decide(partition, 0, epoch=1)
    with pytest.raises(PublisherFenced):
        decide(partition, 1, epoch=0)


def test_a_newer_epoch_is_not_confused_by_an_older_batch_still_in_flight(
    world: World, partition: Partition
) -> None:
    old = decide(partition, 0, 100)
    new = decide(partition, 0, 1, epoch=1)
    for record in (old, new):
        assert isinstance(record, Published)
        world.apply(record)
    assert store(world, partition, 1, epoch=1).base == 101
    assert decide(partition, 0, epoch=1) == Duplicate(None)


def test_a_newer_epoch_read_back_from_the_log_goes_on_where_it_was(
    world: World, partition: Partition
) -> None:
    topic = partition.topic
    world.apply(Published(topic.id, 0, 0, 100, NAMED, 0, 0, 1_000, b""))
    world.apply(Published(topic.id, 0, 100, 1, NAMED, 1, 0, 1_000, b""))
    assert store(world, partition, 1, epoch=1).base == 101


# -- forgotten publishers ----------------------------------------------------------------------


def test_an_unknown_generated_publisher_in_the_middle_of_its_sequence_is_refused(
    partition: Partition,
) -> None:
    with pytest.raises(PublisherForgotten, match="was not stored"):
        decide(partition, 5, publisher=GENERATED)
    assert partition.reserved == 0


def test_an_unknown_generated_publisher_may_begin(partition: Partition) -> None:
    assert isinstance(decide(partition, 0, publisher=GENERATED), Published)


def test_an_unknown_named_publisher_may_begin_anywhere(partition: Partition) -> None:
    assert isinstance(decide(partition, 5), Published)


def test_the_lowest_bit_of_the_id_tells_named_from_generated() -> None:
    assert is_generated(GENERATED)
    assert not is_generated(NAMED)


# -- against a model ---------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 6), st.booleans()), min_size=1, max_size=20
    )
)
def test_no_mix_of_old_and_new_stores_a_sequence_twice_or_out_of_order(
    batches: list[tuple[int, int, bool]],
) -> None:
    world = World()
    partition = world.topic().partitions[0]
    decided: list[Published] = []
    stored: list[int] = []
    highest = -1
    for sequence, count, is_applied in batches:
        found = decide(partition, sequence, count)
        last = sequence + count - 1
        if isinstance(found, Published):
            decided.append(found)
            kept = found.kept or range(count)
            stored.extend(sequence + index for index in kept)
            assert len(kept) == found.count
            highest = max(highest, last)
        elif isinstance(found, Duplicate):
            assert last <= highest
        if is_applied:
            for record in decided:
                world.apply(record)
            decided = []
    assert stored == sorted(set(stored))
