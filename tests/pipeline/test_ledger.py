import errno
import os
from pathlib import Path

import msgspec
import pytest
from xxhash import xxh3_64_hexdigest

from penstock.pipeline import ledger as module
from penstock.pipeline.ledger import Entry, Identity, Ledger, judge
from penstock.pipeline.refusals import (
    CheckpointAhead,
    CheckpointBehind,
    CheckpointForeign,
    CheckpointMissing,
    PipelineRunning,
    RangesDiffer,
)
from penstock.pipeline.repositories.port import Committed
from penstock.vocabulary.errors import StorageError

WHO = Identity("pms", "file:./data/monitoring.pms", ["./warehouse/pms"])


def entry(batch: int, epoch: int = 1) -> Entry:
    return Entry(epoch, batch, [(0, batch * 10, batch * 10 + 10)], {"version": 3}, {"t": batch})


def filled(folder: Path, count: int) -> Ledger:
    ledger = Ledger(folder, WHO)
    for batch in range(count):
        ledger.record(entry(batch))
    return ledger


def test_entries_are_there_after_opening_again(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    ledger = Ledger(tmp_path, WHO)
    assert ledger.entries == [entry(0), entry(1), entry(2)]
    assert (ledger.next_batch(), ledger.application) == (3, "pms/1")
    assert entry(2).ends() == {0: 30}
    ledger.close()


@pytest.mark.parametrize(("cut", "left"), [(1, 2), (2, 1), (30, 1)])
def test_a_torn_last_line_never_happened(tmp_path: Path, cut: int, left: int) -> None:
    filled(tmp_path, 2).close()
    path = tmp_path / module.NAME
    path.write_bytes(path.read_bytes()[:-cut])
    ledger = Ledger(tmp_path, WHO)
    assert ledger.entries == [entry(0), entry(1)][:left]
    ledger.record(entry(1))
    ledger.record(entry(2))
    ledger.close()
    again = Ledger(tmp_path, WHO)
    assert again.entries == [entry(0), entry(1), entry(2)]
    again.close()


def test_damage_in_the_middle_is_named(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    path = tmp_path / module.NAME
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match="line 1 is damaged"):
        Ledger(tmp_path, WHO)
    path.unlink()
    Ledger(tmp_path, WHO).close()  # the refused one left no lock


def test_a_batch_may_come_again_only_with_its_ranges(tmp_path: Path) -> None:
    ledger = filled(tmp_path, 2)
    size = (tmp_path / module.NAME).stat().st_size
    ledger.record(entry(1))
    assert (tmp_path / module.NAME).stat().st_size == size
    with pytest.raises(RangesDiffer, match="resume --from-table"):
        ledger.record(Entry(1, 1, [(0, 10, 21)]))
    ledger.close()


def test_a_second_run_is_refused(tmp_path: Path) -> None:
    ledger = filled(tmp_path, 1)
    with pytest.raises(PipelineRunning, match="running already"):
        Ledger(tmp_path, WHO)
    ledger.close()


def test_a_checkpoint_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    for other in (Identity("mppt", WHO.source, WHO.tables), Identity("pms", "x", WHO.tables)):
        with pytest.raises(CheckpointForeign, match="belongs to pipeline 'pms'"):
            Ledger(tmp_path, other)
    (tmp_path / module.IDENTITY).write_bytes(b"?")
    with pytest.raises(StorageError, match="whose checkpoint"):
        Ledger(tmp_path, WHO)


def test_what_differs_is_told_with_what_to_do(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    for source, tables, said in (
        ("file:./other/monitoring.pms", WHO.tables,
         r"file:./data/monitoring\.pms, .* now file:./other/monitoring\.pms: .*another"),
        ("file:./data/t", WHO.tables, "now file:./data/t, another topic"),
        (WHO.source, ["./w2"], r"tables ./warehouse/pms, and they are now ./w2"),
    ):  # fmt: skip
        with pytest.raises(CheckpointForeign, match=said) as found:
            Ledger(tmp_path, Identity("pms", source, tables))
        assert "Give each" not in str(found.value)


def test_options_of_a_source_are_no_part_of_the_identity(tmp_path: Path) -> None:
    path = tmp_path / module.IDENTITY
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(WHO, source=f"{WHO.source}?a=b")))
    Ledger(tmp_path, WHO).close()
    with pytest.raises(CheckpointForeign) as found:
        Ledger(tmp_path, Identity("pms", "file:./x/monitoring.pms", WHO.tables))
    assert "a=b" not in str(found.value)


