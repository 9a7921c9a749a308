"""Salvage: every intact held message arrives, whatever else is broken, in a store that opens."""

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from penstock.batch import encode_many
from penstock.broker.broker import Broker
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.salvage import SalvageReport, salvage
from penstock.journal import salvage as reading
from penstock.journal.disk import FolderDisk
from penstock.journal.memory import Crashed, MemoryDisk, Verb
from penstock.journal.verify import Verdict, verify
from penstock.vocabulary.errors import InvalidArgument, NotAStore, StoreDamaged, StoreInUse
from penstock.vocabulary.limits import OFFSET_SKIP
from penstock.vocabulary.policy import TopicPolicy
from penstock.vocabulary.stored import Stored
from tests.crash.damage_cases import Case
from tests.crash.damage_store import SETTINGS, Bench, Files, Stage, StillClock, build
from tests.crash.damage_truth import Picture, Truth, picture, unexplained

Damage = Callable[[Files], None]


@pytest.fixture(scope="module")
def stages() -> list[Stage]:
    return build(8)


@pytest.fixture
def image(stages: list[Stage]) -> Files:
    return dict(stages[-2].image)


@pytest.fixture(scope="module")
def truth(stages: list[Stage]) -> Truth:
    return Truth(stages, stages[-2], picture(opened(stages[-2].image)))


def opened(image: Files) -> Broker:
    return Broker.open(MemoryDisk.from_image(image), SETTINGS, StillClock(), threads=False)


def salvaged(image: Files) -> tuple[SalvageReport, Files]:
    source, target = MemoryDisk.from_image(image), MemoryDisk()
    report = salvage(source, target, SETTINGS, StillClock())
    assert source.image() == image, "the source was changed"
    return report, dict(target.image())


def segment_names(image: Files) -> list[str]:
    """Segment files in log order."""
    places = reading.survey(MemoryDisk.from_image(image)).places()
    return [segment.file.name for segment in places.values()]


def flip(image: Files, name: str, at: int) -> None:
    data = bytearray(image[name])
    data[at] ^= 1
    image[name] = bytes(data)


# -- a whole store ---------------------------------------------------------------------------------


def test_a_whole_store_comes_out_the_same(stages: list[Stage]) -> None:
    for stage in stages:
        report, copy = salvaged(stage.image)
        before, after = opened(stage.image), opened(copy)
        assert picture(after) == picture(before)
        assert after.subscriptions() == before.subscriptions()
        assert after.topics() == before.topics()
        assert report.source is Verdict.OK
        assert (report.lost_messages, report.lost_records, report.notes[1:]) == (0, 0, [])


def test_the_new_store_is_whole_clean_and_another_one(image: Files) -> None:
    _, copy = salvaged(image)
    assert verify(MemoryDisk.from_image(copy)).verdict is Verdict.OK
    broker = opened(copy)
    assert broker.journal.report.is_clean
    assert broker.health()["status"] == "ok"
    assert broker.journal.store_id != opened(image).journal.store_id


def test_the_new_log_tells_the_story_without_its_snapshots(image: Files) -> None:
    _, copy = salvaged(image)
    whole = picture(opened(copy))
    bare = {name: data for name, data in copy.items() if not name.startswith("snapshot-")}
    told = picture(opened(bare))
    assert told.messages == whole.messages
    assert {key: each.unfinished for key, each in told.subscriptions.items()} == {
        key: each.unfinished for key, each in whole.subscriptions.items()
    }


def test_publishers_are_still_known(image: Files) -> None:
    """A retry of what was stored before the damage is a duplicate after it."""
    _, copy = salvaged(image)
    before, after = opened(image), opened(copy)
    for topic in before.state.topics.values():
        for partition in topic.partitions:
            for publisher, known in (partition.publishers or {}).items():
                answers = [_retry(each, topic.name, partition.index, publisher, known.last)
                           for each in (before, after)]  # fmt: skip
                assert answers[0].is_duplicate
                assert answers[0] == answers[1]


def _retry(broker: Broker, topic: str, partition: int, publisher: bytes, sequence: int) -> Stored:
    pending = Pending()
    batch = encode_many([b"again"])
    broker.publish(topic, partition, batch, 1, publisher, 1, sequence, DIRECT, pending)
    answer: Stored = broker.engine.settle_down(pending)
    return answer


def test_the_salvaged_store_goes_on_working(image: Files) -> None:
    _, copy = salvaged(image)
    bench = Bench(MemoryDisk.from_image(copy))
    bench.sequences["orders", 0] = 1000
    bench.publish("orders", 0, [b"new"])
    bench.attach("orders", "billing")
    bodies = [frame.batch for _, each in bench.slices for frame in each.frames]
    assert any(b"new" in batch for batch in bodies)
    assert not unexplained(bench.broker)


