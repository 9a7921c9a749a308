"""What topic policies keep and let go when records are applied."""

import pytest
from xxhash import xxh3_64_intdigest

from penstock.batch import Columns, encode_columns
from penstock.delivery.growth import decide_partitions
from penstock.delivery.keeping import Keeping
from penstock.delivery.policies import forget_rows, held_bytes
from penstock.delivery.publish import decide_publish
from penstock.delivery.state import Partition, Topic
from penstock.vocabulary.policy import TopicPolicy
from penstock.vocabulary.records import (
    Lost,
    Outcome,
    Outlived,
    Published,
    Removed,
    Settled,
    TopicAltered,
)
from tests.delivery.world import NAMED, World, the


@pytest.fixture
def world() -> World:
    return World()


def keyed(world: World, topic: Topic, *keys: bytes | str | None) -> Published:
    home = topic.partitions[0]
    batch = encode_columns(Columns(bodies=[b"x"] * len(keys), keys=list(keys)))
    record = decide_publish(home, batch, len(keys), NAMED, 0, home.reserved, world.wall)
    assert isinstance(record, Published)
    world.apply(record)
    return record


def held(partition: Partition) -> list[int]:
    return [o for o in range(partition.next_offset) if o not in partition.released]


def finish(world: World, topic: Topic, *ranges: tuple[int, int], name: str = "billing") -> None:
    subscription = (topic.subscriptions or {})[name]
    world.apply(Settled(topic.id, 0, subscription.id, Outcome.ACKED, ranges))


# -- replay ----------------------------------------------------------------------------------------


def test_acked_messages_stay_while_the_replay_window_covers_them(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(replay_s=10))
    world.subscribe(topic)
    world.publish(topic, 3)
    finish(world, topic, (0, 3))
    partition = topic.partitions[0]
    assert held(partition) == [0, 1, 2]
    world.apply(Outlived(topic.id, 0, (), 2))
    assert held(partition) == [2]
    assert partition.held == 1


def test_one_unacked_message_keeps_only_itself(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(replay_s=10))
    world.subscribe(topic)
    world.publish(topic, 5)
    finish(world, topic, (0, 2), (3, 5))
    world.apply(Outlived(topic.id, 0, (), 5))
    assert held(topic.partitions[0]) == [2]
    finish(world, topic, (2, 3))
    assert held(topic.partitions[0]) == []


def test_the_window_never_goes_back(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(replay_s=10))
    world.publish(topic, 5)
    world.apply(Outlived(topic.id, 0, (), 4))
    world.apply(Outlived(topic.id, 0, (), 1))
    assert the(topic.partitions[0].keeping).window == 4


@pytest.mark.parametrize(("ranges", "window"), [((), 5), (((3, 5),), 0)])
def test_a_window_beyond_the_end_proves_that_messages_were_lost(
    world: World, ranges: tuple[tuple[int, int], ...], window: int
) -> None:
    topic = world.topic(policy=TopicPolicy(replay_s=10))
    cursor = world.subscribe(topic).cursors[0]
    world.publish(topic, 2)
    world.apply(Outlived(topic.id, 0, ranges, window))
    partition = topic.partitions[0]
    assert (partition.next_offset, partition.held) == (5, 2)
    assert (cursor.attached, cursor.dropped) == (5, 3)


def test_uncovered_messages_stay_for_the_longer_of_both_times(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(replay_s=10, retain_s=5))
    world.publish(topic, 2)
    world.apply(Outlived(topic.id, 0, ((0, 2),), 0))
    assert held(topic.partitions[0]) == [0, 1]
    world.apply(Outlived(topic.id, 0, (), 2))
    assert held(topic.partitions[0]) == []


def test_a_new_subscription_gets_what_the_window_holds(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(replay_s=10))
    world.subscribe(topic)
    world.publish(topic, 3)
    finish(world, topic, (0, 3))
    late = world.subscribe(topic, "late")
    assert late.cursors[0].attached == 3


# -- the newest of each key ------------------------------------------------------------------------


