"""Spark's checkpoint beside the ledger: what fits, and each named refusal."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.pipeline.ledger import Entry, Identity, Ledger
from penstock.pipeline.refusals import (
    CheckpointAhead,
    CheckpointBehind,
    CheckpointForeign,
    CheckpointMissing,
    PipelineRefused,
    RangesDiffer,
)
from penstock.pipeline.spark.checkpoint import (
    COMMITS,
    OFFSETS,
    SparkCheckpoint,
    judge,
    plain_offsets,
)
from penstock.vocabulary.errors import StorageError


class Case:
    """A ledger and a folder as Spark leaves it; batch N reads 0:10N to 0:10N+10."""

    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger(folder / "ledger", Identity("pms", "file:x/t", ["table"]))
        self.spark = SparkCheckpoint(folder / "spark" / "1")

    def recorded(self, upto: int) -> "Case":
        self.ledger.open_epoch({0: 0}, 1)
        for batch in range(upto + 1):
            self.ledger.record(Entry(1, batch, [(0, batch * 10, batch * 10 + 10)]))
        return self

    def log(self, name: str, upto: int, step: int = 10) -> "Case":
        folder = self.spark.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        for batch in range(upto + 1):
            text = json.dumps({"0": (batch + 1) * step}) if name == OFFSETS else "{}"
            (folder / str(batch)).write_text(f"v1\n{{}}\n{text}", encoding="utf-8")
            (folder / f".{batch}.crc").touch()
        return self

    def judge(self, *, is_open: bool = False) -> None:
        judge(self.ledger, self.spark, {0: 0}, is_open=is_open)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    found = Case(tmp_path)
    yield found
    found.ledger.close()


def test_a_new_pipeline_fits(case: Case) -> None:
    case.recorded(-1).judge()


@pytest.mark.parametrize(
    ("planned", "committed", "is_open"), [(3, 3, False), (3, 2, True), (3, 2, False), (4, 3, False)]
)
def test_every_moment_a_run_may_die_at_fits(
    case: Case, planned: int, committed: int, is_open: bool
) -> None:
    case.recorded(3).log(OFFSETS, planned).log(COMMITS, committed).judge(is_open=is_open)


@pytest.mark.parametrize(
    ("planned", "committed", "is_open", "refusal"),
    [
        (-1, -1, False, CheckpointMissing),
        (2, 2, False, CheckpointBehind),
        (5, 4, False, CheckpointAhead),
        (4, 4, False, CheckpointAhead),
        (3, 3, True, CheckpointAhead),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    case: Case, planned: int, committed: int, is_open: bool, refusal: type[PipelineRefused]
) -> None:
    case.recorded(3).log(OFFSETS, planned).log(COMMITS, committed)
    with pytest.raises(refusal, match="resume --from-table"):
        case.judge(is_open=is_open)


def test_other_ranges_under_a_known_number_are_refused(case: Case) -> None:
    case.recorded(3).log(OFFSETS, 3, step=7).log(COMMITS, 2)
    with pytest.raises(RangesDiffer, match="batch 3 reads"):
        case.judge()


def test_the_checkpoint_of_another_query_is_refused(case: Case) -> None:
    case.recorded(0).log(OFFSETS, 0)
    metadata = case.spark.folder / "metadata"
    metadata.write_text('{"id":"one"}', encoding="utf-8")
    case.spark.claim()
    case.judge(is_open=True)
    metadata.write_text('{"id":"two"}', encoding="utf-8")
    case.spark.claim()
    with pytest.raises(CheckpointForeign, match="two, not one"):
        case.judge(is_open=True)
    metadata.unlink()
    with pytest.raises(CheckpointMissing, match="metadata is gone, and the folder holds batches"):
        case.judge(is_open=True)


def test_the_ranges_of_a_batch(case: Case) -> None:
    case.log(OFFSETS, 1)
    assert case.spark.ranges(0, {0: 4}) == [(0, 4, 10)]
    assert case.spark.ranges(1, {0: 4}) == [(0, 10, 20)]


def test_a_partition_that_is_new_starts_at_its_first_message(case: Case) -> None:
    case.log(OFFSETS, 1)
    path = case.spark.folder / OFFSETS / "1"
    path.write_text('v1\n{}\n{"0": 10, "1": 5}', encoding="utf-8")
    assert case.spark.ranges(1, {}) == [(1, 0, 5)]


@pytest.mark.parametrize("text", ["", "v1\n{}", "v1\n{}\n-", "v1\n{}\n[]"])
def test_a_damaged_entry_is_an_error_with_its_path(case: Case, text: str) -> None:
    case.log(OFFSETS, 0)
    (case.spark.folder / OFFSETS / "0").write_text(text, encoding="utf-8")
    with pytest.raises(StorageError, match="offsets/0 does not say what batch 0 reads"):
        case.spark.ends(0)


def test_damaged_metadata_is_an_error(case: Case) -> None:
    case.log(OFFSETS, 0)
    (case.spark.folder / "metadata").write_text("{", encoding="utf-8")
    with pytest.raises(StorageError, match="metadata is damaged"):
        case.spark.query_id()


def test_offsets_of_a_kafka_topic_are_read_too() -> None:
    assert plain_offsets({"monitoring.pms": {"0": 5, "2": 7}}) == {0: 5, 2: 7}
    assert plain_offsets({"0": 5}) == {0: 5}


def test_drafts_go_while_no_batch_is_known_and_stay_afterwards(case: Case) -> None:
    case.log(OFFSETS, -1)
    draft = case.spark.folder / OFFSETS / ".0.5f1.tmp"
    draft.touch()
    case.spark.clear_drafts()
    assert not draft.exists()
    case.log(OFFSETS, 0)
    later = draft.with_name(".1.5f1.tmp")
    later.touch()
    case.spark.clear_drafts()
    assert later.exists()
    assert case.spark.has(OFFSETS, 0)