# -- broken stores ---------------------------------------------------------------------------------


def no_superblock(image: Files) -> None:
    del image["superblock"]


def bad_superblock(image: Files) -> None:
    flip(image, "superblock", 50)
    flip(image, "superblock", 4096 + 50)


def no_snapshots(image: Files) -> None:
    for name in [name for name in image if name.startswith("snapshot-")]:
        del image[name]


def bad_snapshots(image: Files) -> None:
    for name in [name for name in image if name.startswith("snapshot-")]:
        flip(image, name, len(image[name]) // 2)


def no_beginning(image: Files) -> None:
    del image[segment_names(image)[0]]


def no_middle(image: Files) -> None:
    names = segment_names(image)
    del image[names[len(names) // 2]]


def no_end(image: Files) -> None:
    del image[segment_names(image)[-1]]


def bad_headers(image: Files) -> None:
    for name in segment_names(image)[1::2]:
        flip(image, name, 45)


def cut_segment(image: Files) -> None:
    name = segment_names(image)[2]
    image[name] = image[name][:1300]


def bad_groups(image: Files) -> None:
    for name in segment_names(image)[::2]:
        flip(image, name, 512 + 20)


def bad_records(image: Files) -> None:
    for name in segment_names(image)[1::2]:
        flip(image, name, 1024 + 90)


DAMAGES: list[Damage] = [
    no_superblock, bad_superblock, no_snapshots, bad_snapshots, no_beginning, no_middle, no_end,
    bad_headers, cut_segment, bad_groups, bad_records,
]  # fmt: skip
CHOSEN = [
    pytest.param(chosen, id="+".join(d.__name__ for d in chosen), marks=marks)
    for size, marks in ((1, ()), (2, ()), (3, pytest.mark.prove))
    for chosen in combinations(DAMAGES, size)
    if not {no_superblock, bad_superblock}.issubset(chosen)
]


@pytest.mark.parametrize("damages", CHOSEN)
def test_every_intact_message_is_kept(
    image: Files, truth: Truth, damages: tuple[Damage, ...]
) -> None:
    broken = dict(image)
    for damage in damages:
        damage(broken)
    report, copy = salvaged(broken)
    changes = {name: broken.get(name) for name in image if broken.get(name) != image[name]}
    intact = truth.intact(truth.hurt(Case("", changes)))
    broker = opened(copy)
    found = picture(broker)
    assert {spot: found.messages.get(spot) for spot in intact} == {
        spot: truth.whole.messages[spot] for spot in intact
    }
    assert all(truth.ever[spot] == content for spot, content in found.messages.items())
    assert not found.missing
    assert not unexplained(broker)
    assert report.messages == len(found.messages)
    assert verify(MemoryDisk.from_image(copy)).verdict is Verdict.OK


def test_messages_without_their_topic_go_to_a_topic_of_their_own(image: Files) -> None:
    no_snapshots(image)
    report, copy = salvaged(image)
    orphans = [topic for topic in report.topics if topic.is_orphan]
    assert [topic.topic for topic in orphans] == [f"salvaged.{t.topic_id}" for t in orphans]
    assert sum(topic.messages for topic in orphans) > 0
    assert {topic.topic for topic in report.topics} >= {"salvaged.1", "salvaged.2", "late"}
    held = {topic["topic"]: topic["messages"] for topic in opened(copy).topics()}
    assert held["salvaged.1"] == next(t.messages for t in orphans if t.topic_id == 1)


def test_acks_count_when_a_snapshot_or_their_record_proves_them(image: Files, truth: Truth) -> None:
    newest = max(name for name in image if name.startswith("snapshot-"))
    del image[newest]
    bad_superblock(image)
    found = picture(opened(salvaged(image)[1]))
    assert _unfinished(found) == _unfinished(truth.whole)


def _unfinished(found: Picture) -> dict[tuple[int, int], frozenset[tuple[int, int]]]:
    return {key: each.unfinished for key, each in found.subscriptions.items()}


def test_what_is_lost_is_listed_with_its_offsets(image: Files, truth: Truth) -> None:
    spot = next(s for s in truth.whole.messages if truth.whole.topics[s[0]] == "orders")
    holders = [e for e in truth.placed if any(_holds(part, spot) for part in e.parts)]
    for each in holders:
        flip(image, each.name, each.start + 30)
    report, copy = salvaged(image)
    orders = next(topic for topic in report.topics if topic.topic == "orders")
    assert any(
        partition == spot[1] and first <= spot[2] <= last for partition, first, last in orders.lost
    )
    assert report.lost_messages >= 1
    assert report.source is Verdict.DAMAGED
    assert "lost 0:" in str(report)
    assert spot not in picture(opened(copy)).messages


def _holds(part: object, spot: tuple[int, int, int]) -> bool:
    if (getattr(part, "topic_id", 0), getattr(part, "partition", -1)) != spot[:2]:
        return False
    base = getattr(part, "base", None)
    offsets = getattr(part, "offsets", None)
    if base is not None:
        return bool(base <= spot[2] < base + getattr(part, "count", 0))
    return offsets is not None and spot[2] in offsets


def test_after_damage_no_offset_is_used_twice(image: Files) -> None:
    ends = {
        (topic.name, partition.index): partition.next_offset
        for topic in opened(image).state.topics.values()
        for partition in topic.partitions
    }
    bad_records(image)
    for topic in opened(salvaged(image)[1]).state.topics.values():
        for partition in topic.partitions:
            end = ends.get((topic.name, partition.index), 0)
            assert partition.next_offset >= min(end, OFFSET_SKIP)
            assert partition.next_offset >= OFFSET_SKIP


@pytest.mark.parametrize("rule", ["retain_s", "max_age_s"])
def test_after_damage_nothing_is_removed_because_of_its_age(rule: str) -> None:
    disk = MemoryDisk()
    bench = Bench(disk)
    policy = msgspec.structs.replace(TopicPolicy(retain_s=None), **{rule: 1.0})
    bench.broker.create_topic("news", 1, policy)
    bench.publish("news", 0, [b"one", b"two"])
    bench.publish("news", 0, [b"three"])
    bench.broker.journal.mark()
    image = dict(disk.image())
    del image["superblock"]
    report, copy = salvaged(image)
    late = StillClock()
    late.ms += 1_000_000
    broker = Broker.open(MemoryDisk.from_image(copy), SETTINGS, late, threads=False)
    broker.tick()
    broker.engine.commit_once()
    assert len(picture(broker).messages) == 3
    assert any(rule in note for note in report.notes)


# -- what it refuses -------------------------------------------------------------------------------


def test_the_target_must_be_empty(image: Files) -> None:
    target = MemoryDisk.from_image({"notes.txt": b"mine"})
    with pytest.raises(InvalidArgument, match=r"notes\.txt"):
        salvage(MemoryDisk.from_image(image), target, SETTINGS)
    assert target.image() == {"notes.txt": b"mine"}


def test_a_store_in_use_is_refused(image: Files) -> None:
    disk = MemoryDisk.from_image(image)
    Broker.open(disk, SETTINGS, StillClock(), threads=False)
    with pytest.raises(StoreInUse):
        salvage(disk, MemoryDisk(), SETTINGS)


def test_a_folder_without_a_store_is_refused() -> None:
    with pytest.raises(NotAStore):
        salvage(MemoryDisk(), MemoryDisk(), SETTINGS)


def test_a_part_is_not_taken_for_the_whole(image: Files) -> None:
    whole = MemoryDisk(record=True)
    salvage(MemoryDisk.from_image(image), whole, SETTINGS, StillClock())
    begun = 1 + next(op.number for op in whole.trace if op.verb is Verb.RENAME and op.number > 3)
    for number in range(begun, len(whole.trace) - 1):
        target = MemoryDisk(record=True)
        target.crash_at = number
        with pytest.raises(Crashed):
            salvage(MemoryDisk.from_image(image), target, SETTINGS, StillClock())
        left = target.image()
        if not any(name.startswith("segment-") for name in left):
            continue
        with pytest.raises(StoreDamaged, match="superblock"):
            opened(dict(left))


def test_the_report_is_json_and_text(image: Files) -> None:
    no_snapshots(image)
    report, _ = salvaged(image)
    assert json.loads(msgspec.json.encode(report))["messages"] == report.messages
    assert f"{report.messages} message(s) copied" in str(report)
    assert [row[0] for row in report.rows()] == [topic.topic for topic in report.topics]


def test_it_works_from_folder_to_folder(image: Files, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    no_superblock(image)
    for name, data in image.items():
        (tmp_path / "broken" / name).write_bytes(data)
    source = FolderDisk(tmp_path / "broken", is_read_only=True)
    target = FolderDisk(tmp_path / "whole")
    report = salvage(source, target)
    target.close()
    source.close()
    broker = Broker.open(FolderDisk(tmp_path / "whole"), threads=False)
    assert len(picture(broker).messages) == report.messages
    broker.close()
