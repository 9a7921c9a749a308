"""Where a reader is, as a value."""

from penstock.vocabulary.reading import PlannedRange, ReaderState


def test_planned_ranges_start_at_the_progress_and_empty_ones_are_left_out() -> None:
    state = ReaderState("run-1", (3, 5, 0), (7, 5, 2))
    assert state.ranges() == [PlannedRange(0, 3, 7), PlannedRange(2, 0, 2)]


def test_a_range_is_read_as_partition_start_and_end() -> None:
    partition, start, end = PlannedRange(1, 2, 3)
    assert (partition, start, end) == (1, 2, 3)
