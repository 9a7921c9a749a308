"""What recovery found, in words a person can act on."""

from penstock.journal.report import Damage, Report


def test_a_damage_names_the_file_the_bytes_and_the_loss() -> None:
    damage = Damage(3, "segment-00000003", 512, 1024, 2, 5)
    assert str(damage) == "segment-00000003 bytes 512–1024: 2 record(s) lost, 5 kept"


def test_a_loss_that_cannot_be_counted_is_called_unknown() -> None:
    assert "an unknown number of record(s) lost" in str(Damage(3, "s", 0, 1, None, 0))


def test_a_report_is_damaged_only_by_damage() -> None:
    report = Report()
    assert not report.is_damaged
    report.notes.append("something to know")
    assert not report.is_damaged
    report.damages.append(Damage(1, "s", 0, 1, 0, 0))
    assert report.is_damaged


def test_reports_do_not_share_their_lists() -> None:
    Report().notes.append("mine")
    assert Report().notes == []
