from pathlib import Path

from penstock.cli.bench import raw


def test_synced_writes_take_time_and_leave_nothing(tmp_path: Path) -> None:
    rate, times = raw.sync_limit(tmp_path, 0.05)
    assert rate > 0
    assert 0 < times.p50 <= times.p99 <= times.worst
    assert list(tmp_path.iterdir()) == []


def test_groups_of_any_size_can_be_written(tmp_path: Path) -> None:
    assert raw.write_rate(tmp_path, [512, 4_096, raw.FILE_BYTES * 2], 0.05) > 0
    assert list(tmp_path.iterdir()) == []
