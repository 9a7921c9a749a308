"""What topic policies do when records are applied: the replay window, newest of a key, limits."""

from penstock.batch import Batch
from penstock.batch.encode import key_hashes
from penstock.delivery.effects import Effects
from penstock.delivery.holding import drop_retained, lose, release
from penstock.delivery.keeping import Keeping, Key, is_keeping, needs_times, row_ms
from penstock.delivery.state import Partition, State, Topic
from penstock.vocabulary.errors import MalformedBatch
from penstock.vocabulary.policy import TopicPolicy
from penstock.vocabulary.records import Outlived, Published


def keep_published(partition: Partition, record: Published, effects: Effects) -> None:
    """Notes when new messages came and which are the newest of their keys."""
    policy, keeping = partition.topic.policy, partition.keeping
    assert keeping is not None
    if needs_times(policy):
        keeping.note_time(record.base, record.end, record.published_at, row_ms(policy))
        effects.retained[partition] = None
    if policy.keep_last > 0 and not record.target:
        for offset, key in _keys(record):
            for former in keeping.note_key(key, offset, policy.keep_last):
                # Who holds the messages of this batch is not known yet.
                if former < record.base:
                    release(partition, former, former + 1, effects)
            if partition.topic.growth and key is not None:
                _let_go_moved(partition.topic, key, effects)
    if is_over(partition.topic):
        effects.retained[partition] = None


def _let_go_moved(topic: Topic, key: bytes, effects: Effects) -> None:
    """Growth moved this key: of all the partitions it had, only its newest messages are kept."""
    place = key_hashes((key,))[0]
    rows: dict[tuple[Partition, int], None] = {}
    for growth in topic.growth or ():
        home = topic.partitions[place % growth.partitions]
        for offset in home.keeping.newest.get(key, ()) if home.keeping is not None else ():
            if offset < growth.ends[home.index]:
                rows[home, offset] = None
    if not rows:
        return
    home = topic.partitions[place % len(topic.partitions)]
    for offset in home.keeping.newest.get(key, ()) if home.keeping is not None else ():
        rows[home, offset] = None
    for home, offset in list(rows)[: -topic.policy.keep_last]:
        assert home.keeping is not None
        home.keeping.forget(offset, offset + 1)
        release(home, offset, offset + 1, effects)


def _keys(record: Published) -> list[tuple[int, Key]]:
    offsets = range(record.base, record.end)
    try:
        keys = Batch(record.batch, verify=False).keys
    except MalformedBatch:  # Then nobody can read it either; it counts as one without a key.
        keys = None
    if keys is None:
        return [(offset, None) for offset in offsets]
    indexes = range(record.count) if record.kept is None else record.kept
    chosen = (keys[index] for index in indexes)
    return [
        (offset, key.encode() if isinstance(key, str) else key)
        for offset, key in zip(offsets, chosen, strict=True)
    ]


def held_bytes(topic: Topic) -> int:
    """How many bytes a topic holds."""
    return sum(partition.held_bytes for partition in topic.partitions)


def is_over(topic: Topic) -> bool:
    """True when a topic holds more than its `max_bytes`."""
    limit = topic.policy.max_bytes
    return limit is not None and held_bytes(topic) > limit


def begin_keeping(topic: Topic) -> None:
    """Gives the partitions of a new topic what its policy needs."""
    if is_keeping(topic.policy):
        for partition in topic.partitions:
            partition.keeping = Keeping()


def change_policy(topic: Topic, policy: TopicPolicy, at: int, effects: Effects) -> None:
    """A topic has a new policy. What is there counts as published now where times are not known."""
    before, topic.policy = topic.policy, policy
    for partition in topic.partitions:
        if partition.keeping is None and is_keeping(policy):
            partition.keeping = Keeping()
        if partition.keeping is not None:
            _change(partition, before, at or effects.wall, effects)
        if partition.retained or partition.keeping is not None:
            effects.retained[partition] = None
    if policy.keep_last > 0 and topic.growth:
        keys = [key for each in topic.partitions if each.keeping for key in each.keeping.newest]
        for key in keys:
            if key is not None:
                _let_go_moved(topic, key, effects)


def _change(partition: Partition, before: TopicPolicy, at: int, effects: Effects) -> None:
    policy, keeping = partition.topic.policy, partition.keeping
    assert keeping is not None
    if not needs_times(policy):
        keeping.rows = []
    elif not needs_times(before) and partition.released.floor < partition.next_offset:
        keeping.rows = [[partition.released.floor, partition.next_offset, at]]
    if policy.replay_s <= 0:
        keeping.window = 0
    elif policy.replay_s > before.replay_s:  # what is still held belongs to the longer window
        keeping.window = min(keeping.window, keeping.end_before(at - int(policy.replay_s * 1000)))
    keeping.trim(policy.keep_last)
    if not is_keeping(policy):
        partition.keeping = None
    release(partition, partition.released.floor, partition.next_offset, effects)


def apply_outlived(state: State, record: Outlived, effects: Effects) -> None:
    """The time of some messages is over; whoever else holds them goes on."""
    partition = state.topics[record.topic_id].partitions[record.partition]
    upto = max([record.window, *(end for _, end in record.ranges)])
    if upto > partition.next_offset:  # Damage took the publishing of these.
        lose(partition, partition.next_offset, upto, effects)
    for start, end in record.ranges:
        drop_retained(partition, start, end)
        release(partition, start, end, effects)
    keeping = partition.keeping
    if keeping is not None and record.window > keeping.window:
        former, keeping.window = keeping.window, record.window
        release(partition, former, record.window, effects)
    forget_rows(partition)


def forget_rows(partition: Partition) -> None:
    """Drops the publish times of messages that are gone and have left the replay window.

    The times of what is still held stay: another policy may ask for them.
    """
    keeping, policy = partition.keeping, partition.topic.policy
    if keeping is None or not keeping.rows:
        return
    window = keeping.window if policy.replay_s > 0 else partition.next_offset
    keeping.rows = [
        row for row in keeping.rows if row[1] > window or partition.released.missing(row[0], row[1])
    ]
    keeping.join_rows(window)