def test_the_newest_of_each_key_stays_although_it_is_acked(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=1))
    world.subscribe(topic)
    keyed(world, topic, "a", "b", "a")
    finish(world, topic, (0, 3))
    assert held(topic.partitions[0]) == [1, 2]
    keyed(world, topic, b"b")
    assert held(topic.partitions[0]) == [2, 3]


def test_the_newest_of_each_key_stays_although_nobody_subscribes(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=1, retain_s=0))
    keyed(world, topic, "a", "a", None, None)
    assert held(topic.partitions[0]) == [1, 3]


def test_the_newest_of_each_key_outlives_its_retention(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=1, retain_s=10))
    keyed(world, topic, "a", "a", "b")
    world.apply(Outlived(topic.id, 0, ((0, 3),), 0))
    partition = topic.partitions[0]
    assert held(partition) == [1, 2]
    assert partition.retained is None
    keyed(world, topic, "a")
    assert held(partition) == [2, 3]


def test_a_pushed_out_message_stays_until_it_is_acked(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=1))
    world.subscribe(topic)
    keyed(world, topic, "a", "a")
    assert held(topic.partitions[0]) == [0, 1]
    finish(world, topic, (0, 2))
    assert held(topic.partitions[0]) == [1]


def test_a_partly_stored_batch_is_counted_by_the_messages_it_kept(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=1))
    home = topic.partitions[0]
    batch = encode_columns(Columns(bodies=[b"x"] * 3, keys=["a", "b", "c"]))
    world.apply(Published(topic.id, 0, 0, 2, NAMED, 0, 0, world.wall, batch, (0, 2)))
    assert the(home.keeping).newest == {b"a": [0], b"c": [1]}


def test_a_message_sent_back_to_one_subscription_is_nobodys_newest(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=1))
    subscription = world.subscribe(topic)
    keyed(world, topic, "a")
    batch = encode_columns(Columns(bodies=[b"x"], keys=["a"]))
    world.apply(
        Published(
            topic.id, 0, 1, 1, bytes(16), 0, 0, world.wall, batch, None, subscription.id
        )
    )  # fmt: skip
    assert the(topic.partitions[0].keeping).newest == {b"a": [0]}


def test_an_unreadable_batch_counts_as_one_without_a_key(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=1))
    world.apply(Published(topic.id, 0, 0, 1, NAMED, 0, 0, world.wall, b"nonsense"))
    assert the(topic.partitions[0].keeping).newest == {None: [0]}


# -- what wins over every policy -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Removed, Lost])
def test_what_is_removed_or_lost_is_not_kept(world: World, kind: type) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=1, replay_s=100))
    cursor = world.subscribe(topic).cursors[0]
    keyed(world, topic, "a", "b")
    world.apply(kind(topic.id, 0, ((0, 2),)))
    partition = topic.partitions[0]
    assert (held(partition), partition.held) == ([], 0)
    assert (cursor.dropped, cursor.attached) == (2, 2)
    assert the(partition.keeping).kept == {}


# -- changes ---------------------------------------------------------------------------------------


def alter(world: World, topic: Topic, policy: TopicPolicy) -> dict[Partition, None]:
    return world.apply(TopicAltered(topic.id, policy, world.wall)).retained


def test_a_shorter_keep_last_lets_the_others_go(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=3))
    world.subscribe(topic)
    keyed(world, topic, "a", "a", "a", "b")
    finish(world, topic, (0, 4))
    alter(world, topic, TopicPolicy(keep_last=1))
    assert held(topic.partitions[0]) == [2, 3]
    alter(world, topic, TopicPolicy())
    assert held(topic.partitions[0]) == []
    assert topic.partitions[0].keeping is None


def test_without_replay_the_window_lets_everything_go(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(replay_s=10, max_age_s=100))
    world.subscribe(topic)
    world.publish(topic, 4)
    finish(world, topic, (0, 3))
    alter(world, topic, TopicPolicy(max_age_s=100))
    assert held(topic.partitions[0]) == [3]
    assert the(topic.partitions[0].keeping).rows == [[0, 4, world.wall]]


