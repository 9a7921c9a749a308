"""A backup holds everything confirmed before it began, whatever happens while it is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.backup import BACKUPS_MAX, IDLE_MS
from penstock.journal.memory import MemoryDisk
from penstock.journal.verify import Verdict, verify
from penstock.vocabulary.backups import PIECE_BYTES, BackupPlan
from penstock.vocabulary.errors import Closed, InvalidArgument, Unavailable
from tests.broker.rig import Rig


def copied(rig: Rig, plan: BackupPlan) -> dict[str, bytes]:
    backups = rig.keeper.backups
    return {
        file.name: backups.read(plan.backup, file.name, 0, file.used).ljust(file.size, b"\0")
        for file in plan.files
    }


def opened(image: dict[str, bytes], rig: Rig) -> Rig:
    disk = MemoryDisk.from_image(image, record=True)
    report = verify(disk)
    assert report.verdict is Verdict.OK, str(report)
    return Rig(disk, rig.clock)


def busy(rig: Rig, rounds: int, body: bytes = b"y" * 300) -> None:
    """Publishes, acks and housekeeping that use segments again and remove snapshots."""
    worker = rig.attach(name="other")
    for _ in range(rounds):
        rig.publish("orders", body)
        for part in worker.take():
            rig.ack(worker, part)
        rig.keeper.snapshot()
        rig.journal.free_segments()
    rig.detach(worker)


def test_a_backup_has_what_was_confirmed_before() -> None:
    rig = Rig()
    rig.publish("orders", b"a", b"b")
    plan = rig.keeper.backups.begin()
    rig.publish("orders", b"later")
    fresh = opened(copied(rig, plan), rig)
    assert fresh.held() == [b"a", b"b"]
    assert fresh.publish("orders", b"c", epoch=1).base == 2


def test_nothing_that_is_being_copied_changes() -> None:
    rig = Rig()
    worker = rig.attach()
    for number in range(30):
        rig.publish("orders", b"%d" % number * 50)
    rig.detach(worker)
    rig.keeper.snapshot()
    plan = rig.keeper.backups.begin()
    first = copied(rig, plan)
    busy(rig, 20)
    assert copied(rig, plan) == first
    fresh = opened(first, rig)
    assert fresh.held() == [b"%d" % number * 50 for number in range(30)]
    assert fresh.counts().attached == 30


def test_after_the_end_segments_are_used_again() -> None:
    rig = Rig()
    plan = rig.keeper.backups.begin()
    busy(rig, 30)
    while_held = rig.journal.disk_bytes
    rig.keeper.backups.end(plan.backup)
    rig.keeper.backups.end(plan.backup)
    busy(rig, 3)
    assert rig.journal.disk_bytes < while_held


def test_a_backup_that_nobody_reads_is_given_up() -> None:
    rig = Rig()
    plan = rig.keeper.backups.begin()
    rig.clock.advance(IDLE_MS / 1000 - 1)
    copied(rig, plan)
    rig.clock.advance(IDLE_MS / 1000 - 1)
    assert rig.journal.is_pinned()
    rig.clock.advance(2)
    assert not rig.journal.is_pinned()
    with pytest.raises(Unavailable, match="not read for 60 s"):
        rig.keeper.backups.read(plan.backup, "superblock", 0, 1)


def test_only_so_many_at_a_time() -> None:
    rig = Rig()
    plans = [rig.keeper.backups.begin() for _ in range(BACKUPS_MAX)]
    with pytest.raises(Unavailable, match="being made already"):
        rig.keeper.backups.begin()
    rig.keeper.backups.end(plans[0].backup)
    rig.keeper.backups.begin()


@pytest.mark.parametrize(
    ("file", "start", "length"),
    [
        ("lock", 0, 1), ("../x", 0, 1), ("superblock", -1, 1), ("superblock", 1 << 40, 1),
        ("superblock", 0, 0), ("superblock", 0, PIECE_BYTES + 1),
    ],
)  # fmt: skip
def test_only_what_the_plan_names_is_read(file: str, start: int, length: int) -> None:
    rig = Rig()
    plan = rig.keeper.backups.begin()
    with pytest.raises(InvalidArgument, match="its plan says"):
        rig.keeper.backups.read(plan.backup, file, start, length)


def test_a_closed_broker_gives_nothing() -> None:
    rig = Rig()
    plan = rig.keeper.backups.begin()
    rig.broker.close()
    with pytest.raises(Closed):
        rig.keeper.backups.read(plan.backup, "superblock", 0, 1)
    with pytest.raises(Closed):
        rig.keeper.backups.begin()


def test_a_store_that_failed_can_still_be_copied() -> None:
    rig = Rig()
    rig.publish("orders", b"a")
    rig.journal._fail("sync", OSError(5, "Input/output error"))
    fresh = opened(copied(rig, rig.keeper.backups.begin()), rig)
    assert fresh.held() == [b"a"]


STEPS = st.lists(
    st.sampled_from(["publish", "large", "ack", "snapshot", "free", "compact", "restart"]),
    max_size=25,
)


@given(before=STEPS, after=STEPS)
def test_whatever_happens_before_and_while_it_is_read(before: list[str], after: list[str]) -> None:
    rig = Rig()
    rig.attach()
    rig = play(rig, before)
    rig.settle()
    held = rig.held() if "orders" in rig.broker.state.names else []
    plan = rig.keeper.backups.begin()
    rig = play(rig, [step for step in after if step != "restart"])
    fresh = opened(copied(rig, plan), rig)
    assert fresh.held() == held
    fresh.publish("orders", b"goes on", epoch=1)
    fresh = fresh.restart()
    assert fresh.held() == [*held, b"goes on"]


def play(rig: Rig, steps: list[str]) -> Rig:
    worker = rig.attach(name="player", credit=3)
    for number, step in enumerate(steps):
        match step:
            case "publish":
                rig.publish("orders", b"%d" % number)
            case "large":
                rig.publish("orders", b"%d" % number * 900)
            case "ack":
                for part in worker.take():
                    rig.ack(worker, part)
            case "snapshot":
                rig.keeper.snapshot()
            case "free":
                rig.journal.free_segments()
            case "compact":
                segment = rig.keeper.sparse_segment()
                if segment is not None:
                    rig.keeper.compact(segment)
            case _:
                rig = rig.restart()
                worker = rig.attach(name="player", credit=3)
    return rig
