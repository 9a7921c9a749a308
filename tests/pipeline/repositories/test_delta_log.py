import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.pipeline.datasets import pms
from penstock.pipeline.repositories import delta, delta_log, syncing
from penstock.pipeline.repositories.compaction import compact
from penstock.pipeline.repositories.delta import LOG, DeltaStorage
from penstock.pipeline.repositories.port import Committed, WriteId
from penstock.vocabulary.errors import StorageError
from tests.pipeline.repositories.suite import drawn_rows, in_order, stored


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def filled(root: str, count: int, first: int = 0) -> DeltaStorage:
    """A table of so many batches, which is closed; 100 commits make a checkpoint of the log."""
    storage = DeltaStorage(root, pms.DATASET)
    for batch in range(first, first + count):
        source = {"topic": "t", "ends": {"0": batch * 10, "1": 5}}
        storage.commit([], WriteId("pms/1", batch), source)
    storage.close()
    return storage


def opened(root: str) -> dict[int, Committed]:
    storage = DeltaStorage(root, pms.DATASET)
    try:
        return storage.last("pms")
    finally:
        storage.close()


def test_what_is_noted_is_found_again() -> None:
    write_id = WriteId("a/b/2", 7)
    source = {"topic": "t/x", "ends": {"0": 3, "12": 9}}
    found = delta_log.noted(write_id, source)
    assert delta_log.epochs(found, "a/b") == {2: 7}
    assert delta_log.epochs(found, "a") == {}
    assert delta_log.source_of(found, write_id) == source
    assert delta_log.source_of(found | {"a/b/2": 8}, WriteId("a/b/2", 8)) is None


def test_a_batch_is_known_however_many_commits_came_after_it(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "HISTORY_STEP", 2)
    storage = DeltaStorage(root, pms.DATASET)
    for batch, seed in enumerate((1, 2)):
        source = {"topic": "t", "ends": {"0": batch + 1}}
        storage.commit([], WriteId("pms/1", batch), source)
        storage.write(drawn_rows(seed), WriteId("other/1", batch))
    assert compact(storage).days > 5  # a commit for each
    assert storage.last("pms") == {1: Committed(1, {"topic": "t", "ends": {"0": 2}})}
    storage.close()


def test_a_batch_is_known_after_the_log_was_cleaned_up(root: str) -> None:
    filled(root, 120)
    for path in sorted((Path(root) / LOG).glob("*.json"))[:90]:
        path.unlink()
    found = opened(root)
    assert found == {1: Committed(119, {"topic": "t", "ends": {"0": 1190, "1": 5}})}


