"""Where publish times go back, and what is left to search between."""

import pytest

from penstock.batch import Columns, encode_columns
from penstock.delivery import setbacks
from penstock.delivery.ranges import RangeSet
from penstock.delivery.setbacks import (
    Stretch,
    dump_setbacks,
    held_for_all,
    load_setbacks,
    note_times,
    stretches,
)
from penstock.delivery.state import Partition
from penstock.vocabulary.records import Published
from tests.delivery.world import NAMED, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def partition(world: World) -> Partition:
    return world.topic().partitions[0]


def noted(partition: Partition, *times: int) -> list[Stretch]:
    note_times(partition, partition.next_offset, times)
    partition.next_offset += len(times)
    return list(stretches(partition))


def test_times_that_only_rise_are_one_stretch(partition: Partition) -> None:
    assert noted(partition, 1, 1, 2, 5) == [Stretch(0, 4, is_rising=True)]


def test_each_set_back_begins_another_stretch(partition: Partition) -> None:
    assert [cut[:2] for cut in noted(partition, 5, 3, 4, 1, 1, 9)] == [(0, 1), (1, 3), (3, 6)]


def test_beyond_the_limit_the_oldest_count_as_in_no_order(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setbacks, "SETBACKS_MAX", 2)
    found = noted(partition, 9, 8, 7, 6, 7)
    assert found == [
        Stretch(0, 2, is_rising=False), Stretch(2, 2, is_rising=True),
        Stretch(2, 3, is_rising=True), Stretch(3, 5, is_rising=True),
    ]  # fmt: skip


def test_publishes_note_when_the_clock_was_set_back(world: World, partition: Partition) -> None:
    world.publish(partition.topic, 2)
    world.wait(-3600)
    world.publish(partition.topic, 2)
    world.wait(10)
    world.publish(partition.topic, 1)
    assert partition.setbacks == [2]


def test_copies_count_with_the_times_they_bring(world: World, partition: Partition) -> None:
    world.publish(partition.topic, 1)
    times = [world.wall - 10, world.wall - 5, world.wall - 7]
    batch = encode_columns(Columns(bodies=[b"a", b"b", b"c"], published_at=times))
    world.apply(Published(1, 0, 1, 2, NAMED, 0, 7, world.wall, batch, (0, 2)))
    assert (partition.setbacks, partition.newest_at) == ([1], world.wall - 7)
    world.apply(Published(1, 0, 3, 3, NAMED, 0, 10, world.wall, batch))
    assert partition.setbacks == [1, 3, 5]


def test_the_times_of_what_was_sent_to_one_subscription_do_not_count(
    world: World, partition: Partition
) -> None:
    world.publish(partition.topic, 1)
    batch = encode_columns(Columns(bodies=[b"a"], published_at=[1]))
    world.apply(Published(1, 0, 1, 1, bytes(16), 0, 0, world.wall, batch, None, 77))
    assert partition.setbacks is None
    assert list(held_for_all(partition, 0, 2)) == [(0, 1)]


def test_dead_letters_have_no_order(world: World) -> None:
    source = world.topic()
    source.name = "orders.dead.billing"
    assert [cut.is_rising for cut in stretches(source.partitions[0])] == [False]


def test_what_is_released_or_aimed_is_passed_over(partition: Partition) -> None:
    partition.released.add(0, 2)
    partition.aimed = RangeSet()
    partition.aimed.add(4, 6)
    assert list(held_for_all(partition, 0, 8)) == [(2, 4), (6, 8)]


def test_a_snapshot_brings_them_back(world: World, partition: Partition) -> None:
    assert dump_setbacks(partition) is None
    noted(partition, 5, 3)
    found = dump_setbacks(partition)
    assert found is not None
    fresh = world.topic("other").partitions[0]
    load_setbacks(fresh, found)
    assert (fresh.newest_at, fresh.setbacks, fresh.unordered) == (3, [1], 0)
