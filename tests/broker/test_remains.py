"""What is rebuilt when parts of the story are missing: one lost record or file at a time."""

from collections.abc import Callable
from typing import Any

from penstock.broker.remains import Remains, consecutive
from penstock.delivery.counts import count, unexplained
from penstock.delivery.state import Subscription
from penstock.journal import group
from penstock.journal.memory import MemoryDisk
from penstock.journal.record import decode
from penstock.journal.salvage import BYTE, scan, survey
from penstock.vocabulary.records import (
    Copied,
    Published,
    Record,
    Settled,
    SubscriptionCreated,
    SubscriptionDeleted,
    TopicCreated,
    TopicDeleted,
)
from tests.crash.damage_store import RETRY, Bench, Files, StillClock


def without(image: Files, is_chosen: Callable[[Any], bool]) -> Files:
    """The same files with these records destroyed."""
    fresh = {name: bytearray(data) for name, data in image.items()}
    found = survey(MemoryDisk.from_image(image))
    for segment in found.places().values():
        for stretch in scan(segment):
            for position, rec in stretch.rows:
                if is_chosen(decode(rec)):
                    start = (position & BYTE) + group.RECORD_OVERHEAD
                    fresh[segment.file.name][start + 20] ^= 0xFF
    return {name: bytes(data) for name, data in fresh.items()}


def remains(image: Files) -> Remains:
    found = Remains(survey(MemoryDisk.from_image(image)), StillClock())
    found.run()
    return found


def kind(*kinds: type) -> Callable[[Record], bool]:
    return lambda record: isinstance(record, kinds)


def held(found: Remains, topic: str) -> set[int]:
    """Offsets of partition 0 that would be copied."""
    partition = found.state.names[topic].partitions[0]
    return {offset for run in found.plan(partition) for offset in range(run.start, run.end)}


def subscription(found: Remains, topic: str, name: str) -> Subscription:
    return (found.state.names[topic].subscriptions or {})[name]


def store() -> tuple[Bench, MemoryDisk]:
    disk = MemoryDisk()
    return Bench(disk), disk


# -- messages --------------------------------------------------------------------------------------


def test_a_lost_publish_is_a_gap_in_the_offsets() -> None:
    bench, disk = store()
    bench.broker.create_subscription("orders", "billing", RETRY, None)
    for body in (b"0", b"1", b"2"):
        bench.publish("orders", 0, [body])
    found = remains(without(dict(disk.image()), lambda r: isinstance(r, Published) and r.base == 1))
    assert held(found, "orders") == {0, 2}
    partition = found.state.names["orders"].partitions[0]
    assert partition.lost is not None
    assert 1 in partition.lost
    assert not unexplained(count(subscription(found, "orders", "billing")))


def test_a_lost_publish_at_the_end_is_told_by_its_ack() -> None:
    bench, disk = store()
    consumer = bench.attach("orders", "billing")
    bench.publish("orders", 0, [b"0"])
    bench.publish("orders", 0, [b"1"])
    bench.settle(1, "ack", newest=True)
    bench.detach(consumer)
    found = remains(without(dict(disk.image()), lambda r: isinstance(r, Published) and r.base == 1))
    assert held(found, "orders") == {0}
    assert found.state.names["orders"].partitions[0].next_offset == 2
    assert not unexplained(count(subscription(found, "orders", "billing")))


def test_a_message_whose_publish_is_lost_is_known_by_its_copy() -> None:
    bench, disk = store()
    bench.broker.create_subscription("orders", "billing", RETRY, None)
    for number in range(12):
        bench.publish("orders", 0, [b"%d" % number])
    segment = next(
        s for s in bench.broker.journal.index.segments.values() if s.is_sealed and s.live
    )
    bench.broker.keeper.compact(segment)
    whole = set(range(12))
    image = dict(disk.image())
    copied = {o for r in _records(image) if isinstance(r, Copied) for o in r.offsets}
    assert copied
    found = remains(without(image, lambda r: isinstance(r, Published) and r.base in copied))
    assert held(found, "orders") == whole
    waiting = count(subscription(found, "orders", "billing"))
    assert (waiting.waiting, waiting.dropped) == (12, 0)