def test_what_is_there_counts_as_published_when_the_rule_came(world: World) -> None:
    topic = world.topic()
    world.subscribe(topic)
    world.publish(topic, 4)
    finish(world, topic, (0, 2))
    world.wall += 77_000
    noted = alter(world, topic, TopicPolicy(replay_s=10))
    assert the(topic.partitions[0].keeping).rows == [[2, 4, world.wall]]
    assert list(noted) == topic.partitions
    finish(world, topic, (2, 4))
    assert held(topic.partitions[0]) == [2, 3]


def test_a_rule_about_size_is_looked_at_when_it_is_broken(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(max_bytes=1000), partitions=2)
    world.subscribe(topic)
    record = world.publish(topic, 1, body=bytes(600))
    assert held_bytes(topic) == len(record.batch)
    again = decide_publish(topic.partitions[1], record.batch, 1, NAMED, 0, 0, world.wall)
    assert isinstance(again, Published)
    assert list(world.apply(again).retained) == [topic.partitions[1]]


def test_times_nobody_asks_for_are_forgotten(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(max_age_s=10_000))
    world.subscribe(topic)
    for _ in range(5):
        world.publish(topic)
        world.wall += 20_000
    partition = topic.partitions[0]
    finish(world, topic, (0, 2), (3, 4))
    forget_rows(partition)
    assert [row[0] for row in the(partition.keeping).rows] == [2, 4]


def test_a_plain_partition_has_no_times_to_forget(world: World) -> None:
    partition = world.topic().partitions[0]
    forget_rows(partition)
    assert partition.keeping is None
    partition.keeping = Keeping()
    forget_rows(partition)
    assert partition.keeping.rows == []


# -- growth ----------------------------------------------------------------------------------------


def placed(world: World, topic: Topic, key: str) -> tuple[int, int]:
    """A message of this key in the partition it has now."""
    home = topic.map[xxh3_64_intdigest(key.encode()) % len(topic.map)]
    batch = encode_columns(Columns(bodies=[b"x"], keys=[key]))
    record = decide_publish(home, batch, 1, NAMED, 0, home.reserved, world.wall)
    assert isinstance(record, Published)
    world.apply(record)
    return home.index, record.base


def all_held(topic: Topic) -> set[tuple[int, int]]:
    return {(each.index, offset) for each in topic.partitions for offset in held(each)}


@pytest.mark.parametrize("keep_last", [1, 2, 3])
def test_of_a_key_that_moved_only_the_newest_are_kept(world: World, keep_last: int) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=keep_last, retain_s=0))
    keys = [f"key-{number}" for number in range(20)]
    places: dict[str, list[tuple[int, int]]] = {key: [] for key in keys}
    for partitions in (2, 3, 4, 9):  # some keys come back to a partition they had
        for key in keys:
            places[key].append(placed(world, topic, key))
        newest = {place for rows in places.values() for place in rows[-keep_last:]}
        assert all_held(topic) == newest
        world.apply(the(decide_partitions(topic, partitions, world.wall)))
    assert all_held(topic) == newest


def test_a_moved_key_is_kept_less_when_its_topic_keeps_less(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=2, retain_s=0))
    keys = [f"key-{number}" for number in range(20)]
    for key in keys:
        placed(world, topic, key)
    world.apply(the(decide_partitions(topic, 4, world.wall)))
    newest = {placed(world, topic, key) for key in keys}
    assert len(all_held(topic)) == 40
    world.apply(TopicAltered(topic.id, TopicPolicy(keep_last=1, retain_s=0)))
    assert all_held(topic) == newest


def test_what_a_subscription_waits_for_stays_when_its_key_has_moved(world: World) -> None:
    topic = world.topic(policy=TopicPolicy(keep_last=1))
    world.subscribe(topic)
    key = next(f"k{n}" for n in range(99) if xxh3_64_intdigest(f"k{n}".encode()) % 2)
    placed(world, topic, key)
    world.apply(the(decide_partitions(topic, 2, world.wall)))
    placed(world, topic, key)
    assert all_held(topic) == {(0, 0), (1, 0)}
    finish(world, topic, (0, 1))
    assert all_held(topic) == {(1, 0)}
