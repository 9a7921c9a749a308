from pathlib import Path

import pytest

from penstock.cli.bench import compaction
from penstock.cli.bench.plan import Plan


@pytest.mark.parametrize("keep_every", [None, 100])
def test_the_kept_survive(
    keep_every: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SETTLE_S", 0.1)
    monkeypatch.setattr(compaction, "KEPT_WAIT_S", 5.0)
    plan = Plan(
        folder=str(tmp_path / "store"), messages=5_000, keep_every=keep_every, is_quick=True
    )
    found = compaction.keep(plan)
    assert found["kept"] == (1 if keep_every is None else 50)
    assert found["limit_bytes"] > 0
    assert compaction.collect(plan) | {"collect_s": 0} == {
        "survived": found["kept"],
        "missing": 0,
        "unexpected": 0,
        "collect_s": 0,
    }


def test_one_of_all_is_kept() -> None:
    plan = Plan(messages=1_000)
    assert sum(compaction.is_kept(n, plan) for n in range(1_000)) == 1


def test_larger_bodies_are_fewer() -> None:
    assert compaction.count_of(Plan()) == 10_000_000
    assert compaction.count_of(Plan(size=1_000)) == 1_000_000
    assert compaction.count_of(Plan(messages=7)) == 7
