"""Ranges of a batch, cut for the tasks that do them."""

from penstock.pipeline.spark.cutting import ROWS_PER_TASK_MIN, cut
from penstock.vocabulary.reading import PlannedRange


def test_a_range_is_cut_for_the_tasks_asked_for() -> None:
    ranges = [PlannedRange(0, 0, 30_000), PlannedRange(1, 5, 15)]
    assert cut(ranges, 1) == ranges
    found = cut(ranges, 4)
    assert [each for each in found if each.partition == 1] == [ranges[1]]
    assert found[0] == PlannedRange(0, 0, 7503)
    assert sum(each.end - each.start for each in found) == 30_010
    assert len(cut([PlannedRange(0, 0, 10)], 8)) == 1, "not below ROWS_PER_TASK_MIN"
    assert ROWS_PER_TASK_MIN > 10


def test_nothing_to_read_needs_no_task() -> None:
    assert cut([], 4) == []
