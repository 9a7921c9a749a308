from typing import Any

import pytest

from penstock.cli.bench import targets
from penstock.cli.bench.row import Judge, Limits

LIMITS = Limits(2_000.0, 0.0002, 0.0003, 0.0004)
FOUND: dict[str, Any] = {
    "messages": 1_000_000,
    "messages_per_s": 5e6,
    "lost": 0,
    "repeated": 0,
    "ids": 1_000_000,
    "id_bytes": 64_000_000,
    "peak_bytes": 70_000_000,
    "plain_messages_per_s": 6e6,
    "share": 0.5,
}


def _verdicts(judge: Judge, **changes: Any) -> list[str]:
    return [figure.verdict for figure in judge(FOUND | changes, LIMITS)]


@pytest.mark.parametrize(
    ("judge", "target"),
    [
        (targets.judge_key_shared, 400_000),
        (targets.judge_multicast, 1_000_000),
        (targets.judge_priorities, 300_000),
        (targets.judge_ids, 400_000),
        (targets.judge_reader, 3_000_000),
    ],
)
def test_the_targets_are_those_of_the_table(judge: Judge, target: int) -> None:
    assert _verdicts(judge, messages_per_s=target)[:2] == ["PASS", "PASS"]
    assert _verdicts(judge, messages_per_s=target - 1)[:2] == ["MISS", "PASS"]
    assert _verdicts(judge, lost=1)[:2] == ["PASS", "MISS"]
    assert _verdicts(judge, repeated=1)[:2] == ["PASS", "MISS"]


def test_the_plain_kind_has_a_figure_without_target() -> None:
    assert _verdicts(targets.judge_shared) == ["–", "PASS"]
    assert _verdicts(targets.judge_shared, lost=1) == ["–", "MISS"]


def test_a_million_ids_take_at_most_64_megabytes() -> None:
    assert _verdicts(targets.judge_ids)[2] == "PASS"
    assert _verdicts(targets.judge_ids, id_bytes=64_000_001)[2] == "MISS"
    assert _verdicts(targets.judge_ids, ids=500_000, id_bytes=32_000_001)[2] == "MISS"


def test_a_transaction_costs_at_most_two_publishes() -> None:
    assert _verdicts(targets.judge_transactions) == ["PASS", "PASS"]
    assert _verdicts(targets.judge_transactions, share=0.49, lost=1) == ["MISS", "MISS"]