def test_whose_checkpoint_it_is_is_written_with_the_first_entry(tmp_path: Path) -> None:
    Ledger(tmp_path / "a", WHO).close()
    assert not (tmp_path / "a" / module.IDENTITY).exists()
    Ledger(tmp_path / "b", WHO, is_made=False).close()
    assert not (tmp_path / "b").exists()
    ledger = Ledger(tmp_path / "b", WHO, is_made=False)
    ledger.record(entry(0))
    with pytest.raises(PipelineRunning):
        Ledger(tmp_path / "b", WHO)
    ledger.close()
    with pytest.raises(CheckpointForeign):
        Ledger(tmp_path / "b", Identity("mppt", WHO.source, WHO.tables))


def test_a_checkpoint_in_use_is_not_set_aside(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "c", 1)
    with pytest.raises(PipelineRunning):
        module.set_aside(tmp_path / "c", "pms")
    ledger.open_epoch({0: 10}, 4)
    ledger.close()
    (tmp_path / "c" / "spark" / "2").mkdir(parents=True)
    assert module.epoch_in(tmp_path / "c", "pms") == 4
    assert module.epoch_in(tmp_path / "c", "mppt") == 0
    (tmp_path / "c" / module.IDENTITY).write_bytes(b"?")
    (tmp_path / "c" / module.NAME).write_bytes(b"?")
    assert module.epoch_in(tmp_path / "c", "pms") == 2
    assert module.set_aside(tmp_path / "c", "pms") == tmp_path / "c.aside-1"
    assert not (tmp_path / "c").exists()


def test_an_entry_of_another_shape_is_damage(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    data = b'{"epoch":1}'
    (tmp_path / module.NAME).write_bytes(xxh3_64_hexdigest(data).encode() + b" " + data + b"\n")
    with pytest.raises(StorageError, match="line 1 is damaged"):
        Ledger(tmp_path, WHO)


def test_a_long_ledger_is_shortened_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 30).close()
    monkeypatch.setattr(module, "LINES_MAX", 20)
    monkeypatch.setattr(module, "LINES_KEPT", 5)
    for _ in range(2):
        ledger = Ledger(tmp_path, WHO)
        assert [each.batch for each in ledger.entries] == [25, 26, 27, 28, 29]
        ledger.close()


def test_a_full_disk_is_told_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = filled(tmp_path, 1)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"ledger\.jsonl cannot be written: No space left"):
        ledger.record(Entry(1, 1, [(0, 10, 20)]))
    ledger.close()


def test_a_ledger_stays_short_while_its_pipeline_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINES_MAX", 20)
    monkeypatch.setattr(module, "LINES_KEPT", 5)
    ledger = Ledger(tmp_path, WHO)
    ledger.open_epoch({0: 7}, 2)
    for batch in range(30):
        ledger.record(Entry(2, batch, [(0, 7 + batch, 8 + batch)]))
        assert len(ledger.entries) <= 20
    told = ledger.entries
    assert [each.batch for each in told] == [-1, *range(15, 30)]  # where the epoch began stays
    ledger.close()
    ledger = Ledger(tmp_path, WHO)
    assert ledger.entries == told
    ledger.close()


def test_a_new_epoch_begins_behind_given_offsets(tmp_path: Path) -> None:
    ledger = filled(tmp_path, 2)
    ledger.open_epoch({0: 20, 1: 7}, 2)
    assert (ledger.epoch, ledger.next_batch(), ledger.application) == (2, 0, "pms/2")
    assert ledger.last is not None
    assert ledger.last.ends() == {0: 20, 1: 7}
    ledger.close()


@pytest.mark.parametrize(
    ("count", "stored", "verdict"),
    [
        (0, {}, False),
        (1, {}, True),
        (3, {1: 1}, True),
        (3, {1: 2}, False),
        (0, {1: 2}, CheckpointMissing),
        (2, {1: 2}, CheckpointBehind),
        (2, {1: 1, 2: 0}, CheckpointBehind),
        (3, {1: 0}, CheckpointAhead),
        (3, {}, CheckpointAhead),
    ],
)
def test_ledger_and_table_are_compared(
    tmp_path: Path, count: int, stored: dict[int, int], verdict: object
) -> None:
    ledger = filled(tmp_path, count)
    committed = {epoch: Committed(batch, {}) for epoch, batch in stored.items()}
    if isinstance(verdict, bool):
        assert judge(ledger, "t", committed) is verdict
    else:
        assert isinstance(verdict, type)
        assert issubclass(verdict, Exception)
        with pytest.raises(verdict, match="table t"):
            judge(ledger, "t", committed)
    ledger.close()