def test_a_copy_makes_good_for_a_publish_that_only_a_plan_tells_of() -> None:
    bench, disk = store()
    broker = bench.broker
    broker.open_reader("orders", "tables", "run-1", None)
    for number in range(12):
        bench.publish("orders", 0, [b"%d" % number])
    for segment in list(broker.journal.index.segments.values()):
        if segment.is_sealed and segment.live:
            broker.keeper.compact(segment)
    copied = [o for r in _records(dict(disk.image())) if isinstance(r, Copied) for o in r.offsets]
    broker.plan_ranges("orders", "tables", "run-1", 12, None, None)
    image = without(dict(disk.image()), kind(Published))
    found = remains(image)
    assert held(found, "orders") == set(copied)
    reader = subscription(found, "orders", "tables").reader
    assert reader is not None
    assert (reader.owner, reader.planned) == ("run-1", [12])
    assert not unexplained(count(subscription(found, "orders", "tables")))


def _records(image: Files) -> list[Record]:
    return [
        decode(rec)
        for segment in survey(MemoryDisk.from_image(image)).places().values()
        for stretch in scan(segment)
        for _, rec in stretch.rows
    ]


def test_a_lost_ack_brings_the_message_back() -> None:
    bench, disk = store()
    consumer = bench.attach("orders", "billing")
    bench.publish("orders", 0, [b"0", b"1"])
    bench.settle(1, "ack")
    bench.detach(consumer)
    assert held(remains(dict(disk.image())), "orders") == {1}
    assert held(remains(without(dict(disk.image()), kind(Settled))), "orders") == {0, 1}


# -- topics and subscriptions ----------------------------------------------------------------------


def test_a_topic_without_its_creation_is_made_up_and_keeps_everything() -> None:
    bench, disk = store()
    bench.publish("orders", 0, [b"0"])
    bench.broker.create_subscription("orders", "brief", RETRY, None)
    bench.broker.delete_subscription("orders", "brief")
    found = remains(without(dict(disk.image()), kind(TopicCreated)))
    assert held(found, "salvaged.1") == {0}
    assert found.orphans == {1}
    assert found.state.names["salvaged.1"].policy.retain_s is None


def test_a_made_up_topic_says_nothing_of_offsets_before_its_first_record() -> None:
    bench, disk = store()
    for body in (b"0", b"1", b"2"):
        bench.publish("orders", 0, [body])
    image = without(
        dict(disk.image()),
        lambda r: isinstance(r, TopicCreated) or (isinstance(r, Published) and r.base < 2),
    )
    found = remains(image)
    assert held(found, "salvaged.1") == {2}
    assert found.state.names["salvaged.1"].partitions[0].lost is None


def test_a_topic_created_again_replaces_one_whose_deletion_is_lost() -> None:
    bench, disk = store()
    bench.publish("orders", 0, [b"old"])
    bench.broker.delete_topic("orders")
    bench.publish("orders", 0, [b"new"])
    found = remains(without(dict(disk.image()), kind(TopicDeleted)))
    assert [topic.id for topic in found.state.topics.values()] == [2]
    assert found.state.names["orders"].id == 2


def test_a_subscription_created_again_replaces_one_whose_deletion_is_lost() -> None:
    bench, disk = store()
    bench.broker.create_subscription("orders", "billing", RETRY, None)
    bench.broker.delete_subscription("orders", "billing")
    bench.broker.create_subscription("orders", "billing", RETRY, None)
    found = remains(without(dict(disk.image()), kind(SubscriptionDeleted)))
    assert list(found.state.subscriptions) == [2]


def test_a_subscription_without_its_creation_makes_its_topic_keep_everything() -> None:
    bench, disk = store()
    first = bench.attach("orders", "lost")
    second = bench.attach("orders", "billing")
    bench.publish("orders", 0, [b"0"])
    bench.slices = [pair for pair in bench.slices if pair[0] is second]
    bench.settle(1, "ack")
    bench.detach(second)
    bench.detach(first)
    image = without(
        dict(disk.image()), lambda r: isinstance(r, SubscriptionCreated) and r.name == "lost"
    )
    found = remains(image)
    assert held(found, "orders") == {0}
    assert list(found.strangers) == [1]
    assert any("number 1" in note for note in found.notes)


def test_what_belongs_to_a_deleted_subscription_is_no_stranger() -> None:
    bench, disk = store()
    consumer = bench.attach("orders", "brief")
    bench.publish("orders", 0, [b"0"])
    bench.detach(consumer)
    bench.broker.delete_subscription("orders", "brief")
    found = remains(without(dict(disk.image()), kind(SubscriptionCreated)))
    assert not found.strangers


# -- offsets ---------------------------------------------------------------------------------------


def test_rising_offsets_become_ranges() -> None:
    assert list(consecutive([])) == []
    assert list(consecutive([4])) == [(4, 5)]
    assert list(consecutive([1, 2, 3, 7, 9, 10])) == [(1, 4), (7, 8), (9, 11)]
