from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench import modes, suite
from penstock.cli.bench.plan import Plan
from penstock.cli.bench.row import Judge, Limits, Row

TIMES = {"p50": 0.0002, "p90": 0.0003, "p99": 0.0004, "p999": 0.001, "worst": 0.002}
LIMITS = Limits(2_000.0, 0.0002, 0.0003, 0.0004)
SAMPLE: dict[str, Any] = {
    "messages": 1_000,
    "messages_per_s": 1_000_000.0,
    "one_topic_messages_per_s": 1_100_000.0,
    "bytes_per_s": 1e8,
    "raw_bytes_per_s": 4e8,
    "raw_share": 0.25,
    "raw_syncs_per_s": 2_000.0,
    "other_bytes": 1_000,
    "group_bytes": 9_000.0,
    "lost": 0,
    "latency": TIMES,
    "raw": TIMES,
    "rate": 1_000.0,
    "clean_open_s": 0.1,
    "clean_bytes": 1_000,
    "killed_open_s": 1.0,
    "killed_log_bytes": 1_000_000_000,
    "unacked": 1_000_000,
    "state_bytes": 2_100_000,
    "messages_held": 10_000_000,
    "resident_bytes": 300_000_000,
    "resident_bytes_empty": 50_000_000,
    "topics": 100_000,
    "share": 0.9,
    "bytes_per_topic": 1_500.0,
    "reopen_s": 4.0,
    "kept": 1,
    "disk_bytes": 200_000_000,
    "limit_bytes": 256_000_000,
    "missing": 0,
    "unexpected": 0,
    "repeated": 0,
    "ids": 1_000_000,
    "id_bytes": 42_000_000,
    "peak_bytes": 60_000_000,
    "plain_messages_per_s": 1_500_000.0,
    "absent": [],
    "ratios": {"nats:": 30.0, "redis:": 12.0, "nats:always": 30.0, "redis:always": 3.0},
    "values": {"serve:": 1.0, "nats:": 1.0, "redis:": 1.0, "nats:always": 1.0, "redis:always": 1.0},
    "loopback": TIMES,
    "connections": 10_000,
    "open_s": 10.0,
    "server_resident_bytes": 500_000_000,
}


@pytest.mark.parametrize("row", suite.ROWS, ids=lambda row: row.name)
def test_every_row_is_judged(row: Row) -> None:
    figures = row.judge(SAMPLE, LIMITS)
    assert figures
    without = [figure for figure in figures if figure.target is None]
    assert len(without) == (row.name == "shared")
    assert all(len(figure.row) <= 62 for figure in figures)


def _verdicts(judge: Judge, **changes: Any) -> list[str]:
    return [figure.verdict for figure in judge(SAMPLE | changes, LIMITS)]


def test_the_targets_are_those_of_the_table() -> None:
    assert _verdicts(suite.judge_batches, messages_per_s=1_500_000) == ["PASS"]
    assert _verdicts(suite.judge_batches, messages_per_s=1_499_999) == ["MISS"]
    assert _verdicts(suite.judge_kilobytes, raw_share=0.4) == ["PASS"]
    assert _verdicts(suite.judge_end_to_end, messages_per_s=499_999, lost=1) == ["MISS", "MISS"]
    assert _verdicts(suite.judge_callers, messages_per_s=60_000) == ["PASS"]
    assert _verdicts(suite.judge_callers, messages_per_s=59_999) == ["MISS"]
    slow = TIMES | {"p50": 0.000301, "p99": 0.00201}
    assert _verdicts(suite.judge_latency, latency=slow) == ["MISS", "MISS"]
    assert _verdicts(suite.judge_recovery, killed_open_s=2.5) == ["PASS", "PASS", "PASS"]
    assert _verdicts(suite.judge_recovery, killed_open_s=2.6, lost=1) == ["PASS", "MISS", "MISS"]
    assert _verdicts(suite.judge_unacked, state_bytes=10_000_001) == ["MISS"]
    assert _verdicts(suite.judge_backlog, resident_bytes=400_000_001) == ["MISS"]
    assert _verdicts(suite.judge_topics, share=0.79, reopen_s=11) == ["MISS", "PASS", "MISS"]
    assert _verdicts(suite.judge_compaction, disk_bytes=256_000_001, missing=1) == ["MISS", "MISS"]


def test_callers_are_never_asked_for_more_than_80_000() -> None:
    fast = SAMPLE | {"raw_syncs_per_s": 20_000.0}
    assert suite.judge_callers(fast, LIMITS)[0].target == 80_000


def test_each_row_has_a_fresh_folder_that_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Plan] = []

    def measure(_mode: str, plan: Plan, _tick: Any) -> dict[str, Any]:
        seen.append(plan)
        assert plan.path.parent.is_dir()
        return SAMPLE

    monkeypatch.setattr(modes, "measure", measure)
    rows = tuple(row for row in suite.ROWS if row.name in {"batches", "kilobytes"})
    found = list(suite.run(Plan(folder=str(tmp_path)), rows, LIMITS))
    assert [row.name for row, _, _ in found] == ["batches", "kilobytes"]
    assert [(plan.batch, plan.size) for plan in seen] == [(1_000, 100), (100, 1_000)]
    assert list(tmp_path.iterdir()) == []


def test_the_raw_disk_is_measured(tmp_path: Path) -> None:
    limits = suite.raw_limits(tmp_path, 0.05)
    assert limits.syncs_per_s > 0
    assert 0 < limits.p50 <= limits.p99