def test_a_commit_without_notes_is_looked_up_in_the_history(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's writer notes the batch alone; the rest is in what the commit says."""
    monkeypatch.setattr(delta, "HISTORY_STEP", 2)
    monkeypatch.setattr(delta_log, "noted", lambda write_id, _: {write_id[0]: write_id[1]})
    filled(root, 3)
    storage = DeltaStorage(root, pms.DATASET)
    storage.commit([], WriteId("pms/1", 3), {"topic": "t", "ends": {"0": 99}})
    for batch in range(4):
        storage.commit([], WriteId("other/1", batch), {})
    storage.close()
    monkeypatch.setattr(delta, "HISTORY_STEP", 1_000)
    assert opened(root)[1] == Committed(3, {"topic": "t", "ends": {"0": 99, "1": 5}})
    monkeypatch.setattr(delta, "HISTORY_STEP", 2)
    assert opened(root)[1].source["ends"]["0"] == 99
    assert opened(root)[1].batch == 3


@pytest.mark.parametrize("size", [0, 500])
def test_a_checkpoint_that_a_power_cut_damaged_is_set_aside(root: str, size: int) -> None:
    storage = filled(root, 105)
    (checkpoint,) = delta_log.newest_checkpoint(Path(root) / LOG)
    checkpoint.write_bytes(checkpoint.read_bytes()[:size])
    assert opened(root)[1].batch == 104
    assert DeltaTable(root).version() == storage.version
    assert checkpoint.with_name(checkpoint.name + delta_log.DAMAGED).exists()
    rows = drawn_rows(1)
    again = DeltaStorage(root, pms.DATASET)
    assert again.write(rows, WriteId("pms/1", 105))
    assert stored(again) == in_order(rows)
    again.close()


@pytest.mark.parametrize("text", ["", '{"vers'])
def test_a_damaged_hint_or_a_lost_checkpoint_is_no_matter(root: str, text: str) -> None:
    filled(root, 105)
    hint = Path(root) / LOG / delta_log.HINT
    kept = hint.read_text(encoding="utf-8")
    hint.write_text(text, encoding="utf-8")
    assert opened(root)[1].batch == 104
    hint.write_text(kept, encoding="utf-8")
    (checkpoint,) = delta_log.newest_checkpoint(Path(root) / LOG)
    checkpoint.unlink()
    assert opened(root)[1].batch == 104


def test_a_damaged_checkpoint_without_the_log_before_it_is_named(root: str) -> None:
    filled(root, 105)
    log = Path(root) / LOG
    (checkpoint,) = delta_log.newest_checkpoint(log)
    checkpoint.write_bytes(b"PAR1")
    (log / f"{5:020}.json").unlink()
    with pytest.raises(StorageError, match=r"99\.checkpoint\.parquet is damaged, .* version 5,"):
        opened(root)
    assert checkpoint.exists()


def test_a_torn_commit_is_named_with_what_to_do(root: str) -> None:
    storage = filled(root, 3)
    path = Path(root) / LOG / f"{storage.version:020}.json"
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(StorageError, match=r"03\.json is damaged: .*remove the commit and run"):
        opened(root)
    path.unlink()
    assert opened(root)[1].batch == 1


def test_a_checkpoint_is_synced_before_the_commit_returns(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(root, 98)
    synced: list[str] = []
    sync = syncing.sync_file

    def seen(path: Path) -> None:
        synced.append(Path(path).name)
        sync(path)

    monkeypatch.setattr(delta, "sync_file", seen)
    filled(root, 2, 98)
    made = f"{99:020}.checkpoint.parquet"
    entries = [f"{version:020}.json" for version in (98, 99, 100)]
    assert synced == [*entries[:2], made, delta_log.HINT, entries[2]]
    assert json.loads((Path(root) / LOG / delta_log.HINT).read_text())["version"] == 99


def test_a_log_with_a_gap_is_told(root: str) -> None:
    filled(root, 3)
    (Path(root) / LOG / f"{2:020}.json").unlink()
    with pytest.raises(StorageError, match="version 2"):
        delta_log.transactions(Path(root) / LOG, 3)


@pytest.mark.parametrize("size", [None, 0, 500])
def test_a_file_that_a_power_cut_took_from_the_newest_commit_is_named(
    root: str, size: int | None
) -> None:
    storage = filled(root, 1)
    again = DeltaStorage(root, pms.DATASET)
    again.write(drawn_rows(1), WriteId("pms/1", 1))
    again.close()
    path = Path(root) / again.files()[0].path
    kept = path.read_bytes()
    path.unlink()
    if size is not None:
        path.write_bytes(kept[:size])
    with pytest.raises(
        StorageError, match=r"parquet is missing or not whole.*02\.json, .*remove the commit"
    ):
        opened(root)
    delta_log.entry(Path(root) / LOG, again.version).unlink()
    assert opened(root)[1].batch == 0
    assert DeltaTable(root).version() == storage.version


def test_a_newest_commit_that_was_cleaned_up_is_no_matter(root: str) -> None:
    storage = filled(root, 99)
    delta_log.entry(Path(root) / LOG, storage.version).unlink()
    assert opened(root)[1].batch == 98


def test_files_that_a_commit_added_are_found_by_their_names_on_disk(tmp_path: Path) -> None:
    commit = delta_log.entry(tmp_path, 3)
    lines = [{"commitInfo": {}}, {"add": {"path": "day=1/a%20b.parquet", "size": 7}}]
    commit.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert delta_log.added(commit) == {"day=1/a b.parquet": 7}
    commit.write_text("{", encoding="utf-8")
    with pytest.raises(StorageError, match=r"03\.json"):
        delta_log.added(commit)
