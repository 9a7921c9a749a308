"""Outcomes of several tasks as one batch."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.pipeline.datasets.events import EVENTS
from penstock.pipeline.refusals import CountsDiffer
from penstock.pipeline.repositories.files import DataFile
from penstock.pipeline.repositories.known import Marks
from penstock.pipeline.spark import joining
from penstock.pipeline.spark.workers import Outcome, Plan, Stored, Target

PLAN = Plan("pms", True, {}, [Target("t", "", [])], False)


def _outcome(
    partition: int, start: int, moments: list[int], files: tuple[str, ...] = ()
) -> Outcome:
    moment = np.array(moments, np.uint64)
    named = [DataFile(each, "2020-02-10", 1, 1, 0, 0) for each in files]
    stored = Stored("t", named, len(moments), 1, moment.tobytes())
    return Outcome(partition, start, start + 10, len(moments) + 1, [], [stored], b"", b"")


def test_outcomes_come_in_source_order_and_untouched_when_nothing_meets() -> None:
    one, two, three = _outcome(0, 0, [1]), _outcome(0, 10, [2]), _outcome(1, 0, [3])

    def never(*_: Any) -> Outcome:
        raise AssertionError

    assert joining.joined([three, two, one], PLAN, never) == [one, two, three]


def test_a_range_that_meets_an_earlier_one_is_done_again_with_all_before_it() -> None:
    asked: list[tuple[int, list[int]]] = []

    def again(outcome: Outcome, priors: Any) -> Outcome:
        marks: list[Marks] = priors["t"]
        asked.append((outcome.start, [at for each in marks for at in each.moment.tolist()]))
        return _outcome(outcome.partition, outcome.start, [9])

    found = joining.joined(
        [_outcome(0, 0, [1, 2]), _outcome(0, 10, [3]), _outcome(0, 20, [2])], PLAN, again
    )
    assert asked == [(20, [1, 2, 3])]
    assert found[2].stored[0].moments.tolist() == [9]


def test_files_of_an_outcome_that_is_not_used_are_removed(tmp_path: Path) -> None:
    class Table:
        root = str(tmp_path)

        def staging(self) -> str:
            return "staged"

    (tmp_path / "staged").mkdir()
    (tmp_path / "staged" / "a").touch()
    tables: Any = {"t": Table()}
    joining.drop_files(_outcome(0, 0, [1], ("a", "gone")), tables)
    assert list((tmp_path / "staged").iterdir()) == []


def test_the_tasks_must_have_done_the_ranges_of_the_ledger() -> None:
    outcomes = [_outcome(1, 0, []), _outcome(0, 10, []), _outcome(0, 0, [])]
    joining.check_cover(outcomes, [(0, 0, 20), (1, 0, 10)], "batch 1")
    for wrong in ([(0, 0, 21), (1, 0, 10)], [(0, 0, 20)]):
        with pytest.raises(CountsDiffer, match="batch 1: the tasks did the ranges"):
            joining.check_cover(outcomes, wrong, "batch 1")
    with pytest.raises(CountsDiffer):
        joining.check_cover([*outcomes, outcomes[0]], [(0, 0, 20), (1, 0, 10)], "batch 1")


def test_a_batch_of_offsets_without_records_has_no_events_and_no_rows() -> None:
    """What an aborted transaction leaves in Kafka; or a range whose messages all expired."""
    for outcomes in ([], [_outcome(0, 0, [])]):
        assert joining.events_of(outcomes).equals(EVENTS.empty_table())
        assert joining.rows_of(outcomes) is None
        joining.counts_of(outcomes, 0)


def test_counts_add_up() -> None:
    counts = joining.counts_of([_outcome(0, 0, [1, 2]), _outcome(1, 0, [3])], 0)
    assert (counts.read, counts.stored, counts.duplicate) == (5, 3, 2)
    counts.check("here")


def test_every_new_row_must_be_in_a_file() -> None:
    right = [_outcome(0, 0, [1, 2], ("a", "b")), _outcome(0, 10, [3], ("c",))]
    joining.check_counts(right, 0, "batch 1")
    wrong = [_outcome(0, 0, [1, 2], ("a",)), _outcome(0, 10, [3], ("b", "c"))]
    with pytest.raises(CountsDiffer, match=r"batch 1, offsets 0 to 10 .* hold 1 rows, and 2 are"):
        joining.check_counts(wrong, 0, "batch 1")
    lost = [msgspec.structs.replace(right[0], read=9)]
    with pytest.raises(CountsDiffer, match="batch 1: 9 read is not"):
        joining.check_counts(lost, 0, "batch 1")
