from typing import Any

from penstock.cli.bench import net, net_targets
from penstock.cli.bench.row import Judge, Limits

LIMITS = Limits(2_000.0, 0.0002, 0.0003, 0.0004)
TIMES = {"p50": 0.0001, "p90": 0.0003, "p99": 0.0004, "p999": 0.001, "worst": 0.002}
FOUND: dict[str, Any] = {
    "messages": 1_000_000,
    "messages_per_s": 450_000,
    "lost": 0,
    "repeated": 0,
    "absent": [],
    "ratios": {"nats:": 20.0, "redis:": 10.0, "nats:always": 20.0, "redis:always": 2.0},
    "values": {"serve:": 1.0, "nats:": 1.0, "redis:": 1.0, "nats:always": 1.0, "redis:always": 1.0},
    "latency": TIMES | {"p50": 0.0004},
    "raw": TIMES,
    "loopback": TIMES,
    "connections": 10_000,
    "topics": 10_000,
    "open_s": 10.0,
    "server_resident_bytes": 1_000_000_000,
}


def _verdicts(judge: Judge, **changes: Any) -> list[str]:
    return [figure.verdict for figure in judge(FOUND | changes, LIMITS)]


def test_the_targets_are_those_of_the_table() -> None:
    passed = ["PASS"] * 4
    assert _verdicts(net_targets.judge_end_to_end) == passed
    assert _verdicts(net_targets.judge_end_to_end, messages_per_s=449_999, lost=1) == [
        "MISS",
        "PASS",
        "PASS",
        "MISS",
    ]
    less = {name: ratio - 0.1 for name, ratio in FOUND["ratios"].items()}
    assert _verdicts(net_targets.judge_end_to_end, ratios=less)[1:3] == ["MISS", "MISS"]
    assert _verdicts(net_targets.judge_tasks) == ["PASS", "PASS"]
    assert _verdicts(net_targets.judge_tasks, ratios=less) == ["MISS", "MISS"]
    assert _verdicts(net_targets.judge_one) == ["PASS"]
    slow = {"latency": TIMES | {"p50": 0.000401}}
    assert _verdicts(net_targets.judge_one, **slow) == ["MISS"]
    assert _verdicts(net_targets.judge_rest, messages_per_s=8_000) == ["PASS", "PASS"]
    assert _verdicts(net_targets.judge_rest, messages_per_s=7_999, repeated=1) == ["MISS", "MISS"]
    assert _verdicts(net_targets.judge_ndjson, messages_per_s=150_000) == ["PASS"]
    assert _verdicts(net_targets.judge_ndjson, messages_per_s=149_999) == ["MISS"]
    assert _verdicts(net_targets.judge_lines, messages_per_s=50_000) == ["PASS"]
    assert _verdicts(net_targets.judge_lines, messages_per_s=49_999) == ["MISS"]
    assert _verdicts(net_targets.judge_connections) == ["PASS", "PASS"]
    assert _verdicts(net_targets.judge_connections, server_resident_bytes=1_000_000_001) == [
        "MISS",
        "PASS",
    ]


def test_who_cannot_be_compared_is_a_miss() -> None:
    figures = net_targets.judge_tasks(FOUND | {"absent": ["redis:always"]}, LIMITS)
    assert [figure.verdict for figure in figures] == ["MISS", "PASS"]
    assert "make servers" in figures[0].note


def test_every_row_can_be_measured() -> None:
    assert {row.mode for row in net_targets.ROWS} == set(net.MODES)
