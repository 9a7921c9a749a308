"""Sizes of the journal fit together."""

from penstock.journal.settings import GROUP_BYTES_MAX, JournalSettings
from penstock.vocabulary.limits import BATCH_BYTES_MAX


def test_segments_grow_between_their_bounds() -> None:
    settings = JournalSettings()
    assert settings.segment_bytes_min <= settings.segment_bytes_max < 1 << 32


def test_the_largest_batch_fits_into_the_largest_segment() -> None:
    assert JournalSettings().segment_bytes_max > BATCH_BYTES_MAX + 4096


def test_a_group_fits_into_a_segment() -> None:
    assert JournalSettings().segment_bytes_max > GROUP_BYTES_MAX


def test_a_snapshot_is_due_after_several_segments() -> None:
    settings = JournalSettings()
    assert settings.snapshot_bytes >= 2 * settings.segment_bytes_max


def test_new_segments_are_zeroed_unless_a_test_says_otherwise() -> None:
    assert JournalSettings().is_zeroing
